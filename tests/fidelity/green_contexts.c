/*
 * green_contexts.c - a transcript of what a device's multiprocessors are divided into, and of green contexts made of them: where
 * their kernels run, what they share with the primary context, what waits for what, and their ends.
 */
#include "must.h"
#include "where_kernel.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

enum { GROUPS = 8, BLOCKS = 400, PLACES = 64 };

static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .u32 variable = 7;\n" WHERE_KERNEL
    ".visible .entry add(.param .u64 at)\n{\n.reg .u64 %a;\n.reg .u32 %r;\nld.param.u64 %a, [at];\n"
    "cvta.to.global.u64 %a, %a;\natom.global.add.u32 %r, [%a], 1;\nret;\n}\n"
    ".visible .entry fault()\n{\n.reg .u64 %a;\nmov.u64 %a, 16;\nst.global.u64 [%a], %a;\nret;\n}\n";

static CUcontext primary;
static CUmodule module;
static CUfunction where, add;
static CUdeviceptr counters;
static CUdevResource whole;

static void show(const char *name, const CUdevResource *resource)
{
    printf("%s: type %d, %u multiprocessors, at least %u, in %us\n", name, (int)resource->type,
           resource->sm.smCount, resource->sm.minSmPartitionSize, resource->sm.smCoscheduledAlignment);
}

/* --- dividing ------------------------------------------------------------------------------------------- */

static void divide(const CUdevResource *input, unsigned n, unsigned flags, unsigned least)
{
    CUdevResource groups[GROUPS], rest;
    unsigned possible = 0, made = n;
    TRY(cuDevSmResourceSplitByCount(NULL, &possible, input, NULL, flags, least));
    const CUresult result = cuDevSmResourceSplitByCount(groups, &made, input, &rest, flags, least);
    printf("at least %u, flags %u: %d, %u of %u groups\n", least, flags, (int)result, made, possible);
    for (unsigned i = 0; i < made && result == CUDA_SUCCESS; i++)
        show("group", &groups[i]);
    if (result == CUDA_SUCCESS)
        show("rest", &rest);
}

static void divisions(void)
{
    static const unsigned least[] = {0, 1, 2, 7, 8, 9, 11, 16, 20, 24, 44, 45};
    for (size_t i = 0; i < sizeof least / sizeof least[0]; i++) {
        divide(&whole, GROUPS, 0, least[i]);
        divide(&whole, 2, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, least[i]);
        divide(&whole, 1, CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, least[i]);
    }
    divide(&whole, 1, 3, 8);
}

