/*
 * wrong_use.c - a transcript of right and wrong use of the driver API: each call with the result it gave.
 *
 * It is run directly on a driver and remotely; the transcripts must be the same to the letter, so nothing that differs
 * between two runs (addresses, times, names) is printed. Which results are right is the driver's affair.
 */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .global .u32 var[4];\n"
                          ".visible .entry k(.param .u64 p, .param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<4>;\n"
                          "    .reg .u64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [p];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    cvta.to.global.u64 %rd2, %rd1;\n"
                          "    st.global.u32 [%rd2], %r1;\n"
                          "    ret;\n"
                          "}\n"
                          ".visible .entry e()\n"
                          "{\n"
                          "    ret;\n"
                          "}\n"
                          ".visible .entry narrow() .maxntid 64\n"
                          "{\n"
                          "    ret;\n"
                          "}\n";

/* What one step leaves for the next. */
static CUcontext c, c2;
static CUdevice d;
static CUdeviceptr p, q;
static CUmodule m;
static CUfunction f;
static CUstream s;
static CUevent e, e2;
static size_t sz, offset;
static int v, in_host_function;
static unsigned u;
static float ms;
static char h[2000];
static unsigned n = 5;
static void *args[] = {&p, &n};

static void call_from_host(void *user)
{
    CUdeviceptr none;
    *(int *)user += 1;
    in_host_function = (int)cuMemAlloc_v2(&none, 4);
}

static void before_init_and_devices(void)
{
    TRY(cuMemAlloc_v2(&p, 4));
    TRY(cuDeviceGet(&d, 0));
    TRY(cuCtxGetCurrent(&c));
    TRY(cuInit(1));
    TRY(cuInit(0));
    TRY(cuDeviceGetCount(&v));
    TRY(cuDeviceGet(&d, -1));
    TRY(cuDeviceGet(&d, 99));
    TRY(cuDeviceGet(NULL, 0));
    TRY(cuDeviceGet(&d, 0));
}

static void device_queries(void)
{
    char name[100];
    TRY(cuDeviceGetName(NULL, 10, 0));
    TRY(cuDeviceGetName(name, 0, 0));
    TRY(cuDeviceGetName(name, 5, 0));
    printf("%s\n", name);
    TRY(cuDeviceGetAttribute(&v, 0, 0));
    TRY(cuDeviceGetAttribute(&v, 9999, 0));
    TRY(cuDeviceGetAttribute(&v, 1, 7));
    TRY(cuDeviceGetAttribute(NULL, 1, 0));
    TRY(cuDeviceTotalMem_v2(&sz, 3));
    TRY(cuDeviceGetPCIBusId(name, 12, 0)); /* one too few */
    TRY(cuDeviceGetPCIBusId(name, 13, 0));
}

static void without_context(void)
{
    TRY(cuMemAlloc_v2(&p, 4));
    TRY(cuCtxGetCurrent(&c));
    printf("%d\n", c != 0);
    TRY(cuCtxSynchronize());
    TRY(cuCtxGetDevice(&d));
    TRY(cuCtxPopCurrent_v2(&c));
    TRY(cuStreamCreate(&s, 0));
    TRY(cuEventCreate(&e, 0));
    TRY(cuMemGetInfo_v2(&sz, &sz));
}

static void primary_context(void)
{
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxGetState(0, &u, &v));
    printf("%u %d\n", u, v);
    TRY(cuDevicePrimaryCtxRetain(&c, 5));
    TRY(cuDevicePrimaryCtxRetain(NULL, 0));
    TRY(cuDevicePrimaryCtxRetain(&c, 0));
    TRY(cuDevicePrimaryCtxRetain(&c2, 0));
    printf("same %d\n", c == c2);
    TRY(cuDevicePrimaryCtxSetFlags_v2(0, 0x7f));
    TRY(cuDevicePrimaryCtxSetFlags_v2(0, 4));
    TRY(cuDevicePrimaryCtxGetState(0, &u, &v));
    printf("%u %d\n", u, v);
}

