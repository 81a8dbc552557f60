/*
 * pools.c - what memory pools hold: how much they reserve and use, what they keep up to their release threshold and for how
 * long, and what is left of the device meanwhile.
 */
#include "must.h"

#include <stdint.h>

#define MIB      ((size_t)1 << 20)
#define KEEP_ALL UINT64_MAX

static CUstream stream;
static size_t at_first;

static unsigned long long figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

/*
 * Figures in units of MiB, but what is used, which a pool counts in units of 512 bytes. A pool takes the device's memory in units of
 * 32 MiB: what somebody else holds for a moment is rounded away.
 */
static void say(const char *when, CUmemoryPool pool)
{
    size_t available, total;
    const unsigned long long reserved = figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
                             high = figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    CHECK(cuMemGetInfo_v2(&available, &total));
    printf("%s: reserved %llu (at most %llu) MiB, used %llu (at most %llu), %zu MiB of the device\n", when,
           reserved / MIB, high / MIB, figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
           figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), (at_first - available + MIB / 2) / MIB);
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value)
{
    CHECK(cuMemPoolSetAttribute(pool, attribute, &value));
}

static void allocate_and_free(CUmemoryPool pool, size_t size, int times)
{
    CUdeviceptr memory;
    for (int i = 0; i < times; i++) {
        CHECK(cuMemAllocFromPoolAsync(&memory, size, pool, stream));
        CHECK(cuMemsetD8Async(memory, 1, size, stream));
        CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuStreamSynchronize(stream));
    }
}

static void keeps_nothing(CUmemoryPool pool)
{
    CUdeviceptr memory;
    CHECK(cuMemAllocFromPoolAsync(&memory, 1000, pool, stream));
    say("one small allocation", pool);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    say("none, after a wait", pool);
    CHECK(cuMemAllocFromPoolAsync(&memory, 40 * MIB, pool, stream));
    say("40 MiB", pool);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamSynchronize(stream)); /* which a client knows to be done */
    say("none, after two waits", pool);
    allocate_and_free(pool, 3 * MIB, 20);
    say("after 20 times 3 MiB", pool);
}

static void keeps(CUmemoryPool pool)
{
    CUdeviceptr memory, linear;
    CUevent event;
    size_t available, total;
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, KEEP_ALL);
    set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    CHECK(cuMemAllocFromPoolAsync(&memory, 70 * MIB, pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuCtxSynchronize());
    say("70 MiB kept", pool);
    set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0); /* which is no reason to give anything back */
    allocate_and_free(pool, 5 * MIB, 20);
    say("kept with another mark", pool);
    CHECK(cuMemAllocFromPoolAsync(&memory, 30 * MIB, pool, stream));
    say("30 of them used", pool);
    CHECK(cuMemPoolTrimTo(pool, 64 * MIB));
    say("trimmed to 64 MiB", pool);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    say("unused", pool);
    CHECK(cuMemPoolTrimTo(pool, 0));
    say("trimmed", pool);
    allocate_and_free(pool, 5 * MIB, 20);
    say("after 20 times 5 MiB", pool);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocFromPoolAsync(&memory, 100, pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    say("without a threshold", pool);
    CHECK(cuEventDestroy_v2(event));
    /* what a pool only holds, others get when there is nothing else */
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, KEEP_ALL);
    CHECK(cuMemAllocFromPoolAsync(&memory, 128 * MIB, pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemGetInfo_v2(&available, &total));
    CHECK(cuMemAlloc_v2(&linear, available + 64 * MIB));
    say("others have needed it", pool);
    CHECK(cuMemFree_v2(linear));
}

