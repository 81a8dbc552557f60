/*
 * function.c - the body of one function: slots for its registers and variables, basic blocks for its
 * labels, then its instructions in order, each by its family.
 */
#include "softgpu/compiler/codegen/codegen.h"

#include <string.h>

#define B gen->builder

LLVMBasicBlockRef sg_gen_block(struct sg_codegen *gen, const char *name)
{
    return LLVMAppendBasicBlockInContext(gen->context, gen->self, name);
}

void sg_gen_fail(struct sg_codegen *gen, const char *message)
{
    sg_fail(gen->arena->diagnostics, SG_COMPILE_INVALID_PTX, gen->insn->line, "%s: %.*s", message,
            (int)gen->insn->text.size, gen->insn->text.data);
}

static void make_registers(struct sg_codegen *gen)
{
    const struct sg_ptx_function *function = gen->function;
    gen->registers = SG_NEW_ARRAY(gen->arena, LLVMValueRef, function->n_regs);
    for (uint32_t i = 0; i < function->n_regs; i++) {
        LLVMTypeRef type =
            function->regs[i].pointer ? gen->pointer : sg_gen_type(gen, (enum sg_type)function->regs[i].type);
        gen->registers[i] = LLVMBuildAlloca(gen->entry_builder, type, "");
        /* never undefined: what reads before it writes gets 0 */
        LLVMBuildStore(gen->entry_builder, LLVMConstNull(type), gen->registers[i]);
    }
    gen->carry = LLVMBuildAlloca(gen->entry_builder, gen->i1, "");
    LLVMBuildStore(gen->entry_builder, sg_gen_const(gen, 1, 0), gen->carry);
    gen->misaligned = LLVMBuildAlloca(gen->entry_builder, gen->i32, "");
    LLVMBuildStore(gen->entry_builder, sg_gen_const(gen, 32, 0), gen->misaligned);
}

static void make_variables(struct sg_codegen *gen)
{
    const struct sg_ptx_function *function = gen->function;
    gen->variables = SG_NEW_ARRAY(gen->arena, LLVMValueRef, function->n_vars);
    for (uint32_t i = 0; i < function->n_vars; i++) {
        const struct sg_var *var = function->vars[i];
        if (var->space != SG_SPACE_LOCAL && var->space != SG_SPACE_PARAM)
            continue;
        if (sg_gen_in_loops(gen) && var->space == SG_SPACE_LOCAL) {
            gen->variables[i] = sg_gen_points_local(gen, var);
            continue;
        }
        LLVMTypeRef type = LLVMArrayType(gen->i8, (unsigned)(var->size == 0 ? 1 : var->size));
        gen->variables[i] = LLVMBuildAlloca(gen->entry_builder, type, "");
        LLVMSetAlignment(gen->variables[i], var->align < 16 ? 16 : var->align);
    }
}

static void make_formals(struct sg_codegen *gen)
{
    const struct sg_ptx_function *function = gen->function;
    gen->thread = LLVMGetParam(gen->self, 0);
    if (function->is_entry) {
        gen->params = LLVMGetParam(gen->self, 1);
        if (sg_gen_in_loops(gen)) {
            gen->context_memory = LLVMGetParam(gen->self, 2);
            gen->local = LLVMGetParam(gen->self, 3);
            gen->stride = LLVMGetParam(gen->self, 4);
        }
        return;
    }
    gen->formals_out = SG_NEW_ARRAY(gen->arena, LLVMValueRef, function->n_returns);
    gen->formals_in = SG_NEW_ARRAY(gen->arena, LLVMValueRef, function->n_params);
    for (uint32_t i = 0; i < function->n_returns; i++)
        gen->formals_out[i] = LLVMGetParam(gen->self, 1 + i);
    for (uint32_t i = 0; i < function->n_params; i++) {
        const struct sg_var *formal = &function->params[i];
        gen->formals_in[i] = LLVMGetParam(gen->self, 1 + function->n_returns + i);
        if (!formal->by_register)
            continue;
        struct sg_operand operand = {.kind = SG_OPERAND_REG, .reg = formal->reg};
        LLVMTypeRef type = sg_gen_type(gen, formal->type);
        sg_gen_write(gen, &operand, formal->type, LLVMBuildLoad2(B, type, gen->formals_in[i], ""));
    }
}