static void current_context(void)
{
    TRY(cuCtxDestroy_v2(c));
    TRY(cuCtxSetCurrent((CUcontext)0x1234));
    TRY(cuCtxSetCurrent(c));
    TRY(cuCtxGetDevice(&d));
    TRY(cuCtxGetFlags(&u));
    printf("%x\n", u);
    TRY(cuCtxGetApiVersion(c, &u));
    printf("%u\n", u);
    TRY(cuCtxGetApiVersion((CUcontext)0x55, &u));
}

static void explicit_context(void)
{
    TRY(cuCtxCreate_v2(&c2, 0, 0));
    TRY(cuCtxCreate_v2(&c2, 0x1000, 0));
    TRY(cuCtxCreate_v2(NULL, 0, 0));
    TRY(cuCtxCreate_v2(&c2, 0, 4));
    CUcontext t;
    TRY(cuCtxGetCurrent(&t));
    TRY(cuCtxPopCurrent_v2(&t));
    TRY(cuCtxPopCurrent_v2(&t));
    TRY(cuCtxPopCurrent_v2(&t));
    TRY(cuCtxPushCurrent_v2(NULL));
    TRY(cuCtxPushCurrent_v2(c));
}

static void allocations(void)
{
    TRY(cuMemGetInfo_v2(NULL, &sz));
    TRY(cuMemGetInfo_v2(&sz, NULL));
    TRY(cuMemGetInfo_v2(NULL, NULL));
    TRY(cuMemAlloc_v2(&p, 0));
    TRY(cuMemAlloc_v2(NULL, 4));
    TRY(cuMemAlloc_v2(&p, 1ul << 60));
    TRY(cuMemAlloc_v2(&p, 1000));
    TRY(cuMemFree_v2(p + 1));
    TRY(cuMemFree_v2(0));
    TRY(cuMemFree_v2(0x1234));
    TRY(cuMemGetAddressRange_v2(&q, &sz, p + 10));
    printf("%d %zu\n", q == p, sz);
    TRY(cuMemGetAddressRange_v2(&q, &sz, 0x10));
    TRY(cuMemGetAddressRange_v2(NULL, NULL, p));
}

static void copies(void)
{
    memset(h, 7, 2000);
    TRY(cuMemcpyHtoD_v2(p, h, 1000));
    TRY(cuMemcpyHtoD_v2(p, h, 1001));
    TRY(cuMemcpyHtoD_v2(p, NULL, 10));
    TRY(cuMemcpyHtoD_v2(0, h, 10));
    TRY(cuMemcpyHtoD_v2(p, h, 0));
    TRY(cuMemcpyDtoH_v2(h, p + 500, 501));
    TRY(cuMemcpyDtoH_v2(NULL, p, 4));
    TRY(cuMemcpyDtoH_v2(h, p + 500, 500));
    TRY(cuMemcpyDtoD_v2(p, p + 500, 501));
    TRY(cuMemcpyDtoD_v2(p, p + 500, 500));
    TRY(cuMemcpy(p, (CUdeviceptr)h, 10));
    TRY(cuMemcpy((CUdeviceptr)h, p, 10));
    TRY(cuMemcpy((CUdeviceptr)h, (CUdeviceptr)h + 100, 10));
    TRY(cuMemcpyHtoDAsync_v2(p, h, 10, (CUstream)0x777));
    TRY(cuMemcpyHtoDAsync_v2(p, h, 10, 0));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, /* pitches that are not specified */
                          .srcHost = h,
                          .srcXInBytes = 5,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p,
                          .WidthInBytes = 20,
                          .Height = 4};
    unsigned char there[100], wrong = 0;
    for (int i = 0; i < 100; i++)
        h[i] = (char)i;
    TRY(cuMemcpy2D_v2(&rows));
    TRY(cuMemcpyDtoH_v2(there, p, 80));
    for (int i = 0; i < 80; i++)
        wrong += there[i] != i / 20 * 25 + 5 + i % 20;
    printf("%d\n", wrong);
    rows.Height = 41;
    TRY(cuMemcpy2DAsync_v2(&rows, 0));
    memset(h, 7, 100);
    rows.dstPitch = 19;
    TRY(cuMemcpy2D_v2(&rows));
    rows.dstPitch = 25; /* offsets that are larger than the pitch */
    rows.srcPitch = 20;
    rows.srcXInBytes = 15;
    rows.dstXInBytes = 200;
    rows.Height = 4;
    for (int i = 0; i < 100; i++)
        h[i] = (char)i;
    TRY(cuMemcpy2D_v2(&rows));
    TRY(cuMemcpyDtoH_v2(there, p + 200, 100));
    for (int i = 0; i < 95; i++)
        wrong += i % 25 < 20 && there[i] != h[15 + i / 25 * 20 + i % 25];
    printf("%d\n", wrong);
    TRY(cuMemcpy2D_v2(&(CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .srcDevice = p,
                                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                       .dstDevice = p + 500,
                                       .WidthInBytes = 50,
                                       .Height = 10}));
    TRY(cuCtxSynchronize());
}

