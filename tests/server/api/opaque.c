/*
 * opaque.c - what of the bytes that a client sends reaches the driver: no address of the client's choice
 * where the driver takes an address of this process, no handle but what the worker itself has looked up, no
 * name of a file. Handles that sessions give to each other are in export.c.
 */
#include "common/cuda/coredump.h"
#include "proto/graph.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

static void *const forged = (void *)0x4141414141410;
static unsigned reached; /* calls of the driver that the test is about */

static const uint64_t module = 4ull << 42 | 1ull << 26 | 1 << 4;   /* handle(RG_KIND_MODULE, 1) */
static const uint64_t function = 7ull << 42 | 1ull << 26 | 2 << 4; /* handle(RG_KIND_FUNCTION, 2) */
static const uint64_t event = 3ull << 42 | 1ull << 26 | 3 << 4;    /* handle(RG_KIND_EVENT, 3) */
static const uint64_t stream = 2ull << 42 | 1ull << 26 | 4 << 4;   /* handle(RG_KIND_STREAM, 4) */

static void send_image(struct client *c, uint64_t id, const void *data, size_t size)
{
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)size, (uint64_t)0, (uint64_t)size);
    send_bulk(c, data, size);
}

/* --- attributes of kernels in graphs -------------------------------------------------------------------- */

static char function_object, graph_object;
static CUevent event_object;
static CUkernelNodeAttrValue attribute;

static CUresult make_event(CUevent *out, unsigned flags)
{
    (void)flags;
    *out = event_object = (CUevent)(void *)&graph_object;
    return CUDA_SUCCESS;
}
static CUresult find_function(CUfunction *out, CUmodule from, const char *name)
{
    (void)from, (void)name;
    *out = (CUfunction)(void *)&function_object;
    return CUDA_SUCCESS;
}
static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    *out = (CUgraphExec)(void *)&graph_object;
    return CUDA_SUCCESS;
}
static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
    (void)node, (void)id;
    reached++;
    attribute = *value;
    return CUDA_SUCCESS;
}

/* Makes a graph of one kernel with an attribute. */
static void make_graph(struct client *c, const CUlaunchAttribute *of, CUresult result)
{
    static uint32_t index = 10;
    static uint64_t image = 50;
    unsigned char bytes[512];
    struct rg_writer w = {bytes};
    rg_put_u32(&w, 0); /* conditions */
    rg_put_u32(&w, 1); /* steps */
    rg_put_u32(&w, RG_GRAPH_WIRE_KERNEL);
    rg_put_u32(&w, 0); /* behind none */
    rg_put_u64(&w, function);
    for (int i = 0; i < 6; i++)
        rg_put_u32(&w, 1);
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 1); /* attributes */
    rg_put(&w, of, sizeof *of);
    rg_put_u32(&w, 0); /* parameters */
    reached = 0;
    send_image(c, ++image, bytes, (size_t)(w.at - bytes));
    CALL(c, RG_OP_rgGraphMake, 0, result, "848", image, 0, handle(RG_KIND_GRAPH, ++index));
}

static void test_graph_attributes(struct client *c)
{
    rg_driver.cuEventCreate = make_event;
    rg_driver.cuModuleGetFunction = find_function;
    rg_driver.cuGraphInstantiateWithFlags = instantiate;
    rg_driver.cuGraphKernelNodeSetAttribute = set_attribute;
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
    send_image(c, 1, ptx, sizeof ptx);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_SUCCESS, "8488888", (uint64_t)1, 0, (uint64_t)0, (uint64_t)0, module,
         (uint64_t)0, (uint64_t)0);
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_SUCCESS, "88s", function, module, "name");
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, event);

    /* events are the driver's, by their handles */
    CUlaunchAttribute of = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    of.value.programmaticEvent.event = (CUevent)event;
    make_graph(c, &of, CUDA_SUCCESS);
    CHECK(reached == 1 && attribute.programmaticEvent.event == event_object);
    of.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    of.value.launchCompletionEvent.event = (CUevent)event;
    make_graph(c, &of, CUDA_SUCCESS);
    CHECK(reached == 1 && attribute.launchCompletionEvent.event == event_object);
    of.value.launchCompletionEvent.event = forged;
    make_graph(c, &of, CUDA_ERROR_INVALID_HANDLE);
    CHECK(reached == 0);
    of.value.launchCompletionEvent.event = (CUevent)function; /* of another kind */
    make_graph(c, &of, CUDA_ERROR_INVALID_HANDLE);
    CHECK(reached == 0);

    /* nodes and what is not known are refused */
    of = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE};
    of.value.deviceUpdatableKernelNode.devNode = forged;
    make_graph(c, &of, CUDA_ERROR_NOT_SUPPORTED);
    CHECK(reached == 0);
    of.id = (CUlaunchAttributeID)99;
    make_graph(c, &of, CUDA_ERROR_NOT_SUPPORTED);
    CHECK(reached == 0);

    of = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}};
    make_graph(c, &of, CUDA_SUCCESS);
    CHECK(reached == 1 && attribute.clusterDim.x == 2);
}

