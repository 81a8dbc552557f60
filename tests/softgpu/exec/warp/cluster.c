/*
 * cluster.c - blocks that run together: their barrier, their shared memory, exited threads, deadlock,
 * faults.
 */
#include "tests/softgpu/exec/kernel_test.h"

static struct sg_launch cluster_launch(sg_thread_code code, uint32_t blocks, uint32_t size, uint32_t threads,
                                       void *const *pointer)
{
    struct sg_launch launch = thread_launch(code, blocks, threads, pointer);
    launch.cluster[0] = size;
    launch.cluster[1] = launch.cluster[2] = 1;
    launch.shared_static = 4096;
    return launch;
}

static enum sg_fault run_clusters(sg_thread_code code, uint32_t blocks, uint32_t size, uint32_t threads,
                                  void *pointer)
{
    struct sg_launch launch = cluster_launch(code, blocks, size, threads, &pointer);
    return run_launch(&launch);
}

static uint32_t *shared_of(const struct sg_thread *t, uint32_t rank)
{
    return (uint32_t *)(void *)(t->block->cluster_shared + rank * SG_WINDOW);
}

static uint32_t size_of(const struct sg_thread *t)
{
    const uint32_t *shape = t->block->cluster_nctaid;
    return shape[0] * shape[1] * shape[2];
}

static void meet(struct sg_thread *t)
{
    sg_rt_cluster_arrive(t);
    sg_rt_cluster_wait(t);
}

/* Each round, a thread reads what one of another block wrote in the round before. */
static void exchange(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t size = size_of(t), rank = t->block->ctaid[0] % size, n = t->block->n_threads;
    for (uint32_t round = 0; round < 12; round++) {
        ((uint32_t *)(void *)t->block->shared)[t->linear] = round * 100000 + rank * 1000 + t->linear;
        meet(t);
        uint32_t other = (rank + round) % size, thread = (t->linear + round) % n;
        if (shared_of(t, other)[thread] != round * 100000 + other * 1000 + thread)
            ++*wrong;
        meet(t);
    }
}

static void test_barrier(void)
{
    static const uint32_t sizes[][3] = {{8, 1, 33},   {8, 2, 64},   {12, 4, 1},
                                        {16, 8, 100}, {32, 16, 32}, {400, 4, 7}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        _Atomic uint32_t wrong = 0;
        CHECK_EQUAL(run_clusters(exchange, sizes[i][0], sizes[i][1], sizes[i][2], (void *)&wrong),
                    SG_FAULT_NONE);
        CHECK_EQUAL(wrong, 0);
    }
}

/* Who arrives may do other things before it waits, and meet the rest of its block there. */
static void arrive_early(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t size = size_of(t), rank = t->block->ctaid[0] % size;
    uint32_t *own = (uint32_t *)(void *)t->block->shared;
    own[t->linear] = 0;
    meet(t);
    for (uint32_t round = 1; round <= 5; round++) {
        own[t->linear] = round;
        sg_rt_cluster_arrive(t);
        for (uint32_t i = 0; i < rank; i++)
            sg_rt_barrier_sync(t, 0, 0);
        sg_rt_yield(t);
        sg_rt_cluster_wait(t);
        if (shared_of(t, (rank + 1) % size)[t->linear] < round)
            ++*wrong;
        meet(t);
    }
}

static void test_arrival(void)
{
    _Atomic uint32_t wrong = 0;
    CHECK_EQUAL(run_clusters(arrive_early, 8, 4, 50, (void *)&wrong), SG_FAULT_NONE);
    CHECK_EQUAL(wrong, 0);
}

/* Threads, and at last whole blocks, leave one by one, some of them after they have arrived. */
static void leave_early(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *sum = PARAMETER(_Atomic uint32_t, params);
    uint32_t turns = t->linear % 5 + t->block->ctaid[0] % size_of(t) * 3;
    for (uint32_t round = 0; round < turns; round++)
        meet(t);
    *sum += 1;
    if (t->linear % 2)
        sg_rt_cluster_arrive(t);
    if (t->linear % 3 == 0)
        sg_rt_exit(t);
}

