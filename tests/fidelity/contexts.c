/*
 * contexts.c - a transcript of what contexts answer in each state of their lives: primary ones that are retained, released,
 * retained again and reset, and explicit ones that another thread destroys while they are current.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static CUcontext c, explicit_one;
static pthread_barrier_t turn;

/* What can be asked of a context and done in it, by its handle and as the current one. */
static void ask(const char *state)
{
    CUcontext found = NULL;
    CUdevice device = -1;
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    unsigned long long id;
    unsigned number = 99;
    size_t size;
    int active = -1;
    printf("--- %s\n", state);
    TRY(cuCtxGetCurrent(&found));
    printf("%d\n", found == c);
    TRY(cuCtxGetDevice(&device));
    TRY(cuCtxGetDevice_v2(&device, c));
    TRY(cuCtxGetDevice_v2(NULL, c));
    printf("%d\n", (int)device);
    TRY(cuCtxGetFlags(&number));
    TRY(cuCtxSetFlags(0));
    TRY(cuCtxGetApiVersion(c, &number));
    TRY(cuCtxGetApiVersion(NULL, &number));
    printf("%u\n", number);
    TRY(cuCtxGetId(c, &id));
    TRY(cuCtxGetId(NULL, &id));
    TRY(cuCtxSynchronize());
    TRY(cuCtxSynchronize_v2(c));
    TRY(cuCtxSynchronize_v2(NULL));
    TRY(cuCtxGetLimit(&size, CU_LIMIT_STACK_SIZE));
    TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    TRY(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    TRY(cuMemGetInfo_v2(&size, &size));
    TRY(cuMemAlloc_v2(&memory, 4));
    TRY(cuMemFree_v2(memory));
    TRY(cuStreamCreate(&stream, 0));
    if (stream)
        TRY(cuStreamDestroy_v2(stream));
    TRY(cuStreamSynchronize(CU_STREAM_LEGACY));
    TRY(cuStreamQuery(CU_STREAM_PER_THREAD));
    TRY(cuDevicePrimaryCtxGetState(0, &number, &active));
    printf("%u %d\n", number, active);
    TRY(cuCtxSetCurrent(c));
    TRY(cuCtxPushCurrent_v2(c));
    TRY(cuCtxPopCurrent_v2(&found));
    printf("%d\n", found == c);
}

static void primary(void)
{
    CUcontext again = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&c, 0));
    CHECK(cuCtxSetCurrent(c));
    ask("retained");
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    ask("released");
    TRY(cuDevicePrimaryCtxReset_v2(0));
    ask("released and reset");
    TRY(cuDevicePrimaryCtxRetain(&again, 0));
    printf("%d\n", again == c);
    ask("retained again");
    TRY(cuDevicePrimaryCtxReset_v2(0));
    TRY(cuDevicePrimaryCtxRetain(&again, 0));
    ask("reset and retained");
    unsigned flags = 9, current = 9;
    int active = 9;
    for (int i = 0; i < 2; i++) {
        TRY(i == 0 ? cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC)
                   : cuDevicePrimaryCtxReset_v2(0));
        TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        TRY(cuCtxGetFlags(&current));
        printf("flags %u, active %d, of the current context %u\n", flags, active, current);
    }
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    ask("released again");
    TRY(cuCtxSetCurrent(NULL));
}

static void *use_explicit(void *unused)
{
    (void)unused;
    c = explicit_one;
    CHECK(cuCtxSetCurrent(c));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    ask("destroyed by another thread");
    return NULL;
}

static void of_another_thread(void)
{
    pthread_t thread;
    CHECK(cuCtxCreate_v2(&explicit_one, 0, 0));
    pthread_barrier_init(&turn, NULL, 2);
    if (pthread_create(&thread, NULL, use_explicit, NULL) != 0)
        return;
    pthread_barrier_wait(&turn);
    TRY(cuCtxDestroy_v2(explicit_one));
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
}

