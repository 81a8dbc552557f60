/*
 * variables.c - see variables.h. The lock is not held while anything is sent or waited for.
 */
#include "client/cache/variables.h"

#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct rg_variable_place) == RG_VARIABLE_ANSWER, "as the worker answers");

struct rg_variable {
    struct rg_variable *next;
    uint64_t context; /* 0: nobody finds it any more */
    bool managed;
    bool fresh;               /* the program has not asked for it */
    struct rg_future *future; /* the answer; NULL: `place` has it */
    struct rg_variable_place place;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all lists */

static CUresult ask(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                    struct rg_future *future, struct rg_call *reply)
{
    return kind == RG_KIND_MODULE ? rg_op_rgModuleVariable((CUmodule)owner, name, future, reply)
                                  : rg_op_rgLibraryVariable((CUlibrary)owner, name, managed, future, reply);
}

/* Asks and waits. */
static CUresult fetch(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                      struct rg_variable_place *place)
{
    struct rg_call reply;
    CUresult status = ask(kind, owner, name, managed, NULL, &reply);
    if (status == CUDA_SUCCESS) {
        rg_get_into(&reply.reply, place, sizeof *place);
        status = rg_call_outputs_read(&reply);
    }
    rg_call_done(&reply);
    return status;
}

static struct rg_variable **list_of(enum rg_kind kind, uint64_t owner)
{
    struct rg_shadow *shadow = rg_handle_shadow(kind, owner);
    if (!shadow)
        return NULL;
    return kind == RG_KIND_MODULE ? &shadow->module.variables : &shadow->library.variables;
}

/* The entry of a variable in the current context; the lock is held. */
static struct rg_variable *find(struct rg_variable *list, const char *name, bool managed)
{
    const uint64_t context = rg_context_current_owner();
    while (list && (list->context != context || list->managed != managed || strcmp(list->name, name) != 0))
        list = list->next;
    return list;
}

static struct rg_variable *add(struct rg_variable **list, uint64_t context, const char *name, bool managed,
                               struct rg_future *future, const struct rg_variable_place *place)
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
    RG_SCOPED_LOCK(&lock);
    variable->next = *list;
    *list = variable;
    return variable;
}

void rg_variables_learn(enum rg_kind kind, uint64_t owner, uint64_t context, const char *name,
                        const void *answer)
{
    struct rg_variable_place place;
    memcpy(&place, answer, sizeof place);
    struct rg_variable **list = list_of(kind, owner);
    struct rg_variable *variable = list ? add(list, context, name, false, NULL, &place) : NULL;
    if (variable)
        variable->fresh = true;
}

void rg_variables_ask(enum rg_kind kind, uint64_t owner, struct rg_cached_image *cached)
{
    bool managed;
    const char *name;
    if (!cached || !rg_context_current_owner() || !rg_optimise[RG_OPT_QUERY_CACHE] ||
        rg_hooks.blocks_on_context(
            rg_context_current_owner())) /* which the driver may wait for before it has them */
        return;
    for (unsigned i = 0; (name = rg_image_cache_variable(cached, i, &managed)) != NULL; i++) {
        struct rg_call reply;
        struct rg_variable **list = list_of(kind, owner);
        struct rg_future *future = list ? rg_future_begin(NULL) : NULL;
        if (!future || rg_future_end(future, ask(kind, owner, name, managed, future, &reply)) != CUDA_SUCCESS)
            return;
        (void)add(list, rg_context_current_owner(), name, managed, future, NULL);
    }
}

void rg_variables_unmap(struct rg_variable *const *list)
{
    RG_SCOPED_LOCK(&lock);
    for (const struct rg_variable *at = *list; at; at = at->next)
        if (!at->future && !at->fresh)
            (void)rg_map_remove(at->place.address, 1u << RG_RANGE_GLOBAL | 1u << RG_RANGE_MANAGED, NULL);
}

void rg_variables_drop(struct rg_variable **list, uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
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
static bool known_place(struct rg_variable **list, const char *name, bool managed,
                        struct rg_variable_place *place, bool *fresh, CUresult *status)
{
    pthread_mutex_lock(&lock);
    struct rg_variable *variable = find(*list, name, managed);
    struct rg_future *future = variable ? variable->future : NULL;
    if (future)
        rg_future_keep(future);
    else if (variable)
        *place = variable->place;
    *fresh = variable && (future || variable->fresh);
    pthread_mutex_unlock(&lock);
    *status = CUDA_SUCCESS;
    if (!future)
        return variable != NULL;
    struct rg_reader reply;
    *status = rg_future_wait(future, &reply);
    if (*status == CUDA_SUCCESS)
        rg_get_into(&reply, place, sizeof *place);
    const bool good = *status != CUDA_SUCCESS || !reply.bad;
    pthread_mutex_lock(&lock);
    variable = find(*list, name, managed); /* others may have been here meanwhile */
    const bool mine = variable && variable->future == future;
    if (mine) {
        variable->future = NULL;
        variable->place = *place;
        if (*status != CUDA_SUCCESS || !good)
            variable->context = 0; /* nobody finds it any more */
    }
    pthread_mutex_unlock(&lock);
    if (mine)
        rg_future_release(future);
    rg_future_release(future);
    /* if memory was short, there may be some by now, or some that can be given back: it is asked for anew */
    return good && *status != CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_variables_find(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                           struct rg_variable_place *place, bool *fresh)
{
    struct rg_variable **list = list_of(kind, owner);
    CUresult status;
    if (!list) /* another thread has just unloaded it */
        return CUDA_ERROR_INVALID_HANDLE;
    if (rg_optimise[RG_OPT_QUERY_CACHE] && known_place(list, name, managed, place, fresh, &status))
        return status;
    status = fetch(kind, owner, name, managed, place);
    *fresh = true;
    pthread_mutex_lock(&lock);
    const bool listed = find(*list, name, managed) != NULL;
    pthread_mutex_unlock(&lock);
    if (status == CUDA_SUCCESS && !listed)
        (void)add(list, rg_context_current_owner(), name, managed, NULL, place);
    return status;
}

void rg_variables_used(enum rg_kind kind, uint64_t owner, const char *name, bool managed)
{
    struct rg_variable **list = list_of(kind, owner);
    RG_SCOPED_LOCK(&lock);
    struct rg_variable *variable = list ? find(*list, name, managed) : NULL;
    if (variable)
        variable->fresh = false;
}