static void test_exited_threads(void)
{
    _Atomic uint32_t sum = 0;
    CHECK_EQUAL(run_clusters(leave_early, 16, 4, 40, (void *)&sum), SG_FAULT_NONE);
    CHECK_EQUAL(sum, 640);
    /* a block that is alone has a barrier all the same */
    sum = 0;
    void *pointer = (void *)&sum;
    struct sg_launch launch = thread_launch(leave_early, 3, 40, &pointer);
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    CHECK_EQUAL(sum, 120);
}

/* Every block marks its place; the blocks of a cluster are neighbours in all directions. */
static void mark_place(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *marks = PARAMETER(_Atomic uint32_t, params);
    const struct sg_block *b = t->block;
    uint32_t block = (b->ctaid[2] * b->nctaid[1] + b->ctaid[1]) * b->nctaid[0] + b->ctaid[0], cluster = 0;
    for (int i = 2; i >= 0; i--)
        cluster = cluster * (b->nctaid[i] / b->cluster_nctaid[i]) + b->ctaid[i] / b->cluster_nctaid[i];
    *(uint32_t *)(void *)b->shared = cluster;
    meet(t);
    for (uint32_t rank = 0; rank < size_of(t); rank++)
        marks[block] += *shared_of(t, rank) == cluster;
    meet(t);
}

static void test_places(void)
{
    static _Atomic uint32_t marks[4 * 6 * 4];
    void *pointer = (void *)marks;
    struct sg_launch launch = cluster_launch(mark_place, 4, 2, 1, &pointer);
    memcpy(launch.grid, (uint32_t[3]){4, 6, 4}, sizeof(launch.grid));
    memcpy(launch.cluster, (uint32_t[3]){2, 3, 2}, sizeof(launch.cluster));
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    for (int i = 0; i < 96; i++)
        CHECK_EQUAL(marks[i], 12);
    launch.cluster[1] = 4;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_OUT_OF_RESOURCES);
}

/* The second block waits for threads that it has not got, the first for the second. */
static void never_meet(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[0] == 1 && t->linear < 3)
        sg_rt_barrier_sync(t, 1, 64);
    meet(t);
}

static void test_deadlock(void)
{
    void *pointer = NULL;
    struct sg_launch launch = cluster_launch(never_meet, 2, 2, 32, &pointer);
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_DEADLOCK);
}

/* An access behind the shared memory of the block after this one. */
static void reach_too_far(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    meet(t);
    if (t->block->ctaid[0] == 2 && t->linear == 5)
        store_word((unsigned char *)shared_of(t, 3) + 4096);
    meet(t);
}

static void test_fault(void)
{
    struct sg_fault_report report;
    void *pointer = NULL;
    struct sg_launch launch = cluster_launch(reach_too_far, 4, 4, 32, &pointer);
    CHECK_EQUAL(sg_exec_run(&launch, &report), SG_FAULT_ILLEGAL_ADDRESS);
    CHECK(report.block_known && report.ctaid[0] == 2);
    CHECK(report.thread_known && report.tid[0] == 5);
    test_barrier(); /* what the fault left behind serves again */
}

/* All clusters of a cooperative grid meet. */
static void meet_in_grid(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *arrived = PARAMETER(_Atomic uint32_t, params);
    for (uint32_t round = 1; round <= 3; round++) {
        meet(t);
        if (t->linear == 0)
            ++*arrived;
        while (*arrived < round * t->block->nctaid[0])
            sg_rt_yield(t);
    }
}

static void test_cooperative(void)
{
    _Atomic uint32_t arrived = 0;
    void *pointer = (void *)&arrived;
    struct sg_launch launch = cluster_launch(meet_in_grid, 48, 4, 20, &pointer);
    launch.cooperative = true;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    CHECK_EQUAL(arrived, 144);
}

int main(void)
{
    test_barrier();
    test_arrival();
    test_exited_threads();
    test_places();
    test_deadlock();
    test_fault();
    test_cooperative();
    return TEST_RESULT();
}
