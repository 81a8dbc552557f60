/*
 * memory.c - connections that outlive their links, and memory of their users: what is held until it is acknowledged, and what is
 * registered with a link that is lost and had again.
 */
#include "transport/memory.h"
#include "tests/transport/resumable/ends.h"
#include "transport/connect/connect.h"
#include "transport/state.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>

/* --- held memory --- */

enum { HELD = 200000 };

static uint64_t bytes_kept(const struct rg_conn *conn)
{
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(conn, &statistics);
    return statistics.bulk_kept;
}

static void *take_one(void *conn)
{
    struct rg_message message;
    CHECK_OK(rg_conn_recv(conn, -1, &message));
    CHECK_OK(rg_conn_recv_bulk(conn, NULL, message.bulk_size));
    return NULL;
}

static enum rg_status send_held(struct rg_conn *conn, unsigned char *bulk, uint64_t seed,
                                struct rg_lease *hold)
{
    unsigned char msg[16];
    const struct iovec part = {msg, sizeof msg};
    const struct iovec data[2] = {{bulk, HELD / 2}, {bulk + HELD / 2, HELD - HELD / 2}};
    pattern_fill(msg, sizeof msg, seed);
    pattern_fill(bulk, HELD, seed + 1);
    return rg_conn_send(
        conn, &(struct rg_send){.msg = &part, .n_msg = 1, .bulk = data, .n_bulk = 2, .lease = hold});
}

/*
 * What is held is copied when its end comes before the acknowledgement, and then alone; nothing is with it.
 */
static void test_held_until_acknowledged(void)
{
    static unsigned char bulk[3 * HELD];
    struct pair pair = pair_open("mem:held", "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_resumable_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    struct rg_lease holds[3] = {0};
    struct rg_message message;
    CHECK((pair.a = rg_resumable_create(pair.a, NULL, &options)) != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(rg_lease_ended(&holds[i]));
        CHECK_OK(send_held(pair.a, bulk + i * HELD, 2 * (unsigned)i, &holds[i]));
        CHECK(!rg_lease_ended(&holds[i]));
        CHECK_OK(rg_conn_recv(pair.b, -1, &message));
        CHECK_OK(rg_conn_recv_bulk(pair.b, NULL, HELD));
    }
    const struct rg_resumable_header ack = {.kind = RG_RESUMABLE_ACK, .received = 2};
    CHECK_OK(send_bytes(pair.b, &ack, sizeof ack, NULL, 0));
    CHECK_STATUS(rg_conn_recv(pair.a, 0, &message), RG_ERR_TIMEOUT);
    CHECK(rg_lease_ended(&holds[0]) && rg_lease_ended(&holds[1]) && !rg_lease_ended(&holds[2]));
    rg_lease_end(&holds[0]);
    rg_lease_end(&holds[1]);
    CHECK(bytes_kept(pair.a) == 0);
    rg_lease_end(&holds[2]);
    CHECK(rg_lease_ended(&holds[2]) && bytes_kept(pair.a) == HELD);
    CHECK_OK(send_bytes(pair.a, "x", 1, bulk, HELD)); /* what nobody holds */
    CHECK(bytes_kept(pair.a) == 2 * HELD);
    pair_close(&pair);
}

/* Who wants much memory back asks for the acknowledgement; little is copied sooner. */
static void test_asks_for_held(void)
{
    enum { LITTLE = 100000, MUCH = 1 << 20 };
    static unsigned char bulk[MUCH];
    struct pair pair = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
    struct end end = {.listener = pair.listener, .filters = "", .connects = true};
    const struct rg_resumable_options options = {
        .user = &end, .patience_ns = 60000000000ull, .renew = renew, .report = report};
    const struct iovec msg = {(void *)(uintptr_t) "x", 1};
    struct rg_message message;
    CHECK((pair.a = rg_resumable_create(pair.a, NULL, &options)) != NULL);
    for (int i = 0; i < 2; i++) {
        const struct iovec data = {bulk, i ? MUCH : LITTLE};
        struct rg_lease lease = {0};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, take_one, pair.b) == 0);
        CHECK_OK(rg_conn_send(
            pair.a, &(struct rg_send){.msg = &msg, .n_msg = 1, .bulk = &data, .n_bulk = 1, .lease = &lease}));
        CHECK(pthread_join(thread, NULL) == 0);
        rg_lease_end(&lease);
        CHECK(rg_lease_ended(&lease));
        if (i)
            CHECK(receive_word(pair.b) == 0);
        else
            CHECK_STATUS(rg_conn_recv(pair.b, 50, &message), RG_ERR_TIMEOUT);
    }
    pair_close(&pair);
}

