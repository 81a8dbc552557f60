/*
 * conformance_flow.c - messages and bulk data on a connection that stays good: sizes, order, threads, time,
 * memory that is not there, misuse.
 */
#include "conformance.h"
#include "tls/pair.h"

#include "common/base/clock.h"
#include "transport/frame.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- order and sizes --- */

static const size_t msg_sizes[] = {0,
                                   1,
                                   2,
                                   15,
                                   16,
                                   17,
                                   63,
                                   64,
                                   255,
                                   4080,
                                   4096,
                                   8175,
                                   8176,
                                   8177,
                                   8192,
                                   8193,
                                   65535,
                                   65536,
                                   100001,
                                   RG_MESSAGE_MAX - 1,
                                   RG_MESSAGE_MAX,
                                   3};
static const size_t bulk_sizes[] = {0, 1, 7, 4096, 8191, 65537, 1 << 20, RG_BULK_MAX - 1, RG_BULK_MAX, 5};

static void *send_every_size(void *arg)
{
    struct ends *e = arg;
    for (size_t i = 0; i < COUNT(msg_sizes); i++)
        CHECK_OK(send_pattern(e->near, msg_sizes[i], bulk_sizes[i % COUNT(bulk_sizes)], i));
    return NULL;
}

void test_sizes(struct ends e)
{
    pthread_t sender = start(send_every_size, &e);
    for (size_t i = 0; i < COUNT(msg_sizes); i++)
        expect_pattern(e.far, msg_sizes[i], bulk_sizes[i % COUNT(bulk_sizes)], i);
    pthread_join(sender, NULL);
}

/* A message of many parts, some of no size, arrives as their sequence. */
void test_parts(struct ends e)
{
    enum { N = 150 };
    static unsigned char data[N * 40];
    struct iovec msg[N], bulk[N];
    size_t msg_size = 0, bulk_size = 0;
    pattern_fill(data, sizeof data, 1);
    for (int i = 0; i < N; i++) {
        msg[i] = (struct iovec){data + msg_size, (size_t)(i % 7)};
        msg_size += msg[i].iov_len;
    }
    for (int i = 0; i < N; i++) {
        bulk[i] = (struct iovec){data + bulk_size, (size_t)(i * 5 % 11)};
        bulk_size += bulk[i].iov_len;
    }
    for (int round = 0; round < 3; round++) {
        CHECK_OK(rg_conn_send(e.near, &(struct rg_send){.msg = msg, .n_msg = N, .bulk = bulk, .n_bulk = N}));
        struct rg_message m;
        unsigned char taken[sizeof data];
        CHECK_OK(rg_conn_recv(e.far, -1, &m));
        CHECK(m.size == msg_size && pattern_matches(m.data, m.size, 1));
        CHECK(m.bulk_size == bulk_size);
        CHECK_OK(rg_conn_recv_bulk(e.far, taken, bulk_size));
        CHECK(memcmp(taken, data, bulk_size) == 0);
    }
    CHECK_OK(rg_conn_send(e.near, &(struct rg_send){0}));
    struct rg_message m;
    CHECK_OK(rg_conn_recv(e.far, -1, &m));
    CHECK(m.size == 0 && m.bulk_size == 0);
}

/* --- bulk data in pieces --- */

static void *send_bulks(void *arg)
{
    struct ends *e = arg;
    for (size_t i = 0; i < COUNT(bulk_sizes); i++)
        CHECK_OK(send_pattern(e->near, 20, bulk_sizes[i], 100 + i));
    return NULL;
}

/* Takes bulk in pieces of uneven size, discarding some, and checks that each piece is the right one. */
static void take_in_pieces(struct rg_conn *conn, size_t bulk_size, uint64_t seed)
{
    unsigned char *whole = malloc(bulk_size + 1), *taken = malloc(bulk_size + 1);
    CHECK(whole && taken);
    pattern_fill(whole, bulk_size, seed);
    size_t piece = 1, at = 0;
    for (int i = 0; at < bulk_size; i++) {
        size_t n = piece < bulk_size - at ? piece : bulk_size - at;
        bool wanted = i % 3 != 1;
        CHECK_OK(rg_conn_recv_bulk(conn, wanted ? taken : NULL, n));
        CHECK(!wanted || memcmp(taken, whole + at, n) == 0);
        at += n;
        piece = piece * 3 + 1;
        if (piece > 300000)
            piece = 13;
    }
    CHECK_OK(rg_conn_recv_bulk(conn, taken, 0));
    free(whole);
    free(taken);
}

