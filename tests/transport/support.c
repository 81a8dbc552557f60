/* support.c - see support.h. */
#include "support.h"

#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HANGS_S = 580 }; /* below ctest's limit: what is slow on a busy machine does not hang */

void test_begin(void)
{
    alarm(HANGS_S);
    rg_transport_register(&rg_transport_tcp_ops);
#ifdef RG_TEST_RDMA
    rg_transport_register(&rg_transport_rdma_ops);
#endif
}

/* The address to connect to; of a listener at all of a machine's addresses the one that is named. */
static const char *address_to(const struct rg_listener *listener, const char *host, char *text, size_t size)
{
    const char *address = rg_listener_address(listener);
    const char *star = strchr(address, '*');
    if (!star)
        return address;
    snprintf(text, size, "%.*s%s%s", (int)(star - address), address, host, star + 1);
    return text;
}

/* Of the two links of tests/rdma-vm. */
static const char *const hosts[] = {"10.77.0.1", "10.78.0.1"};

/* The accepting end of one connection, in a thread of its own: a handshake needs both. */
struct acceptor {
    const struct pair *pair;
    struct rg_conn *conn;
};

static void *accept_one(void *arg)
{
    struct acceptor *acceptor = arg;
    struct rg_conn *plain;
    CHECK_OK(rg_listener_accept(acceptor->pair->listener, 5000, &plain));
    if (acceptor->pair->security->accept(plain, &acceptor->conn) != RG_OK)
        acceptor->conn = NULL;
    return NULL;
}

enum rg_status pair_connect(struct pair *pair, const char *address,
                            const struct rg_transport_options *options, char *why, size_t why_size,
                            struct rg_conn **a, struct rg_conn **b)
{
    struct rg_transport_options own = *options;
    struct acceptor acceptor = {.pair = pair};
    pthread_t thread;
    *a = *b = NULL;
    if (!pair->security) {
        enum rg_status status = rg_transport_connect(address, options, why, why_size, a);
        if (status == RG_OK)
            CHECK_OK(rg_listener_accept(pair->listener, 5000, b));
        return status;
    }
    own.tls = pair->security->client;
    CHECK(pthread_create(&thread, NULL, accept_one, &acceptor) == 0);
    enum rg_status status = rg_transport_connect(address, &own, why, why_size, a);
    pthread_join(thread, NULL);
    *b = acceptor.conn;
    return status;
}

struct pair pair_open_secured(const char *address, const char *filters, enum rg_wait_mode wait,
                              const struct pair_security *security)
{
    struct pair pair = {.security = security};
    char text[128];
    const struct rg_transport_options connecting = {.filters = filters, .wait = wait};
    const struct rg_transport_options listening = {.filters = "", .wait = wait};
    char why[512] = "";
    enum rg_status status = rg_transport_listen(address, &listening, why, sizeof why, &pair.listener);
    if (status == RG_OK)
        status = pair_connect(&pair, address_to(pair.listener, hosts[0], text, sizeof text), &connecting, why,
                              sizeof why, &pair.a, &pair.b);
    if (status != RG_OK)
        fprintf(stderr, "%s: %s\n", address, why);
    CHECK_OK(status);
    CHECK(pair.b);
    return pair;
}

struct pair pair_open(const char *address, const char *filters, enum rg_wait_mode wait)
{
    return pair_open_secured(address, filters, wait, NULL);
}

/* One more connection of a pair. */
static void connect_more(struct pair *pair, unsigned i, const char *filters, struct rg_conn **a,
                         struct rg_conn **b)
{
    const struct rg_transport_options connecting = {.filters = filters, .bulk = true, .wait = RG_WAIT_BLOCK};
    char text[128];
    CHECK_OK(pair_connect(pair, address_to(pair->listener, hosts[i % 2], text, sizeof text), &connecting,
                          NULL, 0, a, b));
    CHECK(*b);
}

void pair_multipath(struct pair *pair, const char *filters, unsigned channels, enum rg_compression compress)
{
    const struct rg_multipath_options options = {
        .channels = channels, .compress = compress, .codecs = rg_codecs_here()};
    struct rg_conn *a, *b;
    CHECK_OK(rg_multipath_wrap(pair->a, &options, &pair->a));
    CHECK_OK(rg_multipath_wrap(pair->b, &options, &pair->b));
    for (unsigned i = 0; i < channels; i++) {
        connect_more(pair, i, filters, &a, &b);
        CHECK_OK(rg_multipath_add(pair->a, a));
        CHECK_OK(rg_multipath_add(pair->b, b));
    }
}

