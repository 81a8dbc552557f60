/*
 * answers.c - what calls say of how far the device is must be true: threads put work into streams of all kinds, record and
 * await events, and ask. Each piece of work counts for its stream; whatever is said to be done must have been counted, with
 * all that came before it in its stream, by events, and by the legacy default stream, which waits for blocking streams and
 * they for it. Questions that are asked again must be answered with yes in the end.
 *
 *   answers ROUNDS
 */
#include "must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, CREATED = 5, BLOCKING = 3, LEGACY = CREATED, OWN, STREAMS = OWN + THREADS, EVENTS = 8 };

/* How much work of each stream is done at least. */
struct done {
    unsigned of[STREAMS];
};

static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry count(.param .u64 at, .param .u32 loops)\n{\n"
    ".reg .u64 %a<3>;\n.reg .u32 %r<5>;\n.reg .pred %p;\n"
    "ld.param.u64 %a1, [at];\nld.param.u32 %r1, [loops];\ncvta.to.global.u64 %a2, %a1;\n"
    "again:\nsetp.eq.u32 %p, %r1, 0;\n@%p bra out;\nsub.u32 %r1, %r1, 1;\nld.volatile.global.u32 %r2, "
    "[%a2];\n"
    "bra again;\nout:\natom.global.add.u32 %r3, [%a2], 1;\nret;\n}\n";

static CUcontext context;
static CUfunction count;
static CUdeviceptr counters, passing;
static CUstream streams[CREATED]; /* the first BLOCKING of them wait for the legacy default stream */
static CUevent events[EVENTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct done at_end[STREAMS], recorded[EVENTS];
static unsigned put[STREAMS];
static int wrong, rounds;

static bool waits_for_legacy(int stream)
{
    return stream < BLOCKING || stream >= OWN;
}

static CUstream handle_of(int stream)
{
    return stream < CREATED ? streams[stream] : stream == LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

static void after(struct done *done, const struct done *what)
{
    for (int i = 0; i < STREAMS; i++)
        if (done->of[i] < what->of[i])
            done->of[i] = what->of[i];
}

/* What comes next in the stream comes after this. The lock is held. */
static void order(int stream)
{
    if (stream == LEGACY)
        for (int i = 0; i < STREAMS; i++)
            if (waits_for_legacy(i))
                after(&at_end[LEGACY], &at_end[i]);
    if (waits_for_legacy(stream))
        after(&at_end[stream], &at_end[LEGACY]);
}

/* --- what a thread does ---------------------------------------------------------------------------------------------- */

struct thread {
    int number;
    uint64_t random;
    CUstream look; /* for looking at the counters */
};

static unsigned choose(struct thread *thread, unsigned n)
{
    thread->random = thread->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(thread->random >> 33) % n;
}

static int any_stream(struct thread *thread)
{
    const int stream = (int)choose(thread, OWN + 1);
    return stream == OWN ? OWN + thread->number : stream;
}

static void work(struct thread *thread, int stream)
{
    CUdeviceptr at = counters + 4u * (unsigned)stream;
    unsigned loops = choose(thread, 4) ? 0 : choose(thread, 20000);
    void *parameters[] = {&at, &loops};
    order(stream);
    CHECK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, handle_of(stream), parameters, NULL));
    at_end[stream].of[stream] = ++put[stream];
}

/* Says so, if what is said to be done is not. */
static void verify(struct thread *thread, const struct done *done, const char *call)
{
    unsigned seen[STREAMS];
    CHECK(cuMemcpyDtoHAsync_v2(seen, counters, sizeof seen, thread->look));
    CHECK(cuStreamSynchronize(thread->look));
    for (int i = 0; i < STREAMS; i++)
        if (seen[i] < done->of[i]) {
            pthread_mutex_lock(&lock);
            if (wrong++ < 10)
                printf("after %s, stream %d has done %u of %u\n", call, i, seen[i], done->of[i]);
            pthread_mutex_unlock(&lock);
        }
}

static struct done snapshot(const struct done *of)
{
    pthread_mutex_lock(&lock);
    const struct done done = *of;
    pthread_mutex_unlock(&lock);
    return done;
}

static void ask_stream(struct thread *thread, int stream)
{
    const struct done done = snapshot(&at_end[stream]);
    const CUresult result = cuStreamQuery(handle_of(stream));
    if (result == CUDA_SUCCESS)
        verify(thread, &done, "cuStreamQuery");
    else if (result != CUDA_ERROR_NOT_READY)
        CHECK(result);
}

static void ask_event(struct thread *thread, int event)
{
    const struct done done = snapshot(&recorded[event]);
    const CUresult result = cuEventQuery(events[event]);
    if (result == CUDA_SUCCESS)
        verify(thread, &done, "cuEventQuery");
    else if (result != CUDA_ERROR_NOT_READY)
        CHECK(result);
}

/* Nobody else uses the thread's own stream: what is in it is done some time. */
static void ask_until_done(struct thread *thread)
{
    const time_t end = time(NULL) + 60;
    const struct done done = snapshot(&at_end[OWN + thread->number]);
    while (cuStreamQuery(CU_STREAM_PER_THREAD) != CUDA_SUCCESS)
        if (usleep(100) != 0 || time(NULL) > end)
            must(CUDA_ERROR_LAUNCH_TIMEOUT, "cuStreamQuery, again and again");
    verify(thread, &done, "cuStreamQuery of the own stream");
}

/* One after another, as many programs do. */
static void await_all(struct thread *thread)
{
    for (int stream = 0; stream < CREATED; stream++) {
        const struct done done = snapshot(&at_end[stream]);
        CHECK(cuStreamSynchronize(streams[stream]));
        verify(thread, &done, "cuStreamSynchronize of one of all");
    }
}

/* A stream that is gone soon, while other threads may be waiting. */
static void passing_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8Async(passing, 1, 4096, stream));
    CHECK(cuStreamDestroy_v2(stream));
}

