/*
 * children.c - what kernels launch: order in streams, tails, events, the limit of pending launches,
 * errors, faults, handles that are none. Services are the test's own: a kernel is known by the address of a
 * struct of the test.
 */
#include "softgpu/device_calls.h"
#include "tests/softgpu/exec/kernel_test.h"

#define TAIL            3u
#define FIRE_AND_FORGET 4u

static uint64_t pending_limit = 2048;

struct known {
    sg_thread_code code;
};

static int prepare(const struct sg_launch *parent, const void *function, struct sg_launch *child)
{
    child->kernel_name = "child";
    child->code = (void *)(uintptr_t)function;
    child->form = SG_CODE_THREAD;
    child->params_size = 16;
    child->services = parent->services;
    return child->block[0] > 1024 ? SG_CUDA_INVALID_CONFIGURATION : SG_CUDA_SUCCESS;
}

static bool code(struct sg_launch *child)
{
    const struct known *known = child->code;
    child->code = (void *)(uintptr_t)known->code;
    return known->code != NULL;
}

static uint64_t limit(const struct sg_launch *parent, int which)
{
    (void)parent;
    return which == SG_LIMIT_PENDING_LAUNCHES ? pending_limit : UINT64_MAX;
}

static bool reachable(uint64_t address, uint64_t size, bool write)
{
    (void)size;
    (void)write;
    return address > 4096;
}

static const struct sg_device_services services = {
    .prepare = prepare, .code = code, .limit = limit, .reachable = reachable};

/* --- calls as generated code makes them --- */

static int launch(struct sg_thread *t, const struct known *known, uint32_t threads, uint64_t stream,
                  void *pointer, uint64_t value)
{
    const uint32_t grid[3] = {1, 1, 1}, block[3] = {threads, 1, 1}, shared = 0;
    uint64_t buffer = sg_rt_device_call(t, SG_CALL_GetParameterBufferV2,
                                        (const void *const[]){&known, grid, block, &shared});
    if (buffer == 0)
        return -1;
    ((uint64_t *)(uintptr_t)buffer)[0] = (uint64_t)(uintptr_t)pointer;
    ((uint64_t *)(uintptr_t)buffer)[1] = value;
    return (int)sg_rt_device_call(t, SG_CALL_LaunchDeviceV2, (const void *const[]){&buffer, &stream});
}

static int last_error(struct sg_thread *t)
{
    return (int)sg_rt_device_call(t, SG_CALL_GetLastError, NULL);
}

static enum sg_fault run_parent(sg_thread_code parent, uint32_t blocks, void *pointer)
{
    struct sg_fault_report report;
    struct sg_launch start = thread_launch(parent, blocks, 1, &pointer);
    start.services = &services;
    enum sg_fault fault = sg_exec_run(&start, &report);
    CHECK(fault == SG_FAULT_NONE || (report.child && strcmp(report.kernel_name, "child") == 0));
    return fault;
}

static void append(struct sg_thread *t, const unsigned char *params)
{
    uint64_t *digits = PARAMETER(uint64_t, params);
    (void)t;
    *digits = *digits * 10 + ((const uint64_t *)(const void *)params)[1];
}
static const struct known append_kernel = {append};

/* --- streams, tails, events --- */

static void ordered(struct sg_thread *t, const unsigned char *params)
{
    uint64_t *results = PARAMETER(uint64_t, params), *mine = &results[t->block->ctaid[0]];
    uint64_t stream, event, other = 0, count = sizeof(*mine);
    uint32_t stream_flags = 1, event_flags = 2, none = 0, kind = 3;
    const void *stream_at = &stream, *event_at = &event;
    uint64_t *copy = mine + 16;
    for (uint64_t digit = 1; digit <= 5; digit++)
        CHECK_EQUAL(launch(t, &append_kernel, 1, 0, mine, digit), 0);
    CHECK_EQUAL(
        sg_rt_device_call(t, SG_CALL_EventCreateWithFlags, (const void *const[]){&event_at, &event_flags}),
        0);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_EventRecord, (const void *const[]){&event, &other}), 0);
    CHECK_EQUAL(
        sg_rt_device_call(t, SG_CALL_StreamCreateWithFlags, (const void *const[]){&stream_at, &stream_flags}),
        0);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_StreamWaitEvent, (const void *const[]){&stream, &event, &none}),
                0);
    CHECK_EQUAL(launch(t, &append_kernel, 1, stream, mine, 6), 0);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_MemcpyAsync,
                                  (const void *const[]){&copy, &mine, &count, &kind, &stream}),
                0);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_EventDestroy, (const void *const[]){&event}), 0);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_StreamDestroy, (const void *const[]){&stream}), 0);
    CHECK_EQUAL(launch(t, &append_kernel, 1, stream, mine, 9), SG_CUDA_INVALID_HANDLE);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_EventRecord, (const void *const[]){&event, &other}),
                SG_CUDA_INVALID_HANDLE);
    CHECK_EQUAL(last_error(t), SG_CUDA_INVALID_HANDLE);
    CHECK_EQUAL(last_error(t), 0);
    CHECK_EQUAL(launch(t, &append_kernel, 1, TAIL, results + 15, t->block->ctaid[0]), 0);
    CHECK_EQUAL(*mine, 0); /* children begin when the parent's blocks have ended */
}

