/*
 * window.c - where shared memory is in the host's address space: the window of each block of a cluster (see
 * SG_WINDOW), and what counts as a thread's own memory.
 */
#include "softgpu/compiler/codegen/builder/builder.h"

#define B gen->builder

uint8_t sg_gen_space(const struct sg_codegen *gen)
{
    return SG_MOD(gen->insn, SG_GROUP_CLUSTER_WINDOW) != 0 ? SG_MOD_CLUSTER
                                                           : SG_MOD(gen->insn, SG_GROUP_SPACE);
}

static LLVMValueRef wide_const(struct sg_codegen *gen, uint64_t value)
{
    return sg_gen_const(gen, 64, value);
}

LLVMValueRef sg_gen_shared_address(struct sg_codegen *gen)
{
    return LLVMBuildPtrToInt(B, sg_gen_shared_base(gen), gen->i64, "");
}

/* Where the shared memory of the cluster's first block begins. */
LLVMValueRef sg_gen_cluster_base(struct sg_codegen *gen)
{
    return sg_gen_block_field(gen, offsetof(struct sg_block, cluster_shared), gen->i64);
}

LLVMValueRef sg_gen_cluster_pointer(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef own = sg_gen_compare(gen, LLVMIntULT, address, wide_const(gen, SG_WINDOW));
    LLVMValueRef first = LLVMBuildSub(B, sg_gen_cluster_base(gen), wide_const(gen, SG_WINDOW), "");
    LLVMValueRef base = sg_gen_select(gen, own, sg_gen_shared_address(gen), first);
    return LLVMBuildIntToPtr(B, LLVMBuildAdd(B, base, address, ""), gen->guest, "");
}

LLVMValueRef sg_gen_in_window(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef rank)
{
    LLVMValueRef distance =
        LLVMBuildSub(B, LLVMBuildPtrToInt(B, pointer, gen->i64, ""), sg_gen_cluster_base(gen), "");
    LLVMValueRef window = LLVMBuildShl(B, rank, wide_const(gen, SG_WINDOW_BITS), "");
    LLVMValueRef address = LLVMBuildAdd(B, LLVMBuildAdd(B, sg_gen_cluster_base(gen), window, ""),
                                        LLVMBuildAnd(B, distance, wide_const(gen, SG_WINDOW - 1), ""), "");
    return LLVMBuildIntToPtr(B, address, gen->guest, "");
}

LLVMValueRef sg_gen_in_range(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef base,
                             LLVMValueRef size)
{
    return sg_gen_compare(gen, LLVMIntULT, LLVMBuildSub(B, address, base, ""), size);
}

/* Where the stack of the thread's own variables begins, and its size. */
static LLVMValueRef local_stack(struct sg_codegen *gen, LLVMValueRef *size)
{
    LLVMValueRef stack = sg_gen_runtime(gen, "sg_rt_local_stack", gen->pointer, NULL, 0), bounds[2];
    size_t offsets[2] = {offsetof(struct sg_local_stack, low), offsetof(struct sg_local_stack, high)};
    for (int i = 0; i < 2; i++) {
        LLVMValueRef offset = wide_const(gen, offsets[i]);
        bounds[i] = LLVMBuildLoad2(B, gen->i64, LLVMBuildGEP2(B, gen->i8, stack, &offset, 1, ""), "");
    }
    *size = LLVMBuildSub(B, bounds[1], bounds[0], "");
    return bounds[0];
}

/* In loop form the kernel's own variables lie in memory of the engine. */
LLVMValueRef sg_gen_in_local(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef size, low = local_stack(gen, &size);
    LLVMValueRef on_stack = sg_gen_in_range(gen, address, low, size);
    if (gen->form != SG_CODE_LOOPS)
        return on_stack;
    LLVMValueRef base = sg_gen_block_field(gen, offsetof(struct sg_block, local), gen->i64);
    size = sg_gen_block_field(gen, offsetof(struct sg_block, local_size), gen->i64);
    return LLVMBuildOr(B, on_stack, sg_gen_in_range(gen, address, base, size), "");
}

/* The address whose lower half is `half` that is the next one from `base` on. */
static LLVMValueRef next_from(struct sg_codegen *gen, LLVMValueRef base, LLVMValueRef half,
                              LLVMValueRef *distance)
{
    *distance = LLVMBuildSub(B, half, LLVMBuildTrunc(B, base, gen->i32, ""), "");
    *distance = LLVMBuildZExt(B, *distance, gen->i64, "");
    return LLVMBuildAdd(B, base, *distance, "");
}

static LLVMValueRef widened_const(struct sg_codegen *gen, LLVMValueRef half)
{
    const struct sg_var *first = NULL; /* the module's are allocated together */
    for (uint32_t i = 0; i < gen->module->n_vars && first == NULL; i++)
        if (gen->module->vars[i]->space == SG_SPACE_CONST)
            first = gen->module->vars[i];
    if (first == NULL)
        return LLVMBuildZExt(B, half, gen->i64, "");
    LLVMValueRef anchor = sg_gen_variable_address(gen, first, 0);
    LLVMValueRef distance = LLVMBuildSub(B, half, LLVMBuildTrunc(B, anchor, gen->i32, ""), "");
    return LLVMBuildAdd(B, anchor, LLVMBuildSExt(B, distance, gen->i64, ""), "");
}

LLVMValueRef sg_gen_widened(struct sg_codegen *gen, LLVMValueRef half, uint8_t space)
{
    if (space == SG_MOD_CONST)
        return widened_const(gen, half);
    LLVMValueRef size, low = local_stack(gen, &size), distance;
    LLVMValueRef on_stack = next_from(gen, low, half, &distance);
    if (gen->form != SG_CODE_LOOPS)
        return on_stack;
    LLVMValueRef is_there = sg_gen_compare(gen, LLVMIntULT, distance, size);
    LLVMValueRef base = sg_gen_block_field(gen, offsetof(struct sg_block, local), gen->i64);
    return sg_gen_select(gen, is_there, on_stack, next_from(gen, base, half, &distance));
}