static void sets(void)
{
    TRY(cuMemsetD8_v2(p, 1, 1001));
    TRY(cuMemsetD8_v2(p, 1, 1000));
    TRY(cuMemsetD32_v2(p + 1, 1, 2));
    TRY(cuMemsetD16_v2(p + 1, 1, 2));
    TRY(cuMemsetD32_v2(p, 1, 251));
    TRY(cuMemsetD2D8_v2(p, 100, 1, 50, 10));
    TRY(cuMemsetD2D8_v2(p, 10, 1, 50, 10));
    TRY(cuMemsetD2D32_v2(p, 100, 1, 25, 10));
    TRY(cuMemsetD2D32_v2(p, 102, 1, 20, 2));
    TRY(cuMemsetD2D32_v2(p, 102, 1, 20, 1));
    TRY(cuMemsetD2D16Async(p, 51, 1, 20, 2, NULL));
    TRY(cuMemsetD32_v2(0, 1, 1));
    TRY(cuMemsetD8_v2(p, 1, 0));
    TRY(cuMemsetD32_v2(p, 1, ((size_t)1 << 62) + 1)); /* more bytes than there are numbers for */
    TRY(cuMemsetD16Async(p, 1, (size_t)1 << 63, NULL));
    TRY(cuMemsetD2D32_v2(p, 100, 1, ((size_t)1 << 62) + 1, 1));
    TRY(cuCtxSynchronize());
}

static void pointers(void)
{
    TRY(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf("%d\n", v);
    TRY(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)h));
    TRY(cuPointerGetAttribute(&v, 9999, p));
    TRY(cuPointerGetAttribute(NULL, 2, p));
    void *hp = 0;
    TRY(cuPointerGetAttribute(&hp, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
}

static void host_memory(void)
{
    void *pin;
    TRY(cuMemHostAlloc(&pin, 100, 0));
    TRY(cuMemHostAlloc(&pin, 0, 0));
    TRY(cuMemHostAlloc(&pin, 100, 0x100));
    TRY(cuMemHostAlloc(NULL, 100, 0));
    TRY(cuMemAllocHost_v2(&pin, 100));
    TRY(cuMemHostGetFlags(&u, pin));
    printf("%u\n", u);
    TRY(cuMemHostGetFlags(&u, h));
    TRY(cuMemFreeHost(h));
    TRY(cuMemFreeHost(NULL));
    TRY(cuMemFreeHost(pin));
    TRY(cuMemFreeHost(pin));
    static char reg[8192];
    TRY(cuMemHostRegister_v2(reg, 8192, 0));
    TRY(cuMemHostRegister_v2(reg + 100, 10, 0));
    TRY(cuMemHostRegister_v2(NULL, 10, 0));
    TRY(cuMemHostRegister_v2(reg, 0, 0));
    TRY(cuMemHostUnregister(reg + 8));
    TRY(cuMemHostUnregister(reg));
    TRY(cuMemHostUnregister(reg));
    TRY(cuMemHostRegister_v2(reg, 8192, 0x80));
}

static void modules(void)
{
    TRY(cuModuleLoadData(&m, NULL));
    TRY(cuModuleLoadData(&m, "nonsense"));
    TRY(cuModuleLoadData(NULL, ptx));
    TRY(cuModuleLoad(&m, "/nonexistent"));
    TRY(cuModuleLoad(&m, "/"));
    TRY(cuModuleLoad(&m, "/dev/null"));
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&f, m, "nope"));
    TRY(cuModuleGetFunction(&f, m, NULL));
    TRY(cuModuleGetFunction(NULL, m, "k"));
    TRY(cuModuleGetFunction(&f, (CUmodule)0x10, "k"));
    TRY(cuModuleGetFunction(&f, NULL, "k"));
    TRY(cuModuleGetFunction(&f, m, "k"));
    TRY(cuModuleGetGlobal_v2(&q, &sz, m, "var"));
    printf("%zu\n", sz);
    TRY(cuModuleGetGlobal_v2(&q, &sz, m, "nope"));
    TRY(cuModuleGetGlobal_v2(NULL, NULL, m, "var"));
    TRY(cuModuleGetGlobal_v2(NULL, &sz, m, "var"));
    TRY(cuModuleGetFunctionCount(&u, m));
    printf("%u\n", u);
}

