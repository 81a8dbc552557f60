/*
 * strangers.c - a listener of transport rdma among peers that mean no good, in the machine of tests/rdma-vm.
 *
 *   transport_strangers HOST
 *
 * Who does not show the listener's token is refused; who shows it and then says nothing holds up nobody else.
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"
#include "transport/rdma/wire.h"

#include "common/base/clock.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <string.h>

enum {
    STRANGERS = 20,
    MUTE = 4,
    HANDSHAKES = 8,     /* that a listener has under way at once */
    GIVEN_UP_MS = 5000, /* after which one is */
    SERVED_MS = 15000,  /* less than MUTE of them take, one after another */
    TRIES = 10,         /* on a machine that is busy with other things */
};

static const uint8_t token[RG_TRANSPORT_TOKEN] = "a token of tests",
                     wrong[RG_TRANSPORT_TOKEN] = "a token of testS";

/* A peer that asks for a connection and does nothing more. */
struct mute {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
};

static enum rdma_cm_event_type next_event(const struct mute *mute)
{
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(mute->events, &event) == 0);
    const enum rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    return type;
}

/* Asks for a connection with private data as it is given; what came of it. */
static enum rdma_cm_event_type mute_open(struct mute *mute, const char *host, uint16_t port,
                                         const void *private, size_t size)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, host, &to.sin_addr) == 1);
    mute->events = rdma_create_event_channel();
    CHECK(mute->events && rdma_create_id(mute->events, &mute->id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(mute->id, NULL, (struct sockaddr *)&to, 3000) == 0);
    CHECK(next_event(mute) == RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(mute->id, 3000) == 0);
    CHECK(next_event(mute) == RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(mute->id, NULL, &attr) == 0);
    struct rdma_conn_param param = {
        .private_data = private, .private_data_len = (uint8_t)size, .retry_count = 6, .rnr_retry_count = 7};
    CHECK(rdma_connect(mute->id, &param) == 0);
    return next_event(mute);
}

static void mute_close(struct mute *mute)
{
    rdma_disconnect(mute->id);
    rdma_destroy_qp(mute->id);
    rdma_destroy_id(mute->id);
    rdma_destroy_event_channel(mute->events);
}

static struct rg_rdma_private private_with(const uint8_t *shown)
{
    struct rg_rdma_private private = {.magic = htole32(RG_RDMA_MAGIC), .version = htole16(RG_RDMA_VERSION)};
    if (shown)
        memcpy(private.token, shown, sizeof private.token);
    return private;
}

static struct rg_listener *listen_at(const char *host, uint16_t *port)
{
    const struct rg_transport_options options = {.token = token};
    struct rg_listener *listener;
    char address[64];
    snprintf(address, sizeof address, "rdma://%s:0", host);
    CHECK_OK(rg_transport_listen(address, &options, NULL, 0, &listener));
    *port = (uint16_t)atoi(strrchr(rg_listener_address(listener), ':') + 1);
    return listener;
}

static enum rg_status try_connect(const struct rg_listener *listener, const uint8_t *shown,
                                  struct rg_conn **out)
{
    const struct rg_transport_options options = {.token = shown, .connect_timeout_ms = SERVED_MS};
    char why[256] = "";
    enum rg_status status =
        rg_transport_connect(rg_listener_address(listener), &options, why, sizeof why, out);
    CHECK(status == RG_OK || strcmp(why, RG_WHY_REFUSED) == 0);
    return status;
}

/* A connection that works, whatever others are at. */
static void check_served(struct rg_listener *listener)
{
    struct rg_conn *a, *b;
    CHECK_OK(try_connect(listener, token, &a));
    CHECK_OK(rg_listener_accept(listener, SERVED_MS, &b));
    const struct iovec message = {(void *)(uintptr_t) "well met", 8};
    struct rg_message got;
    CHECK_OK(rg_conn_send(a, &(struct rg_send){.msg = &message, .n_msg = 1}));
    CHECK_OK(rg_conn_recv(b, SERVED_MS, &got));
    CHECK(got.size == 8 && memcmp(got.data, "well met", 8) == 0);
    rg_conn_destroy(a);
    rg_conn_destroy(b);
}

static void test_without_token(const char *host)
{
    uint16_t port;
    struct rg_listener *listener = listen_at(host, &port);
    struct rg_conn *conn;
    CHECK_STATUS(try_connect(listener, NULL, &conn), RG_ERR_UNREACHABLE);
    CHECK_STATUS(try_connect(listener, wrong, &conn), RG_ERR_UNREACHABLE);
    struct mute strangers[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        struct rg_rdma_private private = private_with(i % 4 == 1 ? wrong : NULL);
        if (i % 4 == 2)
        private.version = htole16(RG_RDMA_VERSION - 1);
        CHECK(mute_open(&strangers[i], host, port, &private, i % 4 == 3 ? 8 : sizeof private) ==
              RDMA_CM_EVENT_REJECTED);
    }
    check_served(listener);
    for (int i = 0; i < STRANGERS; i++)
        mute_close(&strangers[i]);
    CHECK_STATUS(rg_listener_accept(listener, 0, &conn), RG_ERR_TIMEOUT);
    rg_listener_destroy(listener);
}

/*
 * Their handshakes last until they are given up: others' go on beside them, and end with the listener. False if some may have been
 * given up by themselves before that, or by the time that the listener had ended.
 */
static bool test_mute(const char *host)
{
    uint16_t port;
    struct rg_listener *listener = listen_at(host, &port);
    const struct rg_rdma_private private = private_with(token);
    struct mute mute[HANDSHAKES];
    int n = 0;
    const uint64_t began = rg_now_ns();
    for (; n < MUTE; n++)
        CHECK(mute_open(&mute[n], host, port, &private, sizeof private) == RDMA_CM_EVENT_ESTABLISHED);
    check_served(listener);
    const uint64_t last_began = rg_now_ns();
    for (; n < HANDSHAKES; n++)
        CHECK(mute_open(&mute[n], host, port, &private, sizeof private) == RDMA_CM_EVENT_ESTABLISHED);
    struct mute one_more;
    const bool rejected =
        mute_open(&one_more, host, port, &private, sizeof private) == RDMA_CM_EVENT_REJECTED;
    CHECK(rejected || rg_now_ns() - began >= GIVEN_UP_MS * 1000000ull);
    mute_close(&one_more);
    rg_listener_destroy(listener);
    const bool at_once = rg_now_ns() - last_began < GIVEN_UP_MS * 1000000ull;
    while (n > 0)
        mute_close(&mute[--n]);
    return rejected && at_once;
}

/* Those that are given up leave room. */
static void test_given_up(const char *host)
{
    uint16_t port;
    struct rg_listener *listener = listen_at(host, &port);
    const struct rg_rdma_private private = private_with(token);
    struct mute mute[HANDSHAKES];
    for (int i = 0; i < HANDSHAKES; i++)
        CHECK(mute_open(&mute[i], host, port, &private, sizeof private) == RDMA_CM_EVENT_ESTABLISHED);
    for (int i = 0; i < HANDSHAKES; i++)
        CHECK(next_event(&mute[i]) == RDMA_CM_EVENT_DISCONNECTED);
    check_served(listener);
    for (int i = 0; i < HANDSHAKES; i++)
        mute_close(&mute[i]);
    rg_listener_destroy(listener);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s HOST\n", argv[0]);
        return 2;
    }
    test_begin();
    test_without_token(argv[1]);
    int tries = 0;
    while (!test_mute(argv[1]))
        CHECK(++tries < TRIES);
    test_given_up(argv[1]);
    return 0;
}
