/*
 * bundle.c - bulk data on connections of its own: what a hostile or broken peer may try with it, connections that die or
 * are slow, order between threads, further connections opened when they help, what is compressed and what is not.
 *
 * What all transports do alike is in conformance.c (bundle+tcp and others).
 */
#include "support.h"

#include "common/clock.h"
#include "transport/bundle/join.h"
#include "transport/bundle/press.h"
#include "transport/bundle/wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

static const char address[] = "127.0.0.1:0";

/* One end is a bundle, of the other there are the bare connections. */
struct bare {
    struct pair pair; /* a: the bundle; b: the peer's first connection */
    struct rg_conn *lanes[4];
    unsigned n;
};

static struct bare bare_open(unsigned lanes)
{
    struct bare bare = {.pair = pair_open(address, "", RG_WAIT_AUTO), .n = lanes};
    const struct rg_bundle_options options = {.lanes = 4, .codecs = rg_codecs_here()};
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    CHECK_OK(rg_bundle_wrap(bare.pair.a, &options, &bare.pair.a));
    for (unsigned i = 0; i < lanes; i++) {
        struct rg_conn *ours;
        CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &ours));
        CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &bare.lanes[i]));
        CHECK_OK(rg_bundle_add(bare.pair.a, ours));
    }
    return bare;
}

static void bare_close(struct bare *bare)
{
    for (unsigned i = 0; i < bare->n; i++)
        rg_conn_destroy(bare->lanes[i]);
    pair_close(&bare->pair);
}

static const char text[16] = "\xff\xff what follows";

static struct rg_apart announcement(uint32_t bulk_size, uint64_t number, uint64_t route)
{
    return (struct rg_apart){.kind = RG_MESSAGE_APART,
                             .version = RG_PROTOCOL_MAJOR,
                             .bulk_size = bulk_size,
                             .number = number,
                             .route = route};
}

static void announce(struct bare *bare, struct rg_apart apart)
{
    const struct iovec parts[2] = {{&apart, sizeof apart}, {(void *)(uintptr_t)text, sizeof text}};
    CHECK_OK(rg_conn_send(bare->pair.b, parts, 2, NULL, 0));
}

static void send_piece(struct rg_conn *lane, struct rg_piece piece, const void *data, size_t size)
{
    CHECK_OK(send_bytes(lane, &piece, sizeof piece, data, size));
}

static struct rg_piece piece_of(uint64_t number, unsigned index, unsigned codec)
{
    return (struct rg_piece){.kind = RG_MESSAGE_PIECE,
                             .version = RG_PROTOCOL_MAJOR,
                             .index = (uint16_t)index,
                             .codec = (uint16_t)codec,
                             .number = number};
}

/* --- announcements ------------------------------------------------------------------------------------------------ */

static void refused(struct rg_apart apart, const char *what)
{
    struct bare bare = bare_open(1);
    struct rg_message m;
    announce(&bare, apart);
    if (rg_conn_recv(bare.pair.a, 5000, &m) != RG_ERR_PROTOCOL ||
        rg_conn_recv(bare.pair.a, 0, &m) != RG_ERR_PROTOCOL) {
        fprintf(stderr, "not refused: %s\n", what);
        abort();
    }
    bare_close(&bare);
}

