/*
 * conformance.c - what every transport, and every filter around it, has to do alike.
 *
 *   transport_conformance CONFIGURATION      mem, tcp, tcp6, unix, abstract, tcp-spin, delay+mem, delay+tcp,
 * fault+tcp
 *
 * Each test gets a fresh pair of connected ends, and runs twice: once with the connecting and once with the
 * accepting end in the leading part, so that a filter is tried in both directions. Threads do not use a
 * framework's assertions: a failed check aborts the program.
 */
#include "support.h"

#include "common/clock.h"
#include "transport/tcp/frame.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct configuration {
    const char *name, *address, *filters;
    bool spin;
};

static const struct configuration configurations[] = {
    {"mem", "mem:conformance", "", false},
    {"tcp", "127.0.0.1:0", "", false},
    {"tcp6", "[::1]:0", "", false},
    {"unix", "unix:/tmp/remote-gpu-conformance.%d", "", false},
    {"abstract", "unix:@remote-gpu-conformance.%d", "", false},
    {"tcp-spin", "tcp://localhost:0", "", true},
    {"delay+mem", "mem:conformance", "delay:oneway=1ms", false},
    {"delay+tcp", "127.0.0.1:0", "delay:oneway=1ms,bandwidth=100Gb", false},
    {"delay+unix", "unix:@remote-gpu-conformance.%d", "delay", false},
    {"fault+tcp", "127.0.0.1:0", "fault", false},
    {"fault+delay+tcp", "127.0.0.1:0", "fault:byte=3;delay:oneway=200us", false},
};

/* The ends of a test: `near` leads. */
struct ends {
    struct rg_conn *near, *far;
};

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

static pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
    return thread;
}

/* --- order and sizes
 * ---------------------------------------------------------------------------------------- */

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
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void *send_every_size(void *arg)
{
    struct ends *e = arg;
    for (size_t i = 0; i < COUNT(msg_sizes); i++)
        CHECK_OK(send_pattern(e->near, msg_sizes[i], bulk_sizes[i % COUNT(bulk_sizes)], i));
    return NULL;
}

static void test_sizes(struct ends e)
{
    pthread_t sender = start(send_every_size, &e);
    for (size_t i = 0; i < COUNT(msg_sizes); i++)
        expect_pattern(e.far, msg_sizes[i], bulk_sizes[i % COUNT(bulk_sizes)], i);
    pthread_join(sender, NULL);
}

/* A message of many parts, some of no size, arrives as their sequence. */
static void test_parts(struct ends e)
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
        CHECK_OK(rg_conn_send(e.near, msg, N, bulk, N));
        struct rg_message m;
        unsigned char taken[sizeof data];
        CHECK_OK(rg_conn_recv(e.far, -1, &m));
        CHECK(m.size == msg_size && pattern_matches(m.data, m.size, 1));
        CHECK(m.bulk_size == bulk_size);
        CHECK_OK(rg_conn_recv_bulk(e.far, taken, bulk_size));
        CHECK(memcmp(taken, data, bulk_size) == 0);
    }
    CHECK_OK(rg_conn_send(e.near, NULL, 0, NULL, 0));
    struct rg_message m;
    CHECK_OK(rg_conn_recv(e.far, -1, &m));
    CHECK(m.size == 0 && m.bulk_size == 0);
}

/* --- bulk data in pieces
 * -------------------------------------------------------------------------------------- */

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

static void test_bulk_pieces(struct ends e)
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

/* --- many threads, both directions
 * ------------------------------------------------------------------------------ */

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
        CHECK_OK(rg_conn_send(c->conn, msg, 2, &k, 1));
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

static void test_crowd(struct ends e)
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

static void test_many_small(struct ends e)
{
    pthread_t sender = start(send_small, &e);
    for (uint64_t i = 0; i < WORK(20000); i++)
        expect_pattern(e.far, i * 31 % 97, i % 50 == 0 ? 3 : 0, i);
    pthread_join(sender, NULL);
}

/* --- a big transfer
 * ------------------------------------------------------------------------------------------- */

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

static void test_big_transfer(struct ends e)
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

/* --- time
 * ------------------------------------------------------------------------------------------------------- */

static void *send_later(void *arg)
{
    pause_ms(50);
    CHECK_OK(send_pattern(((struct ends *)arg)->near, 10, 0, 9));
    return NULL;
}

