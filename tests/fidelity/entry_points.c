/*
 * entry_points.c - a transcript of calls that few programs make: the entry points with 32-bit sizes and addresses, launches
 * in pieces, batches, memory operations of streams, questions about clusters and devices, the driver's log, and what is
 * refused. As in wrong_use.c, nothing that differs between two runs is printed.
 */
#include <cuda.h>
#include <cudaProfiler.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .global .u32 var[4];\n"
                          ".visible .entry k(.param .u64 p, .param .u32 n, .param .f32 f)\n"
                          "{\n"
                          "    .reg .u32 %r<6>;\n"
                          "    .reg .u64 %rd<4>;\n"
                          "    .reg .f32 %f<2>;\n"
                          "    ld.param.u64 %rd1, [p];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    ld.param.f32 %f1, [f];\n"
                          "    mov.u32 %r2, %tid.x;\n"
                          "    mov.u32 %r3, %ctaid.x;\n"
                          "    mov.u32 %r4, %ntid.x;\n"
                          "    mad.lo.u32 %r5, %r3, %r4, %r2;\n"
                          "    cvta.to.global.u64 %rd2, %rd1;\n"
                          "    mul.wide.u32 %rd3, %r5, 4;\n"
                          "    add.u64 %rd2, %rd2, %rd3;\n"
                          "    cvt.rzi.u32.f32 %r3, %f1;\n"
                          "    add.u32 %r1, %r1, %r3;\n"
                          "    add.u32 %r1, %r1, %r5;\n"
                          "    st.global.u32 [%rd2], %r1;\n"
                          "    ret;\n"
                          "}\n";

static CUcontext c;
static CUmodule m;
static CUlibrary l;
static CUfunction f;
static CUstream s;
static CUevent e;
static CUdeviceptr p, q;
static size_t sz;
static unsigned h[64], back[64];
static int v;

static void show(const char *what, const unsigned *data, int n)
{
    printf("%s:", what);
    for (int i = 0; i < n; i++)
        printf(" %u", data[i]);
    printf("\n");
}

