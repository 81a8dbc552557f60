/*
 * completion.c - the worker says when what is watched has come, before any reply that could show it, with the times that were asked
 * for; over a driver of the test's own.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <string.h>

static atomic_uint events; /* that are there */
static CUresult event_result = CUDA_SUCCESS;
static int other_event;
static CUresult (*create_event)(CUevent *event, unsigned flags); /* the stub's */

static CUresult event_query(CUevent event)
{
    return event == (CUevent)(void *)&other_event || atomic_load(&stub_busy) ? CUDA_ERROR_NOT_READY
                                                                             : event_result;
}
static CUresult event_create(CUevent *event, unsigned flags)
{
    atomic_fetch_add(&events, 1);
    if (flags != CU_EVENT_BLOCKING_SYNC)
        return create_event(event, flags);
    *event = (CUevent)(void *)&other_event;
    return CUDA_SUCCESS;
}
static _Atomic(CUevent) waited_for; /* last */
static CUresult event_synchronize(CUevent event)
{
    atomic_store(&waited_for, event);
    return CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event)
{
    (void)event;
    atomic_fetch_sub(&events, 1);
    return CUDA_SUCCESS;
}
/* Two and five milliseconds, by the version; of an event that has ended nothing may be asked. */
static atomic_uint asked_times;
static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    CHECK(start && end && start != end);
    atomic_fetch_add(&asked_times, 1);
    *ms = 2;
    return CUDA_SUCCESS;
}
static CUresult elapsed_v2(float *ms, CUevent start, CUevent end)
{
    (void)elapsed(ms, start, end);
    *ms = 5;
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    create_event = rg_driver.cuEventCreate;
    rg_driver.cuEventQuery = event_query;
    rg_driver.cuEventCreate = event_create;
    rg_driver.cuEventSynchronize = event_synchronize;
    rg_driver.cuEventDestroy_v2 = event_destroy;
    rg_driver.cuEventElapsedTime = elapsed;
    rg_driver.cuEventElapsedTime_v2 = elapsed_v2;
}

static uint64_t event;

static struct client *begin(void)
{
    struct client *c = client_create();
    event = handle(RG_KIND_EVENT, 4);
    atomic_store(&stub_busy, true);
    enter_context(c);
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, event);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 7));
    return c;
}

/* The next message says of one watch that it has come, with that result; the time that comes with it. */
static float expect_done(struct client *c, uint64_t watch, int result)
{
    struct rg_done done;
    CHECK(receive(c, 5000));
    CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_DONE);
    CHECK(c->got.notice.arg[0] == 1 && c->got.output_size == sizeof done);
    memcpy(&done, c->got.output, sizeof done);
    CHECK(done.watch == watch && done.result == result);
    return done.ms;
}

/* Watches and waits for the event; the times since another one that come of it. */
static void expect_times(struct client *c, uint64_t since, uint32_t version, float wanted)
{
    static uint64_t watch = 1000;
    float ms;
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatchTimed, 0, 0, "8848", ++watch, since, version, event);
    send_batch(c);
    atomic_store(&stub_busy, false);
    CHECK(expect_done(c, watch, CUDA_SUCCESS) == wanted);
    CALL(c, RG_OP_rgEventWait, 0, CUDA_SUCCESS, "848", since, version, event);
    memcpy(&ms, c->got.output, sizeof ms);
    CHECK(c->got.output_size == sizeof ms && ms == wanted);
}

static void test_times(void)
{
    struct client *c = begin();
    const uint64_t start = handle(RG_KIND_EVENT, 5), none = 0;
    float ms;
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, start);
    expect_times(c, start, 1, 2);
    expect_times(c, start, 2, 5);
    const unsigned asked = atomic_load(&asked_times);
    expect_times(c, none, 2, -1);
    expect_times(c, handle(RG_KIND_EVENT, 6), 2, -1);  /* there is none */
    expect_times(c, handle(RG_KIND_STREAM, 7), 2, -1); /* no event */
    expect_times(c, UINT64_MAX, 2, -1);
    CHECK(atomic_load(&asked_times) == asked);
    /* The other one ends before this one comes; or a newer watch does not want to know. */
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatchTimed, 0, 0, "8848", (uint64_t)20, start, 2, event);
    put(c, RG_OP_cuEventDestroy_v2, 0, 0, "8", start);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)0, handle(RG_KIND_STREAM, 7));
    atomic_store(&stub_busy, false);
    CHECK(expect_done(c, 20, CUDA_SUCCESS) == -1);
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, start);
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatchTimed, 0, 0, "8848", (uint64_t)21, start, 2, event);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)22, event);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)0, handle(RG_KIND_STREAM, 7));
    atomic_store(&stub_busy, false);
    CHECK(expect_done(c, 22, CUDA_SUCCESS) == -1);
    CHECK(atomic_load(&asked_times) == asked);
    /* A failure has no time. */
    event_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    put(c, RG_OP_rgEventWatchTimed, 0, 0, "8848", (uint64_t)23, start, 2, event);
    send_batch(c);
    ms = expect_done(c, 23, CUDA_ERROR_ILLEGAL_ADDRESS);
    event_result = CUDA_SUCCESS;
    CHECK(ms == -1 && atomic_load(&asked_times) == asked);
    /* The context ends with both. */
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatchTimed, 0, 0, "8848", (uint64_t)24, start, 2, event);
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    expect_nothing(c);
    CHECK(client_destroy(c) == 0);
}

