/*
 * tensor.c - copies of boxes of tensors, whose operands are in the order of their form: [map, {coordinates}]
 * and the place in shared memory. Here they are put into one order: the map's address, the coordinates, the
 * place, the rest.
 */
#include "softgpu/compiler/check/checker.h"

static void check_pointer(struct sg_checker *checker, const struct sg_ast_operand *ast,
                          struct sg_operand *out)
{
    if (ast->kind != SG_AST_ADDRESS)
        sg_check_fail(checker, "an address in brackets is wanted");
    sg_check_operand(checker, ast, out);
    sg_check_address(checker, out);
}

static void check_box(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_operand *ast)
{
    uint32_t rank = SG_MOD(insn, SG_GROUP_DIMENSIONS);
    if (ast->kind != SG_AST_ADDRESS || ast->n_items != 1 || ast->items[0].kind != SG_AST_VECTOR ||
        ast->items[0].n_items != rank)
        sg_check_fail(checker, "the address of a tensor map and %u coordinates are wanted", rank);
    struct sg_ast_operand map = *ast;
    map.n_items = 0;
    check_pointer(checker, &map, &insn->operands[0]);
    sg_check_operand(checker, &ast->items[0], &insn->operands[1]);
    for (uint32_t i = 0; i < rank; i++)
        sg_check_type(checker, &insn->operands[1].items[i], SG_S32, false, false);
}

/* No more than a hint: the operands need only be right. */
static void check_prefetch(struct sg_checker *checker, struct sg_insn *insn,
                           const struct sg_ast_instruction *ast)
{
    if (ast->n_operands != 1u + (SG_MOD(insn, SG_GROUP_CACHE_HINT) != 0))
        sg_check_fail(checker, "wrong number of operands");
    insn->operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, 2);
    check_box(checker, insn, &ast->operands[0]);
}

void sg_check_tensor(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast)
{
    if (insn->form->op == SG_OP_CP_TENSOR_PREFETCH) {
        check_prefetch(checker, insn, ast);
        return;
    }
    bool load = SG_MOD(insn, SG_GROUP_COMPLETE) == 1, several = SG_MOD(insn, SG_GROUP_MULTICAST) != 0;
    bool reduce = insn->form->op == SG_OP_CP_REDUCE_TENSOR,
         cluster = SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    uint8_t to = SG_MOD(insn, SG_GROUP_SPACE), from = SG_MOD(insn, SG_GROUP_FROM_BULK);
    uint8_t op = SG_MOD(insn, SG_GROUP_ATOM);
    if (load ? to != SG_MOD_SHARED || from != 1 || reduce || (several && !cluster)
             : to != SG_MOD_GLOBAL || from != 2 || several)
        sg_check_fail(checker, "not a form of this instruction");
    if (reduce && (op == SG_ATOM_CAS || op == SG_ATOM_EXCH))
        sg_check_fail(checker, "not an operation of this instruction");
    uint32_t wanted = 2u + load + several + (SG_MOD(insn, SG_GROUP_CACHE_HINT) != 0);
    if (ast->n_operands != wanted)
        sg_check_fail(checker, "wrong number of operands");
    insn->operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, 6);
    check_box(checker, insn, &ast->operands[load ? 1 : 0]);
    check_pointer(checker, &ast->operands[load ? 0 : 1], &insn->operands[2]);
    insn->n_operands = 3;
    if (load)
        check_pointer(checker, &ast->operands[2], &insn->operands[insn->n_operands++]);
    if (several) {
        sg_check_operand(checker, &ast->operands[3], &insn->operands[insn->n_operands]);
        sg_check_type(checker, &insn->operands[insn->n_operands++], SG_B16, false, false);
    }
    if (SG_MOD(insn, SG_GROUP_CACHE_HINT) != 0) {
        struct sg_operand policy;
        sg_check_operand(checker, &ast->operands[wanted - 1], &policy);
        sg_check_type(checker, &policy, SG_B64, false, false);
    }
}
