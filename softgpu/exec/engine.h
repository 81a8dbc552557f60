/*
 * engine.h - the structures of the engine. The functions on them are declared in the folders' own headers;
 * what the engine is for is said in exec.h.
 *
 *   grid   one launch, on the stack of the thread that runs it (grid/pool.c).
 *   slot   the place where one OS thread runs blocks (an "SM"): fibers, runs and buffers that are kept for
 *          reuse, and the scheduler's context. A thread owns a slot while it works on a grid.
 *   run    one block in execution: its ready queue, its barriers and its warps.
 *   fiber  a stack and the CUDA thread that runs on it. A fiber takes the next thread of its block that has
 *          not begun, runs it to its end, takes the next, and parks itself in the slot when there is none.
 *
 * One OS thread touches a slot and all that is in it; only the atomics of a grid are shared. Fibers switch to
 * each other directly. They leave to the slot's scheduler (grid/grid.c) when the block has ended, cannot go
 * on, or its turn is over.
 */
#ifndef SG_EXEC_ENGINE_H
#define SG_EXEC_ENGINE_H

#include "softgpu/exec/exec.h"
#include "softgpu/exec/fiber/fiber_context.h"
#include "softgpu/exec/fiber/sanitize.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

#define SG_WARP_SIZE     32u
#define SG_BARRIERS      16u
#define SG_THREADS_MAX   1024u       /* of a block */
#define SG_STACK_BASE    (64u << 10) /* bytes of the smallest stack */
#define SG_STACK_CLASSES 14u         /* stacks of SG_STACK_BASE << class bytes */
#define SG_BLOCK_STACK   (1u << 20)  /* bytes of stack for block form, beyond launch->stack_size */
#define SG_SHARED_MAX    (64u << 20) /* bytes of shared memory of one block */
#define SG_STACK_GUARD   (68u << 10) /* bytes that fault below each stack and above shared memory: 17 pages */
/**
 * Bytes between shared memory and its guard in the forms that LLVM takes threads side by side in: it leaves
 * out the accesses of threads that do not make them by a mask, and where these would fault the processor
 * takes a hundred times as long (`if (i < n) part[i] += part[i + n]`).
 */
#define SG_SHARED_SLACK 8192u
#if defined(__SANITIZE_THREAD__) /* it keeps accounts of all that is mapped */
#define SG_SHARED_REACH ((size_t)16 << 20)
#else
#define SG_SHARED_REACH ((size_t)4 << 30) /* bytes behind shared memory that fault, of most blocks */
#endif
#define SG_RESIDENT_MAX  64u    /* blocks a slot begins because the earlier ones only spin */
#define SG_PASS_TURNS    1024u  /* of a loop, that lanes which have left it wait for */
#define SG_TURN_SWITCHES 65536u /* waits in one turn of a block */

#define sg_likely(x)   __builtin_expect(!!(x), 1)
#define sg_unlikely(x) __builtin_expect(!!(x), 0)

/** Why control came back from a block's fibers to the slot's scheduler. */
enum sg_leave {
    SG_LEAVE_ENDED,    /* the last thread has ended */
    SG_LEAVE_TURN,     /* all threads that can run have yielded */
    SG_LEAVE_BLOCKED,  /* no thread can run before others of the cluster have come to its barrier */
    SG_LEAVE_DEADLOCK, /* no thread can run */
    SG_LEAVE_STOPPED,  /* the grid has a fault, here or elsewhere */
};

struct sg_slot;
struct sg_run;