static void test_bad_announcements(void)
{
    struct rg_apart apart = announcement(300000, 1, 0);
    refused(announcement(0, 1, 0), "no bulk data");
    refused(announcement(RG_BULK_MAX + 1, 1, 0), "more than the limit");
    refused(announcement(UINT32_MAX, 1, 0), "much more than the limit");
    refused(announcement(300000, 0, 0), "number 0");
    refused(announcement(300000, 2, 0), "a number left out");
    refused(announcement(300000, 1, 4), "a lane that cannot be");
    refused(announcement(300000, 1, 0x100), "a lane for a piece that is not");
    apart.version++;
    refused(apart, "another version");
    apart = announcement(300000, 1, 0);
    apart.reserved[6] = 1;
    refused(apart, "reserved bytes in use");

    struct bare bare = bare_open(1);
    struct rg_message m;
    apart = announcement(300000, 1, 0);
    CHECK_OK(send_bytes(bare.pair.b, &apart, sizeof apart - 1, NULL, 0));
    CHECK_STATUS(rg_conn_recv(bare.pair.a, 5000, &m), RG_ERR_PROTOCOL);
    bare_close(&bare);
    bare = bare_open(1);
    CHECK_OK(send_bytes(bare.pair.b, &apart, sizeof apart, "bulk", 4));
    CHECK_STATUS(rg_conn_recv(bare.pair.a, 5000, &m), RG_ERR_PROTOCOL);
    bare_close(&bare);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static unsigned char data[2 * RG_PIECE], into[2 * RG_PIECE];

/* Message 1 of RG_PIECE + 1000 bytes by lane 0; then this in place of its first piece. */
static void bad_piece(struct rg_piece piece, size_t size, const char *what)
{
    struct bare bare = bare_open(1);
    struct rg_message m;
    announce(&bare, announcement(RG_PIECE + 1000, 1, 0));
    send_piece(bare.lanes[0], piece, data, size);
    CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
    CHECK(m.size == sizeof text && memcmp(m.data, text, sizeof text) == 0 && m.bulk_size == RG_PIECE + 1000);
    memset(into, 0x55, sizeof into);
    if (rg_conn_recv_bulk(bare.pair.a, into, RG_PIECE) != RG_ERR_PROTOCOL) {
        fprintf(stderr, "not refused: %s\n", what);
        abort();
    }
    CHECK_STATUS(rg_conn_recv_bulk(bare.pair.a, into, 1000), RG_ERR_PROTOCOL);
    for (size_t i = RG_PIECE; i < sizeof into; i++)
        CHECK(into[i] == 0x55); /* nothing beyond what was asked for */
    /* the connection has ended for its sender too, and for the peer */
    CHECK(send_pattern(bare.pair.a, 40, RG_BULK_MAX, 1) != RG_OK);
    bare_close(&bare);
}

static void test_bad_pieces(void)
{
    struct rg_piece piece = piece_of(1, 0, RG_COMPRESS_NONE);
    memset(data, 7, sizeof data);
    bad_piece(piece_of(2, 0, 0), RG_PIECE, "of another message");
    bad_piece(piece_of(1, 1, 0), 1000, "another piece");
    bad_piece(piece_of(1, 0, 0), RG_PIECE - 1, "too short");
    bad_piece(piece_of(1, 0, 0), RG_PIECE + 1, "too long");
    bad_piece(piece_of(1, 0, 0), 0, "empty");
    bad_piece(piece_of(1, 0, RG_COMPRESS_AUTO), 100, "an unknown codec");
    bad_piece(piece_of(1, 0, 0xffff), 100, "no codec");
    piece.version++;
    bad_piece(piece, RG_PIECE, "another version");
    piece = piece_of(1, 0, 0);
    piece.kind = RG_MESSAGE_BATCH;
    bad_piece(piece, RG_PIECE, "another kind");
    for (unsigned codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++) {
        bad_piece(piece_of(1, 0, codec), 500, "what does not unpack");
        bad_piece(piece_of(1, 0, codec), 0, "nothing to unpack");
        bad_piece(piece_of(1, 0, codec), RG_PIECE, "compressed and not smaller");
        bad_piece(piece_of(1, 0, codec), RG_PIECE + 5000, "compressed and larger");
    }
}

/* What unpacks to more, or less, than was promised. */
static void test_lying_sizes(void)
{
    enum { ROOM = RG_PIECE };
    static unsigned char packed[ROOM], zeros[16 * RG_PIECE];
    for (enum rg_compression codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++) {
        if (!rg_codec_available(codec))
            continue;
        static const size_t lies[] = {RG_PIECE + 1, RG_PIECE - 1, 16 * RG_PIECE, 1000};
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            const size_t size = rg_codec_pack(codec, packed, sizeof packed, zeros, lies[i]);
            CHECK(size && size < RG_PIECE);
            memcpy(data, packed, size);
            bad_piece(piece_of(1, 0, codec), size, "a size that is a lie");
        }
    }
}

