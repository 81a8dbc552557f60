/*
 * cuts.c - connections that outlive their links: what is sent arrives whole, once and in order,
 * wherever the links are cut. Cuts are those of filter fault, at random places of both directions, in
 * messages, in bulk data and in the conversation that makes the next link. With the argument "tls" links are by TLS; with
 * "advertised" they write in advertised memory.
 */
#include "tests/transport/resumable/ends.h"
#include "tests/transport/tls/pair.h"
#include "transport/connect/connect.h"
#include "transport/memory.h"
#include "transport/state.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static void test_cuts(void)
{
    unsigned cuts = 0;
    char filters[64];
    for (unsigned seed = 1; seed <= WORK(24); seed++) {
        snprintf(filters, sizeof filters, "fault:cut_every=%u,seed=%u", 300000 + seed * 50000, seed);
        cuts += run_traffic(filters, 0, 150);
    }
    printf("%u links lost\n", cuts);
    CHECK(cuts > WORK(100));
}

static void test_cuts_of_bundles(void)
{
    unsigned cuts = 0;
    char filters[64];
    for (unsigned seed = 1; seed <= 8; seed++) { /* a first link, whose channels are never cut, may last */
        snprintf(filters, sizeof filters, "fault:cut_every=900000,seed=%u", 100 + seed);
        cuts += run_traffic(filters, 2, 150);
    }
    printf("%u links with channels lost\n", cuts);
    CHECK(cuts > 8);
}

/*
 * With rails: where the last is lost another carries its part, where the first connection is, the next link;
 * and where all rails are, this as well if one was in the middle of something.
 */
static void test_cuts_of_rails(void)
{
    enum { LAST = 1, ALL = 2, FIRST = 4, KINDS = 8 };
    unsigned lost[KINDS] = {0};
    for (unsigned what = 0; what < KINDS; what++)
        for (unsigned seed = 2; seed <= 3; seed++) {
            struct ends ends;
            struct pair control_conn;
            char rail[64], first[64];
            snprintf(rail, sizeof rail, "fault:send_lost_at=%u",
                     1 + seed * 3); /* a run: one or two of a message */
            /*
             * within 40,000 bytes: messages alone are more, however much of their bulk data travels here, too
             */
            snprintf(first, sizeof first, "fault:cut_every=20000,seed=%u", seed);
            tethered_open(&ends, &control_conn, what & FIRST ? first : "", 2, what & ALL ? rail : "",
                          what & (LAST | ALL) ? rail : "");
            lost[what] += run_between(&ends, 50, 5);
            pair_close(&ends.pair);
            rg_listener_destroy(control_conn.listener);
        }
    printf("links lost: %u with a rail that was, %u with all rails, %u with the first, %u with all\n",
           lost[LAST], lost[ALL], lost[FIRST], lost[FIRST | ALL]);
    fflush(stdout);
    CHECK(!lost[0] && !lost[LAST] && lost[FIRST] && lost[FIRST | LAST] && lost[FIRST | ALL]);
}

/* --- advertised memory --- */

enum { CHUNK = 32 << 10, CHUNKS = 16, AREA = 100 << 10, AREAS = 4, UNTAGGED = 3, AHEAD = 8 };

/* What message n carries: for UNTAGGED out of four to whatever is advertised, else to the area of its tag. */
static size_t advertised_size(uint64_t n)
{
    const uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u;
    return n % 4 < UNTAGGED ? 1 + (x >> 20) % (5 * CHUNK) : 1 + (x >> 20) % AREA;
}

static uint64_t tag_of(uint64_t n)
{
    return n % 4 < UNTAGGED ? 0 : n;
}

struct advertised_receiver {
    struct flow flow;
    unsigned char *ring, *areas;
    bool away[CHUNKS];
    size_t taken;           /* bytes that were found in advertised memory without a tag */
    atomic_uint *busy;      /* threads that wait for something, of senders for another link */
    atomic_ullong received; /* messages */
};

struct advertised_sender {
    struct flow flow;
    struct advertised_receiver *to;
};

