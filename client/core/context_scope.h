/*
 * context_scope.h - calls in another context than the calling thread's current one: it is pushed, as programs push one, for as long as they
 * last. Any thread.
 */
#ifndef RG_CLIENT_CORE_CONTEXT_SCOPE_H
#define RG_CLIENT_CORE_CONTEXT_SCOPE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

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
