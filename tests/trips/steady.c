/*
 * steady.c - calls everything that a program calls again and again, so many rounds of it (see run.py). What a program waits
 * for anyway is waited for once a round, in cuCtxSynchronize.
 *
 * usage: steady ROUNDS
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/add_kernel.h"
#include "tests/ok.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE (64u << 10)

static const char ptx[] = ADD_KERNEL ".visible .global .u32 variable;\n";

static CUdevice device;
static CUcontext context;
static CUstream stream, other, several[4];
static CUmodule module;
static CUlibrary library;
static CUkernel kernel;
static CUfunction function;
static CUdeviceptr data;
static CUevent event, point, earlier, begun, ended;
static CUmemoryPool pool;
static CUgraphExec graph;
static unsigned char host[SIZE], *pinned;

static void launch_in(CUstream where, CUdeviceptr memory)
{
    unsigned n = 1;
    void *parameters[] = {&memory, &n};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, where, parameters, NULL));
}

static void launch(CUdeviceptr memory)
{
    launch_in(stream, memory);
}

static void start(void)
{
    CUgraph captured;
    context = use_first_device();
    OK(cuDeviceGet(&device, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    for (int i = 0; i < 4; i++)
        OK(cuStreamCreate(&several[i], CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add"));
    OK(cuMemAlloc(&data, SIZE));
    OK(cuMemHostAlloc((void **)&pinned, SIZE, 0));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&point, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&earlier, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(data);
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphInstantiateWithFlags(&graph, captured, 0));
    OK(cuGraphDestroy(captured));
}

/* Not cuMemGetInfo: so that its figures are exact, what pools have ready goes back, and the next allocation waits. */
static void memory(void)
{
    CUdeviceptr linear, pitched, ordered, pooled, managed, base, device_side;
    void *locked, *allocated;
    size_t pitch, size;
    unsigned flags, type;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[] = {&type, &base};
    OK(cuMemAlloc(&linear, 1 << 20));
    OK(cuMemAllocPitch(&pitched, &pitch, 1000, 64, 4));
    OK(cuMemAllocAsync(&ordered, 100000, stream));
    OK(cuMemAllocFromPoolAsync(&pooled, 5000, pool, stream));
    OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&locked, 4096, 0));
    OK(cuMemAllocHost(&allocated, 4096));
    OK(cuMemHostRegister(host, SIZE, 0));
    launch(linear);
    launch(pitched);
    launch(ordered);
    launch(pooled);
    OK(cuMemFreeAsync(ordered, stream));
    OK(cuMemFreeAsync(pooled, stream));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, linear));
    OK(cuPointerGetAttributes(2, attributes, values, linear));
    OK(cuMemGetAddressRange(&base, &size, linear + 5));
    OK(cuMemHostGetFlags(&flags, locked));
    OK(cuMemHostGetDevicePointer(&device_side, locked, 0));
    OK(cuMemHostUnregister(host));
    OK(cuMemFreeHost(allocated));
    OK(cuMemFreeHost(locked));
    OK(cuMemFree(managed));
    OK(cuMemFree(pitched));
    OK(cuMemFree(linear));
}

static void copies(void)
{
    OK(cuMemcpyHtoD(data, host, 4096));
    OK(cuMemcpyHtoDAsync(data, host, SIZE, stream));
    OK(cuMemcpyHtoDAsync(data, pinned, SIZE, stream));
    OK(cuMemcpyDtoD(data, data + SIZE / 2, 1024));
    OK(cuMemcpyDtoDAsync(data, data + SIZE / 2, 1024, stream));
    OK(cuMemsetD8(data, 0, 1024));
    OK(cuMemsetD32Async(data, 0, 1024, stream));
    OK(cuMemcpyDtoHAsync(pinned, data, SIZE, stream));
    OK(cuMemcpyDtoH(host, data, 4096));
    OK(cuMemcpyDtoHAsync(host, data, 4096, stream)); /* to pageable memory: waits */
    launch_in(other, data);
    OK(cuStreamSynchronize(stream)); /* known by that, whatever is in other streams */
    OK(cuStreamQuery(stream));
}

/* Spins as programs do, though politely. */
static void spin_on(bool of_stream)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY)
        result = of_stream ? cuStreamQuery(stream) : cuEventQuery(event);
    OK(result);
}

static void events(void)
{
    CUevent fresh;
    OK(cuEventRecord(earlier, stream));
    launch(data);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(NULL, event, 0));
    spin_on(false);
    for (int i = 0; i < 10; i++)
        spin_on(false);
    launch_in(other, data);
    OK(cuStreamSynchronize(stream)); /* the event was the last in it */
    OK(cuEventSynchronize(event));   /* known to be done, and so is what came before it */
    OK(cuEventSynchronize(earlier));
    OK(cuEventQuery(earlier));
    OK(cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(fresh)); /* never recorded */
    OK(cuEventDestroy(fresh));
}

