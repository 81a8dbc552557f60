/*
 * exec.h - the engine that runs grids on the CPU: worker threads, blocks, fibers, barriers, warp operations,
 * faults.
 *
 * One engine a process, made on first use, with one OS worker thread a core (SOFTGPU_CORES overrides). Idle
 * workers sleep. Blocks of a grid are taken in order of their index. Several grids may run at once.
 */
#ifndef SG_EXEC_EXEC_H
#define SG_EXEC_EXEC_H

#include "softgpu/kernel_abi.h"

#include <stdbool.h>

struct sg_launch;

/**
 * What the device runtime asks the driver for a kernel that runs; any thread. Those that return int give a
 * cudaError_t.
 */
struct sg_device_services {
    /**
     * Fills in `child`, of which grid, block and shared_dynamic are given, for the kernel that code knows by
     * `function`; checks what is given. Not params; code stays NULL.
     */
    int (*prepare)(const struct sg_launch *parent, const void *function, struct sg_launch *child);
    /** Sets child->code; compiles it if need be. False: it cannot be had, and the log says why. */
    bool (*code)(struct sg_launch *child);
    int (*attribute)(const struct sg_launch *parent, int attribute, int device, int *value);
    /** Of the context, by cudaLimit; UINT64_MAX: it has no such limit. */
    uint64_t (*limit)(const struct sg_launch *parent, int limit);
    /** Value of a CUfunction_attribute. */
    int (*function_attribute)(const struct sg_launch *parent, const void *function, int attribute,
                              int *value);
    int (*occupancy)(const struct sg_launch *parent, const void *function, int threads, uint64_t shared,
                     int *blocks);
    /** Whether the device may read, or write, these bytes. */
    bool (*reachable)(uint64_t address, uint64_t size, bool write);
    const char *(*error_text)(int error, bool name);
    int (*device)(const struct sg_launch *parent, int *count);
};
#define SG_LIMIT_PENDING_LAUNCHES 4 /* cudaLimitDevRuntimePendingLaunchCount */

struct sg_launch {
    const char *kernel_name; /* for reports */
    void *code;              /* sg_block_code, struct sg_loop_code or sg_thread_code */
    enum sg_code_form form;
    bool cooperative; /* all blocks must be resident at once (thread form only) */
    uint32_t grid[3], block[3];
    uint32_t cluster[3]; /* blocks of a cluster in each direction, which divide grid; zeros: not said */
    const void *params;  /* copied by sg_exec_run before it returns control to code */
    uint32_t params_size;
    uint32_t shared_static, shared_dynamic;
    uint64_t stack_size; /* bytes a thread may need beyond the default (local memory, recursion) */
    uint64_t grid_id;
    uint32_t n_multiprocessors;      /* at most so many cores work on it at once; 0: all */
    const uint32_t *multiprocessors; /* what they are called (%smid), as long as the grid runs; NULL with 0 */
    const struct sg_device_services *services; /* NULL: calls of the device runtime are not supported */
    void *owner;                               /* the services' */
};

struct sg_fault_report {
    enum sg_fault fault;
    bool block_known, thread_known;
    uint32_t ctaid[3], tid[3];
    uint64_t address; /* of an address fault */
    const struct sg_site
        *site; /* of a watched kernel: the instruction; lives as long as the code. Else NULL */
    /** Of a grid that a kernel launched: which it was; the name lives as long as the code. */
    bool child;
    const char *kernel_name;
    uint32_t grid[3], block[3];
};

/**
 * Runs a whole grid and all that its kernels launch, and returns when that has ended, or with the first
 * fault. Any thread. A launch that the engine cannot do (more than 1024 threads a block, stacks or shared
 * memory too large) is SG_FAULT_OUT_OF_RESOURCES. The driver checks its own limits first, with their own
 * errors.
 */
enum sg_fault sg_exec_run(const struct sg_launch *launch, struct sg_fault_report *report);

/**
 * Where device printf and assertion messages go: called with whole lines, one caller at a time. Default: stdout, and stderr for
 * assertions.
 */
void sg_exec_set_output(void (*write)(void *user, const char *text, size_t size), void *user);
/** Passes on all output produced so far (synchronising calls do this). */
void sg_exec_flush_output(void);
/**
 * Bytes of output kept between flushes (CU_LIMIT_PRINTF_FIFO_SIZE, 1 MiB at first); the oldest is dropped.
 */
void sg_exec_set_output_limit(uint64_t bytes);

/** Who is told what kernels set conditions of graphs to; until then they do nothing. */
typedef void (*sg_condition_setter)(uint64_t handle, uint32_t value);
/** Again with the same is fine. `set` is called on threads that execute blocks. */
void sg_exec_set_conditions(sg_condition_setter set);

/**
 * From now on, up to sg_exec_let_writes, whoever writes to these bytes, which the caller makes read-only, waits and then does it again:
 * kernels and the host's code alike. One range at a time.
 */
void sg_exec_hold_writes(uint64_t address, uint64_t size);
void sg_exec_let_writes(void);

/** Device heap for in-kernel malloc, bytes. */
void sg_exec_set_heap_limit(uint64_t bytes);
unsigned sg_exec_cores(void);
/** No more cores than so many (at least 1) work from now on. Before the first grid. */
void sg_exec_limit_cores(unsigned most);
/** Whether grids may run for a limited time only (SOFTGPU_TIMEOUT). */
bool sg_exec_has_timeout(void);

#endif
