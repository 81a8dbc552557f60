/*
 * by_hand.c - rails whose peer does what ours does not: breaks the rules, stops half-way, takes nothing. The test plays it, by the
 * connections of a pair that is no bundle at one end. What both ends of ours do together: multirail.c.
 */
#include "tests/transport/multirail/rails.h"
#include "transport/connect/connect.h"
#include "transport/liveness.h"

#include "transport/multipath/wire.h"
#include "transport/state.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct by_hand {
    struct pair pair;         /* b is the bundle, a its peer's first connection */
    struct rg_conn *rails[2]; /* the peer's ends */
    unsigned char *data;
};

static struct by_hand open_by_hand(void)
{
    struct by_hand hand = {.pair = pair_open(address, "", RG_WAIT_AUTO), .data = malloc(RG_BULK_MAX)};
    const struct rg_multirail_options options = {.rails = 2};
    CHECK_OK(rg_multirail_wrap(hand.pair.b, &options, &hand.pair.b));
    for (int i = 0; i < 2; i++) {
        struct rg_conn *theirs;
        CHECK_OK(
            rg_transport_connect(rg_listener_address(hand.pair.listener), NULL, NULL, 0, &hand.rails[i]));
        CHECK_OK(rg_listener_accept(hand.pair.listener, 5000, &theirs));
        CHECK_OK(rg_multirail_add(hand.pair.b, theirs, RG_MULTIRAIL_ANY));
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
    const struct rg_out_of_band head = {.kind = RG_MESSAGE_OUT_OF_BAND,
                                        .version = RG_PROTOCOL_MAJOR,
                                        .bulk_size = (uint32_t)size,
                                        .number = number};
    CHECK_OK(send_bytes(hand->pair.a, &head, sizeof head, NULL, 0));
}

static enum rg_status try_to_bring(struct by_hand *hand, int rail, uint64_t number, unsigned index,
                                   unsigned n, size_t bytes, uint8_t given_up)
{
    const struct rg_run piece = {.kind = RG_MESSAGE_PIECE,
                                 .version = RG_PROTOCOL_MAJOR,
                                 .index = (uint16_t)index,
                                 .given_up = given_up,
                                 .more = (uint8_t)(n - 1),
                                 .number = number};
    return send_bytes(hand->rails[rail], &piece, sizeof piece, hand->data + (size_t)index * RG_PIECE, bytes);
}

static void bring_again(struct by_hand *hand, int rail, uint64_t number, unsigned index, unsigned n,
                        size_t bytes, uint8_t given_up)
{
    CHECK_OK(try_to_bring(hand, rail, number, index, n, bytes, given_up));
}

static void bring(struct by_hand *hand, int rail, uint64_t number, unsigned index, unsigned n, size_t bytes)
{
    bring_again(hand, rail, number, index, n, bytes, 0);
}

static void expect_head(struct by_hand *hand, size_t size)
{
    struct rg_message message;
    CHECK_OK(rg_conn_recv(hand->pair.b, 5000, &message));
    CHECK(message.size == 0 && message.bulk_size == size);
}

/*
 * The same run by both rails: while nobody has asked for it, in its middle, when it is there already, and
 * when the receiver has gone on to a message without.
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
        announce(&hand, 2, RG_PIECE);
        /* And on it goes, by the rail whose reader came second: the other's is given up, if it was still at it. */
        if (try_to_bring(&hand, 1, 2, 0, 1, RG_PIECE, 0) != RG_OK)
            bring(&hand, 0, 2, 0, 1, RG_PIECE);
        expect_head(&hand, RG_PIECE);
        CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, RG_PIECE));
        CHECK(memcmp(got, hand.data, RG_PIECE) == 0);
        close_by_hand(&hand);
    }
    free(got);
}

/* What a sender says that it has given up is given up here too, whatever its reader knows. */
static void test_given_up(void)
{
    struct by_hand hand = open_by_hand();
    unsigned char *got = malloc(RG_BULK_MAX);
    announce(&hand, 1, 2 * RG_PIECE);
    bring_again(&hand, 1, 1, 0, 2, 2 * RG_PIECE, 1);
    expect_head(&hand, 2 * RG_PIECE);
    CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, 2 * RG_PIECE));
    CHECK(memcmp(got, hand.data, 2 * RG_PIECE) == 0);
    CHECK(living(hand.pair.b) == 1);
    struct rg_message message;
    CHECK_STATUS(rg_conn_recv(hand.rails[0], 5000, &message), RG_ERR_LOST);
    announce(&hand, 2, RG_PIECE); /* not the one it comes by */
    bring_again(&hand, 1, 2, 0, 1, RG_PIECE, 2);
    enum rg_status status = rg_conn_recv(hand.pair.b, 5000, &message);
    if (status == RG_OK)
        status = rg_conn_recv_bulk(hand.pair.b, got, RG_PIECE);
    CHECK(status == RG_ERR_PROTOCOL || status == RG_ERR_CLOSED);
    close_by_hand(&hand);
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
        {0, 4, 4 * RG_PIECE, 0, 0}, /* larger than the message */
        {0, 2, RG_PIECE, 0, 0},     /* smaller than it says */
        {3, 1, RG_PIECE, 0, 0},     /* the last is not that large */
        {4, 1, 1000, 0, 0},         /* there is no such piece */
        {0, 200, RG_PIECE, 0, 0},   /* nor so many */
        {0, 2, 2 * RG_PIECE, 1, 2}, /* shares a piece with another */
        {0, 2, 2 * RG_PIECE, 0, 1}, /* likewise */
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

