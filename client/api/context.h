/* context.h - contexts as other parts of the client need them. */
#ifndef RG_CLIENT_API_CONTEXT_H
#define RG_CLIENT_API_CONTEXT_H

#include <stdint.h>

/**
 * Finds out which contexts have failed, where rg_contexts_suspect: asks for each that is not known to have.
 */
void rg_context_find_failed(void);
/**
 * A context has ended by another call than those that destroy contexts: forgets what is known of it and in
 * it.
 */
void rg_context_ended(uint64_t context);

#endif
