/*
 * codegen.h - internal to the code generator: one kernel, with the functions it reaches, to one LLVM module.
 *
 * A PTX register is a stack slot of the LLVM type that suits it (integers of its width, float, double, i1, or
 * a pointer where analysis found addresses); LLVM turns slots into values. Packed and small floats are
 * integers in slots and become float only inside of operations.
 */
#ifndef SG_COMPILER_CODEGEN_CODEGEN_H
#define SG_COMPILER_CODEGEN_CODEGEN_H

#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/regions/divergence.h"
#include "softgpu/compiler/regions/regions.h"

#include <llvm-c/Core.h>

struct sg_codegen {
    struct sg_arena *arena;
    struct sg_ptx_module *module;
    const struct sg_reach *reach;
    const struct sg_shared_layout *shared;
    enum sg_code_form form;
    bool watched;  /* each access is told to the engine before it is made: for reports */
    bool has_half; /* the host converts between half and float itself */

    LLVMContextRef context;
    LLVMModuleRef llvm;
    LLVMBuilderRef builder;
    LLVMBuilderRef entry_builder; /* for values that are computed once, at the function's start */
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, pointer, nothing;
    LLVMValueRef handle_table; /* code of the functions whose address is taken, in this kernel */
    LLVMValueRef access_group; /* metadata: accesses that do not depend on those of other threads */
    unsigned access_group_kind, invariant_kind;
    LLVMValueRef *functions; /* by place in reach */

    /* of a kernel in loop form, while its body is generated; points.c */
    struct sg_regions regions;     /* in block form only what the guards need */
    struct sg_point *points;       /* by number */
    struct sg_matrix_op *matrices; /* of all points */
    uint32_t n_matrices, matrices_capacity;
    LLVMValueRef dispatch; /* the switch at the body's start */
    LLVMValueRef context_memory, local, stride;

    struct sg_guards guards;          /* of a kernel in block form, if it has no divergence tree */
    struct sg_divergence *divergence; /* by point; of a kernel in block form that of its start */
    struct sg_tests tests;            /* what loops of the frame decide beforehand */

    /* of the function in work */
    struct sg_ptx_function *function;
    const struct sg_insn *insn;
    LLVMValueRef self, thread, params;
    LLVMValueRef *registers, *variables, *formals_in, *formals_out;
    LLVMBasicBlockRef *labels;
    LLVMValueRef carry;
    LLVMValueRef misaligned; /* the bits of addresses that should have been zero */
    const struct sg_low_bits *low_bits;
    const uint64_t *bounds; /* of registers */
    LLVMValueRef specials[40][4];
    LLVMValueRef block_pointer, shared_base, fragments;
};

/** Builds the module of a kernel; its code is the function `symbol`. NULL after an error in the log. */
LLVMModuleRef sg_generate(struct sg_codegen *gen, struct sg_ptx_function *kernel, const char *symbol);

/* function.c */
void sg_gen_function(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self);
/** The function that asks the guards of a kernel in block form. */
void sg_gen_guard_function(struct sg_codegen *gen, struct sg_ptx_function *kernel);
/**
 * Begins a function of the frame's that computes something for a thread as the kernel would; it is inlined.
 * Returns the block to which the entry has to branch in the end.
 */
LLVMBasicBlockRef sg_gen_begin_helper(struct sg_codegen *gen, struct sg_ptx_function *kernel,
                                      const char *name);
LLVMBasicBlockRef sg_gen_block(struct sg_codegen *gen, const char *name);
_Noreturn void sg_gen_fail(struct sg_codegen *gen, const char *message);

/** Generates the instruction gen->insn, without its guard. */
void sg_gen_instruction(struct sg_codegen *gen);
/** The kernel's thread ends. */
void sg_gen_end(struct sg_codegen *gen);
/** Loop form: puts a value into the thread's element of a column of the context. */
void sg_gen_store_column(struct sg_codegen *gen, uint32_t column, LLVMValueRef value);
/**
 * Loop form, at the first of a run of instructions on matrices: appends what the engine has to do to
 * `matrices`.
 */