void test_bulk_pieces(struct ends e)
{
    pthread_t sender = start(send_bulks, &e);
    for (size_t i = 0; i < COUNT(bulk_sizes); i++) {
        struct rg_message m;
        CHECK_OK(rg_conn_recv(e.far, -1, &m));
        CHECK(m.size == 20 && m.bulk_size == bulk_sizes[i]);
        take_in_pieces(e.far, m.bulk_size, 101 + i);
        CHECK(pattern_matches(m.data, m.size, 100 + i));
    }
    pthread_join(sender, NULL);
    expect_good(e.near, e.far);
}

/* --- many threads, both directions --- */

enum { CROWD = 3 };

struct crowd {
    struct rg_conn *conn;
    pthread_mutex_t lock;
    atomic_int next_id;
    int n_messages;
};

struct crowd_message {
    uint32_t id, sequence;
};

static void *crowd_send(void *arg)
{
    struct crowd *c = arg;
    uint32_t id = (uint32_t)atomic_fetch_add(&c->next_id, 1);
    unsigned char data[600];
    for (int i = 0; i < c->n_messages; i++) {
        struct crowd_message head = {id, (uint32_t)i};
        uint64_t seed = id * 1000000u + (uint64_t)i;
        size_t size = seed * 37 % sizeof data, bulk_size = i % 16 == 0 ? 30000 + seed % 977 : 0;
        unsigned char *bulk = malloc(bulk_size + 1);
        CHECK(bulk);
        pattern_fill(data, size, seed);
        pattern_fill(bulk, bulk_size, seed + 1);
        const struct iovec msg[2] = {{&head, sizeof head}, {data, size}}, k = {bulk, bulk_size};
        pthread_mutex_lock(&c->lock);
        CHECK_OK(rg_conn_send(c->conn, &(struct rg_send){.msg = msg, .n_msg = 2, .bulk = &k, .n_bulk = 1}));
        pthread_mutex_unlock(&c->lock);
        free(bulk);
    }
    return NULL;
}

static void *crowd_receive(void *arg)
{
    struct crowd *c = arg;
    uint32_t next[CROWD] = {0};
    unsigned char *bulk = malloc(65536);
    CHECK(bulk);
    for (int i = 0; i < CROWD * c->n_messages; i++) {
        struct rg_message m;
        struct crowd_message head;
        CHECK_OK(rg_conn_recv(c->conn, -1, &m));
        CHECK(m.size >= sizeof head);
        memcpy(&head, m.data, sizeof head);
        CHECK(head.id < CROWD && head.sequence == next[head.id]);
        next[head.id]++;
        uint64_t seed = head.id * 1000000u + (uint64_t)head.sequence;
        CHECK(pattern_matches((const char *)m.data + sizeof head, m.size - sizeof head, seed));
        CHECK_OK(rg_conn_recv_bulk(c->conn, bulk, m.bulk_size));
        CHECK(pattern_matches(bulk, m.bulk_size, seed + 1));
    }
    free(bulk);
    return NULL;
}

void test_crowd(struct ends e)
{
    struct crowd sides[2] = {{.conn = e.near, .n_messages = WORK(2000)},
                             {.conn = e.far, .n_messages = WORK(2000)}};
    pthread_t threads[2][CROWD + 1];
    for (int s = 0; s < 2; s++) {
        pthread_mutex_init(&sides[s].lock, NULL);
        threads[s][CROWD] = start(crowd_receive, &sides[s]);
    }
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < CROWD; i++)
            threads[s][i] = start(crowd_send, &sides[s]);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i <= CROWD; i++)
            pthread_join(threads[s][i], NULL);
}

static void *send_small(void *arg)
{
    struct ends *e = arg;
    for (uint64_t i = 0; i < WORK(20000); i++)
        CHECK_OK(send_pattern(e->near, i * 31 % 97, i % 50 == 0 ? 3 : 0, i));
    return NULL;
}

void test_many_small(struct ends e)
{
    pthread_t sender = start(send_small, &e);
    for (uint64_t i = 0; i < WORK(20000); i++)
        expect_pattern(e.far, i * 31 % 97, i % 50 == 0 ? 3 : 0, i);
    pthread_join(sender, NULL);
}