static void *send_advertised(void *arg)
{
    const struct advertised_sender *s = arg;
    const struct flow *flow = &s->flow;
    unsigned char *bulk = malloc(5 * CHUNK);
    for (uint64_t n = 0; n < flow->messages; n++) {
        while (n > atomic_load(&s->to->received) +
                       AHEAD) /* else it would be sent before its area is advertised */
            poll(NULL, 0, 1);
        const struct iovec part = {&n, sizeof n}, data = {bulk, advertised_size(n)};
        pattern_fill(bulk, data.iov_len, flow->first_seed + n);
        CHECK_OK(rg_conn_send(
            flow->conn,
            &(struct rg_send){.msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = 1, .tag = tag_of(n)}));
        memset(bulk, 0xee, data.iov_len);
    }
    free(bulk);
    atomic_fetch_sub(s->to->busy, 1);
    return NULL;
}

static unsigned char *area_of(const struct advertised_receiver *r, uint64_t tag)
{
    return r->areas + tag / 4 % AREAS * AREA;
}

/* Advertises the areas of the next tags from `next` on. */
static void advertise_areas(struct advertised_receiver *r, uint64_t next)
{
    for (uint64_t tag = next | 3; tag < (next | 3) + 4 * (AREAS - 1); tag += 4)
        (void)rg_conn_advertise(r->flow.conn, tag, 0, area_of(r, tag), AREA);
}

/* Advertises the chunks that are here: after a loss all of them, and then the areas again, too. */
static void advertise_all(struct advertised_receiver *r, uint64_t next)
{
    if (rg_conn_adverts_ended(r->flow.conn)) {
        memset(r->away, 0, sizeof r->away);
        advertise_areas(r, next);
    }
    for (int i = 0; i < CHUNKS; i++)
        if (!r->away[i])
            r->away[i] = rg_conn_advertise(r->flow.conn, 0, 0, r->ring + i * CHUNK, CHUNK) == RG_OK;
}

/*
 * What has been given back is ours, and stays as it is until it is advertised again: for the tag after those
 * that are advertised now.
 */
static void next_area(struct advertised_receiver *r, uint64_t n)
{
    unsigned char *done = area_of(r, n), *before = area_of(r, n + 4 * (AREAS - 1));
    rg_conn_withdraw(r->flow.conn, n, done);
    memset(done, 0xaa, AREA);
    for (size_t at = 0; at < AREA && n >= 4; at++)
        CHECK(before[at] == 0xaa);
    memset(before, 0xcc, AREA);
    (void)rg_conn_advertise(r->flow.conn, n + 4 * (AREAS - 1), 0, before, AREA);
}

static void *receive_advertised(void *arg)
{
    struct advertised_receiver *r = arg;
    unsigned char *own = malloc(5 * CHUNK);
    CHECK_OK(rg_conn_register(r->flow.conn, r->ring, CHUNKS * CHUNK)); /* with each link, by itself */
    advertise_areas(r, 0);
    for (uint64_t n = 0; n < r->flow.messages; n++) {
        struct rg_message message;
        advertise_all(r, n);
        CHECK_OK(rg_conn_recv(r->flow.conn, -1, &message));
        CHECK(message.size == sizeof n && memcmp(message.data, &n, sizeof n) == 0);
        const size_t size = message.bulk_size;
        unsigned char *to = tag_of(n) ? area_of(r, n) : own;
        CHECK(size == advertised_size(n));
        for (size_t at = 0, piece; at < size; at += piece) {
            void *memory;
            CHECK_OK(rg_conn_take_advertised(r->flow.conn, size - at, &memory, &piece));
            if (piece) {
                const size_t index = (size_t)((unsigned char *)memory - r->ring) / CHUNK;
                memcpy(to + at, memory, piece);
                memset(memory, 0xdd, piece);
                r->away[index] = false;
                r->taken += piece;
                continue;
            }
            piece = size - at < 20000 ? size - at : 20000;
            CHECK_OK(rg_conn_recv_bulk(r->flow.conn, to + at, piece));
        }
        CHECK(pattern_matches(to, size, r->flow.first_seed + n));
        if (tag_of(n))
            next_area(r, n);
        atomic_store(&r->received, n);
    }
    atomic_store(&r->received, r->flow.messages);
    atomic_fetch_sub(r->busy, 1);
    while (atomic_load(r->busy)) { /* links without a descriptor are lost when somebody is inside */
        struct rg_message none;
        CHECK_STATUS(rg_conn_recv(r->flow.conn, 10, &none), RG_ERR_TIMEOUT);
    }
    free(own);
    return NULL;
}