/* What is sent again comes from where it is held, and where it is held no more from the copy. */
static void test_held_and_sent_again(void)
{
    unsigned char *bulk = malloc(HELD);
    for (int round = 0; round < 3; round++) {
        struct ends ends;
        struct rg_lease hold = {0};
        ends_open(&ends, "", 0, 30000000000ull);
        atomic_store(&ends.a.waits, true);
        CHECK_OK(send_held(ends.pair.a, bulk, 77, round == 2 ? &rg_lease_until_reply : &hold));
        rg_resumable_drop(ends.pair.a);
        CHECK(bytes_kept(ends.pair.a) == 0);
        if (round == 1)
            rg_lease_end(&hold);
        else if (round == 2)
            rg_conn_unregister(ends.pair.a, bulk);
        if (round)
            memset(bulk, 0xee, HELD);
        CHECK(bytes_kept(ends.pair.a) == (round ? HELD : 0));
        atomic_store(&ends.a.waits, false);
        expect_pattern(ends.pair.b, 16, HELD, 77);
        rg_lease_end(&hold);
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
    CHECK_OK(send_held(ends.pair.a, bulk, 77, &rg_lease_until_reply));
    rg_resumable_drop(ends.pair.a);
    CHECK(munmap(bulk, 1 << 20) == 0);
    atomic_store(&ends.a.waits, false);
    CHECK_STATUS(rg_conn_recv(ends.pair.a, -1, &message), RG_ERR_LOST);
    rg_conn_interrupt(ends.pair.b);
    pair_close(&ends.pair);
}

/* --- a link that registers memory is lost, and is had again ---------------------------------------------- */

static atomic_uint registrations;

static enum rg_status count_registration(struct rg_conn *conn, void *base, size_t size)
{
    (void)conn, (void)base;
    CHECK(size == sizeof registrations);
    atomic_fetch_add(&registrations, 1);
    return RG_OK;
}

static void forget_registration(struct rg_conn *conn, void *base)
{
    (void)conn, (void)base;
    atomic_fetch_sub(&registrations, 1);
}

/* Makes a link count what is registered with it. */
static void count_registrations(struct rg_conn *link)
{
    static struct rg_transport_ops counting;
    counting = *link->ops;
    counting.register_memory = count_registration;
    counting.unregister_memory = forget_registration;
    link->ops = &counting;
    atomic_store(&registrations, 0);
}

static struct rg_conn *link_of(struct rg_conn *conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    pthread_mutex_lock(&c->lock);
    struct rg_conn *link = c->state == RG_RESUMABLE_UP ? c->link : NULL;
    pthread_mutex_unlock(&c->lock);
    return link;
}

/* Gives up the links of both ends, and waits for the next. */
static void next_links(struct ends *ends)
{
    const unsigned before = atomic_load(&ends->a.resumed), before_there = atomic_load(&ends->b.resumed);
    rg_resumable_drop(ends->pair.a);
    while (atomic_load(&ends->a.resumed) == before || atomic_load(&ends->b.resumed) == before_there)
        (void)poll(NULL, 0, 1);
}

/* Until the link has all that is registered. */
static void await_registered(struct rg_conn *conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    bool has_all = false;
    while (!has_all) {
        (void)poll(NULL, 0, 1);
        pthread_mutex_lock(&c->lock);
        has_all = c->registered_epoch == c->epoch;
        pthread_mutex_unlock(&c->lock);
    }
}

/*
 * From one without a descriptor and with a control connection to TCP, and back to another such: messages arrive, in order,
 * once; what is registered is so with each link that registers, also what was while none did; and the control
 * connection is the new one.
 */
static void test_back_to_the_better_link(void)
{
    static unsigned here, meanwhile;
    struct pair control_conn, better, better_control;
    struct rg_message message;
    struct ends ends;
    tethered_open(&ends, &control_conn, "", 0, "", "");
    count_registrations(link_of(ends.pair.a));
    CHECK_OK(rg_conn_register(ends.pair.a, &here, sizeof here));
    CHECK(atomic_load(&registrations) == 1);
    run_between(&ends, 200, 1);
    next_links(&ends);
    CHECK(rg_conn_fd(link_of(ends.pair.a)) >= 0);
    CHECK_OK(rg_conn_register(ends.pair.a, &meanwhile, sizeof meanwhile));
    run_between(&ends, 200, 1);

    better = pair_open("mem:better", "", RG_WAIT_AUTO);
    better_control = pair_open(LASTING_ADDRESS, "", RG_WAIT_AUTO);
    count_registrations(better.a);
    ends.a.upgraded_control = better_control.a;
    ends.b.upgraded_control = better_control.b;
    atomic_store(&ends.a.upgraded, better.a);
    atomic_store(&ends.b.upgraded, better.b);
    better.a = better.b = better_control.a = better_control.b = NULL;
    next_links(&ends);
    CHECK(rg_conn_fd(link_of(ends.pair.a)) < 0);
    await_registered(ends.pair.a);
    CHECK(atomic_load(&registrations) == 2);
    run_between(&ends, 200, 1);
    rg_conn_unregister(ends.pair.a, &here);
    CHECK(atomic_load(&registrations) == 1);

    rg_resumable_goaway(ends.pair.a);
    rg_conn_destroy(ends.pair.a);
    CHECK_STATUS(rg_conn_recv(ends.pair.b, 10000, &message), RG_ERR_CLOSED);
    rg_conn_destroy(ends.pair.b);
    ends.pair.a = ends.pair.b = NULL;
    pair_close(&ends.pair);
    pair_close(&control_conn);
    pair_close(&better);
    pair_close(&better_control);
}

/*
 * The next link has what was registered, but takes no advert without a tag from who has not been told that the former
 * ones have ended.
 */
static void test_adverts_end_with_their_link(void)
{
    static unsigned char chunk[8192], tagged[8192];
    struct ends ends;
    ends_open_at(&ends, "mem:adverts", "", 0, 30000000000ull);
    CHECK_OK(rg_conn_register(ends.pair.a, chunk, sizeof chunk));
    CHECK(!rg_conn_adverts_ended(ends.pair.a));
    CHECK_OK(rg_conn_advertise(ends.pair.a, 0, 0, chunk, sizeof chunk));
    CHECK(rg_conn_has_advertised(ends.pair.b, sizeof chunk));
    rg_resumable_drop(ends.pair.b); /* a link without a descriptor: neither notices for the other */
    rg_resumable_drop(ends.pair.a);
    while (atomic_load(&ends.a.resumed) < 1 || atomic_load(&ends.b.resumed) < 1)
        (void)poll(NULL, 0, 1);
    await_registered(ends.pair.a);

    CHECK_STATUS(rg_conn_advertise(ends.pair.a, 0, 0, chunk, sizeof chunk), RG_ERR_TIMEOUT);
    CHECK_OK(rg_conn_advertise(ends.pair.a, 5, 0, tagged, sizeof tagged));
    CHECK(!rg_conn_has_advertised(ends.pair.b, sizeof chunk));
    CHECK(rg_conn_adverts_ended(ends.pair.a) && !rg_conn_adverts_ended(ends.pair.a));
    CHECK_OK(rg_conn_advertise(ends.pair.a, 0, 0, chunk, sizeof chunk));
    CHECK(rg_conn_has_advertised(ends.pair.b, sizeof chunk));
    rg_conn_withdraw(ends.pair.a, 5, tagged);
    rg_conn_unregister(ends.pair.a, chunk);
    pair_close(&ends.pair);
}

int main(void)
{
    test_begin();
    RUN(test_held_until_acknowledged);
    RUN(test_asks_for_held);
    RUN(test_held_and_sent_again);
    RUN(test_held_and_gone);
    RUN(test_back_to_the_better_link);
    RUN(test_adverts_end_with_their_link);
    return 0;
}
