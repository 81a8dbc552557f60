/* wrong_objects.c - streams, events, contexts, modules, launches, arrays and graphs with any arguments. See wrong_arguments.c. */
#include "wrong_arguments.h"

#include <string.h>

static void CUDA_CB nothing(void *unused)
{
    (void)unused;
}

/* --- streams and events ---------------------------------------------------------------------------------------------- */

static void make_stream(void)
{
    CUstream stream = NULL;
    if (choose(2))
        TELL(cuStreamCreate, or_null(&stream), flags());
    else
        TELL(cuStreamCreateWithPriority, or_null(&stream), flags(), a_number());
    if (stream)
        TELL(cuStreamDestroy_v2, stream);
}

static void ask_of_stream(void)
{
    unsigned number = 0;
    int priority = 0;
    unsigned long long id = 0;
    CUcontext context = NULL;
    CUdevice device = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstreamAttrValue value;
    memset(&value, 0, sizeof value);
    switch (choose(8)) {
    case 0:
        TELL(cuStreamGetFlags, a_stream(), or_null(&number));
        printf("  %u\n", number);
        break;
    case 1:
        TELL(cuStreamGetPriority, a_stream(), or_null(&priority));
        printf("  %d\n", priority);
        break;
    case 2:
        TELL(cuStreamGetId, a_stream(), or_null(&id));
        break;
    case 3:
        TELL(cuStreamGetCtx, a_stream(), or_null(&context));
        printf("  %s\n", context == of.a ? "A" : context == of.b ? "B" : context ? "else" : "0");
        break;
    case 4:
        TELL(cuStreamGetDevice, a_stream(), or_null(&device));
        break;
    case 5:
        TELL(cuStreamIsCapturing, a_stream(), or_null(&status));
        break;
    case 6:
        TELL(cuStreamGetAttribute, a_stream(), (CUstreamAttrID)a_number(), or_null(&value));
        break;
    default:
        TELL(cuStreamCopyAttributes, a_stream(), a_stream());
        break;
    }
}

static void capture(void)
{
    CUgraph graph = NULL;
    const CUstream stream = a_stream();
    const CUresult begun =
        cuStreamBeginCapture_v2(stream, wrongly(4) ? (CUstreamCaptureMode)7 : CU_STREAM_CAPTURE_MODE_RELAXED);
    tell("cuStreamBeginCapture_v2", begun);
    if (begun == CUDA_SUCCESS && choose(2)) /* which ends it */
        TELL(cuStreamQuery, stream);
    if (choose(2))
        TELL(cuMemsetD8Async, of.memory, 1, 64, stream);
    TELL(cuStreamEndCapture, stream, or_null(&graph));
    if (graph)
        TELL(cuGraphDestroy, graph);
}

