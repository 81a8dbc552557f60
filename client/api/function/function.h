/* function.h - functions and kernels that have been found, and what the worker told about them. */
#ifndef RG_CLIENT_API_FUNCTION_FUNCTION_H
#define RG_CLIENT_API_FUNCTION_FUNCTION_H

#include "client/core/handle.h"
#include "proto/codec.h"

#include <pthread.h>
#include <string.h>

/** An object found earlier: by name (functions of a module, kernels of a library) or by another handle. */
struct rg_found_function {
    struct rg_found_function *next;
    uint64_t handle;
    uint64_t key; /* by_context, modules: the context */
    char name[];
};

/* Launches look things up: what they need of these lists is inline. */

/** The list's entry with that name / key, 0 if there is none. */
static inline uint64_t rg_found_by_name(const struct rg_found_function *list, const char *name)
{
    for (; list; list = list->next)
        if (strcmp(list->name, name) == 0)
            return list->handle;
    return 0;
}
static inline uint64_t rg_found_by_key(const struct rg_found_function *list, uint64_t key)
{
    for (; list; list = list->next)
        if (list->key == key)
            return list->handle;
    return 0;
}

/** Adds an entry (name may be NULL); false: out of memory. */
bool rg_found_add(struct rg_found_function **list, const char *name, uint64_t key, uint64_t handle);
/** Takes the entry with that key out of the list; 0 if there is none. */
uint64_t rg_found_take(struct rg_found_function **list, uint64_t key);
/** Frees the list; with `kind` a handle kind, deletes its handles too. */
void rg_found_free(struct rg_found_function **list, enum rg_kind kind);
/** Guards all lists of found objects. */
extern pthread_mutex_t rg_found_mutex;
static inline void rg_found_lock(void)
{
    pthread_mutex_lock(&rg_found_mutex);
}
static inline void rg_found_unlock(void)
{
    pthread_mutex_unlock(&rg_found_mutex);
}

/**
 * A question whose answer gives something a handle: of all those that are found in `owner` or of the one named `name`, in a context if it
 * is only there that it is asked for.
 */
struct rg_found_question {
    struct rg_found_question *next;
    uint64_t owner, context;
    const char *name;
    int cancellable; /* whether the thread was, before */
};

/**
 * Waits until no other thread is at the same question: then its answer may be in the list. The lists are locked, as they are again. The
 * thread is not cancelled until the end.
 */
void rg_found_begin(struct rg_found_question *question);
/** It has been answered. The lists are not locked. */
void rg_found_end(struct rg_found_question *question);

/**
 * Reads struct rg_function_info and its parameters into a shadow; false if they are malformed or memory ran
 * out.
 */
bool rg_function_read(struct rg_reader *reply, struct rg_function *function, const char *name,
                      uint64_t owner);
/**
 * The same for a handle that several threads may be told of at once: the first one's stays, and is added to the list if there is one.
 */
bool rg_function_fill(struct rg_reader *reply, struct rg_function *function, const char *name, uint64_t owner,
                      struct rg_found_function **list, uint64_t handle);
bool rg_function_is_filled(const struct rg_function *function);
/** Before the first launch of a function or kernel, or what sets it up without waiting: has it loaded, if that may last. */
CUresult rg_function_load_first(CUfunction handle, struct rg_function *function, uint64_t context);
/** A context has ended: its modules and their functions are gone. */
void rg_modules_context_ended(uint64_t context);
/** The shadow of a function or kernel, or NULL. */
struct rg_function *rg_function_of(CUfunction function);
/** The context that a function is of; 0 for a kernel, which may be named as a function. */
uint64_t rg_function_context(uint64_t handle, const struct rg_function *function);
/** The library that a function comes from, directly or by a module of it; NULL: it comes from none. */
struct rg_shadow *rg_function_library(const struct rg_function *function);
/** For a call about a function (or, for `kernel`, a kernel) whose answer goes to `out`: its shadow, or what the call returns. */
CUresult rg_function_asked(uint64_t handle, bool kernel, const void *out, struct rg_function **found);
/** The function that a kernel has in the current context, as far as it was asked for; else NULL. */
CUfunction rg_kernel_function_here(const struct rg_function *kernel);

/** Whether the attribute is known, which from then on it remains: then `info.attributes` and `set` may be read. */
static inline bool rg_function_knows(const struct rg_function *function, CUfunction_attribute attribute)
{
    return __atomic_load_n(&function->info.known, __ATOMIC_ACQUIRE) & 1u << attribute;
}
/** Asks for the attributes of a function or kernel, and keeps them. */
CUresult rg_function_ask_attributes(CUfunction function);
/** Sees to it that they are known, which they are but for what was found while its context was at work (proto/function_info.h). */
static inline CUresult rg_function_learn_attributes(CUfunction handle, const struct rg_function *function)
{
    return __atomic_load_n(&function->info.known, __ATOMIC_ACQUIRE) & ~RG_FUNCTION_UNLOADED
               ? CUDA_SUCCESS
               : rg_function_ask_attributes(handle);
}

#endif