/*
 * The peer takes nothing of one rail: that is seen, and what is sent goes by the other once the rail has been given up. The other stays,
 * whatever the peer does.
 */
struct much {
    struct by_hand *hand;
    atomic_bool enough;
};

/* More than a rail holds on its way, however much of it goes by the other. */
static void *send_much(void *arg)
{
    struct much *much = arg;
    while (!atomic_load(&much->enough))
        CHECK_OK(send_bytes(much->hand->pair.b, "x", 1, much->hand->data, RG_BULK_MAX));
    return NULL;
}

static void *take_all(void *arg)
{
    struct rg_conn *rail = arg;
    unsigned char *got = malloc(RG_BULK_MAX);
    struct rg_message message;
    while (rg_conn_recv(rail, -1, &message) == RG_OK &&
           (!message.bulk_size || rg_conn_recv_bulk(rail, got, message.bulk_size) == RG_OK))
        ;
    free(got);
    return NULL;
}

static void test_unread(void)
{
    enum { MOST = RG_LIVENESS_TICKS, PAUSE_MS = 20 };
    struct by_hand hand = open_by_hand();
    struct much much = {.hand = &hand};
    struct rg_liveness liveness = {0};
    pthread_t sender, taker;
    CHECK(rg_liveness_look_at_channels(&liveness, hand.pair.b) == 0);
    CHECK(pthread_create(&taker, NULL, take_all, hand.rails[1]) == 0);
    CHECK(pthread_create(&sender, NULL, send_much, &much) == 0);
    for (unsigned stuck = 0; stuck <= MOST; poll(NULL, 0, PAUSE_MS))
        stuck = rg_liveness_look_at_channels(&liveness, hand.pair.b);
    CHECK(liveness.channels[0].stuck > MOST && liveness.channels[1].stuck <= MOST);
    CHECK(rg_liveness_give_up(&liveness, hand.pair.b, MOST));
    CHECK(living(hand.pair.b) == 1);
    CHECK(rg_liveness_look_at_channels(&liveness, hand.pair.b) <= MOST);
    atomic_store(&much.enough, true);
    pthread_join(sender, NULL);
    CHECK(!rg_conn_give_up_channel(hand.pair.b, 0) && !rg_conn_give_up_channel(hand.pair.b, 1));
    rg_conn_interrupt(hand.rails[1]);
    pthread_join(taker, NULL);
    close_by_hand(&hand);
}

/*
 * What is waited for cannot come any more: one rail has gone, and by the other a later message has begun. Whether that
 * shows before the receiver waits, or while it does.
 */
static void *end_the_first(void *hand)
{
    poll(NULL, 0, 50);
    rg_conn_interrupt(((struct by_hand *)hand)->rails[0]);
    poll(NULL, 0, 50);
    bring(hand, 1, 2, 0, 1, RG_PIECE);
    return NULL;
}

static void test_none_can_come(void)
{
    unsigned char *got = malloc(RG_BULK_MAX);
    for (int during = 0; during < 2; during++) {
        struct by_hand hand = open_by_hand();
        pthread_t thread;
        announce(&hand, 1, 2 * RG_PIECE);
        expect_head(&hand, 2 * RG_PIECE);
        bring(&hand, 1, 1, 0, 1, RG_PIECE);
        CHECK(pthread_create(&thread, NULL, end_the_first, &hand) == 0);
        if (!during)
            CHECK(pthread_join(thread, NULL) == 0);
        CHECK_STATUS(rg_conn_recv_bulk(hand.pair.b, got, 2 * RG_PIECE), RG_ERR_LOST);
        if (during)
            CHECK(pthread_join(thread, NULL) == 0);
        close_by_hand(&hand);
    }
    free(got);
}

/* A later message that begins early holds up nothing, if the rest of this one comes. */
static void test_ahead(void)
{
    struct by_hand hand = open_by_hand();
    unsigned char *got = malloc(RG_BULK_MAX);
    announce(&hand, 1, 2 * RG_PIECE);
    expect_head(&hand, 2 * RG_PIECE);
    bring(&hand, 1, 2, 0, 1, RG_PIECE);
    poll(NULL, 0, 20);
    bring(&hand, 0, 1, 0, 2, 2 * RG_PIECE);
    CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, 2 * RG_PIECE));
    CHECK(memcmp(got, hand.data, 2 * RG_PIECE) == 0);
    announce(&hand, 2, RG_PIECE);
    expect_head(&hand, RG_PIECE);
    rg_conn_interrupt(hand.rails[0]);
    CHECK_OK(rg_conn_recv_bulk(hand.pair.b, got, RG_PIECE));
    CHECK(memcmp(got, hand.data, RG_PIECE) == 0);
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

int main(void)
{
    test_begin();
    RUN(test_again);
    RUN(test_behind);
    RUN(test_given_up);
    RUN(test_violations);
    RUN(test_none_left);
    RUN(test_unread);
    RUN(test_none_can_come);
    RUN(test_ahead);
    RUN(test_interrupt);
    return 0;
}
