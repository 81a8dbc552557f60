/* context.h - contexts as other parts of the client need them. */
#ifndef RG_CLIENT_API_CONTEXT_H
#define RG_CLIENT_API_CONTEXT_H

#include "client/core/handle.h"

#include <cuda.h>
#include <stdint.h>

/** What is known of a context; NULL: there is none such. */
struct rg_context *rg_context_shadow(CUcontext context);
/**
 * A context, which stays, on the device of a guest's session (client/connect/guest.h). The program does not know it: it is current only
 * while a call of the program's has it so (client/core/context_scope.h).
 */
CUresult rg_context_of_guest(CUcontext *context, CUdevice device);
/** Whether the program may call functions of contexts of this device. */
CUresult rg_context_allowed_on(CUdevice device);

/**
 * Finds out which contexts have failed, where rg_contexts_suspect: asks for each that is not known to have.
 */
void rg_context_find_failed(void);
/**
 * A context has ended by another call than those that destroy contexts: forgets what is known of it and in
 * it.
 */
void rg_context_ended(uint64_t context);

/** What was opened in it of other processes on servers that the program does not use is closed; what is the context's own goes with it. */
void rg_ipc_context_ends(uint64_t context);

/* The steps of an end, for those that destroy contexts, in this order. */

/** What the host has lent to a context that is about to end comes back. */
void rg_context_before_end(uint64_t context);
/** What the client knew of the context's contents is gone with them. */
void rg_context_forget_contents(uint64_t context);
/**
 * Streams, events and linker states have gone with the context: the worker is told of it before their handles
 * can become others'.
 */
void rg_context_orphan_contents(uint64_t context);

#endif
