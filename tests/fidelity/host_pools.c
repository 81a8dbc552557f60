/*
 * host_pools.c - pools of memory that the host may access: what is in them, when a freed block is had again, and what is wrong use.
 * Managed memory comes in pools where the device can access it together with the host; elsewhere such pools are not supported.
 */
#include "must.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define TRY(call)  printf("%s: %d\n", #call, (int)(call))
#define SIZE       ((size_t)20000)
#define PLACE(t)   ((CUmemLocation){.type = t})
#define HERE       PLACE(CU_MEM_LOCATION_TYPE_DEVICE)
#define POOL(t, l) ((CUmemPoolProps){.allocType = t, .location = PLACE(l)})

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry add(.param .u64 p)\n"
                          "{\n"
                          "    .reg .u32 %r<3>;\n"
                          "    .reg .u64 %rd<4>;\n"
                          "    ld.param.u64 %rd1, [p];\n"
                          "    mov.u32 %r1, %tid.x;\n"
                          "    mul.wide.u32 %rd2, %r1, 4;\n"
                          "    add.u64 %rd3, %rd1, %rd2;\n"
                          "    ld.u32 %r2, [%rd3];\n"
                          "    add.u32 %r2, %r2, %r1;\n"
                          "    st.u32 [%rd3], %r2;\n"
                          "    ret;\n"
                          "}\n";

static CUstream stream, other;
static CUfunction add;

static unsigned long long figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void say(const char *when, CUmemoryPool pool)
{
    printf("%s: reserved %llu (at most %llu), used %llu (at most %llu)\n", when,
           figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
           figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
           figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

/* The device and the host by turns. */
static void compute(CUdeviceptr memory, CUstream where)
{
    unsigned *values = (unsigned *)(uintptr_t)memory;
    void *parameters[] = {&memory};
    unsigned long long sum = 0;
    for (unsigned i = 0; i < 256; i++)
        values[i] = i;
    for (int turn = 0; turn < 3; turn++) {
        CHECK(cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, where, parameters, NULL));
        CHECK(cuStreamSynchronize(where));
        values[7] += 1000;
    }
    for (unsigned i = 0; i < 256; i++)
        sum += values[i];
    printf("computed %llu\n", sum);
}

static void describe(CUdeviceptr memory, CUmemoryPool pool)
{
    unsigned type = 0, managed = 9;
    void *host = NULL;
    CUmemoryPool of = NULL;
    CUcontext context = NULL;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5));
    CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory + 5));
    CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory + 5));
    CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 5));
    CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 5));
    printf("type %u, managed %u, at the host's %d, of the pool %d, of no context %d\n", type, managed,
           host == (void *)(uintptr_t)(memory + 5), of == pool, context == NULL);
}

static void use(CUmemoryPool pool)
{
    CUdeviceptr first, second, third;
    say("new", pool);
    CHECK(cuMemAllocFromPoolAsync(&first, SIZE, pool, stream));
    describe(first, pool);
    compute(first, stream);
    CHECK(cuMemsetD8Async(first, 3, SIZE, stream));
    CHECK(cuStreamSynchronize(stream));
    printf("set to %d and %d\n", *(char *)(uintptr_t)first, *(char *)(uintptr_t)(first + SIZE - 1));
    say("one block", pool);
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemAllocFromPoolAsync(&second, SIZE, pool, stream));
    compute(second, stream);
    CHECK(cuMemAllocFromPoolAsync(&third, SIZE, pool, other));
    printf("another one: %d\n", third != second);
    say("two blocks", pool);
    TRY(cuMemFreeHost((void *)(uintptr_t)third));
    TRY(cuMemFree_v2(third));
    TRY(cuMemFree_v2(third));
    TRY(cuMemFreeAsync(third, stream));
    TRY(cuMemFreeAsync(second + 8, stream));
    TRY(cuMemFreeAsync(second, stream));
    TRY(cuMemFreeAsync(second, stream));
    CHECK(cuStreamSynchronize(stream));
    say("none", pool);
}