static void test_not_a_piece(void)
{
    struct bare bare = bare_open(1);
    struct rg_message m;
    announce(&bare, announcement(RG_PIECE, 1, 0));
    CHECK_OK(send_bytes(bare.lanes[0], "x", 1, data, RG_PIECE));
    CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
    CHECK_STATUS(rg_conn_recv_bulk(bare.pair.a, NULL, RG_PIECE), RG_ERR_PROTOCOL);
    bare_close(&bare);
}

/* --- connections that die ------------------------------------------------------------------------------------------ */

/* In the middle of a piece, between pieces, and with no piece at all: never wrong data, never a wait without end. */
static void test_lane_lost(void)
{
    for (int when = 0; when < 3; when++) {
        struct bare bare = bare_open(2);
        struct rg_message m;
        announce(&bare, announcement(2 * RG_PIECE, 1, 0x10));
        if (when > 0)
            send_piece(bare.lanes[0], piece_of(1, 0, 0), data, RG_PIECE);
        if (when == 1) { /* half a piece */
            static unsigned char half[16 + sizeof(struct rg_piece) + RG_PIECE / 2];
            const uint32_t frame[4] = {0x31504752u, sizeof(struct rg_piece), RG_PIECE, 0};
            const struct rg_piece piece = piece_of(1, 1, 0);
            memcpy(half, frame, sizeof frame);
            memcpy(half + sizeof frame, &piece, sizeof piece);
            for (size_t at = 0; at < sizeof half;) {
                const ssize_t n = send(rg_conn_fd(bare.lanes[1]), half + at, sizeof half - at, MSG_NOSIGNAL);
                CHECK(n > 0);
                at += (size_t)n;
            }
        }
        rg_conn_destroy(bare.lanes[1]);
        rg_conn_destroy(bare.lanes[0]);
        bare.n = 0;
        CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
        CHECK_STATUS(rg_conn_recv_bulk(bare.pair.a, into, 2 * RG_PIECE), RG_ERR_LOST);
        CHECK_STATUS(rg_conn_recv(bare.pair.a, 5000, &m), RG_ERR_LOST);
        CHECK(send_pattern(bare.pair.a, 40, RG_BULK_MAX, 1) != RG_OK);
        /* the peer learns of it by the first connection */
        CHECK(rg_conn_recv(bare.pair.b, 5000, &m) != RG_ERR_TIMEOUT);
        bare_close(&bare);
    }
}

/* A sender meets a lane that has ended. */
static void test_send_to_lost_lane(void)
{
    struct bare bare = bare_open(2);
    rg_conn_destroy(bare.lanes[0]);
    rg_conn_destroy(bare.lanes[1]);
    bare.n = 0;
    enum rg_status status = RG_OK;
    for (int i = 0; i < 100 && status == RG_OK; i++)
        status = send_pattern(bare.pair.a, 40, RG_BULK_MAX, 1);
    CHECK_STATUS(status, RG_ERR_LOST);
    struct rg_message m;
    CHECK(rg_conn_recv(bare.pair.a, 5000, &m) != RG_OK);
    bare_close(&bare);
}

/* An interrupt ends a wait for a lane that does not come, and one for a piece that does not. */
static void *interrupt_soon(void *arg)
{
    poll(NULL, 0, 50);
    rg_conn_interrupt(arg);
    return NULL;
}

static void test_interrupts(void)
{
    for (unsigned lanes = 1; lanes <= 2; lanes++) {
        struct bare bare = bare_open(lanes);
        struct rg_message m;
        pthread_t thread;
        announce(&bare, announcement(RG_PIECE, 1, 1)); /* by the second */
        CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
        CHECK(pthread_create(&thread, NULL, interrupt_soon, bare.pair.a) == 0);
        CHECK_STATUS(rg_conn_recv_bulk(bare.pair.a, into, RG_PIECE), RG_ERR_CLOSED);
        pthread_join(thread, NULL);
        bare_close(&bare);
    }
}

/* --- lanes that come later, or are slow ----------------------------------------------------------------------------- */

struct late {
    struct rg_conn *bundle, *lane;
};

