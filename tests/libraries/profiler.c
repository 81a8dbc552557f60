/*
 * profiler.c - CUPTI, by which profilers trace programs: it tells its version and the time, as frameworks want before they
 * start, and whoever wants to trace is told that it cannot be done, by an error and not by silence; the program goes on.
 */
#include "library.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

/* Of cupti.h, which toolkits keep in different places. */
int cuptiGetVersion(uint32_t *version);
int cuptiGetTimestamp(uint64_t *timestamp);
int cuptiSubscribe(void **subscriber, void (*callback)(void *, int, uint32_t, const void *), void *data);
int cuptiActivityEnable(int kind);
int cuptiActivityFlushAll(uint32_t flag);

enum { KERNELS = 3, COPIES = 1 };

static bool works = true;

static void expect(bool condition, const char *what)
{
    printf("%s: %s\n", what, condition ? "ok" : "WRONG");
    works = works && condition;
}

static void ignore(void *data, int domain, uint32_t id, const void *what)
{
    (void)data, (void)domain, (void)id, (void)what;
}

static void try_to_trace(void)
{
    void *subscriber;
    expect(cuptiSubscribe(&subscriber, ignore, NULL) != 0, "subscribing is refused");
    expect(cuptiActivityEnable(KERNELS) != 0, "tracing kernels is refused");
    expect(cuptiActivityEnable(COPIES) != 0, "tracing copies is refused");
    (void)cuptiActivityFlushAll(0);
}

int main(void)
{
    uint32_t version = 0;
    uint64_t now = 0, later = 0;
    expect(cuptiGetVersion(&version) == 0 && version > 0, "version");
    expect(cuptiGetTimestamp(&now) == 0 && cuptiGetTimestamp(&later) == 0 && now > 0 && later >= now, "time");
    try_to_trace();
    struct array array = array_random(S, 1000);
    try_to_trace(); /* now that there is a context */
    array_fetch(&array);
    MUST(cudaDeviceSynchronize());
    array_free(&array);
    return works ? 0 : 1;
}
