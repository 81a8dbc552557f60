/*
 * attributes.c - what programs decide by: attributes of pointers, devices, functions, pools and streams must be true, or say that
 * something is absent, and then it must be refused; and the answers to calls that name nothing, or next to nothing.
 */
#include "must.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))
#define SIZE      ((size_t)2 << 20)

static CUdevice device;
static CUstream stream;

/* --- pointers --- */

static void describe(const char *what, CUdeviceptr pointer)
{
    static const struct {
        CUpointer_attribute attribute;
        const char *name;
    } attributes[] = {
        {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "type"},
        {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync"},
        {CU_POINTER_ATTRIBUTE_IS_MANAGED, "managed"},
        {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device"},
        {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "ipc"},
        {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "handles"},
        {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "rdma"},
        {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access"},
        {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "size"},
        {CU_POINTER_ATTRIBUTE_MAPPED, "mapped"},
        {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping"},
        {CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, "decompress"},
    };
    printf("%s:", what);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        unsigned long long value = ~0ULL; /* what is not written over shows how much is */
        const CUresult result = cuPointerGetAttribute(&value, attributes[i].attribute, pointer);
        printf(" %s %d %llu", attributes[i].name, (int)result, value);
    }
    CUmemoryPool pool = NULL, standard;
    CHECK(cuDeviceGetDefaultMemPool(&standard, device));
    const CUresult result = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer);
    printf(" pool %d %s\n", (int)result, pool == standard ? "default" : pool ? "another" : "none");
}

static void say_flags(const char *what, void *memory)
{
    unsigned flags = 99;
    const CUresult result = cuMemHostGetFlags(&flags, memory);
    printf("%s: flags %d %u\n", what, (int)result, flags);
}

static void expect_invalid(CUresult result, const char *what)
{
    if (result != CUDA_ERROR_INVALID_VALUE)
        must(result == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : result, what);
}

/* What is nothing, or has no kind: the tests of cuda-bindings. */
static void nothing(void)
{
    CUarray array;
    const char *name;
    expect_invalid(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){.Width = 1}), "an array of no format");
    expect_invalid(
        cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){.Width = 1, .Format = CU_AD_FORMAT_FLOAT}),
        "an array of no channels");
    expect_invalid(cuFuncGetName(&name, NULL), "the name of no function");
    expect_invalid(cuKernelGetName(&name, NULL), "the name of no kernel");
}

static void host_memory(void)
{
    void *memory, *nothing = &memory;
    CHECK(cuMemHostAlloc(&memory, 4096, 0));
    describe("host", (CUdeviceptr)memory);
    say_flags("host", memory);
    expect_invalid(cuMemHostUnregister(memory), "unregistering what was allocated");
    CHECK(cuMemFreeHost(memory));
    CHECK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
    say_flags("portable", memory);
    CHECK(cuMemFreeHost(memory));
    TRY(cuMemHostAlloc(&nothing, 0, 0));
    printf("%d\n", nothing == NULL);
    TRY(cuMemAllocHost_v2(&nothing, 0));
    TRY(cuMemHostAlloc(&nothing, 0, 64));
    TRY(cuMemFreeHost(NULL));
    memory = aligned_alloc(4096, 4096);
    CHECK(cuMemHostRegister_v2(memory, 4096, 0));
    describe("registered", (CUdeviceptr)memory);
    say_flags("registered", memory);
    expect_invalid(cuMemHostUnregister((char *)memory + 64), "unregistering what lies within");
    CHECK(cuMemHostUnregister(memory));
    free(memory);
}

static void mapped_memory(void)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = here,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    CHECK(cuMemCreate(&handle, SIZE, &properties, 0));
    CHECK(cuMemMap(at, SIZE, 0, handle, 0));
    describe("mapped", at);
    CHECK(cuMemSetAccess(at, SIZE, &access, 1));
    describe("mapped to read", at);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(at, SIZE, &access, 1));
    describe("mapped to write", at);
    CHECK(cuMemUnmap(at, SIZE));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(at, SIZE));
    /* what is stated to be absent is refused */
    for (int type = CU_MEM_LOCATION_TYPE_HOST; type <= CU_MEM_LOCATION_TYPE_HOST_NUMA; type++) {
        int supported = 99;
        CHECK(cuDeviceGetAttribute(&supported,
                                   type == CU_MEM_LOCATION_TYPE_HOST
                                       ? CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
                                       : CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   device));
        properties.location = (CUmemLocation){.type = (CUmemLocationType)type, .id = 0};
        printf("virtual memory of the host: supported %d, %d\n", supported,
               (int)cuMemCreate(&handle, SIZE, &properties, 0));
    }
}