static void *add_soon(void *arg)
{
    struct late *late = arg;
    poll(NULL, 0, 50);
    CHECK_OK(rg_bundle_add(late->bundle, late->lane));
    return NULL;
}

/* The announcement may overtake the lane. */
static void test_lane_comes_late(void)
{
    struct bare bare = bare_open(1);
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct late late = {.bundle = bare.pair.a};
    struct rg_message m;
    pthread_t thread;
    CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &late.lane));
    CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &bare.lanes[bare.n++]));
    pattern_fill(data, RG_PIECE, 5);
    announce(&bare, announcement(RG_PIECE, 1, 1));
    send_piece(bare.lanes[1], piece_of(1, 0, 0), data, RG_PIECE);
    CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
    CHECK(pthread_create(&thread, NULL, add_soon, &late) == 0);
    CHECK_OK(rg_conn_recv_bulk(bare.pair.a, into, RG_PIECE));
    CHECK(memcmp(into, data, RG_PIECE) == 0);
    pthread_join(thread, NULL);
    bare_close(&bare);
}

static void *send_some(void *arg)
{
    for (uint64_t i = 0; i < 12; i++)
        CHECK_OK(send_pattern(arg, 40, RG_BULK_MAX, i));
    return NULL;
}

/* One lane is thirty times slower than the other: everything arrives, and not at the pace of the slow one. */
static void test_slow_lane(void)
{
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    const struct rg_bundle_options options = {.lanes = 2};
    CHECK_OK(rg_bundle_wrap(pair.a, &options, &pair.a));
    CHECK_OK(rg_bundle_wrap(pair.b, &options, &pair.b));
    for (int i = 0; i < 2; i++) {
        const struct rg_transport_options way = {.filters = i ? "delay:flow=10MB" : "delay:flow=300MB",
                                                 .bulk = true};
        struct rg_conn *a, *b;
        CHECK_OK(rg_transport_connect(rg_listener_address(pair.listener), &way, NULL, 0, &a));
        CHECK_OK(rg_listener_accept(pair.listener, 5000, &b));
        CHECK_OK(rg_bundle_add(pair.a, a));
        CHECK_OK(rg_bundle_add(pair.b, b));
    }
    pthread_t thread;
    const uint64_t since = rg_now_ns();
    CHECK(pthread_create(&thread, NULL, send_some, pair.a) == 0);
    for (uint64_t i = 0; i < 12; i++)
        expect_pattern(pair.b, 40, RG_BULK_MAX, i);
    pthread_join(thread, NULL);
    printf("48 MiB by lanes of 300 and 10 MB/s: %.0f ms\n", (double)(rg_now_ns() - since) / 1e6);
    pair_close(&pair);
}

/* --- two steps ------------------------------------------------------------------------------------------------------ */

struct tail {
    struct rg_conn *conn;
    struct rg_bulk_ticket ticket;
    uint64_t seed;
};

static void *send_tail(void *arg)
{
    struct tail *tail = arg;
    unsigned char *bytes = malloc(tail->ticket.size);
    CHECK(bytes);
    pattern_fill(bytes, tail->ticket.size, tail->seed);
    const struct iovec bulk = {bytes, tail->ticket.size};
    CHECK_OK(rg_conn_send_tail(tail->conn, &tail->ticket, &bulk, 1));
    free(bytes);
    return NULL;
}

