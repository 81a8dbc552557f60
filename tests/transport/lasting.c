/*
 * lasting.c - connections that outlive their carriers: what is sent arrives whole, once and in order, wherever the
 * carriers are cut; what cannot be mended ends; what a peer may not say is refused.
 *
 * Both ends are in this process. The connecting end makes a new carrier through the pair's listener and tells how many
 * messages have arrived; the other accepts it and answers. Cuts are those of filter fault, at random places of both
 * directions, in messages, in bulk data and in the conversation that makes the next carrier.
 */
#include "support.h"

#include "common/clock.h"
#include "transport/lasting_inside.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

static const char address[] = "127.0.0.1:0";

struct end {
    struct rg_listener *listener;
    const char *filters; /* of carriers made again */
    unsigned lanes;      /* they are bundles of so many more */
    bool connects;
    atomic_bool refuses; /* no more carriers */
    atomic_bool waits;   /* none for now */
    atomic_uint lost, resumed, gave_up;
};

struct ends {
    struct pair pair;
    struct end a, b;
};

/* Exchanges the counts. */
static enum rg_status greet(struct rg_conn *conn, uint64_t received, uint64_t *peer_received)
{
    const struct iovec part = {&received, sizeof received};
    struct rg_message message;
    enum rg_status status = rg_conn_send(conn, &part, 1, NULL, 0);
    if (status == RG_OK)
        status = rg_conn_recv(conn, 2000, &message);
    if (status == RG_OK && message.size != sizeof *peer_received)
        status = RG_ERR_PROTOCOL;
    if (status == RG_OK)
        memcpy(peer_received, message.data, sizeof *peer_received);
    return status;
}

static enum rg_status renew(void *user, struct rg_lasting_loss *loss, uint64_t received, struct rg_conn **out,
                            uint64_t *peer_received)
{
    struct end *end = user;
    const struct rg_transport_options options = {.filters = end->filters};
    struct rg_conn *conn;
    if (atomic_load(&end->refuses))
        return RG_ERR_REFUSED;
    if (atomic_load(&end->waits))
        return RG_ERR_UNREACHABLE;
    enum rg_status status = end->connects ? rg_transport_connect(rg_listener_address(end->listener), &options,
                                                                 loss->why, sizeof loss->why, &conn)
                                          : rg_listener_accept(end->listener, 200, &conn);
    if (status != RG_OK)
        return status;
    if (!end->connects) /* one that came and went since */
        for (struct rg_conn *later; rg_listener_accept(end->listener, 0, &later) == RG_OK; conn = later)
            rg_conn_destroy(conn);
    status = greet(conn, received, peer_received);
    if (status == RG_OK && end->lanes) {
        const struct rg_bundle_options bundle = {.lanes = end->lanes, .codecs = rg_codecs_here()};
        CHECK_OK(rg_bundle_wrap(conn, &bundle, &conn));
    }
    if (status == RG_OK)
        *out = conn;
    else
        rg_conn_destroy(conn);
    return status == RG_OK ? RG_OK : RG_ERR_UNREACHABLE;
}

static void report(void *user, enum rg_lasting_event event, const struct rg_lasting_loss *loss)
{
    struct end *end = user;
    if (event == RG_LASTING_GAVE_UP)
        fprintf(stderr, "given up: %s after %.1f s: %s\n", rg_status_string(loss->status),
                (double)(rg_now_ns() - loss->since_ns) / 1e9, loss->why);
    atomic_fetch_add(event == RG_LASTING_LOST      ? &end->lost
                     : event == RG_LASTING_RESUMED ? &end->resumed
                                                   : &end->gave_up,
                     1);
}

static void ends_open_at(struct ends *ends, const char *at, const char *filters, unsigned lanes,
                         uint64_t patience_ns)
{
    memset(ends, 0, sizeof *ends);
    ends->pair = pair_open(at, filters, RG_WAIT_AUTO);
    if (lanes)
        pair_bundle(&ends->pair, "", lanes, RG_COMPRESS_NONE);
    ends->a =
        (struct end){.listener = ends->pair.listener, .filters = filters, .lanes = lanes, .connects = true};
    ends->b = (struct end){.listener = ends->pair.listener, .filters = "", .lanes = lanes};
    struct rg_lasting_options options = {.patience_ns = patience_ns, .renew = renew, .report = report};
    options.user = &ends->a;
    CHECK((ends->pair.a = rg_lasting_create(ends->pair.a, NULL, &options)) != NULL);
    options.user = &ends->b;
    CHECK((ends->pair.b = rg_lasting_create(ends->pair.b, NULL, &options)) != NULL);
    rg_conn_set_read_ahead(ends->pair.a);
    rg_conn_set_read_ahead(ends->pair.b);
}

static void ends_open(struct ends *ends, const char *filters, unsigned lanes, uint64_t patience_ns)
{
    ends_open_at(ends, address, filters, lanes, patience_ns);
}