/* --- a big transfer --- */

static void *send_big(void *arg)
{
    struct ends *e = arg;
    unsigned char *data = malloc(RG_BULK_MAX);
    CHECK(data);
    for (uint64_t i = 0; i < WORK(32); i++) {
        pattern_fill(data, RG_BULK_MAX, i);
        CHECK_OK(send_bytes(e->near, &i, sizeof i, data, RG_BULK_MAX));
    }
    free(data);
    return NULL;
}

void test_big_transfer(struct ends e)
{
    pthread_t sender = start(send_big, &e);
    unsigned char *data = malloc(RG_BULK_MAX);
    CHECK(data);
    for (uint64_t i = 0; i < WORK(32); i++) {
        struct rg_message m;
        CHECK_OK(rg_conn_recv(e.far, -1, &m));
        CHECK(m.size == sizeof i && memcmp(m.data, &i, sizeof i) == 0 && m.bulk_size == RG_BULK_MAX);
        CHECK_OK(rg_conn_recv_bulk(e.far, data, RG_BULK_MAX / 2 + 1));
        CHECK_OK(rg_conn_recv_bulk(e.far, data + RG_BULK_MAX / 2 + 1, RG_BULK_MAX / 2 - 1));
        CHECK(pattern_matches(data, RG_BULK_MAX, i));
    }
    free(data);
    pthread_join(sender, NULL);
}

/* --- time --- */

static void *send_later(void *arg)
{
    pause_ms(50);
    CHECK_OK(send_pattern(((struct ends *)arg)->near, 10, 0, 9));
    return NULL;
}

void test_timeouts(struct ends e)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(e.far, 0, &m), RG_ERR_TIMEOUT);
    uint64_t before = rg_now_ns();
    CHECK_STATUS(rg_conn_recv(e.far, 30, &m), RG_ERR_TIMEOUT);
    uint64_t waited = rg_now_ns() - before;
    CHECK(waited >= 29000000u && waited < 3000000000u);
    expect_good(e.near, e.far);
    /* a message that comes within the time is taken when it comes */
    pthread_t sender = start(send_later, &e);
    CHECK_OK(rg_conn_recv(e.far, 10000, &m));
    CHECK(m.size == 10 && pattern_matches(m.data, 10, 9));
    pthread_join(sender, NULL);
    CHECK_STATUS(rg_conn_recv(e.far, 1, &m), RG_ERR_TIMEOUT);
    expect_good(e.far, e.near);
}

/* With a descriptor, a time that runs out in the middle of a message loses nothing. */
void test_timeout_within_message(struct ends e)
{
    const int fd = rg_conn_fd(e.near);
    unsigned char bytes[16 + 40], wire[sizeof bytes + WIRE_EXTRA];
    size_t size;
    bool ends;
    struct rg_frame frame = rg_frame_encode(40, 0);
    memcpy(bytes, &frame, sizeof frame);
    pattern_fill(bytes + 16, 40, 5);
    if (!wire_bytes(e.near, bytes, sizeof bytes, wire, &size, &ends))
        return;
    struct rg_message m;
    size_t cuts[] = {0, 3, 7, 16, 30, size};
    for (size_t i = 0; i + 1 < COUNT(cuts); i++) {
        CHECK(send(fd, wire + cuts[i], cuts[i + 1] - cuts[i], 0) == (ssize_t)(cuts[i + 1] - cuts[i]));
        if (i + 2 < COUNT(cuts))
            CHECK_STATUS(rg_conn_recv(e.far, 20, &m), RG_ERR_TIMEOUT);
    }
    CHECK_OK(rg_conn_recv(e.far, 2000, &m));
    CHECK(m.size == 40 && pattern_matches(m.data, 40, 5));
    if (!ends)
        expect_good(e.near, e.far);
}

/* --- memory that is not there --- */

/* Two pages, of which the second cannot be accessed. */
static unsigned char *half_mapped(size_t page)
{
    unsigned char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(memory + page, page, PROT_NONE) == 0);
    return memory;
}

