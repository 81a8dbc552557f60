/*
 * resumable.c - connections that outlive their links: without cuts (those are cuts.c), what they do
 * when they are idle, alone or at their end; what cannot be mended ends; what a peer may not say is refused.
 * Memory that is held or registered: memory.c.
 */
#include "tests/transport/resumable/ends.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"

#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

static void test_no_cut(void)
{
    CHECK(run_traffic("", 0, 300) == 0);
    CHECK(run_traffic("delay:oneway=1ms", 0, 100) == 0);
}

/* --- states --- */

/* An idle connection that is lost is mended without anybody calling. */
static void test_idle(void)
{
    struct ends ends;
    ends_open(&ends, "", 0, 30000000000ull);
    expect_good(ends.pair.a, ends.pair.b);
    for (unsigned i = 1; i <= 3; i++) {
        rg_resumable_drop(i % 2 ? ends.pair.a : ends.pair.b);
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

/* No new link: calls that wait return when the patience has ended, and the connection is over. */
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
    rg_resumable_drop(ends.pair.a);
    CHECK(rg_conn_recv(ends.pair.a, -1, &message) != RG_OK);
    CHECK(rg_now_ns() - since >= 250000000ull);
    CHECK(send_bytes(ends.pair.a, "x", 1, NULL, 0) != RG_OK);
    CHECK(atomic_load(&ends.a.gave_up) == 1);
    pair_close(&ends.pair);
}

/*
 * Refused: at once. Final, or left by the peer: also, where there is something to read before, and where a
 * send fails first.
 */
static void test_ends(void)
{
    for (int round = 0; round < 1000;
         round++) { /* at the end both threads look at what failed: the last way many times */
        const int how = round < 4 ? round : 4;
        struct ends ends;
        struct rg_message message;
        ends_open(&ends, "", 0, 60000000000ull);
        expect_good(ends.pair.a, ends.pair.b);
        const uint64_t since = rg_now_ns();
        if (how == 0) {
            atomic_store(&ends.a.refuses, true);
            rg_resumable_drop(ends.pair.a);
        } else if (how == 1) {
            rg_resumable_set_final(ends.pair.a);
            rg_conn_interrupt(ends.pair.b);
        } else {
            if (how > 2)
                CHECK_OK(send_bytes(ends.pair.b, "x", 1, NULL, 0));
            rg_resumable_goaway(ends.pair.b);
            rg_conn_interrupt(ends.pair.b);
            while (how > 3 && send_bytes(ends.pair.a, "x", 1, NULL, 0) == RG_OK)
                ;
            if (how == 3)
                poll(NULL, 0, 100); /* for the reconnector, who finds the end before anybody reads */
        }
        while (rg_conn_recv(ends.pair.a, -1, &message) == RG_OK)
            ;
        CHECK(rg_now_ns() - since < 20000000000ull);
        CHECK(atomic_load(&ends.a.resumed) == 0);
        pair_close(&ends.pair);
    }
}

/* --- beside a control connection: links as those over RDMA, which have no descriptor and know no end but a loss --- */

struct blunt {
    struct rg_conn head;
    struct rg_conn *next;
    atomic_bool has_credit;
};

static bool blunt_has_credit(struct rg_conn *conn)
{
    return atomic_load(&((struct blunt *)conn)->has_credit);
}

static enum rg_status blunt_send(struct rg_conn *conn, struct rg_send *message)
{
    return rg_conn_send(((struct blunt *)conn)->next, message);
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
    struct rg_conn *conn, *control_conn;
    int between_ms; /* the two ends */
};

/* Says that it leaves, and is gone, as a program that exits. */
static void *leave_soon(void *arg)
{
    const struct leaver *leaver = arg;
    const struct rg_resumable_header header = {.kind = RG_RESUMABLE_GOAWAY};
    poll(NULL, 0, 50);
    CHECK_OK(send_bytes(leaver->conn, &header, sizeof header, NULL, 0));
    rg_conn_destroy(leaver->conn);
    poll(NULL, 0, leaver->between_ms);
    rg_conn_destroy(leaver->control_conn);
    return NULL;
}

/* The peer has left, and its machine has ended the control connection: nobody waits for it to come back. */
static void test_left_with_tether(void)
{
    for (int between_ms = 0; between_ms <= 100; between_ms += 50) {
        struct pair pair = pair_open("mem:resumable", "", RG_WAIT_AUTO);
        struct pair tethers = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
        struct blunt blunt = {.head.ops = &blunt_ops, .next = pair.b};
        struct end end = {.waits = true};
        const struct rg_resumable_options options = {
            .user = &end, .patience_ns = 3000000000ull, .renew = renew, .report = report};
        struct rg_conn *conn = rg_resumable_create(&blunt.head, tethers.b, &options);
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

/* Ends the control connection or the link of a connection, as the end of its process does. */
static void end_inside(struct rg_conn *conn, bool control_conn)
{
    struct rg_resumable *inside = (struct rg_resumable *)(void *)conn;
    pthread_mutex_lock(&inside->lock);
    struct rg_conn *ended = control_conn ? inside->control_conn : inside->link;
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
 * Who says that it leaves and whose control connection then ends is not waited for, though nothing is seen of
 * the link's end: whether somebody receives or nobody. Without the word it is waited for: it may come back.
 */
static void test_tethered_ends(void)
{
    enum { ALONE, RECEIVING, WITHOUT_A_WORD, ROUNDS };
    for (int round = 0; round < ROUNDS; round++) {
        struct ends ends;
        struct pair control_conn;
        pthread_t receiver;
        tethered_open(&ends, &control_conn, "", 0, "", "");
        expect_good(ends.pair.a, ends.pair.b);
        atomic_store(&ends.a.refuses, true); /* it does not come back, whatever happens */
        if (round == RECEIVING)
            CHECK(pthread_create(&receiver, NULL, receive_end, ends.pair.b) == 0);
        if (round != WITHOUT_A_WORD)
            rg_resumable_goaway(ends.pair.a);
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
        rg_listener_destroy(control_conn.listener);
    }
}

/*
 * Who has said so and loses the link all the same goes on, and says it again: then its end by the new one is
 * known as meant.
 */
static void test_leaves_again(void)
{
    struct ends ends;
    struct pair control_conn;
    struct rg_message message;
    tethered_open(&ends, &control_conn, "", 0, "", "");
    rg_resumable_goaway(ends.pair.a);
    rg_resumable_drop(ends.pair.b);
    while (!atomic_load(&ends.a.resumed) || !atomic_load(&ends.b.resumed))
        poll(NULL, 0, 1);
    CHECK_OK(send_bytes(ends.pair.a, "x", 1, NULL, 0));
    CHECK_OK(rg_conn_recv(ends.pair.b, -1, &message));
    atomic_store(&ends.a.refuses, true);
    end_inside(ends.pair.a, false);
    CHECK(rg_conn_recv(ends.pair.b, -1, &message) != RG_OK);
    CHECK(atomic_load(&ends.b.lost) == 0 && atomic_load(&ends.b.gave_up) == 0);
    pair_close(&ends.pair);
    rg_listener_destroy(control_conn.listener);
}

/* Nobody here waits until the peer takes an acknowledgement; it is sent once that can be done at once. */
static void test_acknowledges_with_credit(void)
{
    enum { BULK = 100000, MESSAGES = 10 };
    struct pair pair = pair_open("mem:resumable", "", RG_WAIT_AUTO);
    struct blunt blunt = {.head.ops = &blunt_ops, .next = pair.b};
    struct end end = {.waits = true};
    const struct rg_resumable_options options = {
        .user = &end, .patience_ns = 3000000000ull, .renew = renew, .report = report};
    struct rg_conn *conn = rg_resumable_create(&blunt.head, NULL, &options);
    const struct rg_resumable_header header = {.kind = RG_RESUMABLE_DATA},
                                     question = {.kind = RG_RESUMABLE_ACK};
    struct rg_resumable_header ack;
    struct rg_message message;
    unsigned char *bulk = calloc(1, BULK);
    CHECK(conn && bulk);
    for (int i = 0; i < MESSAGES; i++) {
        CHECK_OK(send_bytes(pair.a, &header, sizeof header, bulk, BULK));
        CHECK_OK(rg_conn_recv(conn, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(conn, bulk, BULK));
        CHECK_OK(send_bytes(pair.a, &question, sizeof question, NULL, 0));
        CHECK_STATUS(rg_conn_recv(conn, 0, &message), RG_ERR_TIMEOUT);
        CHECK_STATUS(rg_conn_recv(pair.a, 50, &message), RG_ERR_TIMEOUT);
    }
    atomic_store(&blunt.has_credit, true);
    CHECK_OK(rg_conn_recv(pair.a, -1, &message));
    CHECK(message.size == sizeof ack);
    memcpy(&ack, message.data, sizeof ack);
    CHECK(ack.kind == RG_RESUMABLE_ACK && ack.received == MESSAGES);
    rg_conn_destroy(conn);
    rg_conn_destroy(pair.a);
    rg_listener_destroy(pair.listener);
    free(bulk);
}

/* What has come is acknowledged by a message that is sent anyway, when the peer asks, or when it is much. */
static void test_acknowledges_when_asked(void)
{
    enum { BULK = 200000 };
    static unsigned char bulk[BULK];
    struct pair pair = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_resumable_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    const struct rg_resumable_header header = {.kind = RG_RESUMABLE_DATA},
                                     question = {.kind = RG_RESUMABLE_ACK};
    struct rg_message message;
    unsigned sent = 0;
    CHECK((pair.a = rg_resumable_create(pair.a, NULL, &options)) != NULL);
    for (int i = 0; i < 3; i++, sent++) {
        CHECK_OK(send_bytes(pair.b, &header, sizeof header, bulk, BULK));
        CHECK_OK(rg_conn_recv(pair.a, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(pair.a, NULL, BULK));
    }
    CHECK_STATUS(rg_conn_recv(pair.b, 50, &message), RG_ERR_TIMEOUT);
    for (int i = 0; i < 2; i++) { /* the second time there is nothing to tell */
        CHECK_OK(send_bytes(pair.b, &question, sizeof question, NULL, 0));
        CHECK_STATUS(rg_conn_recv(pair.a, 50, &message), RG_ERR_TIMEOUT);
        if (i == 0)
            CHECK(receive_word(pair.b) == sent);
    }
    CHECK_STATUS(rg_conn_recv(pair.b, 50, &message), RG_ERR_TIMEOUT);
    for (size_t bytes = 0; bytes < RG_RESUMABLE_ACK_BYTES; bytes += BULK, sent++) {
        CHECK_OK(send_bytes(pair.b, &header, sizeof header, bulk, BULK));
        CHECK_OK(rg_conn_recv(pair.a, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(pair.a, NULL, BULK));
    }
    CHECK(receive_word(pair.b) == sent);
    CHECK_STATUS(rg_conn_recv(pair.b, 50, &message), RG_ERR_TIMEOUT);
    pair_close(&pair);
}

/* Waits in both calls end with an interrupt, also between two links. */
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
    rg_listener_interrupt(ends.pair.listener); /* no link is accepted any more */
    rg_resumable_drop(ends.pair.a);
    CHECK(pthread_create(&thread, NULL, interrupt_soon, ends.pair.a) == 0);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, -1, &message), RG_ERR_CLOSED);
    CHECK_STATUS(send_bytes(ends.pair.a, "x", 1, NULL, 0), RG_ERR_CLOSED);
    CHECK(pthread_join(thread, NULL) == 0);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* Timeouts hold while there is no link. */
static void test_timeouts(void)
{
    struct ends ends;
    struct rg_message message;
    ends_open(&ends, "", 0, 60000000000ull);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 20, &message), RG_ERR_TIMEOUT);
    rg_listener_interrupt(ends.pair.listener);
    rg_resumable_drop(ends.pair.a);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, 20, &message), RG_ERR_TIMEOUT);
    rg_conn_interrupt(ends.pair.a);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* --- a hostile peer --- */

static void test_violations(void)
{
    const struct rg_resumable_header bad[] = {
        {.kind = RG_RESUMABLE_DATA, .received = 1}, /* nothing was sent */
        {.kind = RG_RESUMABLE_DATA, .reserved = 1}, /* not known */
        {.kind = 77},                               /* not known */
        {.kind = RG_RESUMABLE_ACK, .received = 1u << 31},
    };
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        struct pair pair = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
        struct end end = {.listener = pair.listener, .filters = "", .connects = true};
        const struct rg_resumable_options options = {
            .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
        struct rg_message message;
        CHECK((pair.a = rg_resumable_create(pair.a, NULL, &options)) != NULL);
        if (i < sizeof bad / sizeof *bad)
            CHECK_OK(send_bytes(pair.b, &bad[i], sizeof bad[i], NULL, 0));
        else
            CHECK_OK(send_bytes(pair.b, "short", 5, NULL, 0));
        CHECK_STATUS(rg_conn_recv(pair.a, -1, &message), RG_ERR_PROTOCOL);
        CHECK_STATUS(send_bytes(pair.a, "x", 1, NULL, 0), RG_ERR_PROTOCOL);
        pair_close(&pair);
    }
}

/*
 * A peer that reads and never says so: what is kept for it takes no more memory than it may, however small
 * the messages.
 */
static void test_never_acknowledged(void)
{
    struct pair pair = pair_open("mem:resumable", "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_resumable_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    struct rg_message message;
    pair.a->caps |= RG_CAP_DELIVERS;
    CHECK((pair.a = rg_resumable_create(pair.a, NULL, &options)) != NULL);
    CHECK(!(rg_conn_caps(pair.a) & RG_CAP_DELIVERS)); /* what it does not pass on */
    const struct rg_resumable *inside = (const struct rg_resumable *)(const void *)pair.a;
    const long long before = (long long)mallinfo2().uordblks; /* with a sanitizer's allocator: 0 */
    for (unsigned i = 0; i < 20000; i++) {
        CHECK_OK(send_bytes(pair.a, "0123456789", 10, NULL, 0));
        CHECK_OK(rg_conn_recv(pair.b, -1, &message));
    }
    CHECK((long long)inside->queued_bytes >= (long long)mallinfo2().uordblks - before - (1 << 20));
    pair_close(&pair);
}

/* --- whether the peer has gone, or something between has cut the link -------------------------------------- */

enum control_is { ABSENT, OPEN, CLOSED, RESET, CLOSED_BEFORE };

/* Until the control connection is seen to have ended, which is as if it had been 10 s `before`, or when the link is lost. */
static void await_control_end(struct rg_conn *conn, bool before)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    bool ended = false;
    while (!ended) {
        (void)poll(NULL, 0, 1);
        pthread_mutex_lock(&c->lock);
        ended = c->control_ended_ns != 0;
        if (ended && before)
            c->control_ended_ns -= 10000000000u;
        else if (ended)
            c->control_ended_ns += 3600000000000u; /* how long ever this takes */
        pthread_mutex_unlock(&c->lock);
    }
}

/* What is known of the peer when a link beside such a control connection is lost, twice. */
static void expect_peer(enum control_is how, enum rg_resumable_peer peer)
{
    struct ends ends;
    struct pair control_conn = {0};
    ends_open(&ends, "", 0, 30000000000ull);
    if (how != ABSENT) {
        control_conn = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
        rg_resumable_set_control(ends.pair.b, control_conn.b);
        control_conn.b = NULL;
    }
    if (how == RESET)
        rg_conn_reset(control_conn.a);
    if (how >= CLOSED) {
        rg_conn_destroy(control_conn.a);
        control_conn.a = NULL;
        await_control_end(ends.pair.b, how == CLOSED_BEFORE);
    }
    for (unsigned i = 1; i <= 2; i++) {
        rg_resumable_drop(ends.pair.b);
        while (atomic_load(&ends.a.resumed) < i || atomic_load(&ends.b.resumed) < i)
            (void)poll(NULL, 0, 1);
        CHECK(atomic_load(&ends.b.peer) == (int)peer);
    }
    expect_good(ends.pair.a, ends.pair.b);
    pair_close(&ends.pair);
    if (how != ABSENT)
        pair_close(&control_conn);
}

static void test_control_beside(void)
{
    expect_peer(ABSENT, RG_PEER_UNKNOWN);
    expect_peer(OPEN, RG_PEER_LIVES);
    expect_peer(CLOSED, RG_PEER_GONE);
    expect_peer(RESET, RG_PEER_LIVES);
    expect_peer(CLOSED_BEFORE, RG_PEER_UNKNOWN);
}

/* A message that could not be sent with what is added to it is refused, and nothing happened. */
static void test_too_large(void)
{
    struct ends ends;
    ends_open(&ends, "", 0, 60000000000ull);
    static unsigned char data[RG_MESSAGE_MAX];
    CHECK_STATUS(send_bytes(ends.pair.a, data, sizeof data, NULL, 0), RG_ERR_INVALID);
    CHECK_OK(send_bytes(ends.pair.a, data, sizeof data - RG_RESUMABLE_HEADER, NULL, 0));
    struct rg_message message;
    CHECK_OK(rg_conn_recv(ends.pair.b, -1, &message));
    CHECK(message.size == sizeof data - RG_RESUMABLE_HEADER);
    pair_close(&ends.pair);
}

int main(void)
{
    test_begin();
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
    RUN(test_acknowledges_when_asked);
    RUN(test_tethered_ends);
    RUN(test_leaves_again);
    RUN(test_violations);
    RUN(test_never_acknowledged);
    RUN(test_control_beside);
    RUN(test_too_large);
    return 0;
}
