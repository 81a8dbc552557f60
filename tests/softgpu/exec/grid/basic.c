/* basic.c - indices, parameters and shared memory of block-form and thread-form kernels. */
#include "tests/softgpu/exec/kernel_test.h"

#include <sys/resource.h>
#include <unistd.h>

/* --- block form --- */

static void count_threads(struct sg_block *block, const unsigned char *params)
{
    _Atomic uint32_t *seen = PARAMETER(_Atomic uint32_t, params);
    uint64_t linear = block->ctaid[0] + (uint64_t)block->nctaid[0] *
                                            (block->ctaid[1] + (uint64_t)block->nctaid[1] * block->ctaid[2]);
    for (uint32_t t = 0; t < block->n_threads; t++)
        seen[linear * block->n_threads + t]++;
}

static void test_every_block_runs_once(void)
{
    static const uint32_t shapes[][3] = {{1, 1, 1},   {2, 1, 1}, {1000, 1, 1}, {7, 5, 3},
                                         {1, 300, 1}, {1, 1, 9}, {65, 2, 65}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        uint32_t n = shapes[s][0] * shapes[s][1] * shapes[s][2] * 6;
        _Atomic uint32_t *seen = calloc(n, sizeof(*seen));
        struct sg_launch launch = {.kernel_name = "count",
                                   .code = (void *)(uintptr_t)count_threads,
                                   .block = {3, 2, 1},
                                   .params = &seen,
                                   .params_size = sizeof(seen)};
        memcpy(launch.grid, shapes[s], sizeof(launch.grid));
        CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < n; i++)
            wrong += seen[i] != 1;
        CHECK_EQUAL(wrong, 0);
        free(seen);
    }
}

/* --- thread form --- */

struct indices {
    uint32_t tid[3], linear, ctaid[3];
};

static void note_indices(struct sg_thread *t, const unsigned char *params)
{
    struct indices *all = PARAMETER(struct indices, params);
    const struct sg_block *b = t->block;
    uint32_t block = b->ctaid[0] + b->nctaid[0] * (b->ctaid[1] + b->nctaid[1] * b->ctaid[2]);
    struct indices *mine =
        &all[block * b->n_threads + t->tid[0] + b->ntid[0] * (t->tid[1] + b->ntid[1] * t->tid[2])];
    memcpy(mine->tid, t->tid, sizeof(mine->tid));
    memcpy(mine->ctaid, b->ctaid, sizeof(mine->ctaid));
    mine->linear = t->linear + 1;
}

static void test_thread_indices(void)
{
    struct indices *all = calloc(6 * 60, sizeof(*all));
    struct sg_launch launch = {.kernel_name = "indices",
                               .code = (void *)(uintptr_t)note_indices,
                               .form = SG_CODE_THREAD,
                               .grid = {3, 2, 1},
                               .block = {5, 4, 3},
                               .params = &all,
                               .params_size = sizeof(all)};
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    for (uint32_t block = 0; block < 6; block++) {
        for (uint32_t i = 0; i < 60; i++) {
            const struct indices *x = &all[block * 60 + i];
            CHECK_EQUAL(x->linear, i + 1);
            CHECK(x->tid[0] == i % 5 && x->tid[1] == i / 5 % 4 && x->tid[2] == i / 20);
            CHECK(x->ctaid[0] == block % 3 && x->ctaid[1] == block / 3 && x->ctaid[2] == 0);
        }
    }
    free(all);
}

/* --- shared memory and parameters --- */

struct shared_params {
    uint32_t *out;
    unsigned char filler[6000];
    uint32_t last;
};

static void use_shared(struct sg_thread *t, const unsigned char *params)
{
    const struct shared_params *p = (const void *)params;
    struct sg_block *b = t->block;
    uint32_t *dynamic = (uint32_t *)(void *)(b->shared + b->shared_static);
    if (t->linear == 0) {
        CHECK(((uintptr_t)b->shared & 1023) == 0);
        CHECK(((uintptr_t)params & 15) == 0);
        CHECK_EQUAL(b->shared_static, 48); /* 36, aligned */
        CHECK_EQUAL(b->shared_total, 48 + 400);
        memset(b->shared, 0xff, b->shared_static);
    }
    dynamic[t->linear] = t->linear + b->ctaid[0];
    sg_rt_barrier_sync(t, 0, 0);
    p->out[b->ctaid[0] * 100 + t->linear] = dynamic[99 - t->linear] + p->last;
}

static void test_shared_and_large_params(void)
{
    static uint32_t out[10 * 100];
    struct shared_params p = {.out = out, .last = 7};
    struct sg_launch launch = {.kernel_name = "shared",
                               .code = (void *)(uintptr_t)use_shared,
                               .form = SG_CODE_THREAD,
                               .grid = {10, 1, 1},
                               .block = {100, 1, 1},
                               .params = &p,
                               .params_size = sizeof(p),
                               .shared_static = 36,
                               .shared_dynamic = 400};
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_NONE);
    for (uint32_t i = 0; i < 1000; i++)
        CHECK_EQUAL(out[i], 99 - i % 100 + i / 100 + 7);
}

static void test_impossible_launches(void)
{
    void *nothing = NULL;
    struct sg_launch launch = thread_launch(note_indices, 1, 1025, &nothing);
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_OUT_OF_RESOURCES);
    launch = thread_launch(note_indices, 0, 1, &nothing);
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_OUT_OF_RESOURCES);
    launch = thread_launch(note_indices, 1, 1, &nothing);
    launch.stack_size = UINT64_MAX;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_OUT_OF_RESOURCES);
    launch.stack_size = 0;
    launch.shared_dynamic = UINT32_MAX;
    CHECK_EQUAL(run_launch(&launch), SG_FAULT_OUT_OF_RESOURCES);
}

/* --- the workers sleep when there is nothing to do --- */

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void test_idle_engine_uses_no_processor(void)
{
    double before = processor_seconds();
    usleep(300000);
    CHECK(processor_seconds() - before < 0.1);
}

int main(void)
{
    test_every_block_runs_once();
    test_thread_indices();
    test_shared_and_large_params();
    test_impossible_launches();
    test_idle_engine_uses_no_processor();
    return TEST_RESULT();
}
