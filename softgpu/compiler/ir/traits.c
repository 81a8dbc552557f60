/*
 * traits.c - what analyses ask of single instructions: the registers and the classes of each.
 */
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/ir/video.h"
#include "softgpu/kernel_abi.h"

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

bool sg_is_matrix(const struct sg_insn *insn)
{
    return insn->form->op >= SG_OP_MMA && insn->form->op <= SG_OP_MOVMATRIX;
}

bool sg_is_video(const struct sg_form *form)
{
    return form->op >= SG_OP_VADD && form->op <= SG_OP_VMAD;
}

unsigned sg_video_lanes(const struct sg_form *form)
{
    const char *end = form->base;
    while (*end != '\0')
        end++;
    return end[-1] == '2' ? 2 : end[-1] == '4' ? 4 : 1;
}

bool sg_is_meeting(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_BAR:
    case SG_OP_BAR_WARP:
    case SG_OP_ELECT:
    case SG_OP_SHFL:
    case SG_OP_VOTE:
    case SG_OP_MATCH:
    case SG_OP_REDUX:
    case SG_OP_ACTIVEMASK:
        return true;
    default:
        return sg_is_matrix(insn);
    }
}

bool sg_is_point(const struct sg_insn *insn)
{
    return insn->passes || insn->aligns || insn->yields || (sg_is_meeting(insn) && !insn->joins);
}

bool sg_is_arithmetic(enum sg_op op)
{
    switch (op) {
    case SG_OP_ADD:
    case SG_OP_SUB:
    case SG_OP_MUL:
    case SG_OP_MAD:
    case SG_OP_NEG:
    case SG_OP_MIN:
    case SG_OP_MAX:
    case SG_OP_SHL:
    case SG_OP_SHR:
    case SG_OP_AND:
    case SG_OP_OR:
    case SG_OP_XOR:
    case SG_OP_NOT:
    case SG_OP_BFE:
    case SG_OP_BFI:
    case SG_OP_LOP3:
    case SG_OP_SETP:
    case SG_OP_SELP:
    case SG_OP_MOV:
    case SG_OP_CVT:
    case SG_OP_CVTA:
    case SG_OP_FADD:
    case SG_OP_FSUB:
    case SG_OP_FMUL:
        return true;
    default:
        return false;
    }
}