/* The first cache line is what a switch and a warp operation touch. */
struct sg_fiber {
    _Alignas(64) struct sg_fiber_context context;
    struct sg_fiber *next; /* in the ready queue, in a barrier's list, or in the slot's pool */
    struct sg_run *run;
    uint64_t result;        /* of the operation it waits for */
    uint64_t value;         /* where it waits in activemask, or before an access (warp.c) */
    uint32_t operation;     /* of the barrier reduction it waits in (barrier.c) */
    bool in_thread;         /* the thread has begun and not ended */
    bool cluster_arrived;   /* at the cluster's barrier, and has not waited for it yet … */
    uint32_t cluster_phase; /* … in that phase (cluster.c) */
    uint8_t stack_class;
    struct sg_thread thread;
    jmp_buf *exit_point;  /* where sg_rt_exit goes */
    unsigned char *stack; /* lowest usable address */
    size_t stack_size;    /* without the coloured top */
    struct sg_sanitize sanitize;
    struct sg_local_stack local; /* where kernels are not guarded the processor's stack */
};

struct sg_barrier {
    uint32_t arrived;
    uint32_t count;      /* 0: all threads of the block that have not exited */
    uint32_t n_red, sum; /* threads that wait in a reduction, and how many predicates were true */
    struct sg_fiber *first, *last;
};

/** Operands and results of the lanes of a warp. */
struct sg_lane_exchange {
    uint64_t value[SG_WARP_SIZE], result[SG_WARP_SIZE];
    uint32_t operation[SG_WARP_SIZE], b[SG_WARP_SIZE], c[SG_WARP_SIZE];
    uint32_t mask[SG_WARP_SIZE]; /* as the lane gave it */
};
enum sg_exchange_kind {
    SG_EXCHANGE_SYNC,
    SG_EXCHANGE_SHUFFLE,
    SG_EXCHANGE_VOTE,
    SG_EXCHANGE_MATCH_ANY,
    SG_EXCHANGE_MATCH_ALL,
    SG_EXCHANGE_REDUCE,
    SG_EXCHANGE_MATRIX
};
#define SG_EXCHANGE(kind, mode) ((uint32_t)(kind) << 8 | (mode))

#define SG_FOR_LANES(lane, set)                                                                              \
    for (uint32_t rest_ = (set), lane = 0; rest_ && (lane = (uint32_t)__builtin_ctz(rest_), 1);              \
         rest_ &= rest_ - 1)

struct sg_warp_group {
    uint32_t mask, arrived;
};

struct sg_warp {
    uint32_t alive;   /* lanes that exist and have not exited */
    uint32_t started; /* lanes that have begun: lanes[] is valid */
    uint32_t n_groups;
    uint32_t converging; /* lanes that wait in activemask */
    uint32_t passing;    /* lanes that wait before an access for those farther behind */
    uint32_t behind; /* the place after that of the lanes that passed last, others being farther; 0: none */
    uint32_t turns;  /* how often lanes have come back since then */
    struct sg_fiber *lanes[SG_WARP_SIZE];
    struct sg_warp_group groups[SG_WARP_SIZE]; /* lanes that wait, by mask */
    struct sg_lane_exchange exchange;
};

struct sg_loop_block;

/** Blocks that run together, each on a run of the same slot: cluster.c. */
struct sg_cluster {
    unsigned char *map, *windows; /* the mapping; the first block's window in it */
    size_t map_size, shared;      /* bytes; those that each window has */
    uint32_t capacity;            /* windows */
    uint32_t size, runs;          /* blocks; those not released */
    uint32_t live, arrived;       /* threads that have not ended; that have come to the barrier */
    uint32_t phase;
    struct sg_fiber *first, *last;      /* that wait */
    struct sg_run *run[SG_CLUSTER_MAX]; /* by rank; NULL: ended */
    struct sg_cluster *next;            /* in the slot's pool */
};