void sg_gen_matrix_run(struct sg_codegen *gen);
/** Is the function in work the body of a kernel in loop form? */
bool sg_gen_in_loops(const struct sg_codegen *gen);

/* points.c: the parts of a body in loop form */
/** After the function's slots have been made: leaves the builder where a thread begins. */
void sg_gen_points_begin(struct sg_codegen *gen);
/** Computes anew whether a guard sends the thread to its end. */
LLVMValueRef sg_gen_guards(struct sg_codegen *gen);
/** Computes a register anew, if it can be; `done`: by instruction, what has been. */
void sg_gen_rematerialise(struct sg_codegen *gen, uint8_t *done, uint32_t reg);
/** Loads the registers that are even behind a point. */
void sg_gen_load_affine(struct sg_codegen *gen, uint32_t point);
/** Memory of a .local variable. */
LLVMValueRef sg_gen_points_local(struct sg_codegen *gen, const struct sg_var *var);

/* frame.c: the loops over a block's threads around a body */
#define SG_GEN_BODY       "sg.body"
#define SG_GEN_GUARD      "sg.guard"
#define SG_GEN_DIVERGENCE "sg.divergence"
/** Makes gen->llvm with the loops of block form or loop form; false after an error in the log. */
bool sg_gen_frame(struct sg_codegen *gen, const char *symbol);
/** Defines `symbol` as the sg_loop_code of a kernel in loop form; after its body. */
void sg_gen_loop_code(struct sg_codegen *gen, const char *symbol);

/* divergence.c */
/** The function that tells how the threads part that begin at a point, if that is known. */
void sg_gen_divergence_function(struct sg_codegen *gen, struct sg_ptx_function *kernel, uint32_t point);

/* value.c */
LLVMTypeRef sg_gen_type(struct sg_codegen *gen, enum sg_type type);
LLVMTypeRef sg_gen_int(struct sg_codegen *gen, unsigned bits);
LLVMValueRef sg_gen_const(struct sg_codegen *gen, unsigned bits, uint64_t value);
/** The value of an operand, as the LLVM type of `type`. */
LLVMValueRef sg_gen_read(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type);
void sg_gen_write(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type,
                  LLVMValueRef value);
/** The host address that an address operand means in a state space. */
LLVMValueRef sg_gen_address(struct sg_codegen *gen, const struct sg_operand *operand, uint8_t space);
/** The address of a variable as an integer, in its own space. */
LLVMValueRef sg_gen_variable_address(struct sg_codegen *gen, const struct sg_var *var, uint64_t offset);
/** The address of a function, as an integer: not code, see the indirect call. */
LLVMValueRef sg_gen_handle_address(struct sg_codegen *gen, uint32_t handle);
LLVMValueRef sg_gen_intrinsic(struct sg_codegen *gen, const char *name, LLVMTypeRef *overloads,
                              unsigned n_overloads, LLVMValueRef *arguments, unsigned count);
/** An intrinsic that is overloaded by the type of its first argument. */
LLVMValueRef sg_gen_math(struct sg_codegen *gen, const char *name, LLVMValueRef a, LLVMValueRef b,
                         LLVMValueRef c);
/** Calls a function of the runtime or of math.h; declared on first use. */
LLVMValueRef sg_gen_runtime(struct sg_codegen *gen, const char *name, LLVMTypeRef result,
                            LLVMValueRef *arguments, unsigned count);
LLVMValueRef sg_gen_compare(struct sg_codegen *gen, LLVMIntPredicate predicate, LLVMValueRef a,
                            LLVMValueRef b);
LLVMValueRef sg_gen_select(struct sg_codegen *gen, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no);
LLVMValueRef sg_gen_cast(struct sg_codegen *gen, LLVMValueRef value, LLVMTypeRef type);
/**
 * The value, which was just computed as the result of the instruction in work, or as the product in it: if it
 * is known not to wrap (sg_bound_of_result), LLVM is told.
 */
