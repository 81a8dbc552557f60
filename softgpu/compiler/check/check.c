/*
 * check.c - from a parsed module to a checked one: module scope. Declares all variables and functions first,
 * so that bodies and initialisers may name what follows them, then checks the bodies.
 */
#include "softgpu/compiler/check/checker.h"

#include <stdlib.h>
#include <string.h>

/* What is unknown of PTX 9 is an error of its own; what 10 may change nobody knows. */
#define NEWEST_VERSION  99
#define SG_SOURCE_LIMIT (1u << 16) /* numbers of source files */

/* The symbol that a declaration with this linkage would declare again. */
static struct sg_symbol *declared_before(struct sg_checker *checker, struct sg_slice name,
                                         enum sg_linkage linkage)
{
    struct sg_symbol *own = sg_map_get(checker->unit, name);
    return own != NULL || linkage == SG_LINKAGE_NONE ? own : sg_map_get(&checker->module->symbols, name);
}

static void declare_symbol(struct sg_checker *checker, struct sg_slice name, enum sg_linkage linkage,
                           struct sg_symbol symbol)
{
    struct sg_symbol *copy = SG_NEW(checker->arena, struct sg_symbol);
    *copy = symbol;
    sg_map_put(linkage == SG_LINKAGE_NONE ? checker->unit : &checker->module->symbols, checker->arena, name,
               copy);
}

static bool is_strong(enum sg_linkage linkage)
{
    return linkage == SG_LINKAGE_NONE || linkage == SG_LINKAGE_VISIBLE;
}

static void declare_module_variable(struct sg_checker *checker, const struct sg_ast_variable *ast)
{
    struct sg_ptx_module *module = checker->module;
    struct sg_symbol *known = declared_before(checker, ast->name, ast->linkage);
    if (ast->space == SG_SPACE_REG || ast->space == SG_SPACE_LOCAL || ast->space == SG_SPACE_PARAM)
        sg_check_fail_at(checker, ast->line, "state space not allowed at module scope:", ast->name);
    struct sg_var *var = sg_check_variable(checker, ast, NULL);
    if (known != NULL) {
        /* a declaration and its definition, in either order; a weak or common definition and any other */
        if (known->kind != SG_SYMBOL_VAR)
            sg_check_fail_at(checker, ast->line, "already defined:", ast->name);
        bool known_strong = is_strong(known->var->linkage), strong = is_strong(ast->linkage);
        if (known_strong && strong)
            sg_check_fail_at(checker, ast->line, "already defined:", ast->name);
        if (strong || (known->var->linkage == SG_LINKAGE_EXTERN && ast->linkage != SG_LINKAGE_EXTERN))
            *known->var = *var;
        return;
    }
    declare_symbol(checker, ast->name, ast->linkage, (struct sg_symbol){.kind = SG_SYMBOL_VAR, .var = var});
    *SG_PUSH(checker->arena, module->vars, module->n_vars, module->var_capacity) = var;
}

/* The function that this text defines or declares; NULL if another module's definition stands for it. */
static struct sg_ptx_function *declare_function(struct sg_checker *checker, const struct sg_ast_function *ast)
{
    struct sg_ptx_module *module = checker->module;
    struct sg_symbol *known = declared_before(checker, ast->name, ast->linkage);
    struct sg_ptx_function *function;
    if (known != NULL) {
        if (known->kind != SG_SYMBOL_FUNCTION)
            sg_check_fail_at(checker, ast->line, "already defined:", ast->name);
        function = known->function;
        if (!ast->has_body || (function->defined && ast->linkage == SG_LINKAGE_WEAK))
            return NULL;
        if (function->defined && function->linkage != SG_LINKAGE_WEAK)
            sg_check_fail_at(checker, ast->line, "already defined:", ast->name);
        if (function->defined)
            return NULL; /* a weak one came first: any will do */
        if (function->n_params != ast->signature.n_params || function->n_returns != ast->signature.n_returns)
            sg_check_fail_at(checker, ast->line, "declared before with other parameters:", ast->name);
    } else {
        function = SG_NEW(checker->arena, struct sg_ptx_function);
        function->name = sg_arena_string(checker->arena, ast->name);
        declare_symbol(checker, ast->name, ast->linkage,
                       (struct sg_symbol){.kind = SG_SYMBOL_FUNCTION, .function = function});
        *SG_PUSH(checker->arena, module->functions, module->n_functions, module->function_capacity) =
            function;
    }
    function->line = ast->line;
    function->linkage = ast->linkage;
    function->is_entry = ast->is_entry;
    function->defined = ast->has_body;
    function->no_return |= ast->no_return;
    memcpy(function->maxntid, ast->maxntid, sizeof(function->maxntid));
    memcpy(function->reqntid, ast->reqntid, sizeof(function->reqntid));
    memcpy(function->reqnctapercluster, ast->reqnctapercluster, sizeof(function->reqnctapercluster));
    function->explicit_cluster = ast->explicit_cluster;
    function->blocks_are_clusters = ast->blocks_are_clusters;
    sg_check_signature(checker, function, &ast->signature);
    return function;
}

