/*
 * exec.h - the engine that runs grids on the CPU: worker threads, blocks, fibers, barriers, warp operations,
 * faults.
 *
 * One engine a process, made on first use, with one OS worker thread a core (SOFTGPU_CORES overrides). Idle
 * workers sleep. Blocks of a grid are taken in order of their index. Several grids may run at once.
 */
#ifndef SG_EXEC_H
#define SG_EXEC_H

#include "softgpu/kernel_abi.h"

#include <stdbool.h>

struct sg_launch {
    const char *kernel_name; /* for reports */
    void *code;              /* sg_block_code, struct sg_loop_code or sg_thread_code */
    enum sg_code_form form;
    bool cooperative; /* all blocks must be resident at once (thread form only) */
    uint32_t grid[3], block[3];
    const void *params; /* copied by sg_exec_run before it returns control to code */
    uint32_t params_size;
    uint32_t shared_static, shared_dynamic;
    uint64_t stack_size; /* bytes a thread may need beyond the default (local memory, recursion) */
    uint64_t grid_id;
};

struct sg_fault_report {
    enum sg_fault fault;
    bool block_known, thread_known;
    uint32_t ctaid[3], tid[3];
    uint64_t address; /* of an address fault */
    const struct sg_site
        *site; /* of a watched kernel: the instruction; lives as long as the code. Else NULL */
};

/**
 * Runs a whole grid and returns when its last thread has ended, or with the first fault. Any thread. A launch
 * that the engine cannot do (more than 1024 threads a block, stacks or shared memory too large) is
 * SG_FAULT_OUT_OF_RESOURCES. The driver checks its own limits first, with their own errors.
 */
enum sg_fault sg_exec_run(const struct sg_launch *launch, struct sg_fault_report *report);

/** Where device printf and assertion messages go: called with whole lines, one caller at a time. Default:
 * stdout. */
void sg_exec_set_output(void (*write)(void *user, const char *text, size_t size), void *user);
/** Passes on all output produced so far (synchronising calls do this). */
void sg_exec_flush_output(void);
/** Bytes of output kept between flushes (CU_LIMIT_PRINTF_FIFO_SIZE, 1 MiB at first); the oldest is dropped.
 */
void sg_exec_set_output_limit(uint64_t bytes);

/** Who is told what kernels set conditions of graphs to; until then they do nothing. */
typedef void (*sg_condition_setter)(uint64_t handle, uint32_t value);
void sg_exec_set_conditions(sg_condition_setter set);

/** Device heap for in-kernel malloc, bytes. */
void sg_exec_set_heap_limit(uint64_t bytes);
unsigned sg_exec_cores(void);

#endif
