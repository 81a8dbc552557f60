/*
 * analysis.c - facts of functions, what a kernel reaches, the layout of its shared memory.
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/device_runtime.h"
#include "softgpu/compiler/regions/regions.h"
#include "softgpu/compiler/uniformity/warp_sync.h"

#include <string.h>

enum sg_builtin sg_builtin_find(const struct sg_ptx_function *function)
{
    static const struct {
        const char *name;
        enum sg_builtin builtin;
        uint32_t n_params, n_returns;
    } builtins[] = {
        {"vprintf", SG_BUILTIN_VPRINTF, 2, 1},
        {"__assertfail", SG_BUILTIN_ASSERTFAIL, 5, 0},
        {"malloc", SG_BUILTIN_MALLOC, 1, 1},
        {"free", SG_BUILTIN_FREE, 1, 0},
        {"cudaGraphSetConditional", SG_BUILTIN_SET_CONDITIONAL, 2, 0},
    };
    if (sg_device_call_find(function) != SG_CALL_COUNT)
        return SG_BUILTIN_DEVICE_CALL;
    if (function->defined)
        return SG_BUILTIN_NONE;
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++)
        if (strcmp(function->name, builtins[i].name) == 0 && function->n_params == builtins[i].n_params &&
            function->n_returns == builtins[i].n_returns)
            return builtins[i].builtin;
    return SG_BUILTIN_NONE;
}

/* Does a thread wait for others there, or let them run? */
static bool insn_waits(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return sg_is_meeting(insn) || op == SG_OP_MBARRIER_WAIT || op == SG_OP_NANOSLEEP || insn->waits_in_loop ||
           insn->aligns;
}

/* Does the instruction work on, or wait for, other blocks of the cluster? */
static bool insn_is_clustered(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_CLUSTER_BARRIER:
    case SG_OP_MAPA:
    case SG_OP_GETCTARANK:
        return true;
    case SG_OP_FENCE:
        return false;
    default:
        return SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    }
}

static void analyse_operand(struct sg_ptx_function *function, const struct sg_operand *operand)
{
    if (operand->kind == SG_OPERAND_SPECIAL && operand->reg == SG_SPECIAL_ENVREG &&
        (operand->component == 1 || operand->component == 2))
        function->uses_grid_workspace = true;
    if (operand->kind == SG_OPERAND_SPECIAL && operand->reg == SG_SPECIAL_RESERVED_SMEM)
        function->uses_reserved_shared = true;
}

/* The address of an argument of a call: memory of the thread's own, like a .local variable. */
static bool takes_param_address(const struct sg_ptx_function *function, const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    if (op != SG_OP_MOV && op != SG_OP_CVTA)
        return false;
    const struct sg_operand *operand = &insn->operands[1];
    if (operand->kind != SG_OPERAND_VAR || operand->var->space != SG_SPACE_PARAM)
        return false;
    return !function->is_entry || !sg_is_own_param(function, operand);
}

static void analyse_function(struct sg_arena *arena, const struct sg_ptx_module *module,
                             struct sg_ptx_function *function)
{
    sg_analyse_warp_sync(arena, function);
    sg_analyse_neighbours(arena, function);
    sg_analyse_loops(arena, module, function);
    sg_analyse_pointers(arena, function);
    for (uint32_t i = 0; i < function->n_vars; i++)
        function->has_local |= function->vars[i]->space == SG_SPACE_LOCAL;
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        function->waits |= insn_waits(insn);
        function->clustered |= insn_is_clustered(insn);
        function->exits |= insn->form->op == SG_OP_EXIT;
        function->has_local |= insn->form->op == SG_OP_ALLOCA || takes_param_address(function, insn);
        function->calls_indirect |= insn->call != NULL && insn->call->callee == NULL;
        for (uint32_t n = 0; n < insn->n_operands; n++)
            analyse_operand(function, &insn->operands[n]);
    }
}

void sg_analyse_module(struct sg_arena *arena, struct sg_ptx_module *module)
{
    sg_analyse_watchers(module);
    for (uint32_t i = 0; i < module->n_functions; i++)
        if (module->functions[i]->defined)
            analyse_function(arena, module, module->functions[i]);
}

static void reach_add(struct sg_arena *arena, struct sg_ptx_module *module, struct sg_reach *reach,
                      struct sg_ptx_function *function)
{
    if (function->mark == module->walk)
        return;
    function->mark = module->walk;
    *SG_PUSH(arena, reach->functions, reach->count, reach->capacity) = function;
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
        for (uint32_t i = 0; i < function->n_insns; i++)
            if (function->insns[i].call != NULL && function->insns[i].call->callee != NULL &&
                sg_builtin_find(function->insns[i].call->callee) == SG_BUILTIN_NONE)
                reach_add(arena, module, reach, function->insns[i].call->callee);
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

/* --- pointers --- */

static bool mark(struct sg_ptx_function *function, const struct sg_operand *operand)
{
    if (operand->kind != SG_OPERAND_REG || sg_types[function->regs[operand->reg].type].bits != 64 ||
        function->regs[operand->reg].type == SG_F64 || function->regs[operand->reg].pointer)
        return false;
    return function->regs[operand->reg].pointer = true;
}

/*
 * Is this operand more likely an address than an offset? Offsets come from multiplications and
 * conversions.
 */
static bool looks_like_base(const struct sg_ptx_function *function, const uint8_t *made_by,
                            const struct sg_operand *operand)
{
    if (operand->kind != SG_OPERAND_REG || sg_types[function->regs[operand->reg].type].bits != 64)
        return false;
    return made_by[operand->reg] != 1;
}

void sg_analyse_pointers(struct sg_arena *arena, struct sg_ptx_function *function)
{
    if (function->n_regs == 0)
        return;
    /* 1: the register is an offset by its looks */
    uint8_t *made_by = sg_arena_alloc(arena, function->n_regs);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        enum sg_op op = insn->form->op;
        if (insn->n_operands == 0 || insn->operands[0].kind != SG_OPERAND_REG)
            continue;
        if (op == SG_OP_MUL || op == SG_OP_SHL || op == SG_OP_CVT || op == SG_OP_MAD || op == SG_OP_AND ||
            op == SG_OP_NEG || op == SG_OP_SHR || op == SG_OP_BFI || op == SG_OP_BFE)
            made_by[insn->operands[0].reg] = 1;
    }
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = function->n_insns; i-- > 0;) {
            const struct sg_insn *insn = &function->insns[i];
            const struct sg_operand *operands = insn->operands;
            uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
            switch (insn->form->op) {
            case SG_OP_LD:
                changed |= space != SG_MOD_SHARED && space != SG_MOD_PARAM && mark(function, &operands[1]);
                break;
            case SG_OP_ST:
                changed |= space != SG_MOD_SHARED && space != SG_MOD_PARAM && mark(function, &operands[0]);
                break;
            case SG_OP_ADD:
                if (operands[0].kind != SG_OPERAND_REG || !function->regs[operands[0].reg].pointer)
                    break;
                changed |= mark(function, looks_like_base(function, made_by, &operands[1]) ||
                                                  operands[2].kind != SG_OPERAND_REG
                                              ? &operands[1]
                                              : &operands[2]);
                break;
            case SG_OP_MOV:
            case SG_OP_CVTA:
                if (operands[0].kind == SG_OPERAND_REG && function->regs[operands[0].reg].pointer &&
                    space != SG_MOD_SHARED)
                    changed |= mark(function, &operands[1]);
                break;
            default:
                break;
            }
        }
    }
}
