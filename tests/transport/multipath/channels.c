/*
 * channels.c - bulk data on connections of its own, between two good ends: slow connections, order between
 * threads, further connections opened when they help, and admitted by the server.
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"
#include "transport/liveness.h"

#include "common/base/clock.h"
#include "transport/multipath/join.h"
#include "transport/multipath/wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char address[] = "127.0.0.1:0";
static const char text[16] = "\xff\xff what follows";
static unsigned char into[2 * RG_PIECE];

/* --- slow channels --- */

static void *send_some(void *arg)
{
    for (uint64_t i = 0; i < 12; i++)
        CHECK_OK(send_pattern(arg, 40, RG_BULK_MAX, i));
    return NULL;
}

/*
 * One channel is thirty times slower than the other: everything arrives, and not at the pace of the slow one.
 */
static void test_slow_lane(void)
{
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    const struct rg_multipath_options options = {.channels = 2};
    CHECK_OK(rg_multipath_wrap(pair.a, &options, &pair.a));
    CHECK_OK(rg_multipath_wrap(pair.b, &options, &pair.b));
    for (int i = 0; i < 2; i++) {
        const struct rg_transport_options way = {.filters = i ? "delay:flow=10MB" : "delay:flow=300MB",
                                                 .bulk = true};
        struct rg_conn *a, *b;
        CHECK_OK(rg_transport_connect(rg_listener_address(pair.listener), &way, NULL, 0, &a));
        CHECK_OK(rg_listener_accept(pair.listener, 5000, &b));
        CHECK_OK(rg_multipath_add(pair.a, a));
        CHECK_OK(rg_multipath_add(pair.b, b));
    }
    pthread_t thread;
    const uint64_t since = rg_now_ns();
    CHECK(pthread_create(&thread, NULL, send_some, pair.a) == 0);
    for (uint64_t i = 0; i < 12; i++)
        expect_pattern(pair.b, 40, RG_BULK_MAX, i);
    pthread_join(thread, NULL);
    printf("48 MiB by channels of 300 and 10 MB/s: %.0f ms\n", (double)(rg_now_ns() - since) / 1e6);
    pair_close(&pair);
}

/* --- a channel that is left unread --- */

/*
 * The peer takes what comes by the first connection, and nothing of the channel: that is seen once the buffers of both machines are full,
 * and no more when the peer goes on.
 */
static void test_unread_channel(void)
{
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    struct rg_liveness liveness = {0};
    struct rg_message message;
    pthread_t thread;
    pair_multipath(&pair, "", 1, RG_COMPRESS_NONE);
    for (int i = 0; i < 3; i++)
        CHECK(rg_liveness_look_at_channels(&liveness, pair.a) == 0);
    CHECK(pthread_create(&thread, NULL, send_some, pair.a) == 0);
    CHECK_OK(rg_conn_recv(pair.b, 20000, &message)); /* its head */
    CHECK(message.bulk_size == RG_BULK_MAX);
    for (unsigned stuck = 0; stuck <= RG_LIVENESS_TICKS; poll(NULL, 0, 20))
        stuck = rg_liveness_look_at_channels(&liveness, pair.a);
    for (size_t taken = 0; taken < RG_BULK_MAX; taken += sizeof into)
        CHECK_OK(rg_conn_recv_bulk(pair.b, into, sizeof into));
    for (uint64_t i = 1; i < 12; i++)
        expect_pattern(pair.b, 40, RG_BULK_MAX, i);
    pthread_join(thread, NULL);
    CHECK(rg_liveness_look_at_channels(&liveness, pair.a) == 0);
    pair_close(&pair);
}

/* --- two steps --- */

struct tail {
    struct rg_conn *conn;
    struct rg_send send;
    struct iovec bulk;
};

static void *send_tail(void *arg)
{
    struct tail *tail = arg;
    CHECK_OK(rg_conn_send_detached(tail->conn, &tail->send));
    free(tail->bulk.iov_base);
    return NULL;
}

