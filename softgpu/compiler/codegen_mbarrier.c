/*
 * codegen_mbarrier.c - barriers that live in shared memory. The word that PTX calls opaque holds, from its low end, 20
 * bits of arrivals still missing, 20 bits of arrivals a phase needs, and the number of the phase. A block's threads
 * run on one OS thread and change only at calls, so that the word needs no atomic operations.
 *
 * Copies that PTX calls asynchronous have been made by the time that a barrier hears of them. Transactions (bytes that
 * a bulk copy brings) are not known, as bulk copies are not.
 */
#include "softgpu/compiler/codegen.h"

#define B gen->builder

#define FIELD_BITS 20
#define FIELD_MASK ((UINT64_C(1) << FIELD_BITS) - 1)

static LLVMValueRef word_const(struct sg_codegen *gen, uint64_t value)
{
    return sg_gen_const(gen, 64, value);
}

static LLVMValueRef word_address(struct sg_codegen *gen, uint32_t operand)
{
    return sg_gen_address(gen, &gen->insn->operands[operand], SG_MOD(gen->insn, SG_GROUP_SPACE));
}

static LLVMValueRef load_word(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef word = LLVMBuildLoad2(B, gen->i64, address, "");
    LLVMSetAlignment(word, 8);
    LLVMSetVolatile(word, 1);
    return word;
}

static void store_word(struct sg_codegen *gen, LLVMValueRef word, LLVMValueRef address)
{
    LLVMValueRef store = LLVMBuildStore(B, word, address);
    LLVMSetAlignment(store, 8);
    LLVMSetVolatile(store, 1);
}

static LLVMValueRef phase_of(struct sg_codegen *gen, LLVMValueRef word)
{
    return LLVMBuildLShr(B, word, word_const(gen, 2 * FIELD_BITS), "");
}

static void set_up(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool init = SG_MOD(insn, SG_GROUP_MBARRIER_SETUP) == SG_MBARRIER_INIT;
    LLVMValueRef word = word_const(gen, 0);
    if (init != (insn->n_operands == 2))
        sg_gen_fail(gen, "wrong number of operands");
    if (init) {
        LLVMValueRef count = LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[1], SG_U32), gen->i64, "");
        word = LLVMBuildOr(B, count, LLVMBuildShl(B, count, word_const(gen, FIELD_BITS), ""), "");
    }
    store_word(gen, word, word_address(gen, 0));
}

/* Takes `count` off what is missing, and goes on to the next phase when nothing is. Returns the word before. */
static LLVMValueRef arrive(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef count, bool drop)
{
    LLVMValueRef old = load_word(gen, address);
    LLVMValueRef word = LLVMBuildSub(B, old, count, "");
    if (drop)
        word = LLVMBuildSub(B, word, LLVMBuildShl(B, count, word_const(gen, FIELD_BITS), ""), "");
    LLVMValueRef missing = LLVMBuildAnd(B, word, word_const(gen, FIELD_MASK), "");
    LLVMValueRef complete = sg_gen_compare(gen, LLVMIntEQ, missing, word_const(gen, 0));
    LLVMValueRef needed = LLVMBuildLShr(B, word, word_const(gen, FIELD_BITS), "");
    needed = LLVMBuildAnd(B, needed, word_const(gen, FIELD_MASK), "");
    LLVMValueRef next = LLVMBuildAdd(B, word, word_const(gen, UINT64_C(1) << (2 * FIELD_BITS)), "");
    next = LLVMBuildOr(B, next, needed, "");
    store_word(gen, sg_gen_select(gen, complete, next, word), address);
    return old;
}

static void arrive_by_thread(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef count = word_const(gen, 1);
    if (insn->n_operands > 2)
        count = LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[2], SG_U32), gen->i64, "");
    bool drop = SG_MOD(insn, SG_GROUP_MBARRIER_ARRIVE) == SG_MBARRIER_ARRIVE_DROP;
    LLVMBuildFence(B, LLVMAtomicOrderingRelease, 0, "");
    sg_gen_result(gen, arrive(gen, word_address(gen, 1), count, drop));
}

/* Has the phase of a state, or the phase of a parity, been completed? */
static LLVMValueRef is_complete(struct sg_codegen *gen, LLVMValueRef address)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef now = phase_of(gen, load_word(gen, address));
    if (SG_MOD(insn, SG_GROUP_PARITY) == 0)
        return sg_gen_compare(gen, LLVMIntNE, now,
                              phase_of(gen, sg_gen_read(gen, &insn->operands[2], SG_B64)));
    LLVMValueRef parity = LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[2], SG_U32), gen->i64, "");
    LLVMValueRef difference = LLVMBuildAnd(B, LLVMBuildXor(B, now, parity, ""), word_const(gen, 1), "");
    return sg_gen_compare(gen, LLVMIntNE, difference, word_const(gen, 0));
}

/* Who waits in vain lets the others run first, and looks once more. */
static void wait(struct sg_codegen *gen)
{
    LLVMValueRef address = word_address(gen, 1);
    LLVMValueRef first = is_complete(gen, address);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(B), again = sg_gen_block(gen, ""),
                      done = sg_gen_block(gen, "");
    LLVMBuildCondBr(B, first, done, again);
    LLVMPositionBuilderAtEnd(B, again);
    sg_gen_runtime(gen, "sg_rt_yield", gen->nothing, &gen->thread, 1);
    LLVMValueRef second = is_complete(gen, address);
    LLVMBuildBr(B, done);
    LLVMPositionBuilderAtEnd(B, done);
    LLVMValueRef value = LLVMBuildPhi(B, gen->i1, "");
    LLVMAddIncoming(value, (LLVMValueRef[]){first, second}, (LLVMBasicBlockRef[]){before, again}, 2);
    LLVMBuildFence(B, LLVMAtomicOrderingAcquire, 0, "");
    sg_gen_write(gen, &gen->insn->operands[0], SG_PRED, value);
}

bool sg_gen_mbarrier(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_MBARRIER_SETUP:
        set_up(gen);
        return true;
    case SG_OP_MBARRIER_ARRIVE:
        arrive_by_thread(gen);
        return true;
    case SG_OP_MBARRIER_WAIT:
        wait(gen);
        return true;
    case SG_OP_MBARRIER_COUNT: {
        LLVMValueRef missing = LLVMBuildAnd(B, sg_gen_operand(gen, 1), word_const(gen, FIELD_MASK), "");
        sg_gen_write(gen, &gen->insn->operands[0], SG_U32, LLVMBuildTrunc(B, missing, gen->i32, ""));
        return true;
    }
    case SG_OP_MBARRIER_COPIED:
        /* without .noinc the arrival was not expected, and is added before it is taken off */
        if (SG_MOD(gen->insn, SG_GROUP_QUIET) != 0)
            arrive(gen, word_address(gen, 0), word_const(gen, 1), false);
        return true;
    default:
        return false;
    }
}
