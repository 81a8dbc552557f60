/* no_context_calls.c - the calls that no_context.c makes in threads without a current context, but questions about pointers. */
#include "no_context.h"

#include <cudaProfiler.h>

/* Copies between the two pieces of memory. */
#define ROWS(o)                                                                                              \
    {                                                                                                        \
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = (o)->memory,                                     \
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (o)->other, .WidthInBytes = 64, .Height = 1      \
    }
#define BOX(o)                                                                                               \
    {                                                                                                        \
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = (o)->memory,                                     \
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (o)->other, .WidthInBytes = 64, .Height = 1,     \
        .Depth = 1                                                                                           \
    }

static _Alignas(4096) unsigned char fresh[4096];

void ask_context_and_devices(const struct objects *o)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    unsigned number = 0;
    unsigned long long id = 0;
    int value = 0, least = 0, active = 0;
    size_t size = 0, total = 0;
    char name[64];
    CUmemoryPool pool;
    CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = place};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = place};
    CUmemAccessDesc access = {place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags granted;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    TRY(cuDriverGetVersion(&value));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDeviceGetCount(&value));
    TRY(cuDeviceGetName(name, sizeof name, 0));
    TRY(cuDeviceTotalMem_v2(&size, 0));
    TRY(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    TRY(cuDeviceCanAccessPeer(&value, 0, 1));
    TRY(cuDeviceGetMemPool(&pool, 0));
    TRY(cuMemGetDefaultMemPool(&pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetMemPool(&pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &(cuuint64_t){0}));
    TRY(cuDeviceGraphMemTrim(0));
    if (TRY(cuMemPoolCreate(&pool, &props)) == CUDA_SUCCESS) {
        TRY(cuMemPoolSetAccess(pool, &access, 1));
        TRY(cuMemPoolGetAccess(&granted, pool, &place));
        TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){0}));
        TRY(cuMemPoolDestroy(pool));
    }
    TRY(cuDevicePrimaryCtxGetState(0, &number, &active));
    TRY(cuCtxGetCurrent(&context));
    TRY(cuCtxPopCurrent_v2(&context));
    TRY(cuCtxGetDevice(&device));
    TRY(cuCtxGetFlags(&number));
    TRY(cuCtxSetFlags(0));
    TRY(cuCtxGetApiVersion(o->context, &number));
    PLAIN(cuCtxGetApiVersion(NULL, &number));
    TRY(cuCtxGetId(o->context, &id));
    PLAIN(cuCtxGetId(NULL, &id));
    TRY(cuCtxGetDevice_v2(&device, o->context));
    PLAIN(cuCtxGetDevice_v2(&device, NULL));
    TRY(cuCtxSynchronize());
    TRY(cuCtxSynchronize_v2(o->context));
    printf("of the current one: %d\n", (int)cuCtxSynchronize_v2(NULL));
    TRY(cuCtxGetLimit(&size, CU_LIMIT_STACK_SIZE));
    TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    TRY(cuCtxGetCacheConfig(&(CUfunc_cache){0}));
    TRY(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    TRY(cuCtxGetSharedMemConfig(&(CUsharedconfig){0}));
    TRY(cuCtxGetStreamPriorityRange(&least, &value));
    TRY(cuCtxResetPersistingL2Cache());
    TRY(cuCtxGetExecAffinity(&(CUexecAffinityParam){0}, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    TRY(cuCtxEnablePeerAccess(o->context, 0));
    TRY(cuCtxDisablePeerAccess(o->context));
    TRY(cuMemGetInfo_v2(&size, &total));
    TRY(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    TRY(cuProfilerStart());
    TRY(cuProfilerStop());
}

void ask_for_new(struct objects *o)
{
    CUdeviceptr p = 0;
    void *h = NULL;
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function;
    CUlinkState state;
    CUarray array;
    CUmipmappedArray mipmap;
    CUtexObject texture;
    CUsurfObject surface;
    size_t pitch = 0, size = 0;
    const CUDA_ARRAY_DESCRIPTOR flat = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    const CUDA_ARRAY3D_DESCRIPTOR texels = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    const CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = o->array};
    TRY(cuMemAlloc_v2(&p, SIZE));
    TRY(cuMemAllocPitch_v2(&p, &pitch, 100, 10, 4));
    if (!apart)
        TRY(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemHostAlloc(&h, SIZE, 0));
    TRY(cuMemAllocHost_v2(&h, SIZE));
    TRY(cuMemHostRegister_v2(fresh, sizeof fresh, 0));
    TRY(cuStreamCreate(&stream, 0));
    TRY(cuStreamCreateWithPriority(&stream, 0, 0));
    TRY(cuEventCreate(&event, 0));
    TRY(cuModuleLoadData(&module, code));
    TRY(cuLinkCreate_v2(0, NULL, NULL, &state));
    TRY(cuArrayCreate_v2(&array, &flat));
    TRY(cuArray3DCreate_v2(&array, &texels));
    TRY(cuMipmappedArrayCreate(&mipmap, &texels, 3));
    TRY(cuTexObjectCreate(&texture, &resource, &(CUDA_TEXTURE_DESC){0}, NULL));
    TRY(cuSurfObjectCreate(&surface, &resource));
    OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    if (library) {
        unsigned count = 0;
        int value = 0;
        const char *name;
        CUlibrary owner;
        TRY(cuLibraryGetKernelCount(&count, library));
        OK(cuLibraryGetKernel(&kernel, library, "add"));
        TRY(cuLibraryEnumerateKernels(&kernel, 1, library));
        TRY(cuLibraryGetManaged(&p, &size, library, "table"));
        TRY(cuKernelGetName(&name, kernel));
        TRY(cuKernelGetLibrary(&owner, kernel));
        TRY(cuKernelGetParamInfo(kernel, 0, &size, &pitch));
        TRY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0));
        TRY(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
        PLAIN(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, (CUfunction)kernel));
        TRY(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
        TRY(cuKernelGetFunction(&function, kernel));
        TRY(cuLibraryGetModule(&module, library));
        TRY(cuLibraryGetGlobal(&p, &size, library, "table"));
        OK(cuLibraryUnload(library));
    }
}

static void CUDA_CB host_function(void *data)
{
    (void)data;
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}

void ask_stream(struct objects *o)
{
    CUcontext context = NULL;
    CUdevice device = -1;
    CUdeviceptr p = 0;
    CUgreenCtx green = NULL;
    unsigned flags = 0;
    int priority = 0;
    unsigned long long id = 0;
    CUgraph captured = NULL;
    CUstreamCaptureStatus status;
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_AUTO};
    unsigned one = 1;
    void *arguments[] = {&o->memory, &one};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, o->stream, NULL, 0};
    CUstreamBatchMemOpParams write = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = o->memory + 64, .value = 5}};
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    const CUDA_MEMCPY3D_PEER across = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .srcDevice = o->memory,
                                       .srcContext = o->context,
                                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .dstDevice = o->other,
                                       .dstContext = o->context,
                                       .WidthInBytes = 64,
                                       .Height = 1,
                                       .Depth = 1};
    size_t from = 0, size = SIZE, failed = 0;
    const CUDA_MEMCPY2D rows = ROWS(o);
    const CUDA_MEMCPY3D box = BOX(o);
    OK(cuStreamQuery(o->stream));
    OK(cuStreamSynchronize(o->stream));
    OK(cuStreamGetCtx(o->stream, &context));
    OK(cuStreamGetDevice(o->stream, &device));
    OK(cuStreamGetFlags(o->stream, &flags));
    OK(cuStreamGetPriority(o->stream, &priority));
    OK(cuStreamGetId(o->stream, &id));
    OK(cuStreamGetAttribute(o->stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuStreamSetAttribute(o->stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuStreamGetCtx_v2(o->stream, &context, &green));
    OK(cuStreamGetGreenCtx(o->stream, &green));
    OK(cuStreamCopyAttributes(o->stream, o->spare_stream));
    printf("%d, device %d\n", context == o->context, (int)device);
    OK(cuMemsetD32Async(o->memory, 7, SIZE / 4, o->stream));
    OK(cuMemsetD2D8Async(o->memory, 64, 7, 32, 4, o->stream));
    OK(cuMemsetD16Async(o->memory, 7, 16, o->stream));
    OK(cuMemsetD2D16Async(o->memory, 64, 7, 16, 4, o->stream));
    OK(cuMemsetD2D32Async(o->memory, 64, 7, 8, 4, o->stream));
    OK(cuLaunchKernel(o->function, 1, 1, 1, 1, 1, 1, 0, o->stream, arguments, NULL));
    OK(cuLaunchKernelEx(&config, o->function, arguments, NULL));
    OK(cuLaunchKernel((CUfunction)o->kernel, 1, 1, 1, 1, 1, 1, 0, o->stream, arguments, NULL));
    OK(cuLaunchCooperativeKernel(o->function, 1, 1, 1, 1, 1, 1, 0, o->stream, arguments));
    OK(cuStreamWriteValue32_v2(o->stream, o->memory + 64, 5, 0));
    OK(cuStreamWaitValue32_v2(o->stream, o->memory + 64, 5, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue64_v2(o->stream, o->memory + 64, 5, 0));
    OK(cuStreamWaitValue64_v2(o->stream, o->memory + 64, 5, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamBatchMemOp_v2(o->stream, 1, &write, 0));
    OK(cuMemcpyAsync(o->other, o->memory, SIZE, o->stream));
    OK(cuMemcpyDtoDAsync_v2(o->other, o->memory, SIZE, o->stream));
    OK(cuMemcpyHtoDAsync_v2(o->other, bytes, 16, o->stream));
    OK(cuMemcpyDtoHAsync_v2(o->host, o->memory, SIZE, o->stream));
    OK(cuMemcpy2DAsync_v2(&rows, o->stream));
    OK(cuMemcpy3DAsync_v2(&box, o->stream));
    OK(cuMemcpyHtoAAsync_v2(o->array, 0, bytes, 16, o->stream));
    OK(cuMemcpyAtoHAsync_v2(o->host, o->array, 0, 16, o->stream));
    OK(cuMemcpyPeerAsync(o->other, o->context, o->memory, o->context, 16, o->stream));
    OK(cuMemcpy3DPeerAsync(&across, o->stream));
    OK(cuMemcpy3DPeer(&across));
    OK(cuMemcpyBatchAsync(&o->other, &o->memory, &size, 1, &how, &from, 1, &failed, o->stream));
    OK(cuLaunchHostFunc(o->stream, host_function, NULL));
    OK(cuStreamAddCallback(o->stream, callback, NULL, 0));
    OK(cuEventRecordWithFlags(o->event, o->stream, 0));
    OK(cuEventRecord(o->event, o->stream));
    OK(cuStreamWaitEvent(o->spare_stream, o->event, 0));
    OK(cuMemAllocAsync(&p, SIZE, o->stream));
    OK(cuMemFreeAsync(p, o->stream));
    OK(cuMemAllocFromPoolAsync(&p, SIZE, o->pool, o->stream));
    OK(cuMemFreeAsync(p, o->stream));
    OK(cuGraphUpload(o->exec, o->stream));
    OK(cuGraphLaunch(o->exec, o->stream));
    OK(cuStreamIsCapturing(o->stream, &status));
    OK(cuStreamGetCaptureInfo_v2(o->stream, &status, NULL, NULL, NULL, NULL));
    OK(cuStreamGetCaptureInfo_v3(o->stream, &status, NULL, NULL, NULL, NULL, NULL));
    OK(cuStreamBeginCapture_v2(o->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(o->memory, 7, SIZE / 4, o->stream));
    OK(cuStreamEndCapture(o->stream, &captured));
    if (captured)
        OK(cuGraphDestroy(captured));
    OK(cuStreamSynchronize(o->stream));
    OK(cuEventQuery(o->event));
    OK(cuEventSynchronize(o->event));
}

/* A default stream is one of the current context. */
void ask_default_streams(struct objects *o)
{
    CUdeviceptr p = 0;
    CUcontext context;
    unsigned one = 1;
    void *arguments[] = {&o->memory, &one};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    const CUDA_MEMCPY2D rows = ROWS(o);
    const CUDA_MEMCPY3D box = BOX(o);
    PLAIN(cuStreamSynchronize(NULL));
    PLAIN(cuStreamSynchronize(CU_STREAM_LEGACY));
    PLAIN(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    PLAIN(cuStreamGetCtx(NULL, &context));
    PLAIN(cuMemsetD32Async(o->memory, 7, SIZE / 4, NULL));
    PLAIN(cuMemcpyAsync(o->other, o->memory, SIZE, CU_STREAM_LEGACY));
    PLAIN(cuMemcpyHtoDAsync_v2(o->other, bytes, 16, CU_STREAM_PER_THREAD));
    PLAIN(cuLaunchKernel(o->function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    PLAIN(cuLaunchKernelEx(&config, o->function, arguments, NULL));
    PLAIN(cuLaunchHostFunc(NULL, host_function, NULL));
    PLAIN(cuEventRecord(o->event, NULL));
    PLAIN(cuMemAllocAsync(&p, SIZE, NULL));
    PLAIN(cuMemFreeAsync(o->pooled, NULL));
    PLAIN(cuGraphLaunch(o->exec, NULL));
    TRY(cuMemcpy(o->other, o->memory, SIZE));
    TRY(cuMemcpyHtoD_v2(o->other, bytes, 16));
    TRY(cuMemcpyDtoH_v2(bytes, o->other, 16));
    TRY(cuMemcpyDtoD_v2(o->other, o->memory, 16));
    TRY(cuMemcpyHtoA_v2(o->array, 0, bytes, 16));
    TRY(cuMemcpyAtoH_v2(bytes, o->array, 0, 16));
    TRY(cuMemcpyAtoD_v2(o->other, o->array, 0, 16));
    TRY(cuMemcpyDtoA_v2(o->array, 0, o->other, 16));
    TRY(cuMemcpyAtoA_v2(o->array, 0, o->array, 0, 16));
    TRY(cuMemcpy2D_v2(&rows));
    TRY(cuMemcpy3D_v2(&box));
    TRY(cuMemsetD8_v2(o->other, 3, 16));
    TRY(cuMemsetD2D32_v2(o->other, 64, 3, 4, 4));
}

void ask_objects(struct objects *o)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUarray level = NULL;
    CUtexref reference = NULL;
    CUdeviceptr p = 0;
    size_t size = 0;
    unsigned count = 0;
    int value = 0, blocks = 0;
    float ms = 0;
    const char *name = NULL;
    void *cubin = NULL;
    CUDA_ARRAY_DESCRIPTOR flat;
    CUDA_ARRAY3D_DESCRIPTOR texels;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC description;
    CUDA_RESOURCE_VIEW_DESC view;
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUmipmappedArray mipmap;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    float border[4] = {0};

    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUfunctionLoadingState loaded;
    OK(cuModuleGetFunction(&function, o->module, "add"));
    OK(cuModuleGetFunctionCount(&count, o->module));
    OK(cuModuleEnumerateFunctions(&function, 1, o->module));
    OK(cuModuleGetGlobal_v2(&p, &size, o->module, "table"));
    OK(cuModuleGetTexRef(&reference, o->module, "image"));
    OK(cuFuncGetModule(&module, o->function));
    OK(cuFuncGetName(&name, o->function));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, o->function));
    OK(cuFuncSetAttribute(o->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    OK(cuFuncSetCacheConfig(o->function, CU_FUNC_CACHE_PREFER_L1));
    OK(cuFuncIsLoaded(&loaded, o->function));
    OK(cuFuncLoad(o->function));
    OK(cuFuncSetBlockShape(o->function, 1, 1, 1));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, o->function, 32, 0));
    OK(cuOccupancyMaxPotentialBlockSize(&blocks, &value, o->function, NULL, 0, 0));
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&size, o->function, 1, 32));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, o->function, 32, 0, 0));
    OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&blocks, &value, o->function, NULL, 0, 0, 0));
    OK(cuOccupancyMaxActiveClusters(&blocks, o->function, &config));
    OK(cuOccupancyMaxPotentialClusterSize(&blocks, o->function, &config));
    OK(cuFuncSetSharedSize(o->function, 0));
    OK(cuParamSetSize(o->function, 12));
    OK(cuParamSeti(o->function, 8, 1));
    OK(cuParamSetf(o->function, 8, 1));
    OK(cuParamSetv(o->function, 0, &o->memory, sizeof o->memory));
    TRY(cuFuncSetSharedMemConfig(o->function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    OK(cuArrayGetDescriptor_v2(&flat, o->array));
    OK(cuArray3DGetDescriptor_v2(&texels, o->array));
    OK(cuMipmappedArrayGetLevel(&level, o->mipmap, 1));
    TRY(cuArrayGetPlane(&level, o->array, 0));
    TRY(cuArrayGetSparseProperties(&sparse, o->array));
    OK(cuTexObjectGetResourceDesc(&resource, o->texture));
    OK(cuTexObjectGetTextureDesc(&description, o->texture));
    TRY(cuTexObjectGetResourceViewDesc(&view, o->texture));
    OK(cuSurfObjectGetResourceDesc(&resource, o->surface));
    OK(cuParamSetTexRef(o->function, CU_PARAM_TR_DEFAULT, o->texref));
    OK(cuTexRefSetFlags(o->texref, CU_TRSF_NORMALIZED_COORDINATES));
    OK(cuTexRefGetFlags(&count, o->texref));
    OK(cuTexRefSetFormat(o->texref, CU_AD_FORMAT_FLOAT, 1));
    OK(cuTexRefGetFormat((CUarray_format *)&count, &value, o->texref));
    OK(cuTexRefSetAddressMode(o->texref, 0, CU_TR_ADDRESS_MODE_CLAMP));
    OK(cuTexRefGetAddressMode((CUaddress_mode *)&count, o->texref, 0));
    OK(cuTexRefSetFilterMode(o->texref, CU_TR_FILTER_MODE_POINT));
    OK(cuTexRefGetFilterMode((CUfilter_mode *)&count, o->texref));
    OK(cuTexRefSetMipmapFilterMode(o->texref, CU_TR_FILTER_MODE_POINT));
    OK(cuTexRefGetMipmapFilterMode((CUfilter_mode *)&count, o->texref));
    OK(cuTexRefSetMipmapLevelBias(o->texref, 0));
    OK(cuTexRefGetMipmapLevelBias(&ms, o->texref));
    OK(cuTexRefSetMipmapLevelClamp(o->texref, 0, 1));
    OK(cuTexRefGetMipmapLevelClamp(&ms, &ms, o->texref));
    OK(cuTexRefSetMaxAnisotropy(o->texref, 1));
    OK(cuTexRefGetMaxAnisotropy(&value, o->texref));
    OK(cuTexRefSetBorderColor(o->texref, border));
    OK(cuTexRefGetBorderColor(border, o->texref));
    OK(cuTexRefSetAddress_v2(&size, o->texref, o->memory, SIZE));
    OK(cuTexRefGetAddress_v2(&p, o->texref));
    OK(cuTexRefSetAddress2D_v3(o->texref, &flat, o->memory, 64));
    OK(cuTexRefSetMipmappedArray(o->texref, o->mipmap, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefGetMipmappedArray(&mipmap, o->texref));
    OK(cuTexRefSetArray(o->texref, o->array, CU_TRSA_OVERRIDE_FORMAT));
    OK(cuTexRefGetArray(&level, o->texref));
    OK(cuSurfRefSetArray(o->surfref, o->array, 0));
    OK(cuSurfRefGetArray(&level, o->surfref));
    OK(cuLinkAddData_v2(o->link, CU_JIT_INPUT_PTX, (void *)code, sizeof code, "m", 0, NULL, NULL));
    OK(cuLinkComplete(o->link, &cubin, &size));
    OK(cuEventRecord(o->spare_event, o->stream));
    OK(cuEventSynchronize(o->spare_event));
    TRY(cuEventElapsedTime_v2(&ms, o->event, o->spare_event));
    OK(cuIpcGetMemHandle(&memory, o->shared));
    OK(cuIpcGetEventHandle(&event, o->shared_event));
    TRY(cuIpcCloseMemHandle(o->memory));
    OK(cuMemcpyPeer(o->other, o->context, o->memory, o->context, 16));
    OK(cuMemPoolTrimTo(o->pool, 0));
    OK(cuMemPoolGetAttribute(o->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){0}));
    TRY(cuCtxRecordEvent(o->context, o->spare_event));
    TRY(cuCtxWaitEvent(o->context, o->spare_event));
}

void ask_managed(struct objects *o)
{
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, o->device};
    CUmem_range_attribute which[1] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
    int value = 0;
    size_t from = 0, size = SIZE, sizes[1] = {sizeof value};
    void *values[1] = {&value};
    OK(cuMemPrefetchAsync(o->managed, SIZE, o->device, o->stream));
    OK(cuMemPrefetchBatchAsync(&o->managed, &size, 1, &location, &from, 1, 0, o->stream));
    OK(cuMemDiscardBatchAsync(&o->managed, &size, 1, 0, o->stream));
    OK(cuMemDiscardAndPrefetchBatchAsync(&o->managed, &size, 1, &location, &from, 1, 0, o->stream));
    OK(cuMemPrefetchAsync_v2(o->managed, SIZE, location, 0, o->stream));
    OK(cuStreamAttachMemAsync(o->stream, o->managed, 0, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAdvise_v2(o->managed, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, location));
    OK(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, o->managed, SIZE));
    OK(cuMemRangeGetAttributes(values, sizes, which, 1, o->managed, SIZE));
    OK(cuMemAdvise(o->managed, SIZE, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
}

void ask_graphs(struct objects *o)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    unsigned one = 1;
    void *arguments[] = {&o->memory, &one};
    const CUDA_KERNEL_NODE_PARAMS launch = {o->function, 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL};
    CUgraphConditionalHandle condition = 0;
    CUgraphNodeParams decided = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    decided.conditional.type = CU_GRAPH_COND_TYPE_IF;
    decided.conditional.size = 1;
    const CUDA_MEMSET_NODE_PARAMS fill = {o->memory, 0, 1, 4, 16, 1};
    OK(cuGraphCreate(&graph, 0));
    if (!graph)
        return;
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &launch));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, o->context));
    TRY(cuGraphConditionalHandleCreate(&condition, graph, o->context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    decided.conditional.handle = condition;
    decided.conditional.ctx = o->context;
    if (TRY(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &decided)) == CUDA_SUCCESS)
        TRY(cuGraphAddKernelNode_v2(&node, decided.conditional.phGraph_out[0], NULL, 0, &launch));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (exec) {
        OK(cuGraphLaunch(exec, o->stream));
        OK(cuGraphExecDestroy(exec));
    }
    OK(cuGraphDestroy(graph));
}

