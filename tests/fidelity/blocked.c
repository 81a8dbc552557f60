/*
 * blocked.c - calls that wait for the device, while what the device does ends only when another thread has made calls of its
 * own: a kernel spins on a word of host memory, or a stream waits for one of device memory, and the other thread writes it
 * when its calls have returned. Each case ends only if nobody stands behind the call that waits; none may return too early.
 *
 *   blocked [CASE|all]
 */
#include "must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1000, BYTES = 1 << 20, FEW = 4096, WIDTH = 256, HEIGHT = 64 };

static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                            ".visible .global .align 4 .u32 variable;\n"
                            ".visible .entry spin(.param .u64 at)\n"
                            "{\n"
                            "  .reg .u64 %a; .reg .u32 %v; .reg .pred %p;\n"
                            "  ld.param.u64 %a, [at];\n"
                            "  cvta.to.global.u64 %a, %a;\n"
                            "again:\n"
                            "  ld.volatile.global.u32 %v, [%a];\n"
                            "  setp.eq.u32 %p, %v, 0;\n"
                            "  @%p bra again;\n"
                            "  ret;\n"
                            "}\n"
                            ".visible .entry set(.param .u64 at, .param .u32 value)\n"
                            "{\n"
                            "  .reg .u64 %a; .reg .u32 %v;\n"
                            "  ld.param.u64 %a, [at];\n"
                            "  ld.param.u32 %v, [value];\n"
                            "  cvta.to.global.u64 %a, %a;\n"
                            "  st.global.u32 [%a], %v;\n"
                            "  ret;\n"
                            "}\n";

static CUdevice device;
static CUcontext context, second;
static CUstream stalled, other, third;
static CUevent behind, event;
static CUdeviceptr gate, small, memory;
static CUfunction spin, set;
static volatile uint32_t *word; /* of host memory that the device addresses */
static unsigned char *bytes;    /* pageable */

/* what a case ends, made before */
static CUdeviceptr victim;
static CUarray array;
static CUmipmappedArray mipmap;
static CUmodule module;
static CUlibrary library;
static CUkernel found;
static CUtexObject texture;
static CUmemGenericAllocationHandle physical;
static void *locked;
static size_t granularity;

/* --- what the calls work on -------------------------------------------------------------------------------------- */

static void make_memory(void)
{
    CHECK(cuMemAlloc_v2(&victim, BYTES));
}

static void make_array(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CHECK(cuArrayCreate_v2(&array, &shape));
}

static void make_mipmap(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CHECK(cuMipmappedArrayCreate(&mipmap, &shape, 2));
}

static void make_module(void)
{
    CHECK(cuModuleLoadData(&module, image));
}

static void make_library(void)
{
    CUfunction function;
    CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&found, library, "set"));
    CHECK(cuKernelGetFunction(&function, found));
}

static void make_texture(void)
{
    const CUDA_RESOURCE_DESC resource = {
        .resType = CU_RESOURCE_TYPE_LINEAR,
        .res.linear = {
            .devPtr = memory, .format = CU_AD_FORMAT_UNSIGNED_INT32, .numChannels = 1, .sizeInBytes = FEW}};
    const CUDA_TEXTURE_DESC how = {.flags = CU_TRSF_READ_AS_INTEGER};
    CHECK(cuTexObjectCreate(&texture, &resource, &how, NULL));
}

static void make_mapping(void)
{
    const CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = what.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemGetAllocationGranularity(&granularity, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&victim, granularity, 0, 0, 0));
    CHECK(cuMemCreate(&physical, granularity, &what, 0));
    CHECK(cuMemMap(victim, granularity, 0, physical, 0));
    CHECK(cuMemSetAccess(victim, granularity, &access, 1));
}

static void make_stream(void)
{
    CHECK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32Async(small, 1, SMALL, third));
}

/* Memory of the host that the device has. */
static void make_locked(void)
{
    CUdeviceptr at;
    CHECK(cuMemHostAlloc(&locked, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&at, locked, 0));
}

static void make_registered(void)
{
    CUdeviceptr at;
    locked = aligned_alloc(4096, BYTES);
    CHECK(cuMemHostRegister_v2(locked, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&at, locked, 0));
}

/* Some allocations of one kind: a remote device has more of them ready then, and gives them back after a while. */
static void make_many(void)
{
    for (int i = 0; i < 8; i++) {
        CHECK(cuMemAlloc_v2(&victim, 3 * BYTES));
        CHECK(cuMemFree_v2(victim));
    }
}

