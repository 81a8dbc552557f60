/* context_scope.h - a call that is made in another context than the calling thread's current one. */
#ifndef RG_CLIENT_MULTISERVER_CONTEXT_SCOPE_H
#define RG_CLIENT_MULTISERVER_CONTEXT_SCOPE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * The context of a home (client/core/home.h): itself, or for a server the last that was used there; 0: none.
 */
uint64_t rg_home_context(uint64_t home);
uint64_t rg_home_context_of_stream(CUstream stream);
/**
 * Makes a context the calling thread's current one; where that succeeds, rg_context_scope_leave undoes it.
 */
CUresult rg_context_scope_enter(uint64_t context);
void rg_context_scope_leave(void);
/**
 * The same with the context of a stream that was created, where that is not the current one: then *entered.
 */
CUresult rg_context_scope_enter_stream(CUstream stream, bool *entered);
/** Waits for a stream of a context. */
CUresult rg_context_scope_synchronize(uint64_t context, CUstream stream);

#endif
