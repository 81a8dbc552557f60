/*
 * objects.c - a transcript of what can be asked of and set for objects of every kind, rightly and wrongly: devices,
 * contexts, streams, events, functions and kernels, pools, pointers, occupancy, callbacks, pitched memory and fills.
 *
 * As in wrong_use.c, nothing is printed that differs between two runs.
 */
#include "tests/add_kernel.h"

#include <cuda.h>
#include <cudaProfiler.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] = ADD_KERNEL ".visible .entry shared_one()\n"
                                     "{\n"
                                     "    .shared .align 4 .b8 room[4096];\n"
                                     "    .reg .u32 %r<3>;\n"
                                     "    mov.u32 %r1, room;\n"
                                     "    st.shared.u32 [%r1], %r1;\n"
                                     "    ret;\n"
                                     "}\n";

static CUcontext context;
static CUstream stream, other_stream;
static CUfunction function;
static CUlibrary library;
static CUkernel kernel;
static CUdeviceptr data;
static int value, value2;
static unsigned flags;
static size_t size;
static const CUstream no_stream = (CUstream)0x99;

static void devices(void)
{
    CUdevprop properties;
    CUuuid uuid;
    CUmemoryPool pool, pool2;
    TRY(cuDriverGetVersion(NULL));
    TRY(cuDriverGetVersion(&value));
    TRY(cuDeviceComputeCapability(&value, &value2, 0));
    TRY(cuDeviceComputeCapability(NULL, &value2, 0));
    TRY(cuDeviceComputeCapability(&value, &value2, 7));
    TRY(cuDeviceGetProperties(&properties, 0));
    printf("%d %d\n", properties.maxThreadsPerBlock, properties.maxThreadsDim[2]);
    TRY(cuDeviceGetProperties(NULL, 0));
    TRY(cuDeviceGetProperties(&properties, 7));
    TRY(cuDeviceGetUuid_v2(&uuid, 0));
    TRY(cuDeviceGetUuid_v2(NULL, 0));
    TRY(cuDeviceGetUuid_v2(&uuid, 7));
    TRY(cuDeviceCanAccessPeer(&value, 0, 0));
    TRY(cuDeviceCanAccessPeer(NULL, 0, 0));
    TRY(cuDeviceCanAccessPeer(&value, 0, 7));
    TRY(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    TRY(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 9));
    TRY(cuDeviceGetP2PAttribute(&value, 99, 0, 0));
    TRY(cuDeviceGetMemPool(&pool, 0));
    TRY(cuDeviceGetDefaultMemPool(&pool2, 0));
    printf("the default pool: %d\n", pool == pool2);
    TRY(cuDeviceGetMemPool(NULL, 0));
    TRY(cuDeviceGetMemPool(&pool, 7));
    TRY(cuDeviceSetMemPool(0, NULL));
    TRY(cuDeviceSetMemPool(0, pool2));
    TRY(cuModuleGetLoadingMode(NULL));
    CUmoduleLoadingMode mode;
    TRY(cuModuleGetLoadingMode(&mode));
    for (int attribute = 1; attribute <= 150; attribute++) {
        /* what of host and device may touch memory at the same time is another thing from afar */
        if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ||
            attribute == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED ||
            attribute == CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
            continue;
        value = -1;
        CUresult result = cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, 0);
        printf("device attribute %d: %d, %d\n", attribute, (int)result, value);
    }
}

