/*
 * gate.c - workers that share a device take turns: shares, caps, what is charged, and calls that need no turn. The device is a
 * fake one whose work takes real time; only proportions of its time are compared.
 */
#include "server/shares/gate/gate.h"
#include "common/base/clock.h"
#include "tests/server/raw_client.h"
#include "tests/server/shares/gate/fake_device.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>

enum { RECORDS = 64, MEMORY = 0x10000 };

#define MS 1000000ull

static struct rg_turns turns;
static uint32_t n_places;

/* The share that the next session has. rg_gate_start's function knows no session, so sessions have their own. */
#define SHARES 4
static struct rg_gate_share shares[SHARES];
static uint64_t busy[SHARES], admitted[SHARES];

#define SHARE(n)                                                                                             \
    static void share##n(struct rg_gate_share *out, uint32_t *changed)                                       \
    {                                                                                                        \
        *out = shares[n];                                                                                    \
        *changed = 1;                                                                                        \
    }                                                                                                        \
    static void counted##n(uint32_t device, const struct rg_gate_counts *counts)                             \
    {                                                                                                        \
        (void)device;                                                                                        \
        __atomic_store_n(&busy[n], counts->busy_ns, __ATOMIC_RELAXED);                                       \
        __atomic_store_n(&admitted[n], counts->admitted, __ATOMIC_RELAXED);                                  \
    }
SHARE(0)
SHARE(1)
SHARE(2)
SHARE(3)

struct session {
    struct client *c;
    uint64_t stream;
    uint64_t fill_ns;   /* of each fill */
    unsigned of_device; /* the stream there */
    pthread_t thread;
    atomic_bool over;
};

static void put_fill(struct session *session, uint32_t token)
{
    put(session->c, RG_OP_cuMemsetD8Async, 0, token, "8488", (uint64_t)MEMORY, 0, session->fill_ns,
        session->stream);
}

static struct session *begin(unsigned i, uint32_t weight, uint32_t cap_millionths)
{
    static void (*const share[])(struct rg_gate_share *, uint32_t *) = {share0, share1, share2, share3};
    static void (*const counted[])(uint32_t, const struct rg_gate_counts *) = {counted0, counted1, counted2,
                                                                               counted3};
    struct session *session = calloc(1, sizeof *session);
    CHECK(session);
    session->c = client_create();
    session->fill_ns = 200000;
    shares[i] = (struct rg_gate_share){cap_millionths, weight, RG_TURN_NORMAL};
    busy[i] = admitted[i] = 0;
    const struct rg_gate_attachment place = {&turns, n_places++};
    CHECK(rg_gate_start(session->c->worker, &place, 1, share[i], counted[i]) == RG_OK);
    session->stream = handle(RG_KIND_STREAM, 7);
    enter_context(session->c);
    CALL(session->c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 1, session->stream);
    put_fill(session, 77);
    send_batch(session->c);
    expect_reply(session->c, 77, CUDA_SUCCESS);
    session->of_device = fake_device_last();
    return session;
}

static void end(struct session *session)
{
    CHECK(client_destroy(session->c) == 0);
    free(session);
}

static uint64_t work_of(const struct session *session)
{
    return fake_device_work(session->of_device);
}

/* Keeps the device busy: as many fills as the worker takes. */
static void *saturate(void *arg)
{
    struct session *session = arg;
    /* The next batch is there before the last one is executed. */
    uint32_t batch = 1;
    for (; !atomic_load(&session->over); batch++) {
        for (unsigned i = 0; i < RECORDS; i++)
            put_fill(session, i + 1 == RECORDS ? batch : 0);
        send_batch(session->c);
        if (batch > 1)
            expect_reply(session->c, batch - 1, CUDA_SUCCESS);
    }
    if (batch > 1)
        expect_reply(session->c, batch - 1, CUDA_SUCCESS);
    return NULL;
}

static void start(struct session *session)
{
    CHECK(pthread_create(&session->thread, NULL, saturate, session) == 0);
}

static void stop(struct session *session)
{
    atomic_store(&session->over, true);
    CHECK(pthread_join(session->thread, NULL) == 0);
}

static void sleep_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

/* Waits until the device has done so much for both. */
static void wait_for_work(const struct session *a, const struct session *b, uint64_t ns)
{
    while (work_of(a) + work_of(b) < ns)
        sleep_ms(5);
}

