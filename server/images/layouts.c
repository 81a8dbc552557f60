/*
 * layouts.c - see layouts.h.
 *
 * One table by the driver's pointer. A module or library holds the layouts of its image, sorted by name and counted, as a
 * library's modules share them; a function or kernel points to one of them and holds them too. All is under one lock, a leaf.
 */
#include "server/images/layouts.h"

#include "common/base/hash_table.h"
#include "common/cuda/fatbin/parameters.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"

#include <stdlib.h>
#include <string.h>

struct layout {
    const char *name;
    uint32_t n;
    struct rg_kernel_parameter parameters[];
};

/* Those of one image. */
struct layouts {
    unsigned references;
    size_t n, capacity;
    struct layout **all; /* each an allocation, with its name behind it */
    bool failed;         /* there was no memory for one */
};

/* What is known of one of the driver's objects. */
struct known {
    struct rg_hash_link link;
    const void *object,
        *owner; /* owner: of a library's module the library; of a function the module or library; or NULL */
    uint64_t context; /* with which it ends; 0: none */
    struct layouts *layouts;
    const struct layout
        *layout; /* a function's or kernel's; NULL: it is a module or library, or nothing is known */
};

struct state {
    pthread_mutex_t lock;
    struct rg_hash_table by_object;
};

static struct state *state_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_LAYOUTS];
}

bool rg_layouts_needed(void)
{
    return !rg_driver_has(cuFuncGetParamInfo) || !rg_driver_has(cuKernelGetParamInfo);
}

/* --- layouts of an image ------------------------------------------------------------------------------------------ */

static void release(struct layouts *layouts)
{
    if (!layouts || --layouts->references)
        return;
    for (size_t i = 0; i < layouts->n; i++)
        free(layouts->all[i]);
    free(layouts->all);
    free(layouts);
}

static bool grow(struct layouts *layouts)
{
    if (layouts->n < layouts->capacity)
        return true;
    const size_t capacity = layouts->capacity ? 2 * layouts->capacity : 16;
    struct layout **all = realloc(layouts->all, capacity * sizeof *all);
    if (!all)
        return false;
    layouts->all = all;
    layouts->capacity = capacity;
    return true;
}

static void note(void *user, const struct rg_kernel_layout *told)
{
    struct layouts *layouts = user;
    const size_t bytes = told->n * sizeof *told->parameters;
    struct layout *layout = grow(layouts) ? malloc(sizeof *layout + bytes + told->length + 1) : NULL;
    if (!layout) {
        layouts->failed = true;
        return;
    }
    char *name = (char *)layout->parameters + bytes;
    memcpy(layout->parameters, told->parameters, bytes);
    memcpy(name, told->name, told->length);
    name[told->length] = '\0';
    layout->name = name;
    layout->n = told->n;
    layouts->all[layouts->n++] = layout;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct layout *const *)a)->name, (*(struct layout *const *)b)->name);
}

static int against_name(const void *name, const void *layout)
{
    return strcmp(name, (*(struct layout *const *)layout)->name);
}

static const struct layout *find_layout(const struct layouts *layouts, const char *name)
{
    struct layout **found = layouts && layouts->n
                                ? bsearch(name, layouts->all, layouts->n, sizeof *layouts->all, against_name)
                                : NULL;
    return found ? *found : NULL;
}

