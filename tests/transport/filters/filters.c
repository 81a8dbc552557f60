/*
 * filters.c - what the filters add: delays and rates that can be measured, faults at the message that was
 * named.
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"
#include "transport/frame.h"
#include "transport/operations.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static double elapsed_ms(uint64_t since)
{
    return (double)(rg_now_ns() - since) / 1e6;
}

/*
 * Lower bounds are what the filter promises. Upper bounds are wide, as a sanitizer is slow, and where the machine is busy a
 * test is tried again: those that have them say whether they were kept.
 */
enum { SLACK_MS = 2000, TRIES = 10 };

static bool is_about(double took, double expected)
{
    CHECK(took >= expected);
    return took < expected + SLACK_MS;
}

static void try_again(bool (*test)(const char *), const char *address)
{
    for (int tries = 1; !test(address); tries++)
        CHECK(tries < TRIES);
}

/* --- delay --- */

static bool test_round_trip_takes_both_ways(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=20ms", RG_WAIT_AUTO);
    uint64_t before = rg_now_ns();
    CHECK_OK(send_pattern(pair.a, 64, 0, 1));
    expect_pattern(pair.b, 64, 0, 1);
    double there = elapsed_ms(before);
    CHECK_OK(send_pattern(pair.b, 64, 0, 2));
    expect_pattern(pair.a, 64, 0, 2);
    double both = elapsed_ms(before);
    pair_close(&pair);
    return is_about(there, 20) && is_about(both, 40);
}

static bool test_send_does_not_wait_for_the_link(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=20ms", RG_WAIT_AUTO);
    uint64_t before = rg_now_ns();
    CHECK_OK(send_pattern(pair.a, 64, 0, 1));
    bool at_once = elapsed_ms(before) < 20;
    expect_pattern(pair.b, 64, 0, 1);
    pair_close(&pair);
    return at_once;
}

/* Messages follow each other on the link: a hundred of them take one delay, not a hundred. */
static bool test_delay_is_not_per_message(const char *address)
{
    enum { N = 100 };
    struct pair pair = pair_open(address, "delay:oneway=50ms", RG_WAIT_AUTO);
    uint64_t before = rg_now_ns();
    for (uint64_t i = 0; i < N; i++)
        CHECK_OK(send_pattern(pair.a, 100, 0, i));
    for (uint64_t i = 0; i < N; i++)
        expect_pattern(pair.b, 100, 0, i);
    double there = elapsed_ms(before);
    before = rg_now_ns();
    for (uint64_t i = 0; i < N; i++)
        CHECK_OK(send_pattern(pair.b, 100, 0, i));
    for (uint64_t i = 0; i < N; i++)
        expect_pattern(pair.a, 100, 0, i);
    double back = elapsed_ms(before);
    CHECK(there >= 50 && back >= 50);
    pair_close(&pair);
    return there < N * 50 / 2 && back < N * 50 / 2;
}

struct transfer {
    struct rg_conn *from;
    int count;
};

static void *send_transfer(void *arg)
{
    struct transfer *t = arg;
    for (int i = 0; i < t->count; i++)
        CHECK_OK(send_pattern(t->from, 8, RG_BULK_MAX, (uint64_t)i));
    return NULL;
}

static double time_transfer(struct rg_conn *from, struct rg_conn *to, int count)
{
    struct transfer t = {from, count};
    pthread_t sender;
    uint64_t before = rg_now_ns();
    CHECK(pthread_create(&sender, NULL, send_transfer, &t) == 0);
    for (int i = 0; i < count; i++)
        expect_pattern(to, 8, RG_BULK_MAX, (uint64_t)i);
    pthread_join(sender, NULL);
    return elapsed_ms(before);
}

/* 100 MB over 5 ms: more than the queues hold, so the sender waits and everything still arrives, in one
 * delay. */
static void test_large_transfer(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=5ms", RG_WAIT_AUTO);
    int count = WORK(25);
    double took = time_transfer(pair.a, pair.b, count);
    CHECK(took >= 5);
    printf("%s: %d MiB over 5 ms: %.1f ms\n", address, count * 4, took);
    pair_close(&pair);
}