static uint64_t charged_to(unsigned i)
{
    return __atomic_load_n(&busy[i], __ATOMIC_RELAXED);
}

static bool try_weights(void)
{
    struct session *a = begin(0, 100, 0), *b = begin(1, 300, 0);
    b->fill_ns = 2 * MS;
    start(a);
    start(b);
    wait_for_work(a, b, 300 * MS); /* they begin one after the other */
    const unsigned before = fake_device_overlaps();
    const uint64_t a0 = charged_to(0), b0 = charged_to(1), done = work_of(a) + work_of(b);
    wait_for_work(a, b, done + 1200 * MS);
    const uint64_t a1 = charged_to(0) - a0, b1 = charged_to(1) - b0;
    const double part = (double)a1 / (double)(a1 + b1);
    const unsigned overlaps = fake_device_overlaps() - before;
    printf("weights 100 and 300: %.3f of what was charged; %u overlaps\n", part, overlaps);
    stop(a);
    stop(b);
    end(a);
    end(b);
    /*
     * A quarter, where both always have something to submit, and each what it has submitted done within its turns. On a busy
     * machine threads that do not run for long lose turns. How exact it is otherwise, the simulation tells.
     */
    return part > 0.15 && part < 0.35 && overlaps < 300;
}

static void test_weights(void)
{
    bool good = false;
    for (unsigned attempt = 0; attempt < 5 && !good; attempt++)
        good = try_weights();
    CHECK(good);
}

static void test_cap(void)
{
    struct session *a = begin(0, 100, 200000);
    start(a);
    const uint64_t since = rg_now_ns();
    sleep_ms(600);
    const uint64_t work = work_of(a), passed = rg_now_ns() - since;
    printf("a cap of 20 %%: %.3f of the time\n", (double)work / (double)passed);
    CHECK(work > 0 && work < passed / 5 + 10 * MS);
    stop(a);
    end(a);
}

/* Whatever it is that gives the device work, it is counted and charged. */
static void test_all_is_charged(void)
{
    struct session *a = begin(0, 100, 900000); /* with a cap each chunk is measured */
    struct client *c = a->c;
    unsigned n = 0;
    for (unsigned i = 0; i < 40; i++) {
        put(c, RG_OP_cuMemcpyDtoDAsync_v2, 0, 0, "8888", (uint64_t)MEMORY, (uint64_t)MEMORY + 4096,
            (uint64_t)64, a->stream);
        put(c, RG_OP_cuStreamWriteValue32_v2, 0, 0, "8448", (uint64_t)MEMORY, 1, 0, a->stream);
        put_fill(a, 0);
        n += 3;
    }
    put_fill(a, 77);
    n++;
    send_batch(c);
    expect_reply(c, 77, CUDA_SUCCESS);
    while (work_of(a) < 80 * 3 * MS + 41 * a->fill_ns)
        sleep_ms(1);
    sleep_ms(20); /* the keeper has looked */
    const uint64_t work = work_of(a), charged = __atomic_load_n(&busy[0], __ATOMIC_RELAXED);
    printf("%.1f ms of work were charged as %.1f ms\n", (double)work / 1e6, (double)charged / 1e6);
    CHECK(__atomic_load_n(&admitted[0], __ATOMIC_RELAXED) == n + 1); /* and the first fill */
    CHECK(charged > work / 10 * 9);
    end(a);
}

/* A worker that dies with the turn: who waits goes on when the monitor says so. */
static void test_death(void)
{
    struct session *a = begin(0, 100, 0), *b = begin(1, 100, 0);
    start(a);
    start(b);
    for (unsigned i = 0; i < 20; i++) {
        sleep_ms(7);
        if (i == 10) {
            stop(a);
            end(a); /* it leaves as it ends, wherever its turn was */
        }
    }
    const uint64_t before = __atomic_load_n(&admitted[1], __ATOMIC_RELAXED);
    while (__atomic_load_n(&admitted[1], __ATOMIC_RELAXED) < before + 100)
        sleep_ms(1);
    stop(b);
    end(b);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    stub_driver_use(stub_succeed);
    fake_device_use(3 * MS);
    test_weights();
    test_cap();
    test_all_is_charged();
    test_death();
    return 0;
}
