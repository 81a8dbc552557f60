/*
 * grids.c - several grids at once, grids whose blocks wait for each other, and grids that wait for other
 * grids.
 */
#include "tests/softgpu/exec/kernel_test.h"

#include <pthread.h>
#include <unistd.h>

#define CALLERS 6

/* --- independent grids from several threads --- */

static void add_up(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint64_t *sum = PARAMETER(_Atomic uint64_t, params);
    uint32_t *shared = (uint32_t *)(void *)t->block->shared;
    shared[t->linear] = t->linear + t->block->ctaid[0];
    sg_rt_barrier_sync(t, 0, 0);
    atomic_fetch_add_explicit(sum, shared[(t->linear + 1) % t->block->n_threads], memory_order_relaxed);
}

static void add_up_block(struct sg_block *block, const unsigned char *params)
{
    _Atomic uint64_t *sum = PARAMETER(_Atomic uint64_t, params);
    atomic_fetch_add_explicit(sum, block->ctaid[0], memory_order_relaxed);
}

static void *launch_many(void *seed)
{
    uint32_t s = (uint32_t)(uintptr_t)seed;
    for (uint32_t i = 0; i < (TEST_SANITIZED ? 30 : 200); i++) {
        uint32_t blocks = 1 + (i * 7 + s) % 40, threads = 1 + (i * 37 + s * 11) % 130;
        _Atomic uint64_t sum = 0;
        void *pointer = (void *)&sum;
        struct sg_launch launch = thread_launch(add_up, blocks, threads, &pointer);
        launch.shared_dynamic = threads * 4;
        CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
        CHECK_EQUAL(sum, (uint64_t)blocks * threads * (threads - 1) / 2 +
                             (uint64_t)threads * blocks * (blocks - 1) / 2);
        sum = 0;
        CHECK_EQUAL(run_blocks(add_up_block, blocks * 50, 1, pointer), SG_FAULT_NONE);
        CHECK_EQUAL(sum, (uint64_t)(blocks * 50) * (blocks * 50 - 1) / 2);
    }
    return NULL;
}

static void test_concurrent_callers(void)
{
    pthread_t threads[CALLERS];
    for (uintptr_t i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, launch_many, (void *)i);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
}

/* --- faults in one grid while others run --- */

static void fault_in_last(struct sg_thread *t, const unsigned char *params)
{
    sg_rt_barrier_sync(t, 0, 0);
    if (t->block->ctaid[0] == t->block->nctaid[0] - 1 && t->linear == 1)
        store_word(PARAMETER(void, params));
    sg_rt_barrier_sync(t, 0, 0);
}

static void *launch_faulty(void *unused)
{
    for (int i = 0; i < (TEST_SANITIZED ? 10 : 100); i++)
        CHECK_EQUAL(run_threads(fault_in_last, 9, 40, (void *)8), SG_FAULT_ILLEGAL_ADDRESS);
    return unused;
}

static void test_faults_beside_others(void)
{
    pthread_t faulty[2], good[2];
    for (uintptr_t i = 0; i < 2; i++) {
        pthread_create(&faulty[i], NULL, launch_faulty, NULL);
        pthread_create(&good[i], NULL, launch_many, (void *)i);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(faulty[i], NULL);
        pthread_join(good[i], NULL);
    }
}

/* --- grid-wide synchronisation --- */

struct grid_sync {
    _Atomic uint32_t arrived, generation, wrong;
    uint32_t rounds;
    uint32_t *values; /* one a block */
};

/* As cooperative groups do it: one thread of each block counts and spins, the others wait at a barrier. */
static void wait_for_grid(struct sg_thread *t, struct grid_sync *g)
{
    sg_rt_barrier_sync(t, 0, 0);
    if (t->linear == 0) {
        uint32_t generation = g->generation;
        if (atomic_fetch_add(&g->arrived, 1) + 1 == t->block->nctaid[0]) {
            g->arrived = 0;
            g->generation = generation + 1;
        } else {
            while (g->generation == generation)
                sg_rt_yield(t);
        }
    }
    sg_rt_barrier_sync(t, 0, 0);
}

static void neighbours(struct sg_thread *t, const unsigned char *params)
{
    struct grid_sync *g = PARAMETER(struct grid_sync, params);
    uint32_t block = t->block->ctaid[0], blocks = t->block->nctaid[0];
    for (uint32_t round = 0; round < g->rounds; round++) {
        if (t->linear == t->block->n_threads - 1)
            g->values[block] = round * 10000 + block;
        wait_for_grid(t, g);
        uint32_t other = (block + round + 1) % blocks;
        if (g->values[other] != round * 10000 + other)
            g->wrong++;
        wait_for_grid(t, g);
    }
}