static void check_target(struct sg_checker *checker, const struct sg_ast *ast, uint32_t capability)
{
    struct sg_diagnostics *diagnostics = checker->arena->diagnostics;
    if (ast->version == 0)
        sg_fail(diagnostics, SG_COMPILE_INVALID_PTX, 1, "no .version directive");
    if (ast->version > NEWEST_VERSION)
        sg_fail(diagnostics, SG_COMPILE_UNSUPPORTED_PTX, 1,
                ".version %u.%u is newer than the newest known, %u.%u", ast->version / 10, ast->version % 10,
                NEWEST_VERSION / 10, NEWEST_VERSION % 10);
    if (ast->target.size < 4 || memcmp(ast->target.data, "sm_", 3) != 0)
        sg_fail(diagnostics, SG_COMPILE_INVALID_PTX, ast->target_line, "no .target sm_NN directive");
    char *suffix;
    uint32_t target = checker->module->target = (uint32_t)strtoul(ast->target.data + 3, &suffix, 10);
    /* sm_90a is for 9.0 alone, sm_100f for the devices of its family */
    bool fits = *suffix == 'a'   ? target == capability
                : *suffix == 'f' ? target / 10 == capability / 10 && target <= capability
                                 : target <= capability;
    if (!fits)
        sg_fail(diagnostics, SG_COMPILE_NO_BINARY, ast->target_line,
                ".target %.*s does not fit the device's sm_%u", (int)ast->target.size, ast->target.data,
                capability);
}

/* The names of the sources, by the numbers that .file gives them. */
static void list_files(struct sg_checker *checker, const struct sg_ast *ast)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ast->n_files; i++)
        if (ast->files[i].number >= count && ast->files[i].number < SG_SOURCE_LIMIT)
            count = ast->files[i].number + 1;
    checker->n_files = count;
    checker->files = SG_NEW_ARRAY(checker->arena, const char *, count);
    for (uint32_t i = 0; i < ast->n_files; i++)
        if (ast->files[i].number < count)
            checker->files[ast->files[i].number] = sg_arena_string(checker->arena, ast->files[i].name);
}

static void check_aliases(struct sg_checker *checker, const struct sg_ast *ast)
{
    for (uint32_t i = 0; i < ast->n_aliases; i++) {
        const struct sg_ast_alias *alias = &ast->aliases[i];
        struct sg_symbol *target = sg_check_module_symbol(checker, alias->target);
        struct sg_symbol *name = sg_check_module_symbol(checker, alias->name);
        if (target == NULL || target->kind != SG_SYMBOL_FUNCTION || !target->function->defined)
            sg_check_fail_at(checker, alias->line, "alias of an unknown function", alias->target);
        if (name == NULL)
            sg_map_put(checker->unit, checker->arena, alias->name, target);
        else if (name->kind == SG_SYMBOL_FUNCTION)
            name->function->alias_of = target->function;
    }
}

/* The body of a function; of one that another stands in for (NULL) only whether it can be parsed. */
static void check_function(struct sg_checker *checker, struct sg_ptx_function *function, struct sg_ast *ast,
                           const struct sg_ast_function *written)
{
    struct sg_ast_body *body = sg_parse_body(checker->arena, checker->scratch, ast, written);
    if (function != NULL)
        sg_check_body(checker, function, written, body);
    sg_arena_fini(checker->scratch);
}

struct sg_ptx_module *sg_check(struct sg_arena *arena, struct sg_arena *scratch, struct sg_ast *const *asts,
                               size_t count, uint32_t capability)
{
    struct sg_checker *checker = SG_NEW(arena, struct sg_checker);
    struct sg_map *units = SG_NEW_ARRAY(arena, struct sg_map, count);
    struct sg_ptx_function ***functions = SG_NEW_ARRAY(arena, struct sg_ptx_function **, count);
    checker->arena = arena;
    checker->scratch = scratch;
    checker->module = SG_NEW(arena, struct sg_ptx_module);
    checker->module->arena = arena;
    for (size_t unit = 0; unit < count; unit++) {
        struct sg_ast *ast = asts[unit];
        checker->unit = &units[unit];
        check_target(checker, ast, capability);
        checker->module->version = ast->version;
        for (uint32_t i = 0; i < ast->n_variables; i++)
            declare_module_variable(checker, &ast->variables[i]);
        functions[unit] = SG_NEW_ARRAY(arena, struct sg_ptx_function *, ast->n_functions);
        for (uint32_t i = 0; i < ast->n_functions; i++)
            functions[unit][i] = declare_function(checker, &ast->functions[i]);
    }
    for (size_t unit = 0; unit < count; unit++) {
        struct sg_ast *ast = asts[unit];
        checker->unit = &units[unit];
        check_aliases(checker, ast);
        list_files(checker, ast);
        for (uint32_t i = 0; i < ast->n_variables; i++)
            if (ast->variables[i].initial != NULL)
                sg_check_initial(checker, ast->variables[i].initial);
        for (uint32_t i = 0; i < ast->n_functions; i++)
            if (ast->functions[i].has_body)
                check_function(checker, functions[unit][i], ast, &ast->functions[i]);
    }
    return checker->module;
}