static void functions(void)
{
    TRY(cuFuncGetAttribute(&v, 0, f));
    TRY(cuFuncGetAttribute(&v, 999, f));
    TRY(cuFuncGetAttribute(&v, 0, NULL));
    TRY(cuFuncSetAttribute(f, 8, 50000));
    TRY(cuFuncSetAttribute(f, 8, 1 << 20));
    TRY(cuFuncSetAttribute(f, 0, 1));
    TRY(cuFuncGetAttribute(&v, 8, f));
    printf("%d\n", v);
    TRY(cuFuncGetParamInfo(f, 0, &offset, &sz));
    TRY(cuFuncGetParamInfo(f, 2, &offset, &sz));
    TRY(cuFuncGetParamInfo(f, 0, NULL, &sz));
    const char *nm;
    TRY(cuFuncGetName(&nm, f));
    printf("%s\n", nm);
    TRY(cuFuncGetName(&nm, NULL));
    TRY(cuFuncGetModule(NULL, f));
}

static void launches(void)
{
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 65, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 32, 32, 2, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 60000, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 70000, 1, 1, 1, 1, 0, 0, args, 0));
    CUfunction narrow;
    TRY(cuModuleGetFunction(&narrow, m, "narrow"));
    TRY(cuLaunchKernel(narrow, 1, 1, 1, 64, 1, 1, 0, 0, NULL, 0));
    TRY(cuLaunchKernel(narrow, 1, 1, 1, 65, 1, 1, 0, 0, NULL, 0));
    TRY(cuLaunchKernel(narrow, 1, 1, 1, 1025, 1, 1, 0, 0, NULL, 0));
    TRY(cuLaunchCooperativeKernel(f, 1, 1, 1, 32, 1, 1, 0, 0, args));
    TRY(cuLaunchCooperativeKernel(f, 1 << 30, 1, 1, 1024, 1, 1, 0, 0, args));
    TRY(cuLaunchCooperativeKernel(f, 65536, 65535, 65535, 1, 1, 1, 0, 0, args));
    TRY(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
    TRY(cuLaunchKernel((CUfunction)0x99, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x99, args, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, 0));
    struct {
        CUdeviceptr p;
        unsigned n;
    } pk = {p, 9};
    size_t ps = 12;
    void *ex[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &pk, CU_LAUNCH_PARAM_BUFFER_SIZE, &ps, CU_LAUNCH_PARAM_END};
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, ex));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, args, ex));
    TRY(cuMemcpyDtoH_v2(h, p, 4));
    printf("%d\n", *(int *)h);
    ps = 10; /* within the last parameter: what is missing is zeros */
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, ex));
    TRY(cuMemcpyDtoH_v2(h, p, 4));
    printf("%d\n", *(int *)h);
    CUDA_KERNEL_NODE_PARAMS kn = {.func = f,
                                  .gridDimX = 1,
                                  .gridDimY = 1,
                                  .gridDimZ = 1,
                                  .blockDimX = 1,
                                  .blockDimY = 1,
                                  .blockDimZ = 1,
                                  .extra = ex};
    CUgraph shortened;
    CUgraphNode shortened_node;
    TRY(cuGraphCreate(&shortened, 0));
    TRY(cuGraphAddKernelNode_v2(&shortened_node, shortened, NULL, 0, &kn));
    ps = 8;
    TRY(cuGraphAddKernelNode_v2(&shortened_node, shortened, NULL, 0, &kn));
    TRY(cuGraphDestroy(shortened));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, ex));
    static unsigned char roomy[4000]; /* more than the kernel takes */
    memcpy(roomy, &pk, sizeof pk);
    ex[1] = roomy;
    ps = sizeof roomy;
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, ex));
    ex[1] = &pk;
    ps = 4;
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, ex));
    const CUlaunchAttributeID hints[] = {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                         CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                         CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING};
    for (unsigned i = 0; i < sizeof hints / sizeof *hints; i++) {
        CUlaunchAttribute hint = {.id = hints[i], .value.nvlinkUtilCentricScheduling = 1};
        CUlaunchConfig with = {1, 1, 1, 1, 1, 1, 0, 0, &hint, 1};
        TRY(cuLaunchKernelEx(&with, f, args, NULL));
    }
    static const int unknown[] = {15, CU_LAUNCH_ATTRIBUTE_MAX, 99, -1};
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)unknown[i]};
        CUlaunchConfig with = {1, 1, 1, 1, 1, 1, 0, 0, &attribute, 1};
        TRY(cuLaunchKernelEx(&with, f, args, NULL));
    }
    TRY(cuCtxSynchronize());
}

