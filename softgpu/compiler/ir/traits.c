/*
 * traits.c - which registers an instruction reads and writes.
 */
#include "softgpu/compiler/regions/regions.h"

static void visit_operand(const struct sg_operand *operand, bool written, bool maybe,
                          sg_register_visitor visit, void *user)
{
    if (operand->kind == SG_OPERAND_REG) {
        visit(user, operand->reg, written, maybe);
    } else if (operand->kind == SG_OPERAND_VECTOR) {
        for (uint32_t i = 0; i < operand->count; i++)
            visit_operand(&operand->items[i], written, maybe, visit, user);
    }
}

/* Whether an operand of a texture instruction is written: their forms do not say (texture.c). */
static bool texture_writes(const struct sg_insn *insn, uint32_t operand)
{
    switch (insn->form->op) {
    case SG_OP_TEX:
        return operand == 2 || (insn->texture & SG_TEX_RESIDENT && operand == insn->n_operands - 1u);
    case SG_OP_SULD:
        return operand == 2;
    case SG_OP_TXQ:
        return operand == 1;
    default:
        return false;
    }
}

void sg_visit_registers(const struct sg_insn *insn, sg_register_visitor visit, void *user)
{
    const struct sg_form *form = insn->form;
    bool maybe = insn->guard != 0, known = form->n_operands > 0; /* textures have forms without operands */
    if (insn->guard != 0)
        visit(user, insn->guard - 1, false, false);
    if (insn->call != NULL) {
        visit_operand(&insn->call->target, false, false, visit, user);
        for (uint32_t i = 0; i < insn->call->n_arguments; i++)
            visit_operand(&insn->call->arguments[i], false, false, visit, user);
        for (uint32_t i = 0; i < insn->call->n_returns; i++)
            visit_operand(&insn->call->returns[i], true, maybe, visit, user);
        return;
    }
    for (uint32_t i = 0; i < insn->n_operands; i++) {
        bool written = known ? (form->operand[i].flags & SG_OPF_DEST) != 0 : texture_writes(insn, i);
        visit_operand(&insn->operands[i], written, written && maybe, visit, user);
    }
    if (known && insn->n_operands > 0 && (form->operand[0].flags & SG_OPF_PAIR) != 0)
        visit_operand(&insn->operands[insn->n_operands], true, maybe, visit, user);
}
