/* function.h - functions and kernels that have been found, and what the worker told about them. */
#ifndef RG_CLIENT_API_FUNCTION_H
#define RG_CLIENT_API_FUNCTION_H

#include "client/core/handle.h"
#include "proto/codec.h"

/** An object found earlier: by name (functions of a module, kernels of a library) or by another handle. */
struct rg_found_function {
    struct rg_found_function *next;
    uint64_t handle;
    uint64_t key; /* by_context, modules: the context */
    char name[];
};

/** The list's entry with that name / key, 0 if there is none. */
uint64_t rg_found_by_name(const struct rg_found_function *list, const char *name);
uint64_t rg_found_by_key(const struct rg_found_function *list, uint64_t key);
/** Adds an entry (name may be NULL); false: out of memory. */
bool rg_found_add(struct rg_found_function **list, const char *name, uint64_t key, uint64_t handle);
/** Takes the entry with that key out of the list; 0 if there is none. */
uint64_t rg_found_take(struct rg_found_function **list, uint64_t key);
/** Frees the list; with `kind` a handle kind, deletes its handles too. */
void rg_found_free(struct rg_found_function **list, enum rg_kind kind);
/** Guards all lists of found objects. */
void rg_found_lock(void);
void rg_found_unlock(void);

/**
 * Reads struct rg_function_info and its parameters into a shadow; false if they are malformed or memory ran
 * out.
 */
bool rg_function_read(struct rg_reader *reply, struct rg_function *function, const char *name,
                      uint64_t owner);
/** A context has ended: its modules and their functions are gone. */
void rg_modules_context_ended(uint64_t context);
/** The shadow of a function or kernel, or NULL. */
struct rg_function *rg_function_of(CUfunction function);
/** The function that a kernel has in the current context, as far as it was asked for; else NULL. */
const struct rg_function *rg_kernel_function_here(const struct rg_function *kernel);

#endif
