/*
 * video.c - the operands of video instructions: selected parts and lanes, signs, what goes with what.
 */
#include "softgpu/compiler/ir/video.h"

#include "softgpu/compiler/check/checker.h"

/* The digit at a place of a selector, below `limit`. */
static unsigned digit(struct sg_checker *checker, struct sg_slice text, uint32_t at, unsigned limit)
{
    unsigned value = (unsigned)(text.data[at] - '0');
    if (value >= limit)
        sg_check_fail(checker, "'.%.*s' selects nothing here", (int)text.size, text.data);
    return value;
}

static uint16_t part(struct sg_checker *checker, struct sg_slice text)
{
    bool byte = text.data[0] == 'b';
    if (text.size != 2 || (!byte && text.data[0] != 'h'))
        sg_check_fail(checker, "'.%.*s' selects nothing here", (int)text.size, text.data);
    return (uint16_t)(byte ? 1 + digit(checker, text, 1, 4) : 5 + digit(checker, text, 1, 2));
}

/* .h10, .b310 …: digits that become smaller. */
static uint16_t mask(struct sg_checker *checker, struct sg_slice text, unsigned lanes)
{
    unsigned bits = 0, above = lanes;
    if (text.size < 2 || text.data[0] != (lanes == 2 ? 'h' : 'b'))
        sg_check_fail(checker, "'.%.*s' is no mask of lanes", (int)text.size, text.data);
    for (uint32_t i = 1; i < text.size; i++) {
        above = digit(checker, text, i, above);
        bits |= 1u << above;
    }
    return (uint16_t)bits;
}

/* .h32, .b7610 …: a digit for each lane, the highest first. */
static uint16_t choice(struct sg_checker *checker, struct sg_slice text, unsigned lanes)
{
    unsigned bits = SG_VIDEO_CHOICE;
    if (text.size != lanes + 1 || text.data[0] != (lanes == 2 ? 'h' : 'b'))
        sg_check_fail(checker, "'.%.*s' is no choice of lanes", (int)text.size, text.data);
    for (unsigned i = 0; i < lanes; i++)
        bits |= digit(checker, text, lanes - i, 2 * lanes) << (3 * i);
    return (uint16_t)bits;
}

void sg_check_video_operand(struct sg_checker *checker, const struct sg_insn *insn, uint32_t number,
                            const struct sg_ast_operand *ast, struct sg_operand *out)
{
    struct sg_ast_operand plain = *ast;
    unsigned lanes = sg_video_lanes(insn->form);
    bool selects = ast->kind == SG_AST_NAME && ast->component.size != 0 && number < 3 &&
                   sg_check_register(checker, ast->name) != UINT32_MAX;
    if (selects)
        plain.component = (struct sg_slice){0};
    if (insn->form->op == SG_OP_VMAD && number > 0)
        plain.minus = false;
    sg_check_operand(checker, &plain, out);
    out->minus = ast->minus;
    if (selects)
        out->selector = lanes == 1    ? part(checker, ast->component)
                        : number == 0 ? mask(checker, ast->component, lanes)
                                      : choice(checker, ast->component, lanes);
}

void sg_check_video(struct sg_checker *checker, struct sg_insn *insn)
{
    const struct sg_operand *operands = insn->operands;
    if (SG_MOD(insn, SG_GROUP_CMP) > SG_HS)
        sg_check_fail(checker, "not a comparison of this instruction");
    if (insn->form->op == SG_OP_VMAD) {
        bool minus = operands[1].minus || operands[2].minus || operands[3].minus;
        if (operands[0].selector != 0 || (minus && SG_MOD(insn, SG_GROUP_PLUS_ONE) != 0) ||
            (operands[1].minus != operands[2].minus && operands[3].minus))
            sg_check_fail(checker, "not a form of this instruction");
        return;
    }
    bool merges = operands[0].selector != 0;
    bool second = SG_MOD(insn, SG_GROUP_SECOND) != 0 || SG_MOD(insn, SG_GROUP_ACCUMULATE) != 0;
    if (sg_video_lanes(insn->form) == 1 && merges && second)
        sg_check_fail(checker, "a part of the result and a second operation do not go together");
    if ((merges || second) && insn->n_operands < 4)
        sg_check_fail(checker, "wrong number of operands");
}
