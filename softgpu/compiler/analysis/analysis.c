/*
 * analysis.c - facts of functions, what a kernel reaches, the layout of its shared memory.
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/uniformity/warp_sync.h"

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

static void analyse_function(struct sg_arena *arena, const struct sg_ptx_module *module,
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

/* --- pointers --- */

static bool mark(struct sg_ptx_function *function, const struct sg_operand *operand)
{
    if (operand->kind != SG_OPERAND_REG || sg_types[function->regs[operand->reg].type].bits != 64 ||
        function->regs[operand->reg].type == SG_F64 || function->regs[operand->reg].pointer)
        return false;
    return function->regs[operand->reg].pointer = true;
}

/* Is this operand more likely an address than an offset (a product, or a conversion)? */
static bool looks_like_base(const struct sg_ptx_function *function, const uint8_t *made_by,
                            const struct sg_operand *operand)
{
    if (operand->kind != SG_OPERAND_REG || sg_types[function->regs[operand->reg].type].bits != 64)
        return false;
    return made_by[operand->reg] != 1;
}

void sg_analyse_pointers(struct sg_arena *arena, struct sg_ptx_function *function)
{
    if (function->n_regs == 0)
        return;
    /* 1: the register is an offset by its looks */
    uint8_t *made_by = sg_arena_alloc(arena, function->n_regs);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        enum sg_op op = insn->form->op;
        if (insn->n_operands == 0 || insn->operands[0].kind != SG_OPERAND_REG)
            continue;
        if (op == SG_OP_MUL || op == SG_OP_SHL || op == SG_OP_CVT || op == SG_OP_MAD || op == SG_OP_AND ||
            op == SG_OP_NEG || op == SG_OP_SHR || op == SG_OP_BFI || op == SG_OP_BFE)
            made_by[insn->operands[0].reg] = 1;
    }
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = function->n_insns; i-- > 0;) {
            const struct sg_insn *insn = &function->insns[i];
            const struct sg_operand *operands = insn->operands;
            uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
            switch (insn->form->op) {
            case SG_OP_LD:
                changed |= space != SG_MOD_SHARED && space != SG_MOD_PARAM && mark(function, &operands[1]);
                break;
            case SG_OP_ST:
                changed |= space != SG_MOD_SHARED && space != SG_MOD_PARAM && mark(function, &operands[0]);
                break;
            case SG_OP_ADD:
                if (operands[0].kind != SG_OPERAND_REG || !function->regs[operands[0].reg].pointer)
                    break;
                changed |= mark(function, looks_like_base(function, made_by, &operands[1]) ||
                                                  operands[2].kind != SG_OPERAND_REG
                                              ? &operands[1]
                                              : &operands[2]);
                break;
            case SG_OP_MOV:
            case SG_OP_CVTA:
                if (operands[0].kind == SG_OPERAND_REG && function->regs[operands[0].reg].pointer &&
                    space != SG_MOD_SHARED)
                    changed |= mark(function, &operands[1]);
                break;
            default:
                break;
            }
        }
    }
}