static void before_init(void)
{
    unsigned u;
    CUdeviceptr_v1 small;
    TRY(cuDeviceTotalMem(&u, 0));
    TRY(cuMemAlloc(&small, 4));
    TRY(cuFuncSetBlockShape(NULL, 1, 1, 1));
    TRY(cuLaunch(NULL));
    TRY(cuGraphicsUnregisterResource(NULL));
    TRY(cuImportExternalMemory(NULL, NULL));
    TRY(cuStreamBatchMemOp_v2(NULL, 0, NULL, 0));
    TRY(cuMemcpyBatchAsync_v2(NULL, NULL, NULL, 0, NULL, NULL, 0, NULL));
    TRY(cuDeviceGetHostAtomicCapabilities(NULL, NULL, 0, 0));
    TRY(cuMemGetMemPool(NULL, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuLibraryGetUnifiedFunction(NULL, NULL, NULL));
    TRY(cuOccupancyMaxActiveClusters(NULL, NULL, NULL));
}

static void devices(void)
{
    unsigned u = 0, capabilities[2];
    CUatomicOperation operations[2] = {CU_ATOMIC_OPERATION_CAS, (CUatomicOperation)99};
    CUmemoryPool pool, other;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 77};
    TRY(cuDeviceTotalMem(NULL, 0));
    TRY(cuDeviceTotalMem(&u, 9));
    TRY(cuDeviceTotalMem(&u, 0));
    printf("%d\n", u > 0);
    TRY(cuDeviceGetHostAtomicCapabilities(NULL, operations, 1, 0));
    TRY(cuDeviceGetHostAtomicCapabilities(capabilities, NULL, 1, 0));
    TRY(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 0, 0));
    TRY(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 0));
    TRY(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 1, 5));
    TRY(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 1, 0));
    TRY(cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 1, 0, 0));
    TRY(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(NULL, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRY(cuDeviceGetDefaultMemPool(&other, 0));
    printf("%d\n", pool == other);
    TRY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, NULL));
    TRY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    TRY(cuMemGetMemPool(&other, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("%d\n", pool == other);
}

/* Device addresses are far above 4 GiB, so what would return one fails; what takes one finds nothing there. */
static void small_addresses(void)
{
    CUdeviceptr_v1 small = 1;
    unsigned a = 0, b = 0;
    void *host = NULL;
    TRY(cuMemGetInfo(NULL, NULL));
    TRY(cuMemGetInfo(&a, &b));
    printf("%d %d\n", a > 0, b >= a);
    TRY(cuMemAlloc(NULL, 4));
    TRY(cuMemAlloc(&small, 0));
    TRY(cuMemAlloc(&small, 400));
    TRY(cuMemAllocPitch(&small, &a, 100, 10, 4));
    TRY(cuMemAllocPitch(&small, NULL, 100, 10, 4));
    printf("%u\n", small);
    TRY(cuMemFree(0));
    TRY(cuMemFree(4096));
    TRY(cuMemGetAddressRange(&small, &a, 4096));
    TRY(cuMemAllocHost(&host, 64));
    TRY(cuMemFreeHost(host));
    TRY(cuModuleGetGlobal(NULL, &a, m, "var"));
    printf("%u\n", a);
    TRY(cuModuleGetGlobal(&small, NULL, m, "var"));
    TRY(cuModuleGetGlobal(&small, NULL, m, "none"));
    TRY(cuMemcpyHtoD(4096, h, 4));
    TRY(cuMemcpyDtoH(h, 4096, 4));
    TRY(cuMemcpyDtoD(4096, 8192, 4));
    TRY(cuMemcpyHtoDAsync(4096, h, 4, s));
    TRY(cuMemcpyDtoHAsync(h, 4096, 4, s));
    TRY(cuMemsetD8(4096, 1, 1));
    TRY(cuMemsetD16(4096, 1, 1));
    TRY(cuMemsetD32(4096, 1, 1));
    TRY(cuMemsetD32(4096, 1, 0));
    TRY(cuMemsetD2D8(4096, 16, 1, 1, 2));
    TRY(cuMemsetD2D16(4096, 16, 1, 1, 2));
    TRY(cuMemsetD2D32(4096, 16, 1, 1, 2));
    TRY(cuMemcpy2D(NULL));
    TRY(cuMemcpy3D(NULL));
}

static void arrays(void)
{
    CUarray array = NULL, deep = NULL;
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {
        .Width = 16, .Height = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR_v1 solid = {
        .Width = 4, .Height = 3, .Depth = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    TRY(cuArrayCreate(NULL, &flat));
    TRY(cuArrayCreate(&array, NULL));
    TRY(cuArrayCreate(&array, &flat));
    TRY(cuArray3DCreate(&deep, &solid));
    memset(&flat, 0, sizeof flat);
    memset(&solid, 0, sizeof solid);
    TRY(cuArrayGetDescriptor(NULL, array));
    TRY(cuArrayGetDescriptor(&flat, array));
    printf("%u %u %d %u\n", flat.Width, flat.Height, (int)flat.Format, flat.NumChannels);
    TRY(cuArray3DGetDescriptor(&solid, deep));
    printf("%u %u %u %d %u %u\n", solid.Width, solid.Height, solid.Depth, (int)solid.Format,
           solid.NumChannels, solid.Flags);
    for (unsigned i = 0; i < 64; i++)
        h[i] = i * 3;
    TRY(cuMemcpyHtoA(array, 0, h, 64));
    TRY(cuMemcpyHtoA(array, 60, h, 64));
    memset(back, 0, sizeof back);
    TRY(cuMemcpyAtoH(back, array, 8, 40));
    show("array", back, 12);
    CUDA_MEMCPY2D_v1 rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                             .srcHost = h,
                             .srcPitch = 64,
                             .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                             .dstArray = array,
                             .WidthInBytes = 64,
                             .Height = 2};
    TRY(cuMemcpy2D(&rows));
    TRY(cuMemcpy2DUnaligned(&rows));
    TRY(cuMemcpy2DAsync(&rows, s));
    rows.Height = 3;
    TRY(cuMemcpy2D(&rows));
    CUDA_MEMCPY3D_v1 box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = h,
                            .srcPitch = 16,
                            .srcHeight = 3,
                            .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                            .dstArray = deep,
                            .WidthInBytes = 16,
                            .Height = 3,
                            .Depth = 2};
    TRY(cuMemcpy3D(&box));
    TRY(cuMemcpy3DAsync(&box, s));
    CUDA_MEMCPY3D_v1 out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                            .srcArray = deep,
                            .srcXInBytes = 4,
                            .srcY = 1,
                            .srcZ = 1,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = back,
                            .dstPitch = 8,
                            .dstHeight = 2,
                            .WidthInBytes = 8,
                            .Height = 2,
                            .Depth = 1};
    TRY(cuMemcpy3D(&out));
    show("box", back, 4);
    TRY(cuStreamSynchronize(s));
    TRY(cuMemcpyAtoA(array, 0, array, 64, 8));
    TRY(cuArrayDestroy(array));
    TRY(cuArrayDestroy(deep));
    TRY(cuArrayGetDescriptor(&flat, array));
}

