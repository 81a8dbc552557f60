/*
 * divergence.c - the function that tells which leaf of the divergence tree a thread comes to, and how many of
 * the next ones in its row do, too. For a region, whose body has the same arguments but the last, it is
 *
 *     i64 divergence(thread, params, context, local, stride, point, start, affine, firsts, exits)
 *
 * and for a kernel in block form
 *
 *     i64 divergence(thread, params)
 *
 * It gives the number of the leaf, and from bit 8 how many threads, this one included. It computes what the
 * tests depend on for the thread, and for each comparison on its way how long its operands stay on the same
 * side of each other. At a leaf that ends a turn it leaves in `exits` what the registers hold that can be
 * kept once a block.
 */
#include "softgpu/compiler/codegen/loops/loops.h"

#include <stdio.h>

#define B gen->builder

#define FAR (INT64_C(1) << 31) /* more than any row has */

struct leading {
    struct sg_codegen *gen;
    const struct sg_divergence *tree;
    LLVMValueRef extent; /* slot: how many threads go the same way, as far as is known */
};

static LLVMValueRef word(struct sg_codegen *gen, int64_t value)
{
    return LLVMConstInt(gen->i64, (uint64_t)value, 1);
}

static LLVMValueRef smaller(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    return sg_gen_intrinsic(gen, "llvm.umin", &gen->i64, 1, (LLVMValueRef[]){a, b}, 2);
}

static void limit(struct leading *l, LLVMValueRef threads)
{
    struct sg_codegen *gen = l->gen;
    LLVMValueRef now = LLVMBuildLoad2(B, gen->i64, l->extent, "");
    LLVMBuildStore(B, smaller(gen, now, threads), l->extent);
}

/*
 * The operand as a signed number that is ordered as its type says: numbers without sign of 64 bits are moved
 * down by half their range.
 */
static LLVMValueRef ordered(struct sg_codegen *gen, uint32_t operand, enum sg_type type, bool is_signed)
{
    LLVMValueRef value = sg_gen_read(gen, &gen->insn->operands[operand], type);
    if (sg_types[type].bits < 64)
        return LLVMBuildIntCast2(B, value, gen->i64, is_signed, "");
    return is_signed ? value : LLVMBuildXor(B, value, word(gen, INT64_MIN), "");
}

/*
 * So many threads from here (with `distance` left, a number without sign, of some more `bits` than those of
 * what is compared) the value has not gone beyond that.
 */
static LLVMValueRef threads_within(struct sg_codegen *gen, LLVMValueRef distance, uint64_t step,
                                   unsigned bits)
{
    LLVMValueRef more = LLVMBuildUDiv(B, distance, word(gen, (int64_t)step), "");
    if (bits == 64) /* one more than this may be none */
        more = smaller(gen, more, word(gen, FAR));
    return LLVMBuildAdd(B, more, word(gen, 1), "");
}

static uint64_t size_of(int64_t step)
{
    return step < 0 ? (uint64_t)-step : (uint64_t)step;
}

/*
 * Operand number `operand`, which has `value`, must not overflow. Where none of the threads has more than
 * half of what the type can hold, steps that are smaller than that do not.
 */
static void limit_to_range(struct leading *l, uint8_t operand, LLVMValueRef value, enum sg_type type,
                           bool is_signed, int64_t step)
{
    struct sg_codegen *gen = l->gen;
    unsigned bits = sg_types[type].bits;
    uint64_t bound = sg_bound_of_operand(gen->bounds, &gen->insn->operands[operand], type);
    if (bits >= 32 && bound <= INT32_MAX && size_of(step) <= INT32_MAX)
        return;
    int64_t least = bits == 64 ? INT64_MIN : is_signed ? -(INT64_C(1) << (bits - 1)) : 0;
    int64_t most = bits == 64  ? INT64_MAX
                   : is_signed ? (INT64_C(1) << (bits - 1)) - 1
                               : (INT64_C(1) << bits) - 1;
    LLVMValueRef left =
        step > 0 ? LLVMBuildSub(B, word(gen, most), value, "") : LLVMBuildSub(B, value, word(gen, least), "");
    limit(l, threads_within(gen, left, size_of(step), bits));
}

static LLVMValueRef saturated(struct sg_codegen *gen, const char *name, LLVMValueRef a, LLVMValueRef b)
{
    return sg_gen_intrinsic(gen, name, &gen->i64, 1, (LLVMValueRef[]){a, b}, 2);
}

/*
 * With `far` the distance that the growing operand has to go until it is the other one: a comparison changes
 * its mind when it is there, or one further, and then no more.
 */
static void limit_to_side(struct leading *l, LLVMValueRef far, uint64_t step, unsigned bits, bool equal_too,
                          bool equality)
{
    struct sg_codegen *gen = l->gen;
    LLVMValueRef zero = word(gen, 0), one = word(gen, 1);
    if (equal_too)
        far = saturated(gen, "llvm.sadd.sat", far, one);
    LLVMValueRef until = threads_within(gen, LLVMBuildSub(B, far, one, ""), step, bits);
    LLVMValueRef ahead = sg_gen_compare(gen, LLVMIntSGT, far, zero);
    LLVMValueRef threads = sg_gen_select(gen, ahead, until, word(gen, FAR));
    if (equality)
        threads = sg_gen_select(gen, sg_gen_compare(gen, LLVMIntEQ, far, zero), one, threads);
    limit(l, threads);
}

