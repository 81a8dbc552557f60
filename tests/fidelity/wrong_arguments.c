/*
 * wrong_arguments.c - calls with arguments that are right, wrong, of nothing, of what has ended or of another context, as a number decides:
 * what each says. Directly and remotely the same number gives the same calls.
 *
 *   wrong_arguments SEED CALLS
 */
#include "wrong_arguments.h"
#include "must.h"

#include <stdlib.h>
#include <string.h>

struct objects of;
static uint64_t state;

uint32_t choose(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

static char said[400];

void say(const char *what)
{
    if (*said)
        strncat(said, ", ", sizeof said - strlen(said) - 1);
    strncat(said, what, sizeof said - strlen(said) - 1);
}

/*
 * Which of two errors a call tells of is said nowhere: so of one call one argument is wrong at most, and none where the current context is
 * not theirs.
 */
static unsigned may_be_wrong;

void tell(const char *call, CUresult result)
{
    CUcontext current = NULL;
    printf("%s(%s): %d\n", call, said, (int)result);
    *said = 0;
    may_be_wrong = cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == of.a;
}

bool wrongly(uint32_t one_in)
{
    const bool wrong = may_be_wrong && !choose(one_in);
    may_be_wrong -= wrong;
    return wrong;
}

/* --- arguments ------------------------------------------------------------------------------------------------------ */

/* The first is right. */
static unsigned mostly_first(unsigned n)
{
    return wrongly(3) ? 1 + choose(n - 1) : 0;
}

CUstream a_stream(void)
{
    static const char *const names[] = {"stream", "0", "legacy", "per thread", "ended stream", "stream of B"};
    const CUstream streams[] = {of.stream,       NULL,          CU_STREAM_LEGACY, CU_STREAM_PER_THREAD,
                                of.ended_stream, of.stream_of_b};
    const unsigned i = wrongly(4) ? 4 + choose(2) : may_be_wrong ? choose(4) : 0;
    say(names[i]);
    return streams[i];
}

CUevent an_event(void)
{
    static const char *const names[] = {"event",       "untimed event", "new event",
                                        "ended event", "event of B",    "0"};
    const CUevent events[] = {of.event, of.untimed, of.fresh, of.ended_event, of.event_of_b, NULL};
    const unsigned i = mostly_first(6);
    say(names[i]);
    return events[i];
}

CUdeviceptr an_address(void)
{
    static const char *const names[] = {"memory",      "within memory", "locked", "pageable",
                                        "memory of B", "managed",       "0",      "pitched"};
    const CUdeviceptr addresses[] = {of.memory,
                                     of.memory + 100,
                                     (CUdeviceptr)(uintptr_t)of.locked,
                                     (CUdeviceptr)(uintptr_t)of.pageable,
                                     of.memory_of_b,
                                     of.managed,
                                     0,
                                     of.pitched};
    const unsigned i = mostly_first(8);
    say(names[i]);
    return addresses[i];
}

void *a_host_address(void)
{
    static const char *const names[] = {"pageable", "locked", "within locked", "registered", "memory", "0"};
    void *const addresses[] = {
        of.pageable, of.locked, (char *)of.locked + 64, of.registered, (void *)(uintptr_t)of.memory, NULL};
    const unsigned i = mostly_first(5); /* no reading at 0 */
    say(names[i]);
    return addresses[i];
}

size_t a_size(void)
{
    static const char *const names[] = {"64", "0", "1", "3", "SIZE", "SIZE + 1", "2^40", "SIZE_MAX"};
    static const size_t sizes[] = {64, 0, 1, 3, SIZE, SIZE + 1, (size_t)1 << 40, SIZE_MAX};
    const unsigned i = mostly_first(8);
    say(names[i]);
    return sizes[i];
}

/* Of memory that the host reads or writes. */
size_t a_copied_size(void)
{
    static const char *const names[] = {"64", "0", "1", "4096"};
    static const size_t sizes[] = {64, 0, 1, 4096};
    const unsigned i = mostly_first(4);
    say(names[i]);
    return sizes[i];
}

unsigned flags(void)
{
    static const char *const names[] = {"0", "1", "2", "4", "8", "1 << 20", "~0"};
    static const unsigned values[] = {0, 1, 2, 4, 8, 1u << 20, ~0u};
    const unsigned i = mostly_first(7);
    say(names[i]);
    return values[i];
}

int a_number(void)
{
    static const char *const names[] = {"0", "1", "2", "-1", "15", "1000"};
    static const int numbers[] = {0, 1, 2, -1, 15, 1000};
    const unsigned i = mostly_first(6);
    say(names[i]);
    return numbers[i];
}

void *or_null(void *place)
{
    const bool null = wrongly(6);
    say(null ? "NULL" : "place");
    return null ? NULL : place;
}

CUfunction a_function(void)
{
    static const char *const names[] = {"function", "kernel", "0", "function of B"};
    const CUfunction functions[] = {of.function, (CUfunction)of.kernel, NULL, of.function_of_b};
    const unsigned i = mostly_first(4);
    say(names[i]);
    return functions[i];
}

CUarray an_array(void)
{
    static const char *const names[] = {"array", "level", "ended array", "0"};
    const CUarray arrays[] = {of.array, of.level, of.ended_array, NULL};
    const unsigned i = mostly_first(4);
    say(names[i]);
    return arrays[i];
}

CUcontext a_context(void)
{
    static const char *const names[] = {"A", "B", "0"};
    const CUcontext contexts[] = {of.a, of.b, NULL};
    const unsigned i = mostly_first(3);
    say(names[i]);
    return contexts[i];
}

CUmodule a_module(void)
{
    static const char *const names[] = {"module", "module of B", "0"};
    const CUmodule modules[] = {of.module, of.module_of_b, NULL};
    const unsigned i = mostly_first(3);
    say(names[i]);
    return modules[i];
}

const char *a_name(void)
{
    static const char *const names[] = {"put", "variable", "nothing", ""};
    const unsigned i = mostly_first(4);
    say(names[i]);
    return names[i];
}

/* --- objects -------------------------------------------------------------------------------------------------------- */

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            ".visible .global .align 4 .u32 variable;\n"
                            ".visible .entry put(.param .u64 to)\n"
                            "{\n"
                            "  .reg .u64 %to; .reg .u32 %one;\n"
                            "  ld.param.u64 %to, [to];\n"
                            "  mov.u32 %one, 1;\n"
                            "  st.global.u32 [%to], %one;\n"
                            "  ret;\n"
                            "}\n";

static void make_arrays(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR texels = {
        .Width = 32, .Height = 32, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CHECK(cuArray3DCreate_v2(&of.array, &texels));
    CHECK(cuMipmappedArrayCreate(&of.mipmap, &texels, 3));
    CHECK(cuMipmappedArrayGetLevel(&of.level, of.mipmap, 1));
    CHECK(cuArray3DCreate_v2(&of.ended_array, &texels));
    CHECK(cuArrayDestroy(of.ended_array));
}

static void make_of_b(void)
{
    CHECK(cuCtxCreate_v2(&of.b, 0, 0));
    CHECK(cuStreamCreate(&of.stream_of_b, 0));
    CHECK(cuEventCreate(&of.event_of_b, 0));
    CHECK(cuMemAlloc_v2(&of.memory_of_b, SIZE));
    CHECK(cuModuleLoadData(&of.module_of_b, image));
    CHECK(cuModuleGetFunction(&of.function_of_b, of.module_of_b, "put"));
    CHECK(cuCtxSetCurrent(of.a));
}

static void make(void)
{
    size_t pitch;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&of.a, 0));
    CHECK(cuCtxSetCurrent(of.a));
    CHECK(cuStreamCreate(&of.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&of.ended_stream, 0));
    CHECK(cuStreamDestroy_v2(of.ended_stream));
    CHECK(cuEventCreate(&of.event, 0));
    CHECK(cuEventCreate(&of.untimed, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&of.fresh, 0));
    CHECK(cuEventCreate(&of.ended_event, 0));
    CHECK(cuEventDestroy_v2(of.ended_event));
    CHECK(cuEventRecord(of.event, of.stream));
    CHECK(cuMemAlloc_v2(&of.memory, SIZE));
    CHECK(cuMemsetD8_v2(of.memory, 0, SIZE));
    CHECK(cuMemAllocPitch_v2(&of.pitched, &pitch, 100, 32, 4));
    CHECK(cuMemAllocManaged(&of.managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemHostAlloc(&of.locked, SIZE, 0));
    of.pageable = calloc(1, SIZE);
    of.registered = aligned_alloc(4096, SIZE);
    if (!of.pageable || !of.registered)
        exit(1);
    CHECK(cuMemHostRegister_v2(of.registered, SIZE, 0));
    CHECK(cuModuleLoadData(&of.module, image));
    CHECK(cuModuleGetFunction(&of.function, of.module, "put"));
    CHECK(cuLibraryLoadData(&of.loaded, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&of.kernel, of.loaded, "put"));
    CHECK(cuDeviceGetDefaultMemPool(&of.pool, 0));
    make_arrays();
    make_of_b();
}

int main(int argc, char **argv)
{
    state = argc > 1 ? strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull + 1 : 1;
    const unsigned calls = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    make();
    for (unsigned i = 0; i < calls; i++) {
        if (!choose(20)) {
            say("now in");
            const CUcontext context = a_context();
            tell("cuCtxSetCurrent", cuCtxSetCurrent(context));
        }
        wrong_calls[choose(N_WRONG_GROUPS)]();
        fflush(stdout);
    }
    CHECK(cuCtxSetCurrent(of.a));
    tell("cuCtxSynchronize", cuCtxSynchronize());
    free(of.pageable);
    return 0;
}
