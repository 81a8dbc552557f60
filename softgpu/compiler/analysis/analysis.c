/*
 * analysis.c - facts of functions: whether their threads wait, exit, look beyond their block, have local
 * memory.
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/uniformity/uniformity.h"

#include <string.h>

/* Does a thread wait for others there, or let them run? */
static bool insn_waits(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return sg_is_meeting(insn) || op == SG_OP_MBARRIER_WAIT || op == SG_OP_NANOSLEEP || insn->waits_in_loop ||
           insn->aligns;
}

/* Does the instruction work on, or wait for, other blocks of the cluster? */
static bool insn_is_clustered(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_CLUSTER_BARRIER:
    case SG_OP_MAPA:
    case SG_OP_GETCTARANK:
        return true;
    case SG_OP_FENCE:
        return false;
    default:
        return SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    }
}

static void analyse_operand(struct sg_ptx_function *function, const struct sg_operand *operand)
{
    if (operand->kind == SG_OPERAND_SPECIAL && operand->reg == SG_SPECIAL_ENVREG &&
        (operand->component == 1 || operand->component == 2))
        function->uses_grid_workspace = true;
    if (operand->kind == SG_OPERAND_SPECIAL && operand->reg == SG_SPECIAL_RESERVED_SMEM)
        function->uses_reserved_shared = true;
}

/* The address of an argument of a call: memory of the thread's own, like a .local variable. */
static bool takes_param_address(const struct sg_ptx_function *function, const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    if (op != SG_OP_MOV && op != SG_OP_CVTA)
        return false;
    const struct sg_operand *operand = &insn->operands[1];
    if (operand->kind != SG_OPERAND_VAR || operand->var->space != SG_SPACE_PARAM)
        return false;
    return !function->is_entry || !sg_is_own_param(function, operand);
}

/* What is 32 bits wide cannot be generic: Triton computes so with addresses of its tensor maps, and lets cvta widen them. */
static bool has_narrow_param(const struct sg_ptx_function *function, const struct sg_insn *insn)
{
    return function->is_entry && insn->form->op == SG_OP_MOV &&
           sg_type_bytes((enum sg_type)insn->types[0]) == 4 && sg_is_own_param(function, &insn->operands[1]);
}

/* Nor can these, which LLVM takes so with "short pointers". */
static bool has_narrow_address(const struct sg_insn *insn)
{
    return insn->form->op == SG_OP_MOV && sg_type_bytes((enum sg_type)insn->types[0]) == 4 &&
           insn->operands[1].kind == SG_OPERAND_VAR &&
           (insn->operands[1].var->space == SG_SPACE_LOCAL || insn->operands[1].var->space == SG_SPACE_CONST);
}

static void analyse_function(struct sg_arena *arena, struct sg_ptx_module *module,
                             struct sg_ptx_function *function)
{
    sg_analyse_warp_sync(arena, function);
    sg_analyse_neighbours(arena, function);
    sg_analyse_loops(arena, module, function);
    sg_analyse_pointers(arena, function);
    for (uint32_t i = 0; i < function->n_vars; i++)
        function->has_local |= function->vars[i]->space == SG_SPACE_LOCAL;
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        function->waits |= insn_waits(insn);
        function->clustered |= insn_is_clustered(insn);
        function->exits |= insn->form->op == SG_OP_EXIT;
        function->has_local |= insn->form->op == SG_OP_ALLOCA || takes_param_address(function, insn);
        function->narrow_params |= has_narrow_param(function, insn);
        module->narrow_addresses |= has_narrow_address(insn);
        function->calls_indirect |= insn->call != NULL && insn->call->callee == NULL;
        for (uint32_t n = 0; n < insn->n_operands; n++)
            analyse_operand(function, &insn->operands[n]);
    }
}

void sg_analyse_module(struct sg_arena *arena, struct sg_ptx_module *module)
{
    sg_analyse_watchers(module);
    for (uint32_t i = 0; i < module->n_functions; i++)
        if (module->functions[i]->defined)
            analyse_function(arena, module, module->functions[i]);
}
