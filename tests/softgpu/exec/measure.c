/*
 * measure.c - what the engine's operations cost on this machine; prints one line each.
 *
 *   measure-softgpu-exec [SECONDS]      about how long each measurement runs (0.2)
 */
#include "tests/softgpu/exec/kernel_test.h"

#include "common/base/clock.h"

#define ROUNDS 1000u

static void nothing_block(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    (void)params;
}

static void nothing_thread(struct sg_thread *t, const unsigned char *params)
{
    (void)t;
    (void)params;
}

static void barriers(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    for (uint32_t i = 0; i < ROUNDS; i++)
        sg_rt_barrier_sync(t, 0, 0);
}

static void shuffles(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    for (uint32_t i = 0; i < ROUNDS; i++)
        sg_rt_shfl(t, 2, i, 1, 31, 0xffffffff);
}

static void yields(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    for (uint32_t i = 0; i < ROUNDS; i++)
        sg_rt_yield(t);
}

static double seconds = 0.2;

/** Runs the launch again and again; returns nanoseconds a launch. */
static double measure(const struct sg_launch *launch)
{
    struct sg_fault_report report;
    for (int i = 0; i < 3; i++)
        if (sg_exec_run(launch, &report) != SG_FAULT_NONE)
            return -1;
    uint64_t start = rg_now_ns(), n = 0, now;
    do {
        sg_exec_run(launch, &report);
        n++;
    } while ((now = rg_now_ns()) - start < (uint64_t)(seconds * 1e9));
    return (double)(now - start) / (double)n;
}

static double measure_threads(sg_thread_code code, uint32_t blocks, uint32_t threads)
{
    void *unused = NULL;
    struct sg_launch launch = thread_launch(code, blocks, threads, &unused);
    return measure(&launch);
}

static double measure_blocks(uint32_t blocks)
{
    void *unused = NULL;
    struct sg_launch launch = thread_launch(NULL, blocks, 256, &unused);
    launch.code = (void *)(uintptr_t)nothing_block;
    launch.form = SG_CODE_BLOCK;
    return measure(&launch);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = atof(argv[1]);
    printf("%-60s %10.0f ns\n", "empty block-form kernel, 1 block", measure_blocks(1));
    printf("%-60s %10.0f ns\n", "empty block-form kernel, 2 blocks", measure_blocks(2));
    printf("%-60s %10.2f ns\n", "empty block-form kernel, 1000000 blocks: a block",
           measure_blocks(1000000) / 1e6);
    printf("%-60s %10.0f ns\n", "empty thread-form kernel, 1 thread", measure_threads(nothing_thread, 1, 1));
    printf("%-60s %10.0f ns\n", "empty thread-form kernel, 1 block of 256",
           measure_threads(nothing_thread, 1, 256));
    printf("%-60s %10.0f ns\n", "empty thread-form kernel, 1000 blocks of 256: a block",
           measure_threads(nothing_thread, 1000, 256) / 1000);
    static const uint32_t sizes[] = {32, 64, 256, 1024};
    for (int i = 0; i < 4; i++)
        printf("barrier, block of %-42u %10.0f ns\n", sizes[i],
               measure_threads(barriers, 1, sizes[i]) / ROUNDS);
    for (int i = 0; i < 4; i++)
        printf("shuffle, block of %-34u a warp: %10.0f ns\n", sizes[i],
               measure_threads(shuffles, 1, sizes[i]) / ROUNDS / (sizes[i] / 32));
    printf("%-60s %10.1f ns\n", "yield among 32 threads", measure_threads(yields, 1, 32) / ROUNDS / 32);
    return 0;
}
