/*
 * multipath.c - bulk data on connections of its own: what a hostile or broken peer may try with it,
 * connections that die or come late. What two good ends do is in channels.c, what is compressed in compression_policy.c.
 *
 * What all transports do alike is in conformance.c (bundle+tcp and others).
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"
#include "transport/multipath/compression_policy.h"
#include "transport/multipath/join.h"
#include "transport/multipath/wire.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

static const char address[] = "127.0.0.1:0";

/* One end is a bundle, of the other there are the bare connections. */
struct bare {
    struct pair pair; /* a: the bundle; b: the peer's first connection */
    struct rg_conn *channels[4];
    unsigned n;
};

static struct bare bare_open(unsigned channels)
{
    struct bare bare = {.pair = pair_open(address, "", RG_WAIT_AUTO), .n = channels};
    const struct rg_multipath_options options = {.channels = 4, .codecs = rg_codecs_here()};
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    CHECK_OK(rg_multipath_wrap(bare.pair.a, &options, &bare.pair.a));
    for (unsigned i = 0; i < channels; i++) {
        struct rg_conn *ours;
        CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &ours));
        CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &bare.channels[i]));
        CHECK_OK(rg_multipath_add(bare.pair.a, ours));
    }
    return bare;
}

static void bare_close(struct bare *bare)
{
    for (unsigned i = 0; i < bare->n; i++)
        rg_conn_destroy(bare->channels[i]);
    pair_close(&bare->pair);
}

static const char text[16] = "\xff\xff what follows";

static struct rg_out_of_band announcement(uint32_t bulk_size, uint64_t number, uint64_t route)
{
    return (struct rg_out_of_band){.kind = RG_MESSAGE_OUT_OF_BAND,
                                   .version = RG_PROTOCOL_MAJOR,
                                   .bulk_size = bulk_size,
                                   .number = number,
                                   .route = route};
}

static void announce(struct bare *bare, struct rg_out_of_band head)
{
    const struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)text, sizeof text}};
    CHECK_OK(rg_conn_send(bare->pair.b, &(struct rg_send){.msg = parts, .n_msg = 2}));
}

static void send_piece(struct rg_conn *channel, struct rg_piece piece, const void *data, size_t size)
{
    CHECK_OK(send_bytes(channel, &piece, sizeof piece, data, size));
}

static struct rg_piece piece_of(uint64_t number, unsigned index, unsigned codec)
{
    return (struct rg_piece){.kind = RG_MESSAGE_PIECE,
                             .version = RG_PROTOCOL_MAJOR,
                             .index = (uint16_t)index,
                             .codec = (uint16_t)codec,
                             .number = number};
}

/* --- announcements --- */

static void refused(struct rg_out_of_band head, const char *what)
{
    struct bare bare = bare_open(1);
    struct rg_message m;
    announce(&bare, head);
    if (rg_conn_recv(bare.pair.a, 5000, &m) != RG_ERR_PROTOCOL ||
        rg_conn_recv(bare.pair.a, 0, &m) != RG_ERR_PROTOCOL) {
        fprintf(stderr, "not refused: %s\n", what);
        abort();
    }
    bare_close(&bare);
}

static void test_bad_announcements(void)
{
    struct rg_out_of_band head = announcement(300000, 1, 0);
    refused(announcement(0, 1, 0), "no bulk data");
    refused(announcement(RG_BULK_MAX + 1, 1, 0), "more than the limit");
    refused(announcement(UINT32_MAX, 1, 0), "much more than the limit");
    refused(announcement(300000, 0, 0), "number 0");
    refused(announcement(300000, 2, 0), "a number left out");
    refused(announcement(300000, 1, 4), "a channel that cannot be");
    refused(announcement(300000, 1, 0x100), "a channel for a piece that is not");
    head.version++;
    refused(head, "another version");
    head = announcement(300000, 1, 0);
    head.reserved[6] = 1;
    refused(head, "reserved bytes in use");

    struct bare bare = bare_open(1);
    struct rg_message m;
    head = announcement(300000, 1, 0);
    CHECK_OK(send_bytes(bare.pair.b, &head, sizeof head - 1, NULL, 0));
    CHECK_STATUS(rg_conn_recv(bare.pair.a, 5000, &m), RG_ERR_PROTOCOL);
    bare_close(&bare);
    bare = bare_open(1);
    CHECK_OK(send_bytes(bare.pair.b, &head, sizeof head, "bulk", 4));
    CHECK_STATUS(rg_conn_recv(bare.pair.a, 5000, &m), RG_ERR_PROTOCOL);
    bare_close(&bare);
}

/* --- pieces --- */

static unsigned char data[2 * RG_PIECE], into[2 * RG_PIECE];