/* --- a block that its stream has not come to is not another stream's ---------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void CUDA_CB wait_for_lock(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void keeps(CUmemoryPool pool)
{
    CUdeviceptr first, second, third;
    cuuint64_t all = UINT64_MAX;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    CHECK(cuMemAllocFromPoolAsync(&first, SIZE, pool, stream));
    pthread_mutex_lock(&lock);
    CHECK(cuLaunchHostFunc(stream, wait_for_lock, NULL));
    CHECK(cuMemsetD8Async(first, 9, SIZE, stream));
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemAllocFromPoolAsync(&second, SIZE, pool, stream)); /* in the order of the same stream */
    printf("had again at once: %d\n", first == second);
    CHECK(cuMemFreeAsync(second, stream));
    CHECK(cuMemAllocFromPoolAsync(&second, SIZE, pool, other));
    printf("not had by another stream: %d\n", first != second);
    compute(second, other);
    pthread_mutex_unlock(&lock);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemAllocFromPoolAsync(&third, SIZE, pool, other));
    printf("had by it later: %d\n", first == third);
    CHECK(cuMemFreeAsync(second, other));
    CHECK(cuMemFreeAsync(third, stream));
    CHECK(cuCtxSynchronize());
    say("kept", pool);
    CHECK(cuMemPoolTrimTo(pool, SIZE + 1000));
    say("trimmed to one", pool);
    CHECK(cuMemPoolTrimTo(pool, 0));
    say("trimmed", pool);
}

/* What a context that has ended had is not given out. */
static void ends_with_its_context(CUmemoryPool pool)
{
    CUcontext own, ended;
    CUdeviceptr memory;
    CHECK(cuCtxGetCurrent(&own));
    CHECK(cuCtxCreate_v2(&ended, 0, 0));
    CHECK(cuMemAllocFromPoolAsync(&memory, SIZE, pool, NULL));
    CHECK(cuMemsetD8Async(memory, 4, SIZE, NULL));
    CHECK(cuCtxSynchronize());
    printf("in another context: %d\n", *(char *)(uintptr_t)(memory + SIZE - 1));
    CHECK(cuMemFreeAsync(memory, NULL));
    CHECK(cuCtxDestroy_v2(ended));
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuMemAllocFromPoolAsync(&memory, SIZE, pool, stream));
    memset((void *)(uintptr_t)memory, 1, SIZE);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    say("after a context", pool);
}

