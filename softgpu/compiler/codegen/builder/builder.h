/*
 * builder.h - what all emitters build on: the state of one kernel's code generation, LLVM values and types,
 * operands, addresses and checks of accesses. It knows no emitter; those of a group are in the group's
 * header.
 *
 * A PTX register is a stack slot of the LLVM type that suits it (integers of its width, float, double, i1, or
 * a pointer where analysis found addresses); LLVM turns slots into values. Packed and small floats are
 * integers in slots and become float only inside of operations.
 */
#ifndef SG_COMPILER_CODEGEN_BUILDER_BUILDER_H
#define SG_COMPILER_CODEGEN_BUILDER_BUILDER_H

#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/regions/divergence.h"
#include "softgpu/compiler/regions/regions.h"

#include <llvm-c/Core.h>

/** Of kernels in block form and in loop form: what their loops and the body in loop form have in common. */
struct sg_loop_state {
    struct sg_regions regions;     /* in block form only what the guards need */
    struct sg_point *points;       /* by number */
    struct sg_matrix_op *matrices; /* of all points */
    uint32_t n_matrices, matrices_capacity;
    LLVMValueRef dispatch; /* the switch at the body's start */
    LLVMValueRef context_memory, local, stride;

    struct sg_guards guards;          /* of a kernel in block form, if it has no divergence tree */
    struct sg_divergence *divergence; /* by point; of a kernel in block form that of its start */
    struct sg_tests tests;            /* what loops of the frame decide beforehand */
};

struct sg_codegen {
    struct sg_arena *arena;
    struct sg_ptx_module *module;
    const struct sg_reach *reach;
    const struct sg_shared_layout *shared;
    enum sg_code_form form;
    bool watched;  /* each access is told to the engine before it is made: for reports */
    bool has_half; /* the host converts between half and float itself */
    bool guarded;  /* what the kernel computes its address of is confined: jit/guard.h */

    /** Generates the instruction `insn`, without its guard: for what is computed anew. */
    void (*emit)(struct sg_codegen *gen);

    LLVMContextRef context;
    LLVMModuleRef llvm;
    LLVMBuilderRef builder;
    LLVMBuilderRef entry_builder; /* for values that are computed once, at the function's start */
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, pointer, nothing;
    LLVMTypeRef guest; /* a pointer that the kernel has computed: of an address space of its own if guarded */
    LLVMValueRef handle_table; /* code of the functions whose address is taken, in this kernel */
    LLVMValueRef access_group; /* metadata: accesses that do not depend on those of other threads */
    unsigned access_group_kind, invariant_kind;
    LLVMValueRef *functions; /* by place in reach */