/* Message 1 of RG_PIECE + 1000 bytes by channel 0; then this in place of its first piece. */
static void bad_piece(struct rg_piece piece, size_t size, const char *what)
{
    struct bare bare = bare_open(1);
    struct rg_message m;
    announce(&bare, announcement(RG_PIECE + 1000, 1, 0));
    send_piece(bare.channels[0], piece, data, size);
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
    CHECK_OK(send_bytes(bare.channels[0], "x", 1, data, RG_PIECE));
    CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
    CHECK_STATUS(rg_conn_recv_bulk(bare.pair.a, NULL, RG_PIECE), RG_ERR_PROTOCOL);
    bare_close(&bare);
}

/* --- connections that die --- */

/*
 * In the middle of a piece, between pieces, and with no piece at all: never wrong data, never a wait without
 * end.
 */
static void test_lane_lost(void)
{
    for (int when = 0; when < 3; when++) {
        struct bare bare = bare_open(2);
        struct rg_message m;
        announce(&bare, announcement(2 * RG_PIECE, 1, 0x10));
        if (when > 0)
            send_piece(bare.channels[0], piece_of(1, 0, 0), data, RG_PIECE);
        if (when == 1) { /* half a piece */
            static unsigned char half[16 + sizeof(struct rg_piece) + RG_PIECE / 2];
            const uint32_t frame[4] = {0x31504752u, sizeof(struct rg_piece), RG_PIECE, 0};
            const struct rg_piece piece = piece_of(1, 1, 0);
            memcpy(half, frame, sizeof frame);
            memcpy(half + sizeof frame, &piece, sizeof piece);
            for (size_t at = 0; at < sizeof half;) {
                const ssize_t n =
                    send(rg_conn_fd(bare.channels[1]), half + at, sizeof half - at, MSG_NOSIGNAL);
                CHECK(n > 0);
                at += (size_t)n;
            }
        }
        rg_conn_destroy(bare.channels[1]);
        rg_conn_destroy(bare.channels[0]);
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

/* A sender meets a channel that has ended. */
static void test_send_to_lost_lane(void)
{
    struct bare bare = bare_open(2);
    rg_conn_destroy(bare.channels[0]);
    rg_conn_destroy(bare.channels[1]);
    bare.n = 0;
    enum rg_status status = RG_OK;
    for (int i = 0; i < 100 && status == RG_OK; i++)
        status = send_pattern(bare.pair.a, 40, RG_BULK_MAX, 1);
    CHECK_STATUS(status, RG_ERR_LOST);
    struct rg_message m;
    CHECK(rg_conn_recv(bare.pair.a, 5000, &m) != RG_OK);
    bare_close(&bare);
}

/* An interrupt ends a wait for a channel that does not come, and one for a piece that does not. */
static void *interrupt_soon(void *arg)
{
    poll(NULL, 0, 50);
    rg_conn_interrupt(arg);
    return NULL;
}

static void test_interrupts(void)
{
    for (unsigned channels = 1; channels <= 2; channels++) {
        struct bare bare = bare_open(channels);
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

/* --- a channel that comes late, and one too many --- */

struct late {
    struct rg_conn *bundle, *channel;
};

static void *add_soon(void *arg)
{
    struct late *late = arg;
    poll(NULL, 0, 50);
    CHECK_OK(rg_multipath_add(late->bundle, late->channel));
    return NULL;
}

/* The announcement may overtake the channel. */
static void test_lane_comes_late(void)
{
    struct bare bare = bare_open(1);
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct late late = {.bundle = bare.pair.a};
    struct rg_message m;
    pthread_t thread;
    CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &late.channel));
    CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &bare.channels[bare.n++]));
    pattern_fill(data, RG_PIECE, 5);
    announce(&bare, announcement(RG_PIECE, 1, 1));
    send_piece(bare.channels[1], piece_of(1, 0, 0), data, RG_PIECE);
    CHECK_OK(rg_conn_recv(bare.pair.a, 5000, &m));
    CHECK(pthread_create(&thread, NULL, add_soon, &late) == 0);
    CHECK_OK(rg_conn_recv_bulk(bare.pair.a, into, RG_PIECE));
    CHECK(memcmp(into, data, RG_PIECE) == 0);
    pthread_join(thread, NULL);
    bare_close(&bare);
}

static void test_no_more_than_agreed(void)
{
    struct bare bare = bare_open(4);
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct rg_conn *a, *b;
    CHECK_OK(rg_transport_connect(rg_listener_address(bare.pair.listener), &plain, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(bare.pair.listener, 5000, &b));
    CHECK_STATUS(rg_multipath_add(bare.pair.a, a), RG_ERR_LIMIT);
    rg_conn_destroy(a);
    rg_conn_destroy(b);
    bare_close(&bare);
}

int main(void)
{
    test_begin();
    test_bad_announcements();
    test_bad_pieces();
    test_lying_sizes();
    test_not_a_piece();
    test_lane_lost();
    test_send_to_lost_lane();
    test_interrupts();
    test_lane_comes_late();
    test_no_more_than_agreed();
    return 0;
}
