/* context.h - contexts as other parts of the client need them. */
#ifndef RG_CLIENT_API_CONTEXT_H
#define RG_CLIENT_API_CONTEXT_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

/** The calling thread's current context handle, 0 if none; no checks. */
uint64_t rg_context_current(void);

/**
 * A worker has told of an error that ends a context, but not of which one: an operation may have failed for the context of
 * its stream, and failures arrive later. The next call that needs a context finds out with rg_context_find_failed, which
 * asks for each context that is not known to have failed.
 */
extern atomic_bool rg_contexts_suspect;
void rg_context_find_failed(void);
/** A context has ended by another call than those that destroy contexts: forgets what is known of it and in it. */
void rg_context_ended(uint64_t context);

#endif
