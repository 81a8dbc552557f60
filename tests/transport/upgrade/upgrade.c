/*
 * upgrade.c - what both sides say when a session might go on over another transport and cannot. (That it does
 * is tested where there is RDMA: tests/rdma-vm.)
 */
#include "transport/upgrade/upgrade.h"

#include "tests/transport/support.h"
#include "transport/control.h"

#include <pthread.h>
#include <string.h>

static struct rg_server_hello *hello_of(struct rg_control *message, const char *address)
{
    rg_server_hello_init(message);
    struct rg_server_hello *hello = &message->server_hello;
    if (address) {
        hello->transports.n = 2;
        strcpy(hello->transports.names[0], "rdma");
        strcpy(hello->transports.names[1], "tcp");
        hello->n_addresses = 1;
        snprintf(hello->addresses[0], sizeof hello->addresses[0], "%s", address);
    }
    return hello;
}

static void test_choices(void)
{
    enum rg_transport_choice choice;
    CHECK_OK(rg_transport_choice_parse("", &choice));
    CHECK(choice == RG_TRANSPORT_AUTO);
    CHECK_OK(rg_transport_choice_parse("rdma", &choice));
    CHECK(choice == RG_TRANSPORT_RDMA);
    CHECK_STATUS(rg_transport_choice_parse("RDMA", &choice), RG_ERR_INVALID);
    struct rg_transport_list list;
    rg_upgrade_offer(RG_TRANSPORT_TCP, &list);
    CHECK(list.n == 1 && strcmp(list.names[0], "tcp") == 0);
    rg_upgrade_offer(RG_TRANSPORT_RDMA, &list);
    CHECK(list.n == 2 && strcmp(list.names[0], "rdma") == 0);
}

/* A server that offers nothing: nothing is said, the session stays, unless the user wants RDMA or nothing. */
static void test_nothing_offered(void)
{
    struct pair pair = pair_open("mem:move", "", RG_WAIT_AUTO);
    struct rg_control message;
    struct rg_server_hello *hello = hello_of(&message, NULL);
    struct rg_conn *conn = pair.a, *control_conn;
    char why[256] = "";
    CHECK_OK(rg_upgrade_follow(RG_TRANSPORT_AUTO, hello, &conn, &control_conn, why, sizeof why));
    CHECK(conn == pair.a && !control_conn);
    struct rg_message none;
    CHECK_STATUS(rg_conn_recv(pair.b, 0, &none), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_upgrade_follow(RG_TRANSPORT_RDMA, hello, &conn, &control_conn, why, sizeof why),
                 RG_ERR_UNREACHABLE);
    CHECK(strstr(why, "no RDMA device") != NULL);
    pair_close(&pair);
}

/* Addresses where nothing answers, or that are none: the server is told that the session stays. */
static void test_unreachable(void)
{
    static const char *const addresses[] = {"rdma://127.0.0.1:1", "rdma://no host", "tcp://127.0.0.1:1"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct pair pair = pair_open("mem:move", "", RG_WAIT_AUTO);
        struct rg_control message, answer;
        struct rg_server_hello *hello = hello_of(&message, addresses[i]);
        struct rg_conn *conn = pair.a, *control_conn;
        char why[256] = "";
        CHECK_OK(rg_upgrade_follow(RG_TRANSPORT_AUTO, hello, &conn, &control_conn, why, sizeof why));
        CHECK(conn == pair.a && !control_conn);
        CHECK_OK(rg_control_receive(pair.b, 5000, &answer));
        CHECK(answer.kind == RG_CONTROL_UPGRADE && strcmp(answer.upgrade.transport, "tcp") == 0 &&
              !answer.upgrade.has_token);
        rg_control_fini(&answer);
        CHECK_STATUS(rg_upgrade_follow(RG_TRANSPORT_RDMA, hello, &conn, &control_conn, why, sizeof why),
                     RG_ERR_UNREACHABLE);
        pair_close(&pair);
    }
}

/* A server that offers what was not asked for, as policy forbids it, is told that the session stays; nobody goes there. */
static void test_not_asked_for(void)
{
    struct pair pair = pair_open("mem:move", "", RG_WAIT_AUTO);
    struct rg_control message, answer;
    struct rg_server_hello *hello = hello_of(&message, "rdma://127.0.0.1:1");
    struct rg_conn *conn = pair.a, *control_conn;
    char why[256] = "";
    CHECK_OK(rg_upgrade_follow(RG_TRANSPORT_TCP, hello, &conn, &control_conn, why, sizeof why));
    CHECK(conn == pair.a && !control_conn);
    CHECK(strstr(why, "not asked for") != NULL);
    CHECK_OK(rg_control_receive(pair.b, 5000, &answer));
    CHECK(answer.kind == RG_CONTROL_UPGRADE && strcmp(answer.upgrade.transport, "tcp") == 0);
    rg_control_fini(&answer);
    pair_close(&pair);
}

/* A client that does not speak of RDMA gets no listener. */
static void test_nothing_to_open(void)
{
    struct rg_transport_list offered = {.n = 1, .names = {"tcp"}};
    struct rg_control message;
    struct rg_server_hello *hello = hello_of(&message, NULL);
    CHECK(rg_upgrade_open(&offered, hello) == NULL);
    CHECK(hello->n_addresses == 0);
}

int main(void)
{
    test_begin();
    test_choices();
    test_nothing_offered();
    test_unreachable();
    test_not_asked_for();
    test_nothing_to_open();
    return 0;
}