/* Parameters in a buffer, of a kernel that has none, and pointers of which one is missing. */
static void parameters_that_lack(void)
{
    CUfunction without;
    char buffer[16] = {0};
    size_t much = (size_t)1 << 40;
    void *nothing[] = {CU_LAUNCH_PARAM_END},
         *no_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END},
         *wide[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &much,
                    CU_LAUNCH_PARAM_END},
         *one_missing[] = {&p, NULL};
    memcpy(buffer, &p, sizeof p);
    TRY(cuModuleGetFunction(&without, m, "e"));
    TRY(cuLaunchKernel(without, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, nothing));
    TRY(cuLaunchKernel(without, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, no_size));
    TRY(cuLaunchKernel(without, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, wide));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, nothing));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, no_size));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, wide));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, one_missing, NULL));
    TRY(cuCtxSynchronize());
}

static void streams_and_events(void)
{
    TRY(cuStreamCreate(&s, 2));
    TRY(cuStreamCreate(NULL, 0));
    TRY(cuStreamCreate(&s, 1));
    TRY(cuStreamGetFlags(s, &u));
    printf("%u\n", u);
    TRY(cuStreamGetFlags(s, NULL));
    TRY(cuStreamQuery(s));
    TRY(cuStreamQuery((CUstream)0x99));
    TRY(cuStreamSynchronize((CUstream)0x99));
    TRY(cuStreamDestroy_v2(NULL));
    TRY(cuStreamDestroy_v2((CUstream)1));
    TRY(cuStreamWaitEvent(s, NULL, 0));
    TRY(cuEventCreate(&e, 0x80));
    TRY(cuEventCreate(&e, 4));
    TRY(cuEventCreate(&e, 0));
    TRY(cuEventCreate(&e2, 2));
    TRY(cuEventQuery(e));
    TRY(cuEventSynchronize(e));
    TRY(cuEventElapsedTime_v2(&ms, e, e));
    TRY(cuEventRecord(e, s));
    TRY(cuEventRecord(e2, s));
    TRY(cuEventSynchronize(e2));
    TRY(cuEventElapsedTime_v2(&ms, e, e2));
    TRY(cuEventElapsedTime_v2(NULL, e, e));
    TRY(cuEventElapsedTime_v2(&ms, e, e));
    TRY(cuEventRecord(NULL, s));
    TRY(cuEventDestroy_v2(e2));
    TRY(cuEventQuery(e2));
    TRY(cuEventDestroy_v2(e2));
    TRY(cuStreamWaitEvent(s, e, 0));
    TRY(cuStreamWaitEvent(s, e, 9));
}

