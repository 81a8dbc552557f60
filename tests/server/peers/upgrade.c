/*
 * upgrade.c - what two workers say to each other before their connection moves to RDMA, where it then stays where it is. (That it
 * moves is tested where there is RDMA: tests/rdma-vm, part peers.)
 */
#include "server/peers/upgrade.h"

#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "transport/control.h"
#include "transport/topology/rails.h"

#include <string.h>

enum { SOON_MS = 10000 };

struct ends {
    struct rg_conn *here, *there;
};

static struct ends ends_open(void)
{
    struct ends ends;
    ends.there = connect_here(false, &ends.here);
    return ends;
}

static void ends_close(struct ends *ends)
{
    rg_conn_destroy(ends->here);
    rg_conn_destroy(ends->there);
}

static void say_upgrade(struct rg_conn *conn, const char *transport)
{
    struct rg_control message;
    rg_upgrade_init(&message, transport);
    CHECK(rg_control_send(conn, &message) == RG_OK);
}

/* The connection is still the same, and nothing was left in it. */
static void check_stays(struct ends *ends, const struct rg_conn *before, const struct rg_conn *control_conn)
{
    struct rg_message received;
    char word[] = "next";
    const struct iovec part = {.iov_base = word, .iov_len = 4};
    CHECK(ends->here == before && !control_conn);
    for (int i = 0; i < 2; i++) {
        struct rg_conn *from = i ? ends->here : ends->there, *to = i ? ends->there : ends->here;
        CHECK(rg_conn_send(from, &(struct rg_send){.msg = &part, .n_msg = 1}) == RG_OK);
        CHECK(rg_conn_recv(to, SOON_MS, &received) == RG_OK);
        CHECK(received.size == 4 && memcmp(received.data, "next", 4) == 0);
    }
}

static void test_who_may(void)
{
    const struct rg_transport_list nothing = {0}, tcp = {.n = 1, .names = {"tcp"}},
                                   both = {.n = 2, .names = {"rdma", "tcp"}};
    struct rg_rail any;
    CHECK(!rg_peer_upgrade_may(true, &nothing));
    CHECK(!rg_peer_upgrade_may(true, &tcp));
    CHECK(!rg_peer_upgrade_may(false, &both));
    CHECK(rg_peer_upgrade_may(true, &both) == (rg_rails_here(NULL, 0, &any, 1) > 0));
}

/* Who has connected, and may not, says so, and waits for nothing. */
static void test_connecting_without_leave(void)
{
    struct ends ends = ends_open();
    struct rg_conn *before = ends.here, *control_conn;
    struct rg_control said = {0};
    CHECK(rg_peer_upgrade(true, false, &ends.here, &control_conn) == RG_OK);
    CHECK(rg_control_receive(ends.there, SOON_MS, &said) == RG_OK);
    CHECK(said.kind == RG_CONTROL_UPGRADE && strcmp(said.upgrade.transport, "tcp") == 0);
    rg_control_fini(&said);
    check_stays(&ends, before, control_conn);
    ends_close(&ends);
}

static void test_peer_stays(void)
{
    struct ends ends = ends_open();
    struct rg_conn *before = ends.here, *control_conn;
    say_upgrade(ends.there, "tcp");
    CHECK(rg_peer_upgrade(false, true, &ends.here, &control_conn) == RG_OK);
    check_stays(&ends, before, control_conn);
    ends_close(&ends);
}

/* The devices have gone since this side has said that there are some: it has no address to tell. */
static void test_no_device_any_more(void)
{
    struct ends ends = ends_open();
    struct rg_conn *before = ends.here, *control_conn;
    struct rg_control said = {0};
    struct rg_rail any;
    if (rg_rails_here(NULL, 0, &any, 1) == 0) {
        say_upgrade(ends.there, "rdma");
        CHECK(rg_peer_upgrade(false, true, &ends.here, &control_conn) == RG_OK);
        CHECK(rg_control_receive(ends.there, SOON_MS, &said) == RG_OK);
        CHECK(said.kind == RG_CONTROL_SERVER_HELLO && said.server_hello.n_addresses == 0 &&
              said.server_hello.n_devices == 0);
        rg_control_fini(&said);
        check_stays(&ends, before, control_conn);
    }
    ends_close(&ends);
}

/* Another transport, another message, or an end: the connection is of no use. */
static void test_what_is_wrong(void)
{
    for (int i = 0; i < 3; i++) {
        struct ends ends = ends_open();
        struct rg_conn *before = ends.here, *control_conn;
        struct rg_control answer = {.kind = RG_CONTROL_ANSWER};
        if (i == 0)
            say_upgrade(ends.there, "carrier-pigeon");
        else if (i == 1)
            CHECK(rg_control_send(ends.there, &answer) == RG_OK);
        else
            rg_conn_interrupt(ends.there);
        const enum rg_status status = rg_peer_upgrade(false, true, &ends.here, &control_conn);
        CHECK(i < 2 ? status == RG_ERR_PROTOCOL : status != RG_OK);
        CHECK(ends.here == before && !control_conn);
        ends_close(&ends);
    }
}

int main(void)
{
    stub_driver_use(stub_succeed);
    test_who_may();
    test_connecting_without_leave();
    test_peer_stays();
    test_no_device_any_more();
    test_what_is_wrong();
    return 0;
}