static void test_timeouts(struct ends e)
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
static void test_timeout_within_message(struct ends e)
{
    int fd = rg_conn_fd(e.near);
    if (fd < 0)
        return;
    unsigned char bytes[16 + 40];
    struct rg_frame frame = rg_frame_encode(40, 0);
    memcpy(bytes, &frame, sizeof frame);
    pattern_fill(bytes + 16, 40, 5);
    struct rg_message m;
    size_t cuts[] = {0, 7, 16, 30, sizeof bytes};
    for (size_t i = 0; i + 1 < COUNT(cuts); i++) {
        CHECK(send(fd, bytes + cuts[i], cuts[i + 1] - cuts[i], 0) == (ssize_t)(cuts[i + 1] - cuts[i]));
        if (i + 2 < COUNT(cuts))
            CHECK_STATUS(rg_conn_recv(e.far, 20, &m), RG_ERR_TIMEOUT);
    }
    CHECK_OK(rg_conn_recv(e.far, 2000, &m));
    CHECK(m.size == 40 && pattern_matches(m.data, 40, 5));
    expect_good(e.near, e.far);
}

/* --- interrupts
 * --------------------------------------------------------------------------------------------------- */

static void *recv_until_interrupted(void *arg)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(arg, -1, &m), RG_ERR_CLOSED);
    return NULL;
}

static void *recv_long_until_interrupted(void *arg)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(arg, 60000, &m), RG_ERR_CLOSED);
    return NULL;
}

static void *send_until_interrupted(void *arg)
{
    unsigned char *data = calloc(1, RG_BULK_MAX);
    CHECK(data);
    enum rg_status status;
    do
        status = send_bytes(arg, "x", 1, data, RG_BULK_MAX);
    while (status == RG_OK);
    CHECK_STATUS(status, RG_ERR_CLOSED);
    free(data);
    return NULL;
}

static void expect_interrupted(struct rg_conn *conn)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(conn, -1, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(conn, 0, &m), RG_ERR_CLOSED);
    CHECK_STATUS(send_bytes(conn, "x", 1, NULL, 0), RG_ERR_CLOSED);
    rg_conn_interrupt(conn);
    CHECK_STATUS(send_bytes(conn, "x", 1, NULL, 0), RG_ERR_CLOSED);
}

static void test_interrupt_recv(struct ends e)
{
    pthread_t receiver = start(recv_until_interrupted, e.far);
    pause_ms(20);
    rg_conn_interrupt(e.far);
    pthread_join(receiver, NULL);
    expect_interrupted(e.far);
    /* the peer sees an end, in order: nothing was under way */
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(e.near, 5000, &m), RG_ERR_CLOSED);
}

static void test_interrupt_timed_recv(struct ends e)
{
    pthread_t receiver = start(recv_long_until_interrupted, e.far);
    pause_ms(20);
    rg_conn_interrupt(e.far);
    pthread_join(receiver, NULL);
    expect_interrupted(e.far);
}

static void test_interrupt_send(struct ends e)
{
    pthread_t sender = start(send_until_interrupted, e.near);
    pthread_t receiver = start(recv_until_interrupted, e.near);
    pause_ms(150); /* long enough to fill what lies between */
    rg_conn_interrupt(e.near);
    pthread_join(sender, NULL);
    pthread_join(receiver, NULL);
    expect_interrupted(e.near);
}

/* --- ends of connections
 * --------------------------------------------------------------------------------------- */

static void test_orderly_close(struct ends *e)
{
    for (uint64_t i = 0; i < 10; i++)
        CHECK_OK(send_pattern(e->near, 1000, 500, i));
    rg_conn_destroy(e->near);
    e->near = NULL;
    for (uint64_t i = 0; i < 10; i++)
        expect_pattern(e->far, 1000, 500, i);
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(e->far, -1, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(e->far, 0, &m), RG_ERR_CLOSED);
    /* a send finds out sooner or later, and never raises a signal */
    enum rg_status status = RG_OK;
    for (int i = 0; i < 1000 && status == RG_OK; i++) {
        status = send_bytes(e->far, "x", 1, NULL, 0);
        pause_ms(i > 100);
    }
    CHECK(status == RG_ERR_LOST || status == RG_ERR_CLOSED);
}

/* Data that the closing side never read does not take away what it had said. */
static void test_close_with_unread(struct ends *e)
{
    if (strstr(rg_conn_transport(e->near), "mem") == NULL)
        rg_conn_set_read_ahead(e->near); /* not to be handed on: closes with care */
    CHECK_OK(send_pattern(e->far, 5000, 50000, 1));
    CHECK_OK(send_pattern(e->near, 100, 100000, 2));
    pause_ms(30);
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_pattern(e->far, 100, 100000, 2);
}

