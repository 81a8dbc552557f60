/*
 * pointers.c - which registers are best kept as pointers, so that LLVM sees which memory a loop walks over:
 * those that addresses are made from, as far as can be guessed. A wrong guess costs speed alone.
 */
#include "softgpu/compiler/analysis/analysis.h"

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
