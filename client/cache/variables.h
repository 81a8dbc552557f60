/*
 * variables.h - where the variables of modules and libraries are, which is the worker's to say: asked for
 * once, and ahead where that is known to come. What has been said holds until the module or the context ends.
 *
 * A module or library has a list of those that were asked for. Any thread; the lists have one lock, a leaf.
 */
#ifndef RG_CLIENT_CACHE_VARIABLES_H
#define RG_CLIENT_CACHE_VARIABLES_H

#include "client/cache/image_cache.h"

struct rg_variable;

/** What the worker says of a variable. */
struct rg_variable_place {
    uint64_t address, bytes;
    uint64_t start, size; /* the managed memory that it is part of; size 0: none */
};
#define RG_VARIABLE_ANSWER 32 /* bytes of that */

/**
 * The variables of a module or library that was just loaded and that earlier programs asked for: asks for
 * them.
 */
void rg_variables_ask(enum rg_kind kind, uint64_t owner, struct rg_cached_image *cached);
/** A variable that nobody has asked for yet, in `context`; `answer` has RG_VARIABLE_ANSWER bytes. */
void rg_variables_learn(enum rg_kind kind, uint64_t owner, uint64_t context, const char *name,
                        const void *answer);
/**
 * The place of a variable in the current context, waiting for it if need be. *fresh: the program has not got
 * it before, so that rg_variables_used is to follow once it has.
 */
CUresult rg_variables_find(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                           struct rg_variable_place *place, bool *fresh);
void rg_variables_used(enum rg_kind kind, uint64_t owner, const char *name, bool managed);
/** They are about to be unloaded: their addresses are nobody's. */
void rg_variables_unmap(struct rg_variable *const *list);
/** Forgets those of the list that belong to `context` (0: all). */
void rg_variables_drop(struct rg_variable **list, uint64_t context);

#endif