/* What of the device may be used: all of it; cuSOLVER asks. */
static void resources(void)
{
    CUdevResource resource, other;
    int count;
    TRY(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    TRY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuCtxGetDevResource(context, &other, CU_DEV_RESOURCE_TYPE_SM));
    printf("all: %d, the same: %d\n", resource.sm.smCount == (unsigned)count,
           memcmp(&resource, &other, sizeof other) == 0);
    TRY(cuCtxGetDevResource(NULL, &other, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDeviceGetDevResource(99, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_INVALID));
    TRY(cuCtxGetDevResource((CUcontext)0x55, &resource, CU_DEV_RESOURCE_TYPE_SM));
}

static void contexts(void)
{
    unsigned long long id, id2;
    CUsharedconfig config;
    CUcontext made;
    TRY(cuCtxGetId(context, &id));
    TRY(cuCtxGetId(NULL, &id2));
    printf("the same: %d\n", id == id2);
    TRY(cuCtxGetId(context, NULL));
    TRY(cuCtxGetId((CUcontext)0x55, &id));
    TRY(cuCtxGetFlags(NULL));
    TRY(cuCtxSetFlags(CU_CTX_SCHED_YIELD));
    TRY(cuCtxGetFlags(&flags));
    printf("%x\n", flags);
    TRY(cuCtxSetFlags(0x1000));
    TRY(cuCtxGetSharedMemConfig(&config));
    TRY(cuCtxGetSharedMemConfig(NULL));
    TRY(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
    TRY(cuCtxSetSharedMemConfig((CUsharedconfig)77));
    TRY(cuCtxResetPersistingL2Cache());
    TRY(cuCtxEnablePeerAccess(context, 0));
    TRY(cuCtxEnablePeerAccess(NULL, 0));
    TRY(cuCtxDisablePeerAccess(NULL));
    TRY(cuCtxAttach(&made, 0));
    TRY(cuCtxAttach(&made, 1));
    TRY(cuCtxAttach(NULL, 0));
    TRY(cuCtxDetach((CUcontext)0x55));
    for (int limit = 0; limit < 12; limit++) {
        CUresult result = cuCtxGetLimit(&size, (CUlimit)limit);
        printf("limit %d: %d\n", limit, (int)result);
    }
    TRY(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
    TRY(cuProfilerStart());
    TRY(cuProfilerStop());
}

/* Two contexts and what belongs to one of them, used in the other. */
static void several_contexts(void)
{
    CUcontext second, popped;
    CUstream its_stream;
    CUevent its_event, our_event;
    CUdeviceptr its_data;
    TRY(cuEventCreate(&our_event, 0));
    TRY(cuCtxCreate_v2(&second, 0, 0));
    TRY(cuStreamCreate(&its_stream, 0));
    TRY(cuEventCreate(&its_event, 0));
    TRY(cuMemAlloc_v2(&its_data, 256));
    TRY(cuEventRecord(our_event, its_stream));
    TRY(cuEventRecord(its_event, stream));
    TRY(cuEventRecord(its_event, its_stream));
    TRY(cuStreamWaitEvent(stream, its_event, 0));
    TRY(cuMemsetD32Async(its_data, 1, 64, its_stream));
    TRY(cuMemcpyDtoDAsync_v2(data, its_data, 64, its_stream));
    TRY(cuCtxPopCurrent_v2(&popped));
    printf("popped: %d\n", popped == second);
    TRY(cuMemcpyDtoD_v2(data, its_data, 64));
    TRY(cuMemcpyPeer(data, context, its_data, second, 64));
    TRY(cuMemcpyPeer(data, (CUcontext)0x55, its_data, second, 64));
    TRY(cuStreamSynchronize(its_stream));
    TRY(cuStreamQuery(its_stream));
    TRY(cuEventSynchronize(its_event));
    TRY(cuCtxSynchronize()); /* what is queued here may still read the other context's memory */
    TRY(cuCtxDestroy_v2(second));
    TRY(cuStreamQuery(its_stream));
    TRY(cuEventQuery(its_event));
    TRY(cuStreamWaitEvent(stream, its_event, 0));
    TRY(cuStreamDestroy_v2(its_stream));
    TRY(cuEventDestroy_v2(its_event));
    TRY(cuMemFree_v2(its_data));
    TRY(cuCtxDestroy_v2(second));
    TRY(cuCtxPushCurrent_v2(second));
    TRY(cuEventDestroy_v2(our_event));
    TRY(cuCtxSynchronize());
}

static char order[64];

static void CUDA_CB note(CUstream from, CUresult status, void *letter)
{
    (void)from;
    order[strlen(order)] = status == CUDA_SUCCESS ? *(const char *)letter : '!';
}

static void CUDA_CB note_alone(void *letter)
{
    note(NULL, CUDA_SUCCESS, letter);
}

static void streams(void)
{
    unsigned long long id, id2;
    CUstreamAttrValue attribute;
    TRY(cuStreamGetId(stream, &id));
    TRY(cuStreamGetId(other_stream, &id2));
    printf("apart: %d\n", id != id2);
    TRY(cuStreamGetId(stream, NULL));
    TRY(cuStreamGetId(no_stream, &id));
    TRY(cuStreamGetId(NULL, &id));
    memset(&attribute, 0, sizeof attribute);
    TRY(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    printf("%d\n", (int)attribute.syncPolicy);
    attribute.syncPolicy = CU_SYNC_POLICY_SPIN;
    TRY(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    TRY(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, NULL));
    TRY(cuStreamGetAttribute(stream, (CUstreamAttrID)77, &attribute));
    TRY(cuStreamGetAttribute(no_stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    TRY(cuStreamCopyAttributes(other_stream, stream));
    TRY(cuStreamCopyAttributes(other_stream, no_stream));
    TRY(cuStreamGetPriority(stream, NULL));
    TRY(cuStreamGetPriority(CU_STREAM_PER_THREAD, &value));
    TRY(cuStreamGetFlags(CU_STREAM_LEGACY, &flags));
    printf("%u\n", flags);
    TRY(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
    printf("%u\n", flags);
    TRY(cuStreamDestroy_v2(CU_STREAM_LEGACY));
    TRY(cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
    TRY(cuStreamAddCallback(stream, note, (void *)(uintptr_t) "a", 0));
    TRY(cuLaunchHostFunc(stream, note_alone, (void *)(uintptr_t) "b"));
    TRY(cuStreamAddCallback(stream, note, (void *)(uintptr_t) "c", 0));
    TRY(cuStreamAddCallback(stream, NULL, (void *)(uintptr_t) "d", 0));
    TRY(cuStreamAddCallback(stream, note, (void *)(uintptr_t) "e", 1));
    TRY(cuStreamAddCallback(no_stream, note, (void *)(uintptr_t) "f", 0));
    TRY(cuStreamSynchronize(stream));
    TRY(cuStreamAddCallback(NULL, note, (void *)(uintptr_t) "g", 0));
    TRY(cuStreamAddCallback(CU_STREAM_PER_THREAD, note, (void *)(uintptr_t) "h", 0));
    TRY(cuCtxSynchronize());
    printf("called: %zu, in order: %d\n", strlen(order), strncmp(order, "abc", 3) == 0);
}

static void functions(void)
{
    CUlibrary of_kernel;
    CUmodule module;
    const char *name;
    CUfunctionLoadingState state;
    void *arguments[] = {&data, &value};
    TRY(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryLoadData(NULL, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryLoadFromFile(&of_kernel, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryGetKernel(&kernel, library, "none"));
    TRY(cuLibraryGetKernel(&kernel, library, "add"));
    TRY(cuKernelGetLibrary(&of_kernel, kernel));
    printf("the same: %d\n", of_kernel == library);
    TRY(cuKernelGetLibrary(NULL, kernel));
    TRY(cuKernelGetName(&name, kernel));
    printf("%s\n", name);
    TRY(cuKernelGetName(NULL, kernel));
    TRY(cuKernelGetName(&name, NULL));
    size_t offset;
    TRY(cuKernelGetParamInfo(kernel, 1, &offset, &size));
    printf("%zu %zu\n", offset, size);
    TRY(cuKernelGetParamInfo(kernel, 2, &offset, &size));
    TRY(cuKernelGetParamInfo(kernel, 0, &offset, NULL));
    TRY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, 0));
    TRY(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
    printf("%d\n", value);
    TRY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, 7));
    TRY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 5, kernel, 0));
    TRY(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    TRY(cuKernelSetCacheConfig(kernel, (CUfunc_cache)77, 0));
    CUkernel kernels[4];
    TRY(cuLibraryGetKernelCount(&flags, library));
    TRY(cuLibraryEnumerateKernels(kernels, flags, library));
    TRY(cuLibraryEnumerateKernels(NULL, flags, library));
    TRY(cuLibraryEnumerateKernels(kernels, 0, library));
    TRY(cuModuleLoadFatBinary(&module, ptx));
    TRY(cuModuleGetFunction(&function, module, "shared_one"));
    for (int attribute = 0; attribute < 20; attribute++) {
        CUresult result = cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function);
        printf("function attribute %d: %d\n", attribute, (int)result);
    }
    TRY(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
    printf("%d\n", value);
    TRY(cuFuncIsLoaded(&state, function));
    TRY(cuFuncIsLoaded(NULL, function));
    TRY(cuFuncLoad(function));
    TRY(cuFuncLoad(NULL));
    TRY(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_SHARED));
    TRY(cuFuncSetCacheConfig(function, (CUfunc_cache)77));
    TRY(cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 128, 0, 0));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 128, 0, 77));
    TRY(cuOccupancyMaxPotentialBlockSizeWithFlags(&value, &value2, function, NULL, 0, 0, 0));
    TRY(cuOccupancyMaxPotentialBlockSizeWithFlags(NULL, &value2, function, NULL, 0, 0, 0));
    TRY(cuOccupancyAvailableDynamicSMemPerBlock(&size, function, 2, 128));
    TRY(cuOccupancyAvailableDynamicSMemPerBlock(NULL, function, 2, 128));
    TRY(cuOccupancyAvailableDynamicSMemPerBlock(&size, function, 0, 128));
    value = 3;
    TRY(cuLaunchCooperativeKernel((CUfunction)kernel, 2, 1, 1, 32, 1, 1, 0, stream, arguments));
    TRY(cuLaunchCooperativeKernel(NULL, 2, 1, 1, 32, 1, 1, 0, stream, arguments));
    TRY(cuStreamSynchronize(stream));
    TRY(cuModuleUnload(module));
    TRY(cuFuncGetAttribute(&value, 0, function));
    TRY(cuLibraryUnload(library));
    TRY(cuLibraryUnload(library));
    TRY(cuKernelGetName(&name, kernel));
}

static void print_memory(CUdeviceptr from, size_t n)
{
    unsigned char bytes[4096];
    unsigned sum = 0;
    if (n > sizeof bytes || cuMemcpyDtoH_v2(bytes, from, n) != CUDA_SUCCESS)
        printf("cannot be read\n");
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + bytes[i];
    printf("contents: %u\n", sum);
}

static void memory(void)
{
    CUdeviceptr pitched;
    size_t pitch;
    TRY(cuMemAllocPitch_v2(&pitched, &pitch, 100, 8, 4));
    printf("%d\n", pitch >= 100);
    TRY(cuMemAllocPitch_v2(&pitched, NULL, 100, 8, 4));
    TRY(cuMemAllocPitch_v2(NULL, &pitch, 100, 8, 4));
    TRY(cuMemAllocPitch_v2(&pitched, &pitch, 0, 8, 4));
    TRY(cuMemAllocPitch_v2(&pitched, &pitch, 100, 8, 3));
    TRY(cuMemsetD8_v2(data, 0, 4096));
    TRY(cuCtxSynchronize()); /* which the stream is not behind by itself */
    TRY(cuMemsetD16Async(data, 0x1234, 100, stream));
    TRY(cuMemsetD16Async(data + 1, 0x1234, 100, stream));
    TRY(cuMemsetD2D8Async(data, 64, 7, 10, 20, stream));
    TRY(cuMemsetD2D16Async(data, 64, 7, 10, 20, stream));
    TRY(cuMemsetD2D32Async(data + 8, 64, 7, 10, 20, stream));
    TRY(cuMemsetD2D32Async(data, 30, 7, 10, 20, stream));
    TRY(cuMemsetD2D8Async(data, 64, 7, 10, 20, no_stream));
    TRY(cuMemsetD2D8Async(data, 64, 7, 0, 20, stream));
    TRY(cuMemsetD2D8Async(data, 64, 7, 10, 0, stream));
    TRY(cuStreamSynchronize(stream));
    print_memory(data, 4096);
    TRY(cuMemcpyDtoD_v2(data + 100, data, 1000));
    TRY(cuMemcpyDtoD_v2(data + 2048, data, 2048));
    print_memory(data + 2048, 2048);
    TRY(cuMemcpyDtoDAsync_v2(data, data + 2048, 2049, stream));
    TRY(cuCtxSynchronize()); /* what follows overlaps it */
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = data,
                          .srcPitch = 64,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = data + 2048,
                          .dstPitch = 128,
                          .WidthInBytes = 50,
                          .Height = 10};
    TRY(cuMemcpy2D_v2(&copy));
    TRY(cuMemcpy2DUnaligned_v2(&copy));
    TRY(cuCtxSynchronize());
    TRY(cuMemcpy2DAsync_v2(&copy, stream));
    TRY(cuMemcpy2DAsync_v2(&copy, no_stream));
    TRY(cuCtxSynchronize());
    TRY(cuMemcpy2D_v2(NULL));
    copy.srcPitch = 49;
    TRY(cuMemcpy2D_v2(&copy));
    copy.srcPitch = 64;
    copy.Height = 100;
    TRY(cuMemcpy2D_v2(&copy));
    copy.Height = 0;
    TRY(cuMemcpy2D_v2(&copy));
    copy.dstMemoryType = (CUmemorytype)9;
    copy.Height = 1;
    TRY(cuMemcpy2D_v2(&copy));
    unsigned char row[64] = {1, 2, 3};
    for (size_t far = (size_t)1 << 32; far != 0; far <<= 10) { /* farther apart than rows may be */
        copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = row,
                               .srcPitch = far,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = data,
                               .WidthInBytes = sizeof row,
                               .Height = 2};
        TRY(cuMemcpy2D_v2(&copy));
        TRY(cuMemcpy2DUnaligned_v2(&copy));
        copy.Height = 1;
        TRY(cuMemcpy2D_v2(&copy));
    }
    TRY(cuStreamSynchronize(stream));
    print_memory(data, 4096);
}

