/*
 * analysis.h - what is known of functions and kernels before code is generated: who calls whom, who waits for
 * other threads, where shared variables lie, which registers hold pointers.
 */
#ifndef SG_COMPILER_ANALYSIS_ANALYSIS_H
#define SG_COMPILER_ANALYSIS_ANALYSIS_H

#include "softgpu/compiler/ir/ir.h"
#include "softgpu/device_calls.h"

/** The functions that a kernel may reach, the kernel first. */
struct sg_reach {
    struct sg_ptx_function **functions;
    uint32_t count, capacity;
    bool indirect;    /* one of them calls through a pointer: all functions whose address is taken are in */
    bool thread_form; /* a thread may wait for another, or ends in a callee */
    bool cooperative;
    bool clustered; /* one of them looks beyond its block: kernel_abi.h */
    bool prints;    /* one of them calls vprintf */
    bool allocates; /* one of them calls malloc or free */
    bool has_local; /* one of them has memory of its own that generic addresses may point to */
};

/** Bytes of shared memory for %reserved_smem_offset_…, in kernels that read it. */
#define SG_SHARED_RESERVED 1024
/** Bytes of shared variables that a kernel can have; beyond, ptxas refuses it: what is larger is dynamic. */
#define SG_SHARED_STATIC_MAX (48u << 10)

/** A shared variable's place in one kernel. */
struct sg_shared_place {
    const struct sg_var *var;
    uint32_t offset;
};
struct sg_shared_layout {
    struct sg_shared_place *places;
    uint32_t count, capacity;
    uint32_t reserved; /* offset of the part that CUDA's own device code asks for, if any does */
    uint32_t used;     /* bytes of variables */
    uint32_t size;     /* static bytes; dynamic memory starts here */
};

/** Facts of single functions: once a module, before all else. */
void sg_analyse_module(struct sg_arena *arena, struct sg_ptx_module *module);
void sg_reach_compute(struct sg_arena *arena, struct sg_ptx_module *module, struct sg_ptx_function *kernel,
                      struct sg_reach *reach);
/** Lays out the shared variables; fails if they are too many. */
void sg_shared_compute(struct sg_arena *arena, const struct sg_reach *reach, struct sg_shared_layout *layout);
uint32_t sg_shared_offset(const struct sg_shared_layout *layout, const struct sg_var *var);
/**
 * An instruction that is not known ("ptx:LINE: …") in the kernel or in a function that it calls by name, and those by theirs; NULL:
 * there is none. What is called through pointers may never be: it traps when it is.
 */
const char *sg_reach_unknown(struct sg_arena *arena, struct sg_ptx_module *module,
                             struct sg_ptx_function *kernel);
/**
 * Fails if the kernel needs a function or variable that is defined nowhere. Functions of CUDA's device
 * runtime that are lacking here count only if `runtime_too`: kernels that call them fail by themselves, not
 * with all of their module.
 */
void sg_check_resolved(struct sg_diagnostics *diagnostics, const struct sg_reach *reach, bool runtime_too);
/** Is it a parameter of the function itself, and none of a call's that the function makes? */
static inline bool sg_is_own_param(const struct sg_ptx_function *function, const struct sg_operand *operand)
{
    return operand->kind == SG_OPERAND_VAR && operand->var->space == SG_SPACE_PARAM &&
           operand->var >= function->params && operand->var < function->params + function->n_params;
}
/** Finds the functions that look at what others write; before sg_analyse_loops. */
void sg_analyse_watchers(struct sg_ptx_module *module);
/** Marks the back edges of loops that may wait for other threads. */
void sg_analyse_loops(struct sg_arena *arena, const struct sg_ptx_module *module,
                      struct sg_ptx_function *function);
/** What is known of a register at all times: its value is base + offset modulo 2^bits (at most 4 bits). */
struct sg_low_bits {
    uint32_t base; /* the instruction that loads a parameter of the kernel, or UINT32_MAX: none */
    uint8_t offset, bits;
    bool written; /* false: nothing writes it */
};
/** One entry a register of the function. */
struct sg_low_bits *sg_analyse_alignment(struct sg_arena *arena, const struct sg_ptx_function *function);
/**
 * The largest number, without sign, that a register ever holds; UINT64_MAX: not known. One entry a register.
 */
uint64_t *sg_analyse_bounds(struct sg_arena *arena, const struct sg_ptx_function *function);
/** Of an operand that is taken as `type`; UINT64_MAX if it may be negative as such, or is not known. */
uint64_t sg_bound_of_operand(const uint64_t *bounds, const struct sg_operand *operand, enum sg_type type);
/** Of what an instruction computes, whether or not its type can hold it: if it can, nothing wraps. */
uint64_t sg_bound_of_result(const uint64_t *bounds, const struct sg_insn *insn);

/** Marks the registers that are best kept as pointers. */
void sg_analyse_pointers(struct sg_arena *arena, struct sg_ptx_function *function);

/** Functions that the runtime provides under their CUDA names. */
enum sg_builtin {
    SG_BUILTIN_NONE,
    SG_BUILTIN_VPRINTF,
    SG_BUILTIN_ASSERTFAIL,
    SG_BUILTIN_MALLOC,
    SG_BUILTIN_FREE,
    SG_BUILTIN_SET_CONDITIONAL,
    SG_BUILTIN_DEVICE_CALL /* of the device runtime: sg_device_call_find tells which */
};
enum sg_builtin sg_builtin_find(const struct sg_ptx_function *function);
/**
 * Which of the functions that the engine serves this one is; else SG_CALL_COUNT. Those of nvcc's library are
 * served even where the library is linked in: what it defines are calls of NVIDIA's system for devices.
 */
enum sg_device_call sg_device_call_find(const struct sg_ptx_function *function);

#endif