static void expect_sticky(struct rg_conn *conn, enum rg_status status)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(conn, 5000, &m), status);
    CHECK_STATUS(rg_conn_recv(conn, -1, &m), status);
}

static void test_lost_within_message(struct ends *e)
{
    int fd = rg_conn_fd(e->near);
    if (fd < 0)
        return;
    CHECK_OK(send_pattern(e->near, 10, 0, 1));
    struct rg_frame frame = rg_frame_encode(100, 0);
    CHECK(send(fd, &frame, sizeof frame, MSG_MORE) == sizeof frame);
    CHECK(send(fd, "half", 4, 0) == 4);
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_pattern(e->far, 10, 0, 1);
    expect_sticky(e->far, RG_ERR_LOST);
}

static void test_lost_within_frame(struct ends *e)
{
    int fd = rg_conn_fd(e->near);
    if (fd < 0)
        return;
    struct rg_frame frame = rg_frame_encode(100, 0);
    CHECK(send(fd, &frame, 9, 0) == 9);
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_sticky(e->far, RG_ERR_LOST);
}

static void test_lost_within_bulk(struct ends *e)
{
    int fd = rg_conn_fd(e->near);
    if (fd < 0 || rg_conn_fd(e->far) < 0) /* a filter that keeps messages has not returned this one */
        return;
    struct rg_frame frame = rg_frame_encode(0, 1000);
    CHECK(send(fd, &frame, sizeof frame, MSG_MORE) == sizeof frame);
    CHECK(send(fd, "half", 4, 0) == 4);
    rg_conn_destroy(e->near);
    e->near = NULL;
    struct rg_message m;
    unsigned char bulk[1000];
    CHECK_OK(rg_conn_recv(e->far, -1, &m));
    CHECK(m.size == 0 && m.bulk_size == 1000);
    CHECK_STATUS(rg_conn_recv_bulk(e->far, bulk, 600), RG_ERR_LOST);
    CHECK_STATUS(rg_conn_recv_bulk(e->far, bulk, 400), RG_ERR_LOST);
    expect_sticky(e->far, RG_ERR_LOST);
}

static void expect_bad_frame(struct ends *e, struct rg_frame frame, enum rg_status status)
{
    int fd = rg_conn_fd(e->near);
    if (fd < 0)
        return;
    CHECK(send(fd, &frame, sizeof frame, 0) == sizeof frame);
    expect_sticky(e->far, status);
}

static void test_bad_magic(struct ends *e)
{
    struct rg_frame frame = rg_frame_encode(8, 0);
    frame.magic ^= 1;
    expect_bad_frame(e, frame, RG_ERR_PROTOCOL);
}

static void test_bad_reserved(struct ends *e)
{
    struct rg_frame frame = rg_frame_encode(8, 0);
    frame.reserved = htole32(1);
    expect_bad_frame(e, frame, RG_ERR_PROTOCOL);
}

static void test_oversize_message(struct ends *e)
{
    expect_bad_frame(e, rg_frame_encode(RG_MESSAGE_MAX + 1u, 0), RG_ERR_LIMIT);
}

static void test_oversize_bulk(struct ends *e)
{
    expect_bad_frame(e, rg_frame_encode(0, UINT32_MAX), RG_ERR_LIMIT);
}

/* --- memory that is not there
 * ------------------------------------------------------------------------------------- */

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

static void test_send_fault(struct ends e)
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
        CHECK_STATUS(rg_conn_send(e.near, msg, 2, bulk, 3), RG_ERR_FAULT);
        expect_bulk_with_hole(e.far, sizeof before, hole, sizeof after);
        expect_good(e.near, e.far);
    }
    munmap(bad, 2 * page);
}

static void test_recv_fault(struct ends e)
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

/* --- misuse is refused and harms nothing
 * ---------------------------------------------------------------------------- */

