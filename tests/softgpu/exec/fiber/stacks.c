/* stacks.c - the stacks of threads: deep ones, which are given back, and what must not lie near them. */
#include "tests/softgpu/exec/kernel_test.h"

#include <errno.h>
#include <unistd.h>

static void use_stack(struct sg_thread *t, const unsigned char *params)
{
    volatile unsigned char large[300000];
    for (size_t i = 0; i < sizeof(large); i += 1000)
        large[i] = (unsigned char)(i / 1000 + t->linear);
    sg_rt_barrier_sync(t, 0, 0);
    _Atomic uint32_t *ok = PARAMETER(_Atomic uint32_t, params);
    uint32_t right = 0;
    for (size_t i = 0; i < sizeof(large); i += 1000)
        right += large[i] == (unsigned char)(i / 1000 + t->linear);
    *ok += right == 300;
}

static size_t resident_bytes(void)
{
    size_t total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%zu %zu", &total, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_large_stack(void)
{
    _Atomic uint32_t ok = 0;
    void *pointer = (void *)&ok;
    struct sg_launch launch = thread_launch(use_stack, 2, 64, &pointer);
    launch.stack_size = 310000;
    for (uint32_t i = 1; i <= 3; i++) { /* stacks are used again, after their memory was given back */
        CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
        CHECK_EQUAL(ok, 128 * i);
    }
    size_t resident = resident_bytes();
    CHECK(resident > 0);
    if (!TEST_SANITIZED)
        CHECK(resident < 20u << 20); /* 128 stacks of 300000 bytes would be twice that */
}

/*
 * Generated code takes what lies near a thread's frame for the thread's own memory
 * (compiler/codegen/memory/spaces.c), so that nothing else may lie there, and least of all shared memory.
 */
static void look_around(struct sg_thread *t, const unsigned char *params)
{
    enum { NEAR = 65536, PAGE_ = 4096, FRAMES = 4 * PAGE_ };
    struct around {
        int pipe;
        _Atomic uint32_t seen;
    } *around = PARAMETER(struct around, params);
    const char *frame = __builtin_frame_address(0);
    uintptr_t shared = (uintptr_t)t->block->shared - ((uintptr_t)frame - NEAR);
    around->seen += shared < 2 * NEAR;
    for (size_t above = FRAMES; above <= NEAR; above += PAGE_)
        around->seen += write(around->pipe, frame + above, 1) != -1 || errno != EFAULT;
    sg_rt_barrier_sync(t, 0, 0); /* so that each has a stack */
}

static void test_nothing_lies_near_stacks(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct {
        int pipe;
        _Atomic uint32_t seen;
    } around = {.pipe = ends[1]};
    void *pointer = &around;
    for (uint32_t shared = 1024; shared <= 128 << 10; shared *= 2)
        for (uint32_t cluster = 1; cluster <= 4; cluster *= 4) {
            struct sg_launch launch = thread_launch(look_around, 8, 40, &pointer);
            launch.shared_static = shared;
            launch.cluster[0] = cluster;
            launch.cluster[1] = launch.cluster[2] = 1;
            launch.stack_size = shared;
            CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
            CHECK_EQUAL(around.seen, 0);
        }
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    test_large_stack();
    if (!TEST_SANITIZED)
        test_nothing_lies_near_stacks();
    return TEST_RESULT();
}