/* --- core dumps ----------------------------------------------------------------------------------------- */

static size_t told; /* size of the last value */

static CUresult set_coredump(CUcoredumpSettings setting, void *value, size_t *size)
{
    (void)setting, (void)value;
    reached++;
    told = *size;
    return CUDA_SUCCESS;
}
/* A driver that writes more than it says there is room for. */
static CUresult get_coredump(CUcoredumpSettings setting, void *value, size_t *size)
{
    (void)setting;
    memset(value, 7, RG_COREDUMP_NAME_MAX);
    *size = RG_COREDUMP_NAME_MAX;
    return CUDA_SUCCESS;
}

static void try_coredump(struct client *c, CUcoredumpSettings setting, const void *value, size_t size,
                         CUresult result)
{
    reached = 0;
    told = 0;
    CALL(c, RG_OP_rgCoredumpSet, 0, result, "48b", (uint32_t)setting, (uint64_t)size, value, size);
    CALL(c, RG_OP_rgCoredumpSetGlobal, 0, result, "48b", (uint32_t)setting, (uint64_t)size, value, size);
    CHECK(reached == (result == CUDA_SUCCESS ? 2 : 0) && told == (result == CUDA_SUCCESS ? size : 0));
}

static void test_coredumps(struct client *c)
{
    static const char name[] = "/etc/passwd", no_end[] = {'/', 'x'};
    static const unsigned char yes[4] = {1}, no[4] = {0}, neither[4] = {2};
    const unsigned flags = CU_COREDUMP_SKIP_ABORT, unknown = 1u << 30;
    rg_driver.cuCoredumpSetAttribute = set_coredump;
    rg_driver.cuCoredumpSetAttributeGlobal = set_coredump;
    rg_driver.cuCoredumpGetAttribute = get_coredump;
    try_coredump(c, CU_COREDUMP_FILE, name, sizeof name, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_PIPE, name, sizeof name, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_FILE, no_end, sizeof no_end, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_FILE, name, 0, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_ENABLE_ON_EXCEPTION, yes, 1, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_ENABLE_USER_TRIGGER, yes, 1, CUDA_ERROR_NOT_PERMITTED);
    try_coredump(c, CU_COREDUMP_ENABLE_ON_EXCEPTION, no, 1, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 1, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, neither, 1, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 0, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_LIGHTWEIGHT, yes, 4, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &flags, 4, CUDA_SUCCESS);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &flags, 1, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, CU_COREDUMP_GENERATION_FLAGS, &unknown, 4, CUDA_ERROR_INVALID_VALUE);
    try_coredump(c, (CUcoredumpSettings)99, yes, 1, CUDA_ERROR_INVALID_VALUE);
    CALL(c, RG_OP_rgCoredumpGet, 0, CUDA_SUCCESS, "448", (uint32_t)CU_COREDUMP_FILE, 0, (uint64_t)2);
    CHECK(c->got.output_size == 2 + sizeof(uint64_t) && c->got.output[1] == 7);
}

static CUresult make_context(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)device, (void)flags;
    reached++;
    *out = (CUcontext)(void *)&graph_object;
    return CUDA_SUCCESS;
}
static CUresult set_flags(unsigned flags)
{
    (void)flags;
    reached++;
    return CUDA_SUCCESS;
}
static CUresult set_primary_flags(CUdevice device, unsigned flags)
{
    (void)device;
    return set_flags(flags);
}

