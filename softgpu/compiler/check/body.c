/*
 * body.c - the body of a function: scopes, declarations, labels. Labels are visible in the whole
 * function, registers and variables in the braces that hold them.
 */
#include "softgpu/compiler/check/checker.h"

static void declare_registers(struct sg_checker *checker, const struct sg_ast_registers *ast)
{
    struct sg_symbol symbol = {.kind = ast->vector != 0  ? SG_SYMBOL_VECTOR
                                       : ast->range == 0 ? SG_SYMBOL_REG
                                                         : SG_SYMBOL_RANGE};
    symbol.regs.count = ast->vector != 0 ? ast->vector : ast->range == 0 ? 1 : ast->range;
    symbol.regs.first = checker->function->n_regs;
    for (uint32_t i = 0; i < symbol.regs.count; i++)
        sg_check_new_register(checker, ast->type);
    sg_check_declare(checker, ast->name, symbol);
}

static void declare_variable(struct sg_checker *checker, const struct sg_ast_variable *ast)
{
    struct sg_ptx_function *function = checker->function;
    struct sg_ptx_module *module = checker->module;
    struct sg_symbol symbol = {.kind = SG_SYMBOL_VAR};
    symbol.var = sg_check_variable(checker, ast, function);
    if (ast->space == SG_SPACE_GLOBAL || ast->space == SG_SPACE_CONST) {
        if (ast->initial != NULL)
            sg_check_initial(checker, ast->initial);
        *SG_PUSH(checker->arena, module->vars, module->n_vars, module->var_capacity) = symbol.var;
    } else {
        symbol.var->index = function->n_vars;
        *SG_PUSH(checker->arena, function->vars, function->n_vars, function->var_capacity) = symbol.var;
    }
    sg_check_declare(checker, ast->name, symbol);
}

static void declare_formals(struct sg_checker *checker, struct sg_ptx_function *function,
                            const struct sg_ast_function *ast)
{
    for (int side = 0; side < 2; side++) {
        uint32_t count = side == 0 ? function->n_params : function->n_returns;
        struct sg_var *formals = side == 0 ? function->params : function->returns;
        const struct sg_ast_variable *from = side == 0 ? ast->signature.params : ast->signature.returns;
        for (uint32_t i = 0; i < count; i++) {
            struct sg_symbol symbol = {.kind = SG_SYMBOL_VAR};
            symbol.var = &formals[i];
            if (formals[i].by_register) {
                symbol.kind = SG_SYMBOL_REG;
                symbol.regs.first = sg_check_new_register(checker, formals[i].type);
                symbol.regs.count = 1;
                formals[i].reg = symbol.regs.first;
            }
            sg_check_declare(checker, from[i].name, symbol);
        }
    }
}

/* Labels, tables and prototypes are declared before the instructions are looked at. */
static void declare_labels(struct sg_checker *checker, const struct sg_ast_body *body)
{
    struct sg_ptx_function *function = checker->function;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < body->n_statements; i++) {
        const struct sg_ast_statement *statement = &body->statements[i];
        checker->statement = statement;
        depth += statement->kind == SG_STATEMENT_OPEN;
        depth -= statement->kind == SG_STATEMENT_CLOSE;
        if (statement->kind != SG_STATEMENT_LABEL)
            continue;
        struct sg_label *label =
            SG_PUSH(checker->arena, function->labels, function->n_labels, function->label_capacity);
        *label = (struct sg_label){statement->name, 0,
                                   statement->line}; /* where it is: as the body is gone through */
        struct sg_symbol symbol = {.kind = SG_SYMBOL_LABEL};
        symbol.number = function->n_labels - 1;
        if (depth == 1) /* those of inner braces are declared when the braces are entered */
            sg_check_declare(checker, statement->name, symbol);
    }
}