LLVMValueRef sg_gen_unwrapped(struct sg_codegen *gen, LLVMValueRef value);
/** Part number `i`, of `bits` bits, of an integer; and two integers of one type as one of twice its bits. */
LLVMValueRef sg_gen_part(struct sg_codegen *gen, LLVMValueRef packed, unsigned i, unsigned bits);
LLVMValueRef sg_gen_join(struct sg_codegen *gen, LLVMValueRef low, LLVMValueRef high);

/** Shorthand for operand `i` of the instruction in work as its type 0. */
LLVMValueRef sg_gen_operand(struct sg_codegen *gen, uint32_t i);
void sg_gen_result(struct sg_codegen *gen, LLVMValueRef value);

/* access.c */
/**
 * To be called before an access of `bytes` (aligned to its size, 32 at most) at `address`, which the operand
 * means in a state space (SG_MOD_… or 0).
 */
void sg_gen_access(struct sg_codegen *gen, const struct sg_operand *operand, LLVMValueRef address,
                   uint8_t space, uint32_t bytes, enum sg_access access);
/** Ends the launch with a fault; the builder is left behind an unreachable end. */
void sg_gen_fault(struct sg_codegen *gen, enum sg_fault kind);
/** Tells the engine where a watched kernel is, before what may fault without an access. */
void sg_gen_place(struct sg_codegen *gen);
/** Passes what the function knows of misaligned accesses on to the thread; before it returns. */
void sg_gen_report_misaligned(struct sg_codegen *gen);

/* special.c */
LLVMValueRef sg_gen_special(struct sg_codegen *gen, enum sg_special special, uint32_t component);
/** The thread's number in its block; made at the function's start. */
LLVMValueRef sg_gen_linear(struct sg_codegen *gen);
LLVMValueRef sg_gen_block_pointer(struct sg_codegen *gen);
LLVMValueRef sg_gen_shared_base(struct sg_codegen *gen);
LLVMValueRef sg_gen_block_field(struct sg_codegen *gen, size_t offset, LLVMTypeRef type);

/* Families; false if the instruction is none of theirs. */
bool sg_gen_integer(struct sg_codegen *gen);    /* integer.c */
bool sg_gen_bits(struct sg_codegen *gen);       /* bits.c */
bool sg_gen_float(struct sg_codegen *gen);      /* float.c */
bool sg_gen_comparison(struct sg_codegen *gen); /* compare.c */
bool sg_gen_convert(struct sg_codegen *gen);    /* convert.c */
/** A float, but not beyond the greatest number of .f16 or .bf16. */
LLVMValueRef sg_gen_clamp_finite(struct sg_codegen *gen, LLVMValueRef value, enum sg_type to);
void sg_gen_convert_pair(struct sg_codegen *gen); /* narrow.c */
bool sg_gen_memory(struct sg_codegen *gen);       /* memory.c */
bool sg_gen_spaces(struct sg_codegen *gen);       /* spaces.c */
bool sg_gen_copy(struct sg_codegen *gen);         /* copy.c */
/** Runs `turn` once for each block of the cluster (`rank` of 64 bits) that is in the mask (of 64 bits). */
void sg_gen_for_blocks(struct sg_codegen *gen, LLVMValueRef mask,
                       void (*turn)(struct sg_codegen *gen, LLVMValueRef rank, void *user), void *user);
/** Tells the mbarrier that `pointer` points to that bytes (of 32 bits) have come; mbarrier.c. */
void sg_gen_complete_bytes(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef bytes);