void pair_rails(struct pair *pair, const char *filters, const char *last_filters, unsigned rails)
{
    const struct rg_multirail_options options = {.rails = rails};
    struct rg_conn *a, *b;
    CHECK_OK(rg_multirail_wrap(pair->a, &options, &pair->a));
    CHECK_OK(rg_multirail_wrap(pair->b, &options, &pair->b));
    for (unsigned i = 0; i < rails; i++) {
        connect_more(pair, i, i + 1 < rails ? filters : last_filters, &a, &b);
        CHECK_OK(rg_multirail_add(pair->a, a, RG_MULTIRAIL_ANY));
        CHECK_OK(rg_multirail_add(pair->b, b, RG_MULTIRAIL_ANY));
    }
}

void pair_close(struct pair *pair)
{
    rg_conn_destroy(pair->a);
    rg_conn_destroy(pair->b);
    rg_listener_destroy(pair->listener);
    *pair = (struct pair){0};
}

/* Every other 4 KiB can be compressed. The first two bytes are no kind of message that a transport knows. */
static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    if (index / 512 % 2)
        index |= 63;
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return x * 0x94d049bb133111ebu | (index == 0 ? 0x8000u : 0);
}

void pattern_fill(void *data, size_t size, uint64_t seed)
{
    unsigned char *cur = data;
    uint64_t word, i = 0;
    for (; size >= sizeof word; cur += sizeof word, size -= sizeof word) {
        word = pattern_word(seed, i++);
        memcpy(cur, &word, sizeof word);
    }
    word = pattern_word(seed, i);
    memcpy(cur, &word, size);
}

bool pattern_matches(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *cur = data;
    uint64_t word, i = 0;
    for (; size >= sizeof word; cur += sizeof word, size -= sizeof word) {
        word = pattern_word(seed, i++);
        if (memcmp(cur, &word, sizeof word) != 0)
            return false;
    }
    word = pattern_word(seed, i);
    return memcmp(cur, &word, size) == 0;
}

enum rg_status send_bytes(struct rg_conn *conn, const void *msg, size_t msg_size, const void *bulk,
                          size_t bulk_size)
{
    const struct iovec m = {(void *)(uintptr_t)msg, msg_size}, k = {(void *)(uintptr_t)bulk, bulk_size};
    return rg_conn_send(conn, &(struct rg_send){.msg = &m, .n_msg = 1, .bulk = &k, .n_bulk = bulk ? 1 : 0});
}

enum rg_status send_pattern(struct rg_conn *conn, size_t msg_size, size_t bulk_size, uint64_t seed)
{
    unsigned char *data = malloc(msg_size + bulk_size + 1);
    CHECK(data);
    pattern_fill(data, msg_size, seed);
    pattern_fill(data + msg_size, bulk_size, seed + 1);
    enum rg_status status = send_bytes(conn, data, msg_size, data + msg_size, bulk_size);
    memset(data, 0xdd, msg_size + bulk_size); /* the memory is the caller's again */
    free(data);
    return status;
}

void expect_pattern(struct rg_conn *conn, size_t msg_size, size_t bulk_size, uint64_t seed)
{
    struct rg_message m;
    CHECK_OK(rg_conn_recv(conn, -1, &m));
    CHECK(m.size == msg_size);
    CHECK(m.bulk_size == bulk_size);
    CHECK((uintptr_t)m.data % 16 == 0);
    CHECK(pattern_matches(m.data, m.size, seed));
    if (bulk_size == 0)
        return;
    unsigned char *bulk = malloc(bulk_size);
    CHECK(bulk);
    CHECK_OK(rg_conn_recv_bulk(conn, bulk, bulk_size));
    CHECK(pattern_matches(bulk, bulk_size, seed + 1));
    CHECK(pattern_matches(m.data, m.size, seed)); /* taking bulk leaves the message alone */
    free(bulk);
}

void expect_good(struct rg_conn *a, struct rg_conn *b)
{
    CHECK_OK(send_pattern(a, 33, 7, 4711));
    expect_pattern(b, 33, 7, 4711);
    CHECK_OK(send_pattern(b, 1, 0, 4712));
    expect_pattern(a, 1, 0, 4712);
}