/*
 * Links that write data in advertised memory: what has been placed in part comes again, and what was given
 * back stays as it is. Adds what was taken from memory without a tag, and what was received where it had been
 * placed.
 */
static unsigned run_advertised(const char *filters, uint64_t messages, uint64_t *taken, uint64_t *in_place)
{
    struct ends ends;
    ends_open_at(&ends, "mem:advertised", filters, 0, 30000000000ull);
    CHECK(rg_conn_caps(ends.pair.a) & rg_conn_caps(ends.pair.b) & RG_CAP_ADVERTISES);
    atomic_uint busy = 4;
    struct advertised_receiver in[2] = {{.flow = {ends.pair.b, messages, 1000, 0}, .busy = &busy},
                                        {.flow = {ends.pair.a, messages, 900000, 0}, .busy = &busy}};
    struct advertised_sender out[2] = {{{ends.pair.a, messages, 1000, 0}, &in[0]},
                                       {{ends.pair.b, messages, 900000, 0}, &in[1]}};
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) {
        in[i].ring = malloc(CHUNKS * CHUNK);
        in[i].areas = malloc(AREAS * AREA);
        memset(in[i].areas, 0xaa, AREAS * AREA);
        CHECK(pthread_create(&threads[i], NULL, send_advertised, &out[i]) == 0);
        CHECK(pthread_create(&threads[2 + i], NULL, receive_advertised, &in[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&ends.a.gave_up) == 0 && atomic_load(&ends.b.gave_up) == 0);
    for (int i = 0; i < 2; i++) {
        struct rg_conn_statistics statistics;
        rg_conn_get_statistics(in[i].flow.conn, &statistics);
        *taken += in[i].taken;
        *in_place += statistics.bulk_direct_received - in[i].taken;
        rg_conn_unregister(in[i].flow.conn, in[i].ring);
    }
    const unsigned resumed = atomic_load(&ends.a.resumed);
    pair_close(&ends.pair);
    for (int i = 0; i < 2; i++) {
        free(in[i].ring);
        free(in[i].areas);
    }
    return resumed;
}

static void test_cuts_of_advertised(void)
{
    unsigned cuts = 0;
    uint64_t taken = 0, in_place = 0;
    char filters[64];
    CHECK(run_advertised("", 300, &taken, &in_place) == 0);
    CHECK(taken > 0 && in_place > 0);
    taken = in_place = 0;
    for (unsigned seed = 1; seed <= WORK(40); seed++) {
        snprintf(filters, sizeof filters, "fault:cut_every=%u,seed=%u", 300000 + seed * 50000, seed);
        cuts += run_advertised(filters, 200, &taken, &in_place);
    }
    printf("%u links lost; %llu bytes taken from advertised memory, %llu where they were placed\n", cuts,
           (unsigned long long)taken, (unsigned long long)in_place);
    CHECK(cuts > WORK(100) && taken > 0 && in_place > 0);
}

int main(int argc, char **argv)
{
    test_begin();
    if (argc > 1 && strcmp(argv[1], "tls") == 0) {
        ends_security = pair_tls();
        RUN(test_cuts);
        RUN(test_cuts_of_bundles);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "advertised") == 0) {
        RUN(test_cuts_of_advertised);
        return 0;
    }
    RUN(test_cuts);
    RUN(test_cuts_of_bundles);
    RUN(test_cuts_of_rails);
    return 0;
}
