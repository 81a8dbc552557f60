/*
 * kernel_abi.h - the contract between generated code (softgpu/compiler) and the engine that runs it
 * (softgpu/exec): what a kernel's machine code is given, and which functions it may call.
 *
 * A block runs on one OS thread from start to end. A kernel comes in one of three forms:
 *
 *   block form   for kernels in which no thread waits for another (no barrier, no warp-wide operation, no spinning
 *                on memory): code(block, params) runs all threads of the block in a loop, which LLVM may vectorise.
 *   loop form    for kernels that are cut at the points where their threads meet (barriers, warp-wide operations):
 *                struct sg_loop_code has a function for each point that takes any row of threads from there to the
 *                next points that they come to. What a thread keeps from one to the next lies in struct sg_lanes.
 *   thread form  for all others: code(thread, params) runs one CUDA thread and is called on a fiber of its own;
 *                the sg_rt_* functions marked [switches] may run other threads of the block before they return.
 *
 * Addresses: generic and global addresses are host virtual addresses. A .shared address is a byte offset into
 * block->shared (so 32-bit shared addresses work); generic = block->shared + offset. A .local address is a host
 * address. .const variables live in device memory; their addresses are host addresses. Kernel parameters are read
 * from `params` (which is readable for the size the kernel declares, 16-byte aligned).
 *
 * Floating-point control (MXCSR) is at its default when code is entered; threads of a slot share it, so code that
 * changes it restores it before it calls a function marked [switches].
 *
 * The structures are read by generated code through the offsets below: change both sides together
 * (compiler/jit/abi.c asserts them).
 */
#ifndef SG_KERNEL_ABI_H
#define SG_KERNEL_ABI_H

#include "softgpu/matrix_abi.h"

#include <stddef.h>
#include <stdint.h>

struct sg_grid; /* the engine's: one launch */

/** One block in execution. Immutable while its threads run, but for the engine's own part. */
struct sg_block {
    uint32_t ctaid[3];
    uint32_t ntid[3];
    uint32_t nctaid[3];
    uint32_t n_threads;    /* ntid[0] * ntid[1] * ntid[2] */
    unsigned char *shared; /* base of the shared window, 1024-byte aligned; static part first, then dynamic */
    uint32_t shared_static; /* bytes of static shared memory: the dynamic part's offset, aligned to 16 */
    uint32_t shared_total;  /* static + dynamic */
    struct sg_grid *grid;
    uint64_t grid_id;
    uint32_t sm_id; /* %smid: the OS worker that runs the block */
    uint32_t n_sm;
    uint32_t cluster_nctaid
        [3]; /* blocks of a cluster in each direction, which divide nctaid: 1 without clusters */
    uint32_t cluster_explicit;  /* the launch, or the kernel, says so */
    void *engine;               /* exec's own */
    const unsigned char *local; /* loop form: the .local variables of all threads, … */
    uint64_t local_size;        /* … in bytes */
    uint64_t
        grid_workspace; /* cooperative launches: address of >= 64 zeroed bytes that the grid's blocks share,
                                for grid-wide barriers (%envreg1 and %envreg2); else 0 */
    unsigned char *
        cluster_shared; /* shared memory of the cluster's first block; that of block r is at + r * SG_WINDOW */
    const unsigned char
        *guest_params; /* where kernels are guarded: a copy of the parameters that they can reach */
};

/*
 * Clusters. A .shared::cluster address is a .shared address of the thread's own block, or (rank + 1) * SG_WINDOW + offset of
 * any block of its cluster. Blocks of a cluster run on one OS thread, by turns: kernels that look beyond their block are in
 * thread form.
 */
#define SG_WINDOW_BITS 24u
#define SG_WINDOW      (UINT64_C(1) << SG_WINDOW_BITS)
#define SG_CLUSTER_MAX 16u /* blocks */

/**
 * Memory of .local and .param variables. Where kernels are guarded (softgpu/guest.h) it is the kernels' own, for variables
 * whose addresses are used: functions take what they need from its top and give it back. Elsewhere it is the processor's stack.
 */
struct sg_local_stack {
    uint64_t top;       /* grows down; where kernels are guarded */
    uint64_t low, high; /* its bytes */
};

/** One CUDA thread in execution. */
struct sg_thread {
    uint32_t tid[3];
    uint32_t linear; /* tid.x + tid.y*ntid.x + tid.z*ntid.x*ntid.y */
    struct sg_block *block;
    void *engine;        /* exec's fiber in thread form; else NULL */
    uint32_t misaligned; /* not 0 after the end of the code: an access was not aligned */
};

