/*
 * multirail.c - channels that may fail: whatever breaks, all bulk data arrives once and whole as long as one
 * is left.
 *
 * Rails are connections of transport mem, which deliver: what was sent can be received. Filter fault breaks
 * them. Peers that do what ours do not: by_hand.c.
 *
 *   transport_multirail_test [rdma SECONDS]     rdma: traffic alone, over the two links of tests/rdma-vm
 */
#include "tests/transport/multirail/rails.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"
#include "transport/memory.h"
#include "transport/multipath/wire.h"
#include "transport/state.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- traffic --- */

enum { NO_KIND = 0x8000 }; /* a message begins with none that a bundle knows */

struct flow {
    struct rg_conn *conn;
    unsigned messages;
    uint64_t seed;
    bool registered;
};

static size_t bulk_of(const struct flow *flow, unsigned n)
{
    const uint64_t x = (flow->seed + n + 1) * 0x9e3779b97f4a7c15u;
    return n % 5 == 4 ? (x >> 30) % 1000 : RG_MULTIPATH_MIN + (x >> 24) % (RG_BULK_MAX - RG_MULTIPATH_MIN);
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
        const unsigned word = n | NO_KIND;
        CHECK_OK(send_bytes(flow->conn, &word, sizeof word, bulk, size));
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
        const unsigned word = n | NO_KIND;
        CHECK(message.size == sizeof word && memcmp(message.data, &word, sizeof word) == 0);
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

/* --- memory that is advertised --- */

enum {
    ADVERTISED_CHUNK = 512 << 10,
    ADVERTISED_CHUNKS = 40,
    ADVERTISED_RING = ADVERTISED_CHUNK * ADVERTISED_CHUNKS
};

struct advertised_flow {
    struct rg_conn *conn;
    unsigned messages;
    uint64_t seed;
    size_t taken, received; /* bytes */
};

static size_t advertised_size(const struct advertised_flow *flow, unsigned n)
{
    return n % 7 == 6 ? 40000
                      : RG_MULTIRAIL_MIN + (flow->seed + n) * 77777 % (RG_BULK_MAX - RG_MULTIRAIL_MIN);
}

static void *send_advertised(void *arg)
{
    const struct advertised_flow *flow = arg;
    unsigned char *bulk = malloc(RG_BULK_MAX);
    for (unsigned n = 0; n < flow->messages; n++) {
        pattern_fill(bulk, advertised_size(flow, n), flow->seed + n);
        const unsigned word = n | NO_KIND;
        CHECK_OK(send_bytes(flow->conn, &word, sizeof word, bulk, advertised_size(flow, n)));
    }
    free(bulk);
    return NULL;
}

/*
 * Takes what lies in advertised memory from there and advertises it again later, as a worker does; the rest
 * by copies.
 */
static void *receive_advertised(void *arg)
{
    struct advertised_flow *flow = arg;
    unsigned char *ring = malloc(ADVERTISED_RING), *got = malloc(RG_BULK_MAX), *home[ADVERTISED_CHUNKS];
    unsigned n_home = 0;
    CHECK_OK(rg_conn_register(flow->conn, ring, ADVERTISED_RING));
    for (; n_home < ADVERTISED_CHUNKS; n_home++)
        home[n_home] = ring + (size_t)n_home * ADVERTISED_CHUNK;
    for (unsigned n = 0; n < flow->messages; n++) {
        const size_t size = advertised_size(flow, n);
        struct rg_message message;
        while (n_home && rg_conn_advertise(flow->conn, 0, 0, home[n_home - 1], ADVERTISED_CHUNK) == RG_OK)
            n_home--;
        CHECK_OK(rg_conn_recv(flow->conn, -1, &message));
        CHECK(message.bulk_size == size);
        for (size_t at = 0, part; at < size; at += part) {
            void *memory;
            CHECK_OK(rg_conn_take_advertised(flow->conn, size - at, &memory, &part));
            if (part) {
                memcpy(got + at, memory, part);
                memset(memory, 0x11, part); /* nothing may write here before it is advertised again */
                const size_t chunk = (size_t)((unsigned char *)memory - ring) / ADVERTISED_CHUNK;
                CHECK(n_home < ADVERTISED_CHUNKS);
                home[n_home++] = ring + chunk * ADVERTISED_CHUNK;
                flow->taken += part;
            } else {
                part = size - at < 700000 ? size - at : 700000;
                CHECK_OK(rg_conn_recv_bulk(flow->conn, got + at, part));
            }
        }
        CHECK(pattern_matches(got, size, flow->seed + n));
        flow->received += size;
    }
    rg_conn_unregister(flow->conn, ring);
    free(ring);
    free(got);
    return NULL;
}

/* Both ways at once; all rails but the last may break. */
static void test_advertised(void)
{
    static const char *const faults[] = {"", "fault:send_lost_at=3", "fault:send_lost_at=9",
                                         "fault:send_lost_at=20"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_rails(&pair, faults[i], "", 3);
        const unsigned messages = *faults[i] ? 30 : 200;
        struct advertised_flow to[] = {{.conn = pair.a, .messages = messages, .seed = 10},
                                       {.conn = pair.b, .messages = messages, .seed = 500}},
                               from[] = {{.conn = pair.b, .messages = messages, .seed = 10},
                                         {.conn = pair.a, .messages = messages, .seed = 500}};
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            CHECK(pthread_create(&threads[k], NULL, k < 2 ? send_advertised : receive_advertised,
                                 k < 2 ? &to[k] : &from[k - 2]) == 0);
        for (int k = 0; k < 4; k++)
            CHECK(pthread_join(threads[k], NULL) == 0);
        for (int k = 0; k < 2;
             k++) /* a sender that is ahead of what is advertised again has the rest asked for */
            CHECK(from[k].taken > from[k].received / 10);
        pair_close(&pair);
    }
}

/* A destination that both sides know by a tag: every rail writes into it, also the one that sends again. */
static void test_destination(void)
{
    for (unsigned at = 0; at <= 4; at++) {
        char filter[64] = "";
        if (at)
            snprintf(filter, sizeof filter, "fault:send_lost_at=%u", at);
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_rails(&pair, filter, "", 2);
        unsigned char *source = malloc(2 * RG_BULK_MAX), *to = malloc(2 * RG_BULK_MAX);
        pattern_fill(source, 2 * RG_BULK_MAX, 99);
        CHECK_OK(rg_conn_advertise(pair.b, 5, 1000, to, 2 * RG_BULK_MAX));
        const size_t sizes[] = {RG_BULK_MAX, RG_MULTIRAIL_MIN, 100000,
                                RG_BULK_MAX - RG_MULTIRAIL_MIN - 100000};
        for (size_t i = 0, done = 0; i < 4; done += sizes[i++]) {
            const size_t word = i | NO_KIND;
            const struct iovec msg = {(void *)(uintptr_t)&word, sizeof word},
                               bulk = {source + done, sizes[i]};
            struct rg_message message;
            CHECK_OK(rg_conn_send(
                pair.a,
                &(struct rg_send){
                    .msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1, .tag = 5, .base = 1000 + done}));
            CHECK_OK(rg_conn_recv(pair.b, 5000, &message));
            void *memory;
            size_t taken;
            CHECK_OK(rg_conn_take_advertised(pair.b, sizes[i], &memory, &taken));
            CHECK(taken == 0); /* not without a tag */
            CHECK_OK(rg_conn_recv_bulk(pair.b, to + done, sizes[i]));
        }
        CHECK(memcmp(source, to, 2 * RG_BULK_MAX) == 0);
        struct rg_conn_statistics statistics;
        rg_conn_get_statistics(pair.b, &statistics);
        CHECK(statistics.bulk_copied_received == 0 && statistics.bulk_direct_received >= 2 * RG_BULK_MAX);
        rg_conn_withdraw(pair.b, 5, to);
        pair_close(&pair);
        free(source);
        free(to);
    }
}

/* --- the memory of GPUs --- */

static struct rg_conn *another(struct pair *pair, struct rg_conn **theirs)
{
    struct rg_conn *ours;
    CHECK_OK(rg_transport_connect(rg_listener_address(pair->listener), NULL, NULL, 0, &ours));
    CHECK_OK(rg_listener_accept(pair->listener, 5000, theirs));
    return ours;
}

/*
 * Every rail has it, also one that comes later, when the descriptor that was given is closed; or is no rail.
 */
static void test_device_memory(void)
{
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    const struct rg_multirail_options options = {.rails = 3};
    CHECK_OK(rg_multirail_wrap(pair.a, &options, &pair.a));
    CHECK_OK(rg_multirail_wrap(pair.b, &options, &pair.b));
    unsigned char *gpu = malloc(RG_BULK_MAX), *source = malloc(RG_BULK_MAX), *ring = malloc(RG_BULK_MAX);
    struct rg_conn *ours, *theirs;
    for (int i = 0; i < 3; i++) {
        const int fd = i == 1 ? memfd_create("gpu", MFD_CLOEXEC) : -1;
        if (i == 1) {
            CHECK(rg_conn_device_paths(pair.b) == (RG_DEVICE_DMABUF | RG_DEVICE_PEER));
            CHECK_STATUS(rg_conn_register_device(pair.b, gpu, RG_BULK_MAX, 12345, 0), RG_ERR_NO_MEMORY);
            CHECK_OK(rg_conn_register_device(pair.b, gpu, RG_BULK_MAX, fd, 0));
            close(fd);
            ours = another(&pair, &theirs); /* one that can have nothing more */
            while (rg_conn_register(theirs, source, 1) == RG_OK)
                ;
            CHECK_STATUS(rg_multirail_add(pair.b, theirs, RG_MULTIRAIL_ANY), RG_ERR_UNSUPPORTED);
            rg_conn_destroy(ours);
            rg_conn_destroy(theirs);
        }
        ours = another(&pair, &theirs);
        CHECK_OK(rg_multirail_add(pair.a, ours, RG_MULTIRAIL_ANY));
        CHECK_OK(rg_multirail_add(pair.b, theirs, RG_MULTIRAIL_ANY));
    }
    CHECK_OK(rg_conn_register(pair.b, ring, RG_BULK_MAX));
    for (unsigned i = 0; i < 12; i++) {
        const size_t size = i % 3 == 2 ? 1000 : RG_BULK_MAX - i * 333333;
        const bool advertises = i >= 9; /* then it goes there and not to the GPU, if there is room for it */
        for (size_t at = 0; i == 9 && at < RG_BULK_MAX; at += ADVERTISED_CHUNK / 2)
            CHECK_OK(rg_conn_advertise(pair.b, 0, 0, ring + at, ADVERTISED_CHUNK / 2));
        struct rg_message message;
        pattern_fill(source, size, i);
        CHECK_OK(send_bytes(pair.a, "head", 4, source, size));
        CHECK_OK(rg_conn_recv(pair.b, 5000, &message));
        CHECK(!rg_conn_writes_directly(pair.b, source, size)); /* not registered */
        CHECK(rg_conn_writes_directly(pair.b, gpu, size) || advertises);
        CHECK(!rg_conn_writes_directly(pair.b, gpu + 1, size) || size < RG_BULK_MAX);
        CHECK_OK(rg_conn_recv_bulk(pair.b, gpu, size));
        CHECK(pattern_matches(gpu, size, i));
    }
    rg_conn_unregister(pair.b, ring);
    rg_conn_unregister(pair.b, gpu);
    pair_close(&pair);
    free(gpu);
    free(source);
    free(ring);
}

/* --- whether they are worth it --- */

/*
 * A pair whose rails are used if that is found to be faster; *ends: their connections at pair.b, by number.
 */
static struct pair open_adaptive(const char *filter, const char *filter_of_first, unsigned rails,
                                 struct rg_conn **ends)
{
    struct pair pair = pair_open(address, filter, RG_WAIT_AUTO);
    const struct rg_multirail_options options = {.rails = rails, .adaptive = true};
    CHECK_OK(rg_multirail_wrap(pair.a, &options, &pair.a));
    CHECK_OK(rg_multirail_wrap(pair.b, &options, &pair.b));
    for (unsigned i = 0; i < rails; i++) {
        const struct rg_transport_options each = {.filters = i ? filter : filter_of_first, .bulk = true};
        struct rg_conn_statistics statistics;
        struct rg_conn *a;
        CHECK_OK(rg_transport_connect(rg_listener_address(pair.listener), &each, NULL, 0, &a));
        CHECK_OK(rg_listener_accept(pair.listener, 5000, &ends[i]));
        CHECK_OK(rg_multirail_add(pair.a, a, RG_MULTIRAIL_ANY));
        CHECK_OK(rg_multirail_add(pair.b, ends[i], RG_MULTIRAIL_ANY));
        rg_conn_get_statistics(pair.a, &statistics);
        CHECK(!statistics.striped);
    }
    return pair;
}

static uint64_t carried(const struct rg_conn *conn)
{
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(conn, &statistics);
    return statistics.bulk_copied_received + statistics.bulk_direct_received;
}

static void test_worth(void)
{
    struct rg_conn *ends[2];
    struct rg_conn_statistics statistics;
    const char *filter = "delay:oneway=1us,bandwidth=100Gb,flow=10Gb";
    struct pair pair = open_adaptive(filter, filter, 2, ends);
    bool was = false, only_one = false;
    for (uint64_t i = 0; i < 20; i++) { /* 20 MiB with one, and then with both */
        CHECK_OK(send_pattern(pair.a, 100, RG_BULK_MAX, i));
        expect_pattern(pair.b, 100, RG_BULK_MAX, i);
        rg_conn_get_statistics(pair.a, &statistics);
        was |= statistics.striped;
        only_one |= !statistics.striped;
        CHECK(statistics.channels == 2);
    }
    CHECK(was && only_one); /* both were tried */
    pair_close(&pair);
}

/* While they are used, all of them are; and when the first one ends, the others go on. */
static void test_worth_of_all(void)
{
    struct rg_conn *ends[3];
    struct rg_conn_statistics statistics = {0};
    struct pair pair = open_adaptive("", "fault:send_lost_at=2", 3, ends);
    for (uint64_t i = 0, striped = 0; striped < 6; i++) {
        CHECK(i < 1000);
        CHECK_OK(send_pattern(pair.a, 100, RG_BULK_MAX, i));
        expect_pattern(pair.b, 100, RG_BULK_MAX, i);
        rg_conn_get_statistics(pair.a, &statistics);
        striped += statistics.striped || striped;
        for (unsigned k = 0; k < 3 && striped == 2; k++)
            CHECK(carried(ends[k]) > 0);
    }
    rg_conn_get_statistics(pair.a, &statistics);
    CHECK(statistics.channels == 2);
    pair_close(&pair);
}

/* --- coming back --- */

struct source {
    struct pair *pair;
    atomic_uint opened, refuse;
    const char *filter; /* of the first of each rail */
    atomic_uint tried[2];
};

static struct rg_conn *open_rail(void *user, unsigned index)
{
    struct source *source = user;
    struct rg_conn *a, *b;
    CHECK(index < 2);
    const bool first = atomic_fetch_add(&source->tried[index], 1) == 0;
    if (!first && atomic_load(&source->refuse)) {
        atomic_fetch_sub(&source->refuse, 1);
        return NULL;
    }
    const struct rg_transport_options options = {.filters = first && index == 1 ? source->filter : "",
                                                 .bulk = true};
    CHECK_OK(rg_transport_connect(rg_listener_address(source->pair->listener), &options, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(source->pair->listener, 5000, &b));
    if (rg_multirail_add(source->pair->b, b, index) != RG_OK) {
        rg_conn_destroy(b);
        rg_conn_destroy(a);
        return NULL;
    }
    atomic_fetch_add(&source->opened, 1);
    return a;
}

/* A rail that was lost is opened again, after a pause, while everything goes on. */
static void test_coming_back(void)
{
    static const char *const faults[] = {"fault:send_lost_at=4", "fault:send_lost_at=2",
                                         "fault:send_lost_at=1"};
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        struct source source = {.pair = &pair, .filter = faults[i], .refuse = i == 1};
        const struct rg_multirail_options near = {.rails = 2, .open = open_rail, .user = &source},
                                          far = {.rails = 2};
        CHECK_OK(rg_multirail_wrap(pair.a, &near, &pair.a));
        CHECK_OK(rg_multirail_wrap(pair.b, &far, &pair.b));
        rg_multirail_open(pair.a);
        CHECK(living(pair.a) == 2 && living(pair.b) == 2);
        struct rg_conn_statistics statistics = {0};
        const uint64_t until = rg_now_ns() + 20000000000ull;
        unsigned rounds = 0;
        for (; (!statistics.returned_rails || living(pair.b) != 2) && rg_now_ns() < until; rounds++) {
            run_traffic(&pair, 10, 300 * i + rounds, rounds % 2);
            rg_conn_get_statistics(pair.a, &statistics);
        }
        CHECK(statistics.lost_rails == 1 && statistics.returned_rails == 1);
        CHECK(living(pair.a) == 2 && living(pair.b) == 2 && atomic_load(&source.opened) == 3);
        run_traffic(&pair, 30, 1000 + i, false);
        CHECK(living(pair.a) == 2);
        pair_close(&pair);
    }
}

/* --- real rails --- */

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

int main(int argc, char **argv)
{
    test_begin();
    if (argc > 2 && strcmp(argv[1], "rdma") == 0) {
        run_over_rdma((unsigned)atoi(argv[2]));
        return 0;
    }
    RUN(test_all_good);
    RUN(test_advertised);
    RUN(test_destination);
    RUN(test_device_memory);
    RUN(test_worth);
    RUN(test_worth_of_all);
    RUN(test_coming_back);
    RUN(test_drops);
    return 0;
}