void wrong_stream_call(void)
{
    switch (choose(9)) {
    case 0:
        make_stream();
        break;
    case 1:
        ask_of_stream();
        break;
    case 2:
        TELL(cuStreamSynchronize, a_stream());
        break;
    case 3: {
        const CUstream stream = a_stream();
        if (cuCtxSynchronize_v2(of.a) == CUDA_SUCCESS && cuCtxSynchronize_v2(of.b) == CUDA_SUCCESS)
            TELL(cuStreamQuery, stream);
        break;
    }
    case 4:
        TELL(cuStreamWaitEvent, a_stream(), an_event(), flags());
        break;
    case 5:
        TELL(cuStreamWriteValue32_v2, a_stream(), an_address(), 1, flags());
        break;
    case 6:
        TELL(cuLaunchHostFunc, a_stream(), wrongly(4) ? NULL : nothing, NULL);
        break;
    case 7:
        capture();
        break;
    default: { /* of none, so that the others live on */
        const CUstream none[] = {of.ended_stream, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
        TELL(cuStreamDestroy_v2, none[choose(4)]);
        break;
    }
    }
}

void wrong_event_call(void)
{
    CUevent event = NULL;
    float ms = -1;
    switch (choose(7)) {
    case 0:
        TELL(cuEventCreate, or_null(&event), flags());
        if (event)
            TELL(cuEventDestroy_v2, event);
        break;
    case 1:
        TELL(cuEventRecord, an_event(), a_stream());
        break;
    case 2:
        TELL(cuEventRecordWithFlags, an_event(), a_stream(), flags());
        break;
    case 3:
        if (cuCtxSynchronize_v2(of.a) == CUDA_SUCCESS && cuCtxSynchronize_v2(of.b) == CUDA_SUCCESS)
            TELL(cuEventQuery, an_event());
        break;
    case 4:
        TELL(cuEventSynchronize, an_event());
        break;
    case 5:
        if (cuCtxSynchronize_v2(of.a) == CUDA_SUCCESS && cuCtxSynchronize_v2(of.b) == CUDA_SUCCESS)
            TELL(cuEventElapsedTime_v2, or_null(&ms), an_event(), an_event());
        break;
    default:
        TELL(cuEventDestroy_v2, wrongly(2) ? NULL : of.ended_event);
        break;
    }
}

/* --- contexts and devices -------------------------------------------------------------------------------------------- */

static void ask_of_device(void)
{
    char text[64] = "";
    int number = 0;
    size_t size = 0;
    CUdevice device = 0;
    switch (choose(7)) {
    case 0:
        TELL(cuDeviceGet, or_null(&device), a_number());
        break;
    case 1:
        TELL(cuDeviceGetName, or_null(text), wrongly(4) ? -1 : 60, a_number());
        break;
    case 2:
        TELL(cuDeviceGetAttribute, or_null(&number), (CUdevice_attribute)choose(160), a_number());
        break;
    case 3:
        TELL(cuDeviceTotalMem_v2, or_null(&size), a_number());
        break;
    case 4:
        TELL(cuDeviceCanAccessPeer, or_null(&number), a_number(), a_number());
        break;
    case 5:
        TELL(cuDeviceGetPCIBusId, or_null(text), wrongly(4) ? -1 : 60, a_number());
        break;
    default:
        TELL(cuDeviceGetP2PAttribute, or_null(&number), (CUdevice_P2PAttribute)a_number(), a_number(),
             a_number());
        break;
    }
}

void wrong_context_call(void)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    unsigned number = 0;
    size_t size = 0;
    int least = 0, greatest = 0;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    switch (choose(13)) {
    case 0:
        TELL(cuCtxGetCurrent, or_null(&context));
        break;
    case 1:
        TELL(cuCtxGetDevice, or_null(&device));
        break;
    case 2:
        TELL(cuCtxGetFlags, or_null(&number));
        break;
    case 3:
        TELL(cuCtxGetLimit, or_null(&size), (CUlimit)a_number());
        break;
    case 4:
        TELL(cuCtxSetLimit, (CUlimit)a_number(), (size_t)choose(3) * 65536);
        break;
    case 5:
        TELL(cuCtxGetCacheConfig, or_null(&cache));
        break;
    case 6:
        TELL(cuCtxSetCacheConfig, (CUfunc_cache)a_number());
        break;
    case 7:
        TELL(cuCtxGetApiVersion, a_context(), or_null(&number));
        break;
    case 8:
        TELL(cuCtxGetStreamPriorityRange, or_null(&least), or_null(&greatest));
        break;
    case 9:
        TELL(cuCtxEnablePeerAccess, a_context(), flags());
        break;
    case 10:
        TELL(cuCtxDisablePeerAccess, a_context());
        break;
    case 11:
        TELL(cuCtxPushCurrent_v2, a_context());
        TELL(cuCtxPopCurrent_v2, or_null(&context));
        break;
    default:
        ask_of_device();
        break;
    }
}

/* --- modules and launches -------------------------------------------------------------------------------------------- */

static void ask_of_function(void)
{
    int number = 0, grid = 0;
    size_t offset = 0, size = 0;
    const char *name = NULL;
    CUmodule module = NULL;
    switch (choose(8)) {
    case 0:
        TELL(cuFuncGetAttribute, or_null(&number), (CUfunction_attribute)choose(20), a_function());
        break;
    case 1:
        TELL(cuFuncSetAttribute, a_function(), (CUfunction_attribute)choose(20), a_number());
        break;
    case 2:
        TELL(cuFuncGetName, or_null(&name), a_function());
        break;
    case 3:
        TELL(cuFuncGetModule, or_null(&module), a_function());
        break;
    case 4:
        TELL(cuFuncGetParamInfo, a_function(), (size_t)a_number(), or_null(&offset), or_null(&size));
        break;
    case 5:
        TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, or_null(&number), a_function(), a_number(),
             a_copied_size());
        break;
    case 6:
        TELL(cuOccupancyMaxPotentialBlockSize, or_null(&grid), or_null(&number), a_function(), NULL,
             a_copied_size(), a_number());
        break;
    default:
        TELL(cuFuncSetCacheConfig, a_function(), (CUfunc_cache)a_number());
        break;
    }
}

