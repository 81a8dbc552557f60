/*
 * instruction.c - one instruction: its row of the instruction table, its operands, and the rules that the
 * table cannot say. This file alone knows the checks of all groups.
 */
#include "softgpu/compiler/check/checker.h"
#include "softgpu/compiler/ir/video.h"

#include <string.h>

static enum sg_type operand_type(const struct sg_insn *insn, const struct sg_operand_form *form)
{
    if (form->type_place < 0)
        return form->type;
    enum sg_type type = (enum sg_type)insn->types[form->type_place];
    if (!form->doubled || SG_MOD(insn, SG_GROUP_WIDE) != SG_WIDE)
        return type;
    return sg_type_widened(type);
}

static void check_operands(struct sg_checker *checker, struct sg_insn *insn,
                           const struct sg_ast_instruction *ast)
{
    /* one more than written, for the second result of p|q, which becomes the last operand */
    insn->operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, ast->n_operands + 1);
    insn->n_operands = (uint8_t)ast->n_operands;
    uint32_t width = SG_MOD(insn, SG_GROUP_VEC) == 0 ? 1 : 1u << SG_MOD(insn, SG_GROUP_VEC);
    for (uint32_t i = 0; i < ast->n_operands; i++) {
        const struct sg_operand_form *form = &insn->form->operand[i];
        struct sg_operand *operand = &insn->operands[i];
        const struct sg_ast_operand *written = &ast->operands[i];
        if ((form->flags & SG_OPF_ADDRESS) != 0 && written->kind != SG_AST_ADDRESS)
            sg_check_fail(checker, "operand %u must be an address in brackets", i + 1);
        if ((form->flags & (SG_OPF_ADDRESS | SG_OPF_ANY)) == 0 && written->kind == SG_AST_ADDRESS)
            sg_check_fail(checker, "operand %u cannot be an address in brackets", i + 1);
        if (sg_is_video(insn->form))
            sg_check_video_operand(checker, insn, i, written, operand);
        else
            sg_check_operand(checker, written, operand);
        if (written->pair != NULL) {
            if ((form->flags & SG_OPF_PAIR) == 0)
                sg_check_fail(checker, "operand %u cannot be a pair", i + 1);
            sg_check_operand(checker, written->pair, &insn->operands[ast->n_operands]);
            sg_check_type(checker, &insn->operands[ast->n_operands], SG_PRED, true, false);
        }
        if ((form->flags & SG_OPF_ANY) != 0)
            continue;
        if ((form->flags & SG_OPF_ADDRESS) != 0) {
            sg_check_address(checker, operand);
            continue;
        }
        if ((form->flags & SG_OPF_LABEL) != 0) {
            if (operand->kind != SG_OPERAND_LABEL)
                sg_check_fail(checker, "operand %u must be a label", i + 1);
            continue;
        }
        bool dest = (form->flags & SG_OPF_DEST) != 0, wider = (form->flags & SG_OPF_WIDER) != 0;
        enum sg_type type = operand_type(insn, form);
        if (type == SG_TYPE_NONE)
            sg_check_fail(checker, ".wide does not fit the type");
        if ((form->flags & SG_OPF_VECTOR) != 0 && width > 1) {
            if (operand->kind != SG_OPERAND_VECTOR || operand->count != width)
                sg_check_fail(checker, "operand %u must be a vector of %u", i + 1, width);
            for (uint32_t n = 0; n < width; n++)
                sg_check_type(checker, &operand->items[n], type, dest, wider);
            continue;
        }
        /* a vector of one, {r}, is the register */
        if (operand->kind == SG_OPERAND_VECTOR && operand->count == 1 && (form->flags & SG_OPF_VECTOR) != 0)
            *operand = operand->items[0];
        sg_check_type(checker, operand, type, dest, wider);
    }
}

/* The rules that the instruction table cannot say, by opcodes from the first to the last. */
static const struct {
    enum sg_op first, last;
    void (*check)(struct sg_checker *checker, struct sg_insn *insn);
} rules[] = {
    {SG_OP_MOV, SG_OP_MOV, sg_check_mov},
    {SG_OP_CVT, SG_OP_CVT, sg_check_conversion},
    {SG_OP_CVT_PACK, SG_OP_CVT_PACK, sg_check_pair_conversion},
    {SG_OP_MAD, SG_OP_MAD, sg_check_multiply_add},
    {SG_OP_FADD, SG_OP_FMA, sg_check_rounding},
    {SG_OP_FDIV, SG_OP_SQRT, sg_check_division},
    {SG_OP_LD, SG_OP_ST, sg_check_memory},
    {SG_OP_CVTA, SG_OP_CVTA, sg_check_cvta},
    {SG_OP_ATOM, SG_OP_RED, sg_check_atomic},
    {SG_OP_CP_BULK, SG_OP_CP_BULK, sg_check_bulk_copy},
    {SG_OP_CP_REDUCE_BULK, SG_OP_CP_REDUCE_BULK, sg_check_bulk_reduction},
    {SG_OP_ST_ASYNC, SG_OP_RED_ASYNC, sg_check_store_async},
    {SG_OP_BRX, SG_OP_BRX, sg_check_branch_indexed},
    {SG_OP_BAR, SG_OP_BAR, sg_check_barrier},
    {SG_OP_VOTE, SG_OP_VOTE, sg_check_vote},
    {SG_OP_REDUX, SG_OP_REDUX, sg_check_redux},
    {SG_OP_MMA, SG_OP_MOVMATRIX, sg_check_mma},
    {SG_OP_VADD, SG_OP_VMAD, sg_check_video},
};

/* Opcodes whose operands have a grammar of their own. */
static const struct {
    enum sg_op first, last;
    void (*check)(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast);
} grammars[] = {
    {SG_OP_CALL, SG_OP_CALL, sg_check_call},
    {SG_OP_TEX, SG_OP_SURED, sg_check_texture},
    {SG_OP_CP_TENSOR, SG_OP_CP_TENSOR_PREFETCH, sg_check_tensor},
};

void sg_check_instruction(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    struct sg_ptx_function *function = checker->function;
    const struct sg_form *texture = sg_check_texture_form(ast->base);
    static const uint8_t no_mods[SG_GROUP_COUNT];
    const struct sg_opcode *opcode = texture ? NULL : sg_check_opcode(checker, ast);
    struct sg_insn *insn =
        SG_PUSH(checker->arena, function->insns, function->n_insns, function->insn_capacity);
    *insn = (struct sg_insn){.form = opcode ? opcode->form : texture,
                             .mods = opcode ? opcode->mods : no_mods,
                             .line = checker->statement->line,
                             .text = ast->text};
    const struct sg_ast_place *place = &checker->statement->place;
    if (place->file < checker->n_files) {
        insn->source.file = checker->files[place->file];
        insn->source.line = place->line;
    }
    if (opcode != NULL)
        memcpy(insn->types, opcode->types, sizeof(insn->types));
    if (ast->guard.size != 0) {
        uint32_t guard = sg_check_register(checker, ast->guard);
        if (guard == UINT32_MAX || function->regs[guard].type != SG_PRED)
            sg_check_fail(checker, "the guard '%.*s' is not a predicate", (int)ast->guard.size,
                          ast->guard.data);
        insn->guard = guard + 1;
        insn->guard_negated = ast->guard_negated;
    }
    enum sg_op op = insn->form->op;
    for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++)
        if (op >= grammars[i].first && op <= grammars[i].last) {
            grammars[i].check(checker, insn, ast);
            return;
        }
    check_operands(checker, insn, ast);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (op >= rules[i].first && op <= rules[i].last)
            rules[i].check(checker, insn);
}
