/*
 * control.c - the rules of calls, indexed jumps and what threads do together. The call instruction is
 *
 *     call{.uni} (returns), target, (arguments), prototype;
 *
 * of which returns, arguments and (for calls by name) the prototype may be missing.
 */
#include "softgpu/compiler/check/checker.h"

static struct sg_operand *check_list(struct sg_checker *checker, const struct sg_ast_operand *list,
                                     uint32_t *count)
{
    struct sg_operand *operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, list->n_items);
    *count = list->n_items;
    for (uint32_t i = 0; i < list->n_items; i++) {
        sg_check_operand(checker, &list->items[i], &operands[i]);
        if (operands[i].kind == SG_OPERAND_VAR && operands[i].var->space != SG_SPACE_PARAM)
            sg_check_fail(checker, "argument '%s' is not in .param space", operands[i].var->name);
        if (operands[i].kind == SG_OPERAND_VECTOR || operands[i].kind == SG_OPERAND_LABEL)
            sg_check_fail(checker, "not an argument");
    }
    return operands;
}

/* Arguments that are registers or numbers take the shape of the formal, and so need one. */
static void check_shapes(struct sg_checker *checker, const struct sg_ptx_function *signature,
                         struct sg_call *call)
{
    if (signature->n_params != call->n_arguments || signature->n_returns != call->n_returns)
        sg_check_fail(checker, "the call has %u arguments and %u results, the function %u and %u",
                      call->n_arguments, call->n_returns, signature->n_params, signature->n_returns);
    call->formals_in = signature->params;
    call->formals_out = signature->returns;
    for (uint32_t i = 0; i < call->n_arguments; i++) {
        const struct sg_operand *argument = &call->arguments[i];
        if (argument->kind == SG_OPERAND_VAR && argument->var->size < signature->params[i].size)
            sg_check_fail(checker, "argument %u is smaller than the parameter", i + 1);
    }
    for (uint32_t i = 0; i < call->n_returns; i++) {
        const struct sg_operand *result = &call->returns[i];
        if (result->kind == SG_OPERAND_VAR && result->var->size < signature->returns[i].size)
            sg_check_fail(checker, "result %u is smaller than what the function returns", i + 1);
    }
}

void sg_check_call(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast)
{
    struct sg_call *call = SG_NEW(checker->arena, struct sg_call);
    uint32_t at = 0;
    insn->call = call;
    if (at < ast->n_operands && ast->operands[at].kind == SG_AST_LIST)
        call->returns = check_list(checker, &ast->operands[at++], &call->n_returns);
    if (at == ast->n_operands || ast->operands[at].kind != SG_AST_NAME)
        sg_check_fail(checker, "the call names no function");
    struct sg_operand target;
    sg_check_operand(checker, &ast->operands[at++], &target);
    if (at < ast->n_operands && ast->operands[at].kind == SG_AST_LIST)
        call->arguments = check_list(checker, &ast->operands[at++], &call->n_arguments);
    if (target.kind == SG_OPERAND_FUNCTION) {
        call->callee = target.function->alias_of != NULL ? target.function->alias_of : target.function;
        if (call->callee->is_entry)
            sg_check_fail(checker, "a kernel cannot be called");
        check_shapes(checker, call->callee, call);
        return;
    }
    if (target.kind != SG_OPERAND_REG || sg_types[checker->function->regs[target.reg].type].bits != 64)
        sg_check_fail(checker, "the target of a call must be a function or a 64-bit register");
    call->target = target;
    if (at == ast->n_operands)
        sg_check_fail(checker, "a call through a register needs a prototype");
    struct sg_slice name = ast->operands[at].name;
    struct sg_symbol *symbol = sg_check_lookup(checker, name);
    if (symbol != NULL && symbol->kind == SG_SYMBOL_PROTOTYPE)
        check_shapes(checker, symbol->prototype, call);
    else if (symbol == NULL || symbol->kind != SG_SYMBOL_TABLE)
        sg_check_fail(checker, "'%.*s' is not a call prototype", (int)name.size, name.data);
}

/* --- the rest of control --- */

void sg_check_branch_indexed(struct sg_checker *checker, struct sg_insn *insn)
{
    if (insn->operands[1].kind != SG_OPERAND_TABLE)
        sg_check_fail(checker, "operand 2 must be a .branchtargets label");
}

void sg_check_barrier(struct sg_checker *checker, struct sg_insn *insn)
{
    bool red = SG_MOD(insn, SG_GROUP_BAR) == SG_BAR_RED;
    if (red != (SG_MOD(insn, SG_GROUP_REDUCE) != 0) ||
        (red && (insn->types[0] == SG_PRED) != (SG_MOD(insn, SG_GROUP_REDUCE) != SG_REDUCE_POPC)) ||
        (SG_MOD(insn, SG_GROUP_BAR) == SG_BAR_ARRIVE && insn->n_operands != 2))
        sg_check_fail(checker, "not a form of this instruction");
}

void sg_check_vote(struct sg_checker *checker, struct sg_insn *insn)
{
    if ((SG_MOD(insn, SG_GROUP_VOTE) == SG_VOTE_BALLOT) != (insn->types[0] == SG_B32))
        sg_check_fail(checker, "not a form of this instruction");
}

void sg_check_redux(struct sg_checker *checker, struct sg_insn *insn)
{
    if (insn->types[0] == SG_F32 && SG_MOD(insn, SG_GROUP_REDUX) != SG_REDUX_MIN &&
        SG_MOD(insn, SG_GROUP_REDUX) != SG_REDUX_MAX)
        sg_check_fail(checker, "the operation does not fit type .f32");
}