static void set_sync(CUdeviceptr pointer, int value)
{
    TRY(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
}

static void pointers(void)
{
    CUdeviceptr memory, from_pool;
    CUmemoryPool pool, standard;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CHECK(cuMemAlloc_v2(&memory, 1000));
    describe("linear", memory);
    set_sync(memory + 8, 1);
    describe("synchronous", memory + 999);
    set_sync(memory, 0);
    describe("no more", memory);
    set_sync(memory + (64 << 20), 1);
    CHECK(cuMemFree_v2(memory));
    CHECK(cuMemAllocManaged(&memory, 1000, CU_MEM_ATTACH_GLOBAL));
    describe("managed", memory);
    CHECK(cuMemFree_v2(memory));
    TRY(cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuDeviceGetDefaultMemPool(&standard, device));
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK(cuMemAllocAsync(&from_pool, 1000, stream));
    describe("of the default pool", from_pool);
    CHECK(cuDeviceSetMemPool(device, pool));
    CHECK(cuMemAllocAsync(&memory, 1000, stream));
    describe("of the current pool", memory);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuDeviceSetMemPool(device, standard));
    CHECK(cuMemAllocFromPoolAsync(&memory, 1000, pool, stream));
    describe("of a pool", memory);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuMemFreeAsync(from_pool, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(pool));
    host_memory();
    mapped_memory();
}

/* --- devices --- */

/* Attributes that a program on another machine must not believe the device about. */
static int is_local(int attribute)
{
    return attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ||
           attribute == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
}

static void devices(void)
{
    int value;
    for (int attribute = 0; attribute <= CU_DEVICE_ATTRIBUTE_MAX; attribute++) {
        value = -99;
        const CUresult result = cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device);
        if (!is_local(attribute))
            printf("device attribute %d: %d %d\n", attribute, (int)result, value);
    }
    TRY(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    TRY(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 7));
    TRY(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    TRY(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 7));
    TRY(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 9, 0));
}

/* --- pools, streams, functions --- */

static void pools(void)
{
    CUmemoryPool pool;
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    for (int attribute = 0; attribute < 12; attribute++) {
        cuuint64_t value = 0;
        const CUresult result = cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, &value);
        printf("pool attribute %d: %d %llu\n", attribute, (int)result, (unsigned long long)value);
    }
}

static void streams(void)
{
    for (int id = 0; id < 20; id++) {
        CUstreamAttrValue value, again;
        memset(&value, 0, sizeof value);
        const CUresult result = cuStreamGetAttribute(stream, (CUstreamAttrID)id, &value);
        printf("stream attribute %d: %d", id, (int)result);
        if (result == CUDA_SUCCESS) {
            memset(&again, 0, sizeof again);
            const CUresult set = cuStreamSetAttribute(stream, (CUstreamAttrID)id, &value);
            const CUresult got = cuStreamGetAttribute(stream, (CUstreamAttrID)id, &again);
            printf(", set %d, got %d, the same %d", (int)set, (int)got,
                   memcmp(&value, &again, sizeof value) == 0);
        }
        printf("\n");
    }
}

static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\nret;\n}\n";

static void functions(CUmodule module)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, "k"));
    for (int attribute = 0; attribute <= CU_FUNC_ATTRIBUTE_MAX; attribute++) {
        int value = -99;
        const CUresult result = cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function);
        printf("function attribute %d: %d %d\n", attribute, (int)result, value);
    }
}

/* --- images and their logs --- */

static void load(const char *what, const char *image)
{
    char info[200] = "untouched", error[200] = "untouched";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
    void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error, (void *)UINTPTR_MAX};
    CUmodule module;
    float ms;
    const CUresult result = cuModuleLoadDataEx(&module, image, 5, options, values);
    memcpy(&ms, &values[4], sizeof ms);
    printf("%s: %d, log %zu '%s', errors %zu '%s', %s\n", what, (int)result, (size_t)values[1], info,
           (size_t)values[3], error, ms >= 0 && ms < 1e6f ? "took some time" : "no time");
    if (result != CUDA_SUCCESS)
        return;
    functions(module);
    CHECK(cuModuleUnload(module));
}

