/*
 * variable.c - declarations of variables, signatures of functions, and the symbols in initial values.
 */
#include "common/base/align.h"
#include "softgpu/compiler/check/checker.h"

/* A thread has at most 512 KiB of its own memory; no device has shared memory of this size. */
#define SG_LOCAL_LIMIT  (512u << 10)
#define SG_SHARED_LIMIT (1u << 20)

struct sg_var *sg_check_variable(struct sg_checker *checker, const struct sg_ast_variable *ast,
                                 struct sg_ptx_function *function)
{
    struct sg_var *var = SG_NEW(checker->arena, struct sg_var);
    uint32_t element = sg_type_bytes(ast->type) * ast->vector;
    var->name = sg_arena_string(checker->arena, ast->name);
    var->space = ast->space;
    var->type = ast->type;
    var->line = ast->line;
    var->linkage = ast->linkage;
    var->initial = ast->initial;
    var->managed = ast->managed;
    var->reference = ast->reference;
    var->function = function;
    var->align = ast->align != 0 ? ast->align : element == 0 ? 1 : element;
    var->unsized = ast->is_array && ast->count == 0;
    if (__builtin_mul_overflow((uint64_t)element, ast->count, &var->size) || var->size > UINT64_C(1) << 40)
        sg_check_fail_at(checker, ast->line, "variable is too large:", ast->name);
    if (((ast->space == SG_SPACE_LOCAL || ast->space == SG_SPACE_PARAM) && var->size > SG_LOCAL_LIMIT) ||
        (ast->space == SG_SPACE_SHARED && var->size > SG_SHARED_LIMIT))
        sg_check_fail_at(checker, ast->line, "variable is too large:", ast->name);
    if (var->unsized && ast->linkage != SG_LINKAGE_EXTERN)
        sg_check_fail_at(checker, ast->line, "only .extern arrays can be without a size:", ast->name);
    if (ast->reference && (ast->space != SG_SPACE_GLOBAL || ast->is_array || ast->initial != NULL))
        sg_check_fail_at(checker, ast->line,
                         "references are .global, single and without initial values here:", ast->name);
    if (ast->initial != NULL && ast->space != SG_SPACE_GLOBAL && ast->space != SG_SPACE_CONST)
        sg_check_fail_at(checker, ast->line,
                         "only .global and .const variables can have initial values:", ast->name);
    return var;
}

/* How many bytes of parameters ptxas and the driver allow: more than 4352 came with PTX 8.1, for devices from 7.0 on. */
static uint32_t most_parameters(const struct sg_checker *checker, const struct sg_ptx_function *function)
{
    const struct sg_ptx_module *module = checker->module;
    if (!function->is_entry)
        return 65536;
    return module->version >= 81 && module->target >= 70 ? 32764 : 4352;
}

void sg_check_signature(struct sg_checker *checker, struct sg_ptx_function *function,
                        const struct sg_ast_prototype *prototype)
{
    struct {
        const struct sg_ast_variable *from;
        uint32_t count;
        struct sg_var **to;
        uint32_t *to_count;
    } sides[2] = {{prototype->params, prototype->n_params, &function->params, &function->n_params},
                  {prototype->returns, prototype->n_returns, &function->returns, &function->n_returns}};
    for (int side = 0; side < 2; side++) {
        *sides[side].to = SG_NEW_ARRAY(checker->arena, struct sg_var, sides[side].count);
        *sides[side].to_count = sides[side].count;
        uint64_t offset = 0;
        for (uint32_t i = 0; i < sides[side].count; i++) {
            const struct sg_ast_variable *ast = &sides[side].from[i];
            struct sg_var *var = &(*sides[side].to)[i];
            if (ast->space != SG_SPACE_PARAM && (ast->space != SG_SPACE_REG || function->is_entry))
                sg_check_fail_at(checker, ast->line, "parameter is not in .param space:", ast->name);
            if (ast->space == SG_SPACE_REG && ast->vector > 1)
                sg_check_fail_at(checker, ast->line, "a parameter is a vector of registers:", ast->name);
            struct sg_ast_variable copy = *ast;
            if (copy.is_array && copy.count == 0)
                copy.linkage = SG_LINKAGE_EXTERN; /* .param .b8 x[]: variadic */
            *var = *sg_check_variable(checker, &copy, function);
            var->index = i;
            var->is_return = side == 1;
            var->by_register = ast->space == SG_SPACE_REG;
            var->space = SG_SPACE_PARAM;
            offset = rg_align_up(offset, var->align);
            var->offset = (uint32_t)offset;
            offset += var->size;
        }
        if (side == 0) {
            const uint32_t most = most_parameters(checker, function);
            if (offset > most)
                sg_fail(checker->arena->diagnostics, SG_COMPILE_INVALID_PTX, function->line,
                        "parameters of '%s' are too large: %llu bytes of at most %u", function->name,
                        (unsigned long long)offset, most);
            function->params_size = (uint32_t)offset;
        }
    }
}

/* Every symbol in an initialiser must exist; functions in it can be called through pointers. */
void sg_check_initial(struct sg_checker *checker, struct sg_ast_initial *initial)
{
    if (initial->kind == SG_INITIAL_SYMBOL) {
        struct sg_symbol *symbol = sg_check_module_symbol(checker, initial->symbol);
        if (symbol == NULL)
            sg_check_fail_at(checker, initial->line, "unknown symbol", initial->symbol);
        if (symbol->kind == SG_SYMBOL_FUNCTION)
            sg_check_take_address(checker, symbol->function);
        initial->resolved = symbol;
    }
    for (uint32_t i = 0; i < initial->n_items; i++)
        sg_check_initial(checker, &initial->items[i]);
}