enum sg_code_form { SG_CODE_BLOCK, SG_CODE_LOOPS, SG_CODE_THREAD };

typedef void (*sg_block_code)(struct sg_block *block, const unsigned char *params);
typedef void (*sg_thread_code)(struct sg_thread *thread, const unsigned char *params);

/* --- loop form --- */

#define SG_KEPT_MAX 8u

/** What the threads of a block in loop form keep while others run. */
struct sg_lanes {
    struct sg_block *block;
    /**
     * Arrays with an element for each thread: the words below, then the registers that live across points. The array
     * of what is at SG_LANES_… + 0 or 8 begins at that times `stride`. Aligned to 64 bytes.
     */
    unsigned char *context;
    unsigned char *local; /* memory of .local variables, thread after thread */
    uint64_t stride;      /* the threads of the block, rounded up to 32 */
    /**
     * The code's own: registers that grow evenly from thread to thread all over the block (bits) are not in their columns
     * but here, as the first thread's value.
     */
    uint64_t kept;
    uint64_t kept_first[SG_KEPT_MAX];
};
/* Bytes a thread in `context`: operands and results of the operation at the thread's point, and the point. */
#define SG_LANES_VALUE      0u  /* 32 bits; the lower half of 64 */
#define SG_LANES_VALUE_HIGH 4u  /* the upper half, of operations that have one */
#define SG_LANES_RESULT     8u  /* 32 bits */
#define SG_LANES_PREDICATE  12u /* 32 bits: 0 or 1 */
#define SG_LANES_A          16u
#define SG_LANES_B          20u
#define SG_LANES_MASK       24u
#define SG_LANES_POINT      28u /* 16 bits: where the thread is; SG_POINT_END */
#define SG_LANES_SIZE       32u /* registers come behind */

#define SG_POINT_END 0xffffu /* the thread has ended; other points have numbers from 1; at 0 it begins */

enum sg_point_kind {
    SG_POINT_BEGIN,
    SG_POINT_BARRIER,        /* a the barrier's number, b the count of threads or 0 */
    SG_POINT_BARRIER_ARRIVE, /* the same */
    SG_POINT_BARRIER_RED,    /* the same; mode as in sg_rt_barrier_red, the predicate is the value */
    SG_POINT_WARP_SYNC,      /* mask */
    SG_POINT_SHFL,           /* mode as in sg_rt_shfl; value, a lane or delta, b clamp and segments, mask */
    SG_POINT_VOTE,           /* mode as in sg_rt_vote; value, mask */
    SG_POINT_MATCH_ANY,      /* value of 64 bits, mask */
    SG_POINT_MATCH_ALL,      /* the same */
    SG_POINT_REDUX,          /* mode as in sg_rt_redux; value, mask */
    SG_POINT_ACTIVEMASK,
    SG_POINT_MATRIX, /* a the first of its operations, b their number */
    SG_POINT_PASS,   /* nothing is waited for: the threads go on side by side; mode: SG_PASS_TURN or 0 */
    SG_POINT_YIELD, /* goes on when the block's other threads have gone as far as they can; mode: SG_YIELD_UNLESS or 0 */
};
#define SG_PASS_TURN    1u /* it is the next turn of a loop */
#define SG_YIELD_UNLESS 1u /* at once if the value is not 0 */

/* Operands that are the same for all threads stand in the point and not in the context. */
#define SG_POINT_A    1u
#define SG_POINT_B    2u
#define SG_POINT_MASK 4u
/* A thread that comes there again, if it can, names the mask that it named before. */
#define SG_POINT_STEADY 8u

struct sg_point {
    uint8_t kind, mode, constant, unused;
    uint32_t a, b, mask;
};

/**
 * Runs threads [first, end), which all are at the region's point, until each is at another or has ended. Returns the point
 * that all of them have come to, or SG_POINT_END; 0: each thread's is in its context.
 */
typedef uint32_t (*sg_region_code)(struct sg_lanes *lanes, const unsigned char *params, uint32_t first,
                                   uint32_t end);

struct sg_loop_code {
    uint32_t n_points;
    uint32_t context_size; /* bytes a thread, a multiple of 8 */
    uint32_t local_size;   /* the same */
    uint32_t takes_turns;  /* not 0: there are points of SG_PASS_TURN */
    uint32_t yields;       /* not 0: there are points of SG_POINT_YIELD, so a block may wait for another */
    const struct sg_point *points; /* by number */
    const sg_region_code *regions;
    const struct sg_matrix_op *matrices;
};