static void make_data(void)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    CHECK(cuMemsetD8_v2(memory, 0, BYTES));
    make_array();
}

/* --- the calls ----------------------------------------------------------------------------------------------------- */

static void free_memory(void)
{
    CHECK(cuMemFree_v2(victim));
}

static void free_locked(void)
{
    CHECK(cuMemFreeHost(locked));
}

static void unregister(void)
{
    CHECK(cuMemHostUnregister(locked));
}

static void destroy_array(void)
{
    CHECK(cuArrayDestroy(array));
}

static void destroy_mipmap(void)
{
    CHECK(cuMipmappedArrayDestroy(mipmap));
}

static void unload_module(void)
{
    CHECK(cuModuleUnload(module));
}

static void unload_library(void)
{
    CHECK(cuLibraryUnload(library));
}

static void destroy_texture(void)
{
    CHECK(cuTexObjectDestroy(texture));
}

static void unmap(void)
{
    CHECK(cuMemUnmap(victim, granularity));
}

static void synchronize_context(void)
{
    CHECK(cuCtxSynchronize());
}

static void synchronize_stream(void)
{
    CHECK(cuStreamSynchronize(stalled));
}

static void synchronize_event(void)
{
    CHECK(cuEventSynchronize(behind));
}

static void copy_few_in(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, bytes, FEW));
}

static void copy_few_async(void)
{
    for (int i = 0; i < 10; i++)
        CHECK(cuMemcpyHtoDAsync_v2(memory, bytes, FEW, stalled));
}

static void copy_in(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, bytes, BYTES));
}

static void copy_rows_in(void)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = bytes,
                                .srcPitch = WIDTH,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = memory,
                                .dstPitch = WIDTH,
                                .WidthInBytes = WIDTH,
                                .Height = HEIGHT};
    CHECK(cuMemcpy2D_v2(&copy));
}

static void copy_to_array(void)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = bytes,
                                .srcPitch = WIDTH,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = array,
                                .WidthInBytes = WIDTH,
                                .Height = HEIGHT};
    CHECK(cuMemcpy2D_v2(&copy));
}

static void copy_out(void)
{
    CHECK(cuMemcpyDtoH_v2(bytes, memory, BYTES));
}

static void copy_on_device(void)
{
    CHECK(cuMemcpyDtoD_v2(memory, memory + BYTES / 2, FEW));
}

static void fill_memory(void)
{
    CHECK(cuMemsetD32_v2(memory, 3, SMALL));
}

static void allocate(void)
{
    CHECK(cuMemAlloc_v2(&victim, 5 * BYTES));
}

static void allocate_locked(void)
{
    CHECK(cuMemAllocHost_v2(&locked, BYTES));
}

static void load_module(void)
{
    make_module();
}

/* Of a module that is there: nobody has used it before. */
static CUfunction find_function(void)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, "set"));
    return function;
}

static void launch_first(void)
{
    unsigned value = 1;
    void *parameters[] = {&memory, &value};
    CHECK(cuLaunchKernel(find_function(), 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
}

static void make_kernel(void)
{
    CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&found, library, "set"));
}

static void launch_kernel(void)
{
    unsigned value = 1;
    void *parameters[] = {&memory, &value};
    CHECK(cuLaunchKernel((CUfunction)found, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
}

static void launch_graph(void)
{
    unsigned value = 1;
    void *parameters[] = {&memory, &value};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec executable;
    const CUDA_KERNEL_NODE_PARAMS launched = {.func = find_function(),
                                              .gridDimX = 1,
                                              .gridDimY = 1,
                                              .gridDimZ = 1,
                                              .blockDimX = 1,
                                              .blockDimY = 1,
                                              .blockDimZ = 1,
                                              .kernelParams = parameters};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &launched));
    CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, other));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
}

static void load_function(void)
{
    CHECK(cuFuncLoad(find_function()));
}

static void ask_function(void)
{
    int threads;
    CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, find_function()));
}

static void set_function(void)
{
    CHECK(cuFuncSetAttribute(find_function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
}

static void set_cache(void)
{
    CHECK(cuFuncSetCacheConfig(find_function(), CU_FUNC_CACHE_PREFER_L1));
}

/* By which the library gets its module in the context. */
static void find_variable(void)
{
    CUdeviceptr address;
    size_t size;
    CHECK(cuLibraryGetGlobal(&address, &size, library, "variable"));
}

static void ask_occupancy(void)
{
    int blocks, grid, size;
    CUfunction function = find_function();
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0));
    CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &size, function, NULL, 0, 0));
}