struct sg_run {
    struct sg_block block;
    struct sg_grid *grid;
    struct sg_slot *slot;
    struct sg_cluster *cluster; /* NULL: the block is alone */
    struct sg_cluster
        alone; /* … and this its barrier, when threads of it wait for the cluster all the same */
    uint32_t cluster_rank;
    uint32_t cluster_waiting; /* threads that wait at the cluster's barrier */
    struct sg_fiber *ready_first, *ready_last;
    uint32_t started, live;     /* threads begun; threads not ended */
    uint32_t next_tid[3];       /* of the thread to begin next */
    uint32_t yields;            /* in this turn; loop form: whether it ended by them */
    uint32_t switches_left;     /* of this turn */
    uint64_t first, end;        /* block form: the range of blocks */
    const struct sg_site *site; /* watched kernels: the last access … */
    uint32_t site_tid[3];       /* … and whose it was */
    bool progress;              /* something other than yields happened in this turn */
    uint32_t n_converging;      /* threads that wait in activemask */
    uint32_t n_passing;         /* … and before an access, for the other lanes of their warps */
    uint32_t whole_waiting;     /* barriers (bits) in which threads wait for the whole block */
    struct sg_barrier barriers[SG_BARRIERS];
    struct sg_warp *warps;
    uint32_t warps_capacity;
    struct sg_loop_block *loop; /* loop form: lanes.c */
    unsigned char *shared_map;  /* mapping of so many bytes and a guard */
    size_t shared_capacity, shared_guard;
    unsigned char *guest_params; /* where kernels are guarded */
    size_t guest_params_capacity;
    struct sg_run *next; /* in the slot's pool, or in the ring of resident blocks */
};

#define SG_BESIDE_MAX 16u

struct sg_slot {
    uint32_t index, sm_id;
    volatile bool in_kernel; /* a fiber runs: a fault is the kernel's */
    enum sg_leave leave;
    struct sg_fiber *current; /* while in_kernel */
    struct sg_fiber_context scheduler;
    struct sg_sanitize scheduler_sanitize;
    void (*fiber_main)(void *fiber);           /* the body of all fibers */
    struct sg_fiber *fibers[SG_STACK_CLASSES]; /* parked */
    uint64_t trimmed_at[SG_STACK_CLASSES]; /* of rg_now_ns; since then memory of their stacks may be in use */
    struct sg_run *runs;                   /* free */
    struct sg_cluster *clusters;           /* free */
    struct sg_run *beside[SG_BESIDE_MAX];  /* loop form: of neighbouring blocks; the first is the fiber's */
    uint32_t n_beside;
    uint32_t n_fibers;                  /* ever made: colours the stacks */
    char *text;                         /* for formatting device printf */
    struct sg_matrix_scratch *matrices; /* of mma.c; made when first needed, and kept like the text */
    struct sg_slot *next_free;
    /* the watchdog's, under its lock */
    pthread_t os_thread;
    struct sg_slot *next_watched;
};

struct sg_grid {
    const struct sg_launch *launch;
    struct sg_parent *parent; /* of what its kernels launch: children.h */
    const unsigned char *params;
    uint64_t n_blocks;     /* or clusters, where cluster_size is not 1 */
    uint32_t cluster_size; /* blocks that must run together */
    uint32_t n_threads, n_warps, n_cores;
    uint32_t workers_max;  /* threads that may work on it at once */
    uint32_t shares;       /* block form: the part of the blocks left that is taken at a time */
    bool waits;            /* blocks may wait for each other: they take turns */
    uint32_t resident;     /* blocks a slot may hold at once when they yield … */
    uint32_t resident_max; /* … and when they have done nothing else for long */
    unsigned stack_class;
    _Atomic uint64_t next_block;
    _Atomic bool stop;          /* there is a fault: begin nothing, leave soon */
    _Atomic bool fault_claimed; /* whoever sets it writes the report */
    struct sg_fault_report report;
    _Alignas(64) unsigned char own_workspace[64];
    unsigned char *workspace; /* of a cooperative grid's barriers: that, or where guarded kernels can reach */
    /* the pool's, under its lock */
    bool listed;
    _Atomic unsigned workers; /* threads that work on it */
    struct sg_grid *next, *previous;
    pthread_cond_t finished;
    /* the watchdog's, under its lock */
    bool watched;           /* set before the grid begins */
    _Atomic bool timed_out; /* its time is over */
    uint32_t nudges;
    uint64_t deadline; /* of rg_now_ns */
    struct sg_slot *watched_slots;
    struct sg_grid *next_watched;
};

#endif
