/*
 * warp.c - what threads do together: barriers, shuffles, votes. All of it is calls of the engine, but for
 * kernels in loop form, which see points.c.
 */
#include "softgpu/compiler/codegen/threads/threads.h"

#define B gen->builder

static LLVMValueRef is_nonzero(struct sg_codegen *gen, LLVMValueRef value)
{
    return sg_gen_compare(gen, LLVMIntNE, value, LLVMConstNull(LLVMTypeOf(value)));
}

static void barrier(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t kind = SG_MOD(insn, SG_GROUP_BAR);
    LLVMValueRef zero = sg_gen_const(gen, 32, 0);
    if (kind != SG_BAR_RED) {
        LLVMValueRef arguments[3] = {gen->thread, sg_gen_operand_u32(gen, 0),
                                     insn->n_operands > 1 ? sg_gen_operand_u32(gen, 1) : zero};
        const char *name = kind == SG_BAR_SYNC ? "sg_rt_barrier_sync" : "sg_rt_barrier_arrive";
        sg_gen_runtime(gen, name, gen->nothing, arguments, 3);
        return;
    }
    bool counted = insn->n_operands == 4;
    LLVMValueRef arguments[5] = {gen->thread, sg_gen_operand_u32(gen, 1),
                                 counted ? sg_gen_operand_u32(gen, 2) : zero,
                                 sg_gen_const(gen, 32, SG_MOD(insn, SG_GROUP_REDUCE) - 1u),
                                 sg_gen_operand_predicate(gen, counted ? 3 : 2)};
    LLVMValueRef value = sg_gen_runtime(gen, "sg_rt_barrier_red", gen->i32, arguments, 5);
    if (insn->types[0] == SG_PRED)
        value = is_nonzero(gen, value);
    sg_gen_result(gen, value);
}

/* A value in the low word and a predicate in bit 32 of what the engine returns. */
static void unpack(struct sg_codegen *gen, LLVMValueRef both)
{
    const struct sg_insn *insn = gen->insn;
    sg_gen_write(gen, &insn->operands[0], SG_B32, LLVMBuildTrunc(B, both, gen->i32, ""));
    LLVMValueRef high = LLVMBuildLShr(B, both, sg_gen_const(gen, 64, 32), "");
    sg_gen_write(gen, &insn->operands[insn->n_operands], SG_PRED, LLVMBuildTrunc(B, high, gen->i1, ""));
}

static void shuffle(struct sg_codegen *gen)
{
    LLVMValueRef arguments[6] = {gen->thread,
                                 sg_gen_const(gen, 32, SG_MOD(gen->insn, SG_GROUP_SHFL) - 1u),
                                 sg_gen_operand(gen, 1),
                                 sg_gen_operand_u32(gen, 2),
                                 sg_gen_operand_u32(gen, 3),
                                 sg_gen_operand_u32(gen, 4)};
    unpack(gen, sg_gen_runtime(gen, "sg_rt_shfl", gen->i64, arguments, 6));
}

static void vote(struct sg_codegen *gen)
{
    uint8_t mode = SG_MOD(gen->insn, SG_GROUP_VOTE);
    LLVMValueRef arguments[4] = {gen->thread, sg_gen_const(gen, 32, mode - 1u),
                                 sg_gen_operand_predicate(gen, 1), sg_gen_operand_u32(gen, 2)};
    LLVMValueRef value = sg_gen_runtime(gen, "sg_rt_vote", gen->i32, arguments, 4);
    sg_gen_result(gen, mode == SG_VOTE_BALLOT ? value : is_nonzero(gen, value));
}

static void match(struct sg_codegen *gen)
{
    LLVMValueRef value = sg_gen_operand(gen, 1);
    if (LLVMTypeOf(value) != gen->i64)
        value = LLVMBuildZExt(B, value, gen->i64, "");
    LLVMValueRef arguments[3] = {gen->thread, value, sg_gen_operand_u32(gen, 2)};
    if (SG_MOD(gen->insn, SG_GROUP_MATCH) == SG_MATCH_ALL)
        unpack(gen, sg_gen_runtime(gen, "sg_rt_match_all", gen->i64, arguments, 3));
    else
        sg_gen_write(gen, &gen->insn->operands[0], SG_B32,
                     sg_gen_runtime(gen, "sg_rt_match_any", gen->i32, arguments, 3));
}

uint32_t sg_gen_redux(const struct sg_codegen *gen)
{
    bool is_signed = sg_type_is_signed(sg_gen_type_of(gen));
    switch (SG_MOD(gen->insn, SG_GROUP_REDUX)) {
    case SG_REDUX_ADD:
        return 0;
    case SG_REDUX_MIN:
        return is_signed ? 1 : 3;
    case SG_REDUX_MAX:
        return is_signed ? 2 : 4;
    case SG_REDUX_AND:
        return 5;
    case SG_REDUX_OR:
        return 6;
    default:
        return 7;
    }
}

/*
 * Numbers of float are compared as integers of the same order. A NaN is one of the ends of that order: the
 * one that loses, or with .NaN the one that wins.
 */
