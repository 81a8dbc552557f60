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

/* Guarded, it is known where the thread's own memory is: never on the processor's stack. */
static LLVMValueRef in_local_stack(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef stack = sg_gen_runtime(gen, "sg_rt_local_stack", gen->pointer, NULL, 0), bounds[2];
    size_t offsets[2] = {offsetof(struct sg_local_stack, low), offsetof(struct sg_local_stack, high)};
    for (int i = 0; i < 2; i++) {
        LLVMValueRef offset = sg_gen_const(gen, 64, offsets[i]);
        bounds[i] = LLVMBuildLoad2(B, gen->i64, LLVMBuildGEP2(B, gen->i8, stack, &offset, 1, ""), "");
    }
    LLVMValueRef inside = sg_gen_in_range(gen, address, bounds[0], LLVMBuildSub(B, bounds[1], bounds[0], ""));
    if (gen->form != SG_CODE_LOOPS)
        return inside;
    LLVMValueRef base = sg_gen_block_field(gen, offsetof(struct sg_block, local), gen->i64);
    LLVMValueRef size = sg_gen_block_field(gen, offsetof(struct sg_block, local_size), gen->i64);
    return LLVMBuildOr(B, inside, sg_gen_in_range(gen, address, base, size), "");
}

/*
 * The stack is what lies near this frame: fibers have less than this, and nothing else is mapped
 * around them. In loop form the kernel's own variables lie in memory of the engine.
 */
LLVMValueRef sg_gen_in_local(struct sg_codegen *gen, LLVMValueRef address)
{
    if (gen->guarded)
        return in_local_stack(gen, address);
    LLVMValueRef level = sg_gen_const(gen, 32, 0);
    LLVMValueRef frame = sg_gen_intrinsic(gen, "llvm.frameaddress", &gen->pointer, 1, &level, 1);
    frame = LLVMBuildPtrToInt(B, frame, gen->i64, "");
    frame = LLVMBuildSub(B, frame, sg_gen_const(gen, 64, 65536), "");
    LLVMValueRef on_stack = sg_gen_in_range(gen, address, frame, sg_gen_const(gen, 64, 131072));
    if (gen->form != SG_CODE_LOOPS)
        return on_stack;
    LLVMValueRef base = sg_gen_block_field(gen, offsetof(struct sg_block, local), gen->i64);
    LLVMValueRef size = sg_gen_block_field(gen, offsetof(struct sg_block, local_size), gen->i64);
    return LLVMBuildOr(B, on_stack, sg_gen_in_range(gen, address, base, size), "");
}