enum sg_fault {
    SG_FAULT_NONE = 0,
    SG_FAULT_ILLEGAL_ADDRESS,     /* CUDA_ERROR_ILLEGAL_ADDRESS */
    SG_FAULT_MISALIGNED,          /* CUDA_ERROR_MISALIGNED_ADDRESS */
    SG_FAULT_ILLEGAL_INSTRUCTION, /* CUDA_ERROR_ILLEGAL_INSTRUCTION */
    SG_FAULT_TRAP,                /* trap: CUDA_ERROR_LAUNCH_FAILED */
    SG_FAULT_ASSERT,              /* CUDA_ERROR_ASSERT */
    SG_FAULT_STACK,               /* stack overflow: CUDA_ERROR_HARDWARE_STACK_ERROR */
    SG_FAULT_DEADLOCK,            /* every thread of the block waits: CUDA_ERROR_LAUNCH_TIMEOUT */
    SG_FAULT_INVALID_PC,          /* call through a bad function pointer: CUDA_ERROR_INVALID_PC */
    SG_FAULT_OUT_OF_RESOURCES,    /* no memory for stacks or shared: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES */
    SG_FAULT_ADDRESS_SPACE,       /* an atomic operation on .local memory: CUDA_ERROR_INVALID_ADDRESS_SPACE */
    SG_FAULT_TIMEOUT,             /* longer than SOFTGPU_TIMEOUT: CUDA_ERROR_LAUNCH_TIMEOUT */
};

/* --- what generated code may call ---------------------------------------------------------------------
 * Defined in softgpu/exec; the compiler resolves the names through sg_rt_symbols(). All take the thread first.
 * In block form only those without [switches] are used.
 */

/** Ends this thread; does not return. Thread form only. [switches] */
__attribute__((noreturn)) void sg_rt_exit(struct sg_thread *t);
/** Ends the launch with a fault; does not return (both forms). */
__attribute__((noreturn)) void sg_rt_fault(struct sg_thread *t, uint32_t fault);
/** Block form and loop form: a thread of the block has made an access that is not aligned. Does not return. */
__attribute__((noreturn)) void sg_rt_misaligned(struct sg_block *block);

/** The stack of the running fiber's variables, which is the same as long as a function runs. */
struct sg_local_stack *sg_rt_local_stack(void);

enum sg_access { SG_ACCESS_NONE, SG_ACCESS_READ, SG_ACCESS_WRITE, SG_ACCESS_ATOMIC };
/** An instruction of a watched kernel. Texts are not terminated by what they stand in: they are constants of the code. */
struct sg_site {
    const char *function, *text, *file; /* text: the instruction; file: NULL if the PTX names none */
    uint32_t line, ptx_line;
    uint32_t bytes;
    uint8_t align, access;
    uint8_t space; /* SG_SITE_… */
};
enum { SG_SITE_GENERIC, SG_SITE_SHARED, SG_SITE_GLOBAL, SG_SITE_LOCAL, SG_SITE_CONST, SG_SITE_PARAM };
/**
 * Watched kernels, before each access: remembers thread and place for a report, and faults if `address` is not aligned
 * or, in .shared, not within the block's memory. `site` lives as long as the code.
 */
void sg_rt_access(struct sg_thread *t, const void *address, const struct sg_site *site);

/** Lets other threads of the block run: in loops that wait on memory, and for nanosleep. [switches] */
void sg_rt_yield(struct sg_thread *t);
/**
 * After membar and fence: lets the threads that can run come as far. Programs rely on the lanes of a warp running
 * together: all lanes store, there is a fence, and one lane sets a flag for all. [switches]
 */
void sg_rt_fence(struct sg_thread *t);
/**
 * Before an access by which lanes of a warp that run together would give each other values: waits until no lane of the warp
 * is farther behind that can go on. `place`: the access's, in the order of the function. [switches]
 */
void sg_rt_pass(struct sg_thread *t, uint32_t place);

/** bar.sync / barrier.sync: barrier `id` (0..15) for `count` threads (0: all of the block). [switches] */
void sg_rt_barrier_sync(struct sg_thread *t, uint32_t id, uint32_t count);
/** bar.arrive: counts this thread as arrived and goes on. */
void sg_rt_barrier_arrive(struct sg_thread *t, uint32_t id, uint32_t count);
/** bar.red: op 0 popc, 1 and, 2 or, over `predicate` of the threads; returns the count or 0/1. [switches] */
uint32_t sg_rt_barrier_red(struct sg_thread *t, uint32_t id, uint32_t count, uint32_t op, uint32_t predicate);