    struct sg_loop_state loops; /* not of kernels in thread form */

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

/* --- value.c --- */

/** The LLVM type of a PTX type; floats that are smaller than .f32 are integers. */
LLVMTypeRef sg_gen_type(struct sg_codegen *gen, enum sg_type type);
LLVMTypeRef sg_gen_int(struct sg_codegen *gen, unsigned bits);
LLVMValueRef sg_gen_const(struct sg_codegen *gen, unsigned bits, uint64_t value);
/** Calls an intrinsic of LLVM. */
LLVMValueRef sg_gen_intrinsic(struct sg_codegen *gen, const char *name, LLVMTypeRef *overloads,
                              unsigned n_overloads, LLVMValueRef *arguments, unsigned count);
/** An intrinsic that is overloaded by the type of its first argument. */
LLVMValueRef sg_gen_math(struct sg_codegen *gen, const char *name, LLVMValueRef a, LLVMValueRef b,
                         LLVMValueRef c);
/** A pointer that the kernel has computed, confined (softgpu/guest.h) so that the engine may use it; else the value. */
LLVMValueRef sg_gen_confined(struct sg_codegen *gen, LLVMValueRef value);
/** Calls a function of the runtime or of math.h; declared on first use. Pointers of the kernel are confined. */
LLVMValueRef sg_gen_runtime(struct sg_codegen *gen, const char *name, LLVMTypeRef result,
                            LLVMValueRef *arguments, unsigned count);
LLVMValueRef sg_gen_compare(struct sg_codegen *gen, LLVMIntPredicate predicate, LLVMValueRef a,
                            LLVMValueRef b);
LLVMValueRef sg_gen_select(struct sg_codegen *gen, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no);
LLVMValueRef sg_gen_cast(struct sg_codegen *gen, LLVMValueRef value, LLVMTypeRef type);
/** Part number `i`, of `bits` bits, of an integer; and two integers of one type as one of twice its bits. */
LLVMValueRef sg_gen_part(struct sg_codegen *gen, LLVMValueRef packed, unsigned i, unsigned bits);
LLVMValueRef sg_gen_join(struct sg_codegen *gen, LLVMValueRef low, LLVMValueRef high);
/** An attribute of a function, of its result (LLVMAttributeReturnIndex) or of a parameter, from 1; `value` where it has one. */
void sg_gen_add_attribute(struct sg_codegen *gen, LLVMValueRef function, int place, const char *name,
                          uint64_t value);
/** What is loaded stays the same while the code runs. */
void sg_gen_set_invariant(struct sg_codegen *gen, LLVMValueRef load);
LLVMBasicBlockRef sg_gen_block(struct sg_codegen *gen, const char *name);
/** Fails; the log gets the message and the instruction in work. */
_Noreturn void sg_gen_fail(struct sg_codegen *gen, const char *message);
/** For opcodes that an emitter should know, and does not. */
_Noreturn void sg_gen_lacks(struct sg_codegen *gen);

/* --- operand.c --- */

/** The value of an operand, as the LLVM type of `type`. */
LLVMValueRef sg_gen_read(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type);
void sg_gen_write(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type,
                  LLVMValueRef value);
/** The host address that an address operand means in a state space. */
LLVMValueRef sg_gen_address(struct sg_codegen *gen, const struct sg_operand *operand, uint8_t space);
/** A pointer to what is known to be there as one that the kernel may compute with. */
LLVMValueRef sg_gen_as_guest(struct sg_codegen *gen, LLVMValueRef pointer);
/** The address of a variable as an integer, in its own space. */
LLVMValueRef sg_gen_variable_address(struct sg_codegen *gen, const struct sg_var *var, uint64_t offset);
/** The address of a function, as an integer: not code, see the indirect call. */
LLVMValueRef sg_gen_handle_address(struct sg_codegen *gen, uint32_t handle);
/**
 * The value, which was just computed as the result of the instruction in work, or as the product in it: if it
 * is known not to wrap (sg_bound_of_result), LLVM is told.
 */
LLVMValueRef sg_gen_unwrapped(struct sg_codegen *gen, LLVMValueRef value);
/**
 * Shorthand for operand `i` of the instruction in work: as its type 0, as .u32, or as a predicate in 32 bits.
 */
LLVMValueRef sg_gen_operand(struct sg_codegen *gen, uint32_t i);
LLVMValueRef sg_gen_operand_u32(struct sg_codegen *gen, uint32_t i);
LLVMValueRef sg_gen_operand_predicate(struct sg_codegen *gen, uint32_t i);
/** The instruction's type 0. */
static inline enum sg_type sg_gen_type_of(const struct sg_codegen *gen)
{
    return (enum sg_type)gen->insn->types[0];
}
/** Writes operand 0 of the instruction in work, as its type 0. */
void sg_gen_result(struct sg_codegen *gen, LLVMValueRef value);
/** mov, cvta: a pointer from one register to another, as a pointer; false: they are not both kept so. */
bool sg_gen_copy_pointer(struct sg_codegen *gen);
/** Is it a register that is kept as a pointer? */
bool sg_gen_is_pointer(const struct sg_codegen *gen, const struct sg_operand *operand);

/* --- special.c --- */

/** The value of a special register, here or, if it does not change, at the function's start. */
LLVMValueRef sg_gen_special(struct sg_codegen *gen, enum sg_special special, uint32_t component);
/** The thread's number in its block; made at the function's start. */
LLVMValueRef sg_gen_linear(struct sg_codegen *gen);
/** A pointer to the block's shared memory, and a field of struct sg_block, both at the function's start. */
LLVMValueRef sg_gen_shared_base(struct sg_codegen *gen);
LLVMValueRef sg_gen_block_field(struct sg_codegen *gen, size_t offset, LLVMTypeRef type);

/* --- window.c --- */

/** The space of the instruction's addresses for sg_gen_address: SG_MOD_… with SG_MOD_CLUSTER. */
uint8_t sg_gen_space(const struct sg_codegen *gen);
/** Where the shared memory of the thread's block, and that of the first block of its cluster, begins. */
LLVMValueRef sg_gen_shared_address(struct sg_codegen *gen);
LLVMValueRef sg_gen_cluster_base(struct sg_codegen *gen);
/** What a .shared::cluster address (of 64 bits) points to. */
LLVMValueRef sg_gen_cluster_pointer(struct sg_codegen *gen, LLVMValueRef address);
/** The place in the shared memory of block `rank` (of 64 bits) that `pointer` has in its block's. */
LLVMValueRef sg_gen_in_window(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef rank);
/** Whether an address is one of `size` bytes from `base` on. */
LLVMValueRef sg_gen_in_range(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef base,
                             LLVMValueRef size);
/** Whether a generic address (an integer) is one of the thread's own memory. */
LLVMValueRef sg_gen_in_local(struct sg_codegen *gen, LLVMValueRef address);
/** The address in .local or .const memory (SG_MOD_…) of which a program has taken the lower 32 bits alone. */
LLVMValueRef sg_gen_widened(struct sg_codegen *gen, LLVMValueRef half, uint8_t space);

/* --- access.c --- */

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

/* --- column.c: kernels in loop form --- */

/** Is the function in work the body of a kernel in loop form? */
bool sg_gen_in_loops(const struct sg_codegen *gen);
/** The thread's element of the column of the context that begins at `column` times the stride. */
LLVMValueRef sg_gen_column(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type);
LLVMValueRef sg_gen_load_column(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type);
void sg_gen_store_column(struct sg_codegen *gen, uint32_t column, LLVMValueRef value);
/** Memory of a .local variable. */
LLVMValueRef sg_gen_points_local(struct sg_codegen *gen, const struct sg_var *var);

/* --- slots.c --- */

/** Begins a function, with slots for its registers; returns the block to which the entry branches last. */
LLVMBasicBlockRef sg_gen_begin(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self);
/** Makes slots for the function's variables. */
void sg_gen_make_variables(struct sg_codegen *gen);
/** The same for a function of the frame's, which is inlined; with slots for variables, too. */
LLVMBasicBlockRef sg_gen_begin_helper(struct sg_codegen *gen, struct sg_ptx_function *kernel,
                                      const char *name);

#endif