static void test_watches(void)
{
    struct client *c = begin();
    CALL(c, RG_OP_rgEventAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)11, event);
    expect_nothing(c);
    atomic_store(&stub_busy, false);
    CHECK(expect_done(c, 11, CUDA_SUCCESS) == -1);
    expect_nothing(c); /* once */
    CALL(c, RG_OP_rgEventAsk, 0, CUDA_SUCCESS, "88", (uint64_t)12, event);
    expect_nothing(c); /* the answer said it */

    /* A stream, by an event of the worker's own. */
    const unsigned before = atomic_load(&events);
    atomic_store(&stub_busy, true);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)13, handle(RG_KIND_STREAM, 7));
    CHECK(atomic_load(&events) == before + 1);
    atomic_store(&stub_busy, false);
    expect_done(c, 13, CUDA_SUCCESS);
    CHECK(atomic_load(&events) == before);

    /*
     * The same without an answer; of a default stream, and of one that has ended, the client is told that it
     * has to ask.
     */
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgStreamWatch, 0, 0, "88", (uint64_t)21, handle(RG_KIND_STREAM, 7));
    put(c, RG_OP_rgStreamWatch, 0, 0, "88", (uint64_t)22, (uint64_t)0);
    send_batch(c);
    expect_done(c, 22, CUDA_ERROR_NOT_READY);
    put(c, RG_OP_rgStreamWatch, 0, 0, "88", (uint64_t)23, handle(RG_KIND_STREAM, 77));
    send_batch(c);
    expect_done(c, 23, CUDA_ERROR_NOT_READY);
    expect_nothing(c);
    atomic_store(&stub_busy, false);
    expect_done(c, 21, CUDA_SUCCESS);
    CHECK(atomic_load(&events) == before);

    /* Default streams have an operation of their own. */
    for (uint64_t stream = 0; stream <= 2; stream += 2) {
        atomic_store(&stub_busy, true);
        put(c, RG_OP_rgDefaultStreamWatch, 0, 0, "88", 31 + stream, stream);
        send_batch(c);
        expect_nothing(c);
        atomic_store(&stub_busy, false);
        expect_done(c, 31 + stream, CUDA_SUCCESS);
    }

    /* The number of the newest watch counts; without a number nothing is watched. */
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)14, event);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)15, event);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)0, handle(RG_KIND_STREAM, 7));
    atomic_store(&stub_busy, false);
    expect_done(c, 15, CUDA_SUCCESS);
    expect_nothing(c);

    /* A failure is told as it is; an event that has ended is not watched any more. */
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)16, event);
    send_batch(c);
    event_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    atomic_store(&stub_busy, false);
    expect_done(c, 16, CUDA_ERROR_ILLEGAL_ADDRESS);
    event_result = CUDA_SUCCESS;
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)17, event);
    put(c, RG_OP_cuEventDestroy_v2, 0, 0, "8", event);
    send_batch(c);
    usleep(20000);
    atomic_store(&stub_busy, false);
    expect_nothing(c);
    CHECK(client_destroy(c) == 0);
}

/*
 * Kernels' output comes out with what is told, by waiting for an event: not for the client's, which it may have recorded again since it was
 * seen done.
 */
static void test_output(void)
{
    struct client *c = begin();
    atomic_store(&stub_busy, false);
    CALL(c, RG_OP_rgEventAsk, 0, CUDA_SUCCESS, "88", (uint64_t)1, event);
    const CUevent clients = atomic_exchange(&waited_for, NULL); /* here nobody can record it again */
    CHECK(clients);
    atomic_store(&stub_busy, true);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)2, event);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)0, handle(RG_KIND_STREAM, 7));
    CHECK(!atomic_load(&waited_for));
    atomic_store(&stub_busy, false);
    expect_done(c, 2, CUDA_SUCCESS);
    CHECK(atomic_load(&waited_for) && atomic_load(&waited_for) != clients);
    CHECK(client_destroy(c) == 0);
}

static CUresult synchronize(CUstream s)
{
    (void)s;
    atomic_store(&stub_busy, false);
    return CUDA_SUCCESS;
}

/* What a reply shows has been told before it. */
static void test_order(void)
{
    struct client *c = begin();
    rg_driver.cuStreamSynchronize = synchronize;
    for (unsigned i = 1; i <= 50; i++) {
        atomic_store(&stub_busy, true);
        put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)i, event);
        put(c, RG_OP_cuStreamSynchronize, 0, 77, "8", handle(RG_KIND_STREAM, 7));
        send_batch(c);
        expect_done(c, i, CUDA_SUCCESS);
        expect_reply(c, 77, CUDA_SUCCESS);
    }
    CHECK(client_destroy(c) == 0);
}

/* A context ends with what was watched in it, and with a stream of it. */
static void test_context_ends(void)
{
    struct client *c = begin();
    const unsigned before = atomic_load(&events);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)1, event);
    CALL(c, RG_OP_rgStreamAsk, 0, CUDA_ERROR_NOT_READY, "88", (uint64_t)2, handle(RG_KIND_STREAM, 7));
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    CHECK(atomic_load(&events) <= before + 1);
    atomic_store(&stub_busy, false);
    expect_nothing(c);
    CHECK(client_destroy(c) == 0);
}

int main(void)
{
    use_driver();
    test_watches();
    test_times();
    test_output();
    test_order();
    test_context_ends();
    return 0;
}