static void expect_bulk_with_hole(struct rg_conn *conn, size_t before, size_t hole, size_t after)
{
    struct rg_message m;
    size_t size = before + hole + after;
    unsigned char *bulk = malloc(size);
    CHECK(bulk);
    CHECK_OK(rg_conn_recv(conn, -1, &m));
    CHECK(m.size == 4 && memcmp(m.data, "head", 4) == 0);
    CHECK(m.bulk_size == size);
    CHECK_OK(rg_conn_recv_bulk(conn, bulk, size));
    CHECK(pattern_matches(bulk, before, 1));
    for (size_t i = before + hole - 1; i >= before + hole / 2; i--)
        CHECK(bulk[i] == 0); /* the part's readable front may have been sent */
    CHECK(pattern_matches(bulk + before + hole, after, 2));
    free(bulk);
}

void test_send_fault(struct ends e)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *bad = half_mapped(page);
    static unsigned char before[50000], after[70000];
    pattern_fill(before, sizeof before, 1);
    pattern_fill(after, sizeof after, 2);
    char head[] = "head";
    const struct iovec msg[2] = {{head, 2}, {head + 2, 2}};
    void *holes[] = {bad, bad + page,
#ifndef RG_SANITIZED /* sanitizers look at their shadow of the address before the kernel does */
                     (void *)(uintptr_t)0xdead000000000000u, NULL
#endif
    };
    for (size_t i = 0; i < COUNT(holes); i++) {
        size_t hole = holes[i] == bad ? 2 * page : page;
        const struct iovec bulk[3] = {{before, sizeof before}, {holes[i], hole}, {after, sizeof after}};
        CHECK_STATUS(
            rg_conn_send(e.near, &(struct rg_send){.msg = msg, .n_msg = 2, .bulk = bulk, .n_bulk = 3}),
            RG_ERR_FAULT);
        expect_bulk_with_hole(e.far, sizeof before, hole, sizeof after);
        expect_good(e.near, e.far);
    }
    munmap(bad, 2 * page);
}

void test_recv_fault(struct ends e)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *bad = half_mapped(page), good[64];
    const size_t sizes[] = {100, page, 2 * page, 100000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *whole = malloc(sizes[i] + 64);
        CHECK(whole);
        pattern_fill(whole, sizes[i] + 64, i);
        CHECK_OK(send_bytes(e.near, "head", 4, whole, sizes[i] + 64));
        struct rg_message m;
        CHECK_OK(rg_conn_recv(e.far, -1, &m));
        unsigned char *target = sizes[i] > page && sizes[i] <= 2 * page ? bad : bad + page;
        CHECK_STATUS(rg_conn_recv_bulk(e.far, target, sizes[i]), RG_ERR_FAULT);
        CHECK_OK(rg_conn_recv_bulk(e.far, good, 64));
        CHECK(memcmp(good, whole + sizes[i], 64) == 0);
        free(whole);
        expect_good(e.near, e.far);
    }
    munmap(bad, 2 * page);
}

/* --- misuse is refused and harms nothing --- */

void test_misuse(struct ends e)
{
    unsigned char *data = calloc(1, RG_BULK_MAX + 1);
    CHECK(data);
    CHECK_STATUS(send_bytes(e.near, data, RG_MESSAGE_MAX + 1, NULL, 0), RG_ERR_INVALID);
    CHECK_STATUS(send_bytes(e.near, data, 1, data, RG_BULK_MAX + 1), RG_ERR_INVALID);
    const struct iovec wrap[2] = {{data, 16}, {data, SIZE_MAX - 8}};
    CHECK_STATUS(rg_conn_send(e.near, &(struct rg_send){.msg = wrap, .n_msg = 2}), RG_ERR_INVALID);
    CHECK_OK(send_pattern(e.near, 10, 10, 1));
    struct rg_message m;
    CHECK_OK(rg_conn_recv(e.far, -1, &m));
    CHECK_STATUS(rg_conn_recv_bulk(e.far, data, 11), RG_ERR_INVALID);
    CHECK_OK(rg_conn_recv_bulk(e.far, data, 9));
    CHECK_STATUS(rg_conn_recv(e.far, -1, &m), RG_ERR_INVALID);
    CHECK_OK(rg_conn_recv_bulk(e.far, data + 9, 1));
    CHECK(pattern_matches(data, 10, 2));
    CHECK_STATUS(rg_conn_recv_bulk(e.far, data, 1), RG_ERR_INVALID);
    free(data);
    expect_good(e.near, e.far);
}