static void find_kernel_function(void)
{
    CUfunction function;
    make_kernel();
    CHECK(cuKernelGetFunction(&function, found));
}

static void destroy_stream(void)
{
    CHECK(cuStreamDestroy_v2(third));
}

static void destroy_context(void)
{
    CHECK(cuCtxDestroy_v2(second));
}

static void nothing(void)
{
    usleep(900000);
}

/* --- what is left -------------------------------------------------------------------------------------------------- */

static void end_mapping(void)
{
    CHECK(cuMemRelease(physical));
    CHECK(cuMemAddressFree(victim, granularity));
}

static void compare(size_t size)
{
    unsigned char *back = malloc(size);
    CHECK(cuMemcpyDtoH_v2(back, memory, size));
    printf("  its data is %s\n", memcmp(back, bytes, size) == 0 ? "right" : "WRONG");
    free(back);
    CHECK(cuArrayDestroy(array));
}

static void compare_few(void)
{
    compare(FEW);
}

static void compare_all(void)
{
    compare(BYTES);
}

static void compare_rows(void)
{
    compare((size_t)WIDTH * HEIGHT);
}

static void end_allocation(void)
{
    CHECK(cuMemFree_v2(victim));
}

static void end_registered(void)
{
    free(locked);
}

static void end_load(void)
{
    CHECK(cuModuleUnload(module));
}

static const struct trial {
    const char *name;
    void (*make)(void), (*call)(void), (*end)(void);
    bool waits; /* until the device has done what it was given before */
    bool own_context;
} trials[] = {
    {"cuMemFree", make_memory, free_memory, NULL, true, false},
    {"cuMemFreeHost", make_locked, free_locked, NULL, true, false},
    {"cuMemHostUnregister", make_registered, unregister, end_registered, true, false},
    {"cuArrayDestroy", make_array, destroy_array, NULL, true, false},
    {"cuMipmappedArrayDestroy", make_mipmap, destroy_mipmap, NULL, true, false},
    {"cuModuleUnload", make_module, unload_module, NULL, true, false},
    {"cuLibraryUnload", make_library, unload_library, NULL, true, false},
    {"cuTexObjectDestroy", make_texture, destroy_texture, NULL, true, false},
    {"cuMemUnmap", make_mapping, unmap, end_mapping, true, false},
    {"cuCtxSynchronize", NULL, synchronize_context, NULL, true, false},
    {"cuStreamSynchronize", NULL, synchronize_stream, NULL, true, false},
    {"cuEventSynchronize", NULL, synchronize_event, NULL, true, false},
    {"cuMemcpyHtoD of 4 KiB", make_data, copy_few_in, compare_few, true, false},
    {"cuMemcpyHtoDAsync of 4 KiB", make_data, copy_few_async, compare_few, false, false},
    {"cuMemcpyHtoD of 1 MiB", make_data, copy_in, compare_all, true, false},
    {"cuMemcpy2D to the device", make_data, copy_rows_in, compare_rows, true, false},
    {"cuMemcpy2D to an array", make_data, copy_to_array, destroy_array, true, false},
    {"cuMemcpyDtoH", make_data, copy_out, destroy_array, true, false},
    {"cuMemcpyDtoD", make_data, copy_on_device, destroy_array, false, false},
    {"cuMemsetD32", make_data, fill_memory, destroy_array, false, false},
    {"cuMemAlloc", NULL, allocate, end_allocation, false, false},
    {"cuMemAllocHost", NULL, allocate_locked, free_locked, false, false},
    {"cuModuleLoadData", NULL, load_module, end_load, false, false},
    {"the first launch of a function", make_module, launch_first, end_load, false, false},
    {"the first launch of a kernel", make_kernel, launch_kernel, unload_library, false, false},
    {"the first launch of a function by a graph", make_module, launch_graph, end_load, false, false},
    {"cuFuncLoad", make_module, load_function, end_load, false, false},
    {"cuFuncGetAttribute", make_module, ask_function, end_load, false, false},
    {"cuFuncSetAttribute", make_module, set_function, end_load, false, false},
    {"cuFuncSetCacheConfig", make_module, set_cache, end_load, false, false},
    {"cuLibraryGetGlobal", make_kernel, find_variable, unload_library, false, false},
    {"cuOccupancyMax…", make_module, ask_occupancy, end_load, false, false},
    {"cuKernelGetFunction", NULL, find_kernel_function, unload_library, false, false},
    {"cuStreamDestroy", make_stream, destroy_stream, NULL, false, false},
    {"cuCtxDestroy", NULL, destroy_context, NULL, true, true},
    {"memory that is not needed", make_many, nothing, NULL, false, false},
};

