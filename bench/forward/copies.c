/* copies.c - what copies of a page and of many cost, and what one thread's calls cost beside another one's copies. */
#include "bench/forward/forward.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* --- copies of a page --- */

static unsigned char small_source[SMALL], small_target[SMALL];

static void call_copy_in(void)
{
    CHECK(cuMemcpyHtoD(device_small, small_source, SMALL));
}

static void call_copy_in_synchronize(void)
{
    CHECK(cuMemcpyHtoD(device_small, small_source, SMALL));
    CHECK(cuCtxSynchronize());
}

static void call_copy_out(void)
{
    CHECK(cuMemcpyDtoH(small_target, device_small, SMALL));
}

void measure_small_copies(void)
{
    fill_random(small_source, SMALL, 4);
    repeat(call_copy_in, "copy_in_4k");
    CHECK(cuCtxSynchronize());
    repeat(call_copy_in_synchronize, "copy_in_4k_synchronize");
    repeat(call_copy_out, "copy_out_4k");
    if (memcmp(small_source, small_target, SMALL) != 0)
        fail("a copy of %d bytes to the device and back changed them", SMALL);
}

/* --- large copies --- */

static void copy_both_ways(CUdeviceptr device, unsigned char *source, unsigned char *target,
                           const char *in_name, const char *out_name)
{
    struct samples *out = &second_samples;
    for (int i = -1, n = options.quick ? 2 : 5; i < n; i++) {
        for (size_t at = 0; at < options.bulk; at += SMALL) /* so that an old copy cannot pass for this one */
            source[at] = (unsigned char)(source[at] + 1);
        const uint64_t begin = now_ns();
        CHECK(cuMemcpyHtoD(device, source, options.bulk));
        CHECK(cuCtxSynchronize());
        const uint64_t middle = now_ns();
        CHECK(cuMemcpyDtoH(target, device, options.bulk));
        const uint64_t end = now_ns();
        if (memcmp(source, target, options.bulk) != 0)
            fail("a copy of %zu bytes to the device and back changed them", options.bulk);
        if (i < 0)
            continue;
        samples_add(&samples, (double)options.bulk * 1e9 / (double)(middle - begin));
        samples_add(out, (double)options.bulk * 1e9 / (double)(end - middle));
    }
    samples_print(&samples, in_name, "B/s");
    samples_print(out, out_name, "B/s");
}

void measure_bulk_pinned(void)
{
    CUdeviceptr device;
    void *source, *target;
    CHECK(cuMemAlloc(&device, options.bulk));
    CHECK(cuMemHostAlloc(&source, options.bulk, 0));
    CHECK(cuMemHostAlloc(&target, options.bulk, 0));
    fill_random(source, options.bulk, 5);
    memset(target, 0, options.bulk);
    copy_both_ways(device, source, target, "copy_in_pinned", "copy_out_pinned");
    CHECK(cuMemFreeHost(source));
    CHECK(cuMemFreeHost(target));
    CHECK(cuMemFree(device));
}

void measure_bulk(void)
{
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, options.bulk));
    unsigned char *source = memory_of_pages(options.bulk), *target = memory_of_pages(options.bulk);
    fill_random(source, options.bulk, 5);
    copy_both_ways(device, source, target, "copy_in_pageable", "copy_out_pageable");
    CHECK(cuMemFree(device));
    munmap(source, options.bulk);
    munmap(target, options.bulk);
    measure_bulk_pinned();
}

/* --- one thread's calls beside another thread's copies --- */

struct copier {
    CUcontext context;
    CUdeviceptr device;
    unsigned char *host;
    bool out;
    atomic_bool stop;
};

static void *copy_on(void *argument)
{
    struct copier *copier = argument;
    CHECK(cuCtxSetCurrent(copier->context));
    while (!atomic_load(&copier->stop)) {
        if (copier->out)
            CHECK(cuMemcpyDtoH(copier->host, copier->device, options.bulk));
        else
            CHECK(cuMemcpyHtoD(copier->device, copier->host, options.bulk));
    }
    return NULL;
}

void measure_beside(void)
{
    struct copier copier = {.host = memory_of_pages(options.bulk)};
    CHECK(cuCtxGetCurrent(&copier.context));
    CHECK(cuMemAlloc(&copier.device, options.bulk));
    for (int out = 0; out < 2; out++) {
        pthread_t thread;
        copier.out = out;
        atomic_store(&copier.stop, false);
        if (pthread_create(&thread, NULL, copy_on, &copier) != 0)
            fail("cannot start a thread");
        compute_for(20000000);
        repeat(call_launch_synchronize, out ? "beside_copy_out" : "beside_copy_in");
        atomic_store(&copier.stop, true);
        pthread_join(thread, NULL);
    }
    CHECK(cuMemFree(copier.device));
}