void wrong_module_call(void)
{
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    size_t size = 0;
    CUmodule module = NULL;
    CUkernel kernel = NULL;
    unsigned count = 0;
    switch (choose(8)) {
    case 0:
        TELL(cuModuleGetFunction, or_null(&function), a_module(), a_name());
        break;
    case 1:
        TELL(cuModuleGetGlobal_v2, or_null(&address), or_null(&size), a_module(), a_name());
        break;
    case 2:
        TELL(cuModuleLoadData, or_null(&module), wrongly(2) ? NULL : "");
        break;
    case 3:
        TELL(cuModuleGetFunctionCount, or_null(&count), a_module());
        break;
    case 4:
        TELL(cuLibraryGetKernel, or_null(&kernel), wrongly(4) ? NULL : of.loaded, a_name());
        break;
    case 5:
        TELL(cuLibraryGetGlobal, or_null(&address), or_null(&size), wrongly(4) ? NULL : of.loaded, a_name());
        break;
    case 6:
        TELL(cuModuleUnload, NULL);
        break;
    default:
        ask_of_function();
        break;
    }
}

void wrong_launch(void)
{
    static const unsigned extents[] = {1, 0, 2, 1024, 1025, 1u << 31};
    unsigned d[6];
    char text[80];
    void *parameters[] = {&of.memory};
    for (unsigned i = 0; i < 6; i++)
        d[i] = wrongly(10) ? extents[choose(6)] : 1;
    for (unsigned i = 0; i < 3; i++) /* what is allowed, and takes long */
        if (d[i] > 2 && (i == 0 || d[i] <= 65535))
            d[i] = d[i] % 2 + 1;
    snprintf(text, sizeof text, "%u %u %u, %u %u %u", d[0], d[1], d[2], d[3], d[4], d[5]);
    say(text);
    const unsigned shared = wrongly(5) ? 1u << (10 + choose(12)) : 0;
    switch (choose(3)) {
    case 0:
        TELL(cuLaunchKernel, a_function(), d[0], d[1], d[2], d[3], d[4], d[5], shared, a_stream(), parameters,
             NULL);
        break;
    case 1:
        TELL(cuLaunchCooperativeKernel, a_function(), d[0], d[1], d[2], d[3], d[4], d[5], shared, a_stream(),
             parameters);
        break;
    default: {
        CUlaunchAttribute attribute;
        memset(&attribute, 0, sizeof attribute);
        attribute.id = (CUlaunchAttributeID)choose(10);
        snprintf(text, sizeof text, "attribute %d", (int)attribute.id);
        say(text);
        CUlaunchConfig config = {d[0], d[1],   d[2],       d[3],       d[4],
                                 d[5], shared, a_stream(), &attribute, choose(2)};
        TELL(cuLaunchKernelEx, wrongly(20) ? NULL : &config, a_function(), parameters, NULL);
        break;
    }
    }
}

/* --- arrays and graphs ----------------------------------------------------------------------------------------------- */

static void make_array(void)
{
    CUarray array = NULL;
    CUmipmappedArray mipmap = NULL;
    const size_t extents[] = {16, 0, 1, (size_t)1 << 40};
    const CUDA_ARRAY3D_DESCRIPTOR texels = {.Width = extents[wrongly(8) ? choose(4) : 0],
                                            .Height = extents[wrongly(3) ? choose(4) : 0],
                                            .Depth = extents[wrongly(3) ? choose(4) : 1],
                                            .Format = wrongly(4) ? (CUarray_format)choose(40)
                                                                 : CU_AD_FORMAT_UNSIGNED_INT8,
                                            .NumChannels = wrongly(4) ? choose(6) : 1,
                                            .Flags = flags()};
    char text[100];
    snprintf(text, sizeof text, "%zu %zu %zu of %u times %d", texels.Width, texels.Height, texels.Depth,
             texels.NumChannels, (int)texels.Format);
    say(text);
    if (choose(2)) {
        TELL(cuArray3DCreate_v2, or_null(&array), wrongly(20) ? NULL : &texels);
        if (array)
            TELL(cuArrayDestroy, array);
        return;
    }
    TELL(cuMipmappedArrayCreate, or_null(&mipmap), wrongly(20) ? NULL : &texels, (unsigned)choose(6) + 1);
    if (mipmap)
        TELL(cuMipmappedArrayDestroy, mipmap);
}

