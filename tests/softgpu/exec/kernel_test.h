/*
 * kernel_test.h - for tests that run hand-written C functions as kernels: checks that count failures, and a
 * launch in one line. A test is a program: main runs the cases and returns TEST_RESULT().
 */
#ifndef TESTS_SOFTGPU_EXEC_KERNEL_TEST_H
#define TESTS_SOFTGPU_EXEC_KERNEL_TEST_H

#include "softgpu/exec/exec.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int test_failures __attribute__((unused));

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition);            \
            test_failures++;                                                                                 \
        }                                                                                                    \
    } while (0)

#define CHECK_EQUAL(actual, expected)                                                                        \
    do {                                                                                                     \
        unsigned long long actual_ = (unsigned long long)(actual),                                           \
                           expected_ = (unsigned long long)(expected);                                       \
        if (actual_ != expected_) {                                                                          \
            fprintf(stderr, "%s:%d: %s: %s is %llu (0x%llx), expected %llu (0x%llx)\n", __FILE__, __LINE__,  \
                    __func__, #actual, actual_, actual_, expected_, expected_);                              \
            test_failures++;                                                                                 \
        }                                                                                                    \
    } while (0)

#define TEST_RESULT() (test_failures ? 1 : 0)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

/**
 * Writes to memory that may not be there, as generated code would: no sanitizer looks at the address first.
 */
__attribute__((noinline, unused, no_sanitize("thread", "address", "undefined"))) static void
store_word(void *address)
{
    *(volatile uint32_t *)address = 1;
}

/** A launch of a thread-form kernel on a one-dimensional grid whose parameters are one pointer. */
static inline struct sg_launch thread_launch(sg_thread_code code, uint32_t blocks, uint32_t threads,
                                             void *const *pointer)
{
    return (struct sg_launch){.kernel_name = "test",
                              .code = (void *)(uintptr_t)code,
                              .form = SG_CODE_THREAD,
                              .grid = {blocks, 1, 1},
                              .block = {threads, 1, 1},
                              .params = pointer,
                              .params_size = sizeof(*pointer)};
}

/** Runs it, whatever is reported of a fault. */
static inline enum sg_fault run_launch(const struct sg_launch *launch)
{
    struct sg_fault_report report;
    return sg_exec_run(launch, &report);
}

static inline enum sg_fault run_threads(sg_thread_code code, uint32_t blocks, uint32_t threads, void *pointer)
{
    struct sg_launch launch = thread_launch(code, blocks, threads, &pointer);
    return run_launch(&launch);
}

static inline enum sg_fault run_blocks(sg_block_code code, uint32_t blocks, uint32_t threads, void *pointer)
{
    struct sg_launch launch = thread_launch(NULL, blocks, threads, &pointer);
    launch.code = (void *)(uintptr_t)code;
    launch.form = SG_CODE_BLOCK;
    return run_launch(&launch);
}

/** The pointer that is the kernel's parameter. */
#define PARAMETER(type, params) (*(type *const *)(const void *)(params))

#endif