static void launches_in_pieces(void)
{
    unsigned char parameters[16] = {0};
    CUfunction none = (CUfunction)(void *)&v;
    TRY(cuFuncSetBlockShape(NULL, 1, 1, 1));
    TRY(cuFuncSetBlockShape(none, 1, 1, 1));
    TRY(cuFuncSetBlockShape(f, 0, 1, 1));
    TRY(cuLaunch(f)); /* no shape yet */
    TRY(cuFuncSetBlockShape(f, 4, 1, 1));
    TRY(cuFuncSetSharedSize(f, 16));
    TRY(cuFuncSetSharedSize(none, 16));
    TRY(cuLaunch(f)); /* no parameters yet */
    memcpy(parameters, &p, sizeof p);
    TRY(cuParamSetv(f, 0, NULL, 8));
    TRY(cuParamSetv(f, -1, parameters, 8));
    TRY(cuParamSetv(f, 4096, parameters, 8));
    TRY(cuParamSetv(f, 0, parameters, 8));
    TRY(cuParamSeti(f, 8, 100));
    TRY(cuParamSetf(f, 12, 7.9f));
    TRY(cuParamSetSize(f, 5000));
    TRY(cuParamSetSize(f, 16));
    TRY(cuMemsetD32_v2(p, 0, 16));
    TRY(cuLaunch(f));
    TRY(cuMemcpyDtoH_v2(back, p, 32));
    show("launch", back, 8);
    TRY(cuLaunchGrid(f, 0, 1));
    TRY(cuLaunchGrid(f, 2, 1));
    TRY(cuMemcpyDtoH_v2(back, p, 48));
    show("grid", back, 12);
    TRY(cuFuncSetBlockShape(f, 2, 1, 1));
    TRY(cuParamSeti(f, 8, 1000));
    TRY(cuLaunchGridAsync(f, 2, 1, s));
    TRY(cuLaunchGridAsync(f, 2, 1, (CUstream)(void *)&v));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemcpyDtoH_v2(back, p, 32));
    show("async", back, 8);
    TRY(cuFuncSetBlockShape(f, 100000, 1, 1));
    TRY(cuLaunch(f));
}