static void pools(void)
{
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccess_flags access;
    CUmemAccessDesc wish = {place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr got;
    TRY(cuMemPoolCreate(&pool, NULL));
    TRY(cuMemPoolCreate(NULL, &properties));
    TRY(cuMemPoolCreate(&pool, &properties));
    TRY(cuMemPoolGetAccess(&access, pool, &place));
    printf("%d\n", (int)access);
    TRY(cuMemPoolGetAccess(NULL, pool, &place));
    TRY(cuMemPoolGetAccess(&access, pool, NULL));
    TRY(cuMemPoolSetAccess(pool, &wish, 1));
    TRY(cuMemPoolSetAccess(pool, NULL, 1));
    wish.location.id = 9;
    TRY(cuMemPoolSetAccess(pool, &wish, 1));
    for (int attribute = 0; attribute < 10; attribute++) {
        cuuint64_t got_value = 0;
        CUresult result = cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, &got_value);
        printf("pool attribute %d: %d, %llu\n", attribute, (int)result, (unsigned long long)got_value);
    }
    TRY(cuMemAllocFromPoolAsync(&got, 1000, pool, stream));
    TRY(cuMemAllocFromPoolAsync(&got, 1000, NULL, stream));
    TRY(cuMemPoolTrimTo(pool, 0));
    TRY(cuMemPoolTrimTo(NULL, 0));
    TRY(cuMemFreeAsync(got, stream));
    TRY(cuStreamSynchronize(stream));
    /* a stream brings its context along */
    TRY(cuCtxSetCurrent(NULL));
    TRY(cuMemAllocFromPoolAsync(&got, 1000, pool, stream));
    TRY(cuMemFreeAsync(got, stream));
    TRY(cuMemAllocAsync(&got, 1000, stream));
    TRY(cuMemFreeAsync(got, NULL));
    TRY(cuMemFreeAsync(got, stream));
    TRY(cuMemAllocAsync(&got, 1000, NULL));
    TRY(cuMemAllocFromPoolAsync(&got, 1000, pool, CU_STREAM_PER_THREAD));
    TRY(cuCtxSetCurrent(context));
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemPoolTrimTo(pool, 0));
}