static void host_functions_and_priorities(void)
{
    int cnt = 0;
    TRY(cuLaunchHostFunc(s, NULL, 0));
    TRY(cuLaunchHostFunc(s, call_from_host, &cnt));
    TRY(cuStreamSynchronize(s));
    printf("%d calls, %d inside\n", cnt, in_host_function);
    int lo, hi;
    TRY(cuCtxGetStreamPriorityRange(&lo, &hi));
    TRY(cuStreamCreateWithPriority(&s, 0, -100));
    TRY(cuStreamGetPriority(s, &v));
    TRY(cuStreamCreateWithPriority(&s, 0, 100));
    TRY(cuStreamGetPriority(s, &v));
    printf("%d\n", v);
    CUstreamCaptureStatus st;
    TRY(cuStreamIsCapturing(s, &st));
    TRY(cuStreamIsCapturing(s, NULL));
    TRY(cuStreamIsCapturing((CUstream)0x99, &st));
    CUstream old = s;
    TRY(cuStreamDestroy_v2(s));
    TRY(cuStreamQuery(old));
    TRY(cuStreamDestroy_v2(old));
}

static void limits(void)
{
    TRY(cuCtxGetLimit(&sz, CU_LIMIT_STACK_SIZE));
    TRY(cuCtxGetLimit(&sz, 99));
    TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TRY(cuCtxGetLimit(&sz, 0));
    printf("%zu\n", sz);
    TRY(cuCtxSetLimit(99, 1));
    CUfunc_cache fc;
    TRY(cuCtxGetCacheConfig(&fc));
    TRY(cuCtxSetCacheConfig(99));
    TRY(cuCtxSetCacheConfig(1));
    TRY(cuCtxGetCacheConfig(&fc));
    printf("%d\n", fc);
}

static void occupancy(void)
{
    int nb;
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&nb, f, 128, 0));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, f, 128, 0));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&nb, f, 0, 0));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&nb, f, 4096, 0));
    TRY(cuOccupancyMaxPotentialBlockSize(&nb, &v, f, NULL, 0, 0));
    TRY(cuOccupancyMaxPotentialBlockSize(&nb, &v, NULL, NULL, 0, 0));
}

static void pools(void)
{
    CUmemoryPool pool;
    TRY(cuDeviceGetDefaultMemPool(&pool, 0));
    TRY(cuDeviceGetDefaultMemPool(&pool, 9));
    cuuint64_t th = 5;
    TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &th));
    th = 0;
    TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &th));
    printf("%d\n", (int)th);
    TRY(cuMemPoolGetAttribute(pool, 99, &th));
    TRY(cuMemPoolDestroy(pool));
    TRY(cuMemAllocAsync(&q, 100, 0));
    TRY(cuMemFreeAsync(q, 0));
    TRY(cuMemFreeAsync(q, 0));
    TRY(cuMemAllocAsync(&q, 0, 0));
    TRY(cuMemAllocAsync(&q, 1ul << 60, 0));
    TRY(cuMemAllocAsync(&q, 100, 0));
    TRY(cuMemFree_v2(q));
    TRY(cuCtxSynchronize());
}

static void errors_and_look_up(void)
{
    const char *es;
    TRY(cuGetErrorName(700, &es));
    printf("%s\n", es);
    TRY(cuGetErrorString(1, &es));
    printf("%s\n", es);
    TRY(cuGetErrorName(12345, &es));
    TRY(cuGetErrorName(0, NULL));
    void *fn;
    TRY(cuGetProcAddress_v2("cuMemAlloc", &fn, 12000, 0, NULL));
    TRY(cuGetProcAddress_v2("nope", &fn, 12000, 0, NULL));
    CUdriverProcAddressQueryResult qr;
    TRY(cuGetProcAddress_v2("cuLibraryLoadData", &fn, 11000, 0, &qr));
    printf("%d\n", qr);
    TRY(cuGetProcAddress_v2("nope", &fn, 12000, 0, &qr));
    printf("%d %d\n", qr, fn == 0);
}

