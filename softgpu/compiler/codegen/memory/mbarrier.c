/*
 * mbarrier.c - barriers that live in shared memory. The word that PTX calls opaque holds, from its low end,
 * 20 bits of arrivals still missing, 20 bits of arrivals a phase needs, 21 bits of bytes still missing (two's
 * complement: they may come before they are expected), and 3 bits of the number of the phase. The threads of
 * a block, and of a cluster, run on one OS thread and change only at calls or points, so that the word needs
 * no atomic operations. In loop form nothing changes while a region runs but what its own threads do, so that
 * tests are ordinary loads, which LLVM can take for many threads at once.
 *
 * Copies that PTX calls asynchronous have been made by the time that a barrier hears of them.
 */
#include "softgpu/compiler/codegen/memory/memory.h"

#define B gen->builder

#define FIELD_BITS 20
#define FIELD_MASK ((UINT64_C(1) << FIELD_BITS) - 1)
#define BYTES_BITS 21
#define BYTES_MASK (((UINT64_C(1) << BYTES_BITS) - 1) << (2 * FIELD_BITS))
#define PHASE_AT   (2 * FIELD_BITS + BYTES_BITS)

static LLVMValueRef word_const(struct sg_codegen *gen, uint64_t value)
{
    return sg_gen_const(gen, 64, value);
}

static LLVMValueRef word_address(struct sg_codegen *gen, uint32_t operand)
{
    return sg_gen_address(gen, &gen->insn->operands[operand], sg_gen_space(gen));
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
    return LLVMBuildLShr(B, word, word_const(gen, PHASE_AT), "");
}

/* Threads that change only at points are run by one thread of the host: there is nothing to order. */
static void order(struct sg_codegen *gen, LLVMAtomicOrdering ordering)
{
    if (!sg_gen_in_loops(gen))
        LLVMBuildFence(B, ordering, 0, "");
}

static void set_up(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool init = SG_MOD(insn, SG_GROUP_MBARRIER_SETUP) == SG_MBARRIER_INIT;
    LLVMValueRef word = word_const(gen, 0);
    if (init != (insn->n_operands == 2))
        sg_gen_fail(gen, "wrong number of operands");
    if (init) {
        LLVMValueRef count = LLVMBuildZExt(B, sg_gen_operand_u32(gen, 1), gen->i64, "");
        word = LLVMBuildOr(B, count, LLVMBuildShl(B, count, word_const(gen, FIELD_BITS), ""), "");
    }
    store_word(gen, word, word_address(gen, 0));
}

/* The word with so many more bytes (or, with `come`, fewer) to wait for. */
static LLVMValueRef with_bytes(struct sg_codegen *gen, LLVMValueRef word, LLVMValueRef bytes, bool come)
{
    LLVMValueRef shifted = LLVMBuildShl(B, bytes, word_const(gen, 2 * FIELD_BITS), "");
    LLVMValueRef sum = come ? LLVMBuildSub(B, word, shifted, "") : LLVMBuildAdd(B, word, shifted, "");
    LLVMValueRef field = LLVMBuildAnd(B, sum, word_const(gen, BYTES_MASK), "");
    return LLVMBuildOr(B, LLVMBuildAnd(B, word, word_const(gen, ~BYTES_MASK), ""), field, "");
}

/* The word, or that of the next phase if nothing is missing in it. */
static LLVMValueRef settle(struct sg_codegen *gen, LLVMValueRef word)
{
    LLVMValueRef missing = LLVMBuildAnd(B, word, word_const(gen, FIELD_MASK | BYTES_MASK), "");
    LLVMValueRef complete = sg_gen_compare(gen, LLVMIntEQ, missing, word_const(gen, 0));
    LLVMValueRef needed = LLVMBuildLShr(B, word, word_const(gen, FIELD_BITS), "");
    needed = LLVMBuildAnd(B, needed, word_const(gen, FIELD_MASK), "");
    LLVMValueRef next = LLVMBuildAdd(B, word, word_const(gen, UINT64_C(1) << PHASE_AT), "");
    return sg_gen_select(gen, complete, LLVMBuildOr(B, next, needed, ""), word);
}

/*
 * Takes `count` off what is missing, and goes on to the next phase when nothing is. Returns the word before.
 */
static LLVMValueRef arrive(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef count, bool drop)
{
    LLVMValueRef old = load_word(gen, address);
    LLVMValueRef word = LLVMBuildSub(B, old, count, "");
    if (drop)
        word = LLVMBuildSub(B, word, LLVMBuildShl(B, count, word_const(gen, FIELD_BITS), ""), "");
    store_word(gen, settle(gen, word), address);
    return old;
}

