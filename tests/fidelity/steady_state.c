/*
 * steady_state.c - a transcript of what programs do again and again: memory that is allocated and freed in turn, until there is
 * no more of it; events and streams that are asked whether they are done, before and after they can be; by several threads
 * and in several contexts.
 *
 * As in wrong_use.c, nothing is printed that differs between two runs. Where a stream must not be done, a host function
 * holds it until the program lets it go on.
 */
#include "must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry put(.param .u64 data, .param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<2>;\n"
                          "    .reg .u64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [data];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    cvta.to.global.u64 %rd2, %rd1;\n"
                          "    st.global.u32 [%rd2], %r1;\n"
                          "    ret;\n"
                          "}\n";

static CUcontext context;
static CUstream stream, other;
static CUmodule module;
static CUfunction function;

static CUresult put(CUdeviceptr where, unsigned value, CUstream in)
{
    void *parameters[] = {&where, &value};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

/* A host function that holds its stream until the gate is opened. */
struct gate {
    atomic_bool open, reached;
};

static void CUDA_CB wait_at(void *user)
{
    struct gate *gate = user;
    atomic_store(&gate->reached, true);
    while (!atomic_load(&gate->open))
        usleep(100);
}

/* A host function that takes a while. */
#define TAKEN_MS 2
static void CUDA_CB take_time(void *user)
{
    (void)user;
    usleep(TAKEN_MS * 1000 + 500);
}

static CUresult until_done(CUevent event)
{
    CUresult result;
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        ;
    return result;
}

static CUresult until_idle(CUstream which)
{
    CUresult result;
    while ((result = cuStreamQuery(which)) == CUDA_ERROR_NOT_READY)
        ;
    return result;
}

/* --- memory -------------------------------------------------------------------------------------------------- */

static size_t start_free;

static void print_used(const char *when)
{
    size_t available, total;
    CHECK(cuMemGetInfo_v2(&available, &total));
    printf("%s: %lld bytes in use\n", when, (long long)start_free - (long long)available);
}

static void again_and_again(void)
{
    CUdeviceptr one, two, before = 0;
    size_t pitch = 0, base_size;
    unsigned type, same = 0;
    CUdeviceptr base;
    for (int i = 0; i < 40; i++) {
        CHECK(cuMemAlloc_v2(&one, 300000));
        CHECK(cuMemAllocPitch_v2(&two, &pitch, 1000, 30, 8));
        CHECK(put(one, (unsigned)i, stream));
        CHECK(put(two, (unsigned)i, stream));
        CHECK(cuMemGetAddressRange_v2(&base, &base_size, one + 1000));
        CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, two));
        if (base != one || base_size != 300000 || type != CU_MEMORYTYPE_DEVICE || one % 256 || two % 256)
            printf("round %d: another address, size or type\n", i);
        same += one == before;
        before = one;
        if (i % 10 == 5)
            print_used("in a round");
        unsigned value = 0;
        CHECK(cuMemcpyDtoHAsync_v2(&value, one, 4, stream));
        if (value != (unsigned)i)
            printf("round %d: %u\n", i, value);
        CHECK(cuMemFree_v2(two));
        CHECK(cuMemFree_v2(one));
    }
    (void)same;
    printf("pitch %zu\n", pitch);
    print_used("after all rounds");
    TRY(cuMemFree_v2(one));
    TRY(cuMemcpyDtoH_v2(&type, one, 4));
    TRY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, one));
}

static void until_none_is_left(void)
{
    enum { MOST = 4096 };
    static CUdeviceptr all[MOST];
    size_t available, total;
    for (int round = 0; round < 3; round++) {
        CHECK(cuMemGetInfo_v2(&available, &total));
        const size_t size = total / (64u << round);
        int n = 0;
        CUresult result = CUDA_SUCCESS;
        while (n < MOST && result == CUDA_SUCCESS) {
            result = cuMemAlloc_v2(&all[n], size);
            n += result == CUDA_SUCCESS;
        }
        printf("round %d: %d blocks, then %d\n", round, n, (int)result);
        TRY(cuMemAlloc_v2(&all[n], size));
        CHECK(cuMemFree_v2(all[--n]));
        TRY(cuMemAlloc_v2(&all[n], size)); /* what was freed can be had again */
        n++;
        CUdeviceptr small;
        TRY(cuMemAlloc_v2(&small, 1000000));
        TRY(cuMemFree_v2(small));
        CUarray array;
        const CUDA_ARRAY_DESCRIPTOR picture = {size / 4096 / 4, 4096, CU_AD_FORMAT_FLOAT, 1};
        CHECK(cuMemFree_v2(all[--n]));
        if (picture.Width < 30000) {
            TRY(cuArrayCreate_v2(&array, &picture));
            TRY(cuArrayDestroy(array));
        }
        while (n)
            CHECK(cuMemFree_v2(all[--n]));
        print_used("all freed");
    }
}