static void make_texture(void)
{
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    CUDA_RESOURCE_DESC of_what;
    CUDA_TEXTURE_DESC how;
    memset(&of_what, 0, sizeof of_what);
    memset(&how, 0, sizeof how);
    of_what.resType = wrongly(8) ? (CUresourcetype)7 : (CUresourcetype)choose(4);
    if (of_what.resType == CU_RESOURCE_TYPE_ARRAY) {
        of_what.res.array.hArray = an_array();
    } else if (of_what.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        of_what.res.mipmap.hMipmappedArray = wrongly(3) ? NULL : of.mipmap;
    } else {
        of_what.res.linear.devPtr = an_address();
        of_what.res.linear.format = wrongly(4) ? (CUarray_format)choose(40) : CU_AD_FORMAT_UNSIGNED_INT8;
        of_what.res.linear.numChannels = wrongly(4) ? choose(6) : 1;
        of_what.res.linear.sizeInBytes = a_copied_size();
    }
    how.filterMode = (CUfilter_mode)choose(2);
    how.addressMode[0] = (CUaddress_mode)choose(4);
    how.flags = choose(2) ? CU_TRSF_READ_AS_INTEGER : 0;
    if (choose(2)) {
        TELL(cuTexObjectCreate, or_null(&texture), wrongly(20) ? NULL : &of_what, wrongly(20) ? NULL : &how,
             NULL);
        if (texture)
            TELL(cuTexObjectDestroy, texture);
        return;
    }
    TELL(cuSurfObjectCreate, or_null(&surface), wrongly(20) ? NULL : &of_what);
    if (surface)
        TELL(cuSurfObjectDestroy, surface);
}

void wrong_array_call(void)
{
    CUDA_ARRAY3D_DESCRIPTOR texels;
    CUarray level = NULL;
    memset(&texels, 0, sizeof texels);
    switch (choose(6)) {
    case 0:
        make_array();
        break;
    case 1:
        TELL(cuArray3DGetDescriptor_v2, or_null(&texels), an_array());
        printf("  %zu\n", texels.Width);
        break;
    case 2:
        TELL(cuMipmappedArrayGetLevel, or_null(&level), wrongly(3) ? NULL : of.mipmap, (unsigned)a_number());
        break;
    case 3: {
        const CUarray none[] = {of.ended_array, of.level, NULL};
        TELL(cuArrayDestroy, none[choose(3)]);
        break;
    }
    case 4:
        TELL(cuTexObjectDestroy, 0);
        break;
    default:
        make_texture();
        break;
    }
}

static void add_nodes(CUgraph graph)
{
    CUgraphNode node = NULL;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    void *parameters[] = {&of.memory};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = a_function(),
                                      .gridDimX = !wrongly(8),
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = wrongly(8) ? 2000 : 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUDA_MEMSET_NODE_PARAMS set = {.dst = an_address(),
                                   .elementSize = wrongly(4) ? choose(5) : 1,
                                   .width = wrongly(8) ? a_size() : 16,
                                   .height = wrongly(8) ? 0 : 1,
                                   .pitch = 64};
    TELL(cuGraphAddKernelNode_v2, or_null(&node), graph, NULL, wrongly(8), wrongly(20) ? NULL : &kernel);
    if (node)
        TELL(cuGraphNodeGetType, node, or_null(&type));
    TELL(cuGraphAddMemsetNode, or_null(&node), graph, NULL, 0, wrongly(20) ? NULL : &set, a_context());
    TELL(cuGraphAddEmptyNode, or_null(&node), graph, &node, node && choose(2));
    TELL(cuGraphAddEventRecordNode, or_null(&node), graph, NULL, 0, an_event());
}

void wrong_graph_call(void)
{
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    size_t count = 0;
    TELL(cuGraphCreate, &graph, flags());
    if (!graph)
        return;
    add_nodes(graph);
    TELL(cuGraphGetNodes, wrongly(8) ? NULL : graph, NULL, or_null(&count));
    TELL(cuGraphInstantiateWithFlags, or_null(&run), graph, flags());
    if (run) {
        TELL(cuGraphLaunch, run, a_stream());
        TELL(cuGraphExecDestroy, run);
    }
    TELL(cuGraphDestroy, graph);
}