/* spaces.c */
/** The space of the instruction's addresses for sg_gen_address: SG_MOD_… with SG_MOD_CLUSTER. */
uint8_t sg_gen_space(const struct sg_codegen *gen);
/** Whether a generic address (an integer) is one of the thread's own memory. */
LLVMValueRef sg_gen_in_local(struct sg_codegen *gen, LLVMValueRef address);
/** What a .shared::cluster address (of 64 bits) points to. */
LLVMValueRef sg_gen_cluster_pointer(struct sg_codegen *gen, LLVMValueRef address);
/** The place in the shared memory of block `rank` (of 64 bits) that `pointer` has in its block's. */
LLVMValueRef sg_gen_in_window(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef rank);
bool sg_gen_atomic(struct sg_codegen *gen); /* atomic.c */
/** The instruction's operation (.add, .min …) in its type, by one thread, on what `address` points to. */
void sg_gen_reduce(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef value);
bool sg_gen_control(struct sg_codegen *gen); /* control.c */
bool sg_gen_threads(struct sg_codegen *gen); /* threads.c */
/** The operation of a redux.sync as the engine knows it. */
uint32_t sg_gen_redux(const struct sg_codegen *gen);
/** Its operand and its result as the engine's integers. */
LLVMValueRef sg_gen_redux_operand(struct sg_codegen *gen);
LLVMValueRef sg_gen_redux_result(struct sg_codegen *gen, LLVMValueRef key);
bool sg_gen_points(struct sg_codegen *gen);   /* points.c */
bool sg_gen_mbarrier(struct sg_codegen *gen); /* mbarrier.c */
/** Whether the phase that a test or wait asks for is complete; mbarrier.c. */
LLVMValueRef sg_gen_mbarrier_test(struct sg_codegen *gen);
bool sg_gen_mma(struct sg_codegen *gen);     /* mma.c */
bool sg_gen_video(struct sg_codegen *gen);   /* video.c */
bool sg_gen_tensor(struct sg_codegen *gen);  /* tensor.c */
bool sg_gen_texture(struct sg_codegen *gen); /* texture.c */

/* round.c: pieces of floating-point arithmetic that families share */
LLVMValueRef sg_gen_flush(struct sg_codegen *gen, LLVMValueRef value);
LLVMValueRef sg_gen_saturate(struct sg_codegen *gen, LLVMValueRef value);
LLVMValueRef sg_gen_relu(struct sg_codegen *gen, LLVMValueRef value);
/** p + c, exact, rounded to float in the given direction. */
LLVMValueRef sg_gen_round_sum(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c, uint8_t round);
/** A double to float in the given direction. */
LLVMValueRef sg_gen_round_f32(struct sg_codegen *gen, LLVMValueRef value, uint8_t round);
/** p + c rounded to double so that a later rounding to a much narrower type is the only one that counts. */
LLVMValueRef sg_gen_sum_to_odd(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c);
LLVMValueRef sg_gen_half_to_f32(struct sg_codegen *gen, LLVMValueRef bits);
LLVMValueRef sg_gen_f32_to_half(struct sg_codegen *gen, LLVMValueRef value, uint8_t round);
LLVMValueRef sg_gen_bf16_to_f32(struct sg_codegen *gen, LLVMValueRef bits);
LLVMValueRef sg_gen_f32_to_bf16(struct sg_codegen *gen, LLVMValueRef value, uint8_t round);
/** Round to odd: what a second rounding does is then right. */
LLVMValueRef sg_gen_f64_to_f32_odd(struct sg_codegen *gen, LLVMValueRef value);
/** Either of the small formats, by type (f16 or bf16). */
LLVMValueRef sg_gen_small_to_f32(struct sg_codegen *gen, enum sg_type type, LLVMValueRef bits);
LLVMValueRef sg_gen_f32_to_small(struct sg_codegen *gen, enum sg_type type, LLVMValueRef value,
                                 uint8_t round);

/* approx.c: the approximate functions of float */
LLVMValueRef sg_gen_ex2(struct sg_codegen *gen, LLVMValueRef x);
LLVMValueRef sg_gen_lg2(struct sg_codegen *gen, LLVMValueRef x);
LLVMValueRef sg_gen_sine(struct sg_codegen *gen, LLVMValueRef x, bool cosine);
LLVMValueRef sg_gen_tanh(struct sg_codegen *gen, LLVMValueRef x);

/* memory.c */
LLVMAtomicOrdering sg_gen_ordering(struct sg_codegen *gen, bool load, bool store);
void sg_gen_mark_parallel(struct sg_codegen *gen, LLVMValueRef access, uint8_t space);
/**
 * mov, cvta: a pointer from one register to another, without the way through an integer; false: they are not
 * both kept so.
 */
bool sg_gen_copy_pointer(struct sg_codegen *gen);

#endif
