/*
 * rails.c - lanes that may fail: whatever breaks, all bulk data arrives once and whole as long as one is left.
 *
 * Rails are connections of transport mem, which deliver: what was sent can be received. Filter fault breaks them. Where
 * the peer must do what ours does not, its side is played by hand: the connections of a pair that is no bundle at one end.
 *
 *   transport_rails [rdma SECONDS]     rdma: traffic alone, over the two links of tests/rdma-vm
 */
#include "support.h"

#include "common/clock.h"
#include "transport/bundle/bundle.h"
#include "transport/bundle/wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char address[] = "mem:rails";

/* --- traffic ------------------------------------------------------------------------------------------------- */

struct flow {
    struct rg_conn *conn;
    unsigned messages;
    uint64_t seed;
    bool registered;
};

static size_t bulk_of(const struct flow *flow, unsigned n)
{
    const uint64_t x = (flow->seed + n + 1) * 0x9e3779b97f4a7c15u;
    return n % 5 == 4 ? (x >> 30) % 1000 : RG_BUNDLE_MIN + (x >> 24) % (RG_BULK_MAX - RG_BUNDLE_MIN);
}

static void *send_all(void *arg)
{
    const struct flow *flow = arg;
    unsigned char *bulk = malloc(RG_BULK_MAX);
    if (flow->registered)
        (void)rg_conn_register(flow->conn, bulk, RG_BULK_MAX);
    for (unsigned n = 0; n < flow->messages; n++) {
        const size_t size = bulk_of(flow, n);
        pattern_fill(bulk, size, flow->seed + n);
        CHECK_OK(send_bytes(flow->conn, &n, sizeof n, bulk, size));
        memset(bulk, 0xee, size); /* the caller's again */
    }
    rg_conn_unregister(flow->conn, bulk);
    free(bulk);
    return NULL;
}

static void *receive_all(void *arg)
{
    const struct flow *flow = arg;
    unsigned char *bulk = malloc(RG_BULK_MAX);
    if (flow->registered)
        (void)rg_conn_register(flow->conn, bulk, RG_BULK_MAX);
    for (unsigned n = 0; n < flow->messages; n++) {
        const size_t size = bulk_of(flow, n);
        struct rg_message message;
        CHECK_OK(rg_conn_recv(flow->conn, -1, &message));
        CHECK(message.size == sizeof n && memcmp(message.data, &n, sizeof n) == 0);
        CHECK(message.bulk_size == size);
        for (size_t at = 0, part; at < size; at += part) { /* sometimes in parts that are no pieces */
            part = n % 3 == 0 && size - at > 300000 ? 300000 : size - at;
            CHECK_OK(rg_conn_recv_bulk(flow->conn, bulk + at, part));
        }
        CHECK(pattern_matches(bulk, size, flow->seed + n));
        memset(bulk, 0x77, size);
    }
    rg_conn_unregister(flow->conn, bulk);
    free(bulk);
    return NULL;
}