/* A carrier that shows nothing of its end, as that of RDMA, with rails if there are to be some, and a tether that does. */
static void tethered_open(struct ends *ends, struct pair *tether, const char *filters, unsigned rails,
                          const char *rail_filters, const char *last_filters)
{
    memset(ends, 0, sizeof *ends);
    ends->pair = pair_open("mem:tethered", filters, RG_WAIT_AUTO);
    if (rails)
        pair_rails(&ends->pair, rail_filters, last_filters, rails);
    *tether = pair_open(address, "", RG_WAIT_AUTO);
    ends->a = (struct end){.listener = tether->listener, .filters = "", .connects = true};
    ends->b = (struct end){.listener = tether->listener, .filters = ""};
    struct rg_lasting_options options = {.patience_ns = 60000000000ull, .renew = renew, .report = report};
    options.user = &ends->a;
    CHECK((ends->pair.a = rg_lasting_create(ends->pair.a, tether->a, &options)) != NULL);
    options.user = &ends->b;
    CHECK((ends->pair.b = rg_lasting_create(ends->pair.b, tether->b, &options)) != NULL);
    tether->a = tether->b = NULL;
}

/* --- traffic ------------------------------------------------------------------------------------------------- */

/* The sizes of message n: mostly small, some with much bulk data. */
static void sizes(uint64_t n, size_t *msg, size_t *bulk)
{
    const uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u;
    *msg = 16 + (x >> 33) % 2000;
    *bulk = (x >> 20) % 4 == 0 ? (x >> 22) % 400000 : 0;
    if (n % 61 == 60)
        *msg = 100000;
}

struct flow {
    struct rg_conn *conn;
    uint64_t messages, first_seed;
    unsigned larger; /* bulk data, so many times */
};

/* In turn: memory that is the caller's again at once, and several pieces of memory that are held for a while. */
static void *send_all(void *arg)
{
    enum { BUFFERS = 5 };
    const struct flow *flow = arg;
    unsigned char *msg = malloc(RG_MESSAGE_MAX), *buffers = malloc(BUFFERS * RG_BULK_MAX);
    struct rg_hold holds[BUFFERS] = {0};
    for (uint64_t n = 0, i = 0; n < flow->messages; n++, i = n % BUFFERS) {
        size_t msg_size, bulk_size;
        unsigned char *bulk = buffers + i * RG_BULK_MAX;
        struct rg_hold *hold = i ? &holds[i] : NULL;
        sizes(n, &msg_size, &bulk_size);
        bulk_size *= 1 + flow->larger;
        rg_hold_end(&holds[i]);
        memset(bulk, 0xee, RG_BULK_MAX / 8);
        pattern_fill(msg, msg_size, flow->first_seed + 2 * n);
        pattern_fill(bulk, bulk_size, flow->first_seed + 2 * n + 1);
        const struct iovec part = {msg, msg_size};
        const struct iovec data[2] = {{bulk, bulk_size / 3},
                                      {bulk + bulk_size / 3, bulk_size - bulk_size / 3}};
        if (rg_conn_sends_apart(flow->conn, msg_size, bulk_size)) {
            struct rg_bulk_ticket ticket;
            CHECK_OK(rg_conn_send_head(flow->conn, &part, 1, bulk_size, &ticket));
            memset(msg, 0xee, msg_size);
            ticket.hold = hold;
            CHECK_OK(rg_conn_send_tail(flow->conn, &ticket, data, 2));
        } else {
            CHECK_OK(rg_conn_send_held(flow->conn, hold, 0, 0, &part, 1, data, bulk_size ? 2 : 0));
        }
        memset(msg, 0xee, msg_size); /* the caller's again */
        if (!hold)
            memset(bulk, 0xee, bulk_size);
    }
    for (int i = 0; i < BUFFERS; i++) {
        rg_hold_end(&holds[i]);
        CHECK(rg_hold_ended(&holds[i]));
    }
    free(msg);
    free(buffers);
    return NULL;
}

static void *receive_all(void *arg)
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

/* Traffic both ways at once, with bulk data `larger` times as large again; returns how many carriers were lost. */
static unsigned run_between(struct ends *ends, uint64_t messages, unsigned larger)
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

static unsigned run_traffic(const char *filters, unsigned lanes, uint64_t messages)
{
    struct ends ends;
    ends_open(&ends, filters, lanes, 30000000000ull);
    const unsigned resumed = run_between(&ends, messages, 0);
    pair_close(&ends.pair);
    return resumed;
}

static void test_cuts(void)
{
    unsigned cuts = 0;
    char filters[64];
    for (unsigned seed = 1; seed <= WORK(24); seed++) {
        snprintf(filters, sizeof filters, "fault:cut_every=%u,seed=%u", 300000 + seed * 50000, seed);
        cuts += run_traffic(filters, 0, 150);
    }
    printf("%u carriers lost\n", cuts);
    CHECK(cuts > WORK(100));
}

static void test_cuts_of_bundles(void)
{
    unsigned cuts = 0;
    char filters[64];
    for (unsigned seed = 1; seed <= 8; seed++) { /* a first carrier, whose lanes are never cut, may last */
        snprintf(filters, sizeof filters, "fault:cut_every=900000,seed=%u", 100 + seed);
        cuts += run_traffic(filters, 2, 150);
    }
    printf("%u carriers with lanes lost\n", cuts);
    CHECK(cuts > 8);
}