/* 4 MiB at 1 Gb/s take 33.6 ms each. */
static bool test_bandwidth(const char *address)
{
    enum { N = 5 };
    struct pair pair = pair_open(address, "delay:bandwidth=1Gb,oneway=1ms", RG_WAIT_AUTO);
    double expected = N * (double)RG_BULK_MAX * 8 / 1e9 * 1e3 + 1;
    double there = time_transfer(pair.a, pair.b, N), back = time_transfer(pair.b, pair.a, N);
    pair_close(&pair);
    return is_about(there, expected) && is_about(back, expected);
}

/* A connection's own limit, below the link's. */
static bool test_flow(const char *address)
{
    enum { N = 5 };
    struct pair pair = pair_open(address, "delay:bandwidth=100Gb,flow=1Gb", RG_WAIT_AUTO);
    double expected = N * (double)RG_BULK_MAX * 8 / 1e9 * 1e3;
    double there = time_transfer(pair.a, pair.b, N), back = time_transfer(pair.b, pair.a, N);
    pair_close(&pair);
    return is_about(there, expected) && is_about(back, expected);
}

static void *time_one(void *arg)
{
    struct pair *pair = arg;
    time_transfer(pair->a, pair->b, 3);
    return NULL;
}

/* Two connections share the link; a small message of a third does not wait for their data. */
static bool test_shared_link(const char *address)
{
    static const char filter[] = "delay:bandwidth=1Gb,oneway=100us";
    struct pair pairs[3];
    for (int i = 0; i < 3; i++)
        pairs[i] = pair_open(address, filter, RG_WAIT_AUTO);
    const double expected = 2 * 3 * (double)RG_BULK_MAX * 8 / 1e9 * 1e3;
    pthread_t other;
    uint64_t before = rg_now_ns();
    CHECK(pthread_create(&other, NULL, time_one, &pairs[1]) == 0);
    struct transfer t = {pairs[0].a, 3};
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, send_transfer, &t) == 0);
    poll(NULL, 0, 5);
    uint64_t small = rg_now_ns();
    CHECK_OK(send_pattern(pairs[2].a, 64, 0, 7));
    expect_pattern(pairs[2].b, 64, 0, 7);
    double overtook = elapsed_ms(small);
    for (int i = 0; i < 3; i++)
        expect_pattern(pairs[0].b, 8, RG_BULK_MAX, (uint64_t)i);
    pthread_join(sender, NULL);
    pthread_join(other, NULL);
    double took = elapsed_ms(before);
    for (int i = 0; i < 3; i++)
        pair_close(&pairs[i]);
    return is_about(took, expected) && overtook < took;
}

/* As with a socket, a send returns when little is still to leave, and an interrupt ends the wait. */
static void test_send_waits_for_the_link(const char *address)
{
    struct pair pair = pair_open(address, "delay:bandwidth=10MB", RG_WAIT_AUTO);
    uint64_t before = rg_now_ns();
    CHECK_OK(send_pattern(pair.a, 8, RG_BULK_MAX, 1));
    CHECK(elapsed_ms(before) >= 300); /* 4 MiB take 419 ms; the last MiB of them may be in the buffer */
    pair_close(&pair);
}

/* What was sent before the close still crosses the link. */
static void test_close_delivers(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=60ms", RG_WAIT_AUTO);
    for (uint64_t i = 0; i < 5; i++)
        CHECK_OK(send_pattern(pair.a, 10, 100000, i));
    rg_conn_destroy(pair.a);
    pair.a = NULL;
    for (uint64_t i = 0; i < 5; i++)
        expect_pattern(pair.b, 10, 100000, i);
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_CLOSED);
    pair_close(&pair);
}

/* A peer that takes nothing does not hold up a close for longer than the filter says (here: the peer is
 * gone). */
static bool test_close_towards_nobody(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=1ms", RG_WAIT_AUTO);
    rg_conn_destroy(pair.b);
    pair.b = NULL;
    enum rg_status status = RG_OK;
    for (int i = 0; i < 2000 && status == RG_OK; i++) {
        status = send_pattern(pair.a, 10, 1000, 1);
        poll(NULL, 0, i > 20);
    }
    CHECK(status == RG_ERR_LOST || status == RG_ERR_CLOSED);
    uint64_t before = rg_now_ns();
    pair_close(&pair);
    return elapsed_ms(before) < 4000;
}

/* --- fault --- */

