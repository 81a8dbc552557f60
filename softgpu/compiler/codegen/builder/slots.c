/*
 * slots.c - the start of a function: stack slots for its registers and variables, and its formal parameters.
 */
#include "softgpu/compiler/codegen/builder/builder.h"
#include "softgpu/compiler/jit/guard.h"

#include <string.h>

#define B gen->builder

static void make_registers(struct sg_codegen *gen)
{
    const struct sg_ptx_function *function = gen->function;
    gen->registers = SG_NEW_ARRAY(gen->arena, LLVMValueRef, function->n_regs);
    for (uint32_t i = 0; i < function->n_regs; i++) {
        LLVMTypeRef type =
            function->regs[i].pointer ? gen->guest : sg_gen_type(gen, (enum sg_type)function->regs[i].type);
        gen->registers[i] = LLVMBuildAlloca(gen->entry_builder, type, "");
        /* never undefined: what reads before it writes gets 0 */
        LLVMBuildStore(gen->entry_builder, LLVMConstNull(type), gen->registers[i]);
    }
    gen->carry = LLVMBuildAlloca(gen->entry_builder, gen->i1, "");
    LLVMBuildStore(gen->entry_builder, sg_gen_const(gen, 1, 0), gen->carry);
    gen->misaligned = LLVMBuildAlloca(gen->entry_builder, gen->i32, "");
    LLVMBuildStore(gen->entry_builder, sg_gen_const(gen, 32, 0), gen->misaligned);
}

void sg_gen_make_variables(struct sg_codegen *gen)
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
        uint64_t size = (var->size == 0 ? 1 : var->size) + (gen->guarded ? SG_GUARD_OVERHANG : 0);
        LLVMTypeRef type = LLVMArrayType(gen->i8, (unsigned)size);
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
            gen->loops.context_memory = LLVMGetParam(gen->self, 2);
            gen->loops.local = LLVMGetParam(gen->self, 3);
            gen->loops.stride = LLVMGetParam(gen->self, 4);
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

/* The function's start, with places for registers. */
LLVMBasicBlockRef sg_gen_begin(struct sg_codegen *gen, struct sg_ptx_function *function, LLVMValueRef self)
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
    sg_gen_add_attribute(gen, self, LLVMAttributeFunctionIndex, "alwaysinline", 0);
    LLVMSetLinkage(self, LLVMInternalLinkage);
    LLVMBasicBlockRef start = sg_gen_begin(gen, kernel, self);
    sg_gen_make_variables(gen);
    return start;
}
