/*
 * function.c - the body of one function: its instructions in order, each by the emitter of its group. This
 * file alone knows all emitters; what they have in common is the builder's.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"
#include "softgpu/compiler/codegen/codegen.h"
#include "softgpu/compiler/codegen/loops/loops.h"
#include "softgpu/compiler/codegen/memory/memory.h"
#include "softgpu/compiler/codegen/threads/threads.h"

#include <string.h>

#define B gen->builder

/* The emitter of each group of opcodes. */
static const struct {
    enum sg_op first, last;
    LLVMValueRef (*emit)(struct sg_codegen *gen);
} emitters[] = {
    {SG_OP_ADD, SG_OP_DP2A, sg_emit_integer},
    {SG_OP_POPC, SG_OP_LOP3, sg_emit_bits},
    {SG_OP_FADD, SG_OP_TESTP, sg_emit_float},
    {SG_OP_SETP, SG_OP_SLCT, sg_emit_comparison},
    {SG_OP_CVT, SG_OP_CVT_SATURATE_PACK, sg_emit_conversion},
    {SG_OP_MOV, SG_OP_STACKRESTORE, sg_emit_memory},
    {SG_OP_CVTA, SG_OP_GETCTARANK, sg_emit_space},
    {SG_OP_CP_ASYNC, SG_OP_ST_BULK, sg_emit_copy},
    {SG_OP_CP_TENSOR, SG_OP_TENSORMAP_REPLACE, sg_emit_tensor},
    {SG_OP_ATOM, SG_OP_FENCE, sg_emit_atomic},
    {SG_OP_MBARRIER_SETUP, SG_OP_MBARRIER_COUNT, sg_emit_mbarrier},
    {SG_OP_BRA, SG_OP_POLICY, sg_emit_control},
    {SG_OP_BAR, SG_OP_NANOSLEEP, sg_emit_warp},
    {SG_OP_MMA, SG_OP_MOVMATRIX, sg_emit_matrix},
    {SG_OP_VADD, SG_OP_VMAD, sg_emit_video},
    {SG_OP_TEX, SG_OP_SURED, sg_emit_texture},
};

void sg_gen_instruction(struct sg_codegen *gen)
{
    enum sg_op op = gen->insn->form->op;
    if (gen->insn->aligns && gen->form == SG_CODE_THREAD && (op == SG_OP_LD || op == SG_OP_ST)) {
        LLVMValueRef arguments[2] = {gen->thread,
                                     sg_gen_const(gen, 32, (uint64_t)(gen->insn - gen->function->insns))};
        sg_gen_runtime(gen, "sg_rt_pass", gen->nothing, arguments, 2);
    }
    if (sg_emit_point(gen))
        return;
    for (size_t i = 0; i < sizeof(emitters) / sizeof(emitters[0]); i++) {
        if (op < emitters[i].first || op > emitters[i].last)
            continue;
        LLVMValueRef result = emitters[i].emit(gen);
        if (result != NULL)
            sg_gen_result(gen, result);
        return;
    }
    sg_gen_lacks(gen);
}

static LLVMValueRef bit_of(struct sg_codegen *gen, LLVMValueRef word, uint32_t bit)
{
    return LLVMBuildTrunc(B, LLVMBuildLShr(B, word, sg_gen_const(gen, 32, bit), ""), gen->i1, "");
}

/* The frame knows of some tests how they go: the body's last argument (divergence.h). */
static LLVMValueRef guard_value(struct sg_codegen *gen, const struct sg_operand *guard)
{
    LLVMValueRef value = sg_gen_read(gen, guard, SG_PRED);
    for (uint32_t i = 0; gen->function->is_entry && i < gen->loops.tests.count; i++) {
        if (gen->insn != &gen->function->insns[gen->loops.tests.insns[i]])
            continue;
        LLVMValueRef decisions = LLVMGetParam(gen->self, gen->form == SG_CODE_LOOPS ? 9 : 2);
        value =
            sg_gen_select(gen, bit_of(gen, decisions, 2 * i + 2), bit_of(gen, decisions, 2 * i + 3), value);
    }
    return value;
}

static void generate_guarded(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    if (insn->guard == 0) {
        sg_gen_instruction(gen);
        return;
    }
    struct sg_operand guard = {
        .kind = SG_OPERAND_REG, .reg = insn->guard - 1, .negated = insn->guard_negated};
    LLVMBasicBlockRef then = sg_gen_block(gen, ""), after = sg_gen_block(gen, "");
    LLVMBuildCondBr(B, guard_value(gen, &guard), then, after);
    LLVMPositionBuilderAtEnd(B, then);
    sg_gen_instruction(gen);
    LLVMBuildBr(B, after);
    LLVMPositionBuilderAtEnd(B, after);
}

/* The labels in the order of the instructions that they name. */
static void start_labels(struct sg_codegen *gen, uint32_t insn, uint32_t *next)
{
    const struct sg_ptx_function *function = gen->function;
    for (; *next < function->n_labels && function->labels[*next].insn == insn; ++*next) {
        LLVMBuildBr(B, gen->labels[*next]);
        LLVMPositionBuilderAtEnd(B, gen->labels[*next]);
    }
}

void sg_gen_function(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self)
{
    LLVMBasicBlockRef start = sg_gen_begin(gen, function, self);
    gen->labels = SG_NEW_ARRAY(gen->arena, LLVMBasicBlockRef, function->n_labels);
    for (uint32_t i = 0; i < function->n_labels; i++)
        gen->labels[i] = sg_gen_block(gen, "");
    sg_gen_make_variables(gen);
    if (sg_gen_in_loops(gen))
        sg_gen_points_begin(gen);
    uint32_t next_label = 0;
    for (uint32_t i = 0; i < function->n_insns; i++) {
        start_labels(gen, i, &next_label);
        gen->insn = &function->insns[i];
        generate_guarded(gen);
    }
    start_labels(gen, function->n_insns, &next_label);
    sg_gen_end(gen);
    LLVMBuildBr(gen->entry_builder, start);
}
