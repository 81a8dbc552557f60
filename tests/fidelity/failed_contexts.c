/*
 * failed_contexts.c - a transcript of kernels that fault: what becomes of their context, and what the process's other
 * contexts see of it.
 */
#include <cuda.h>
#include <stdio.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry set(.param .u64 p, .param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<2>;\n"
                          "    .reg .u64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [p];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    st.global.u32 [%rd1], %r1;\n"
                          "    ret;\n"
                          "}\n";

static CUcontext good, bad, third, primary;
static CUmodule m_good, m_bad, m_primary;
static CUfunction f_good, f_bad, f_primary;
static CUdeviceptr p_good, p_bad, p_primary, none;
static CUstream s_good, s_bad;
static CUevent e_good, e_bad;
static unsigned n = 7, h;
static void *args_good[] = {&p_good, &n}, *args_bad[] = {&none, &n}, *args_primary[] = {&none, &n};
static CUdevice d;
static size_t sz;

static void set_up(CUcontext *c, CUmodule *m, CUfunction *f, CUdeviceptr *p, CUstream *s, CUevent *e)
{
    TRY(cuCtxCreate_v2(c, 0, 0));
    TRY(cuModuleLoadData(m, ptx));
    TRY(cuModuleGetFunction(f, *m, "set"));
    TRY(cuMemAlloc_v2(p, 64));
    TRY(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
    TRY(cuEventCreate(e, 0));
    TRY(cuCtxPopCurrent_v2(NULL));
}

static void use_good(void)
{
    TRY(cuCtxSetCurrent(good));
    TRY(cuLaunchKernel(f_good, 1, 1, 1, 1, 1, 1, 0, s_good, args_good, NULL));
    TRY(cuEventRecord(e_good, s_good));
    TRY(cuEventSynchronize(e_good));
    TRY(cuMemcpyDtoH_v2(&h, p_good, 4));
    printf("%u\n", h);
    TRY(cuMemsetD32Async(p_good, 1, 4, s_good));
    TRY(cuStreamSynchronize(s_good));
    TRY(cuCtxSynchronize());
}

static void use_bad(void)
{
    TRY(cuCtxSetCurrent(bad));
    TRY(cuMemsetD32Async(p_bad, 1, 4, s_bad));
    TRY(cuStreamQuery(s_bad));
    TRY(cuStreamSynchronize(s_bad));
    TRY(cuCtxSynchronize());
    TRY(cuMemAlloc_v2(&none, 64));
    none = 0;
    TRY(cuMemFree_v2(p_bad));
    TRY(cuMemcpyDtoH_v2(&h, p_bad, 4));
    TRY(cuLaunchKernel(f_bad, 1, 1, 1, 1, 1, 1, 0, s_bad, args_bad, NULL));
    TRY(cuEventQuery(e_bad));
    TRY(cuEventSynchronize(e_bad));
    TRY(cuModuleGetFunction(&f_bad, m_bad, "set"));
    TRY(cuCtxGetDevice(&d));
    TRY(cuMemGetInfo_v2(&sz, &sz));
    TRY(cuStreamCreate(&s_bad, 0));
    TRY(cuEventCreate(&e_bad, 0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    TRY(cuInit(0));
    set_up(&good, &m_good, &f_good, &p_good, &s_good, &e_good);
    set_up(&bad, &m_bad, &f_bad, &p_bad, &s_bad, &e_bad);
    use_good();
    TRY(cuCtxSetCurrent(bad));
    TRY(cuEventRecord(e_bad, s_bad));
    TRY(cuLaunchKernel(f_bad, 1, 1, 1, 1, 1, 1, 0, s_bad, args_bad, NULL));
    TRY(cuStreamSynchronize(s_bad));
    use_bad();
    use_good();
    use_bad();
    /* with the good context current, the other's objects */
    TRY(cuCtxSetCurrent(good));
    TRY(cuEventSynchronize(e_bad));
    TRY(cuStreamSynchronize(s_bad));
    use_good();
    TRY(cuCtxCreate_v2(&third, 0, 0));
    TRY(cuMemAlloc_v2(&p_bad, 64));
    TRY(cuMemFree_v2(p_bad));
    TRY(cuCtxDestroy_v2(third));
    TRY(cuCtxDestroy_v2(bad));
    TRY(cuCtxSetCurrent(bad));
    use_good();
    /* a primary context that is reset works again */
    TRY(cuDevicePrimaryCtxRetain(&primary, 0));
    TRY(cuCtxSetCurrent(primary));
    for (int i = 0; i < 2; i++) {
        TRY(cuModuleLoadData(&m_primary, ptx));
        TRY(cuModuleGetFunction(&f_primary, m_primary, "set"));
        TRY(cuMemAlloc_v2(&p_primary, 64));
        TRY(cuLaunchKernel(f_primary, 1, 1, 1, 1, 1, 1, 0, NULL, args_primary, NULL));
        TRY(cuCtxSynchronize());
        TRY(cuMemAlloc_v2(&p_primary, 64));
        TRY(cuMemsetD32_v2(p_primary, 0, 1));
        use_good();
        TRY(cuCtxSetCurrent(primary));
        TRY(cuDevicePrimaryCtxReset_v2(0));
        TRY(cuCtxSetCurrent(NULL));
        TRY(cuDevicePrimaryCtxRetain(&primary, 0));
        TRY(cuCtxSetCurrent(primary));
        TRY(cuMemAlloc_v2(&p_primary, 64));
        TRY(cuMemsetD32_v2(p_primary, 0, 1));
        TRY(cuCtxSynchronize());
    }
    TRY(cuCtxDestroy_v2(good));
    return 0;
}
