/* barrier.c - barriers of a block: whole, counted, reductions, exited threads, deadlock. */
#include "tests/softgpu/exec/kernel_test.h"

/* Each round, a thread reads what its neighbour wrote in the round before. */
static void ring(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t *shared = (uint32_t *)(void *)t->block->shared, n = t->block->n_threads;
    for (uint32_t round = 0; round < 20; round++) {
        shared[t->linear] = round * 1000 + t->linear;
        sg_rt_barrier_sync(t, 0, 0);
        uint32_t neighbour = (t->linear + round) % n;
        if (shared[neighbour] != round * 1000 + neighbour)
            ++*wrong;
        sg_rt_barrier_sync(t, 0, 0);
    }
}

static void test_whole_block(void)
{
    static const uint32_t sizes[] = {1, 2, 31, 33, 256, 1000, 1024};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        _Atomic uint32_t wrong = 0;
        void *pointer = (void *)&wrong;
        struct sg_launch launch = thread_launch(ring, 4, sizes[i], &pointer);
        launch.shared_static = 4096;
        CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
        CHECK_EQUAL(wrong, 0);
    }
}

/* Threads leave one by one; the others go on meeting. */
static void leave_early(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *sum = PARAMETER(_Atomic uint32_t, params);
    for (uint32_t round = 0; round < t->linear; round++)
        sg_rt_barrier_sync(t, 0, 0);
    *sum += 1;
    if (t->linear % 2)
        sg_rt_exit(t);
}

/* Half of the block returns before a barrier that names the block's full count. */
static void counted_without_leavers(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *sum = PARAMETER(_Atomic uint32_t, params);
    if (t->linear < 32)
        sg_rt_exit(t);
    sg_rt_barrier_sync(t, 1, 64);
    *sum += 1;
}

static void test_exited_threads(void)
{
    _Atomic uint32_t sum = 0;
    CHECK_EQUAL(run_threads(leave_early, 2, 100, (void *)&sum), SG_FAULT_NONE);
    CHECK_EQUAL(sum, 200);
    sum = 0;
    CHECK_EQUAL(run_threads(counted_without_leavers, 1, 64, (void *)&sum), SG_FAULT_NONE);
    CHECK_EQUAL(sum, 32);
}

/* Producers of warp 0 arrive and go on; consumers of warp 1 wait for them. Producers exit at once. */
static void producer_consumer(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    volatile uint32_t *shared = (volatile uint32_t *)(void *)t->block->shared;
    if (t->linear < 32) { /* consumers, who come first */
        sg_rt_barrier_sync(t, 3, 64);
        for (uint32_t i = 0; i < 32; i++)
            if (shared[i] != 100 + i)
                ++*wrong;
    } else {
        for (uint32_t i = 0; i < t->linear - 32; i++)
            sg_rt_yield(t); /* one after the other */
        shared[t->linear - 32] = 100 + t->linear - 32;
        sg_rt_barrier_arrive(t, 3, 64);
    }
}

/* Two halves meet at barriers of their own, at different rates. */
static void halves(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t half = t->linear / 64, *counter = (uint32_t *)(void *)t->block->shared + half;
    for (uint32_t round = 0; round < (half ? 30u : 7u); round++) {
        ++*counter;
        sg_rt_barrier_sync(t, 1 + half, 64);
        if (*counter != (round + 1) * 64)
            ++*wrong;
        sg_rt_barrier_sync(t, 1 + half, 64);
    }
}

static void clear(struct sg_thread *t, const unsigned char *params)
{
    if (t->linear < 2)
        ((uint32_t *)(void *)t->block->shared)[t->linear] = 0;
    sg_rt_barrier_sync(t, 0, 0);
    halves(t, params);
}

static void test_counted(void)
{
    _Atomic uint32_t wrong = 0;
    void *pointer = (void *)&wrong;
    struct sg_launch launch = thread_launch(producer_consumer, 3, 64, &pointer);
    launch.shared_static = 4096;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    launch = thread_launch(clear, 3, 128, &pointer);
    launch.shared_static = 4096;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    CHECK_EQUAL(wrong, 0);
}

static void reductions(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    for (uint32_t k = 0; k <= 70; k++) {
        uint32_t count = sg_rt_barrier_red(t, 0, 0, 0, t->linear < k);
        uint32_t all = sg_rt_barrier_red(t, 0, 0, 1, t->linear < k);
        uint32_t any = sg_rt_barrier_red(t, 0, 0, 2, t->linear < k);
        if (count != k || all != (k == 70) || any != (k > 0))
            ++*wrong;
    }
}

static void test_reductions(void)
{
    _Atomic uint32_t wrong = 0;
    CHECK_EQUAL(run_threads(reductions, 2, 70, (void *)&wrong), SG_FAULT_NONE);
    CHECK_EQUAL(wrong, 0);
}

static void never_meets(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    sg_rt_barrier_sync(t, t->linear == 5, 0); /* thread 5 waits at another barrier */
}

static void waits_for_more(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->linear >= 3)
        sg_rt_barrier_sync(t, 2, 96);
}

static void bad_number(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    sg_rt_barrier_sync(t, 16, 0);
}

static void test_deadlock(void)
{
    _Atomic uint32_t unused = 0;
    void *pointer = (void *)&unused;
    struct sg_fault_report report;
    struct sg_launch launch = thread_launch(never_meets, 1, 64, &pointer);
    CHECK_EQUAL(sg_exec_run(&launch, &report), SG_FAULT_DEADLOCK);
    CHECK_EQUAL(report.tid[0], 0);
    launch = thread_launch(waits_for_more, 1, 64, &pointer);
    CHECK_EQUAL(sg_exec_run(&launch, &report), SG_FAULT_DEADLOCK);
    CHECK_EQUAL(report.tid[0], 3);
    launch = thread_launch(bad_number, 1, 64, &pointer);
    CHECK_EQUAL(sg_exec_run(&launch, &report), SG_FAULT_ILLEGAL_INSTRUCTION);
    test_whole_block(); /* the engine is as good as before */
}

int main(void)
{
    test_whole_block();
    test_exited_threads();
    test_counted();
    test_reductions();
    test_deadlock();
    return TEST_RESULT();
}
