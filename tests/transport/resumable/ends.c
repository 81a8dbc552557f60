/* ends.c - see ends.h. */
#include "tests/transport/resumable/ends.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>

const struct pair_security *ends_security;

/* Exchanges the counts. */
static enum rg_status greet(struct rg_conn *conn, uint64_t received, uint64_t *peer_received)
{
    const struct iovec part = {&received, sizeof received};
    struct rg_message message;
    enum rg_status status = rg_conn_send(conn, &(struct rg_send){.msg = &part, .n_msg = 1});
    if (status == RG_OK)
        status = rg_conn_recv(conn, 2000, &message);
    if (status == RG_OK && message.size != sizeof *peer_received)
        status = RG_ERR_PROTOCOL;
    if (status == RG_OK)
        memcpy(peer_received, message.data, sizeof *peer_received);
    return status;
}

enum rg_status renew(void *user, struct rg_resumable_loss *loss, uint64_t received, struct rg_conn **out,
                     struct rg_conn **control_conn, uint64_t *peer_received)
{
    struct end *end = user;
    const struct rg_transport_options options = {.filters = end->filters,
                                                 .tls = end->security ? end->security->client : NULL};
    struct rg_conn *conn;
    atomic_store(&end->peer, loss->control_fd < 0 ? loss->peer : rg_resumable_peer(loss->control_fd));
    if (atomic_load(&end->refuses))
        return RG_ERR_REFUSED;
    if (atomic_load(&end->waits))
        return RG_ERR_UNREACHABLE;
    *out = atomic_exchange(&end->upgraded, NULL);
    if (*out) {
        *control_conn = end->upgraded_control;
        return greet(*out, received, peer_received);
    }
    enum rg_status status = end->connects ? rg_transport_connect(rg_listener_address(end->listener), &options,
                                                                 loss->why, sizeof loss->why, &conn)
                                          : rg_listener_accept(end->listener, 200, &conn);
    if (status != RG_OK)
        return status;
    if (!end->connects) /* one that came and went since */
        for (struct rg_conn *later; rg_listener_accept(end->listener, 0, &later) == RG_OK; conn = later)
            rg_conn_destroy(conn);
    if (!end->connects && end->security)
        status = end->security->accept(conn, &conn);
    if (status != RG_OK)
        return RG_ERR_UNREACHABLE;
    status = greet(conn, received, peer_received);
    if (status == RG_OK && end->channels) {
        const struct rg_multipath_options bundle = {.channels = end->channels, .codecs = rg_codecs_here()};
        CHECK_OK(rg_multipath_wrap(conn, &bundle, &conn));
    }
    if (status == RG_OK)
        *out = conn;
    else
        rg_conn_destroy(conn);
    return status == RG_OK ? RG_OK : RG_ERR_UNREACHABLE;
}

void report(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss)
{
    struct end *end = user;
    if (event == RG_RESUMABLE_GAVE_UP)
        fprintf(stderr, "given up: %s after %.1f s: %s\n", rg_status_string(loss->status),
                (double)(rg_now_ns() - loss->since_ns) / 1e9, loss->why);
    atomic_fetch_add(event == RG_RESUMABLE_LOST      ? &end->lost
                     : event == RG_RESUMABLE_RESUMED ? &end->resumed
                                                     : &end->gave_up,
                     1);
}

void ends_open_at(struct ends *ends, const char *at, const char *filters, unsigned channels,
                  uint64_t patience_ns)
{
    memset(ends, 0, sizeof *ends);
    ends->pair = pair_open_secured(at, filters, RG_WAIT_AUTO, ends_security);
    if (channels)
        pair_multipath(&ends->pair, "", channels, RG_COMPRESS_NONE);
    ends->a = (struct end){
        .listener = ends->pair.listener, .filters = filters, .channels = channels, .connects = true};
    ends->b = (struct end){.listener = ends->pair.listener, .filters = "", .channels = channels};
    ends->a.security = ends->b.security = ends_security;
    struct rg_resumable_options options = {.patience_ns = patience_ns, .renew = renew, .report = report};
    options.user = &ends->a;
    CHECK((ends->pair.a = rg_resumable_create(ends->pair.a, NULL, &options)) != NULL);
    options.user = &ends->b;
    CHECK((ends->pair.b = rg_resumable_create(ends->pair.b, NULL, &options)) != NULL);
    rg_conn_set_read_ahead(ends->pair.a);
    rg_conn_set_read_ahead(ends->pair.b);
}

void ends_open(struct ends *ends, const char *filters, unsigned channels, uint64_t patience_ns)
{
    ends_open_at(ends, LASTING_ADDRESS, filters, channels, patience_ns);
}

void tethered_open(struct ends *ends, struct pair *control_conn, const char *filters, unsigned rails,
                   const char *rail_filters, const char *last_filters)
{
    memset(ends, 0, sizeof *ends);
    ends->pair = pair_open("mem:tethered", filters, RG_WAIT_AUTO);
    if (rails)
        pair_rails(&ends->pair, rail_filters, last_filters, rails);
    *control_conn = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
    ends->a = (struct end){.listener = control_conn->listener, .filters = "", .connects = true};
    ends->b = (struct end){.listener = control_conn->listener, .filters = ""};
    struct rg_resumable_options options = {.patience_ns = 60000000000ull, .renew = renew, .report = report};
    options.user = &ends->a;
    CHECK((ends->pair.a = rg_resumable_create(ends->pair.a, control_conn->a, &options)) != NULL);
    options.user = &ends->b;
    CHECK((ends->pair.b = rg_resumable_create(ends->pair.b, control_conn->b, &options)) != NULL);
    control_conn->a = control_conn->b = NULL;
}

