/* variable.h - variables of modules and libraries: where they are, asked for once, and ahead where that is known to come. */
#ifndef RG_CLIENT_API_VARIABLE_H
#define RG_CLIENT_API_VARIABLE_H

#include "client/cache/image_cache.h"
#include "client/core/handle.h"

/** The variables of a module or library that was just loaded and that earlier programs asked for: asks for them. */
void rg_variables_ask(enum rg_kind kind, uint64_t owner, struct rg_cached_image *known);
/** The bytes of an answer that says where a variable is. */
#define RG_VARIABLE_ANSWER 32
/** A variable that nobody has asked for yet, in `context`; `answer` has RG_VARIABLE_ANSWER bytes. */
void rg_variables_learn(enum rg_kind kind, uint64_t owner, uint64_t context, const char *name,
                        const void *answer);
/** They are about to be unloaded: their addresses are nobody's. The lock of found objects is held. */
void rg_variables_unmap(const struct rg_variable *list);
/** Forgets those of the list that belong to `context` (0: all). */
void rg_variables_drop(struct rg_variable **list, uint64_t context);

#endif