/** barrier.cluster.arrive: counts this thread as arrived and goes on. */
void sg_rt_cluster_arrive(struct sg_thread *t);
/** barrier.cluster.wait: until all threads of the cluster that have not exited have arrived. [switches] */
void sg_rt_cluster_wait(struct sg_thread *t);

/** bar.warp.sync [switches] */
void sg_rt_warp_sync(struct sg_thread *t, uint32_t mask);
/**
 * activemask: the lanes of the warp that are at this call (by its return address) when no thread of the block can do
 * anything else. In block form the caller's lane alone. [switches]
 */
uint32_t sg_rt_activemask(struct sg_thread *t);
/**
 * shfl.sync; mode 0 up, 1 down, 2 bfly, 3 idx; b the lane or delta, c the packed clamp and segment mask as in PTX.
 * Returns the value in bits 0..31 and the predicate in bit 32. [switches]
 */
uint64_t sg_rt_shfl(struct sg_thread *t, uint32_t mode, uint32_t value, uint32_t b, uint32_t c,
                    uint32_t mask);
/** vote.sync; mode 0 all, 1 any, 2 uni, 3 ballot. [switches] */
uint32_t sg_rt_vote(struct sg_thread *t, uint32_t mode, uint32_t predicate, uint32_t mask);
/** match.any.sync (returns the mask); value of 32 or 64 bits. [switches] */
uint32_t sg_rt_match_any(struct sg_thread *t, uint64_t value, uint32_t mask);
/** match.all.sync: the mask in bits 0..31 (0 if not all equal), the predicate in bit 32. [switches] */
uint64_t sg_rt_match_all(struct sg_thread *t, uint64_t value, uint32_t mask);
/** redux.sync; op 0 add, 1 min.s32, 2 max.s32, 3 min.u32, 4 max.u32, 5 and, 6 or, 7 xor. [switches] */
uint32_t sg_rt_redux(struct sg_thread *t, uint32_t op, uint32_t value, uint32_t mask);

/* Matrices: matrix_abi.h has the kinds. */
/** A lane's registers, in the order in which the instruction has them; .f64 takes two words each. */
struct sg_matrix_fragments {
    uint32_t a[16], b[16];
    uint32_t c[16]; /* c and afterwards d; what is loaded, stored, transposed */
    uint32_t metadata, unused;
};
/**
 * An operation of all lanes of the warp that have not exited. `address` and `stride` (in elements) are those of loads
 * and stores. [switches]
 */
void sg_rt_matrix(struct sg_thread *t, uint64_t kind, void *address, uint32_t stride,
                  struct sg_matrix_fragments *fragments);

/** vprintf(format, argument buffer) as nvcc calls it; returns the number of arguments or -1. */
int32_t sg_rt_vprintf(struct sg_thread *t, const char *format, const void *arguments);
/** __assertfail */
__attribute__((noreturn)) void sg_rt_assertfail(struct sg_thread *t, const char *expression, const char *file,
                                                uint32_t line, const char *function, uint64_t char_size);
/** cudaGraphSetConditional: the value of a condition of graphs. */
void sg_rt_set_conditional(struct sg_thread *t, uint64_t handle, uint32_t value);

/**
 * A function of the device runtime (enum sg_device_call, device_calls.h): the addresses of its arguments, each as PTX
 * passes it; the result in as many low bits as its type has.
 */
uint64_t sg_rt_device_call(struct sg_thread *t, uint32_t call, const void *const *arguments);

/** Device-side malloc and free (the heap is limited by CU_LIMIT_MALLOC_HEAP_SIZE). */
void *sg_rt_malloc(struct sg_thread *t, uint64_t size);
void sg_rt_free(struct sg_thread *t, void *pointer);

/** clock, clock64, globaltimer: nanoseconds resp. counts at 1 GHz. */
uint64_t sg_rt_clock(struct sg_thread *t);
uint64_t sg_rt_globaltimer(struct sg_thread *t);