static void batches(void)
{
    CUdeviceptr from[3], to[3];
    size_t sizes[3] = {16, 16, 16}, first[3] = {0, 1, 2}, failed = 7;
    CUmemcpyAttributes how[3] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                 {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
                                 {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY}};
    void *pinned = NULL;
    TRY(cuMemAllocHost_v2(&pinned, 64));
    for (unsigned i = 0; i < 16; i++) {
        h[i] = 500 + i;
        ((unsigned *)pinned)[i] = 900 + i;
    }
    from[0] = (CUdeviceptr)h;
    from[1] = (CUdeviceptr)pinned;
    from[2] = p;
    to[0] = q;
    to[1] = q + 16;
    to[2] = q + 32;
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, how, first, 3, &failed, NULL));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 0, how, first, 3, &failed, s));
    printf("%d\n", failed == (size_t)-1);
    TRY(cuMemcpyBatchAsync(NULL, from, sizes, 3, how, first, 3, &failed, s));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, NULL, first, 1, &failed, s));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, how, NULL, 1, &failed, s));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, how, first + 1, 2, &failed, s));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 2, how, first, 3, &failed, s));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, how, first, 3, &failed, (CUstream)(void *)&v));
    TRY(cuMemcpyBatchAsync(to, from, sizes, 3, how, first, 3, &failed, s));
    memset(pinned, 0, 64); /* has been read */
    TRY(cuStreamSynchronize(s));
    TRY(cuMemcpyDtoH_v2(back, q, 48));
    show("batch", back, 12);
    TRY(cuMemcpyBatchAsync_v2(to, from, sizes, 1, how, first, 1, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemFreeHost(pinned));
}

static void look_ups(void)
{
    CUdriverProcAddressQueryResult found;
    void *function;
    TRY(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 4, &found));
    TRY(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 3, &found));
    TRY(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 1ull << 40, NULL));
}