/* With rails: where the last is lost another carries its part, where the first connection is, the next carrier; and where all
 * rails are, this as well if one was in the middle of something. */
static void test_cuts_of_rails(void)
{
    enum { LAST = 1, ALL = 2, FIRST = 4, KINDS = 8 };
    unsigned lost[KINDS] = {0};
    for (unsigned what = 0; what < KINDS; what++)
        for (unsigned seed = 2; seed <= 3; seed++) {
            struct ends ends;
            struct pair tether;
            char rail[64], first[64];
            snprintf(rail, sizeof rail, "fault:send_lost_at=%u",
                     1 + seed * 3); /* a run: one or two of a message */
            snprintf(first, sizeof first, "fault:cut_every=%u,seed=%u", 100000 + seed * 300000, seed);
            tethered_open(&ends, &tether, what & FIRST ? first : "", 2, what & ALL ? rail : "",
                          what & (LAST | ALL) ? rail : "");
            lost[what] += run_between(&ends, 50, 5);
            pair_close(&ends.pair);
            rg_listener_destroy(tether.listener);
        }
    printf("carriers lost: %u with a rail that was, %u with all rails, %u with the first, %u with all\n",
           lost[LAST], lost[ALL], lost[FIRST], lost[FIRST | ALL]);
    CHECK(!lost[0] && !lost[LAST] && lost[FIRST] && lost[FIRST | LAST] && lost[FIRST | ALL]);
}

static void test_no_cut(void)
{
    CHECK(run_traffic("", 0, 300) == 0);
    CHECK(run_traffic("delay:oneway=1ms", 0, 100) == 0);
}

/* --- lent memory --------------------------------------------------------------------------------------------- */

enum { CHUNK = 32 << 10, CHUNKS = 16, AREA = 100 << 10, AREAS = 4, UNTAGGED = 3, AHEAD = 8 };

/* What message n carries: for UNTAGGED out of four to whatever is lent, else to the area of its tag. */
static size_t lent_size(uint64_t n)
{
    const uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u;
    return n % 4 < UNTAGGED ? 1 + (x >> 20) % (5 * CHUNK) : 1 + (x >> 20) % AREA;
}

static uint64_t tag_of(uint64_t n)
{
    return n % 4 < UNTAGGED ? 0 : n;
}

struct lent_receiver {
    struct flow flow;
    unsigned char *ring, *areas;
    uint64_t epoch;
    bool away[CHUNKS];
    size_t taken;           /* bytes that were found in lent memory without a tag */
    atomic_uint *busy;      /* receivers that wait for something */
    atomic_ullong received; /* messages */
};

struct lent_sender {
    struct flow flow;
    struct lent_receiver *to;
};

static void *send_lent(void *arg)
{
    const struct lent_sender *s = arg;
    const struct flow *flow = &s->flow;
    unsigned char *bulk = malloc(5 * CHUNK);
    for (uint64_t n = 0; n < flow->messages; n++) {
        while (n > atomic_load(&s->to->received) + AHEAD) /* else it would be sent before its area is lent */
            poll(NULL, 0, 1);
        const struct iovec part = {&n, sizeof n}, data = {bulk, lent_size(n)};
        pattern_fill(bulk, data.iov_len, flow->first_seed + n);
        CHECK_OK(rg_conn_send_to(flow->conn, tag_of(n), 0, &part, 1, &data, 1));
        memset(bulk, 0xee, data.iov_len);
    }
    free(bulk);
    return NULL;
}

static unsigned char *area_of(const struct lent_receiver *r, uint64_t tag)
{
    return r->areas + tag / 4 % AREAS * AREA;
}

/* Lends the chunks that are here; after a loss all are, and the areas of tags from `next` on are lent no more. */
static void lend_all(struct lent_receiver *r, uint64_t next)
{
    struct rg_lasting *inside = (struct rg_lasting *)(void *)r->flow.conn;
    pthread_mutex_lock(&inside->lock);
    const bool new = inside->state == RG_LASTING_UP && inside->epoch != r->epoch;
    if (new)
        r->epoch = inside->epoch;
    pthread_mutex_unlock(&inside->lock);
    if (new) {
        memset(r->away, 0, sizeof r->away);
        (void)rg_conn_register(r->flow.conn, r->ring, CHUNKS * CHUNK);
        for (uint64_t tag = next | 3; tag < (next | 3) + 4 * (AREAS - 1); tag += 4)
            (void)rg_conn_lend(r->flow.conn, tag, 0, area_of(r, tag), AREA);
    }
    for (int i = 0; i < CHUNKS; i++)
        if (!r->away[i])
            r->away[i] = rg_conn_lend(r->flow.conn, 0, 0, r->ring + i * CHUNK, CHUNK) == RG_OK;
}

/* What has been given back is ours, and stays as it is until it is lent again: for the tag after those that are lent now. */
static void next_area(struct lent_receiver *r, uint64_t n)
{
    unsigned char *done = area_of(r, n), *before = area_of(r, n + 4 * (AREAS - 1));
    rg_conn_unlend(r->flow.conn, n, done);
    memset(done, 0xaa, AREA);
    for (size_t at = 0; at < AREA && n >= 4; at++)
        CHECK(before[at] == 0xaa);
    memset(before, 0xcc, AREA);
    (void)rg_conn_lend(r->flow.conn, n + 4 * (AREAS - 1), 0, before, AREA);
}