static void in_the_order_of_streams(void)
{
    CUmemoryPool pool, standard;
    cuuint64_t used, high, zero = 0;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr a, b;
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK(cuDeviceGetMemPool(&standard, 0));
    for (int i = 0; i < 60; i++) {
        CHECK(cuMemAllocAsync(&a, 100000, stream));
        CHECK(cuMemAllocFromPoolAsync(&b, 50000, pool, i % 2 ? stream : other));
        CHECK(put(a, (unsigned)i, stream));
        CHECK(put(b, (unsigned)i, i % 2 ? stream : other));
        if (i % 20 == 19) {
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuStreamSynchronize(other));
            CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
            CHECK(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &high));
            printf("in use: %llu of one, %llu of the other\n", (unsigned long long)used,
                   (unsigned long long)high);
        }
        CHECK(cuMemFreeAsync(a, stream));
        CHECK(cuMemFreeAsync(b, i % 2 ? stream : other));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuStreamSynchronize(other));
    }
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    printf("at the end %llu, at most %llu\n", (unsigned long long)used, (unsigned long long)high);
    TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    printf("then at most %llu\n", (unsigned long long)high);
    TRY(cuMemPoolTrimTo(pool, 0));
    TRY(cuDeviceSetMemPool(0, pool));
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemAllocAsync(&a, 100000, stream)); /* of the new pool */
        CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
        printf("%llu\n", (unsigned long long)used);
        CHECK(cuMemFreeAsync(a, stream));
        CHECK(cuStreamSynchronize(stream));
    }
    TRY(cuDeviceSetMemPool(0, standard));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemFreeAsync(a, stream));
    print_used("after the pools");
}

static void still_in_use(void)
{
    struct gate gate = {false, false};
    CUdeviceptr memory[4];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 4; i++)
            CHECK(cuMemAllocAsync(&memory[i], 70000, stream));
        atomic_store(&gate.open, false);
        CHECK(cuLaunchHostFunc(stream, wait_at, &gate));
        for (int i = 0; i < 4; i++)
            CHECK(put(memory[i], 7, stream));
        for (int i = 0; i < 4; i++)
            CHECK(cuMemFreeAsync(memory[i], stream)); /* behind the kernels, which have not run */
        atomic_store(&gate.open, true);
        TRY(cuStreamSynchronize(stream));
    }
    print_used("after memory that was still in use");
}

/* --- events and streams ------------------------------------------------------------------------------------------ */