/* Tails may be sent in any order by their threads; between them messages overtake. */
static void test_two_steps(void)
{
    enum { N = 3, SIZE = 3 * RG_PIECE / 2 };
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    CHECK(!rg_conn_sends_apart(pair.a, sizeof text, SIZE));
    pair_bundle(&pair, "", 2, RG_COMPRESS_NONE);
    CHECK(rg_conn_sends_apart(pair.a, sizeof text, SIZE) && !rg_conn_sends_apart(pair.a, sizeof text, 1000));
    CHECK(!rg_conn_sends_apart(pair.a, RG_MESSAGE_MAX, SIZE)); /* no room for the announcement */
    const struct iovec head = {(void *)(uintptr_t)text, sizeof text};
    struct tail tails[N];
    struct rg_message m;
    pthread_t threads[N];
    for (unsigned i = 0; i < N; i++) {
        tails[i] = (struct tail){.conn = pair.a, .seed = i};
        CHECK_OK(rg_conn_send_head(pair.a, &head, 1, SIZE, &tails[i].ticket));
    }
    CHECK_OK(send_pattern(pair.a, 50, 0, 9)); /* a small one behind them */
    CHECK_OK(rg_conn_recv(pair.b, 5000, &m)); /* no tail has been sent */
    CHECK(m.size == sizeof text && m.bulk_size == SIZE);
    for (unsigned i = N; i-- > 0;) { /* the last first: each waits for its turn */
        CHECK(pthread_create(&threads[i], NULL, send_tail, &tails[i]) == 0);
        poll(NULL, 0, 20);
    }
    for (unsigned i = 0; i < N; i++) {
        if (i > 0)
            CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
        CHECK_OK(rg_conn_recv_bulk(pair.b, into, SIZE));
        CHECK(pattern_matches(into, SIZE, i));
    }
    expect_pattern(pair.b, 50, 0, 9);
    for (unsigned i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    /* misuse */
    struct rg_bulk_ticket ticket;
    CHECK_STATUS(rg_conn_send_head(pair.a, &head, 1, 10, &ticket), RG_ERR_INVALID);
    CHECK_STATUS(rg_conn_send_head(pair.a, &head, 1, RG_BULK_MAX + 1u, &ticket), RG_ERR_INVALID);
    CHECK_STATUS(rg_conn_send_tail(pair.a, &tails[0].ticket, &head, 1), RG_ERR_INVALID);
    pair_close(&pair);
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

struct opener {
    struct pair *pair;
    atomic_uint asked;
    unsigned most;
};

static struct rg_conn *open_one(void *user)
{
    struct opener *opener = user;
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct rg_conn *a, *b;
    if (atomic_fetch_add(&opener->asked, 1) >= opener->most)
        return NULL;
    CHECK_OK(rg_transport_connect(rg_listener_address(opener->pair->listener), &plain, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(opener->pair->listener, 5000, &b));
    CHECK_OK(rg_bundle_add(opener->pair->b, b));
    return a;
}

/* Nothing is opened for small messages; with bulk data as many as were asked for, and after a failure no more. */
static void test_opening(void)
{
    for (unsigned most = 0; most <= 3; most += 3) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        struct opener opener = {.pair = &pair, .most = most};
        const struct rg_bundle_options near = {.lanes = 3, .open = open_one, .user = &opener},
                                       far = {.lanes = 3};
        CHECK_OK(rg_bundle_wrap(pair.a, &near, &pair.a));
        CHECK_OK(rg_bundle_wrap(pair.b, &far, &pair.b));
        for (uint64_t i = 0; i < 50; i++) {
            CHECK_OK(send_pattern(pair.a, 100, 50000, i));
            expect_pattern(pair.b, 100, 50000, i);
        }
        CHECK(atomic_load(&opener.asked) == 0);
        for (int way = 0; way < 2; way++) {
            struct rg_conn *from = way ? pair.b : pair.a, *to = way ? pair.a : pair.b;
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, send_some, from) == 0);
            for (uint64_t i = 0; i < 12; i++)
                expect_pattern(to, 40, RG_BULK_MAX, i);
            pthread_join(thread, NULL);
        }
        for (int i = 0; i < 500 && rg_bundle_lanes(pair.a) < most; i++)
            poll(NULL, 0, 10);
        CHECK(rg_bundle_lanes(pair.a) == most && rg_bundle_lanes(pair.b) == most);
        CHECK(atomic_load(&opener.asked) == (most ? most : 1));
        pair_close(&pair);
    }
}

static void test_no_more_than_agreed(void)
{
    struct bare bare = bare_open(4);
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct rg_conn *a, *b;
    CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &b));
    CHECK_STATUS(rg_bundle_add(bare.pair.a, a), RG_ERR_LIMIT);
    rg_conn_destroy(a);
    rg_conn_destroy(b);
    bare_close(&bare);
}

/* --- joining -------------------------------------------------------------------------------------------------------- */

struct joining {
    struct rg_listener *listener;
    uint8_t token[RG_BULK_TOKEN];
    enum rg_status outcome;
};