/* A module with a kernel that a device may not know loads; that kernel is refused, by name, and the other one runs. */
static void strange_kernel(void)
{
    static const char image[] =
        ".version 8.1\n.target sm_90\n.address_size 64\n"
        ".visible .entry strange(.param .u64 p) { .reg .u64 %a; ld.param.u64 %a, [p];\n"
        "multimem.st.weak.global.u32 [%a], 1; ret; }\n"
        ".visible .entry good(.param .u64 p) { .reg .u64 %a; ld.param.u64 %a, [p]; st.global.u32 [%a], 42; "
        "ret; }\n";
    CUmodule module;
    CUfunction good, strange;
    CUdeviceptr memory;
    unsigned value = 0;
    char info[400] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {info, (void *)sizeof info}, *parameters[] = {&memory};
    TRY(cuModuleLoadDataEx(&module, image, 2, options, values));
    printf("%s", info);
    CHECK(cuModuleGetFunction(&good, module, "good"));
    CHECK(cuModuleGetFunction(&strange, module, "strange"));
    CHECK(cuMemAlloc_v2(&memory, 4));
    CHECK(cuLaunchKernel(good, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(&value, memory, 4));
    printf("%u\n", value);
    for (int i = 0; i < 2; i++) {
        const CUresult launched = cuLaunchKernel(strange, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
        const CUresult waited = cuStreamSynchronize(stream);
        printf("refused: %d\n", (int)(launched != CUDA_SUCCESS ? launched : waited));
    }
    CHECK(cuMemFree_v2(memory));
    CHECK(cuModuleUnload(module));
}

/* --- calls that name next to nothing --- */

static void graphs(void)
{
    CUgraph graph;
    CUgraphNode one, two, nodes[3] = {(CUgraphNode)1, (CUgraphNode)1, (CUgraphNode)1}, other[3];
    size_t n = 0;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&one, graph, NULL, 0));
    CHECK(cuGraphAddEmptyNode(&two, graph, &one, 1));
    /* documented: "numNodes entries will be filled in", none here; the number is that of the entries */
    TRY(cuGraphGetNodes(graph, nodes, &n));
    printf("%zu %d\n", n, nodes[0] == (CUgraphNode)1);
    TRY(cuGraphGetRootNodes(graph, nodes, &n));
    printf("%zu\n", n);
    TRY(cuGraphGetEdges(graph, nodes, other, &n));
    printf("%zu\n", n);
    TRY(cuGraphNodeGetDependencies(two, nodes, &n));
    printf("%zu\n", n);
    TRY(cuGraphNodeGetDependentNodes(one, nodes, &n));
    printf("%zu\n", n);
    CHECK(cuGraphDestroy(graph));
}

static void capture(CUstreamCaptureMode mode)
{
    CUgraph graph = NULL;
    CHECK(cuStreamBeginCapture_v2(stream, mode));
    TRY(cuMemFree_v2(0));
    TRY(cuStreamEndCapture(stream, &graph));
    if (graph)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamBeginCapture_v2(stream, mode));
    TRY(cuMemFreeHost(NULL));
    graph = NULL;
    TRY(cuStreamEndCapture(stream, &graph));
    if (graph)
        CHECK(cuGraphDestroy(graph));
}

static void shared_events(void)
{
    CUipcEventHandle handle;
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    TRY(cuIpcGetEventHandle(&handle, event));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    TRY(cuIpcGetEventHandle(&handle, event));
    CHECK(cuEventDestroy_v2(event));
    TRY(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    TRY(cuIpcGetEventHandle(&handle, NULL));
}

int main(void)
{
    use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pointers();
    nothing();
    devices();
    pools();
    streams();
    load("a module", ptx);
    load("text", "this is not a module");
    load("a comment", "// .version 7.0\n/* */ hello");
    load("PTX that is wrong", ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(\n");
    load("PTX behind a comment", "/* generated */\n// by hand\n.version 7.0\n.target sm_75\n.address_size "
                                 "64\n.visible .entry k() { ret; }\n");
    load("bytes", "\x01\x02");
    strange_kernel();
    graphs();
    capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    shared_events();
    return 0;
}
