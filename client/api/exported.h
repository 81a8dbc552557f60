/*
 * exported.h - on which server lies what another process has exported (cuIpcGetMemHandle, cuIpcGetEventHandle).
 *
 * The worker's token takes the first half of such a handle (server/export/export.h). In the second, which is zeros for workers, the
 * client that exports notes the server and the device. A program that uses several servers opens the handle on that one, whichever
 * its current context is on: what it opens is then memory, or an event, of that server's, as if it were the program's own there.
 * Copies to and from other servers and their streams' waits work (client/multiserver/); kernels of other servers cannot touch it.
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

/** A handle that is being opened. */
struct rg_exported {
    unsigned char token[RG_EXPORTED_HANDLE]; /* what its worker knows it by */
    bool entered, foreign; /* a context; the server is none of this program's, as far as it is known */
    char server[64];       /* of a foreign one */
};
/** Makes a context on the handle's server the current one, if the current one is on another. Where that succeeds, rg_exported_leave follows. */
CUresult rg_exported_enter(struct rg_exported *exported, const void *handle);
/** Undoes it; `status`: what came of the opening, of which one that could not succeed is explained on stderr. */
CUresult rg_exported_leave(const struct rg_exported *exported, CUresult status);

#endif