/* The daemon and the worker in one: takes the hello, then decides. */
static void *admit_one(void *arg)
{
    struct joining *joining = arg;
    struct rg_control hello;
    struct rg_conn *conn;
    CHECK_OK(rg_listener_accept(joining->listener, 5000, &conn));
    struct rg_message m;
    CHECK_OK(rg_conn_recv(conn, 5000, &m));
    CHECK_OK(rg_control_unpack(m.data, m.size, &hello));
    CHECK(hello.client_hello.purpose == RG_PURPOSE_BULK && hello.client_hello.bulk_session == 77);
    joining->outcome = rg_bundle_admit(conn, &hello.client_hello, joining->token, false);
    rg_control_fini(&hello);
    if (joining->outcome == RG_OK) { /* nothing of what follows was read ahead */
        struct rg_message next;
        CHECK_OK(rg_conn_recv(conn, 5000, &next));
        CHECK(next.size == 40);
        CHECK_OK(rg_conn_recv_bulk(conn, NULL, next.bulk_size));
    }
    rg_conn_destroy(conn);
    return NULL;
}

static void test_joining(void)
{
    for (int right = 0; right < 2; right++) {
        struct joining joining = {.token = "a secret token."};
        char why[160] = "";
        pthread_t thread;
        static struct rg_server_hello hello = {.session = 77};
        CHECK_OK(rg_transport_listen(address, NULL, why, sizeof why, &joining.listener));
        memcpy(hello.bulk_token, joining.token, sizeof joining.token);
        hello.bulk_token[RG_BULK_TOKEN - 1] ^= !right;
        CHECK(pthread_create(&thread, NULL, admit_one, &joining) == 0);
        struct rg_conn *conn = NULL;
        const enum rg_status status =
            rg_bundle_join(rg_listener_address(joining.listener), &hello, &conn, why, sizeof why);
        CHECK_STATUS(status, right ? RG_OK : RG_ERR_REFUSED);
        if (right)
            CHECK_OK(send_pattern(conn, 40, 10000, 1));
        else
            CHECK(strcmp(why, "the token is not that of the session") == 0);
        pthread_join(thread, NULL);
        CHECK_STATUS(joining.outcome, right ? RG_OK : RG_ERR_REFUSED);
        rg_conn_destroy(conn);
        rg_listener_destroy(joining.listener);
    }
}

/* --- compression ------------------------------------------------------------------------------------------------------ */

/* The model alone: rates as they would be measured. */
static void feed(struct rg_press *press, double wire, unsigned pieces)
{
    for (unsigned i = 0; i < pieces; i++)
        rg_press_sent_plain(press, RG_PIECE, (uint64_t)(RG_PIECE / wire * 1e9));
}

static enum rg_compression decide(double wire, double lz4, double lz4_left, double zstd, double zstd_left)
{
    struct rg_press press;
    rg_press_init(&press, RG_COMPRESS_AUTO);
    struct rg_press_choice choice = {0};
    for (int i = 0; i < 10000 && !choice.sample; i++) {
        choice = rg_press_choose(&press);
        CHECK(choice.codec == RG_COMPRESS_NONE); /* nothing is known */
        feed(&press, wire, 1);
    }
    enum rg_compression decision = RG_COMPRESS_NONE;
    if (choice.sample) {
        rg_press_tried(&press, RG_COMPRESS_LZ4, RG_PIECE, (uint64_t)(RG_PIECE * lz4_left),
                       (uint64_t)(RG_PIECE / lz4 * 1e9));
        rg_press_tried(&press, RG_COMPRESS_ZSTD, RG_PIECE, (uint64_t)(RG_PIECE * zstd_left),
                       (uint64_t)(RG_PIECE / zstd * 1e9));
        decision = rg_press_decide(&press);
        CHECK(rg_press_choose(&press).codec == decision);
    }
    rg_press_fini(&press);
    return decision;
}