/* Declares what the braces that open at `from` hold directly: labels, tables, prototypes. */
static void declare_inner(struct sg_checker *checker, const struct sg_ast_body *body, uint32_t from)
{
    struct sg_ptx_function *function = checker->function;
    uint32_t depth = 1;
    for (uint32_t i = from + 1; i < body->n_statements && depth > 0; i++) {
        const struct sg_ast_statement *statement = &body->statements[i];
        depth += statement->kind == SG_STATEMENT_OPEN;
        depth -= statement->kind == SG_STATEMENT_CLOSE;
        if (depth != 1)
            continue;
        checker->statement = statement;
        struct sg_symbol symbol = {.kind = SG_SYMBOL_LABEL};
        if (statement->kind == SG_STATEMENT_LABEL && from != 0) {
            for (uint32_t n = 0; n < function->n_labels; n++)
                if (function->labels[n].name.data == statement->name.data)
                    symbol.number = n;
            sg_check_declare(checker, statement->name, symbol);
        } else if (statement->kind == SG_STATEMENT_PROTOTYPE) {
            symbol.kind = SG_SYMBOL_PROTOTYPE;
            symbol.prototype = SG_NEW(checker->arena, struct sg_ptx_function);
            symbol.prototype->name = "";
            sg_check_signature(checker, symbol.prototype, &statement->prototype);
            sg_check_declare(checker, statement->name, symbol);
        } else if (statement->kind == SG_STATEMENT_TARGETS) {
            symbol.kind = SG_SYMBOL_TABLE;
            symbol.number = function->n_tables;
            struct sg_table *table =
                SG_PUSH(checker->arena, function->tables, function->n_tables, function->table_capacity);
            table->count = 0;
            table->labels = SG_NEW_ARRAY(checker->arena, uint32_t, statement->targets.count);
            sg_check_declare(checker, statement->name, symbol);
        }
    }
}

/* A table's labels; .calltargets list functions, which are callable whatever the list says. */
static void fill_table(struct sg_checker *checker, const struct sg_ast_statement *statement)
{
    struct sg_symbol *symbol = sg_check_lookup(checker, statement->name);
    struct sg_table *table = &checker->function->tables[symbol->number];
    for (uint32_t i = 0; i < statement->targets.count; i++) {
        struct sg_slice name = statement->targets.names[i];
        struct sg_symbol *target = sg_check_lookup(checker, name);
        if (target == NULL || (target->kind != SG_SYMBOL_LABEL && target->kind != SG_SYMBOL_FUNCTION))
            sg_check_fail(checker, "unknown target '%.*s'", (int)name.size, name.data);
        if (target->kind == SG_SYMBOL_LABEL)
            table->labels[table->count++] = target->number;
    }
}

static void enter(struct sg_checker *checker)
{
    if (checker->depth == SG_CHECK_SCOPES)
        sg_check_fail(checker, "braces are nested too deeply");
    checker->scopes[checker->depth++] = (struct sg_map){0};
}

/* Checks an instruction; one that is not known is noted. */
static void check_written(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    if (setjmp(checker->unknown) == 0)
        sg_check_written(checker, ast);
}

/* What stands for a function with an instruction that is not known: all of it is a trap. */
static void make_trap(struct sg_checker *checker, struct sg_ptx_function *function)
{
    static const struct sg_slice trap = {"trap", 4};
    function->n_insns = function->n_labels = function->n_tables = 0;
    sg_check_instruction(checker, &(struct sg_ast_instruction){.base = trap, .text = trap});
}

void sg_check_body(struct sg_checker *checker, struct sg_ptx_function *function,
                   const struct sg_ast_function *ast, const struct sg_ast_body *body)
{
    uint32_t n_labels = 0;
    checker->function = function;
    checker->depth = 0;
    checker->spare = NULL;
    checker->n_spare = checker->spare_capacity = 0;
    checker->statement = &body->statements[0];
    function->insns = SG_NEW_ARRAY(checker->arena, struct sg_insn, body->n_instructions);
    function->insn_capacity = body->n_instructions;
    enter(checker); /* formals */
    declare_formals(checker, function, ast);
    for (uint32_t i = 0; i < body->n_statements; i++) {
        const struct sg_ast_statement *statement = &body->statements[i];
        checker->statement = statement;
        switch (statement->kind) {
        case SG_STATEMENT_OPEN:
            enter(checker);
            if (i == 0)
                declare_labels(checker, body);
            declare_inner(checker, body, i);
            break;
        case SG_STATEMENT_CLOSE:
            checker->depth--;
            break;
        case SG_STATEMENT_REGISTERS:
            declare_registers(checker, &statement->registers);
            break;
        case SG_STATEMENT_VARIABLE:
            declare_variable(checker, &statement->variable);
            break;
        case SG_STATEMENT_INSTRUCTION:
            check_written(checker, &statement->instruction);
            break;
        case SG_STATEMENT_TARGETS:
            fill_table(checker, statement);
            break;
        case SG_STATEMENT_LABEL:
            function->labels[n_labels++].insn = function->n_insns;
            break;
        case SG_STATEMENT_PROTOTYPE:
            break;
        }
    }
    if (function->unknown != NULL)
        make_trap(checker, function);
    checker->statement = NULL;
    checker->function = NULL;
}
