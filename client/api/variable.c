/*
 * variable.c - see variable.h. Addresses are the worker's to say, so the first look-up of a variable waits, unless it was
 * asked for when its module was loaded; what has been said holds until the module or the context ends.
 */
#include "client/api/variable.h"

#include "client/api/context.h"
#include "client/api/device.h"
#include "client/api/function.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"
#include "client/managed/managed.h"
#include "client/multiserver/replication.h"
#include "client/prefetch/startup_profile.h"
#include "generated/client/operations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What the worker says of a variable. */
struct place {
    uint64_t address, bytes;
    uint64_t start, size; /* the managed memory that it is part of; size 0: none */
};
static_assert(sizeof(struct place) == RG_VARIABLE_ANSWER, "as the worker answers");

/** A variable that was asked for; in a list, under the lock of found objects. */
struct rg_variable {
    struct rg_variable *next;
    uint64_t context;
    bool managed;
    bool fresh;               /* the program has not asked for it */
    struct rg_future *future; /* the answer; NULL: `place` has it */
    struct place place;
    char name[];
};

/* A variable's memory is the context's: known from here on, so that copies to it are told from host memory. */
static CUresult note_variable(uint64_t owner, const struct place *place)
{
    struct rg_range range = {.start = place->address,
                             .size = place->bytes,
                             .kind = place->size ? RG_RANGE_MANAGED : RG_RANGE_GLOBAL,
                             .context = rg_context_current(),
                             .device = rg_device_current()};
    if (place->size) {
        CUresult status = rg_managed_variables(owner, place->start, place->size);
        return status == CUDA_SUCCESS && !rg_map_add(&range) ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    if (place->bytes && rg_map_reserve(rg_session_current()->number, place->address, place->bytes))
        (void)rg_map_add(&range);
    return CUDA_SUCCESS;
}

/* --- asking ----------------------------------------------------------------------------------------------------- */

static CUresult ask(enum rg_kind kind, uint64_t owner, const char *name, bool managed, struct rg_call *reply)
{
    return kind == RG_KIND_MODULE ? rg_op_rgModuleVariable((CUmodule)owner, name, reply)
                                  : rg_op_rgLibraryVariable((CUlibrary)owner, name, managed, reply);
}

static enum rg_op op_of(enum rg_kind kind)
{
    return kind == RG_KIND_MODULE ? RG_OP_rgModuleVariable : RG_OP_rgLibraryVariable;
}

/* Asks and waits. */
static CUresult fetch(enum rg_kind kind, uint64_t owner, const char *name, bool managed, struct place *place)
{
    struct rg_call reply;
    CUresult status = ask(kind, owner, name, managed, &reply);
    if (status == CUDA_SUCCESS) {
        rg_get_into(&reply.reply, place, sizeof *place);
        status = rg_call_outputs_read(&reply);
    }
    rg_call_done(&reply);
    return status;
}

static struct rg_variable **list_of(enum rg_kind kind, uint64_t owner, struct rg_cached_image **known)
{
    struct rg_shadow *shadow = rg_handle_shadow(kind, owner);
    if (!shadow)
        return NULL;
    *known = kind == RG_KIND_MODULE ? shadow->module.known : shadow->library.known;
    return kind == RG_KIND_MODULE ? &shadow->module.variables : &shadow->library.variables;
}

/* The entry of a variable in the current context; the lock is held. */
static struct rg_variable *find(struct rg_variable *list, const char *name, bool managed)
{
    const uint64_t context = rg_context_current();
    while (list && (list->context != context || list->managed != managed || strcmp(list->name, name) != 0))
        list = list->next;
    return list;
}

static struct rg_variable *add(struct rg_variable **list, uint64_t context, const char *name, bool managed,
                               struct rg_future *future, const struct place *place)
{
    const size_t length = strlen(name) + 1;
    struct rg_variable *variable = malloc(sizeof *variable + length);
    if (!variable) { /* it is asked for again */
        rg_future_release(future);
        return NULL;
    }
    *variable = (struct rg_variable){.context = context, .managed = managed, .future = future};
    if (place)
        variable->place = *place;
    memcpy(variable->name, name, length);
    rg_found_lock();
    variable->next = *list;
    *list = variable;
    rg_found_unlock();
    return variable;
}

void rg_variables_learn(enum rg_kind kind, uint64_t owner, uint64_t context, const char *name,
                        const void *answer)
{
    struct rg_cached_image *known;
    struct place place;
    memcpy(&place, answer, sizeof place);
    struct rg_variable **list = list_of(kind, owner, &known);
    struct rg_variable *variable = list ? add(list, context, name, false, NULL, &place) : NULL;
    if (variable)
        variable->fresh = true;
}

void rg_variables_ask(enum rg_kind kind, uint64_t owner, struct rg_cached_image *known)
{
    bool managed;
    const char *name;
    if (!known || !rg_context_current() || !rg_optimise[RG_OPT_SHADOW])
        return;
    for (unsigned i = 0; (name = rg_image_cache_variable(known, i, &managed)) != NULL; i++) {
        struct rg_call reply;
        struct rg_variable **list = list_of(kind, owner, &known);
        struct rg_future *future = list ? rg_future_begin(op_of(kind), NULL) : NULL;
        if (!future || rg_future_end(future, ask(kind, owner, name, managed, &reply)) != CUDA_SUCCESS)
            return;
        (void)add(list, rg_context_current(), name, managed, future, NULL);
    }
}

void rg_variables_unmap(const struct rg_variable *list)
{
    for (; list; list = list->next)
        if (!list->future && !list->fresh)
            (void)rg_map_remove(list->place.address, 1u << RG_RANGE_GLOBAL | 1u << RG_RANGE_MANAGED, NULL);
}

void rg_variables_drop(struct rg_variable **list, uint64_t context)
{
    while (*list) {
        struct rg_variable *variable = *list;
        if (context && variable->context != context) {
            list = &variable->next;
            continue;
        }
        *list = variable->next;
        rg_future_release(variable->future);
        free(variable);
    }
}

/* What was asked for ahead, or before: false if neither. */
static bool known_place(struct rg_variable **list, const char *name, bool managed, struct place *place,
                        bool *fresh, CUresult *status)
{
    rg_found_lock();
    struct rg_variable *variable = find(*list, name, managed);
    struct rg_future *future = variable ? variable->future : NULL;
    if (future)
        rg_future_keep(future);
    else if (variable)
        *place = variable->place;
    *fresh = variable && (future || variable->fresh);
    rg_found_unlock();
    *status = CUDA_SUCCESS;
    if (!future)
        return variable != NULL;
    struct rg_reader reply;
    *status = rg_future_wait(future, &reply);
    if (*status == CUDA_SUCCESS)
        rg_get_into(&reply, place, sizeof *place);
    const bool good = *status != CUDA_SUCCESS || !reply.bad;
    rg_found_lock();
    variable = find(*list, name, managed); /* others may have been here meanwhile */
    const bool mine = variable && variable->future == future;
    if (mine) {
        variable->future = NULL;
        variable->place = *place;
        if (*status != CUDA_SUCCESS || !good)
            variable->context = 0; /* nobody finds it any more */
    }
    rg_found_unlock();
    if (mine)
        rg_future_release(future);
    rg_future_release(future);
    return good;
}

static bool is_listed(struct rg_variable **list, const char *name, bool managed)
{
    rg_found_lock();
    const bool listed = find(*list, name, managed) != NULL;
    rg_found_unlock();
    return listed;
}

/* What is to be done when a variable is asked for has been done. */
static void note_asked(struct rg_variable **list, const char *name, bool managed)
{
    rg_found_lock();
    struct rg_variable *variable = find(*list, name, managed);
    if (variable)
        variable->fresh = false;
    rg_found_unlock();
}

/* A variable of a module or library by name. */
static CUresult find_variable(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                              CUdeviceptr *dptr, size_t *bytes)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_handle_known(kind, owner))
        return CUDA_ERROR_INVALID_HANDLE;
    struct rg_cached_image *known = NULL;
    struct rg_variable **list = list_of(kind, owner, &known);
    struct place v = {0};
    bool fresh;
    if (!list) /* another thread has just unloaded it */
        return CUDA_ERROR_INVALID_HANDLE;
    if (!rg_optimise[RG_OPT_SHADOW] || !known_place(list, name, managed, &v, &fresh, &status)) {
        status = fetch(kind, owner, name, managed, &v);
        fresh = true;
        if (status == CUDA_SUCCESS && !is_listed(list, name, managed))
            (void)add(list, rg_context_current(), name, managed, NULL, &v);
    }
    if (status == CUDA_SUCCESS && fresh && known) {
        rg_image_cache_note_variable(known, name, managed);
        rg_startup_profile_note_image(known);
    }
    if (status == CUDA_SUCCESS && fresh)
        status = note_variable(owner, &v);
    if (status != CUDA_SUCCESS)
        return status;
    if (fresh)
        note_asked(list, name, managed);
    if (dptr)
        *dptr = v.address;
    if (bytes)
        *bytes = v.bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    return find_variable(RG_KIND_MODULE, (uint64_t)hmod, name, false, dptr, bytes);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, false, dptr, bytes);
}

/* Without a context, managed variables are those of the first device's primary one, which is kept. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    if (rg_context_current() || rg_call_allowed(0) != CUDA_SUCCESS)
        return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    CUcontext primary;
    unsigned flags;
    int active = 0;
    CUresult status = cuDevicePrimaryCtxGetState(0, &flags, &active);
    if (status == CUDA_SUCCESS)
        status = cuDevicePrimaryCtxRetain(&primary, 0);
    struct rg_thread *thread = rg_thread_current();
    if (status != CUDA_SUCCESS)
        return status;
    if (!thread || !rg_thread_push_context(thread, (uint64_t)primary))
        return CUDA_ERROR_OUT_OF_MEMORY;
    status = find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    thread->n_contexts--;
    if (active)
        (void)cuDevicePrimaryCtxRelease_v2(0);
    return status;
}
