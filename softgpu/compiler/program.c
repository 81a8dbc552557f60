/*
 * program.c - the compiler's interface but for code: one program is one PTX module, or several that are
 * linked, with its kernels and variables. What is known after creation never changes and is read without a
 * lock. A text that is refused is told with its line, and leaves nothing behind.
 */
#include "softgpu/compiler/program.h"
#include "common/base/align.h"
#include "common/base/parse.h"
#include "softgpu/compiler/check/check.h"
#include "softgpu/compiler/cooperative_groups.h"
#include "softgpu/compiler/initial_values.h"
#include "softgpu/compiler/jit/cache.h"
#include "softgpu/compiler/jit/improve.h"
#include "softgpu/compiler/jit/jit.h"
#include "softgpu/compiler/parse/ast.h"
#include "softgpu/compiler/regions/matrices.h"
#include "softgpu/compiler/regions/regions.h"
#include "softgpu/compiler/uniformity/uniformity.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>

static uint32_t thread_product(const uint32_t dimensions[3])
{
    return dimensions[0] == 0 ? 0 : dimensions[0] * dimensions[1] * dimensions[2];
}

/* For developers: SOFTGPU_OPT=-loops, -lockstep, -llvm, -quick, -all. */
static bool wanted(const char *without)
{
    const char *text = secure_getenv("SOFTGPU_OPT");
    return text == NULL || (strstr(text, without) == NULL && strstr(text, "-all") == NULL);
}

static enum sg_code_form choose_form(struct sg_program *program, struct sg_program_kernel *kernel)
{
    enum sg_code_form other = kernel->reach.thread_form ? SG_CODE_THREAD : SG_CODE_BLOCK;
    if (!wanted("-loops") || kernel->reach.clustered)
        return other;
    sg_points_mark_yields(kernel->function);
    sg_analyse_matrices(&program->arena, kernel->function);
    kernel->lockstep = wanted("-lockstep");
    if (kernel->lockstep)
        sg_analyse_lockstep(&program->arena, kernel->function);
    return sg_regions_possible(&program->arena, &kernel->reach) ? SG_CODE_LOOPS : other;
}

static void describe_kernel(struct sg_program *program, struct sg_program_kernel *kernel,
                            struct sg_ptx_function *function)
{
    struct sg_kernel *public = &kernel->public;
    struct sg_param *params = SG_NEW_ARRAY(&program->arena, struct sg_param, function->n_params);
    uint32_t limit = thread_product(function->maxntid), required = thread_product(function->reqntid);
    kernel->function = function;
    sg_reach_compute(&program->arena, program->module, function, &kernel->reach);
    kernel->unknown = sg_reach_unknown(&program->arena, program->module, function);
    sg_check_resolved(program->arena.diagnostics, &kernel->reach, false);
    sg_shared_compute(&program->arena, &kernel->reach, &kernel->shared);
    for (uint32_t i = 0; i < function->n_params; i++)
        params[i] = (struct sg_param){function->params[i].offset, (uint32_t)function->params[i].size,
                                      function->params[i].align};
    public->name = function->name;
    public->n_params = function->n_params;
    public->params = params;
    public->params_size = function->params_size;
    public->shared_static = kernel->shared.size;
    public->shared_used = kernel->shared.used;
    public->max_threads = required != 0 ? required : limit != 0 && limit < 1024 ? limit : 1024;
    memcpy(public->required_ntid, function->reqntid, sizeof(public->required_ntid));
    memcpy(public->required_cluster, function->reqnctapercluster, sizeof(public->required_cluster));
    public->explicit_cluster = function->explicit_cluster;
    public->blocks_are_clusters = function->blocks_are_clusters && public->required_cluster[0] != 0;
    public->form = choose_form(program, kernel);
    public->cooperative = kernel->reach.cooperative;
    public->prints = kernel->reach.prints;
    public->allocates = kernel->reach.allocates;
    for (uint32_t f = 0; f < kernel->reach.count; f++) {
        const struct sg_ptx_function *part = kernel->reach.functions[f];
        for (uint32_t i = 0; i < part->n_vars; i++)
            if (part->vars[i]->space == SG_SPACE_LOCAL)
        public->local_size += (uint32_t)part->vars[i]->size;
    }
}

static void describe(struct sg_program *program)
{
    struct sg_ptx_module *module = program->module;
    program->kernels = SG_NEW_ARRAY(&program->arena, struct sg_program_kernel, module->n_functions);
    for (uint32_t i = 0; i < module->n_functions; i++)
        if (module->functions[i]->is_entry && module->functions[i]->defined)
            describe_kernel(program, &program->kernels[program->n_kernels++], module->functions[i]);
    uint64_t const_size = 0;
    program->variables = SG_NEW_ARRAY(&program->arena, struct sg_variable, module->n_vars);
    program->places = SG_NEW_ARRAY(&program->arena, struct sg_var *, module->n_vars);
    for (uint32_t i = 0; i < module->n_vars; i++) {
        struct sg_var *var = module->vars[i];
        if (var->space != SG_SPACE_GLOBAL && var->space != SG_SPACE_CONST)
            continue;
        if (var->space == SG_SPACE_CONST && var->linkage != SG_LINKAGE_EXTERN)
            const_size = rg_align_up(const_size, var->align) + var->size;
        var->program_index = (uint32_t)program->n_variables;
        program->places[program->n_variables] = var;
        program->variables[program->n_variables++] = (struct sg_variable){
            .name = var->name,
            .size = var->size,
            .align = var->align,
            .constant = var->space == SG_SPACE_CONST,
            .external = var->linkage == SG_LINKAGE_EXTERN,
            .managed = var->managed,
            .reference = var->reference,
            .visible = var->function == NULL,
        };
    }
    for (size_t i = 0; i < program->n_kernels; i++)
        program->kernels[i].public.const_size = (uint32_t)const_size;
}