static void what_is_not_done(void)
{
    struct gate gate = {false, false};
    CUevent before, behind, never;
    float time;
    CHECK(cuEventCreate(&before, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&behind, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
    TRY(cuEventQuery(never));
    TRY(cuEventSynchronize(never));
    for (int round = 0; round < 5; round++) {
        atomic_store(&gate.open, false);
        atomic_store(&gate.reached, false);
        CHECK(cuEventRecord(before, stream));
        CHECK(cuLaunchHostFunc(stream, wait_at, &gate));
        CHECK(cuEventRecord(behind, stream));
        while (!atomic_load(&gate.reached))
            usleep(100);
        TRY(cuEventQuery(before)); /* its stream has come farther */
        TRY(cuEventQuery(behind));
        TRY(cuEventQuery(behind));
        TRY(cuStreamQuery(stream));
        TRY(cuStreamQuery(stream));
        TRY(cuStreamQuery(other));
        TRY(cuEventElapsedTime(&time, before, behind));
        TRY(cuEventSynchronize(before));
        atomic_store(&gate.open, true);
        TRY(round % 2 ? until_done(behind) : until_idle(stream));
        TRY(cuEventQuery(behind));
        TRY(cuStreamQuery(stream));
        TRY(cuStreamSynchronize(stream));
        TRY(cuEventElapsedTime(&time, before, behind));
    }
    /* Ended while somebody waits to hear of them. */
    atomic_store(&gate.open, false);
    CUstream gone;
    CHECK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    CHECK(cuLaunchHostFunc(gone, wait_at, &gate));
    CHECK(cuEventRecord(behind, gone));
    TRY(cuEventQuery(behind));
    TRY(cuStreamQuery(gone));
    TRY(cuEventDestroy_v2(behind));
    TRY(cuStreamDestroy_v2(gone));
    TRY(cuEventQuery(behind));
    TRY(cuStreamQuery(gone));
    atomic_store(&gate.open, true);
    TRY(cuCtxSynchronize());
    TRY(cuEventDestroy_v2(before));
    TRY(cuEventDestroy_v2(never));
}

/* What is known of one stream says nothing of another, and what is put into one does not make the other busy. */
static void side_by_side(void)
{
    struct gate gate = {false, false};
    CUstream blocking;
    CUevent event;
    CUdeviceptr memory;
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CUstream holders[] = {other, blocking};
    for (int round = 0; round < 6; round++) {
        const CUstream holder = holders[round % 2];
        atomic_store(&gate.open, false);
        TRY(cuStreamSynchronize(stream));
        TRY(cuStreamSynchronize(other));
        TRY(cuStreamSynchronize(blocking));
        CHECK(cuLaunchHostFunc(holder, wait_at, &gate));
        TRY(cuStreamQuery(stream)); /* nothing was put into it */
        TRY(cuStreamSynchronize(stream));
        TRY(cuStreamQuery(holder));
        CHECK(put(memory, (unsigned)round, stream));
        CHECK(cuEventRecord(event, stream));
        TRY(cuEventSynchronize(event));
        TRY(cuStreamQuery(stream)); /* the event was the last */
        TRY(cuStreamQuery(holder));
        if (round < 2)
            CHECK(cuEventRecord(event, holder));
        else if (round < 4)
            CHECK(put(memory, 7, holder));
        CHECK(cuEventRecord(event, holder));
        CHECK(cuStreamWaitEvent(stream, event, 0));
        TRY(cuStreamQuery(stream)); /* it waits for the other, though it was known to be done */
        TRY(cuEventQuery(event));
        atomic_store(&gate.open, true);
        TRY(round % 3 ? until_idle(stream) : cuStreamSynchronize(stream));
        TRY(cuEventQuery(event));
        TRY(cuStreamSynchronize(holder));
        TRY(cuStreamQuery(holder));
    }
    /* The default stream waits for the blocking one, and that one for it. */
    atomic_store(&gate.open, false);
    CHECK(cuLaunchHostFunc(blocking, wait_at, &gate));
    CHECK(put(memory, 1, NULL));
    TRY(cuStreamQuery(NULL));
    TRY(cuStreamQuery(stream));
    CHECK(put(memory, 2, blocking));
    TRY(cuStreamQuery(blocking));
    atomic_store(&gate.open, true);
    TRY(cuStreamSynchronize(NULL));
    TRY(until_idle(blocking));
    TRY(cuEventDestroy_v2(event));
    TRY(cuStreamDestroy_v2(blocking));
    TRY(cuMemFree_v2(memory));
}

/* 1: a time, or no time; -1: before */
static int sign(float time)
{
    return time < 0 ? -1 : 1;
}

/* What is known of the time between two events is not used for others. */
static void measured(void)
{
    CUevent start, middle, end;
    float time = 0;
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&middle, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    TRY(cuEventElapsedTime_v2(&time, start, end));
    for (int round = 0; round < 12; round++) {
        const bool queried = round % 4 >= 2;
        CHECK(cuEventRecord(start, stream));
        CHECK(cuLaunchHostFunc(stream, take_time, NULL));
        CHECK(cuEventRecord(middle, stream));
        CHECK(cuEventRecord(end, stream));
        TRY(queried ? until_done(end) : cuEventSynchronize(end));
        TRY(cuEventElapsedTime_v2(&time, start, end));
        printf("  it took its time: %d\n", time >= TAKEN_MS);
        TRY(cuEventElapsedTime_v2(&time, middle, end));
        printf("  nothing between: %d\n", sign(time));
        TRY(round % 2 ? cuEventElapsedTime_v2(&time, start, end) : cuEventElapsedTime(&time, start, end));
        printf("  the same: %d\n", time >= TAKEN_MS);
        if (round % 3 == 0) { /* recorded again */
            CHECK(cuLaunchHostFunc(stream, take_time, NULL));
            CHECK(cuEventRecord(start, stream));
            TRY(cuEventSynchronize(start));
            TRY(cuEventElapsedTime_v2(&time, start, end));
            printf("  the other way: %d\n", sign(time));
        } else if (round % 3 == 1) { /* another one of that name */
            TRY(cuEventDestroy_v2(start));
            TRY(cuEventElapsedTime_v2(&time, start, end));
            CHECK(cuEventCreate(&start, round == 4 ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
            TRY(cuEventElapsedTime_v2(&time, start, end));
            CHECK(cuEventRecord(start, stream));
            TRY(cuEventSynchronize(start));
            TRY(cuEventElapsedTime_v2(&time, start, end));
            CHECK(cuEventRecord(end, stream));
            TRY(cuEventSynchronize(end));
            TRY(cuEventElapsedTime_v2(&time, start, end));
            TRY(cuEventDestroy_v2(start));
            CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
        }
    }
    /* The start ends while somebody waits for the end. */
    struct gate gate = {false, false};
    CHECK(cuEventRecord(start, stream));
    CHECK(cuLaunchHostFunc(stream, wait_at, &gate));
    CHECK(cuEventRecord(end, stream));
    TRY(cuEventQuery(end));
    TRY(cuEventDestroy_v2(start));
    TRY(cuEventElapsedTime_v2(&time, start, end));
    atomic_store(&gate.open, true);
    TRY(until_done(end));
    TRY(cuEventElapsedTime_v2(&time, middle, end));
    TRY(cuEventElapsedTime_v2(NULL, middle, end));
    TRY(cuEventDestroy_v2(middle));
    TRY(cuEventDestroy_v2(end));
}

static void one_after_another(void)
{
    CUevent first, second, third;
    CUdeviceptr memory;
    unsigned *host;
    CHECK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&third, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuMemHostAlloc((void **)&host, 4096, 0));
    for (unsigned i = 0; i < 60; i++) {
        CHECK(cuEventRecord(first, stream));
        CHECK(put(memory, i, stream));
        CHECK(cuEventRecord(second, stream));
        CHECK(cuStreamWaitEvent(other, second, 0));
        CHECK(cuMemcpyDtoHAsync_v2(host, memory, 4, other));
        CHECK(cuEventRecord(third, other));
        switch (i % 6) {
        case 0:
            CHECK(until_done(third));
            break;
        case 1:
            CHECK(cuEventSynchronize(third));
            break;
        case 2:
            CHECK(until_idle(other));
            break;
        case 3:
            CHECK(cuStreamSynchronize(other));
            break;
        case 4:
            CHECK(cuCtxSynchronize());
            break;
        default:
            CHECK(cuMemFreeHost(NULL));
            CHECK(until_done(third));
        }
        if (*host != i)
            printf("round %u: done, but %u is there\n", i, *host);
        CHECK(cuEventSynchronize(second));
        const CUresult then = cuEventQuery(first);
        if (then != CUDA_SUCCESS)
            printf("round %u: %d of what came before what is done\n", i, (int)then);
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree_v2(memory));
    TRY(cuEventDestroy_v2(first));
    TRY(cuEventDestroy_v2(second));
    TRY(cuEventDestroy_v2(third));
    TRY(cuEventQuery(first));
}

/* What freeing waits for has arrived. */
static void freed_and_read(void)
{
    CUdeviceptr memory;
    unsigned *host;
    CHECK(cuMemHostAlloc((void **)&host, 4096, 0));
    for (unsigned i = 1; i <= 20; i++) {
        CHECK(cuMemAlloc_v2(&memory, 4096));
        CHECK(put(memory, i, stream));
        CHECK(cuMemcpyDtoHAsync_v2(host, memory, 4, stream));
        CHECK(cuMemFree_v2(memory));
        if (*host != i)
            printf("freed in round %u, but %u is there\n", i, *host);
    }
    TRY(cuMemFreeHost(host));
}

static void *one_thread(void *number)
{
    const unsigned mine = *(unsigned *)number;
    CUstream own;
    CUevent event;
    CUdeviceptr memory;
    unsigned value;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < 40; i++) {
        CHECK(i % 2 ? cuMemAlloc_v2(&memory, 20000) : cuMemAllocAsync(&memory, 20000 + 1000 * mine, own));
        CHECK(put(memory, i * 10 + mine, own));
        CHECK(cuEventRecord(event, own));
        CHECK(until_done(event));
        value = 0;
        CHECK(cuMemcpyDtoHAsync_v2(&value, memory, 4, own));
        CHECK(cuStreamSynchronize(own));
        if (value != i * 10 + mine)
            printf("thread %u, round %u: %u\n", mine, i, value);
        CHECK(i % 2 ? cuMemFree_v2(memory) : cuMemFreeAsync(memory, own));
        /* the thread's own default stream too */
        CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        CHECK(until_idle(CU_STREAM_PER_THREAD));
    }
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(own));
    return NULL;
}

static void threads(void)
{
    pthread_t thread[6];
    unsigned number[6];
    for (unsigned i = 0; i < 6; i++) {
        number[i] = i;
        pthread_create(&thread[i], NULL, one_thread, &number[i]);
    }
    for (unsigned i = 0; i < 6; i++)
        pthread_join(thread[i], NULL);
    TRY(cuCtxSynchronize());
    print_used("after the threads");
}

static void contexts(void)
{
    struct gate gate = {false, false};
    CUcontext second;
    CUevent event, own;
    CUstream theirs;
    CUdeviceptr memory[3];
    CHECK(cuEventCreate(&own, CU_EVENT_DEFAULT));
    TRY(cuCtxCreate_v2(&second, 0, 0));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemAlloc_v2(&memory[i], 123456));
    CHECK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuLaunchHostFunc(NULL, wait_at, &gate)); /* the default stream of this context alone */
    CHECK(cuEventRecord(event, NULL));
    TRY(cuStreamQuery(NULL));
    TRY(cuStreamQuery(theirs));
    TRY(cuEventRecord(own, theirs)); /* of another context */
    CHECK(cuCtxPushCurrent_v2(context));
    TRY(cuStreamQuery(NULL));
    TRY(cuStreamQuery(theirs));
    TRY(cuEventQuery(event));
    TRY(cuEventRecord(own, NULL));
    TRY(until_done(own));
    TRY(cuCtxSynchronize()); /* does not wait for the other one's */
    TRY(cuEventQuery(event));
    atomic_store(&gate.open, true);
    TRY(until_done(event));
    CHECK(cuCtxPopCurrent_v2(NULL));
    TRY(until_idle(NULL));
    atomic_store(&gate.open, true);
    TRY(cuCtxDestroy_v2(second));
    TRY(cuEventQuery(event));
    TRY(cuStreamQuery(theirs));
    CHECK(cuCtxSetCurrent(context));
    TRY(cuEventQuery(own));
    TRY(cuMemFree_v2(memory[0])); /* went with its context */
    print_used("after the other context");
}

