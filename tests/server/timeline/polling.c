/*
 * polling.c - as many events as a session can have watched, none of which completes: who looks at them rests between two looks for
 * longer than each took, so that it has a part of a processor and not all of it.
 */
#include "common/base/clock.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <time.h>

enum { EVENTS = 4096, QUERY_NS = 400, LOOKS = 20 };

#define FIRST 0x10000u
#define STEP  64u

/* The looking thread's; `looks` last. */
static uint64_t ended, least_rest = UINT64_MAX;
static atomic_uint looks;

static CUresult create(CUevent *event, unsigned flags)
{
    static uintptr_t next = FIRST;
    (void)flags;
    *event = (CUevent)(void *)next;
    next += STEP;
    return CUDA_SUCCESS;
}

static uint64_t own_time(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Takes what it takes a driver. Looks go from the first to the last event. */
static CUresult query(CUevent event)
{
    const uint64_t began = own_time(), index = ((uintptr_t)(void *)event - FIRST) / STEP;
    if (index == 0 && ended) {
        const uint64_t rest = rg_now_ns() - ended;
        least_rest = rest < least_rest ? rest : least_rest;
        atomic_fetch_add(&looks, 1);
    }
    while (own_time() - began < QUERY_NS)
        ;
    if (index == EVENTS - 1)
        ended = rg_now_ns();
    return CUDA_ERROR_NOT_READY;
}

int main(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuEventCreate = create;
    rg_driver.cuEventQuery = query;
    struct client *c = client_create();
    enter_context(c);
    for (uint32_t i = 1; i <= EVENTS; i++) {
        put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, handle(RG_KIND_EVENT, i));
        put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)i, handle(RG_KIND_EVENT, i));
        if (i % 256 == 0)
            send_batch(c);
    }
    while (atomic_load(&looks) < LOOKS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(client_destroy(c) == 0);
    fprintf(stderr, "a look at %d events takes %.1f ms at least, the rest behind one %.1f ms\n", EVENTS,
            EVENTS * QUERY_NS / 1e6, (double)least_rest / 1e6);
    CHECK(least_rest > 2ull * EVENTS * QUERY_NS);
    return 0;
}