static void expect_bytes(struct sg_codegen *gen, LLVMValueRef address, uint32_t operand, bool come)
{
    LLVMValueRef bytes =
        LLVMBuildZExt(B, sg_gen_read(gen, &gen->insn->operands[operand], SG_U32), gen->i64, "");
    LLVMValueRef word = with_bytes(gen, load_word(gen, address), bytes, come);
    store_word(gen, come ? settle(gen, word) : word, address);
}

void sg_gen_complete_bytes(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef bytes)
{
    LLVMValueRef word = with_bytes(gen, load_word(gen, address), LLVMBuildZExt(B, bytes, gen->i64, ""), true);
    store_word(gen, settle(gen, word), address);
}

static void arrive_by_thread(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef count = word_const(gen, 1);
    if (insn->n_operands > 2)
        count = LLVMBuildZExt(B, sg_gen_operand_u32(gen, 2), gen->i64, "");
    bool drop = SG_MOD(insn, SG_GROUP_MBARRIER_ARRIVE) == SG_MBARRIER_ARRIVE_DROP;
    order(gen, LLVMAtomicOrderingRelease);
    sg_gen_result(gen, arrive(gen, word_address(gen, 1), count, drop));
}

/* Has the phase of a state, or the phase of a parity, been completed? */
static LLVMValueRef is_complete(struct sg_codegen *gen, LLVMValueRef address)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef word = load_word(gen, address);
    if (sg_gen_in_loops(gen)) {
        LLVMSetVolatile(word, 0);
        sg_gen_mark_parallel(gen, word, SG_MOD(insn, SG_GROUP_SPACE));
    }
    LLVMValueRef now = phase_of(gen, word);
    if (SG_MOD(insn, SG_GROUP_PARITY) == 0)
        return sg_gen_compare(gen, LLVMIntNE, now,
                              phase_of(gen, sg_gen_read(gen, &insn->operands[2], SG_B64)));
    LLVMValueRef parity = LLVMBuildZExt(B, sg_gen_operand_u32(gen, 2), gen->i64, "");
    LLVMValueRef difference = LLVMBuildAnd(B, LLVMBuildXor(B, now, parity, ""), word_const(gen, 1), "");
    return sg_gen_compare(gen, LLVMIntNE, difference, word_const(gen, 0));
}

LLVMValueRef sg_gen_mbarrier_test(struct sg_codegen *gen)
{
    return is_complete(gen, word_address(gen, 1));
}

/* Who waits in vain lets the others run first, and looks once more. */
static void wait(struct sg_codegen *gen)
{
    LLVMValueRef address = word_address(gen, 1);
    LLVMValueRef first = is_complete(gen, address);
    if (sg_gen_in_loops(gen)) { /* there was a point before it */
        sg_gen_write(gen, &gen->insn->operands[0], SG_PRED, first);
        return;
    }
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

LLVMValueRef sg_emit_mbarrier(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_MBARRIER_SETUP:
        set_up(gen);
        return NULL;
    case SG_OP_MBARRIER_ARRIVE:
        arrive_by_thread(gen);
        return NULL;
    case SG_OP_MBARRIER_ARRIVE_EXPECT: {
        LLVMValueRef address = word_address(gen, 1);
        bool drop = SG_MOD(gen->insn, SG_GROUP_MBARRIER_ARRIVE) == SG_MBARRIER_ARRIVE_DROP;
        if (SG_MOD(gen->insn, SG_GROUP_EXPECT) != SG_EXPECT_TX)
            sg_gen_fail(gen, "not a form of this instruction");
        expect_bytes(gen, address, 2, false);
        order(gen, LLVMAtomicOrderingRelease);
        return arrive(gen, address, word_const(gen, 1), drop);
    }
    case SG_OP_MBARRIER_EXPECT:
        expect_bytes(gen, word_address(gen, 0), 1, SG_MOD(gen->insn, SG_GROUP_EXPECT) == SG_COMPLETE_TX);
        return NULL;
    case SG_OP_MBARRIER_WAIT:
        wait(gen);
        return NULL;
    case SG_OP_MBARRIER_COUNT: {
        LLVMValueRef missing = LLVMBuildAnd(B, sg_gen_operand(gen, 1), word_const(gen, FIELD_MASK), "");
        sg_gen_write(gen, &gen->insn->operands[0], SG_U32, LLVMBuildTrunc(B, missing, gen->i32, ""));
        return NULL;
    }
    case SG_OP_MBARRIER_COPIED:
        /* without .noinc the arrival was not expected, and is added before it is taken off */
        if (SG_MOD(gen->insn, SG_GROUP_QUIET) != 0)
            arrive(gen, word_address(gen, 0), word_const(gen, 1), false);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