static void *receive_lent(void *arg)
{
    struct lent_receiver *r = arg;
    unsigned char *own = malloc(5 * CHUNK);
    for (uint64_t n = 0; n < r->flow.messages; n++) {
        struct rg_message message;
        lend_all(r, n);
        CHECK_OK(rg_conn_recv(r->flow.conn, -1, &message));
        CHECK(message.size == sizeof n && memcmp(message.data, &n, sizeof n) == 0);
        const size_t size = message.bulk_size;
        unsigned char *to = tag_of(n) ? area_of(r, n) : own;
        CHECK(size == lent_size(n));
        for (size_t at = 0, piece; at < size; at += piece) {
            void *memory;
            CHECK_OK(rg_conn_take_lent(r->flow.conn, size - at, &memory, &piece));
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
    while (atomic_load(r->busy)) { /* carriers without a descriptor are lost when somebody is inside */
        struct rg_message none;
        CHECK_STATUS(rg_conn_recv(r->flow.conn, 10, &none), RG_ERR_TIMEOUT);
    }
    free(own);
    return NULL;
}

/*
 * Carriers that place data in lent memory: what has been placed in part comes again, and what was given back stays as it is.
 * Adds what was taken from memory without a tag, and what was received where it had been placed.
 */
static unsigned run_lent(const char *filters, uint64_t messages, uint64_t *taken, uint64_t *in_place)
{
    struct ends ends;
    ends_open_at(&ends, "mem:lent", filters, 0, 30000000000ull);
    CHECK(rg_conn_caps(ends.pair.a) & rg_conn_caps(ends.pair.b) & RG_CAP_LENDS);
    atomic_uint busy = 2;
    struct lent_receiver in[2] = {{.flow = {ends.pair.b, messages, 1000, 0}, .busy = &busy},
                                  {.flow = {ends.pair.a, messages, 900000, 0}, .busy = &busy}};
    struct lent_sender out[2] = {{{ends.pair.a, messages, 1000, 0}, &in[0]},
                                 {{ends.pair.b, messages, 900000, 0}, &in[1]}};
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) {
        in[i].ring = malloc(CHUNKS * CHUNK);
        in[i].areas = malloc(AREAS * AREA);
        memset(in[i].areas, 0xaa, AREAS * AREA);
        CHECK(pthread_create(&threads[i], NULL, send_lent, &out[i]) == 0);
        CHECK(pthread_create(&threads[2 + i], NULL, receive_lent, &in[i]) == 0);
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

static void test_cuts_of_lent(void)
{
    unsigned cuts = 0;
    uint64_t taken = 0, in_place = 0;
    char filters[64];
    CHECK(run_lent("", 300, &taken, &in_place) == 0);
    CHECK(taken > 0 && in_place > 0);
    taken = in_place = 0;
    for (unsigned seed = 1; seed <= WORK(40); seed++) {
        snprintf(filters, sizeof filters, "fault:cut_every=%u,seed=%u", 300000 + seed * 50000, seed);
        cuts += run_lent(filters, 200, &taken, &in_place);
    }
    printf("%u carriers lost; %llu bytes taken from lent memory, %llu where they were placed\n", cuts,
           (unsigned long long)taken, (unsigned long long)in_place);
    CHECK(cuts > WORK(100) && taken > 0 && in_place > 0);
}

/* --- states ---------------------------------------------------------------------------------------------------- */

/* An idle connection that is lost is mended without anybody calling. */
static void test_idle(void)
{
    struct ends ends;
    ends_open(&ends, "", 0, 30000000000ull);
    expect_good(ends.pair.a, ends.pair.b);
    for (unsigned i = 1; i <= 3; i++) {
        rg_lasting_drop(i % 2 ? ends.pair.a : ends.pair.b);
        while (atomic_load(&ends.a.resumed) < i || atomic_load(&ends.b.resumed) < i)
            poll(NULL, 0, 1);
        expect_good(ends.pair.a, ends.pair.b);
    }
    pair_close(&ends.pair);
}

/* One that only sends finds its acknowledgements by itself: what is kept stays little. */
static void test_sender_alone(void)
{
    struct ends ends;
    ends_open(&ends, "", 0, 30000000000ull);
    struct flow out = {ends.pair.a, 2000, 1, 0}, in = {ends.pair.b, 2000, 1, 0};
    pthread_t receiver;
    CHECK(pthread_create(&receiver, NULL, receive_all, &in) == 0);
    send_all(&out);
    CHECK(pthread_join(receiver, NULL) == 0);
    expect_good(ends.pair.a, ends.pair.b);
    pair_close(&ends.pair);
}

/* No new carrier: calls that wait return when the patience has ended, and the connection is over. */
static void test_patience(void)
{
    struct ends ends;
    struct rg_message message;
    ends_open(&ends, "", 0, 300000000ull);
    rg_listener_interrupt(ends.pair.listener);
    rg_listener_destroy(ends.pair.listener);
    struct rg_listener *none;
    const struct rg_transport_options plain = {.filters = ""};
    CHECK_OK(rg_transport_listen("127.0.0.1:0", &plain, NULL, 0, &none));
    ends.pair.listener = none;
    ends.a.listener = none; /* connects to it, and nobody answers */
    atomic_store(&ends.b.refuses, true);
    const uint64_t since = rg_now_ns();
    rg_lasting_drop(ends.pair.a);
    CHECK(rg_conn_recv(ends.pair.a, -1, &message) != RG_OK);
    CHECK(rg_now_ns() - since >= 250000000ull);
    CHECK(send_bytes(ends.pair.a, "x", 1, NULL, 0) != RG_OK);
    CHECK(atomic_load(&ends.a.gave_up) == 1);
    pair_close(&ends.pair);
}

/* Refused: at once. Final, or left by the peer: also, where there is something to read before, and where a send fails first. */
static void test_ends(void)
{
    for (int round = 0; round < 1000; round++) { /* at the end both threads look at what failed: the last way many times */
        const int how = round < 4 ? round : 4;
        struct ends ends;
        struct rg_message message;
        ends_open(&ends, "", 0, 60000000000ull);
        expect_good(ends.pair.a, ends.pair.b);
        const uint64_t since = rg_now_ns();
        if (how == 0) {
            atomic_store(&ends.a.refuses, true);
            rg_lasting_drop(ends.pair.a);
        } else if (how == 1) {
            rg_lasting_set_final(ends.pair.a);
            rg_conn_interrupt(ends.pair.b);
        } else {
            if (how > 2)
                CHECK_OK(send_bytes(ends.pair.b, "x", 1, NULL, 0));
            rg_lasting_leave(ends.pair.b);
            rg_conn_interrupt(ends.pair.b);
            while (how > 3 && send_bytes(ends.pair.a, "x", 1, NULL, 0) == RG_OK)
                ;
            if (how == 3)
                poll(NULL, 0, 100); /* for the mender, who finds the end before anybody reads */
        }
        while (rg_conn_recv(ends.pair.a, -1, &message) == RG_OK)
            ;
        CHECK(rg_now_ns() - since < 20000000000ull);
        CHECK(atomic_load(&ends.a.resumed) == 0);
        pair_close(&ends.pair);
    }
}

/* --- beside a tether: carriers as those over RDMA, which have no descriptor and know no end but a loss --- */

struct blunt {
    struct rg_conn head;
    struct rg_conn *next;
    atomic_bool has_credit;
};

static bool blunt_has_credit(struct rg_conn *conn)
{
    return atomic_load(&((struct blunt *)conn)->has_credit);
}

static enum rg_status blunt_send(struct rg_conn *conn, const struct rg_outgoing *message)
{
    return rg_conn_send(((struct blunt *)conn)->next, message->msg, message->n_msg, message->bulk,
                        message->n_bulk);
}

static enum rg_status blunt_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    const enum rg_status status = rg_conn_recv(((struct blunt *)conn)->next, timeout_ms, out);
    return status == RG_ERR_CLOSED ? RG_ERR_LOST : status;
}

static enum rg_status blunt_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    return rg_conn_recv_bulk(((struct blunt *)conn)->next, buffer, size);
}

static void blunt_interrupt(struct rg_conn *conn)
{
    rg_conn_interrupt(((struct blunt *)conn)->next);
}

static void blunt_destroy(struct rg_conn *conn)
{
    rg_conn_destroy(((struct blunt *)conn)->next);
}

static struct rg_transport_ops blunt_ops = {.name = "blunt",
                                            .send = blunt_send,
                                            .recv = blunt_recv,
                                            .recv_bulk = blunt_recv_bulk,
                                            .has_credit = blunt_has_credit,
                                            .interrupt = blunt_interrupt,
                                            .destroy = blunt_destroy};

struct leaver {
    struct rg_conn *conn, *tether;
    int between_ms; /* the two ends */
};

/* Says that it leaves, and is gone, as a program that exits. */
static void *leave_soon(void *arg)
{
    const struct leaver *leaver = arg;
    const struct rg_lasting_header header = {.kind = RG_LASTING_LEAVE};
    poll(NULL, 0, 50);
    CHECK_OK(send_bytes(leaver->conn, &header, sizeof header, NULL, 0));
    rg_conn_destroy(leaver->conn);
    poll(NULL, 0, leaver->between_ms);
    rg_conn_destroy(leaver->tether);
    return NULL;
}

/* The peer has left, and its machine has ended the tether: nobody waits for it to come back. */
static void test_left_with_tether(void)
{
    for (int between_ms = 0; between_ms <= 100; between_ms += 50) {
        struct pair pair = pair_open("mem:lasting", "", RG_WAIT_AUTO);
        struct pair tethers = pair_open(address, "", RG_WAIT_AUTO);
        struct blunt blunt = {.head.ops = &blunt_ops, .next = pair.b};
        struct end end = {.waits = true};
        const struct rg_lasting_options options = {
            .user = &end, .patience_ns = 3000000000ull, .renew = renew, .report = report};
        struct rg_conn *conn = rg_lasting_create(&blunt.head, tethers.b, &options);
        struct leaver leaver = {pair.a, tethers.a, between_ms};
        struct rg_message message;
        pthread_t thread;
        CHECK(conn && pthread_create(&thread, NULL, leave_soon, &leaver) == 0);
        CHECK_STATUS(rg_conn_recv(conn, -1, &message), RG_ERR_CLOSED);
        CHECK(atomic_load(&end.lost) == 0 && atomic_load(&end.gave_up) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        rg_conn_destroy(conn);
        rg_listener_destroy(pair.listener);
        rg_listener_destroy(tethers.listener);
    }
}

/* Ends the tether or the carrier of a connection, as the end of its process does. */
static void end_inside(struct rg_conn *conn, bool tether)
{
    struct rg_lasting *inside = (struct rg_lasting *)(void *)conn;
    pthread_mutex_lock(&inside->lock);
    struct rg_conn *ended = tether ? inside->tether : inside->carrier;
    CHECK(ended);
    rg_conn_interrupt(ended);
    pthread_mutex_unlock(&inside->lock);
}

static void *receive_end(void *conn)
{
    struct rg_message message;
    CHECK_STATUS(rg_conn_recv(conn, -1, &message), RG_ERR_CLOSED);
    return NULL;
}

/*
 * Who says that it leaves and whose tether then ends is not waited for, though nothing is seen of the carrier's end:
 * whether somebody receives or nobody. Without the word it is waited for: it may come back.
 */
static void test_tethered_ends(void)
{
    enum { ALONE, RECEIVING, WITHOUT_A_WORD, ROUNDS };
    for (int round = 0; round < ROUNDS; round++) {
        struct ends ends;
        struct pair tether;
        pthread_t receiver;
        tethered_open(&ends, &tether, "", 0, "", "");
        expect_good(ends.pair.a, ends.pair.b);
        atomic_store(&ends.a.refuses, true); /* it does not come back, whatever happens */
        if (round == RECEIVING)
            CHECK(pthread_create(&receiver, NULL, receive_end, ends.pair.b) == 0);
        if (round != WITHOUT_A_WORD)
            rg_lasting_leave(ends.pair.a);
        end_inside(ends.pair.a, true);
        if (round == WITHOUT_A_WORD) {
            struct rg_message message;
            while (!atomic_load(&ends.b.lost))
                poll(NULL, 0, 1);
            CHECK_STATUS(rg_conn_recv(ends.pair.b, 0, &message), RG_ERR_TIMEOUT);
            rg_conn_interrupt(ends.pair.b);
        } else if (round == RECEIVING) {
            CHECK(pthread_join(receiver, NULL) == 0);
        } else {
            (void)receive_end(ends.pair.b);
        }
        CHECK(atomic_load(&ends.b.gave_up) == 0 && atomic_load(&ends.b.lost) == (round == WITHOUT_A_WORD));
        pair_close(&ends.pair);
        rg_listener_destroy(tether.listener);
    }
}

/* Who has said so and loses the carrier all the same goes on, and says it again: then its end by the new one is known as meant. */
static void test_leaves_again(void)
{
    struct ends ends;
    struct pair tether;
    struct rg_message message;
    tethered_open(&ends, &tether, "", 0, "", "");
    rg_lasting_leave(ends.pair.a);
    rg_lasting_drop(ends.pair.b);
    while (!atomic_load(&ends.a.resumed) || !atomic_load(&ends.b.resumed))
        poll(NULL, 0, 1);
    CHECK_OK(send_bytes(ends.pair.a, "x", 1, NULL, 0));
    CHECK_OK(rg_conn_recv(ends.pair.b, -1, &message));
    atomic_store(&ends.a.refuses, true);
    end_inside(ends.pair.a, false);
    CHECK(rg_conn_recv(ends.pair.b, -1, &message) != RG_OK);
    CHECK(atomic_load(&ends.b.lost) == 0 && atomic_load(&ends.b.gave_up) == 0);
    pair_close(&ends.pair);
    rg_listener_destroy(tether.listener);
}

/* Nobody here waits until the peer takes an acknowledgement; it is sent once that can be done at once. */
static void test_acknowledges_with_credit(void)
{
    enum { BULK = 100000, MESSAGES = 10 };
    struct pair pair = pair_open("mem:lasting", "", RG_WAIT_AUTO);
    struct blunt blunt = {.head.ops = &blunt_ops, .next = pair.b};
    struct end end = {.waits = true};
    const struct rg_lasting_options options = {
        .user = &end, .patience_ns = 3000000000ull, .renew = renew, .report = report};
    struct rg_conn *conn = rg_lasting_create(&blunt.head, NULL, &options);
    const struct rg_lasting_header header = {.kind = RG_LASTING_DATA};
    struct rg_lasting_header ack;
    struct rg_message message;
    unsigned char *bulk = calloc(1, BULK);
    CHECK(conn && bulk);
    for (int i = 0; i < MESSAGES; i++) {
        CHECK_OK(send_bytes(pair.a, &header, sizeof header, bulk, BULK));
        CHECK_OK(rg_conn_recv(conn, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(conn, bulk, BULK));
        CHECK_STATUS(rg_conn_recv(pair.a, 50, &message), RG_ERR_TIMEOUT);
    }
    atomic_store(&blunt.has_credit, true);
    CHECK_OK(rg_conn_recv(pair.a, -1, &message));
    CHECK(message.size == sizeof ack);
    memcpy(&ack, message.data, sizeof ack);
    CHECK(ack.kind == RG_LASTING_ACK && ack.received == MESSAGES);
    rg_conn_destroy(conn);
    rg_conn_destroy(pair.a);
    rg_listener_destroy(pair.listener);
    free(bulk);
}

/* Waits in both calls end with an interrupt, also between two carriers. */
static void *interrupt_soon(void *conn)
{
    poll(NULL, 0, 50);
    rg_conn_interrupt(conn);
    return NULL;
}

static void test_interrupt(void)
{
    struct ends ends;
    struct rg_message message;
    pthread_t thread;
    ends_open(&ends, "", 0, 60000000000ull);
    rg_listener_interrupt(ends.pair.listener); /* no carrier is accepted any more */
    rg_lasting_drop(ends.pair.a);
    CHECK(pthread_create(&thread, NULL, interrupt_soon, ends.pair.a) == 0);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, -1, &message), RG_ERR_CLOSED);
    CHECK_STATUS(send_bytes(ends.pair.a, "x", 1, NULL, 0), RG_ERR_CLOSED);
    CHECK(pthread_join(thread, NULL) == 0);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* Timeouts hold while there is no carrier. */
static void test_timeouts(void)
{
    struct ends ends;
    struct rg_message message;
    ends_open(&ends, "", 0, 60000000000ull);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 20, &message), RG_ERR_TIMEOUT);
    rg_listener_interrupt(ends.pair.listener);
    rg_lasting_drop(ends.pair.a);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 20, &message), RG_ERR_TIMEOUT);
    rg_conn_interrupt(ends.pair.a);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* --- a hostile peer -------------------------------------------------------------------------------------------- */