/* Memory that is no pool's may be freed in a stream's order, too, and is there until its turn. */
static void of_no_pool(void)
{
    CUdeviceptr memory, other;
    size_t before, during, after, total;
    unsigned char last = 0;
    CHECK(cuCtxSynchronize());
    CHECK(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < 20; i++) {
        CHECK(cuMemAlloc_v2(&memory, 64 * MIB));
        CHECK(cuMemsetD8Async(memory, (unsigned char)(i + 1), 64 * MIB, stream));
        CHECK(cuMemcpyDtoHAsync_v2(&last, memory + 64 * MIB - 1, 1, stream));
        CHECK(cuMemGetInfo_v2(&during, &total));
        printf("freed in order: %d", cuMemFreeAsync(memory, stream));
        printf(", again %d, at once %d", cuMemFreeAsync(memory, stream), cuMemFree_v2(memory));
        CHECK(cuMemAlloc_v2(&other, 100));
        CHECK(cuStreamSynchronize(stream));
        printf(", read %u, in use %zu MiB\n", last, (before - during) / MIB);
        printf("freed in order: %d\n", cuMemFreeAsync(other, NULL));
        CHECK(cuCtxSynchronize());
    }
    CHECK(cuMemGetInfo_v2(&after, &total));
    printf("left: %zu MiB\n", (before - after) / MIB);
}

/* Pools are of the device: what is allocated from them is there when the context of the stream has ended. */
static void outlives_its_context(CUmemoryPool pool)
{
    CUcontext own, ended;
    CUstream there;
    CUdeviceptr memory[2];
    CUcontext found = NULL;
    unsigned char last = 0;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuCtxCreate_v2(&ended, 0, 0));
    CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemAllocFromPoolAsync(&memory[i], MIB, pool, there));
        CHECK(cuMemsetD8Async(memory[i], (unsigned char)(i + 7), MIB, there));
    }
    CHECK(cuCtxDestroy_v2(ended));
    CHECK(cuCtxSetCurrent(own));
    printf("of an ended context: attribute %d",
           cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, memory[0]));
    printf(", copy %d", cuMemcpyDtoH_v2(&last, memory[0] + MIB - 1, 1));
    printf(" of %d, context %d", last, found != NULL);
    printf(", set %d", cuMemsetD8_v2(memory[0], 1, MIB));
    CHECK(cuCtxSynchronize());
    printf(", freed in order %d", cuMemFreeAsync(memory[0], stream));
    printf(", again %d", cuMemFreeAsync(memory[0], stream));
    printf(", at once %d", cuMemFree_v2(memory[1]));
    printf(", again %d\n", cuMemFree_v2(memory[1]));
    CHECK(cuStreamSynchronize(stream));
    say("freed", pool);
}

/* No bytes: that succeeds, whatever they are to come from, and there is nothing to free. */
static void nothing(CUmemoryPool pool, CUmemoryPool standard)
{
    CUgraph graph;
    size_t n_nodes = 99;
    CUdeviceptr memory[4] = {1, 1, 1, 1};
    CHECK(cuMemAllocAsync(&memory[0], 0, stream));
    CHECK(cuMemAllocFromPoolAsync(&memory[1], 0, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&memory[2], 0, standard, NULL));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&memory[3], 0, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &n_nodes));
    CHECK(cuGraphDestroy(graph));
    if (memory[0] || memory[1] || memory[2] || memory[3] || n_nodes)
        CHECK(CUDA_ERROR_UNKNOWN);
    printf("nothing: %d %d %d\n", cuMemAllocAsync(NULL, 0, stream),
           cuMemAllocFromPoolAsync(&memory[0], 0, NULL, stream), cuMemFreeAsync(memory[0], stream));
}

int main(void)
{
    CUdevice device;
    CUmemoryPool pool, standard;
    CUdeviceptr memory;
    size_t total;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemGetInfo_v2(&at_first, &total));
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK(cuDeviceGetDefaultMemPool(&standard, device));
    say("new", pool);
    keeps_nothing(pool);
    keeps(pool);
    outlives_its_context(pool);
    say("the default pool", standard);
    CHECK(cuMemAllocAsync(&memory, 33 * MIB, stream));
    say("the default pool, 33 MiB", standard);
    CHECK(cuMemFree_v2(memory));
    CHECK(cuCtxSynchronize());
    say("the default pool, none", standard);
    of_no_pool();
    nothing(pool, standard);
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuMemGetInfo_v2(&total, &total));
    return 0;
}