static void pointers(void)
{
    int on_stack = 0, boolean = -1;
    CUmemorytype type = (CUmemorytype)0;
    CUcontext its_context = NULL;
    CUdeviceptr start = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *where[] = {&its_context, &type, &start, &boolean};
    TRY(cuPointerGetAttributes(4, which, where, data + 5));
    printf("%d %d %d %d\n", its_context == context, (int)type, start == data, boolean);
    TRY(cuPointerGetAttributes(4, which, where, (CUdeviceptr)&on_stack));
    printf("%d %d\n", its_context == NULL, (int)type);
    TRY(cuPointerGetAttributes(0, which, where, data));
    TRY(cuPointerGetAttributes(4, NULL, where, data));
    TRY(cuPointerGetAttributes(4, which, NULL, data));
    which[0] = (CUpointer_attribute)999;
    TRY(cuPointerGetAttributes(4, which, where, data));
    boolean = 1;
    TRY(cuPointerSetAttribute(&boolean, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, data));
    TRY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, data));
    TRY(cuPointerSetAttribute(&boolean, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data));
    TRY(cuPointerSetAttribute(&boolean, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)&on_stack));
    for (int attribute = 1; attribute <= 22; attribute++) {
        unsigned char room[64];
        CUresult result = cuPointerGetAttribute(room, (CUpointer_attribute)attribute, data);
        printf("pointer attribute %d: %d\n", attribute, (int)result);
    }
}

static void *in_thread(void *argument)
{
    CUcontext found = context;
    TRY(cuCtxGetCurrent(&found));
    printf("none: %d\n", found == NULL);
    TRY(cuMemsetD8_v2(data, 1, 10));
    TRY(cuStreamQuery(stream));
    TRY(cuCtxSetCurrent(context));
    TRY(cuMemsetD8_v2(data, 1, 10));
    TRY(cuMemsetD8Async(data, 1, 10, CU_STREAM_PER_THREAD));
    TRY(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    TRY(cuCtxPopCurrent_v2(&found));
    TRY(cuCtxPopCurrent_v2(&found));
    return argument;
}

static void threads(void)
{
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
            exit(1);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreateWithPriority(&other_stream, CU_STREAM_DEFAULT, -1));
    TRY(cuMemAlloc_v2(&data, 4096));
    devices();
    contexts();
    resources();
    several_contexts();
    streams();
    functions();
    memory();
    pools();
    pointers();
    threads();
    TRY(cuMemFree_v2(data));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