LLVMValueRef sg_gen_redux_operand(struct sg_codegen *gen)
{
    LLVMValueRef value = sg_gen_operand(gen, 1);
    if (gen->insn->types[0] != SG_F32)
        return value;
    if (SG_MOD(gen->insn, SG_GROUP_ABS) != 0)
        value = sg_gen_math(gen, "llvm.fabs", value, NULL, NULL);
    bool min = SG_MOD(gen->insn, SG_GROUP_REDUX) == SG_REDUX_MIN, wins = SG_MOD(gen->insn, SG_GROUP_NAN) != 0;
    LLVMValueRef bits = sg_gen_cast(gen, value, gen->i32), top = sg_gen_const(gen, 32, 0x80000000u);
    LLVMValueRef negative = sg_gen_compare(gen, LLVMIntSLT, bits, sg_gen_const(gen, 32, 0));
    LLVMValueRef key = sg_gen_select(gen, negative, LLVMBuildNot(B, bits, ""), LLVMBuildOr(B, bits, top, ""));
    LLVMValueRef nan = LLVMBuildFCmp(B, LLVMRealUNO, value, value, "");
    return sg_gen_select(gen, nan, sg_gen_const(gen, 32, min == wins ? 0 : UINT32_MAX), key);
}

LLVMValueRef sg_gen_redux_result(struct sg_codegen *gen, LLVMValueRef key)
{
    if (gen->insn->types[0] != SG_F32)
        return key;
    LLVMValueRef top = sg_gen_const(gen, 32, 0x80000000u);
    LLVMValueRef positive = sg_gen_compare(gen, LLVMIntSLT, key, sg_gen_const(gen, 32, 0));
    LLVMValueRef bits = sg_gen_select(gen, positive, LLVMBuildXor(B, key, top, ""), LLVMBuildNot(B, key, ""));
    LLVMValueRef end = LLVMBuildAdd(B, key, sg_gen_const(gen, 32, 1), ""); /* 0 and 1 are those of NaN */
    LLVMValueRef nan = sg_gen_compare(gen, LLVMIntULE, end, sg_gen_const(gen, 32, 1));
    return sg_gen_cast(gen, sg_gen_select(gen, nan, sg_gen_const(gen, 32, 0x7fffffff), bits), gen->f32);
}

static void reduce(struct sg_codegen *gen)
{
    LLVMValueRef arguments[4] = {gen->thread, sg_gen_const(gen, 32, sg_gen_redux(gen)),
                                 sg_gen_redux_operand(gen), sg_gen_operand_u32(gen, 2)};
    sg_gen_result(gen, sg_gen_redux_result(gen, sg_gen_runtime(gen, "sg_rt_redux", gen->i32, arguments, 4)));
}

void sg_gen_elected(struct sg_codegen *gen, LLVMValueRef ballot)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef arguments[2] = {ballot, sg_gen_const(gen, 1, 0)};
    LLVMValueRef leader = sg_gen_intrinsic(gen, "llvm.cttz", &gen->i32, 1, arguments, 2);
    sg_gen_write(gen, &insn->operands[0], SG_B32, leader);
    sg_gen_write(gen, &insn->operands[insn->n_operands], SG_PRED,
                 sg_gen_compare(gen, LLVMIntEQ, leader, sg_gen_special(gen, SG_SPECIAL_LANEID, 0)));
}

static void elect(struct sg_codegen *gen)
{
    LLVMValueRef arguments[4] = {gen->thread, sg_gen_const(gen, 32, SG_VOTE_BALLOT - 1u),
                                 sg_gen_const(gen, 32, 1), sg_gen_operand_u32(gen, 1)};
    sg_gen_elected(gen, sg_gen_runtime(gen, "sg_rt_vote", gen->i32, arguments, 4));
}

static void cluster_barrier(struct sg_codegen *gen)
{
    bool wait = SG_MOD(gen->insn, SG_GROUP_CLUSTER_STEP) == SG_CLUSTER_WAIT;
    sg_gen_runtime(gen, wait ? "sg_rt_cluster_wait" : "sg_rt_cluster_arrive", gen->nothing, &gen->thread, 1);
}

LLVMValueRef sg_emit_warp(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_BAR:
        barrier(gen);
        return NULL;
    case SG_OP_BAR_WARP: {
        LLVMValueRef arguments[2] = {gen->thread, sg_gen_operand_u32(gen, 0)};
        sg_gen_runtime(gen, "sg_rt_warp_sync", gen->nothing, arguments, 2);
        return NULL;
    }
    case SG_OP_ELECT:
        elect(gen);
        return NULL;
    case SG_OP_CLUSTER_BARRIER:
        cluster_barrier(gen);
        return NULL;
    case SG_OP_SHFL:
        shuffle(gen);
        return NULL;
    case SG_OP_VOTE:
        vote(gen);
        return NULL;
    case SG_OP_MATCH:
        match(gen);
        return NULL;
    case SG_OP_REDUX:
        reduce(gen);
        return NULL;
    case SG_OP_ACTIVEMASK:
        return sg_gen_runtime(gen, "sg_rt_activemask", gen->i32, &gen->thread, 1);
    case SG_OP_NANOSLEEP:
        sg_gen_runtime(gen, "sg_rt_yield", gen->nothing, &gen->thread, 1);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