static void check_grid_sync(uint32_t blocks, uint32_t threads, uint32_t rounds, bool cooperative)
{
    struct grid_sync g = {.rounds = rounds, .values = calloc(blocks, sizeof(uint32_t))};
    void *pointer = &g;
    struct sg_launch launch = thread_launch(neighbours, blocks, threads, &pointer);
    launch.cooperative = cooperative;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    CHECK_EQUAL(g.wrong, 0);
    CHECK_EQUAL(g.generation, rounds * 2);
    free(g.values);
}

static void test_grid_sync(void)
{
    check_grid_sync(1, 64, 10, true);
    check_grid_sync(2, 64, 10, true);
    check_grid_sync(37, 33, 10, true);
    check_grid_sync(TEST_SANITIZED ? 20 : 300, 32, 5, true);
    check_grid_sync(TEST_SANITIZED ? 3 : 16, 1024, 3, true);
    check_grid_sync(20, 32, 3, false); /* not announced, but on a GPU it works, so here, too */
}

static void *sync_caller(void *unused)
{
    check_grid_sync(10, 32, 5, true);
    return unused;
}

static void test_grid_syncs_at_once(void)
{
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, sync_caller, NULL);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
}

/* --- a block waits for its predecessor, as in a scan with look-back --- */

static void look_back(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *prefix = PARAMETER(_Atomic uint32_t, params);
    uint32_t block = t->block->ctaid[0];
    if (t->linear == 0) {
        while (block && !prefix[block - 1])
            sg_rt_yield(t);
        prefix[block] = (block ? prefix[block - 1] : 0) + block + 1;
    }
    sg_rt_barrier_sync(t, 0, 0);
}

static void test_look_back(void)
{
    static _Atomic uint32_t prefix[500];
    CHECK_EQUAL(run_threads(look_back, 500, 32, (void *)prefix), SG_FAULT_NONE);
    CHECK_EQUAL(prefix[499], 500 * 501 / 2);
}

/* --- grids and hosts that wait for each other --- */

static void wait_for_flag(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *flag = PARAMETER(_Atomic uint32_t, params);
    while (!*flag)
        sg_rt_yield(t);
}

static void raise_flag(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    *PARAMETER(_Atomic uint32_t, params) = 1;
}

static void *launch_waiting(void *flag)
{
    CHECK_EQUAL(run_threads(wait_for_flag, 40, 32, flag), SG_FAULT_NONE);
    return NULL;
}

static void test_waiting_for_others(void)
{
    for (int by_kernel = 0; by_kernel < 2; by_kernel++) {
        _Atomic uint32_t flag = 0;
        pthread_t threads[CALLERS];
        for (int i = 0; i < CALLERS; i++)
            pthread_create(&threads[i], NULL, launch_waiting, (void *)&flag);
        usleep(50000);
        if (by_kernel)
            CHECK_EQUAL(run_blocks(raise_flag, 1, 1, (void *)&flag), SG_FAULT_NONE);
        else
            flag = 1;
        for (int i = 0; i < CALLERS; i++)
            pthread_join(threads[i], NULL);
    }
}

/* --- a spinning thread and the lock it waits for are in one block --- */

static void spin_lock(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *words = PARAMETER(_Atomic uint32_t, params); /* the lock and the counter */
    for (int i = 0; i < 3; i++) {
        uint32_t free_value = 0;
        while (!atomic_compare_exchange_strong(&words[0], &free_value, 1)) {
            free_value = 0;
            sg_rt_yield(t);
        }
        uint32_t value = atomic_load_explicit(&words[1], memory_order_relaxed);
        sg_rt_yield(t); /* while the lock is held */
        atomic_store_explicit(&words[1], value + 1, memory_order_relaxed);
        words[0] = 0;
    }
}

static void test_spin_lock(void)
{
    _Atomic uint32_t words[2] = {0, 0};
    CHECK_EQUAL(run_threads(spin_lock, 4, 64, (void *)words), SG_FAULT_NONE);
    CHECK_EQUAL(words[1], 4 * 64 * 3);
}

int main(void)
{
    test_concurrent_callers();
    test_faults_beside_others();
    test_grid_sync();
    test_grid_syncs_at_once();
    test_look_back();
    test_waiting_for_others();
    test_spin_lock();
    return TEST_RESULT();
}