enum {
    SG_TENSOR_LOAD,
    SG_TENSOR_STORE,
    SG_TENSOR_ADD,
    SG_TENSOR_MIN,
    SG_TENSOR_MAX,
    SG_TENSOR_INC,
    SG_TENSOR_DEC,
    SG_TENSOR_AND,
    SG_TENSOR_OR,
    SG_TENSOR_XOR
};
/**
 * Copies the box of the tensor map (softgpu/tensor_map.h) that begins at `rank` coordinates to or from shared memory, or
 * reduces it into the tensor. Returns its size in bytes. A map that is not right is a fault.
 */
uint32_t sg_rt_tensor(struct sg_thread *t, uint32_t operation, uint32_t rank, const void *tensor_map,
                      void *shared, const int32_t *coordinates);

/* Textures and surfaces: the operation says what is fetched. Geometry and bounds, then by instruction. */
enum { SG_TEX_1D, SG_TEX_2D, SG_TEX_3D, SG_TEX_A1D, SG_TEX_A2D, SG_TEX_CUBE, SG_TEX_ACUBE };
#define SG_TEX_GEOMETRY         7u
#define SG_TEX_INTEGER          8u     /* tex: coordinates are integers: texels */
#define SG_TEX_GATHER           16u    /* tld4 */
#define SG_TEX_LEVEL            32u    /* tex: the level is word 4, of the type of coordinates */
#define SG_TEX_GRADIENT         64u    /* tex: gradients are words 4 to 7 (in x) and 8 to 11 (in y), floats */
#define SG_TEX_OFFSET           128u   /* words 12 to 14 are added to the texels' indices */
#define SG_TEX_COMPONENT_SHIFT  8      /* tld4: which channel */
#define SG_TEX_RESIDENT         0x400u /* for the compiler: there is a predicate; all is resident here */
#define SG_TEX_WORDS            16
#define SG_SURFACE_BOUND        0x60u
#define SG_SURFACE_TRAP         0u
#define SG_SURFACE_CLAMP        0x20u
#define SG_SURFACE_ZERO         0x40u
#define SG_SURFACE_SIGNED       0x80u /* sured */
#define SG_SURFACE_BYTES_SHIFT  8     /* bytes of the access */
#define SG_SURFACE_REDUCE_SHIFT 16
#define SG_SURFACE_FORMATTED    0x80000u /* sust.p: the first coordinate counts texels; words become channels */
enum { SG_REDUCE_ADD, SG_REDUCE_MIN, SG_REDUCE_MAX, SG_REDUCE_AND_BITS, SG_REDUCE_OR_BITS };
enum {
    SG_TXQ_WIDTH,
    SG_TXQ_HEIGHT,
    SG_TXQ_DEPTH,
    SG_TXQ_ARRAY_SIZE, /* layers, or cubes; 0 if there are none */
    SG_TXQ_LEVELS,     /* 0 if it is not mipmapped */
    SG_TXQ_NORMALISED,
    SG_TXQ_FILTER,    /* 0 nearest, 1 linear */
    SG_TXQ_ADDRESS_0, /* 0 wrap, 1 mirror, 3 clamp to the edge, 4 clamp to the border */
    SG_TXQ_ADDRESS_1,
    SG_TXQ_ADDRESS_2,
    SG_TXQ_NOTHING /* what no texture has here: 0 */
};
#define SG_TXQ_QUERY       0x3fu
#define SG_TXQ_SURFACE     0x40u
#define SG_TXQ_LEVEL_SHIFT 8 /* of which level; it may not exist */

/**
 * tex and tld4: coordinates are up to four words as PTX orders them (a layer first), and more as the operation says; the
 * result is four words: the bits of floats, or integers. A handle that names no texture is a fault. What is most
 * common goes by functions of the texture itself (softgpu/exec/texture/texture.h), which give the same.
 */
void sg_rt_tex(struct sg_thread *t, uint64_t texture, uint32_t operation, const uint32_t *coordinates,
               uint32_t *result);
/** suld.b, sust.b: bytes of the access; sust.p: of the words; sured.b. */
void sg_rt_suld(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                void *result);
void sg_rt_sust(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                const void *value);
void sg_rt_sured(struct sg_thread *t, uint64_t surface, uint32_t operation, const uint32_t *coordinates,
                 uint64_t value);
/** txq and suq. */
uint32_t sg_rt_txq(struct sg_thread *t, uint64_t handle, uint32_t query);

struct sg_rt_symbol {
    const char *name; /* "sg_rt_barrier_sync", … */
    void *address;
};
/** The table of all functions above, ended by a NULL name; the compiler links generated code against it. */
const struct sg_rt_symbol *sg_rt_symbols(void);

#endif