static void test_violations(void)
{
    const struct rg_lasting_header bad[] = {
        {.kind = RG_LASTING_DATA, .received = 1}, /* nothing was sent */
        {.kind = RG_LASTING_DATA, .reserved = 1}, /* not known */
        {.kind = 77},                             /* not known */
        {.kind = RG_LASTING_ACK, .received = 1u << 31},
    };
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        struct end end = {.listener = pair.listener, .filters = "", .connects = true};
        const struct rg_lasting_options options = {
            .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
        struct rg_message message;
        CHECK((pair.a = rg_lasting_create(pair.a, NULL, &options)) != NULL);
        if (i < sizeof bad / sizeof *bad)
            CHECK_OK(send_bytes(pair.b, &bad[i], sizeof bad[i], NULL, 0));
        else
            CHECK_OK(send_bytes(pair.b, "short", 5, NULL, 0));
        CHECK_STATUS(rg_conn_recv(pair.a, -1, &message), RG_ERR_PROTOCOL);
        CHECK_STATUS(send_bytes(pair.a, "x", 1, NULL, 0), RG_ERR_PROTOCOL);
        pair_close(&pair);
    }
}

/* A peer that reads and never says so: what is kept for it takes no more memory than it may, however small the messages. */
static void test_never_acknowledged(void)
{
    struct pair pair = pair_open("mem:lasting", "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_lasting_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    struct rg_message message;
    pair.a->caps |= RG_CAP_DELIVERS;
    CHECK((pair.a = rg_lasting_create(pair.a, NULL, &options)) != NULL);
    CHECK(!(rg_conn_caps(pair.a) & RG_CAP_DELIVERS)); /* what it does not pass on */
    const struct rg_lasting *inside = (const struct rg_lasting *)(const void *)pair.a;
    const long long before = (long long)mallinfo2().uordblks; /* with a sanitizer's allocator: 0 */
    for (unsigned i = 0; i < 20000; i++) {
        CHECK_OK(send_bytes(pair.a, "0123456789", 10, NULL, 0));
        CHECK_OK(rg_conn_recv(pair.b, -1, &message));
    }
    CHECK((long long)inside->kept_bytes >= (long long)mallinfo2().uordblks - before - (1 << 20));
    pair_close(&pair);
}

/* --- held memory --------------------------------------------------------------------------------------------------- */

enum { HELD = 200000 };

static uint64_t bytes_kept(const struct rg_conn *conn)
{
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(conn, &statistics);
    return statistics.bulk_kept;
}

static enum rg_status send_held(struct rg_conn *conn, unsigned char *bulk, uint64_t seed,
                                struct rg_hold *hold)
{
    unsigned char msg[16];
    const struct iovec part = {msg, sizeof msg};
    const struct iovec data[2] = {{bulk, HELD / 2}, {bulk + HELD / 2, HELD - HELD / 2}};
    pattern_fill(msg, sizeof msg, seed);
    pattern_fill(bulk, HELD, seed + 1);
    return rg_conn_send_held(conn, hold, 0, 0, &part, 1, data, 2);
}

/* What is held is copied when its end comes before the acknowledgement, and then alone; nothing is with it. */
static void test_held_until_acknowledged(void)
{
    static unsigned char bulk[3 * HELD];
    struct pair pair = pair_open("mem:held", "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_lasting_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    struct rg_hold holds[3] = {0};
    struct rg_message message;
    CHECK((pair.a = rg_lasting_create(pair.a, NULL, &options)) != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(rg_hold_ended(&holds[i]));
        CHECK_OK(send_held(pair.a, bulk + i * HELD, 2 * (unsigned)i, &holds[i]));
        CHECK(!rg_hold_ended(&holds[i]));
        CHECK_OK(rg_conn_recv(pair.b, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(pair.b, NULL, HELD));
    }
    const struct rg_lasting_header ack = {.kind = RG_LASTING_ACK, .received = 2};
    CHECK_OK(send_bytes(pair.b, &ack, sizeof ack, NULL, 0));
    CHECK_STATUS(rg_conn_recv(pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK(rg_hold_ended(&holds[0]) && rg_hold_ended(&holds[1]) && !rg_hold_ended(&holds[2]));
    rg_hold_end(&holds[0]);
    rg_hold_end(&holds[1]);
    CHECK(bytes_kept(pair.a) == 0);
    rg_hold_end(&holds[2]);
    CHECK(rg_hold_ended(&holds[2]) && bytes_kept(pair.a) == HELD);
    CHECK_OK(send_bytes(pair.a, "x", 1, bulk, HELD)); /* what nobody holds */
    CHECK(bytes_kept(pair.a) == 2 * HELD);
    pair_close(&pair);
}

/* What is sent again comes from where it is held, and where it is held no more from the copy. */
static void test_held_and_sent_again(void)
{
    unsigned char *bulk = malloc(HELD);
    for (int round = 0; round < 3; round++) {
        struct ends ends;
        struct rg_hold hold = {0};
        ends_open(&ends, "", 0, 30000000000ull);
        atomic_store(&ends.a.waits, true);
        CHECK_OK(send_held(ends.pair.a, bulk, 77, round == 2 ? &rg_hold_until_told : &hold));
        rg_lasting_drop(ends.pair.a);
        CHECK(bytes_kept(ends.pair.a) == 0);
        if (round == 1)
            rg_hold_end(&hold);
        else if (round == 2)
            rg_conn_unregister(ends.pair.a, bulk);
        if (round)
            memset(bulk, 0xee, HELD);
        CHECK(bytes_kept(ends.pair.a) == (round ? HELD : 0));
        atomic_store(&ends.a.waits, false);
        expect_pattern(ends.pair.b, 16, HELD, 77);
        rg_hold_end(&hold);
        expect_good(ends.pair.a, ends.pair.b);
        pair_close(&ends.pair);
    }
    free(bulk);
}

/* Held memory that is not there any more when it is needed: the connection ends. Nothing is made up. */
static void test_held_and_gone(void)
{
    unsigned char *bulk = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bulk != MAP_FAILED);
    struct ends ends;
    struct rg_message message;
    ends_open(&ends, "", 0, 30000000000ull);
    atomic_store(&ends.a.waits, true);
    CHECK_OK(send_held(ends.pair.a, bulk, 77, &rg_hold_until_told));
    rg_lasting_drop(ends.pair.a);
    CHECK(munmap(bulk, 1 << 20) == 0);
    atomic_store(&ends.a.waits, false);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, -1, &message), RG_ERR_LOST);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* A message that could not be sent with what is added to it is refused, and nothing happened. */
static void test_too_large(void)
{
    struct ends ends;
    ends_open(&ends, "", 0, 60000000000ull);
    static unsigned char data[RG_MESSAGE_MAX];
    CHECK_STATUS(send_bytes(ends.pair.a, data, sizeof data, NULL, 0), RG_ERR_INVALID);
    CHECK_OK(send_bytes(ends.pair.a, data, sizeof data - RG_LASTING_HEADER, NULL, 0));
    struct rg_message message;
    CHECK_OK(rg_conn_recv(ends.pair.b, -1, &message));
    CHECK(message.size == sizeof data - RG_LASTING_HEADER);
    pair_close(&ends.pair);
}

#define RUN(test) (printf("%s\n", #test), fflush(stdout), test())

/* With `cuts`: the cuts at random places alone. */
int main(int argc, char **argv)
{
    test_begin(300);
    if (argc > 1 && strcmp(argv[1], "cuts") == 0) {
        RUN(test_cuts);
        RUN(test_cuts_of_bundles);
        RUN(test_cuts_of_lent);
        RUN(test_cuts_of_rails);
        return 0;
    }
    RUN(test_no_cut);
    RUN(test_idle);
    RUN(test_sender_alone);
    RUN(test_timeouts);
    RUN(test_interrupt);
    RUN(test_patience);
    RUN(test_ends);
    rg_transport_complete(&blunt_ops, true);
    RUN(test_left_with_tether);
    RUN(test_acknowledges_with_credit);
    RUN(test_tethered_ends);
    RUN(test_leaves_again);
    RUN(test_violations);
    RUN(test_never_acknowledged);
    RUN(test_held_until_acknowledged);
    RUN(test_held_and_sent_again);
    RUN(test_held_and_gone);
    RUN(test_too_large);
    return 0;
}
