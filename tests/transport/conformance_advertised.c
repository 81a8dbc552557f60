/*
 * conformance_advertised.c - memory that is advertised to the peer: bulk data comes to lie there, or is asked
 * for as ever. A transport that does not advertise passes the same tests without.
 */
#include "conformance.h"
#include "transport/memory.h"
#include "transport/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    CHUNK = 64 << 10,
    CHUNKS = 16,
    RING = CHUNK * CHUNKS,
    MESSAGES = 60,
    SOURCE = 1 << 20,
    NO_KIND = 0x8000, /* a message begins with none that a bundle knows */
};

/*
 * What a stream's bytes are from `at` on: a piece of one pattern, so that long ones are cheap to make and to
 * compare.
 */
static const unsigned char *bytes_at(unsigned stream, size_t at)
{
    enum { STREAMS = 251 };
    static unsigned char pattern[SOURCE + STREAMS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0, x = 1; i < sizeof pattern && pattern[0] == 0; i++, x = x * 1103515245u + 12345u)
        pattern[sizeof pattern - 1 - i] = (unsigned char)(x >> 16 | 1);
    pthread_mutex_unlock(&lock);
    return pattern + stream % STREAMS + at;
}

static unsigned char *pages(struct rg_conn *conn, size_t size)
{
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    enum rg_status status = rg_conn_register(conn, memory, size);
    CHECK(status == RG_OK || status == RG_ERR_UNSUPPORTED);
    return memory;
}

static void give_back(struct rg_conn *conn, unsigned char *memory, size_t size)
{
    rg_conn_unregister(conn, memory);
    munmap(memory, size);
}

/* --- without a tag: a ring of chunks, in both directions at once --- */

struct flow {
    struct rg_conn *conn;
    unsigned stream;
    size_t taken;        /* bytes that were found in advertised memory … */
    unsigned char *ring; /* … which is this; the receiver's */
};

static size_t size_of(unsigned i)
{
    static const size_t sizes[] = {8192, CHUNK, CHUNK + 1, 3 * CHUNK - 7, 100,
                                   RING, 12345, 2 * CHUNK, SOURCE};
    return sizes[i % COUNT(sizes)];
}

static void *flow_send(void *arg)
{
    struct flow *flow = arg;
    unsigned char *source = pages(flow->conn, SOURCE);
    for (unsigned i = 0; i < MESSAGES; i++) {
        const size_t size = size_of(i);
        memcpy(source, bytes_at(flow->stream + i, 0), size);
        unsigned word = i | NO_KIND;
        struct iovec msg = {&word, sizeof word}, bulk = {source, size};
        CHECK(rg_conn_send(flow->conn,
                           &(struct rg_send){.msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1}) == RG_OK);
    }
    give_back(flow->conn, source, SOURCE);
    return NULL;
}

static void check_bytes(const struct flow *flow, unsigned i, size_t offset, const unsigned char *at,
                        size_t size)
{
    CHECK(memcmp(at, bytes_at(flow->stream + i, offset), size) == 0);
}

static void advertise_chunk(struct flow *flow, unsigned char *chunk)
{
    enum rg_status status = rg_conn_advertise(flow->conn, 0, 0, chunk, CHUNK);
    CHECK(status == RG_OK || status == RG_ERR_UNSUPPORTED || status == RG_ERR_TIMEOUT);
}

/* Takes in every way that there is, and advertises again now and then. */
static void *flow_receive(void *arg)
{
    struct flow *flow = arg;
    unsigned char *own = malloc(SOURCE), *kept[CHUNKS];
    unsigned n_kept = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct rg_message message;
        CHECK(rg_conn_recv(flow->conn, -1, &message) == RG_OK);
        const unsigned word = i | NO_KIND;
        CHECK(message.size == sizeof word && memcmp(message.data, &word, sizeof word) == 0);
        CHECK(message.bulk_size == size_of(i));
        for (size_t left = message.bulk_size, size; left > 0; left -= size) {
            void *memory;
            size = 0;
            if (i % 7 != 3) /* else by a copy: the transport advertises it again itself */
                CHECK(rg_conn_take_advertised(flow->conn, left, &memory, &size) == RG_OK);
            if (size > 0) {
                check_bytes(flow, i, message.bulk_size - left, memory, size);
                flow->taken += size;
                CHECK(n_kept < CHUNKS);
                kept[n_kept++] = flow->ring + ((unsigned char *)memory - flow->ring) / CHUNK * CHUNK;
            } else if (i % 5 == 4) {
                size = left < 1000 ? left : 1000;
                CHECK(rg_conn_recv_bulk(flow->conn, NULL, size) == RG_OK);
            } else {
                size = left < 50000 ? left : 50000;
                CHECK(rg_conn_recv_bulk(flow->conn, own, size) == RG_OK);
                check_bytes(flow, i, message.bulk_size - left, own, size);
            }
        }
        if (i % 4 == 1)
            while (n_kept > 0)
                advertise_chunk(flow, kept[--n_kept]);
    }
    free(own);
    return NULL;
}