/* 90 for 9.0, of the device whose driver loads the image. */
static uint32_t capability_here(void)
{
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (rg_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = 0;
    if (rg_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        rg_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS)
        return 0;
    return (uint32_t)(major * 10 + minor);
}

static void read_parts(struct layouts *layouts, const struct rg_image *image, uint32_t capability)
{
    for (const void **part = image->parts; *part; part++) {
        const size_t at = (size_t)((const unsigned char *)*part - image->data);
        (void)rg_image_parameters(*part, image->total - at, capability, note, layouts);
    }
}

static struct layouts *read_layouts(const struct rg_image *image, const struct rg_image_code *code)
{
    struct layouts *layouts = calloc(1, sizeof *layouts);
    if (!layouts)
        return NULL;
    layouts->references = 1;
    const uint32_t capability = capability_here();
    if (image->parts) { /* the code is a wrapper of the worker's own around the image */
        (void)rg_image_parameters(image->data, image->total, capability, note, layouts);
        read_parts(layouts, image, capability);
    } else {
        (void)rg_image_parameters(code->data, code->size, capability, note, layouts);
    }
    if (layouts->failed) {
        release(layouts);
        return NULL;
    }
    if (layouts->n)
        qsort(layouts->all, layouts->n, sizeof *layouts->all, by_name);
    return layouts;
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static uint64_t hash(const void *object)
{
    return (uint64_t)(uintptr_t)object >> 3;
}

static struct known *find(struct state *state, const void *object)
{
    for (struct rg_hash_link *link = rg_hash_table_first(&state->by_object, hash(object)); link;
         link = rg_hash_table_next(link))
        if (((struct known *)link)->object == object)
            return (struct known *)link;
    return NULL;
}

static void drop(struct rg_hash_link *link)
{
    struct known *known = (struct known *)link;
    release(known->layouts);
    free(known);
}

static void forget(struct state *state, struct known *known)
{
    rg_hash_table_remove(&state->by_object, &known->link);
    drop(&known->link);
}

/* Enters an object in the place of what had its pointer before. Takes over the reference. The lock is held. */
static void enter(struct state *state, const struct known *as)
{
    struct known *known = find(state, as->object);
    if (known)
        forget(state, known);
    known = malloc(sizeof *known);
    if (!known) {
        release(as->layouts);
        return; /* what is not known cannot be launched, and that is said */
    }
    *known = *as;
    rg_hash_table_add(&state->by_object, &known->link, hash(as->object));
}

static struct layouts *acquire(struct layouts *layouts)
{
    if (layouts)
        layouts->references++;
    return layouts;
}

void rg_layouts_loaded(struct rg_request *request, const void *object, const struct rg_image *image,
                       const struct rg_image_code *code, uint64_t context)
{
    if (!rg_layouts_needed())
        return;
    struct state *state = state_of(request->worker);
    struct layouts *layouts = read_layouts(image, code);
    RG_SCOPED_LOCK(&state->lock);
    enter(state, &(struct known){.object = object, .layouts = layouts, .context = context});
}

void rg_layouts_module(struct rg_request *request, const void *module, const void *library)
{
    if (!rg_layouts_needed())
        return;
    struct state *state = state_of(request->worker);
    RG_SCOPED_LOCK(&state->lock);
    const struct known *from = find(state, library);
    if (from)
        enter(state, &(struct known){.object = module,
                                     .owner = library,
                                     .context = request->thread->context,
                                     .layouts = acquire(from->layouts)});
}

void rg_layouts_found(struct rg_request *request, const void *function, const void *owner, const char *name)
{
    if (!rg_layouts_needed())
        return;
    struct state *state = state_of(request->worker);
    RG_SCOPED_LOCK(&state->lock);
    const struct known *from = find(state, owner);
    if (from)
        enter(state, &(struct known){.object = function,
                                     .owner = owner,
                                     .context = from->context,
                                     .layouts = acquire(from->layouts),
                                     .layout = find_layout(from->layouts, name)});
}

void rg_layouts_function(struct rg_request *request, const void *function, const void *kernel)
{
    if (!rg_layouts_needed())
        return;
    struct state *state = state_of(request->worker);
    RG_SCOPED_LOCK(&state->lock);
    const struct known *from = find(state, kernel);
    if (from && function != kernel)
        enter(state, &(struct known){.object = function,
                                     .owner = from->owner,
                                     .context = request->thread->context,
                                     .layouts = acquire(from->layouts),
                                     .layout = from->layout});
}

CUresult rg_layouts_param(struct rg_worker *worker, const void *function, size_t index, size_t *offset,
                          size_t *size)
{
    struct state *state = state_of(worker);
    RG_SCOPED_LOCK(&state->lock);
    const struct known *known = find(state, function);
    if (!known || !known->layout)
        return CUDA_ERROR_NOT_FOUND;
    if (index >= known->layout->n)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = known->layout->parameters[index].offset;
    *size = known->layout->parameters[index].size;
    return CUDA_SUCCESS;
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

static bool is_or_belongs_to(const struct known *known, const void *what)
{
    return known->object == what || known->owner == what;
}

static bool goes_with(const struct known *known, const void *what)
{
    return known->context && known->context == *(const uint64_t *)what;
}

/* Forgets all of which `ends` says so. The lock is held. */
static void forget_all(struct state *state, bool (*ends)(const struct known *known, const void *what),
                       const void *what)
{
    struct rg_hash_link *link = rg_hash_table_after(&state->by_object, NULL);
    while (link) {
        struct known *known = (struct known *)link;
        link = rg_hash_table_after(&state->by_object, link);
        if (ends(known, what))
            forget(state, known);
    }
}

/* With a library end its modules, by which the core calls again. */
static void drop_module(struct rg_worker *worker, const void *object)
{
    struct state *state = state_of(worker);
    RG_SCOPED_LOCK(&state->lock);
    forget_all(state, is_or_belongs_to, object);
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct state *state = state_of(worker);
    RG_SCOPED_LOCK(&state->lock);
    forget_all(state, goes_with, &context->handle);
}

static void fini(struct rg_worker *worker)
{
    rg_hash_table_clear(&state_of(worker)->by_object, drop);
}

const struct rg_server_module rg_layouts_server_module = {
    .size = sizeof(struct state),
    .locked = true,
    .fini = fini,
    .drop_context = drop_context,
    .drop_module = drop_module,
};