/* Functions with instructions that are not known are told, and the module loads: what it runs may not need them. */
static void tell_unknown(const struct sg_program *program, struct sg_text *log)
{
    const struct sg_ptx_module *module = program->module;
    for (uint32_t i = 0; i < module->n_functions; i++)
        if (module->functions[i]->unknown != NULL)
            sg_text_append(log, "%s '%s' cannot run on this device: %s\n",
                           module->functions[i]->is_entry ? "kernel" : "function", module->functions[i]->name,
                           module->functions[i]->unknown);
}

enum sg_compile_status sg_program_link(const struct sg_source *sources, size_t count, uint32_t capability,
                                       struct sg_text *log, struct sg_program **out)
{
    struct sg_program *volatile program = calloc(1, sizeof(*program));
    struct sg_diagnostics diagnostics = {.log = log};
    if (program == NULL)
        return SG_COMPILE_NO_MEMORY;
    pthread_mutex_init(&program->lock, NULL);
    program->capability = capability;
    program->optimised = wanted("-llvm");
    program->quick = wanted("-quick");
    program->watched = rg_is_on(secure_getenv("SOFTGPU_REPORT"));
    program->guarded = sg_guest_guarded();
    program->arena.diagnostics = program->scratch.diagnostics = &diagnostics;
    if (setjmp(diagnostics.escape) != 0) {
        sg_program_destroy(program);
        return diagnostics.status;
    }
    size_t units = count;
    struct sg_ast **asts = SG_NEW_ARRAY(&program->arena, struct sg_ast *, count + 1);
    struct rg_digest_part *pieces = SG_NEW_ARRAY(&program->arena, struct rg_digest_part, count + 1);
    for (size_t i = 0; i < count; i++) {
        /* names and messages point into the text, so the program has its own copy */
        char *text = sg_arena_alloc(&program->arena, sources[i].size + 1);
        memcpy(text, sources[i].ptx, sources[i].size);
        pieces[i] = (struct rg_digest_part){text, sources[i].size};
        asts[i] = sg_parse(&program->arena, text, strnlen(text, sources[i].size));
    }
    const char *runtime = sg_cooperative_groups(sources, count);
    if (runtime != NULL) {
        pieces[units] = (struct rg_digest_part){runtime, strlen(runtime)};
        asts[units++] = sg_parse(&program->arena, runtime, strlen(runtime));
    }
    if (sg_cache_default() != NULL)
        program->digest = rg_digest_of(pieces, units);
    program->module = sg_check(&program->arena, &program->scratch, asts, units, capability);
    sg_analyse_module(&program->arena, program->module);
    describe(program);
    tell_unknown(program, log);
    program->arena.diagnostics = program->scratch.diagnostics = NULL;
    *out = program;
    return SG_COMPILE_OK;
}

enum sg_compile_status sg_program_create(const char *ptx, size_t size, uint32_t capability,
                                         struct sg_text *log, struct sg_program **out)
{
    return sg_program_link(&(struct sg_source){ptx, size}, 1, capability, log, out);
}

void sg_program_destroy(struct sg_program *program)
{
    if (program == NULL)
        return;
    sg_improve_forget(program);
    sg_jit_destroy(program->jit);
    sg_arena_fini(&program->scratch);
    sg_arena_fini(&program->arena);
    pthread_mutex_destroy(&program->lock);
    free(program);
}

size_t sg_program_find_kernel(const struct sg_program *program, const void *address)
{
    const struct sg_ptx_module *module = program->module;
    uintptr_t offset = (uintptr_t)address - (uintptr_t)module->handles;
    if (offset % sizeof(module->handles[0]) != 0 || offset / sizeof(module->handles[0]) >= module->n_handles)
        return SIZE_MAX;
    const struct sg_ptx_function *function = module->handles[offset / sizeof(module->handles[0])];
    for (size_t i = 0; i < program->n_kernels; i++)
        if (program->kernels[i].function == function)
            return i;
    return SIZE_MAX;
}

const struct sg_kernel *sg_program_kernel(const struct sg_program *program, size_t index)
{
    return index < program->n_kernels ? &program->kernels[index].public : NULL;
}

const struct sg_variable *sg_program_variable(const struct sg_program *program, size_t index)
{
    return index < program->n_variables ? &program->variables[index] : NULL;
}

void sg_program_place(struct sg_program *program, size_t index, void *address)
{
    if (index < program->n_variables)
        program->places[index]->address = address;
}

enum sg_compile_status sg_program_initialise(struct sg_program *program, bool managed, struct sg_text *log)
{
    struct sg_diagnostics diagnostics = {.log = log};
    struct sg_arena arena = {.diagnostics = &diagnostics};
    if (setjmp(diagnostics.escape) != 0) {
        sg_arena_fini(&arena);
        return diagnostics.status;
    }
    for (size_t i = 0; i < program->n_variables; i++)
        if (program->places[i]->linkage != SG_LINKAGE_EXTERN && (managed || !program->variables[i].managed))
            sg_initial_write(&diagnostics, program->module, program->places[i]);
    sg_arena_fini(&arena);
    return SG_COMPILE_OK;
}