void end(struct objects *o)
{
    size_t large = 0;
    const CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, o->device}};
    OK(cuGraphExecDestroy(o->exec));
    OK(cuGraphDestroy(o->graph));
    OK(cuLinkDestroy(o->link));
    OK(cuTexObjectDestroy(o->texture));
    OK(cuSurfObjectDestroy(o->surface));
    OK(cuMipmappedArrayDestroy(o->mipmap));
    OK(cuArrayDestroy(o->spare_array));
    OK(cuModuleUnload(o->spare_module));
    OK(cuLibraryUnload(o->library));
    OK(cuMemFreeAsync(o->pooled, o->stream));
    OK(cuMemFree_v2(o->shared));
    if (!apart)
        OK(cuMemFree_v2(o->managed));
    PLAIN(cuMemFree_v2(0));
    OK(cuMemFreeHost(o->freed));
    PLAIN(cuMemFreeHost(NULL));
    OK(cuMemHostUnregister(o->registered));
    OK(cuEventDestroy_v2(o->spare_event));
    OK(cuStreamDestroy_v2(o->spare_stream));
    OK(cuMemGetAllocationGranularity(&large, &physical, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemUnmap(o->mapped, large));
    OK(cuMemRelease(o->allocation));
    OK(cuMemAddressFree(o->mapped, large));
}