static void test_send_close(const char *address)
{
    struct pair pair = pair_open(address, "fault:send_close_after=2", RG_WAIT_AUTO);
    struct rg_message m;
    CHECK_OK(send_pattern(pair.a, 5, 5, 1));
    CHECK_OK(send_pattern(pair.a, 6, 0, 2));
    CHECK_STATUS(send_pattern(pair.a, 7, 0, 3), RG_ERR_CLOSED);
    CHECK_STATUS(send_pattern(pair.a, 7, 0, 3), RG_ERR_CLOSED);
    expect_pattern(pair.b, 5, 5, 1);
    expect_pattern(pair.b, 6, 0, 2);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_CLOSED);
    pair_close(&pair);
}

static void test_recv_close(const char *address)
{
    struct pair pair = pair_open(address, "fault:recv_close_after=1", RG_WAIT_AUTO);
    struct rg_message m;
    CHECK_OK(send_pattern(pair.b, 5, 5, 1));
    CHECK_OK(send_pattern(pair.b, 6, 5, 2));
    expect_pattern(pair.a, 5, 5, 1);
    CHECK_STATUS(rg_conn_recv(pair.a, -1, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_CLOSED);
    pair_close(&pair);
}

static void test_lost(const char *address)
{
    struct pair pair = pair_open(address, "fault:send_lost_at=2,recv_lost_at=2", RG_WAIT_AUTO);
    struct rg_message m;
    expect_good(pair.a, pair.b);
    CHECK_OK(send_pattern(pair.b, 6, 5, 2));
    CHECK_STATUS(send_pattern(pair.a, 7, 0, 3), RG_ERR_LOST);
    CHECK_STATUS(rg_conn_recv(pair.a, -1, &m), RG_ERR_LOST);
    CHECK_STATUS(rg_conn_recv(pair.b, 10, &m), RG_ERR_TIMEOUT); /* the peer saw nothing */
    CHECK_STATUS(send_pattern(pair.a, 7, 0, 3), RG_ERR_LOST);
    pair_close(&pair);
}

static void test_send_fault(const char *address)
{
    struct pair pair = pair_open(address, "fault:send_fault_at=1", RG_WAIT_AUTO);
    static const unsigned char zeros[50];
    unsigned char bulk[50];
    struct rg_message m;
    CHECK_STATUS(send_pattern(pair.a, 10, 50, 1), RG_ERR_FAULT);
    CHECK_OK(rg_conn_recv(pair.b, -1, &m));
    CHECK(m.size == 10 && m.bulk_size == 50 && pattern_matches(m.data, 10, 1));
    CHECK_OK(rg_conn_recv_bulk(pair.b, bulk, 50));
    CHECK(memcmp(bulk, zeros, 50) == 0);
    expect_good(pair.a, pair.b);
    pair_close(&pair);
}

static void test_corrupt(const char *address)
{
    struct pair pair = pair_open(address, "fault:send_corrupt_at=2,recv_corrupt_at=2,byte=3", RG_WAIT_AUTO);
    unsigned char expected[10];
    struct rg_message m;
    expect_good(pair.a, pair.b);
    pattern_fill(expected, sizeof expected, 7);
    expected[3] ^= 0xff;
    CHECK_OK(send_pattern(pair.a, 10, 0, 7));
    CHECK_OK(rg_conn_recv(pair.b, -1, &m));
    CHECK(m.size == 10 && memcmp(m.data, expected, 10) == 0);
    CHECK_OK(send_pattern(pair.b, 10, 0, 7));
    CHECK_OK(rg_conn_recv(pair.a, -1, &m));
    CHECK(m.size == 10 && memcmp(m.data, expected, 10) == 0);
    expect_good(pair.a, pair.b);
    pair_close(&pair);
}

static void test_pause(const char *address)
{
    struct pair pair = pair_open(address, "fault:send_delay_at=2,pause=40ms", RG_WAIT_AUTO);
    expect_good(pair.a, pair.b);
    uint64_t before = rg_now_ns();
    expect_good(pair.a, pair.b);
    CHECK(elapsed_ms(before) >= 39);
    pair_close(&pair);
}

/* A fault below the frames: `status` is what the peer finds after one good message. */
static void expect_raw_fault(const char *address, const char *filter, enum rg_status status)
{
    struct pair pair = pair_open(address, filter, RG_WAIT_AUTO);
    struct rg_message m;
    CHECK_OK(send_pattern(pair.a, 5, 5, 1));
    CHECK_STATUS(send_pattern(pair.a, 100, 0, 2), RG_ERR_LOST);
    expect_pattern(pair.b, 5, 5, 1);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), status);
    pair_close(&pair);
}