/* What belongs to another context than the current one: a launch is refused by itself, and what follows is none the worse. */
static void of_another_context(void)
{
    static const char ptx[] =
        ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n"
        ".visible .entry takes(.param .u64 p) { ret; }\n";
    CUcontext first, second, popped;
    CUmodule module, other, of_library;
    CUfunction function, takes, all[2], of_kernel, in_library;
    CUlibrary library;
    CUkernel kernel;
    CUstream stream;
    CUdeviceptr memory;
    void *parameters[] = {&memory};
    printf("--- of another context\n");
    CHECK(cuCtxCreate_v2(&first, 0, 0));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    CHECK(cuModuleGetFunction(&takes, module, "takes"));
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuMemAlloc_v2(&memory, 64));
    CHECK(cuCtxCreate_v2(&second, 0, 0));
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    TRY(cuLaunchKernel(takes, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    TRY(cuStreamSynchronize(NULL));
    TRY(cuMemsetD8_v2(memory, 0, 64));
    TRY(cuCtxSynchronize());
    TRY(cuCtxPopCurrent_v2(&popped));
    TRY(cuLaunchKernel(takes, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    TRY(cuCtxSynchronize());
    TRY(cuCtxSetCurrent(
        second)); /* found in another context, or in none, a function is its module's context's */
    CHECK(cuModuleLoadData(&other, ptx));
    TRY(cuCtxSetCurrent(first));
    TRY(cuModuleGetFunction(&function, other, "nothing"));
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuCtxSetCurrent(NULL));
    TRY(cuModuleGetFunction(&takes, other, "takes"));
    TRY(cuCtxSetCurrent(first));
    TRY(cuModuleEnumerateFunctions(all, 2, other));
    TRY(cuLaunchKernel(all[0], 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryGetKernel(&kernel, library, "nothing"));
    TRY(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuKernelGetFunction(&of_kernel, kernel));
    TRY(cuLaunchKernel(of_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLibraryGetModule(&of_library, library));
    TRY(cuCtxSetCurrent(second));
    TRY(cuModuleGetFunction(&in_library, of_library, "nothing"));
    TRY(cuLaunchKernel(in_library, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLaunchKernel(of_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuLaunchKernel(takes, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuLaunchKernel(all[0], 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuCtxSynchronize());
    TRY(cuCtxDestroy_v2(second));
    TRY(cuCtxDestroy_v2(first));
}

/* What was in a context that has ended is gone with it, and whoever tidies up later spoils nothing. */
static void of_an_ended_context(void)
{
    CUcontext live, ended;
    CUarray array, level;
    CUmipmappedArray mipmap;
    CUstream stream;
    CUevent event;
    unsigned flags;
    int priority;
    char bytes[16] = {0};
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    printf("--- of an ended context\n");
    CHECK(cuCtxCreate_v2(&live, 0, 0));
    CHECK(cuCtxCreate_v2(&ended, 0, 0));
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuArray3DCreate_v2(&array, &shape));
    CHECK(cuMipmappedArrayCreate(&mipmap, &shape, 2));
    CHECK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    TRY(cuCtxRecordEvent(live, event));
    TRY(cuCtxSetSharedMemConfig((CUsharedconfig)3));
    TRY(cuCtxSetCacheConfig((CUfunc_cache)4));
    TRY(cuCtxSynchronize());
    TRY(cuCtxDestroy_v2(ended));
    TRY(cuCtxSetCurrent(live));
    TRY(cuStreamGetFlags(stream, &flags));
    TRY(cuStreamGetPriority(stream, &priority));
    TRY(cuMemcpyHtoA_v2(array, 0, bytes, sizeof bytes));
    TRY(cuMemcpyAtoH_v2(bytes, level, 0, 8));
    TRY(cuArray3DGetDescriptor_v2(&shape, array));
    TRY(cuArrayDestroy(array));
    TRY(cuMipmappedArrayDestroy(mipmap));
    TRY(cuStreamDestroy_v2(stream));
    TRY(cuEventDestroy_v2(event));
    TRY(cuCtxSynchronize());
    TRY(cuCtxDestroy_v2(live));
}

/* Sizes that kernels use can be set until one that does is launched; `which`: the limit that it sets. */
static void limit_of_kernels(CUlimit which, const char *name)
{
    static const char image[] =
        ".version 6.0\n.target sm_50\n.address_size 64\n"
        ".extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 arguments);\n"
        ".extern .func (.param .b64 r) malloc (.param .b64 size);\n"
        ".visible .entry plain() { ret; }\n"
        ".func say() { .reg .u64 %a; .param .b64 f; .param .b64 x; .param .b32 r;\n"
        "  mov.u64 %a, 0; st.param.b64 [f], %a; st.param.b64 [x], %a; call.uni (r), vprintf, (f, x); ret; }\n"
        ".visible .entry prints(.param .u32 not) { .reg .u32 %n; .reg .pred %p;\n"
        "  ld.param.u32 %n, [not]; setp.ne.u32 %p, %n, 0; @%p bra end; call.uni say; end: ret; }\n"
        ".visible .entry allocates(.param .u32 not) { .reg .u64 %a; .param .b64 s; .param .b64 r;\n"
        "  mov.u64 %a, 16; st.param.b64 [s], %a; call.uni (r), malloc, (s); ret; }\n";
    CUcontext own;
    CUmodule module;
    CUfunction plain, uses;
    size_t value = 0;
    unsigned not_now = 1;
    void *parameters[] = {&not_now};
    printf("--- a limit, and kernels: %s\n", name);
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&plain, module, "plain"));
    CHECK(cuModuleGetFunction(&uses, module, name));
    TRY(cuCtxSetLimit(which, 4 << 20));
    TRY(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuCtxSetLimit(which, 4 << 20));
    TRY(cuCtxSetLimit(which, 2 << 20));
    TRY(cuLaunchKernel(uses, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuCtxSetLimit(which, 4 << 20));
    TRY(cuCtxSetLimit(which, 2 << 20));
    TRY(cuCtxGetLimit(&value, which));
    printf("%zu\n", value);
    TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TRY(cuCtxSynchronize());
    TRY(cuCtxDestroy_v2(own));
}

/* What is kept with the primary context takes its time to go; meanwhile another thread retains it. */
static atomic_bool ending;

static void end_slowly(CUcontext context, void *key, void *value)
{
    (void)context, (void)key, (void)value;
    atomic_store(&ending, true);
    usleep(50000);
}

static void *retain_meanwhile(void *of_new)
{
    CUcontext again;
    while (!atomic_load(&ending))
        usleep(1000);
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(cuCtxSetCurrent(again));
    CHECK(cuEventCreate(of_new, 0));
    CHECK(cuEventRecord(*(CUevent *)of_new, NULL));
    return NULL;
}

static void retained_while_it_ends(void)
{
    static const CUuuid storage = {{(char)0xc6, (char)0x93, 0x33, 0x6e, 0x11, 0x21, (char)0xdf, 0x11,
                                    (char)0xa8, (char)0xc3, 0x68, (char)0xf3, 0x55, (char)0xd8, (char)0x95,
                                    (char)0x93}};
    typedef CUresult (*put_function)(CUcontext, void *, void *, void (*)(CUcontext, void *, void *));
    const void *table;
    put_function put;
    CUcontext primary_one;
    CUevent event;
    pthread_t thread;
    printf("--- retained while it ends\n");
    CHECK(cuDevicePrimaryCtxRetain(&primary_one, 0));
    CHECK(cuCtxSetCurrent(primary_one));
    CHECK(cuGetExportTable(&table, &storage));
    memcpy(&put, table, sizeof put);
    CHECK(put(primary_one, &ending, NULL, end_slowly));
    (void)pthread_create(&thread, NULL, retain_meanwhile, &event);
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    (void)pthread_join(thread, NULL);
    TRY(cuEventSynchronize(event));
    TRY(cuEventQuery(event));
    TRY(cuEventDestroy_v2(event));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
}

static void show_current(CUcontext own)
{
    CUcontext now = NULL;
    TRY(cuCtxGetCurrent(&now));
    printf("current: %s\n", !now ? "none" : now == own ? "it" : "another");
}

/* Counts of who uses a context, by which PyCUDA ends its own. */
static void detached(void)
{
    CUcontext own, attached = NULL, primary_one;
    CUdevResource resource;
    CUdevResourceDesc description;
    CUgreenCtx green;
    printf("--- attached to and detached from\n");
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    TRY(cuCtxAttach(&attached, 0));
    printf("%d\n", attached == own);
    TRY(cuCtxDetach(own));
    show_current(own);
    TRY(cuCtxDetach(own));
    show_current(own);
    TRY(cuCtxDetach(own));
    TRY(cuCtxSetCurrent(own));
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    CHECK(cuCtxPopCurrent_v2(NULL));
    TRY(cuCtxDetach(own)); /* it is not current */
    TRY(cuCtxSetCurrent(own));
    TRY(cuCtxDestroy_v2(own));
    CHECK(cuDevicePrimaryCtxRetain(&primary_one, 0));
    CHECK(cuCtxSetCurrent(primary_one));
    TRY(cuCtxDetach(primary_one));
    show_current(primary_one);
    CHECK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc(&description, &resource, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuCtxFromGreenCtx(&own, green));
    CHECK(cuCtxSetCurrent(own));
    TRY(cuCtxAttach(&attached, 0));
    printf("%d %d\n", attached == own, attached == primary_one);
    TRY(cuCtxDetach(own));
    show_current(own);
    TRY(cuCtxDetach(primary_one));
    CHECK(cuCtxSetCurrent(primary_one));
    TRY(cuGreenCtxDestroy(green));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    primary();
    of_another_thread();
    of_another_context();
    of_an_ended_context();
    limit_of_kernels(CU_LIMIT_PRINTF_FIFO_SIZE, "prints");
    limit_of_kernels(CU_LIMIT_MALLOC_HEAP_SIZE, "allocates");
    retained_while_it_ends();
    detached();
    return 0;
}