/* Both ways at once. */
static void run_traffic(struct pair *pair, unsigned messages, uint64_t seed, bool registered)
{
    struct flow flows[4] = {{pair->a, messages, seed, registered},
                            {pair->b, messages, seed + 5000, registered},
                            {pair->b, messages, seed, registered},
                            {pair->a, messages, seed + 5000, registered}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, i < 2 ? send_all : receive_all, &flows[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static unsigned living(struct rg_conn *conn)
{
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(conn, &statistics);
    return statistics.lanes;
}

static void test_all_good(void)
{
    for (unsigned rails = 1; rails <= 3; rails++) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_rails(&pair, "", "", rails);
        run_traffic(&pair, WORK(60), rails * 100, false);
        CHECK(living(pair.a) == rails && living(pair.b) == rails);
        pair_close(&pair);
    }
}

/* All rails but the last break, at a send, early or late. */
static void test_drops(void)
{
    for (unsigned at = 1; at <= 22; at += 3) {
        char filters[64];
        snprintf(filters, sizeof filters, "fault:send_lost_at=%u", at);
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_rails(&pair, filters, "", 3);
        run_traffic(&pair, 80, 1000 + at, false);
        CHECK(living(pair.a) == 1);
        pair_close(&pair);
    }
}

/* --- by hand ----------------------------------------------------------------------------------------------------- */

struct by_hand {
    struct pair pair;         /* b is the bundle, a its peer's first connection */
    struct rg_conn *rails[2]; /* the peer's ends */
    unsigned char *data;
};

static struct by_hand open_by_hand(void)
{
    struct by_hand hand = {.pair = pair_open(address, "", RG_WAIT_AUTO), .data = malloc(RG_BULK_MAX)};
    const struct rg_bundle_options options = {.lanes = 2, .rails = true};
    CHECK_OK(rg_bundle_wrap(hand.pair.b, &options, &hand.pair.b));
    for (int i = 0; i < 2; i++) {
        struct rg_conn *theirs;
        CHECK_OK(rg_transport_connect(rg_listener_address(hand.pair.listener), NULL, NULL, 0, &hand.rails[i]));
        CHECK_OK(rg_listener_accept(hand.pair.listener, 5000, &theirs));
        CHECK_OK(rg_bundle_add(hand.pair.b, theirs));
    }
    pattern_fill(hand.data, RG_BULK_MAX, 7);
    return hand;
}

static void close_by_hand(struct by_hand *hand)
{
    for (int i = 0; i < 2; i++)
        rg_conn_destroy(hand->rails[i]);
    pair_close(&hand->pair);
    free(hand->data);
}

static void announce(struct by_hand *hand, uint64_t number, size_t size)
{
    const struct rg_apart apart = {.kind = RG_MESSAGE_APART,
                                   .version = RG_PROTOCOL_MAJOR,
                                   .bulk_size = (uint32_t)size,
                                   .number = number};
    CHECK_OK(send_bytes(hand->pair.a, &apart, sizeof apart, NULL, 0));
}

static void bring(struct by_hand *hand, int rail, uint64_t number, unsigned index, unsigned n, size_t bytes)
{
    const struct rg_piece piece = {.kind = RG_MESSAGE_PIECE,
                                   .version = RG_PROTOCOL_MAJOR,
                                   .index = (uint16_t)index,
                                   .more = (uint8_t)(n - 1),
                                   .number = number};
    CHECK_OK(send_bytes(hand->rails[rail], &piece, sizeof piece, hand->data + (size_t)index * RG_PIECE, bytes));
}

static void expect_head(struct by_hand *hand, size_t size)
{
    struct rg_message message;
    CHECK_OK(rg_conn_recv(hand->pair.b, 5000, &message));
    CHECK(message.size == 0 && message.bulk_size == size);
}

/*
 * The same run by both rails: while nobody has asked for it, in its middle, when it is there already, and when the receiver
 * has gone on to a message without.
 */
static void test_again(void)
{
    const size_t size = 3 * RG_PIECE + 1000, all = size;
    unsigned char *got = malloc(size);
    for (int when = 0; when < 5; when++) {
        struct by_hand hand = open_by_hand();
        announce(&hand, 1, size);
        bring(&hand, 0, 1, 0, 4, all);
        expect_head(&hand, size);
        if (when == 1) {
            poll(NULL, 0, 20); /* the first reader is at it */
        } else if (when == 2) {
            CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, 300000));
        } else if (when >= 3) {
            CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, size));
        }
        if (when == 4) {
            struct rg_message plain;
            CHECK_OK(send_bytes(hand.pair.a, "plain", 5, NULL, 0));
            CHECK_OK(rg_conn_recv(hand.pair.b, 5000, &plain));
        }
        bring(&hand, 1, 1, 0, 4, all);
        if (when == 1 || when == 4)
            poll(NULL, 0, 20);
        if (when < 2)
            CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, size));
        else if (when == 2)
            CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got + 300000, size - 300000));
        CHECK(memcmp(got, hand.data, size) == 0);
        announce(&hand, 2, RG_PIECE); /* and on it goes */
        bring(&hand, 1, 2, 0, 1, RG_PIECE);
        expect_head(&hand, RG_PIECE);
        CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, RG_PIECE));
        CHECK(memcmp(got, hand.data, RG_PIECE) == 0);
        close_by_hand(&hand);
    }
    free(got);
}

/* What is waited for comes behind a run that is not wanted yet. */
static void test_behind(void)
{
    const size_t size = 3 * RG_PIECE;
    unsigned char *got = malloc(size);
    struct by_hand hand = open_by_hand();
    announce(&hand, 1, size);
    bring(&hand, 1, 1, 1, 2, 2 * RG_PIECE);
    bring(&hand, 1, 1, 0, 1, RG_PIECE); /* its own rail has broken */
    expect_head(&hand, size);
    for (size_t at = 0; at < size; at += size / 6)
        CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got + at, size / 6));
    CHECK(memcmp(got, hand.data, size) == 0);
    close_by_hand(&hand);
    free(got);
}

