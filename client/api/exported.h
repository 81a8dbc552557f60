/*
 * exported.h - on which server lies what another process has exported (cuIpcGetMemHandle, cuIpcGetEventHandle).
 *
 * The worker's token takes the first half of such a handle (server/export/export.h). In the second, which is zeros for workers, the
 * client that exports notes the server and the GPU. A program opens the handle on that server, whichever its current context is on:
 * what it opens is then memory, or an event, of that server's, as if it were the program's own there. Where it does not use that
 * server, it begins a session there as a guest (client/connect/guest.h), as the identity that it is for that server; what another identity
 * has exported is not opened for it there. Copies to and from other servers and their streams' waits work (client/multiserver/); kernels of
 * other servers cannot touch it.
 *
 * Any thread.
 */
#ifndef RG_CLIENT_API_EXPORTED_H
#define RG_CLIENT_API_EXPORTED_H

#include "client/core/handle.h"
#include "client/core/session.h"

#define RG_EXPORTED_HANDLE 64 /* bytes of a handle */

/** A device of the server that an object belongs to. */
CUdevice rg_exported_device(enum rg_kind kind, uint64_t handle);
/** Notes in a handle of RG_EXPORTED_HANDLE bytes that it is of the server of `device`. */
void rg_exported_mark(void *handle, CUdevice device);

/** Opens what the RG_EXPORTED_HANDLE bytes of `token` name on the server of the current context; it knows no such: CUDA_ERROR_INVALID_VALUE. */
typedef CUresult rg_exported_opener(const void *token, void *user);
/**
 * Has a handle opened where it is of, in a context there; it may be tried elsewhere before. What cannot be had is explained on stderr, where
 * `call` is the program's.
 */
CUresult rg_exported_open(const char *call, const void *handle, rg_exported_opener *open, void *user);

#endif