/* Flags of contexts ask for dumps as well. */
static void test_context_flags(struct client *c)
{
    static const uint32_t wanted[] = {CU_CTX_COREDUMP_ENABLE, CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_MAP_HOST};
    rg_driver.cuCtxCreate_v2 = make_context;
    rg_driver.cuCtxSetFlags = set_flags;
    rg_driver.cuDevicePrimaryCtxSetFlags_v2 = set_primary_flags;
    reached = 0;
    for (int i = 0; i < 2; i++) {
        CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_ERROR_NOT_PERMITTED, "448", wanted[i], 0,
             handle(RG_KIND_CONTEXT, 20));
        CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_ERROR_NOT_PERMITTED, "4", wanted[i]);
        CALL(c, RG_OP_cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_ERROR_NOT_PERMITTED, "44", 0, wanted[i]);
    }
    CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_ERROR_INVALID_VALUE, "4", (uint32_t)CU_CTX_FLAGS_MASK);
    CHECK(reached == 0);
    CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_SUCCESS, "448", (uint32_t)CU_CTX_MAP_HOST, 0,
         handle(RG_KIND_CONTEXT, 20));
    CALL(c, RG_OP_cuCtxSetFlags, 0, CUDA_SUCCESS, "4", (uint32_t)CU_CTX_MAP_HOST);
    CALL(c, RG_OP_cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_SUCCESS, "44", 0, (uint32_t)CU_CTX_MAP_HOST);
    CHECK(reached == 3);
}

/* --- structures with pointers in them ------------------------------------------------------------------- */

static CUmemPoolProps pool_given;
static CUmemAllocationProp allocation_given;
static CUstreamBatchMemOpParams operations_given[2];
static CUDA_RESOURCE_DESC resource_given;

static CUresult make_pool(CUmemoryPool *out, const CUmemPoolProps *given)
{
    reached++;
    pool_given = *given;
    *out = (CUmemoryPool)(void *)&graph_object;
    return CUDA_SUCCESS;
}
static CUresult granularity(size_t *out, const CUmemAllocationProp *given,
                            CUmemAllocationGranularity_flags option)
{
    (void)option;
    reached++;
    allocation_given = *given;
    *out = 1;
    return CUDA_SUCCESS;
}
static CUresult batch(CUstream in, unsigned n, CUstreamBatchMemOpParams *given, unsigned flags)
{
    (void)in, (void)flags;
    reached++;
    memcpy(operations_given, given, n * sizeof *given);
    return CUDA_SUCCESS;
}
static CUresult set_stream_attribute(CUstream of, CUstreamAttrID id, const CUstreamAttrValue *value)
{
    (void)of, (void)id, (void)value;
    reached++;
    return CUDA_SUCCESS;
}
static CUresult make_texture(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
                             const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    (void)texture, (void)view;
    reached++;
    resource_given = *resource;
    *out = 1;
    return CUDA_SUCCESS;
}

static void test_memory_operations(struct client *c)
{
    CUstreamBatchMemOpParams operations[2] = {0};
    rg_driver.cuStreamBatchMemOp_v2 = batch;
    operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operations[0].waitValue.address = 0x1000;
    operations[0].waitValue.value64 = 5;
    operations[0].waitValue.alias = (CUdeviceptr)(uintptr_t)forged;
    operations[1].pad[5] = (uintptr_t)forged; /* where such an operation has nothing */
    operations[1].operation = CU_STREAM_MEM_OP_BARRIER;
    reached = 0;
    CALL(c, RG_OP_cuStreamBatchMemOp_v2, 0, CUDA_SUCCESS, "4488r", 2, 0, stream, (uint64_t)2, operations,
         sizeof operations);
    CHECK(reached == 1 && operations_given[0].waitValue.alias == 0 && operations_given[1].pad[5] == 0);
    CHECK(operations_given[0].waitValue.address == 0x1000 && operations_given[0].waitValue.value64 == 5);
    CHECK(operations_given[1].operation == CU_STREAM_MEM_OP_BARRIER);
    operations[1].operation = (CUstreamBatchMemOpType)99;
    CALL(c, RG_OP_cuStreamBatchMemOp_v2, 0, CUDA_ERROR_INVALID_VALUE, "4488r", 2, 0, stream, (uint64_t)2,
         operations, sizeof operations);
    CHECK(reached == 1);
}