/* What cannot be is the end of the connection. */
static void test_violations(void)
{
    static const struct {
        unsigned index, n;
        size_t bytes;
        unsigned second_index, second_n;
    } bad[] = {
        {0, 4, 4 * RG_PIECE, 0, 0},            /* larger than the message */
        {0, 2, RG_PIECE, 0, 0},                /* smaller than it says */
        {3, 1, RG_PIECE, 0, 0},                /* the last is not that large */
        {4, 1, 1000, 0, 0},                    /* there is no such piece */
        {0, 200, RG_PIECE, 0, 0},              /* nor so many */
        {0, 2, 2 * RG_PIECE, 1, 2},            /* shares a piece with another */
        {0, 2, 2 * RG_PIECE, 0, 1},            /* likewise */
    };
    unsigned char *got = malloc(RG_BULK_MAX);
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        struct by_hand hand = open_by_hand();
        announce(&hand, 1, 3 * RG_PIECE + 1000);
        if (i < sizeof bad / sizeof *bad)
            bring(&hand, 0, 1, bad[i].index, bad[i].n, bad[i].bytes);
        else
            CHECK_OK(send_bytes(hand.rails[0], "something else", 14, NULL, 0));
        if (i < sizeof bad / sizeof *bad && bad[i].second_n) {
            poll(NULL, 0, 20);
            bring(&hand, 1, 1, bad[i].second_index, bad[i].second_n, bad[i].second_n * (size_t)RG_PIECE);
        }
        struct rg_message message;
        enum rg_status status = rg_conn_recv(hand.pair.b, 5000, &message);
        if (status == RG_OK)
            status = rg_conn_recv_bulk(hand.pair.b, got, message.bulk_size);
        CHECK(status == RG_ERR_PROTOCOL || status == RG_ERR_CLOSED);
        close_by_hand(&hand);
    }
    free(got);
}

/* No rail is left: both the receiver and the sender are told. */
static void test_none_left(void)
{
    struct by_hand hand = open_by_hand();
    unsigned char *got = malloc(RG_BULK_MAX);
    announce(&hand, 1, 2 * RG_PIECE);
    expect_head(&hand, 2 * RG_PIECE);
    bring(&hand, 0, 1, 0, 1, RG_PIECE);
    rg_conn_interrupt(hand.rails[0]);
    rg_conn_interrupt(hand.rails[1]);
    CHECK_STATUS(rg_conn_recv_bulk(hand.pair.b, got, 2 * RG_PIECE), RG_ERR_LOST);
    enum rg_status status = RG_OK;
    for (int i = 0; i < 3 && status == RG_OK; i++)
        status = send_bytes(hand.pair.b, "x", 1, hand.data, RG_BULK_MAX);
    CHECK(status != RG_OK);
    close_by_hand(&hand);
    free(got);
}

/* An interrupt while rails are waited for. */
static void *interrupt_soon(void *conn)
{
    poll(NULL, 0, 50);
    rg_conn_interrupt(conn);
    return NULL;
}

static void test_interrupt(void)
{
    struct by_hand hand = open_by_hand();
    unsigned char *got = malloc(RG_BULK_MAX);
    pthread_t thread;
    announce(&hand, 1, 2 * RG_PIECE);
    expect_head(&hand, 2 * RG_PIECE);
    CHECK(pthread_create(&thread, NULL, interrupt_soon, hand.pair.b) == 0);
    CHECK(rg_conn_recv_bulk(hand.pair.b, got, 2 * RG_PIECE) != RG_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    close_by_hand(&hand);
    free(got);
}

/* --- real rails -------------------------------------------------------------------------------------------------- */

/* Traffic over two RDMA links for so many seconds; whoever runs this breaks one of them meanwhile. */
static void run_over_rdma(unsigned seconds)
{
    struct pair pair = pair_open("rdma://*:0", "", RG_WAIT_AUTO);
    pair_rails(&pair, "", "", 2);
    const uint64_t until = rg_now_ns() + seconds * 1000000000ull;
    unsigned rounds = 0;
    for (; rg_now_ns() < until; rounds++) {
        run_traffic(&pair, 6, rounds * 100, rounds % 2);
        printf("round %u: %u and %u rails\n", rounds, living(pair.a), living(pair.b));
        fflush(stdout);
    }
    pair_close(&pair);
}

#define RUN(test) (printf("%s\n", #test), fflush(stdout), test())

int main(int argc, char **argv)
{
    test_begin(300);
    if (argc > 2 && strcmp(argv[1], "rdma") == 0) {
        run_over_rdma((unsigned)atoi(argv[2]));
        return 0;
    }
    RUN(test_all_good);
    RUN(test_again);
    RUN(test_behind);
    RUN(test_drops);
    RUN(test_violations);
    RUN(test_none_left);
    RUN(test_interrupt);
    return 0;
}