static void test_misuse(struct ends e)
{
    unsigned char *data = calloc(1, RG_BULK_MAX + 1);
    CHECK(data);
    CHECK_STATUS(send_bytes(e.near, data, RG_MESSAGE_MAX + 1, NULL, 0), RG_ERR_INVALID);
    CHECK_STATUS(send_bytes(e.near, data, 1, data, RG_BULK_MAX + 1), RG_ERR_INVALID);
    const struct iovec wrap[2] = {{data, 16}, {data, SIZE_MAX - 8}};
    CHECK_STATUS(rg_conn_send(e.near, wrap, 2, NULL, 0), RG_ERR_INVALID);
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

/* --- descriptors
 * ------------------------------------------------------------------------------------------------------ */

static void test_poll(struct ends e)
{
    if (!(rg_conn_caps(e.far) & RG_CAP_FD)) {
        CHECK(rg_conn_fd(e.far) == -1);
        return;
    }
    struct pollfd p = {.fd = rg_conn_fd(e.far), .events = POLLIN};
    CHECK(poll(&p, 1, 0) == 0);
    CHECK_OK(send_pattern(e.near, 10, 0, 1));
    CHECK(poll(&p, 1, 5000) == 1);
    CHECK(fcntl(p.fd, F_GETFD) & FD_CLOEXEC);
    expect_pattern(e.far, 10, 0, 1);
    CHECK(poll(&p, 1, 0) == 0);
}

/* An accepted connection reads nothing ahead, so its socket can go on in other hands, with what is in it. */
static void test_adopt(struct pair *pair)
{
    if (!(rg_conn_caps(pair->b) & RG_CAP_FD))
        return;
    for (uint64_t i = 0; i < 20; i++)
        CHECK_OK(send_pattern(pair->a, 40 + i, i % 2 * 1000, i));
    for (uint64_t i = 0; i < 7; i++)
        expect_pattern(pair->b, 40 + i, i % 2 * 1000, i);
    int fd = dup(rg_conn_fd(pair->b));
    CHECK(fd >= 0);
    rg_conn_destroy(pair->b);
    const struct rg_transport_options options = {.filters = ""};
    CHECK_OK(rg_transport_adopt_fd(fd, &options, &pair->b));
    expect_pattern(pair->b, 47, 1000, 7);
    rg_conn_set_read_ahead(pair->b);
    for (uint64_t i = 8; i < 20; i++)
        expect_pattern(pair->b, 40 + i, i % 2 * 1000, i);
    expect_good(pair->a, pair->b);
}

static void test_adopt_refuses(struct pair *pair)
{
    (void)pair;
    struct rg_conn *conn = NULL;
    const struct rg_transport_options options = {.filters = ""};
    int file = open("/dev/null", O_RDWR | O_CLOEXEC),
        unconnected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_STATUS(rg_transport_adopt_fd(-1, &options, &conn), RG_ERR_INVALID);
    CHECK_STATUS(rg_transport_adopt_fd(file, &options, &conn), RG_ERR_INVALID);
    CHECK_STATUS(rg_transport_adopt_fd(unconnected, &options, &conn), RG_ERR_INVALID);
    CHECK(conn == NULL);
    close(file);
    close(unconnected);
}

/* A descriptor shared with a process that set O_NONBLOCK works all the same. */
static void test_nonblocking(struct ends e)
{
    if (rg_conn_fd(e.far) < 0 || rg_conn_fd(e.near) < 0)
        return;
    CHECK(fcntl(rg_conn_fd(e.far), F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(rg_conn_fd(e.near), F_SETFL, O_NONBLOCK) == 0);
    test_bulk_pieces(e);
}

static void test_abandon(struct ends e)
{
    expect_good(e.near, e.far);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        rg_conn_abandon(e.near);
        rg_conn_abandon(e.far);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect_good(e.near, e.far);
}

/* --- listeners
 * ----------------------------------------------------------------------------------------------------------
 */

static void *accept_until_interrupted(void *arg)
{
    struct rg_conn *conn;
    CHECK_STATUS(rg_listener_accept(arg, -1, &conn), RG_ERR_CLOSED);
    return NULL;
}

static void test_listener(struct pair *pair)
{
    struct rg_conn *conn;
    uint64_t before = rg_now_ns();
    CHECK_STATUS(rg_listener_accept(pair->listener, 0, &conn), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_listener_accept(pair->listener, 20, &conn), RG_ERR_TIMEOUT);
    CHECK(rg_now_ns() - before >= 19000000u);

    struct rg_listener *second;
    char why[128] = "";
    CHECK_STATUS(rg_transport_listen(rg_listener_address(pair->listener), NULL, why, sizeof why, &second),
                 RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "address already in use") == 0);

    /* several connections wait their turn */
    struct rg_conn *ends[6] = {0};
    const struct rg_transport_options none = {.filters = ""};
    for (int i = 0; i < 3; i++)
        CHECK_OK(rg_transport_connect(rg_listener_address(pair->listener), &none, NULL, 0, &ends[i]));
    int fd = rg_listener_fd(pair->listener);
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        CHECK(poll(&p, 1, 5000) == 1);
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(rg_listener_accept(pair->listener, 5000, &ends[3 + i]));
    for (int i = 0; i < 3; i++)
        expect_good(ends[i], ends[3 + i]);
    for (int i = 0; i < 6; i++)
        rg_conn_destroy(ends[i]);

    char address[320];
    snprintf(address, sizeof address, "%s", rg_listener_address(pair->listener));
    pthread_t acceptor = start(accept_until_interrupted, pair->listener);
    pause_ms(20);
    rg_listener_interrupt(pair->listener);
    pthread_join(acceptor, NULL);
    CHECK_STATUS(rg_listener_accept(pair->listener, -1, &conn), RG_ERR_CLOSED);
    rg_listener_destroy(pair->listener);
    pair->listener = NULL;
    CHECK_STATUS(rg_transport_connect(address, &none, why, sizeof why, &conn), RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "connection refused") == 0 || strcmp(why, "no such socket") == 0);
    /* connections made before live on */
    expect_good(pair->a, pair->b);
}