static void test_order(void)
{
    for (int round = 0; round < 50; round++) {
        uint64_t results[32] = {0};
        CHECK_EQUAL(run_parent(ordered, 8, results), SG_FAULT_NONE);
        for (int i = 0; i < 8; i++) {
            CHECK_EQUAL(results[i], 123456);
            CHECK_EQUAL(results[16 + i], 123456);
        }
        uint64_t digits = 0; /* each block has been in the tail once, one at a time */
        for (uint64_t rest = results[15]; rest != 0; rest /= 10)
            digits += rest % 10;
        CHECK_EQUAL(digits, 28);
    }
}

/* --- a tree of grids: all complete before the launch is --- */

static void branch(struct sg_thread *t, const unsigned char *params);
static const struct known branch_kernel = {branch};

static void branch(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint64_t *count = PARAMETER(_Atomic uint64_t, params);
    uint64_t depth = ((const uint64_t *)(const void *)params)[1];
    ++*count;
    for (int i = 0; i < 3 && depth != 0; i++)
        CHECK_EQUAL(launch(t, &branch_kernel, 1,
                           i == 0   ? 0
                           : i == 1 ? FIRE_AND_FORGET
                                    : TAIL,
                           (void *)count, depth - 1),
                    0);
}

static void root(struct sg_thread *t, const unsigned char *params)
{
    CHECK_EQUAL(launch(t, &branch_kernel, 1, 0, PARAMETER(void, params), 6), 0);
}

static void test_tree(void)
{
    _Atomic uint64_t count = 0;
    CHECK_EQUAL(run_parent(root, 1, (void *)&count), SG_FAULT_NONE);
    CHECK_EQUAL(count, 1 + 3 + 9 + 27 + 81 + 243 + 729);
}

/* --- mistakes --- */

static void mistaken(struct sg_thread *t, const unsigned char *params)
{
    uint64_t *digits = PARAMETER(uint64_t, params), nonsense = 12345, zero = 0, size = 8;
    uint32_t value = 0;
    CHECK_EQUAL(launch(t, &append_kernel, 2000, 0, digits, 1), (uint64_t)-1);
    CHECK_EQUAL(last_error(t), SG_CUDA_INVALID_CONFIGURATION);
    CHECK_EQUAL(launch(t, &append_kernel, 1, nonsense, digits, 1), SG_CUDA_INVALID_HANDLE);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_LaunchDeviceV2, (const void *const[]){&nonsense, &zero}),
                SG_CUDA_INVALID_VALUE);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_StreamDestroy, (const void *const[]){&zero}),
                SG_CUDA_INVALID_HANDLE);
    CHECK_EQUAL(sg_rt_device_call(t, SG_CALL_MemsetAsync, (const void *const[]){&zero, &value, &size, &zero}),
                SG_CUDA_INVALID_VALUE);
}

static void test_mistakes(void)
{
    uint64_t digits = 0;
    CHECK_EQUAL(run_parent(mistaken, 1, &digits), SG_FAULT_NONE);
    CHECK_EQUAL(digits, 0);
}

static void crowd(struct sg_thread *t, const unsigned char *params)
{
    uint64_t *results = PARAMETER(uint64_t, params);
    for (int i = 0; i < 10; i++) { /* in the tail, where none can begin meanwhile */
        int error = launch(t, &append_kernel, 1, TAIL, &results[0], 1);
        CHECK(error == 0 || error == SG_CUDA_LAUNCH_PENDING_COUNT_EXCEEDED);
        results[1] += error != 0;
    }
}

static void test_limit(void)
{
    uint64_t results[2] = {0};
    pending_limit = 4;
    CHECK_EQUAL(run_parent(crowd, 1, results), SG_FAULT_NONE);
    CHECK_EQUAL(results[0], 1111);
    CHECK_EQUAL(results[1], 6);
    pending_limit = 2048;
}

/* --- faults of children end the launch --- */

static void bad(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    sg_rt_fault(t, SG_FAULT_TRAP);
}
static const struct known bad_kernel = {bad}, no_kernel = {NULL};

static void launches_bad(struct sg_thread *t, const unsigned char *params)
{
    uint64_t *digits = PARAMETER(uint64_t, params);
    launch(t, &bad_kernel, 1, 0, digits, 0);
    launch(t, &append_kernel, 1, 0, digits, 1); /* never runs */
    launch(t, &append_kernel, 1, TAIL, digits, 2);
}

static void launches_nothing(struct sg_thread *t, const unsigned char *params)
{
    launch(t, &no_kernel, 1, 0, PARAMETER(void, params), 0);
}

static void test_faults(void)
{
    uint64_t digits = 0;
    CHECK_EQUAL(run_parent(launches_bad, 1, &digits), SG_FAULT_TRAP);
    CHECK_EQUAL(digits, 0);
    CHECK_EQUAL(run_parent(launches_nothing, 1, &digits), SG_FAULT_ILLEGAL_INSTRUCTION);
}

int main(void)
{
    test_order();
    test_tree();
    test_mistakes();
    test_limit();
    test_faults();
    return TEST_RESULT();
}