static void step(struct thread *thread)
{
    const int stream = any_stream(thread), event = (int)choose(thread, EVENTS);
    struct done done;
    float ms;
    switch (choose(thread, 18)) {
    default:
        pthread_mutex_lock(&lock);
        work(thread, stream);
        pthread_mutex_unlock(&lock);
        break;
    case 5:
    case 6:
        pthread_mutex_lock(&lock);
        order(stream);
        CHECK(cuEventRecord(events[event], handle_of(stream)));
        recorded[event] = at_end[stream];
        pthread_mutex_unlock(&lock);
        break;
    case 7:
        pthread_mutex_lock(&lock); /* if the event has come already, nothing is put into the stream */
        CHECK(cuStreamWaitEvent(handle_of(stream), events[event], 0));
        after(&at_end[stream], &recorded[event]);
        pthread_mutex_unlock(&lock);
        break;
    case 8:
    case 9:
        ask_stream(thread, stream);
        break;
    case 10:
    case 11:
        ask_event(thread, event);
        break;
    case 12:
        done = snapshot(&recorded[event]);
        CHECK(cuEventSynchronize(events[event]));
        verify(thread, &done, "cuEventSynchronize");
        (void)cuEventElapsedTime(&ms, events[0], events[event]); /* may not be there yet */
        break;
    case 13:
        done = snapshot(&at_end[stream]);
        CHECK(cuStreamSynchronize(handle_of(stream)));
        verify(thread, &done, "cuStreamSynchronize");
        break;
    case 14:
        ask_until_done(thread);
        break;
    case 15:
        await_all(thread);
        break;
    case 16:
    case 17:
        passing_stream();
        break;
    }
}

static void *run(void *argument)
{
    struct thread *thread = argument;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&thread->look, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < rounds; i++)
        step(thread);
    CHECK(cuStreamDestroy_v2(thread->look));
    return NULL;
}

int main(int argc, char **argv)
{
    CUmodule module;
    pthread_t threads[THREADS];
    struct thread state[THREADS];
    unsigned seen[STREAMS];
    rounds = argc > 1 ? atoi(argv[1]) : 300;
    context = use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuMemAlloc_v2(&counters, sizeof seen));
    CHECK(cuMemsetD8_v2(counters, 0, sizeof seen));
    CHECK(cuMemAlloc_v2(&passing, 4096));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < CREATED; i++)
        CHECK(cuStreamCreate(&streams[i], i < BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < EVENTS; i++)
        CHECK(cuEventCreate(&events[i], i % 2 ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
    for (int i = 0; i < THREADS; i++) {
        state[i] = (struct thread){.number = i, .random = 1234567u * (unsigned)(i + 1)};
        if (pthread_create(&threads[i], NULL, run, &state[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(seen, counters, sizeof seen));
    printf("%d answers were wrong, all that was put is done: %d\n", wrong,
           memcmp(seen, put, sizeof seen) == 0);
    return 0;
}