/* What captures, and copies of nothing that cannot be captured. */
static void captured_nothing(void)
{
    CUgraph captured = NULL;
    CUstream blocking;
    TRY(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (int i = 0; i < 3; i++) {
        TRY(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
        TRY(i == 0   ? cuMemcpyHtoD_v2(p, back, 0)
            : i == 1 ? cuMemcpyDtoH_v2(back, p, 0)
                     : cuMemcpyHtoDAsync_v2(p, back, 0, blocking));
        TRY(cuStreamEndCapture(blocking, &captured));
    }
    TRY(cuGraphDestroy(captured));
    TRY(cuStreamDestroy_v2(blocking));
}

/* Memory that the device may not use as it is asked to, and may use later. */
static void mapped_memory(void)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccess_flags flags[] = {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at;
    size_t size;
    TRY(cuMemGetAllocationGranularity(&size, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    TRY(cuMemCreate(&memory, size, &kind, 0));
    TRY(cuMemAddressReserve(&at, size, 0, 0, 0));
    TRY(cuMemMap(at, size, 0, memory, 0));
    for (int i = 0; i < 4; i++) {
        const CUmemAccessDesc access = {.location = kind.location, .flags = flags[i > 0 ? i - 1 : 0]};
        if (i > 0) /* at first none has been set */
            TRY(cuMemSetAccess(at, size, &access, 1));
        TRY(cuMemsetD8_v2(at, 1, 16));
        TRY(cuMemsetD8Async(at, 1, 16, s));
        TRY(cuMemcpyDtoD_v2(at, p, 16));
        TRY(cuMemcpyHtoDAsync_v2(at, back, 16, s));
        TRY(cuMemcpyDtoH_v2(back, at, 16));
        TRY(cuStreamWriteValue32_v2(s, at, 0, 0));
        TRY(cuCtxSynchronize());
    }
    TRY(cuMemUnmap(at, size));
    TRY(cuMemAddressFree(at, size));
    TRY(cuMemRelease(memory));
}

static void memory_operations(void)
{
    static CUstreamBatchMemOpParams none[257];
    CUstreamBatchMemOpParams ops[3];
    memset(ops, 0, sizeof ops);
    TRY(cuMemsetD32_v2(p, 0, 16));
    TRY(cuStreamSynchronize(NULL)); /* the stream does not wait for it */
    TRY(cuStreamWriteValue32_v2(s, p, 5, 0));
    TRY(cuStreamWriteValue64_v2(s, p + 8, 6, 0));
    TRY(cuStreamWriteValue32_v2(s, p + 2, 5, 0));
    TRY(cuStreamWriteValue64_v2(s, p + 4, 5, 0));
    TRY(cuStreamWriteValue32_v2(s, 0, 5, 0));
    TRY(cuStreamWriteValue32_v2(s, p, 5, 77));
    TRY(cuStreamWriteValue32_v2((CUstream)(void *)&v, p, 5, 0));
    TRY(cuStreamWaitValue32_v2(s, p, 5, CU_STREAM_WAIT_VALUE_EQ));
    TRY(cuStreamWaitValue64_v2(s, p + 8, 6, CU_STREAM_WAIT_VALUE_GEQ));
    TRY(cuStreamWaitValue32_v2(s, 4096, 5, CU_STREAM_WAIT_VALUE_EQ));
    TRY(cuStreamWaitValue32_v2(s, p, 5, 9));
    TRY(cuStreamWaitValue32_v2(s, p, 5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH));
    TRY(cuStreamWaitValue64_v2(s, p, 5, CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_FLUSH));
    TRY(cuStreamBatchMemOp_v2(s, 0, NULL, 0));
    TRY(cuStreamBatchMemOp_v2(s, 0, none, 0));
    TRY(cuStreamBatchMemOp_v2(s, 257, none, 0));
    TRY(cuStreamSynchronize(s));
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = p + 16;
    ops[0].writeValue.value = 9;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = p + 16;
    ops[1].waitValue.value = 9;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[2].writeValue.address = p + 24;
    ops[2].writeValue.value64 = 11;
    TRY(cuStreamBatchMemOp_v2(s, 3, NULL, 0));
    TRY(cuStreamBatchMemOp_v2(s, 3, ops, 1));
    TRY(cuStreamBatchMemOp_v2(s, 3, ops, 0));
    TRY(cuStreamBatchMemOp_v2((CUstream)(void *)&v, 3, ops, 0));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemcpyDtoH_v2(back, p, 32));
    show("written", back, 8);
    ops[1].waitValue.address = 4096;
    TRY(cuStreamBatchMemOp_v2(s, 3, ops, 0));
    ops[1].operation = (CUstreamBatchMemOpType)99;
    TRY(cuStreamBatchMemOp_v2(s, 3, ops, 0));
    TRY(cuStreamSynchronize(s));
}

/* Shapes that do not divide the grid, have too many blocks, or are not what the function asks for. */
static void cluster_shapes(CUlaunchConfig *config, CUlaunchAttribute *wide)
{
    static const unsigned shapes[][3] = {{2, 1, 1}, {8, 1, 1}, {3, 1, 1},  {2, 2, 1},
                                         {0, 1, 1}, {2, 0, 0}, {16, 1, 1}, {0, 0, 0}};
    unsigned number = 1;
    float real = 0;
    void *parameters[] = {&p, &number, &real};
    config->blockDimX = 8;
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            config->gridDimX = shapes[i][0] == 16 ? 16 : 8;
            config->blockDimX = shapes[i][0] == 16 ? 4 : 8;
            wide->value.clusterDim.x = shapes[i][0];
            wide->value.clusterDim.y = shapes[i][1];
            wide->value.clusterDim.z = shapes[i][2];
            printf("clusters of %u x %u x %u\n", shapes[i][0], shapes[i][1], shapes[i][2]);
            TRY(cuLaunchKernelEx(config, f, parameters, NULL));
        }
        if (round == 0)
            TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
        if (round == 1)
            TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
        if (round == 2) {
            TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1));
            TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1));
        }
        TRY(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, f));
        printf("%d\n", v);
    }
    TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0));
    TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 0));
    TRY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0));
    TRY(cuCtxSynchronize());
}