/* --- all of them
 * ----------------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    void (*plain)(struct ends);    /* leaves both ends open */
    void (*ending)(struct ends *); /* may destroy an end and leave NULL */
    void (*pair)(struct pair *);   /* needs to know who accepted */
} tests[] = {
    {"sizes", test_sizes, 0, 0},
    {"parts", test_parts, 0, 0},
    {"bulk_pieces", test_bulk_pieces, 0, 0},
    {"crowd", test_crowd, 0, 0},
    {"many_small", test_many_small, 0, 0},
    {"big_transfer", test_big_transfer, 0, 0},
    {"timeouts", test_timeouts, 0, 0},
    {"timeout_within_message", test_timeout_within_message, 0, 0},
    {"interrupt_recv", test_interrupt_recv, 0, 0},
    {"interrupt_timed_recv", test_interrupt_timed_recv, 0, 0},
    {"interrupt_send", test_interrupt_send, 0, 0},
    {"orderly_close", 0, test_orderly_close, 0},
    {"close_with_unread", 0, test_close_with_unread, 0},
    {"lost_within_message", 0, test_lost_within_message, 0},
    {"lost_within_frame", 0, test_lost_within_frame, 0},
    {"lost_within_bulk", 0, test_lost_within_bulk, 0},
    {"bad_magic", 0, test_bad_magic, 0},
    {"bad_reserved", 0, test_bad_reserved, 0},
    {"oversize_message", 0, test_oversize_message, 0},
    {"oversize_bulk", 0, test_oversize_bulk, 0},
    {"send_fault", test_send_fault, 0, 0},
    {"recv_fault", test_recv_fault, 0, 0},
    {"misuse", test_misuse, 0, 0},
    {"poll", test_poll, 0, 0},
    {"nonblocking", test_nonblocking, 0, 0},
    {"abandon", test_abandon, 0, 0},
    {"adopt", 0, 0, test_adopt},
    {"adopt_refuses", 0, 0, test_adopt_refuses},
    {"listener", 0, 0, test_listener},
};

static void run_test(const struct configuration *conf, size_t index, bool swapped)
{
    char address[128];
    const char *percent = strstr(conf->address, "%d");
    if (percent)
        snprintf(address, sizeof address, "%.*s%d", (int)(percent - conf->address), conf->address,
                 (int)getpid());
    else
        snprintf(address, sizeof address, "%s", conf->address);
    struct pair pair = pair_open(address, conf->filters, conf->spin);
    struct ends e = swapped ? (struct ends){pair.b, pair.a} : (struct ends){pair.a, pair.b};
    if (tests[index].plain) {
        tests[index].plain(e);
    } else if (tests[index].ending) {
        tests[index].ending(&e);
        pair.a = swapped ? e.far : e.near;
        pair.b = swapped ? e.near : e.far;
    } else {
        tests[index].pair(&pair);
    }
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    const struct configuration *conf = NULL;
    for (size_t i = 0; argc > 1 && i < COUNT(configurations); i++)
        if (strcmp(configurations[i].name, argv[1]) == 0)
            conf = &configurations[i];
    if (!conf) {
        fprintf(stderr, "usage: %s CONFIGURATION [TEST]\n", argv[0]);
        return 2;
    }
    test_begin(300);
    int run = 0;
    for (size_t i = 0; i < COUNT(tests); i++) {
        if (argc > 2 && strcmp(argv[2], tests[i].name) != 0)
            continue;
        for (int swapped = 0; swapped < (tests[i].pair ? 1 : 2); swapped++) {
            uint64_t before = rg_now_ns();
            run_test(conf, i, swapped);
            run++;
            printf("%s %s%s: %.1f ms\n", conf->name, tests[i].name, swapped ? " swapped" : "",
                   (double)(rg_now_ns() - before) / 1e6);
            fflush(stdout);
        }
    }
    return run > 0 ? 0 : 2;
}
