/*
 * implied_context.h - calls that bring a context along. A thread without a current context may use objects
 * and memory that belong to one, as far as the call's line in the specification says so (context=PARAMETER,
 * proto/api/README.md): for as long as it lasts, the context of what the parameter names is the thread's
 * current one. Generated functions around the API's own see to that (generated/client/bringing.c): a call
 * that lacks a context says so before it does anything, and is made once more in that one, so calls of
 * threads that have a context take no notice. What the client calls by itself is in a context already.
 */
#ifndef RG_CLIENT_API_IMPLIED_CONTEXT_H
#define RG_CLIENT_API_IMPLIED_CONTEXT_H

#include "client/core/context_scope.h"
#include "proto/kinds.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/** Whether a call returned at once because the thread has no context, or one that has ended. */
static inline bool rg_implied_context_lacks(CUresult result)
{
    return __builtin_expect(result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED,
                            0);
}
/**
 * Makes the context of an object, of an address, or of a texture or surface object current, unless the thread
 * has a live one. True: it has been made so, until rg_context_scope_leave. False: nothing was done; the call
 * finds out what it lacks.
 */
bool rg_implied_context_begin(enum rg_kind kind, uint64_t handle);
bool rg_implied_context_of_address(uint64_t address);
bool rg_implied_context_of_texture(uint64_t number);

#endif