static void clusters(void)
{
    int n = -1;
    CUlaunchAttribute wide = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    wide.value.clusterDim.x = wide.value.clusterDim.y = wide.value.clusterDim.z = 1;
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &wide,
                             .numAttrs = 1};
    TRY(cuOccupancyMaxPotentialClusterSize(NULL, f, &config));
    TRY(cuOccupancyMaxPotentialClusterSize(&n, NULL, &config));
    TRY(cuOccupancyMaxPotentialClusterSize(&n, f, NULL));
    TRY(cuOccupancyMaxPotentialClusterSize(&n, f, &config));
    printf("%d\n", n >= 1);
    TRY(cuOccupancyMaxActiveClusters(NULL, f, &config));
    TRY(cuOccupancyMaxActiveClusters(&n, f, NULL));
    TRY(cuOccupancyMaxActiveClusters(&n, f, &config));
    printf("%d\n", n >= 1);
    config.attrs = NULL;
    TRY(cuOccupancyMaxActiveClusters(&n, f, &config));
    config.attrs = &wide;
    cluster_shapes(&config, &wide);
}

static void libraries(void)
{
    void *function = NULL;
    TRY(cuLibraryLoadData(&l, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryGetUnifiedFunction(&function, l, "k"));
    TRY(cuLibraryGetUnifiedFunction(NULL, l, "k"));
    TRY(cuLibraryGetUnifiedFunction(&function, l, NULL));
    TRY(cuLibraryGetUnifiedFunction(&function, NULL, "k"));
    TRY(cuLibraryUnload(l));
    TRY(cuLibraryGetUnifiedFunction(&function, l, "k"));
}

static void events_of_contexts(void)
{
    TRY(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    TRY(cuCtxRecordEvent(NULL, e));
    TRY(cuCtxRecordEvent(c, NULL));
    TRY(cuCtxRecordEvent(c, e));
    TRY(cuEventSynchronize(e));
    TRY(cuCtxWaitEvent(c, NULL));
    TRY(cuCtxWaitEvent(c, e));
    TRY(cuCtxSynchronize());
    TRY(cuEventDestroy_v2(e));
    TRY(cuCtxRecordEvent(c, e));
}

static void drivers_log(void)
{
    CUlogIterator at;
    char text[64];
    size_t room = sizeof text;
    CUlogsCallbackHandle handle = NULL;
    TRY(cuLogsCurrent(NULL, 0));
    TRY(cuLogsCurrent(&at, 1));
    TRY(cuLogsCurrent(&at, 0));
    TRY(cuLogsDumpToMemory(&at, NULL, &room, 0));
    TRY(cuLogsDumpToMemory(&at, text, NULL, 0));
    TRY(cuLogsDumpToMemory(&at, text, &room, 0));
    printf("%zu '%s'\n", room, text);
    TRY(cuLogsDumpToFile(NULL, NULL, 0));
    TRY(cuLogsDumpToFile(NULL, "/nonexistent/folder/file", 0));
    TRY(cuLogsRegisterCallback(NULL, NULL, &handle));
    TRY(cuLogsUnregisterCallback(NULL));
}

static void tensor_maps(void)
{
    static CUtensorMap maps[2];
    CUtensorMap *map = &maps[0], *crooked = (CUtensorMap *)(void *)((char *)maps + 8);
    cuuint64_t dims[5] = {64, 32, 16, 8, 4}, strides[4] = {256, 8192, 131072, 1048576},
               odd[4] = {250, 8192, 131072, 1048576};
    cuuint32_t box[5] = {16, 8, 1, 1, 1}, large[5] = {16, 300, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1},
               zero[5] = {1, 0, 1, 1, 1};
    int lower[3] = {-1, -1, -1}, upper[3] = {1, 1, 1}, far[3] = {-100, 0, 0};
    const CUtensorMapDataType f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, u8 = CU_TENSOR_MAP_DATA_TYPE_UINT8;
#define TILED(map, type, rank, address, dims, strides, box, steps, swizzle, fill)                            \
    TRY(cuTensorMapEncodeTiled(map, type, rank, (void *)(uintptr_t)(address), dims, strides, box, steps,     \
                               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,      \
                               fill))
    TILED(map, f32, 2, p, dims, strides, box, steps, 0, 0);
    TILED(map, f32, 5, p, dims, strides, box, steps, CU_TENSOR_MAP_SWIZZLE_64B, 1);
    TILED(map, f32, 1, p, dims, NULL, box, steps, 0, 0);
    TILED(NULL, f32, 2, p, dims, strides, box, steps, 0, 0);
    TILED(crooked, f32, 2, p, dims, strides, box, steps, 0, 0);
    TILED(map, (CUtensorMapDataType)99, 2, p, dims, strides, box, steps, 0, 0);
    TILED(map, f32, 0, p, dims, strides, box, steps, 0, 0);
    TILED(map, f32, 6, p, dims, strides, box, steps, 0, 0);
    TILED(map, f32, 2, p + 4, dims, strides, box, steps, 0, 0);
    TILED(map, f32, 2, p, NULL, strides, box, steps, 0, 0);
    TILED(map, f32, 2, p, dims, NULL, box, steps, 0, 0);
    TILED(map, f32, 2, p, dims, odd, box, steps, 0, 0);
    TILED(map, f32, 2, p, dims, strides, NULL, steps, 0, 0);
    TILED(map, f32, 2, p, dims, strides, large, steps, 0, 0);
    TILED(map, f32, 2, p, dims, strides, box, NULL, 0, 0);
    TILED(map, f32, 2, p, dims, strides, box, zero, 0, 0);
    TILED(map, f32, 2, p, dims, strides, box, steps, CU_TENSOR_MAP_SWIZZLE_32B, 0);
    TILED(map, u8, 2, p, dims, strides, box, steps, 0, 1);
    TRY(cuTensorMapReplaceAddress(map, (void *)(uintptr_t)q));
    TRY(cuTensorMapReplaceAddress(map, (void *)(uintptr_t)(q + 1)));
    TRY(cuTensorMapReplaceAddress(crooked, (void *)(uintptr_t)q));
    TRY(cuTensorMapReplaceAddress(NULL, (void *)(uintptr_t)q));
#define COLUMNS(rank, lower, channels, pixels)                                                               \
    TRY(cuTensorMapEncodeIm2col(map, f32, rank, (void *)(uintptr_t)p, dims, strides, lower, upper, channels, \
                                pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,    \
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
    COLUMNS(4, lower, 16, 8);
    COLUMNS(5, lower, 16, 8);
    COLUMNS(2, lower, 16, 8);
    COLUMNS(5, far, 16, 8);
    COLUMNS(4, NULL, 16, 8);
    COLUMNS(4, lower, 0, 8);
    COLUMNS(4, lower, 16, 5000);
    TRY(cuTensorMapEncodeIm2colWide(map, f32, 4, (void *)(uintptr_t)p, dims, strides, -1, 1, 16, 8, steps,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
                                    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof maps; i++)
        sum += ((unsigned char *)maps)[i] != 0;
    printf("%d\n", sum > 0);
}

/* Names of files are the server's business: what differs here must differ as it should. */
static void core_dump_names(void)
{
    static char name[] = "a file";
    const CUresult expected = getenv("REMOTE_GPU_SERVER") ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    size_t size = sizeof name;
    printf("%d %d\n", cuCoredumpSetAttribute(CU_COREDUMP_FILE, name, &size) == expected,
           cuCoredumpSetAttributeGlobal(CU_COREDUMP_PIPE, name, &size) == expected);
}

static void core_dumps(void)
{
    char name[1024], short_name[2];
    bool flag = true;
    size_t size = sizeof flag;
    TRY(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &flag, &size));
    printf("%d %zu\n", flag, size);
    TRY(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &flag, NULL));
    TRY(cuCoredumpGetAttribute((CUcoredumpSettings)99, &flag, &size));
    size = 0;
    TRY(cuCoredumpGetAttributeGlobal(CU_COREDUMP_TRIGGER_HOST, NULL, &size));
    printf("%zu\n", size);
    size = sizeof short_name;
    TRY(cuCoredumpGetAttribute(CU_COREDUMP_FILE, short_name, &size));
    size = sizeof name; /* it does not end */
    memset(name, 'x', sizeof name);
    TRY(cuCoredumpSetAttribute(CU_COREDUMP_FILE, name, &size));
    size = 0;
    TRY(cuCoredumpSetAttribute(CU_COREDUMP_FILE, name, &size));
    TRY(cuCoredumpSetAttribute(CU_COREDUMP_GENERATION_FLAGS, NULL, &size));
    printf("%zu\n", size);
    for (size = 3; size <= 5; size++) {
        unsigned dumped[2] = {CU_COREDUMP_SKIP_ABORT};
        TRY(cuCoredumpSetAttribute(CU_COREDUMP_GENERATION_FLAGS, dumped, &size));
        dumped[0] = 1u << 30;
        TRY(cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, dumped, &size));
    }
    size = 1;
    TRY(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, name, &size));
    TRY(cuCoredumpSetAttributeGlobal((CUcoredumpSettings)99, &flag, &size));
    flag = false;
    size = sizeof flag;
    TRY(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &flag, &size));
    TRY(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, NULL, &size));
    TRY(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &flag, NULL));
    core_dump_names();
}