static void wrong_divisions(void)
{
    CUdevResource groups[GROUPS], rest, again, other;
    CUdevResourceDesc description;
    unsigned n = 0, m = 2;
    TRY(cuDeviceGetDevResource(1, &other, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDeviceGetDevResource(0, &other, CU_DEV_RESOURCE_TYPE_INVALID));
    TRY(cuDevSmResourceSplitByCount(groups, &n, &whole, NULL, 0, 8));
    TRY(cuDevSmResourceSplitByCount(groups, NULL, &whole, NULL, 0, 8));
    TRY(cuDevSmResourceSplitByCount(groups, &m, &whole, &rest, 0, 16));
    n = 1;
    TRY(cuDevSmResourceSplitByCount(&again, &n, &groups[0], NULL, 0, 8));
    TRY(cuDevSmResourceSplitByCount(&again, &n, &rest, NULL, 0, 8));
    show("of what remained", &again);
    memset(&other, 0, sizeof other);
    TRY(cuDevSmResourceSplitByCount(&again, &n, &other, NULL, 0, 8));
    other.type = CU_DEV_RESOURCE_TYPE_SM;
    other.sm.smCount = 16;
    TRY(cuDevSmResourceSplitByCount(&again, &n, &other, NULL, 0, 8));
    TRY(cuDevResourceGenerateDesc(&description, &other, 1));
    other = whole;
    other.sm.smCount++;
    TRY(cuDevResourceGenerateDesc(&description, &other, 1));
    TRY(cuDevResourceGenerateDesc(&description, groups, 0));
    TRY(cuDevResourceGenerateDesc(NULL, groups, 1));
    groups[2] = groups[0];
    TRY(cuDevResourceGenerateDesc(&description, groups, 3));
    groups[2] = again; /* of another call */
    TRY(cuDevResourceGenerateDesc(&description, groups, 3));
    groups[2] = rest;
    TRY(cuDevResourceGenerateDesc(&description, groups, 3));
}

/* --- green contexts ------------------------------------------------------------------------------------- */

static CUgreenCtx make_green(CUdevResource *resources, unsigned n)
{
    CUdevResourceDesc description;
    CUgreenCtx green = NULL;
    CHECK(cuDevResourceGenerateDesc(&description, resources, n));
    TRY(cuGreenCtxCreate(&green, description, 0, 0));
    TRY(cuGreenCtxCreate(&green, (CUdevResourceDesc)(void *)&green, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    TRY(cuGreenCtxCreate(NULL, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    TRY(cuGreenCtxCreate(&green, description, 9, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

/* Where blocks of kernels in the stream have run: as a set. The current context is of the device. */
static uint64_t places(CUstream stream)
{
    unsigned counts[PLACES], all = 0;
    uint64_t set = 0;
    void *parameters[] = {&counters};
    CHECK(cuMemsetD8_v2(counters, 0, sizeof counts));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuLaunchKernel(where, BLOCKS, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(counts, counters, sizeof counts));
    for (int i = 0; i < PLACES; i++) {
        all += counts[i];
        set |= (uint64_t)(counts[i] > 0) << i;
    }
    printf("%u blocks\n", all);
    return set;
}

static const char *name_of(CUgreenCtx found, CUgreenCtx green)
{
    return found == green ? "its" : !found ? "none" : "another";
}

static void describe_stream(const char *name, CUstream stream, CUgreenCtx green, CUcontext of)
{
    CUgreenCtx found = NULL, beside = NULL;
    CUcontext context = NULL, ordinary = NULL;
    CUdevice device = -1;
    const int results[] = {(int)cuStreamGetGreenCtx(stream, &found), (int)cuStreamGetCtx(stream, &context),
                           (int)cuStreamGetCtx_v2(stream, &ordinary, &beside),
                           (int)cuStreamGetDevice(stream, &device)};
    printf("%s: %d %s, %d %s, %d %s %s, %d %d\n", name, results[0], name_of(found, green), results[1],
           context == of ? "that" : "another", results[2], ordinary == primary ? "primary" : "another",
           name_of(beside, green), results[3], (int)device);
}

static void parts(void)
{
    CUdevResource groups[2], rest, found;
    CUgreenCtx green[2];
    CUcontext context[2], current;
    CUstream stream[2], blocking;
    unsigned n = 2;
    uint64_t at[2];
    unsigned long long id[2] = {0, 0}, same = 0;
    CHECK(cuDevSmResourceSplitByCount(groups, &n, &whole, &rest, 0, 16));
    for (int i = 0; i < 2; i++) {
        green[i] = make_green(&groups[i], 1);
        TRY(cuCtxFromGreenCtx(&context[i], green[i]));
        TRY(cuGreenCtxStreamCreate(&stream[i], green[i], CU_STREAM_DEFAULT, 0));
        TRY(cuGreenCtxStreamCreate(&stream[i], green[i], CU_STREAM_NON_BLOCKING, 0));
        TRY(cuGreenCtxGetDevResource(green[i], &found, CU_DEV_RESOURCE_TYPE_SM));
        show("of the green context", &found);
        TRY(cuCtxGetDevResource(context[i], &found, CU_DEV_RESOURCE_TYPE_SM));
        show("of its context", &found);
        TRY(cuGreenCtxGetId(green[i], &id[i]));
        describe_stream("its stream", stream[i], green[i], context[i]);
    }
    TRY(cuCtxGetDevResource(primary, &found, CU_DEV_RESOURCE_TYPE_SM));
    show("of the primary context", &found);
    printf("ids %s, contexts %s\n", id[0] != id[1] ? "differ" : "are the same",
           context[0] != context[1] && context[0] != primary ? "differ" : "are the same");
    TRY(cuGreenCtxGetId(NULL, &same));
    TRY(cuGreenCtxGetId(green[0], NULL));
    TRY(cuGreenCtxGetDevResource(green[0], &found, CU_DEV_RESOURCE_TYPE_INVALID));
    TRY(cuGreenCtxGetDevResource((CUgreenCtx)(void *)&n, &found, CU_DEV_RESOURCE_TYPE_SM));

    /* in each its own multiprocessors, whichever of these contexts is current */
    for (int i = 0; i < 2; i++)
        at[i] = places(stream[i]);
    printf("beside each other: %s\n", at[0] & at[1] ? "no" : "yes");
    printf("in 16 each: %s\n",
           __builtin_popcountll(at[0]) <= 16 && __builtin_popcountll(at[1]) <= 16 ? "yes" : "no");
    CHECK(cuCtxSetCurrent(context[0]));
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    TRY(cuCtxGetCurrent(&current));
    printf("%s\n", current == context[0] ? "is current" : "is not current");
    TRY(cuGreenCtxGetId(NULL, &same));
    printf("%s\n", same == id[0] ? "its id" : "another");
    describe_stream("a stream made there", blocking, green[0], context[0]);
    describe_stream("the null stream", NULL, green[0], context[0]);
    describe_stream("the legacy stream", CU_STREAM_LEGACY, green[0], context[0]);
    printf("in the other ones': %s\n", (places(blocking) | places(NULL)) & at[1] ? "yes" : "no");
    TRY(cuStreamDestroy_v2(blocking));
    CHECK(cuCtxSetCurrent(context[1]));
    TRY(cuLaunchCooperativeKernel(add, 16 * 24 + 1, 1, 1, 64, 1, 1, 0, stream[1], (void *[]){&counters}));
    TRY(cuLaunchCooperativeKernel(add, 16 * 24 + 1, 1, 1, 64, 1, 1, 0, NULL, (void *[]){&counters}));
    CHECK(cuCtxSetCurrent(primary));
    TRY(cuLaunchCooperativeKernel(add, 16 * 24 + 1, 1, 1, 64, 1, 1, 0, NULL, (void *[]){&counters}));
    TRY(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        TRY(cuStreamDestroy_v2(stream[i]));
        TRY(cuGreenCtxDestroy(green[i]));
        TRY(cuGreenCtxDestroy(green[i]));
        TRY(cuCtxSetCurrent(context[i]));
    }
    describe_stream("the null stream", NULL, NULL, primary);
}

/* --- what they share ------------------------------------------------------------------------------------ */

static unsigned read_counter(CUdeviceptr at)
{
    unsigned value = 99;
    CHECK(cuMemcpyDtoH_v2(&value, at, sizeof value));
    return value;
}

/* What is made in a green context is the primary one's: it works there, and stays when the green one has ended. */
static void shared(void)
{
    CUgreenCtx green;
    CUcontext context;
    CUdevResource all;
    CUmodule own;
    CUfunction again;
    CUdeviceptr memory, variable, later;
    CUstream inside, outside;
    CUevent before, behind;
    size_t size;
    float time;
    CHECK(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM)); /* all there is */
    TRY(cuGreenCtxGetDevResource(green, &all, CU_DEV_RESOURCE_TYPE_SM));
    show("without a description", &all);
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&before, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&memory, 64));
    CHECK(cuModuleLoadData(&own, ptx));
    CHECK(cuModuleGetFunction(&again, own, "add"));
    CHECK(cuModuleGetGlobal_v2(&variable, &size, own, "variable"));
    CHECK(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&behind, 0));
    void *parameters[] = {&memory};
    TRY(cuMemsetD32_v2(memory, 0, 16));
    TRY(cuStreamSynchronize(NULL));
    TRY(cuEventRecord(before, inside));
    TRY(cuLaunchKernel(again, 3, 1, 1, 1, 1, 1, 0, inside, parameters, NULL));
    TRY(cuLaunchKernel(add, 4, 1, 1, 1, 1, 1, 0, inside, parameters, NULL));
    TRY(cuEventRecord(behind, inside));
    TRY(cuStreamWaitEvent(outside, behind, 0));
    TRY(cuLaunchKernel(again, 5, 1, 1, 1, 1, 1, 0, outside, parameters, NULL));
    TRY(cuMemAllocAsync(&later, 100, inside));
    CHECK(cuCtxSetCurrent(primary));
    TRY(cuStreamSynchronize(outside));
    TRY(cuEventElapsedTime(&time, before, behind));
    printf("%u\n", read_counter(memory));
    TRY(cuLaunchKernel(again, 6, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuLaunchKernel(again, 7, 1, 1, 1, 1, 1, 0, inside, parameters, NULL));
    TRY(cuStreamSynchronize(inside));
    printf("%u\n", read_counter(memory));
    TRY(cuGreenCtxRecordEvent(green, behind));
    TRY(cuGreenCtxWaitEvent(green, before));
    TRY(cuEventSynchronize(behind));
    TRY(cuGreenCtxRecordEvent((CUgreenCtx)(void *)&time, behind));
    TRY(cuMemFreeAsync(later, inside));
    TRY(cuStreamDestroy_v2(inside));
    TRY(cuGreenCtxDestroy(green));
    TRY(cuLaunchKernel(again, 8, 1, 1, 1, 1, 1, 0, outside, parameters, NULL));
    TRY(cuEventRecord(behind, outside));
    TRY(cuEventSynchronize(behind));
    printf("%u, a variable is %u\n", read_counter(memory), read_counter(variable));
}

/* What is described and made while another context is current does not go with that. */
static void beside_another(void)
{
    CUcontext other;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    CUdeviceptr memory;
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    CHECK(cuMemAlloc_v2(&memory, 64)); /* a server knows of the context by then */
    CHECK(cuDevResourceGenerateDesc(&description, &whole, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    TRY(cuCtxDestroy_v2(other));
    CHECK(cuCtxSetCurrent(primary));
    TRY(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&counters}, NULL));
    TRY(cuStreamSynchronize(stream));
    TRY(cuGreenCtxDestroy(green));
    TRY(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    TRY(cuGreenCtxDestroy(green));
}

/* --- what waits for what -------------------------------------------------------------------------------- */

static atomic_bool go_on;

static void CUDA_CB hold(void *user)
{
    (void)user;
    while (!atomic_load(&go_on))
        usleep(100);
}

static void waits(void)
{
    CUgreenCtx green = make_green(&whole, 1);
    CUcontext context;
    CUstream inside, outside;
    CUevent event;
    unsigned *locked;
    CHECK(cuMemHostAlloc((void **)&locked, sizeof *locked, 0));
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuGreenCtxStreamCreate(&inside, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));

    /* work of the primary context holds up the green one in nothing */
    atomic_store(&go_on, false);
    CHECK(cuLaunchHostFunc(outside, hold, NULL));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD32Async(counters, 5, 1, inside));
    TRY(cuCtxSynchronize());
    TRY(cuStreamQuery(inside));
    TRY(cuGreenCtxRecordEvent(green, event));
    TRY(cuEventSynchronize(event));
    TRY(cuStreamQuery(outside));
    atomic_store(&go_on, true);
    TRY(cuStreamSynchronize(outside));

    /* an event behind the green context's work; the primary context's includes that */
    for (int of_primary = 0; of_primary < 2; of_primary++) {
        atomic_store(&go_on, false);
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuLaunchHostFunc(inside, hold, NULL));
        TRY(of_primary ? cuCtxRecordEvent(primary, event) : cuGreenCtxRecordEvent(green, event));
        TRY(cuEventQuery(event));
        atomic_store(&go_on, true);
        TRY(cuCtxSynchronize());
        TRY(cuStreamQuery(inside));
        TRY(cuEventQuery(event));
    }

    /* copies that have returned are there for kernels of either */
    for (unsigned i = 0; i < 20; i++) {
        void *parameters[] = {&counters};
        *locked = i;
        CHECK(cuMemcpyHtoD_v2(counters, locked, sizeof *locked));
        CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, inside, parameters, NULL));
        CHECK(cuStreamSynchronize(inside));
        if (read_counter(counters) != i + 1)
            printf("round %u: a kernel came before a copy\n", i);
    }

    /* a stream that is left ends with its green context */
    TRY(cuGreenCtxDestroy(green));
    TRY(cuStreamQuery(inside));
    TRY(cuStreamSynchronize(inside));
    TRY(cuCtxSetCurrent(primary));
    TRY(cuCtxSynchronize());
}

/* --- ends ----------------------------------------------------------------------------------------------- */

/* It holds the primary context, which ends with the last. */
static void retained(void)
{
    unsigned flags;
    int active;
    CUgreenCtx green = make_green(&whole, 1);
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active %d, %u\n", active, read_counter(counters) != 99);
    TRY(cuGreenCtxDestroy(green));
    TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active %d\n", active);
    TRY(cuCtxSynchronize());
}

static void fault(void)
{
    CUgreenCtx green;
    CUstream stream;
    CUfunction function;
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "fault"));
    green = make_green(&whole, 1);
    CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    TRY(cuStreamSynchronize(stream));
    TRY(cuStreamQuery(CU_STREAM_LEGACY));
    TRY(cuCtxSynchronize());
}

int main(void)
{
    primary = use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&where, module, "where"));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    CHECK(cuMemAlloc_v2(&counters, PLACES * sizeof(unsigned)));
    CHECK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    show("the device", &whole);
    divisions();
    wrong_divisions();
    parts();
    shared();
    beside_another();
    waits();
    retained();
    fault();
    return 0;
}
