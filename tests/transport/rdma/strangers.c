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
    HANDSHAKES = 8, /* that a listener has under way at once */
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
    const struct rg_transport_options options = {.token = shown, .connect_timeout_ms = 4000};
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
    CHECK_OK(rg_listener_accept(listener, 5000, &b));
    const struct iovec message = {(void *)(uintptr_t) "well met", 8};
    struct rg_message got;
    CHECK_OK(rg_conn_send(a, &(struct rg_send){.msg = &message, .n_msg = 1}));
    CHECK_OK(rg_conn_recv(b, 5000, &got));
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

/* Their handshakes last until they are given up: others' go on beside them, and end with the listener. */
static void test_mute(const char *host)
{
    uint16_t port;
    struct rg_listener *listener = listen_at(host, &port);
    const struct rg_rdma_private private = private_with(token);
    struct mute mute[HANDSHAKES];
    int n = 0;
    for (; n < MUTE; n++)
        CHECK(mute_open(&mute[n], host, port, &private, sizeof private) == RDMA_CM_EVENT_ESTABLISHED);
    check_served(listener);
    for (; n < HANDSHAKES; n++)
        CHECK(mute_open(&mute[n], host, port, &private, sizeof private) == RDMA_CM_EVENT_ESTABLISHED);
    struct mute one_more;
    CHECK(mute_open(&one_more, host, port, &private, sizeof private) == RDMA_CM_EVENT_REJECTED);
    mute_close(&one_more);
    const uint64_t began = rg_now_ns();
    rg_listener_destroy(listener);
    CHECK(rg_now_ns() - began < 3000000000u); /* none of the last four was given up by itself yet */
    while (n > 0)
        mute_close(&mute[--n]);
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
    test_begin(90);
    test_without_token(argv[1]);
    test_mute(argv[1]);
    test_given_up(argv[1]);
    return 0;
}