/* --- a case --------------------------------------------------------------------------------------------------------- */

static atomic_bool begun, returned;

static void *call(void *argument)
{
    const struct trial *trial = argument;
    CHECK(cuCtxSetCurrent(context));
    atomic_store(&begun, true);
    trial->call();
    atomic_store(&returned, true);
    return NULL;
}

/* Calls of a thread that goes on: work of a stream, events, a kernel, and waiting for all of it. */
static unsigned work(unsigned round)
{
    unsigned value = 0, stored = round + 1;
    void *parameters[] = {&small, &stored};
    CHECK(cuMemsetD32Async(small, round, SMALL, other));
    CHECK(cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
    CHECK(cuEventRecord(event, other));
    CHECK(cuEventSynchronize(event));
    CHECK(cuMemcpyDtoHAsync_v2(&value, small, 4, other));
    CHECK(cuStreamSynchronize(other));
    return value;
}

static void stall(CUstream stream, bool kernel)
{
    CUdeviceptr at;
    *word = 0;
    CHECK(cuCtxSynchronize());
    CHECK(cuMemHostGetDevicePointer_v2(&at, (void *)(uintptr_t)word, 0));
    void *parameters[] = {&at};
    if (kernel)
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    else
        CHECK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void run(const struct trial *trial, bool kernel)
{
    pthread_t thread;
    CUstream stream = stalled;
    unsigned done = 0;
    CHECK(cuMemsetD32_v2(gate, 0, 1));
    if (trial->own_context) {
        CHECK(cuCtxCreate_v2(&second, 0, device));
        CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
        CHECK(cuStreamWaitValue32_v2(stream, gate, 2, CU_STREAM_WAIT_VALUE_EQ));
        CHECK(cuCtxSetCurrent(context));
    }
    if (trial->make)
        trial->make();
    stall(stalled, kernel);
    CHECK(cuEventRecord(behind, stalled));
    atomic_store(&begun, false);
    atomic_store(&returned, false);
    if (pthread_create(&thread, NULL, call, (void *)(uintptr_t)trial) != 0)
        exit(2);
    while (!atomic_load(&begun))
        usleep(100);
    usleep(trial->call == nothing ? 700000 : 20000); /* it is most likely in the middle of the call */
    for (unsigned i = 0; i < 5; i++)
        done += work(10 * i) == 10 * i + 1;
    const bool early = trial->waits && atomic_load(&returned);
    /* Who asks while that waits is not to wait for it. */
    const bool ready = trial->waits && !(cuEventQuery(behind) == CUDA_ERROR_NOT_READY &&
                                         cuStreamQuery(stalled) == CUDA_ERROR_NOT_READY);
    *word = 1;
    CHECK(cuStreamWriteValue32_v2(other, gate, 1, 0));
    if (trial->own_context) {
        CHECK(cuStreamSynchronize(stalled));
        CHECK(cuStreamWriteValue32_v2(other, gate, 2, 0));
    }
    pthread_join(thread, NULL);
    CHECK(cuCtxSynchronize());
    printf("%s behind a %s: %u of 5 meanwhile%s%s\n", trial->name, kernel ? "kernel" : "stream that waits",
           done, early ? ", and it RETURNED EARLY" : "",
           ready ? ", and what it waits for is SAID TO BE DONE" : "");
    if (trial->end)
        trial->end();
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "all";
    CUmodule own;
    void *host;
    alarm(240); /* where one waits for the other */
    context = use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stalled, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc_v2(&gate, 64));
    CHECK(cuMemAlloc_v2(&small, 4 * SMALL));
    CHECK(cuMemAlloc_v2(&memory, BYTES));
    CHECK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    word = host;
    CHECK(cuModuleLoadData(&own, image));
    CHECK(cuModuleGetFunction(&spin, own, "spin"));
    CHECK(cuModuleGetFunction(&set, own, "set"));
    /* drivers may wait for the device when a function is first used */
    CHECK(cuFuncLoad(spin));
    CHECK(cuFuncLoad(set));
    bytes = malloc(BYTES);
    if (!bytes)
        return 2;
    for (unsigned i = 0; i < sizeof trials / sizeof *trials; i++)
        for (unsigned kernel = 0; kernel < 2; kernel++)
            if (strcmp(only, "all") == 0 || strcmp(only, trials[i].name) == 0)
                run(&trials[i], kernel);
    free(bytes);
    return 0;
}