/* --- what cannot be told by a program that goes on ------------------------------------------------------------------ */

static void used_after_it_was_freed(void)
{
    CUcontext doomed;
    CUmodule code;
    CUdeviceptr memory = 0, kept;
    CHECK(cuCtxCreate_v2(&doomed, 0, 0));
    CHECK(cuModuleLoadData(&code, ptx));
    CHECK(cuModuleGetFunction(&function, code, "put"));
    for (int i = 0; i < 10; i++) {
        CHECK(cuMemAlloc_v2(&memory, 3 << 20));
        CHECK(cuMemAlloc_v2(&kept, 3 << 20));
        CHECK(put(memory, 1, NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemFree_v2(memory));
    }
    TRY(cuCtxSynchronize());
    TRY(put(memory, 2, NULL));
    TRY(cuCtxSynchronize());
    TRY(cuCtxSynchronize());
    TRY(cuStreamQuery(NULL));
    TRY(cuStreamSynchronize(NULL));
    TRY(cuMemAlloc_v2(&memory, 3 << 20));
    TRY(cuCtxDestroy_v2(doomed));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleGetFunction(&function, module, "put"));
    TRY(cuCtxSynchronize());
}

int main(void)
{
    size_t total;
    context = use_first_device();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "put"));
    CHECK(cuMemGetInfo_v2(&start_free, &total));
    again_and_again();
    until_none_is_left();
    in_the_order_of_streams();
    still_in_use();
    what_is_not_done();
    side_by_side();
    measured();
    one_after_another();
    freed_and_read();
    threads();
    contexts();
    used_after_it_was_freed();
    TRY(cuModuleUnload(module));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
