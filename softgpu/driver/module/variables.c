/*
 * variables.c - the variables of modules: memory for them in a context, their addresses, and which one a name means.
 *
 * Managed variables have pages of their own, which all modules of a library have in common. Without memory the module is not made. Whichever
 * thread makes the module; what it has been given then stays as it is.
 */
#include "common/base/align.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/range/range.h"

#include <stdlib.h>
#include <string.h>

#define CONSTANT_BANK 65536u

/* Appends the variables of one kind to what is placed; offsets go to `addresses`. */
static CUresult append_some(struct sg_module *module, bool managed, bool constant, uint64_t *total)
{
    for (uint32_t i = 0; i < module->image->n_variables; i++) {
        const struct sg_variable *v = sg_program_variable(module->image->program, i);
        if (v->external || v->managed != managed || v->constant != constant)
            continue;
        *total = rg_align_up(*total, v->align > 16 ? v->align : 16);
        module->addresses[i] = *total;
        if (__builtin_add_overflow(*total, v->size > 0 ? v->size : 1, total))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/*
 * Allocates memory for the variables that are managed, or for those that are not, and sets their addresses.
 * Constants lie in a bank of their own, whose size is that of a GPU's: reading behind an array of constants
 * is no fault there.
 */
static CUresult place_some(struct sg_module *module, bool managed, uint64_t *memory)
{
    const struct sg_program *program = module->image->program;
    const uint32_t n = module->image->n_variables;
    uint64_t total = 0;
    RG_TRY(append_some(module, managed, false, &total));
    uint64_t bank = rg_align_up(total, 256), end = bank;
    RG_TRY(append_some(module, managed, true, &end));
    if (end > bank)
        total = end - bank < CONSTANT_BANK ? bank + CONSTANT_BANK : end;
    if (managed)
        total = rg_align_up(total, 4096); /* whole pages are the host's or the device's */
    if (total > 0 && *memory == 0)
        RG_TRY(sg_range_alloc(module->object.context, module->object.context->device, total,
                              managed ? SG_RANGE_MANAGED_MODULE : SG_RANGE_MODULE, NULL, memory));
    for (uint32_t i = 0; i < n; i++) {
        const struct sg_variable *v = sg_program_variable(program, i);
        if (!v->external && v->managed == managed)
            module->addresses[i] += *memory;
    }
    return CUDA_SUCCESS;
}

void sg_managed_release(struct sg_managed *managed)
{
    if (managed == NULL || atomic_fetch_sub(&managed->references, 1) != 1)
        return;
    if (managed->memory != 0)
        sg_range_free(managed->memory, SG_RANGE_MANAGED_MODULE);
    free(managed);
}

/* Places managed variables where another module of the library has them, or anew. */
static CUresult place_managed(struct sg_module *module, struct sg_managed **shared)
{
    struct sg_managed *managed = shared != NULL && *shared != NULL ? *shared : calloc(1, sizeof *managed);
    if (managed == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&managed->references, 1);
    module->managed = managed;
    RG_TRY(place_some(module, true, &managed->memory));
    if (shared != NULL && *shared == NULL) {
        atomic_fetch_add(&managed->references, 1);
        *shared = managed;
    }
    return CUDA_SUCCESS;
}

CUresult sg_module_place_variables(struct sg_module *module, struct sg_managed **managed)
{
    const uint32_t n = module->image->n_variables;
    if (n == 0)
        return CUDA_SUCCESS;
    module->addresses = calloc(n, sizeof *module->addresses);
    if (module->addresses == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_TRY(place_some(module, false, &module->variables));
    RG_TRY(place_managed(module, managed));
    for (uint32_t i = 0; i < n; i++) {
        sg_program_place(module->image->program, i, (void *)(uintptr_t)module->addresses[i]);
    }
    return CUDA_SUCCESS;
}

CUresult sg_module_variable(const struct sg_module *module, const char *name, CUdeviceptr *address,
                            size_t *size)
{
    const struct sg_variable *found = NULL;
    for (uint32_t i = 0; i < module->image->n_variables; i++) {
        const struct sg_variable *v = sg_program_variable(module->image->program, i);
        if (v->external || v->reference != SG_REFERENCE_NONE || strcmp(v->name, name) != 0 ||
            (found != NULL && !v->visible))
            continue;
        found = v;
        if (address != NULL)
            *address = module->addresses[i];
        if (size != NULL)
            *size = v->size;
    }
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

enum sg_reference sg_module_reference(const struct sg_module *module, const char *name, CUdeviceptr *address)
{
    for (uint32_t i = 0; i < module->image->n_variables; i++) {
        const struct sg_variable *v = sg_program_variable(module->image->program, i);
        if (v->external || v->reference == SG_REFERENCE_NONE || strcmp(v->name, name) != 0)
            continue;
        *address = module->addresses[i];
        return (enum sg_reference)v->reference;
    }
    return SG_REFERENCE_NONE;
}