static void test_choice(void)
{
    CHECK(decide(10e6, 500e6, 0.5, 300e6, 0.3) == RG_COMPRESS_ZSTD);  /* slow: what is smallest */
    CHECK(decide(200e6, 500e6, 0.5, 250e6, 0.3) == RG_COMPRESS_LZ4);  /* what packs fast enough */
    CHECK(decide(1.2e9, 500e6, 0.1, 300e6, 0.1) == RG_COMPRESS_NONE); /* faster than both pack */
    CHECK(decide(5e9, 5e9, 0.01, 5e9, 0.01) == RG_COMPRESS_NONE);     /* no samples are taken */
    CHECK(decide(100e6, 2e9, 0, 400e6, 0) == RG_COMPRESS_NONE);       /* nothing gets smaller */
}

/* What stops being compressible stops being compressed, and samples become rare. */
static void test_choice_changes(void)
{
    struct rg_press press;
    rg_press_init(&press, RG_COMPRESS_AUTO);
    feed(&press, 100e6, 40);
    unsigned samples = 0, compressed = 0;
    for (unsigned i = 0; i < 20000; i++) {
        const struct rg_press_choice choice = rg_press_choose(&press);
        enum rg_compression codec = choice.codec;
        const bool good = i < 1000; /* the data */
        if (choice.sample) {
            samples++;
            for (enum rg_compression c = RG_COMPRESS_LZ4; c <= RG_COMPRESS_ZSTD; c++)
                rg_press_tried(&press, c, RG_PIECE, good ? RG_PIECE / 10 : 0, RG_PIECE);
            codec = rg_press_decide(&press);
        }
        if (codec == RG_COMPRESS_NONE)
            feed(&press, 100e6, 1);
        else
            rg_press_tried(&press, codec, RG_PIECE, good ? RG_PIECE / 10 : 0, RG_PIECE);
        compressed += i < 1000 && codec != RG_COMPRESS_NONE;
        CHECK(i < 1020 || choice.sample || codec == RG_COMPRESS_NONE);
    }
    CHECK(compressed >= 850); /* but for those by which the wire is measured */
    CHECK(samples >= 3 && samples < 60);
    rg_press_fini(&press);
}

/* The counters tell what was compressed; what does not get smaller travels as it is. */
static void test_counters(void)
{
    for (enum rg_compression codec = RG_COMPRESS_NONE; codec <= RG_COMPRESS_ZSTD; codec++) {
        if (!rg_codec_available(codec))
            continue;
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_bundle(&pair, "", 1, codec);
        struct rg_conn_statistics sent, received;
        for (int random = 0; random < 2; random++) {
            uint64_t state = 88172645463325252u;
            for (size_t i = 0; i < sizeof data; i++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                data[i] = random ? (unsigned char)(state >> 32) : (unsigned char)(i >> 10);
            }
            for (int i = 0; i < 2; i++) {
                struct rg_message m;
                CHECK_OK(send_bytes(pair.a, text, sizeof text, data, RG_PIECE));
                CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
                CHECK_OK(rg_conn_recv_bulk(pair.b, into, RG_PIECE));
                CHECK(memcmp(into, data, RG_PIECE) == 0);
            }
        }
        rg_conn_get_statistics(pair.a, &sent);
        rg_conn_get_statistics(pair.b, &received);
        CHECK(sent.lanes == 1 && received.lanes == 1);
        CHECK(sent.compressed_from == (codec ? 2 * RG_PIECE : 0));
        CHECK(codec ? sent.compressed_to < RG_PIECE : sent.compressed_to == 0);
        CHECK(sent.bulk_copied_sent == 0 && received.bulk_copied_received == 0);
        CHECK(codec ||
              (sent.bulk_direct_sent == 4 * RG_PIECE && received.bulk_direct_received == 4 * RG_PIECE));
        pair_close(&pair);
    }
}

int main(void)
{
    test_begin(300);
    test_bad_announcements();
    test_bad_pieces();
    test_lying_sizes();
    test_not_a_piece();
    test_lane_lost();
    test_send_to_lost_lane();
    test_interrupts();
    test_lane_comes_late();
    test_slow_lane();
    test_two_steps();
    test_opening();
    test_no_more_than_agreed();
    test_joining();
    test_choice();
    test_choice_changes();
    test_counters();
    return 0;
}
