/*
 * scope.c - what all checks build on: failures, and the names of the module and of the braces of a body.
 */
#include "softgpu/compiler/check/checker.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

void sg_check_fail(struct sg_checker *checker, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    const struct sg_ast_statement *statement = checker->statement;
    uint32_t line = statement == NULL ? 0 : statement->line;
    if (statement != NULL && statement->kind == SG_STATEMENT_INSTRUCTION)
        sg_fail(checker->arena->diagnostics, SG_COMPILE_INVALID_PTX, line, "%s: %.*s", message,
                (int)statement->instruction.text.size, statement->instruction.text.data);
    sg_fail(checker->arena->diagnostics, SG_COMPILE_INVALID_PTX, line, "%s", message);
}

void sg_check_unknown(struct sg_checker *checker, const char *format, ...)
{
    const struct sg_slice *text = &checker->statement->instruction.text;
    char message[512], line[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    const int size = snprintf(line, sizeof(line), "ptx:%u: %s: %.*s", checker->statement->line, message,
                              (int)text->size, text->data);
    const struct sg_slice all = {line,
                                 size < (int)sizeof(line) ? (uint32_t)size : (uint32_t)sizeof(line) - 1};
    if (checker->function->unknown == NULL)
        checker->function->unknown = sg_arena_string(checker->arena, all);
    longjmp(checker->unknown, 1);
}

void sg_check_fail_at(struct sg_checker *checker, uint32_t line, const char *message, struct sg_slice name)
{
    sg_fail(checker->arena->diagnostics, SG_COMPILE_INVALID_PTX, line, "%s '%.*s'", message, (int)name.size,
            name.data);
}

struct sg_symbol *sg_check_module_symbol(struct sg_checker *checker, struct sg_slice name)
{
    struct sg_symbol *own = sg_map_get(checker->unit, name);
    return own != NULL ? own : sg_map_get(&checker->module->symbols, name);
}

struct sg_symbol *sg_check_lookup(struct sg_checker *checker, struct sg_slice name)
{
    for (uint32_t depth = checker->depth; depth-- > 0;) {
        struct sg_symbol *symbol = sg_map_get(&checker->scopes[depth], name);
        if (symbol != NULL)
            return symbol;
    }
    return sg_check_module_symbol(checker, name);
}

uint32_t sg_check_register(struct sg_checker *checker, struct sg_slice name)
{
    uint32_t digits = 0;
    while (digits < name.size && digits < 9 && isdigit((unsigned char)name.data[name.size - 1 - digits]))
        digits++;
    uint32_t number = 0;
    for (uint32_t i = name.size - digits; i < name.size; i++)
        number = number * 10 + (uint32_t)(name.data[i] - '0');
    struct sg_slice prefix = {name.data, name.size - digits};
    for (uint32_t depth = checker->depth; depth-- > 0;) {
        struct sg_symbol *symbol = sg_map_get(&checker->scopes[depth], name);
        if (symbol != NULL)
            return symbol->kind == SG_SYMBOL_REG ? symbol->regs.first : UINT32_MAX;
        symbol = digits == 0 ? NULL : sg_map_get(&checker->scopes[depth], prefix);
        if (symbol != NULL && symbol->kind == SG_SYMBOL_RANGE && number < symbol->regs.count)
            return symbol->regs.first + number;
    }
    return UINT32_MAX;
}

void sg_check_declare(struct sg_checker *checker, struct sg_slice name, struct sg_symbol symbol)
{
    struct sg_map *scope = &checker->scopes[checker->depth - 1];
    struct sg_symbol *known = sg_map_get(scope, name);
    /* "r" may be a register and "r<9>" a range at the same time only under two names */
    if (known != NULL)
        sg_check_fail(checker, "'%.*s' is already declared here", (int)name.size, name.data);
    struct sg_symbol *copy = SG_NEW(checker->scratch, struct sg_symbol);
    *copy = symbol;
    sg_map_put(scope, checker->scratch, name, copy);
}

uint32_t sg_check_new_register(struct sg_checker *checker, enum sg_type type)
{
    struct sg_ptx_function *function = checker->function;
    struct sg_reg *reg = SG_PUSH(checker->arena, function->regs, function->n_regs, function->reg_capacity);
    reg->type = (uint8_t)type;
    return function->n_regs - 1;
}

void sg_check_take_address(struct sg_checker *checker, struct sg_ptx_function *function)
{
    struct sg_ptx_module *module = checker->module;
    if (function->alias_of != NULL)
        function = function->alias_of;
    if (function->address_taken)
        return;
    function->address_taken = true;
    function->handle = module->n_handles;
    *SG_PUSH(checker->arena, module->handles, module->n_handles, module->handle_capacity) = function;
}