void sg_gen_instruction(struct sg_codegen *gen)
{
    static bool (*const families[])(struct sg_codegen *) = {
        sg_gen_points, sg_gen_memory,     sg_gen_spaces,  sg_gen_copy,    sg_gen_integer, sg_gen_bits,
        sg_gen_float,  sg_gen_comparison, sg_gen_convert, sg_gen_control, sg_gen_threads, sg_gen_atomic,
        sg_gen_video,  sg_gen_mbarrier,   sg_gen_mma,     sg_gen_texture, sg_gen_tensor,
    };
    enum sg_op op = gen->insn->form->op;
    if (gen->insn->aligns && gen->form == SG_CODE_THREAD &&
        (op == SG_OP_LD || op == SG_OP_ST)) /* as behind a fence: let the other lanes come as far */
        sg_gen_runtime(gen, "sg_rt_fence", gen->nothing, &gen->thread, 1);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (families[i](gen))
            return;
    sg_gen_fail(gen, "the code generator lacks this instruction");
}

static LLVMValueRef bit_of(struct sg_codegen *gen, LLVMValueRef word, uint32_t bit)
{
    return LLVMBuildTrunc(B, LLVMBuildLShr(B, word, sg_gen_const(gen, 32, bit), ""), gen->i1, "");
}

/* The frame knows of some tests how they go: the body's last argument (divergence.h). */
static LLVMValueRef guard_value(struct sg_codegen *gen, const struct sg_operand *guard)
{
    LLVMValueRef value = sg_gen_read(gen, guard, SG_PRED);
    for (uint32_t i = 0; gen->function->is_entry && i < gen->tests.count; i++) {
        if (gen->insn != &gen->function->insns[gen->tests.insns[i]])
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

/* The function's start, with places for registers. */
static LLVMBasicBlockRef begin(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self)
{
    gen->function = function;
    gen->self = self;
    gen->block_pointer = gen->shared_base = gen->fragments = NULL;
    memset(gen->specials, 0, sizeof(gen->specials));
    gen->low_bits = sg_analyse_alignment(gen->arena, function);
    gen->bounds = sg_analyse_bounds(gen->arena, function);
    LLVMBasicBlockRef entry = sg_gen_block(gen, "entry"), start = sg_gen_block(gen, "start");
    LLVMPositionBuilderAtEnd(gen->entry_builder, entry);
    LLVMPositionBuilderAtEnd(B, start);
    make_registers(gen);
    make_formals(gen);
    return start;
}

LLVMBasicBlockRef sg_gen_begin_helper(struct sg_codegen *gen, struct sg_ptx_function *kernel,
                                      const char *name)
{
    LLVMValueRef self = LLVMGetNamedFunction(gen->llvm, name);
    unsigned inlined = LLVMGetEnumAttributeKindForName("alwaysinline", 12);
    LLVMAddAttributeAtIndex(self, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(gen->context, inlined, 0));
    LLVMSetLinkage(self, LLVMInternalLinkage);
    LLVMBasicBlockRef start = begin(gen, kernel, self);
    make_variables(gen);
    return start;
}

void sg_gen_guard_function(struct sg_codegen *gen, struct sg_ptx_function *kernel)
{
    LLVMBasicBlockRef start = sg_gen_begin_helper(gen, kernel, SG_GEN_GUARD);
    LLVMBuildRet(B, sg_gen_guards(gen));
    LLVMBuildBr(gen->entry_builder, start);
}

void sg_gen_function(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self)
{
    LLVMBasicBlockRef start = begin(gen, function, self);
    gen->labels = SG_NEW_ARRAY(gen->arena, LLVMBasicBlockRef, function->n_labels);
    for (uint32_t i = 0; i < function->n_labels; i++)
        gen->labels[i] = sg_gen_block(gen, "");
    make_variables(gen);
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