static unsigned sum(const unsigned char *bytes, size_t size)
{
    unsigned total = 0;
    for (size_t i = 0; i < size; i++)
        total = total * 31 + bytes[i];
    return total;
}

/* Copies of every kind with arrays of one dimension, and a box out of a volume; wrong ones among them. */
static void arrays(void)
{
    CUarray line, other, volume;
    unsigned char bytes[1024], back[1024] = {0};
    CUDA_ARRAY_DESCRIPTOR one = {
        .Width = 256, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR three = {
        .Width = 8, .Height = 4, .Depth = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
    for (int i = 0; i < 1024; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256 * 31);
    TRY(cuArrayCreate_v2(NULL, &one));
    TRY(cuArrayCreate_v2(&line, NULL));
    TRY(cuArrayCreate_v2(&line, &one));
    TRY(cuArrayCreate_v2(&other, &one));
    TRY(cuArray3DCreate_v2(&volume, &three));
    TRY(cuMemcpyHtoA_v2(line, 0, bytes, 1024));
    TRY(cuMemcpyHtoA_v2(line, 4, bytes, 1024));
    TRY(cuMemcpyHtoA_v2(line, 0, NULL, 16));
    TRY(cuMemcpyAtoA_v2(other, 512, line, 0, 512));
    TRY(cuMemcpyAtoA_v2(other, 0, line, 512, 512));
    TRY(cuMemcpyAtoH_v2(back, other, 0, 1024));
    printf("array to array: %u, halves exchanged: %d\n", sum(back, 1024),
           !memcmp(back, bytes + 512, 512) && !memcmp(back + 512, bytes, 512));
    TRY(cuMemAlloc_v2(&q, 1024));
    TRY(cuMemcpyAtoD_v2(q, other, 256, 512));
    TRY(cuMemcpyDtoA_v2(line, 0, q, 512));
    TRY(cuMemcpyAtoHAsync_v2(back, line, 0, 1024, NULL));
    TRY(cuStreamSynchronize(NULL));
    printf("through device memory: %u, right: %d\n", sum(back, 1024),
           !memcmp(back, bytes + 768, 256) && !memcmp(back + 256, bytes, 256) &&
               !memcmp(back + 512, bytes + 512, 512));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = bytes,
                         .srcPitch = 32,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                         .dstArray = volume,
                         .WidthInBytes = 32,
                         .Height = 4,
                         .Depth = 4};
    TRY(cuMemcpy3D_v2(&box));
    CUDA_MEMCPY3D part = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = volume,
                          .srcXInBytes = 8,
                          .srcY = 1,
                          .srcZ = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstXInBytes = 4,
                          .dstY = 1,
                          .dstPitch = 40,
                          .dstHeight = 5,
                          .WidthInBytes = 12,
                          .Height = 3,
                          .Depth = 2};
    memset(back, 0, sizeof back);
    TRY(cuMemcpy3D_v2(&part));
    printf("a box: %u, its corners: %d\n", sum(back, 1024),
           back[40 + 4] == bytes[2 * 128 + 32 + 8] &&
               back[200 + 3 * 40 + 15] == bytes[3 * 128 + 3 * 32 + 19]);
    part.Depth = 3;
    TRY(cuMemcpy3D_v2(&part));
    /* What is reserved is not looked at: wrappers keep the contexts of a copy between peers there. */
    part.Depth = 2;
    part.reserved0 = part.reserved1 = &part;
    memset(back, 0, sizeof back);
    TRY(cuMemcpy3D_v2(&part));
    TRY(cuMemcpy3DAsync_v2(&part, NULL));
    TRY(cuStreamSynchronize(NULL));
    printf("reserved fields: %u\n", sum(back, 1024));
    TRY(cuArrayDestroy(line));
    TRY(cuArrayDestroy(line));
    TRY(cuMemcpyAtoH_v2(back, line, 0, 16));
    TRY(cuArrayDestroy(other));
    TRY(cuArrayDestroy(volume));
    TRY(cuMemFree_v2(q));
}

