/*
 * rematerialise.c - computes registers anew that are cheaper to compute than to keep: those that live across
 * points, and those that the guards of a kernel in block form test.
 */
#include "softgpu/compiler/codegen/loops/loops.h"
#include "softgpu/compiler/ir/traits.h"

#define B gen->builder

struct rematerialise {
    struct sg_codegen *gen;
    uint8_t *done; /* by instruction */
};

static void rematerialise(struct rematerialise *r, uint32_t reg);

static void rematerialise_operand(void *user, uint32_t reg, bool written, bool maybe)
{
    (void)maybe;
    if (!written)
        rematerialise(user, reg);
}

static void rematerialise(struct rematerialise *r, uint32_t reg)
{
    struct sg_codegen *gen = r->gen;
    uint32_t by = gen->loops.regions.rematerialised[reg];
    if (by == 0 || r->done[by - 1])
        return;
    const struct sg_insn *insn = &gen->function->insns[by - 1];
    r->done[by - 1] = 1;
    sg_visit_registers(insn, rematerialise_operand, r);
    gen->insn = insn;
    gen->emit(gen);
}

void sg_gen_rematerialise(struct sg_codegen *gen, uint8_t *done, uint32_t reg)
{
    struct rematerialise r = {gen, done};
    rematerialise(&r, reg);
}

/* Whether a guard sends the thread to its end. */
static LLVMValueRef stops_by_guard(struct sg_codegen *gen)
{
    uint8_t *done = SG_NEW_ARRAY(gen->arena, uint8_t, gen->function->n_insns + 1);
    LLVMValueRef stops = sg_gen_const(gen, 1, 0);
    for (uint32_t i = 0; i < gen->loops.guards.count; i++) {
        const struct sg_insn *insn = &gen->function->insns[gen->loops.guards.insns[i]];
        struct sg_operand guard = {
            .kind = SG_OPERAND_REG, .reg = insn->guard - 1, .negated = insn->guard_negated};
        sg_gen_rematerialise(gen, done, guard.reg);
        stops = LLVMBuildOr(B, stops, sg_gen_read(gen, &guard, SG_PRED), "");
    }
    return stops;
}

void sg_gen_guard_function(struct sg_codegen *gen, struct sg_ptx_function *kernel)
{
    LLVMBasicBlockRef start = sg_gen_begin_helper(gen, kernel, SG_GEN_GUARD);
    LLVMBuildRet(B, stops_by_guard(gen));
    LLVMBuildBr(gen->entry_builder, start);
}
