/*
 * reach.c - the functions that a kernel may call, and the layout of the shared variables that they use.
 */
#include "softgpu/compiler/analysis/analysis.h"

#include <string.h>

static void reach_add(struct sg_arena *arena, struct sg_ptx_module *module, struct sg_reach *reach,
                      struct sg_ptx_function *function)
{
    if (function->mark == module->walk)
        return;
    function->mark = module->walk;
    *SG_PUSH(arena, reach->functions, reach->count, reach->capacity) = function;
}

/* The functions that the one at `at` calls by name. */
static void add_callees(struct sg_arena *arena, struct sg_ptx_module *module, struct sg_reach *reach,
                        uint32_t at)
{
    const struct sg_ptx_function *function = reach->functions[at];
    for (uint32_t i = 0; i < function->n_insns; i++) {
        if (function->insns[i].call == NULL || function->insns[i].call->callee == NULL)
            continue;
        const enum sg_builtin builtin = sg_builtin_find(function->insns[i].call->callee);
        reach->prints |= builtin == SG_BUILTIN_VPRINTF;
        reach->allocates |= builtin == SG_BUILTIN_MALLOC || builtin == SG_BUILTIN_FREE;
        if (builtin == SG_BUILTIN_NONE)
            reach_add(arena, module, reach, function->insns[i].call->callee);
    }
}

const char *sg_reach_unknown(struct sg_arena *arena, struct sg_ptx_module *module,
                             struct sg_ptx_function *kernel)
{
    struct sg_reach named = {0};
    module->walk++;
    reach_add(arena, module, &named, kernel);
    for (uint32_t at = 0; at < named.count; at++) {
        if (named.functions[at]->unknown != NULL)
            return named.functions[at]->unknown;
        add_callees(arena, module, &named, at);
    }
    return NULL;
}

void sg_reach_compute(struct sg_arena *arena, struct sg_ptx_module *module, struct sg_ptx_function *kernel,
                      struct sg_reach *reach)
{
    *reach = (struct sg_reach){0};
    module->walk++;
    reach_add(arena, module, reach, kernel);
    for (uint32_t at = 0; at < reach->count; at++) {
        struct sg_ptx_function *function = reach->functions[at];
        reach->clustered |= function->clustered;
        reach->thread_form |=
            function->waits || function->clustered || (function->exits && function != kernel);
        reach->cooperative |= function->uses_grid_workspace;
        reach->has_local |= function->has_local;
        add_callees(arena, module, reach, at);
        if (!function->calls_indirect || reach->indirect)
            continue;
        reach->indirect = true;
        for (uint32_t i = 0; i < module->n_handles; i++)
            if (!module->handles[i]->is_entry)
                reach_add(arena, module, reach, module->handles[i]);
    }
}

/* --- what is defined nowhere --- */

static void check_operand_resolved(struct sg_diagnostics *diagnostics, const struct sg_insn *insn,
                                   const struct sg_operand *operand)
{
    if (operand->kind == SG_OPERAND_VECTOR)
        for (uint32_t i = 0; i < operand->count; i++)
            check_operand_resolved(diagnostics, insn, &operand->items[i]);
    if (operand->kind == SG_OPERAND_VAR && operand->var->linkage == SG_LINKAGE_EXTERN &&
        (operand->var->space == SG_SPACE_GLOBAL || operand->var->space == SG_SPACE_CONST))
        sg_fail(diagnostics, SG_COMPILE_UNRESOLVED, insn->line, "undefined variable '%s'",
                operand->var->name);
}

static bool is_resolved(const struct sg_reach *reach, const struct sg_ptx_function *function,
                        bool runtime_too)
{
    bool runtime = strncmp(function->name, "cuda", 4) == 0 || strncmp(function->name, "__cuda", 6) == 0;
    return function->defined || sg_builtin_find(function) != SG_BUILTIN_NONE ||
           (function->address_taken && reach->indirect) || (runtime && !runtime_too);
}

void sg_check_resolved(struct sg_diagnostics *diagnostics, const struct sg_reach *reach, bool runtime_too)
{
    for (uint32_t i = 0; i < reach->count; i++) {
        const struct sg_ptx_function *function = reach->functions[i];
        if (!is_resolved(reach, function, runtime_too))
            sg_fail(diagnostics, SG_COMPILE_UNRESOLVED, 0, "undefined function '%s'", function->name);
        for (uint32_t n = 0; n < function->n_insns; n++)
            for (uint32_t k = 0; k < function->insns[n].n_operands; k++)
                check_operand_resolved(diagnostics, &function->insns[n], &function->insns[n].operands[k]);
    }
}

/* --- shared memory --- */

static void place(struct sg_arena *arena, struct sg_shared_layout *layout,
                  const struct sg_ptx_function *kernel, const struct sg_var *var)
{
    if (var->space != SG_SPACE_SHARED || var->unsized)
        return;
    for (uint32_t i = 0; i < layout->count; i++)
        if (layout->places[i].var == var)
            return;
    layout->size = (layout->size + var->align - 1) & ~(var->align - 1);
    *SG_PUSH(arena, layout->places, layout->count, layout->capacity) =
        (struct sg_shared_place){var, layout->size};
    layout->size += (uint32_t)var->size; /* a variable has not more than a megabyte */
    if (layout->size > SG_SHARED_STATIC_MAX)
        sg_fail(arena->diagnostics, SG_COMPILE_INVALID_PTX, var->line,
                "kernel '%s' uses too much shared data: 0x%x bytes with '%s', 0x%x at most", kernel->name,
                layout->size, var->name, SG_SHARED_STATIC_MAX);
}

void sg_shared_compute(struct sg_arena *arena, const struct sg_reach *reach, struct sg_shared_layout *layout)
{
    *layout = (struct sg_shared_layout){0};
    for (uint32_t f = 0; f < reach->count; f++) {
        const struct sg_ptx_function *function = reach->functions[f];
        for (uint32_t i = 0; i < function->n_vars; i++)
            place(arena, layout, reach->functions[0], function->vars[i]);
        for (uint32_t i = 0; i < function->n_insns; i++)
            for (uint32_t n = 0; n < function->insns[i].n_operands; n++)
                if (function->insns[i].operands[n].kind == SG_OPERAND_VAR)
                    place(arena, layout, reach->functions[0], function->insns[i].operands[n].var);
    }
    layout->used = layout->size;
    layout->size = (layout->size + 15) & ~15u;
    bool reserves = false;
    for (uint32_t f = 0; f < reach->count; f++)
        reserves |= reach->functions[f]->uses_reserved_shared;
    layout->reserved = layout->size;
    if (reserves)
        layout->size += SG_SHARED_RESERVED;
}

uint32_t sg_shared_offset(const struct sg_shared_layout *layout, const struct sg_var *var)
{
    for (uint32_t i = 0; i < layout->count; i++)
        if (layout->places[i].var == var)
            return layout->places[i].offset;
    return layout->size; /* the dynamic part */
}