/* Sends a message of which the bulk data may follow; whether it does. */
static bool detaches(struct rg_conn *conn, const struct iovec *message, struct tail *tail, size_t size,
                     uint64_t seed)
{
    *tail = (struct tail){.conn = conn, .bulk = {malloc(size), size}};
    CHECK(tail->bulk.iov_base);
    pattern_fill(tail->bulk.iov_base, size, seed);
    tail->send =
        (struct rg_send){.msg = message, .n_msg = 1, .bulk = &tail->bulk, .n_bulk = 1, .detachable = true};
    CHECK_OK(rg_conn_send(conn, &tail->send));
    return tail->send.detached;
}

/* Tails may be sent in any order by their threads; between them messages overtake. */
static void test_two_steps(void)
{
    enum { N = 3, SIZE = 3 * RG_PIECE / 2 };
    struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
    pair_multipath(&pair, "", 2, RG_COMPRESS_NONE);
    const struct iovec head = {(void *)(uintptr_t)text, sizeof text};
    struct tail tails[N];
    struct rg_message m;
    pthread_t threads[N];
    for (unsigned i = 0; i < N; i++)
        CHECK(detaches(pair.a, &head, &tails[i], SIZE, i));
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
    CHECK(!detaches(pair.a, &head, &tails[0], 1000, 3)); /* too little for that */
    free(tails[0].bulk.iov_base);
    CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
    CHECK(m.bulk_size == 1000);
    CHECK_OK(rg_conn_recv_bulk(pair.b, into, 1000));
    struct tail large = {.bulk = {into, RG_BULK_MAX + 1u}};
    large.send = (struct rg_send){.bulk = &large.bulk, .n_bulk = 1, .detachable = true};
    CHECK_STATUS(rg_conn_send(pair.a, &large.send), RG_ERR_INVALID);
    pair_close(&pair);
}

/* --- opening --- */

struct opener {
    struct pair *pair;
    atomic_uint asked;
    unsigned most;
};

static struct rg_conn *open_one(void *user, unsigned index)
{
    struct opener *opener = user;
    CHECK(index == atomic_load(&opener->asked));
    const struct rg_transport_options plain = {.filters = "", .bulk = true};
    struct rg_conn *a, *b;
    if (atomic_fetch_add(&opener->asked, 1) >= opener->most)
        return NULL;
    CHECK_OK(rg_transport_connect(rg_listener_address(opener->pair->listener), &plain, NULL, 0, &a));
    CHECK_OK(rg_listener_accept(opener->pair->listener, 5000, &b));
    CHECK_OK(rg_multipath_add(opener->pair->b, b));
    return a;
}

/*
 * Nothing is opened for small messages; with bulk data as many as were asked for, and after a failure no
 * more.
 */
static void test_opening(void)
{
    for (unsigned most = 0; most <= 3; most += 3) {
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        struct opener opener = {.pair = &pair, .most = most};
        const struct rg_multipath_options near = {.channels = 3, .open = open_one, .user = &opener},
                                          far = {.channels = 3};
        CHECK_OK(rg_multipath_wrap(pair.a, &near, &pair.a));
        CHECK_OK(rg_multipath_wrap(pair.b, &far, &pair.b));
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
        for (int i = 0; i < 500 && rg_multipath_channels(pair.a) < most; i++)
            poll(NULL, 0, 10);
        CHECK(rg_multipath_channels(pair.a) == most && rg_multipath_channels(pair.b) == most);
        CHECK(atomic_load(&opener.asked) == (most ? most : 1));
        pair_close(&pair);
    }
}

/* --- joining --- */

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
    joining->outcome = rg_multipath_admit(conn, &hello.client_hello, joining->token, false);
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
            rg_multipath_join(rg_listener_address(joining.listener), NULL, &hello, &conn, why, sizeof why);
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

int main(void)
{
    test_begin();
    test_slow_lane();
    test_unread_channel();
    test_two_steps();
    test_opening();
    test_joining();
    return 0;
}