static void linking(void)
{
    CUlinkState state;
    CUmodule linked;
    CUfunction entry;
    void *image;
    char log[1000] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    char text[sizeof ptx];
    memcpy(text, ptx, sizeof ptx);
    TRY(cuLinkCreate_v2(0, NULL, NULL, NULL));
    TRY(cuLinkCreate_v2(2, options, NULL, &state));
    TRY(cuLinkCreate_v2(2, options, values, &state));
    TRY(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, NULL, 10, "none", 0, NULL, NULL));
    TRY(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text, 0, "none", 0, NULL, NULL));
    TRY(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, NULL, NULL));
    TRY(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/nonexistent.ptx", 0, NULL, NULL));
    TRY(cuLinkComplete(state, NULL, &sz));
    TRY(cuLinkComplete(state, &image, &sz));
    TRY(cuModuleLoadData(&linked, image));
    TRY(cuLinkDestroy(state));
    TRY(cuModuleGetFunction(&entry, linked, "k"));
    TRY(cuModuleUnload(linked));
    values[1] = (void *)sizeof log; /* the driver wrote how much it had used */
    TRY(cuLinkCreate_v2(2, options, values, &state));
    TRY(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (char[]){"garbage"}, 8, "garbage", 0, NULL, NULL));
    TRY(cuLinkComplete(state, &image, &sz));
    printf("a log: %d\n", log[0] != '\0');
    TRY(cuLinkDestroy(state));
}

/* What is loaded next may get the addresses of what was unloaded. */
static void loads_in_turn(void)
{
    for (int round = 0; round < 12; round++) {
        CUmodule module;
        CUlibrary library;
        CUkernel kernel;
        CUfunction found[4], of_kernel;
        unsigned count = 0;
        int registers = 0;
        TRY(cuModuleLoadData(&module, ptx));
        TRY(cuModuleGetFunctionCount(&count, module));
        TRY(cuModuleEnumerateFunctions(found, count < 4 ? count : 4, module));
        TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, found[0]));
        TRY(cuLaunchKernel(found[0], 1, 1, 1, 32, 1, 1, 0, 0, args, 0));
        TRY(cuModuleUnload(module));
        TRY(cuLibraryLoadData(&library, ptx, 0, 0, 0, 0, 0, 0));
        TRY(cuLibraryGetKernel(&kernel, library, "k"));
        TRY(cuKernelGetFunction(&of_kernel, kernel));
        TRY(cuLaunchKernel(of_kernel, 1, 1, 1, 32, 1, 1, 0, 0, args, 0));
        TRY(cuLibraryGetModule(&module, library));
        TRY(cuModuleEnumerateFunctions(found, 1, module));
        TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, found[0]));
        TRY(cuLibraryUnload(library));
    }
    TRY(cuCtxSynchronize());
}

static void use_after_free(void)
{
    TRY(cuMemFree_v2(p));
    TRY(cuMemFree_v2(p));
    TRY(cuMemcpyDtoH_v2(h, p, 4));
    TRY(cuModuleUnload(m));
    TRY(cuModuleUnload(m));
    TRY(cuModuleGetFunction(&f, m, "k"));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
}

static void device_fault(void)
{
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&f, m, "k"));
    q = 0x4440;
    args[0] = &q;
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, args, 0));
    TRY(cuCtxSynchronize());
    TRY(cuMemAlloc_v2(&p, 4));
    TRY(cuCtxSynchronize());
    TRY(cuStreamCreate(&s, 0));
    TRY(cuModuleUnload(m));
    TRY(cuDevicePrimaryCtxReset_v2(0));
    TRY(cuMemAlloc_v2(&p, 4));
    TRY(cuCtxSynchronize());
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuMemAlloc_v2(&p, 4));
}

int main(void)
{
    before_init_and_devices();
    device_queries();
    without_context();
    primary_context();
    current_context();
    explicit_context();
    allocations();
    copies();
    sets();
    pointers();
    host_memory();
    modules();
    functions();
    launches();
    parameters_that_lack();
    streams_and_events();
    host_functions_and_priorities();
    limits();
    occupancy();
    pools();
    errors_and_look_up();
    arrays();
    linking();
    loads_in_turn();
    use_after_free();
    device_fault();
    return 0;
}