/* --- traffic --- */

/* The sizes of message n: mostly small, some with much bulk data. */
static void sizes(uint64_t n, size_t *msg, size_t *bulk)
{
    const uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u;
    *msg = 16 + (x >> 33) % 2000;
    *bulk = (x >> 20) % 4 == 0 ? (x >> 22) % 400000 : 0;
    if (n % 61 == 60)
        *msg = 100000;
}

/*
 * In turn: memory that is the caller's again at once, and several pieces of memory that are held for a while.
 */
void *send_all(void *arg)
{
    enum { BUFFERS = 5 };
    const struct flow *flow = arg;
    unsigned char *msg = malloc(RG_MESSAGE_MAX), *buffers = malloc(BUFFERS * RG_BULK_MAX);
    struct rg_lease holds[BUFFERS] = {0};
    for (uint64_t n = 0, i = 0; n < flow->messages; n++, i = n % BUFFERS) {
        size_t msg_size, bulk_size;
        unsigned char *bulk = buffers + i * RG_BULK_MAX;
        struct rg_lease *hold = i ? &holds[i] : NULL;
        sizes(n, &msg_size, &bulk_size);
        bulk_size *= 1 + flow->larger;
        rg_lease_end(&holds[i]);
        memset(bulk, 0xee, RG_BULK_MAX / 8);
        pattern_fill(msg, msg_size, flow->first_seed + 2 * n);
        pattern_fill(bulk, bulk_size, flow->first_seed + 2 * n + 1);
        const struct iovec part = {msg, msg_size};
        const struct iovec data[2] = {{bulk, bulk_size / 3},
                                      {bulk + bulk_size / 3, bulk_size - bulk_size / 3}};
        struct rg_send send = {.msg = &part,
                               .n_msg = 1,
                               .bulk = data,
                               .n_bulk = bulk_size ? 2 : 0,
                               .lease = hold,
                               .detachable = true};
        CHECK_OK(rg_conn_send(flow->conn, &send));
        memset(msg, 0xee, msg_size); /* the caller's again */
        if (send.detached)
            CHECK_OK(rg_conn_send_detached(flow->conn, &send));
        if (!hold)
            memset(bulk, 0xee, bulk_size);
    }
    for (int i = 0; i < BUFFERS; i++) {
        rg_lease_end(&holds[i]);
        CHECK(rg_lease_ended(&holds[i]));
    }
    free(msg);
    free(buffers);
    return NULL;
}

void *receive_all(void *arg)
{
    const struct flow *flow = arg;
    for (uint64_t n = 0; n < flow->messages; n++) {
        size_t msg_size, bulk_size;
        sizes(n, &msg_size, &bulk_size);
        bulk_size *= 1 + flow->larger;
        struct rg_message message;
        CHECK_OK(rg_conn_recv(flow->conn, -1, &message));
        CHECK(message.size == msg_size && message.bulk_size == bulk_size);
        unsigned char *bulk = malloc(bulk_size + 1);
        for (size_t at = 0, part; at < bulk_size; at += part) { /* in pieces of several sizes */
            part = bulk_size - at < 70000 ? bulk_size - at : 30000 + at % 40000;
            CHECK_OK(rg_conn_recv_bulk(flow->conn, bulk + at, part));
        }
        CHECK(
            pattern_matches(message.data, msg_size, flow->first_seed + 2 * n)); /* also after the bulk data */
        CHECK(pattern_matches(bulk, bulk_size, flow->first_seed + 2 * n + 1));
        free(bulk);
    }
    return NULL;
}

unsigned run_between(struct ends *ends, uint64_t messages, unsigned larger)
{
    struct flow there = {ends->pair.a, messages, 1000000, larger},
                back = {ends->pair.b, messages, 5000000, larger};
    struct flow there_in = {ends->pair.b, messages, 1000000, larger},
                back_in = {ends->pair.a, messages, 5000000, larger};
    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, send_all, &there) == 0);
    CHECK(pthread_create(&threads[1], NULL, send_all, &back) == 0);
    CHECK(pthread_create(&threads[2], NULL, receive_all, &there_in) == 0);
    CHECK(pthread_create(&threads[3], NULL, receive_all, &back_in) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&ends->a.gave_up) == 0 && atomic_load(&ends->b.gave_up) == 0);
    return atomic_load(&ends->a.resumed);
}

unsigned run_traffic(const char *filters, unsigned channels, uint64_t messages)
{
    struct ends ends;
    ends_open(&ends, filters, channels, 30000000000ull);
    const unsigned resumed = run_between(&ends, messages, 0);
    pair_close(&ends.pair);
    return resumed;
}

uint64_t receive_word(struct rg_conn *conn)
{
    struct rg_resumable_header word;
    struct rg_message message;
    CHECK_OK(rg_conn_recv(conn, -1, &message));
    CHECK(message.size == sizeof word && message.bulk_size == 0);
    memcpy(&word, message.data, sizeof word);
    CHECK(word.kind == RG_RESUMABLE_ACK);
    return word.received;
}