static void limit_comparison(struct leading *l, const struct sg_use_of *use)
{
    struct sg_codegen *gen = l->gen;
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    uint8_t cmp = SG_MOD(insn, SG_GROUP_CMP);
    bool is_signed =
        sg_type_is_signed(type) && cmp != SG_CMP_LO && cmp != SG_LS && cmp != SG_CMP_HI && cmp != SG_HS;
    LLVMValueRef growing = ordered(gen, use->stepped, type, is_signed),
                 other = ordered(gen, 3u - use->stepped, type, is_signed);
    /* does it tell operand 1 from what is beyond operand 2, equal ones counted as below? */
    bool beyond = cmp == SG_LE || cmp == SG_GT || cmp == SG_LS || cmp == SG_CMP_HI;
    bool equality = cmp == SG_EQ || cmp == SG_NE;
    bool equal_too = !equality && beyond == ((use->step > 0) == (use->stepped == 1));
    LLVMValueRef far = use->step > 0 ? saturated(gen, "llvm.ssub.sat", other, growing)
                                     : saturated(gen, "llvm.ssub.sat", growing, other);
    limit_to_side(l, far, size_of(use->step), sg_types[type].bits, equal_too, equality);
    limit_to_range(l, use->stepped, growing, type, is_signed, use->step);
}

static void limit_widening(struct leading *l, const struct sg_use_of *use)
{
    struct sg_codegen *gen = l->gen;
    enum sg_type from = (enum sg_type)gen->insn->types[gen->insn->form->op == SG_OP_CVT ? 1 : 0];
    bool is_signed = sg_type_is_signed(from);
    limit_to_range(l, use->stepped, ordered(gen, use->stepped, from, is_signed), from, is_signed, use->step);
}

/* After the instruction, whose operands must still be what they were: see sg_gen_divergence_function. */
static void limit_by_use(struct leading *l, const struct sg_insn *insn, const struct sg_use_of *use)
{
    l->gen->insn = insn;
    if (use->kind == SG_USE_COMPARE)
        limit_comparison(l, use);
    else if (use->kind == SG_USE_WIDEN)
        limit_widening(l, use);
}

/* What is kept of the registers that the leaf has written. */
static void leave(struct leading *l, const struct sg_divergence_leaf *leaf)
{
    struct sg_codegen *gen = l->gen;
    for (uint32_t i = 0; leaf->keeps && i < gen->loops.regions.n_kept; i++) {
        if (!(leaf->written >> i & 1))
            continue;
        uint32_t reg = gen->loops.regions.kept[i];
        struct sg_operand operand = {.kind = SG_OPERAND_REG, .reg = reg};
        LLVMValueRef value = sg_gen_read(gen, &operand, (enum sg_type)gen->function->regs[reg].type);
        LLVMValueRef index = word(gen, i);
        LLVMValueRef place = LLVMBuildGEP2(B, gen->i64, LLVMGetParam(gen->self, 9), &index, 1, "");
        LLVMBuildStore(B, LLVMBuildIntCast2(B, value, gen->i64, 0, ""), place);
    }
    LLVMValueRef extent = LLVMBuildLoad2(B, gen->i64, l->extent, "");
    extent = LLVMBuildShl(B, extent, word(gen, 8), "");
    LLVMBuildRet(B, LLVMBuildOr(B, extent, word(gen, leaf - l->tree->leaves), ""));
}

static void go(struct leading *l, const struct sg_divergence_node *node)
{
    struct sg_codegen *gen = l->gen;
    const struct sg_insn *insns = gen->function->insns;
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->uses[i].kind == SG_USE_NONE)
            continue;
        limit_by_use(l, &insns[node->insns[i]], &node->uses[i]); /* before it overwrites its operands */
        gen->insn = &insns[node->insns[i]];
        gen->emit(gen);
    }
    if (node->test == UINT32_MAX) {
        leave(l, &l->tree->leaves[node->leaf]);
        return;
    }
    const struct sg_insn *test = &insns[node->test];
    struct sg_operand guard = {
        .kind = SG_OPERAND_REG, .reg = test->guard - 1, .negated = test->guard_negated};
    LLVMBasicBlockRef taken = sg_gen_block(gen, ""), passed = sg_gen_block(gen, "");
    LLVMBuildCondBr(B, sg_gen_read(gen, &guard, SG_PRED), taken, passed);
    LLVMPositionBuilderAtEnd(B, taken);
    go(l, node->taken);
    LLVMPositionBuilderAtEnd(B, passed);
    go(l, node->passed);
}

void sg_gen_divergence_function(struct sg_codegen *gen, struct sg_ptx_function *kernel, uint32_t point)
{
    char name[32];
    const struct sg_divergence *tree = &gen->loops.divergence[point];
    struct leading l = {.gen = gen, .tree = tree};
    if (tree->first == NULL)
        return;
    snprintf(name, sizeof(name), SG_GEN_DIVERGENCE ".%u", point);
    LLVMBasicBlockRef start = sg_gen_begin_helper(gen, kernel, name);
    l.extent = LLVMBuildAlloca(gen->entry_builder, gen->i64, "");
    LLVMBuildStore(gen->entry_builder, word(gen, FAR), l.extent);
    if (gen->form == SG_CODE_LOOPS)
        sg_gen_load_affine(gen, point);
    uint8_t *done = SG_NEW_ARRAY(gen->arena, uint8_t, kernel->n_insns + 1);
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (tree->rematerialised[i].kind != SG_USE_NONE)
            sg_gen_rematerialise(gen, done, kernel->insns[i].operands[0].reg);
    for (uint32_t i = 0; i < kernel->n_insns; i++) /* what is computed anew is written by nothing else */
        limit_by_use(&l, &kernel->insns[i], &tree->rematerialised[i]);
    go(&l, tree->first);
    LLVMBuildBr(gen->entry_builder, start);
}