static void elapsed(void)
{
    float time;
    OK(cuEventElapsedTime(&time, earlier, event)); /* told with the news that it has come */
    OK(cuEventRecord(begun, stream));
    launch(data);
    OK(cuEventRecord(ended, stream));
    OK(cuEventSynchronize(ended));
    OK(cuEventElapsedTime(&time, begun, ended)); /* told with the answer */
    OK(cuEventElapsedTime(&time, begun, ended));
}

static void streams(void)
{
    CUstream made;
    CUcontext of;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    unsigned long long number;
    unsigned flags;
    int priority, least, greatest;
    CUstreamAttrValue value;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    OK(cuStreamDestroy(made));
    OK(cuStreamCreateWithPriority(&made, 0, -1));
    OK(cuStreamGetFlags(made, &flags));
    OK(cuStreamGetPriority(made, &priority));
    OK(cuStreamGetId(made, &number));
    OK(cuStreamGetCtx(made, &of));
    OK(cuStreamDestroy(made));
    OK(cuStreamIsCapturing(stream, &status));
    OK(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuGraphLaunch(graph, stream));
}

static void contexts(void)
{
    CUcontext current;
    CUdevice found;
    unsigned flags, version;
    unsigned long long id;
    int active;
    size_t limit;
    CUfunc_cache cache;
    OK(cuCtxPushCurrent(context));
    OK(cuCtxPopCurrent(&current));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetCurrent(&current));
    OK(cuCtxGetDevice(&found));
    OK(cuCtxGetFlags(&flags));
    OK(cuCtxGetApiVersion(context, &version));
    OK(cuCtxGetId(context, &id));
    OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, limit));
    OK(cuCtxGetCacheConfig(&cache));
    OK(cuCtxSetCacheConfig(cache));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    OK(cuDevicePrimaryCtxRetain(&current, device));
    OK(cuDevicePrimaryCtxRelease(device));
}

static void devices(void)
{
    int value;
    CUuuid uuid;
    char name[64];
    size_t total, width, granularity;
    CUmemoryPool found;
    CUmemAccess_flags access;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuDeviceGetCount(&value));
    OK(cuDeviceGetName(name, sizeof name, device));
    OK(cuDeviceGetUuid(&uuid, device));
    OK(cuDeviceTotalMem(&total, device));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    OK(cuDeviceCanAccessPeer(&value, device, device));
    OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, device));
    OK(cuDeviceGetDefaultMemPool(&found, device));
    OK(cuDeviceGetMemPool(&found, device));
    OK(cuMemPoolGetAccess(&access, pool, &here));
    OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

static void functions(void)
{
    int value, grid, block;
    unsigned count;
    size_t size;
    CUdeviceptr variable;
    CUfunction again;
    CUkernel found;
    CUfunctionLoadingState state;
    OK(cuModuleGetFunction(&again, module, "add"));
    OK(cuModuleGetGlobal(&variable, &size, module, "variable"));
    OK(cuModuleGetFunctionCount(&count, module));
    OK(cuLibraryGetKernel(&found, library, "add"));
    OK(cuLibraryGetKernelCount(&count, library));
    OK(cuKernelGetFunction(&again, kernel));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096));
    OK(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE));
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device));
    OK(cuFuncIsLoaded(&state, function));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 128, 0));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 128, 0, 0));
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&size, function, 1, 128));
}

static void waits(void)
{
    launch(data);
    spin_on(true);
    OK(cuStreamSynchronize(stream)); /* known to be idle */
    launch(data);
    OK(cuCtxSynchronize()); /* the one wait of the round */
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    OK(cuCtxSynchronize_v2(context));
}

/* Several streams, waited for one after another: when the first has come, which waits for the others, so have they. */
static void streams_together(void)
{
    for (int i = 3; i > 0; i--) {
        launch_in(several[i], data + 64 * (unsigned)i);
        OK(cuEventRecord(point, several[i]));
        OK(cuStreamWaitEvent(several[0], point, 0));
    }
    OK(cuMemsetD8Async(data + SIZE / 2, 1, SIZE / 2, several[0]));
    for (int i = 0; i < 20; i++)
        launch_in(several[0], data);
    for (int i = 0; i < 4; i++)
        OK(cuStreamSynchronize(several[i]));
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    start();
    for (int i = 0; i < rounds; i++) {
        memory();
        copies();
        events();
        elapsed();
        streams();
        contexts();
        devices();
        functions();
        waits();
        streams_together();
    }
    OK(cuCtxSynchronize());
    printf("%d rounds\n", rounds);
    return 0;
}