static void multicast(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp about = {.numDevices = 1, .size = 2u << 20};
    TRY(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    if (v)
        return; /* what a device with multicast does depends on how it is connected */
    TRY(cuMulticastGetGranularity(&sz, &about, CU_MULTICAST_GRANULARITY_MINIMUM));
    TRY(cuMulticastCreate(&handle, &about));
}

/* What a device without such things says. */
static void resources(void)
{
    CUdevResource resource;
    memset(&resource, 0, sizeof resource);
    TRY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuCtxGetDevResource(c, &resource, CU_DEV_RESOURCE_TYPE_SM));
}

static void refused(void)
{
    char luid[8];
    unsigned mask;
    TRY(cuGraphicsUnregisterResource(NULL));
    TRY(cuGraphicsMapResources(0, NULL, NULL));
    TRY(cuImportExternalMemory(NULL, NULL));
    TRY(cuImportExternalSemaphore(NULL, NULL));
    TRY(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                   CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    TRY(cuDeviceGetNvSciSyncAttributes(NULL, 0, 0));
    TRY(cuLaunchCooperativeKernelMultiDevice(NULL, 0, 0));
    TRY(cuProfilerInitialize(NULL, NULL, CU_OUT_CSV));
    TRY(cuDeviceGetLuid(luid, &mask, 0));
    TRY(cuStreamWriteValue32(s, p, 5, 0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    before_init();
    TRY(cuInit(0));
    devices();
    small_addresses(); /* without a context */
    TRY(cuCtxCreate_v2(&c, 0, 0));
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&f, m, "k"));
    TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    TRY(cuMemAlloc_v2(&p, 256));
    TRY(cuMemAlloc_v2(&q, 256));
    small_addresses();
    arrays();
    launches_in_pieces();
    batches();
    look_ups();
    captured_nothing();
    mapped_memory();
    memory_operations();
    clusters();
    libraries();
    events_of_contexts();
    drivers_log();
    tensor_maps();
    core_dumps();
    multicast();
    resources();
    refused();
    TRY(cuCtxDestroy_v2(c));
    (void)sz;
    return 0;
}