void test_advertised_chunks(struct ends e)
{
    struct flow flows[] = {
        {e.near, 1, 0, NULL}, {e.far, 1, 0, NULL}, {e.far, 7, 0, NULL}, {e.near, 7, 0, NULL}};
    pthread_t threads[4];
    /*
     * before anything is sent: who does not ask for memory sends all of it before a thread that starts late
     * has advertised some
     */
    for (int i = 1; i < 4; i += 2) {
        flows[i].ring = pages(flows[i].conn, RING);
        for (size_t at = 0; at < RING; at += CHUNK)
            advertise_chunk(&flows[i], flows[i].ring + at);
    }
    for (int i = 0; i < 4; i++)
        threads[i] = start(i % 2 ? flow_receive : flow_send, &flows[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i += 2)
        give_back(flows[i].conn, flows[i].ring, RING);
    const unsigned both = rg_conn_caps(e.near) & rg_conn_caps(e.far);
    if (both & RG_CAP_ADVERTISES)
        CHECK(flows[1].taken > 0 && flows[3].taken > 0);
    if ((both & RG_CAP_ADVERTISES) &&
        (both & RG_CAP_ASKS)) /* it waits where too little is advertised: most of it was placed */
        CHECK(flows[1].taken > RING && flows[3].taken > RING);
}

/* --- with a tag: a destination --- */

static void *send_tagged(void *arg)
{
    struct rg_conn *conn = arg;
    unsigned char *source = pages(conn, SOURCE);
    struct rg_message ready;
    CHECK(rg_conn_recv(conn, -1, &ready) == RG_OK); /* behind the adverts */
    memcpy(source, bytes_at(3, 0), SOURCE);
    for (size_t at = 0, size; at < SOURCE; at += size) {
        size = SOURCE - at < 3 * CHUNK ? SOURCE - at : 3 * CHUNK;
        size_t word = at | NO_KIND;
        struct iovec msg = {&word, sizeof word}, bulk = {source + at, size};
        CHECK(rg_conn_send(
                  conn,
                  &(struct rg_send){
                      .msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1, .tag = 77, .base = 1000 + at}) ==
              RG_OK);
    }
    /* of a tag that nobody knows, and beyond what is advertised */
    struct iovec msg = {source, 1}, bulk = {source, CHUNK};
    CHECK(rg_conn_send(conn,
                       &(struct rg_send){
                           .msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1, .tag = 78, .base = 1000}) ==
          RG_OK);
    CHECK(rg_conn_send(conn, &(struct rg_send){.msg = &msg,
                                               .n_msg = 1,
                                               .bulk = &bulk,
                                               .n_bulk = 1,
                                               .tag = 77,
                                               .base = 1000 + SOURCE - 1}) == RG_OK);
    CHECK(rg_conn_send(conn, &(struct rg_send){
                                 .msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1, .tag = 77}) == RG_OK);
    give_back(conn, source, SOURCE);
    return NULL;
}

void test_advertised_tags(struct ends e)
{
    unsigned char *to = pages(e.far, SOURCE), *own = malloc(CHUNK);
    const enum rg_status advertised = rg_conn_advertise(e.far, 77, 1000, to, SOURCE);
    CHECK(advertised == RG_OK || advertised == RG_ERR_UNSUPPORTED);
    struct iovec word = {(char[]){"word"}, 4};
    CHECK(rg_conn_send(e.far, &(struct rg_send){.msg = &word, .n_msg = 1}) == RG_OK);
    pthread_t sender = start(send_tagged, e.near);
    struct rg_message message;
    for (size_t at = 0, size; at < SOURCE; at += size) {
        CHECK(rg_conn_recv(e.far, -1, &message) == RG_OK && message.size == sizeof at);
        const size_t expected = at | NO_KIND;
        CHECK(memcmp(message.data, &expected, sizeof expected) == 0);
        size = message.bulk_size;
        void *memory;
        size_t taken;
        CHECK(rg_conn_take_advertised(e.far, size, &memory, &taken) == RG_OK &&
              taken == 0); /* not without a tag */
        CHECK(rg_conn_recv_bulk(e.far, to + at, 10) == RG_OK);
        CHECK(rg_conn_recv_bulk(e.far, to + at + 10, size - 10) == RG_OK);
    }
    CHECK(memcmp(to, bytes_at(3, 0), SOURCE) == 0);
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(e.far, &statistics);
    if (advertised == RG_OK && (rg_conn_caps(e.near) & RG_CAP_ADVERTISES))
        CHECK(statistics.bulk_copied_received == 0 && statistics.bulk_direct_received == SOURCE);
    for (int i = 0; i < 3; i++) {
        CHECK(rg_conn_recv(e.far, -1, &message) == RG_OK && message.bulk_size == CHUNK);
        CHECK(rg_conn_recv_bulk(e.far, own, CHUNK) == RG_OK);
        CHECK(memcmp(own, bytes_at(3, 0), CHUNK) == 0);
    }
    pthread_join(sender, NULL);
    rg_conn_withdraw(e.far, 77, to);
    give_back(e.far, to, SOURCE);
    free(own);
}

/*
 * More adverts than there is room for are refused, not waited for; what was advertised and withdrawn makes
 * room.
 */
void test_advertised_many(struct ends e)
{
    enum { N = 100 };
    unsigned char *to = pages(e.far, (size_t)N * CHUNK);
    unsigned n = 0;
    for (unsigned i = 0; i < N; i++)
        n += rg_conn_advertise(e.far, i + 1, 0, to + (size_t)i * CHUNK, CHUNK) == RG_OK;
    CHECK(n < N && (n > 0) == ((rg_conn_caps(e.far) & RG_CAP_ADVERTISES) != 0));
    for (unsigned i = 0; i < N; i++)
        rg_conn_withdraw(e.far, i + 1, to + (size_t)i * CHUNK);
    for (unsigned round = 0; round < N; round++) {
        const enum rg_status status = rg_conn_advertise(e.far, round + 1, 0, to, CHUNK);
        CHECK(status == RG_OK || status == RG_ERR_UNSUPPORTED || status == RG_ERR_TIMEOUT);
        struct iovec word = {(char[]){"word"}, 4};
        struct rg_message message;
        CHECK(rg_conn_send(e.far, &(struct rg_send){.msg = &word, .n_msg = 1}) == RG_OK &&
              rg_conn_recv(e.near, -1, &message) == RG_OK);
        CHECK(rg_conn_send(e.near, &(struct rg_send){.msg = &word, .n_msg = 1}) == RG_OK &&
              rg_conn_recv(e.far, -1, &message) == RG_OK);
        CHECK(!n || round == 0 || status == RG_OK); /* the word back told that the earlier ones were seen */
        rg_conn_withdraw(e.far, round + 1, to);
    }
    give_back(e.far, to, (size_t)N * CHUNK);
}

/* --- an end in the middle of it --- */

static void *send_until_lost(void *arg)
{
    struct rg_conn *conn = arg;
    unsigned char *source = pages(conn, SOURCE);
    struct iovec msg = {source, 8}, bulk = {source, SOURCE};
    enum rg_status status = RG_OK;
    while (status == RG_OK)
        status = rg_conn_send(conn, &(struct rg_send){.msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = 1});
    CHECK(status == RG_ERR_LOST || status == RG_ERR_CLOSED);
    give_back(conn, source, SOURCE);
    return NULL;
}

void test_advertised_lost(struct ends *e)
{
    unsigned char *ring = pages(e->far, RING), *own = malloc(SOURCE);
    for (size_t at = 0; at < RING; at += CHUNK)
        (void)rg_conn_advertise(e->far, 0, 0, ring + at, CHUNK);
    pthread_t sender = start(send_until_lost, e->near);
    struct rg_message message;
    for (int i = 0; i < 5; i++) {
        CHECK(rg_conn_recv(e->far, -1, &message) == RG_OK);
        CHECK(rg_conn_recv_bulk(e->far, own, message.bulk_size) == RG_OK);
    }
    CHECK(rg_conn_recv(e->far, -1, &message) == RG_OK);
    CHECK(rg_conn_recv_bulk(e->far, own, message.bulk_size / 2) == RG_OK);
    rg_conn_interrupt(e->far);
    void *memory;
    size_t size;
    enum rg_status status = rg_conn_take_advertised(e->far, 1, &memory, &size);
    CHECK(status == RG_ERR_CLOSED || size == 0);
    give_back(e->far, ring, RING);
    rg_conn_reset(e->far);
    rg_conn_destroy(e->far);
    e->far = NULL;
    pthread_join(sender, NULL);
    free(own);
}

/* --- peers that say what is not so --- */

#ifdef RG_TEST_RDMA
#include "transport/rdma/internal.h"

/* Sends a message with bulk data in advertised memory of which `pieces` tells; nothing was written. */
static void send_word_of(struct rg_conn *conn, const struct rg_rdma_piece *pieces, unsigned n,
                         uint32_t bulk_size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    struct {
        struct rg_rdma_message head;
        char text[8];
    } message = {.head = {.msg_size = htole32(8),
                          .bulk_size = htole32(bulk_size),
                          .bulk_mode = htole32(RG_RDMA_BULK_ADVERTISED)}};
    pthread_mutex_lock(&c->lock);
    enum rg_status status = rg_rdma_send_payload(c, &message, sizeof message);
    for (unsigned i = 0; i < n && status == RG_OK; i++)
        status = rg_rdma_send_payload(c, &pieces[i], sizeof pieces[i]);
    pthread_mutex_unlock(&c->lock);
    CHECK(status == RG_OK);
}

static struct rg_rdma_piece piece(uint16_t slot, uint64_t offset, uint32_t length)
{
    return (struct rg_rdma_piece){
        .slot = htole16(slot), .length = htole32(length), .offset = htole64(offset)};
}

static void expect_protocol_error(struct ends *e, const struct rg_rdma_piece *pieces, unsigned n)
{
    if (strcmp(rg_conn_transport(e->far), "rdma") != 0 || !(rg_conn_caps(e->far) & RG_CAP_ADVERTISES) ||
        rg_conn_rails(e->far)) /* whose connections are not ours to write to */
        return;
    unsigned char *ring = pages(e->far, RING), *own = malloc(SOURCE);
    CHECK(rg_conn_advertise(e->far, 0, 0, ring, CHUNK) == RG_OK);
    CHECK(rg_conn_advertise(e->far, 5, 0, ring + CHUNK, CHUNK) == RG_OK);
    send_word_of(e->near, pieces, n, SOURCE);
    struct rg_message message;
    CHECK(rg_conn_recv(e->far, -1, &message) == RG_OK && message.bulk_size == SOURCE);
    CHECK(rg_conn_recv_bulk(e->far, own, message.bulk_size) == RG_ERR_PROTOCOL);
    CHECK(rg_conn_recv(e->far, 0, &message) != RG_OK); /* for good */
    rg_conn_withdraw(e->far, 5, ring + CHUNK);
    give_back(e->far, ring, RING);
    free(own);
}
#endif

void test_advertised_hostile(struct ends *e)
{
    (void)e;
#ifdef RG_TEST_RDMA
    static unsigned variant;
    const struct rg_rdma_piece none[] = {piece(3, 0, CHUNK)}, beyond[] = {piece(RG_RDMA_ADVERTS, 0, 8)},
                               huge[] = {piece(0, 0, CHUNK + 1)}, shifted[] = {piece(0, 8, 8)},
                               past[] = {piece(RG_RDMA_CHUNKS, CHUNK - 7, 8)},
                               far_past[] = {piece(RG_RDMA_CHUNKS, UINT64_MAX - 3, 8)},
                               withdrawn[] = {piece(RG_RDMA_CHUNKS + 1, 0, 8)}, empty[] = {piece(0, 0, 0)};
    const struct {
        const struct rg_rdma_piece *pieces;
        unsigned n;
    } variants[] = {{none, 1}, {beyond, 1},   {huge, 1},      {shifted, 1},
                    {past, 1}, {far_past, 1}, {withdrawn, 1}, {empty, 1}};
    const unsigned now = variant++ % COUNT(variants);
    expect_protocol_error(e, variants[now].pieces, variants[now].n);
#endif
}