static void limits(void)
{
    CUmemoryPool pool;
    CUdeviceptr memory, more;
    CUmemPoolProps properties = POOL(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST);
    properties.maxSize = 64 << 10;
    CHECK(cuMemPoolCreate(&pool, &properties));
    TRY(cuMemAllocFromPoolAsync(&memory, 40 << 10, pool, stream));
    TRY(cuMemAllocFromPoolAsync(&more, 40 << 10, pool, stream));
    TRY(cuMemAllocFromPoolAsync(&more, 0, pool, stream));
    TRY(cuMemAllocFromPoolAsync(NULL, 8, pool, stream));
    TRY(cuMemAllocFromPoolAsync(&more, SIZE_MAX - 5, pool, stream));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemPoolTrimTo(pool, 0));
    TRY(cuMemAllocFromPoolAsync(&more, 8, pool, stream));
    compute(memory, stream);
    TRY(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void access_of(CUmemoryPool pool)
{
    CUmemAccessDesc wanted = {.location = HERE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemLocation here = HERE, host = PLACE(CU_MEM_LOCATION_TYPE_HOST);
    CUmemAccess_flags flags = 99;
    CHECK(cuMemPoolGetAccess(&flags, pool, &here));
    printf("the device's access at first: %d\n", (int)flags);
    CHECK(cuMemPoolSetAccess(pool, &wanted, 1));
    CHECK(cuMemPoolGetAccess(&flags, pool, &here));
    printf("as set: %d\n", (int)flags);
    CHECK(cuMemPoolGetAccess(&flags, pool, &host));
    printf("the host's: %d\n", (int)flags);
    wanted.location.id = 77;
    TRY(cuMemPoolSetAccess(pool, &wanted, 1));
    TRY(cuMemPoolSetAccess(pool, NULL, 1));
    TRY(cuMemPoolGetAccess(NULL, pool, &here));
}

static void by_location(void)
{
    CUmemLocation host = PLACE(CU_MEM_LOCATION_TYPE_HOST), here = HERE,
                  nowhere = PLACE(CU_MEM_LOCATION_TYPE_NONE);
    const CUmemPoolProps properties = POOL(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST);
    CUmemoryPool standard, again, own, now;
    CUdeviceptr memory;
    TRY(cuMemGetDefaultMemPool(&standard, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(&again, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("the same: %d\n", standard == again);
    CHECK(cuMemGetMemPool(&now, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("current: %d\n", now == standard);
    CHECK(cuMemAllocFromPoolAsync(&memory, SIZE, standard, stream));
    compute(memory, stream);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuMemPoolCreate(&own, &properties));
    TRY(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    CHECK(cuMemGetMemPool(&now, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("current: %d\n", now == own);
    TRY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    TRY(cuDeviceSetMemPool(0, own));
    TRY(cuMemPoolDestroy(own));
    CHECK(cuMemGetMemPool(&now, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("current: %d\n", now == standard);
    TRY(cuMemPoolDestroy(standard));
    TRY(cuMemGetDefaultMemPool(&now, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(NULL, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(&now, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
}

static void wrong_properties(void)
{
    CUmemoryPool pool;
    CUmemPoolProps properties = POOL(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    TRY(cuMemPoolCreate(&pool, &properties));
    TRY(cuMemPoolDestroy(pool));
    properties.location.id = 12345;
    TRY(cuMemPoolCreate(&pool, &properties));
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST; /* whose number is ignored */
    TRY(cuMemPoolCreate(&pool, &properties));
    TRY(cuMemPoolDestroy(pool));
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    TRY(cuMemPoolCreate(&pool, &properties));
    properties = POOL(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    TRY(cuMemPoolCreate(&pool, &properties));
    properties = POOL(CU_MEM_ALLOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_HOST);
    TRY(cuMemPoolCreate(&pool, &properties));
}

static void in_a_capture(CUmemoryPool pool)
{
    CUdeviceptr memory = 1;
    CUgraph graph;
    TRY(cuMemAllocFromPoolAsync(&memory, 0, pool, other)); /* nothing, which succeeds without a capture */
    printf("nothing is at 0: %d\n", memory == 0);
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemAllocFromPoolAsync(&memory, SIZE, pool, other)); /* which does not capture */
    TRY(cuMemFreeAsync(memory, other));
    TRY(cuMemAllocFromPoolAsync(&memory, SIZE, pool, stream));
    TRY(cuStreamEndCapture(stream, &graph));
}

/* Whether there are any depends on the device; if so, they are used. */
static void managed(void)
{
    const CUmemPoolProps properties = POOL(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_NONE);
    CUmemoryPool pool;
    CUdeviceptr memory;
    int together = 0;
    unsigned is = 1;
    CHECK(cuDeviceGetAttribute(&together, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    const CUresult made = cuMemPoolCreate(&pool, &properties);
    printf("managed: as the device says %d\n", made == (together ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED));
    if (made == CUDA_SUCCESS) {
        CHECK(cuMemAllocFromPoolAsync(&memory, SIZE, pool, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
        ((char *)(uintptr_t)memory)[SIZE - 1] = 1;
        CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuMemPoolDestroy(pool));
        CHECK(cuStreamSynchronize(stream));
    }
    printf("managed: %u\n", is);
}

int main(void)
{
    const CUmemPoolProps properties = POOL(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST);
    CUmemoryPool pool;
    CUmodule module;
    int has = 0, of_nodes = 0;
    use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
    CHECK(cuDeviceGetAttribute(&of_nodes, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0));
    printf("supported: %d, %d\n", has, of_nodes);
    CHECK(cuMemPoolCreate(&pool, &properties));
    access_of(pool);
    use(pool);
    keeps(pool);
    ends_with_its_context(pool);
    limits();
    by_location();
    wrong_properties();
    in_a_capture(pool);
    managed();
    TRY(cuMemPoolDestroy(pool));
    return 0;
}
