/* heap.c - malloc and free of kernels: memory that is one's own, the limit, and mistakes. */
#include "tests/softgpu/exec/kernel_test.h"

/* --- many threads allocate, write, check and free in their own rhythm --- */

static void churn(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *wrong = PARAMETER(_Atomic uint32_t, params);
    uint32_t *memory[8] = {0}, size[8] = {0}, random = t->linear * 7919 + t->block->ctaid[0] * 104729 + 1;
    for (uint32_t i = 0; i < 100; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t k = random >> 8 & 7;
        if (memory[k]) {
            for (uint32_t j = 0; j < size[k]; j++)
                if (memory[k][j] != t->linear * 1000 + k)
                    ++*wrong;
            sg_rt_free(t, memory[k]);
            memory[k] = NULL;
        } else {
            size[k] = 1 + (random >> 12) % (i % 10 == 0 ? 3000 : 100);
            memory[k] = sg_rt_malloc(t, size[k] * 4);
            if (!memory[k] || ((uintptr_t)memory[k] & 15)) {
                ++*wrong;
                memory[k] = NULL;
                continue;
            }
            for (uint32_t j = 0; j < size[k]; j++)
                memory[k][j] = t->linear * 1000 + k;
        }
        if (i % 16 == 0)
            sg_rt_yield(t);
    }
    for (uint32_t k = 0; k < 8; k++)
        sg_rt_free(t, memory[k]); /* NULL is allowed */
}

static void test_churn(void)
{
    _Atomic uint32_t wrong = 0;
    CHECK_EQUAL(run_threads(churn, 4, 64, (void *)&wrong), SG_FAULT_NONE);
    CHECK_EQUAL(wrong, 0);
}

/* --- the limit --- */

static void fill(struct sg_thread *t, const unsigned char *params)
{
    struct {
        uint64_t size, count;
    } *p = PARAMETER(void, params);
    void **first = NULL, **memory;
    p->count = 0;
    while ((memory = sg_rt_malloc(t, p->size))) {
        *memory = first;
        first = memory;
        p->count++;
    }
    while (first) {
        memory = *first;
        sg_rt_free(t, first);
        first = memory;
    }
}

static void test_limit(void)
{
    static const uint64_t sizes[] = {8, 16, 100, 1024, 1025, 5000, 1 << 20, 4 << 20};
    static const uint64_t at_least[] = {65536, 65536, 9000, 1024, 512, 512, 1, 0};
    struct {
        uint64_t size, count;
    } p;
    sg_exec_set_heap_limit(0);
    p.size = 16;
    CHECK_EQUAL(run_threads(fill, 1, 1, &p), SG_FAULT_NONE);
    CHECK_EQUAL(p.count, 0);
    sg_exec_set_heap_limit(4 << 20);
    for (int round = 0; round < 2; round++) { /* all is free again after each */
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            p.size = sizes[i];
            CHECK_EQUAL(run_threads(fill, 1, 1, &p), SG_FAULT_NONE);
            CHECK(p.count >= at_least[i]);
            CHECK(p.count * p.size <= 4 << 20);
        }
    }
    p.size = UINT64_MAX;
    CHECK_EQUAL(run_threads(fill, 1, 1, &p), SG_FAULT_NONE);
    CHECK_EQUAL(p.count, 0);
    sg_exec_set_heap_limit(8 << 20);
}

/* --- memory outlives the kernel, mistakes are found --- */

static void allocate(struct sg_thread *t, const unsigned char *params)
{
    void **out = PARAMETER(void *, params);
    *out = sg_rt_malloc(t, 64);
    memset(*out, 0x42, 64);
}

static void release(struct sg_thread *t, const unsigned char *params)
{
    sg_rt_free(t, *PARAMETER(void *, params));
}

static void test_across_kernels(void)
{
    void *memory = NULL, *inside;
    CHECK_EQUAL(run_threads(allocate, 1, 1, &memory), SG_FAULT_NONE);
    CHECK(memory != NULL && ((unsigned char *)memory)[63] == 0x42);
    sg_exec_set_heap_limit(1 << 20); /* takes effect when nothing is allocated */
    CHECK(((unsigned char *)memory)[63] == 0x42);
    inside = (char *)memory + 16;
    CHECK_EQUAL(run_threads(release, 1, 1, &inside), SG_FAULT_ILLEGAL_ADDRESS);
    inside = &inside;
    CHECK_EQUAL(run_threads(release, 1, 1, &inside), SG_FAULT_ILLEGAL_ADDRESS);
    CHECK_EQUAL(run_threads(release, 1, 1, &memory), SG_FAULT_NONE);
    CHECK_EQUAL(run_threads(release, 1, 1, &memory), SG_FAULT_ILLEGAL_ADDRESS);
    sg_exec_set_heap_limit(8 << 20);
}

int main(void)
{
    test_churn();
    test_limit();
    test_across_kernels();
    test_churn();
    return TEST_RESULT();
}