static void test_stream_attributes(struct client *c)
{
    CUstreamAttrValue value = {.priority = 1};
    rg_driver.cuStreamSetAttribute = set_stream_attribute;
    reached = 0;
    CALL(c, RG_OP_cuStreamSetAttribute, 0, CUDA_SUCCESS, "48r", (uint32_t)CU_LAUNCH_ATTRIBUTE_PRIORITY,
         stream, &value, sizeof value);
    CHECK(reached == 1);
    value.programmaticEvent.event = forged;
    static const uint32_t others[] = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                      CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, 99};
    for (int i = 0; i < 3; i++)
        CALL(c, RG_OP_cuStreamSetAttribute, 0, CUDA_ERROR_INVALID_VALUE, "48r", others[i], stream, &value,
             sizeof value);
    CHECK(reached == 1);
}

/* Memory of the server's machine would be nobody's, and the client could not reach it. */
static void test_host_memory(struct client *c)
{
    static const CUmemLocationType host[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                             CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
    CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAllocationProp allocation = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    const unsigned before = reached;
    CALL(c, RG_OP_cuMemPoolCreate, 0, CUDA_ERROR_NOT_SUPPORTED, "8r", handle(RG_KIND_POOL, 31), &pool,
         sizeof pool);
    pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        pool.location.type = allocation.location.type = host[i];
        CALL(c, RG_OP_cuMemPoolCreate, 0, CUDA_ERROR_NOT_SUPPORTED, "8r", handle(RG_KIND_POOL, 31), &pool,
             sizeof pool);
        CALL(c, RG_OP_cuMemCreate, 0, CUDA_ERROR_NOT_SUPPORTED, "888r", (uint64_t)1 << 21, (uint64_t)0,
             handle(RG_KIND_ALLOCATION, 32), &allocation, sizeof allocation);
    }
    CHECK(reached == before);
}

static void test_structures(struct client *c)
{
    const CUmemPoolProps pool = {.maxSize = 77, .win32SecurityAttributes = forged};
    const CUmemAllocationProp allocation = {.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC,
                                            .win32HandleMetaData = forged};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    const CUDA_TEXTURE_DESC texture = {0};
    rg_driver.cuMemPoolCreate = make_pool;
    rg_driver.cuMemGetAllocationGranularity = granularity;
    rg_driver.cuTexObjectCreate = make_texture;
    reached = 0;
    CALL(c, RG_OP_cuMemPoolCreate, 0, CUDA_SUCCESS, "8r", handle(RG_KIND_POOL, 30), &pool, sizeof pool);
    CHECK(reached == 1 && pool_given.win32SecurityAttributes == NULL && pool_given.maxSize == 77);
    CALL(c, RG_OP_cuMemGetAllocationGranularity, 0, CUDA_SUCCESS, "4r", 0, &allocation, sizeof allocation);
    CHECK(reached == 2 && allocation_given.win32HandleMetaData == NULL);
    CHECK(allocation_given.requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC);
    test_host_memory(c);

    resource.res.linear.devPtr = 0x1000;
    CALL(c, RG_OP_rgTexObjectCreate, 0, CUDA_SUCCESS, "r8r4", &resource, sizeof resource, (uint64_t)0,
         &texture, sizeof texture, 0);
    CHECK(reached == 3 && resource_given.res.linear.devPtr == 0x1000);
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = forged;
    CALL(c, RG_OP_rgTexObjectCreate, 0, CUDA_ERROR_NOT_SUPPORTED, "r8r4", &resource, sizeof resource,
         (uint64_t)0, &texture, sizeof texture, 0);
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    CALL(c, RG_OP_rgTexObjectCreate, 0, CUDA_ERROR_INVALID_HANDLE, "r8r4", &resource, sizeof resource,
         (uint64_t)0, &texture, sizeof texture, 0);
    CHECK(reached == 3);
}

int main(void)
{
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    stub_driver_use(stub_succeed);
    struct client *c = client_create();
    enter_context(c);
    test_graph_attributes(c);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    test_coredumps(c);
    test_memory_operations(c);
    test_stream_attributes(c);
    test_structures(c);
    test_context_flags(c);
    CHECK(client_destroy(c) == 0);
    return 0;
}