/* The queue above a broken connection gives out what came before, then the reason. */
static void test_fault_below_delay(const char *address)
{
    struct pair pair = pair_open(address, "delay:oneway=1ms;fault:recv_lost_at=3", RG_WAIT_AUTO);
    struct rg_message m;
    for (uint64_t i = 0; i < 4; i++)
        CHECK_OK(send_pattern(pair.b, 5, 5, i));
    expect_pattern(pair.a, 5, 5, 0);
    expect_pattern(pair.a, 5, 5, 1);
    CHECK_STATUS(rg_conn_recv(pair.a, 5000, &m), RG_ERR_LOST);
    pair_close(&pair);
}

static void test_raw_fault_needs_descriptor(void)
{
    struct pair pair = pair_open("mem:filters", "fault:truncate_at=1", RG_WAIT_AUTO);
    CHECK_STATUS(send_pattern(pair.a, 100, 0, 2), RG_ERR_UNSUPPORTED);
    pair_close(&pair);
}

/* A chain is written outermost first, and says so of itself. */
static void test_names(void)
{
    struct pair pair = pair_open("127.0.0.1:0", "fault;delay", RG_WAIT_AUTO);
    CHECK(strcmp(rg_conn_transport(pair.a), "fault+delay+tcp") == 0);
    CHECK(strcmp(rg_conn_peer(pair.a), rg_listener_address(pair.listener) + strlen("tcp://")) == 0);
    CHECK(rg_conn_fd(pair.a) == -1 && rg_conn_caps(pair.a) == 0);
    CHECK(strcmp(rg_conn_transport(pair.b), "tcp") == 0);
    pair_close(&pair);

    setenv("REMOTE_GPU_FILTER", "delay:oneway=1us", 1);
    struct rg_listener *listener;
    struct rg_conn *a, *b, *adopted;
    CHECK_OK(rg_transport_listen("127.0.0.1:0", NULL, NULL, 0, &listener));
    CHECK_OK(rg_transport_connect(rg_listener_address(listener), NULL, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(listener, 5000, &b));
    CHECK_OK(rg_transport_adopt_fd(dup(rg_conn_fd(b)), NULL, &adopted));
    unsetenv("REMOTE_GPU_FILTER");
    CHECK(strcmp(rg_conn_transport(a), "delay+tcp") == 0);
    CHECK(strcmp(rg_conn_transport(b), "tcp") == 0);
    CHECK(strcmp(rg_conn_transport(adopted), "tcp") == 0);
    rg_conn_destroy(a);
    rg_conn_destroy(b);
    rg_conn_destroy(adopted);
    rg_listener_destroy(listener);
}

int main(void)
{
    static const char *const addresses[] = {"mem:filters", "127.0.0.1:0"};
    test_begin();
    for (int i = 0; i < 2; i++) {
        try_again(test_round_trip_takes_both_ways, addresses[i]);
        try_again(test_send_does_not_wait_for_the_link, addresses[i]);
        try_again(test_delay_is_not_per_message, addresses[i]);
        test_large_transfer(addresses[i]);
        try_again(test_bandwidth, addresses[i]);
        try_again(test_flow, addresses[i]);
        test_send_waits_for_the_link(addresses[i]);
        test_close_delivers(addresses[i]);
        try_again(test_close_towards_nobody, addresses[i]);
        test_send_close(addresses[i]);
        test_recv_close(addresses[i]);
        test_lost(addresses[i]);
        test_send_fault(addresses[i]);
        test_corrupt(addresses[i]);
        test_pause(addresses[i]);
        test_fault_below_delay(addresses[i]);
    }
    expect_raw_fault("127.0.0.1:0", "fault:truncate_at=2", RG_ERR_LOST);
    expect_raw_fault("127.0.0.1:0", "fault:bad_magic_at=2", RG_ERR_PROTOCOL);
    expect_raw_fault("127.0.0.1:0", "fault:oversize_at=2", RG_ERR_LIMIT);
    try_again(test_shared_link, "127.0.0.1:0");
    test_raw_fault_needs_descriptor();
    test_names();
    return 0;
}
