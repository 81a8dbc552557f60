/*
 * replication.h - libraries and kernels, which belong to no context: each server has its own under the same
 * handle.
 *
 * A library is loaded on the server of its first use, and one of its kernels found there; where several
 * servers are used, a copy of the image is kept, and a server that meets the handle in a call is given it
 * first.
 */
#ifndef RG_CLIENT_MULTISERVER_REPLICATION_H
#define RG_CLIENT_MULTISERVER_REPLICATION_H

#include "client/cache/image.h"
#include "client/cache/jit_options.h"
#include "client/core/home.h"

/**
 * Makes the library, kernel or function known to the server that `owner` means. Functions are of one server.
 */
CUresult rg_replication_look_up(enum rg_kind kind, uint64_t handle, uint64_t home);
static inline CUresult rg_replication_to(enum rg_kind kind, uint64_t handle, uint64_t home)
{
    return rg_several_own_servers() ? rg_replication_look_up(kind, handle, home) : CUDA_SUCCESS;
}

/**
 * Before a library is loaded: a copy of its image, to be given to rg_replication_note. NULL in *image with
 * one server.
 */
CUresult rg_replication_keep(const struct rg_image_view *view, struct rg_image_copy **image);
/** A library has been loaded on the current server. Takes over `image`. */
void rg_replication_note(uint64_t library, struct rg_image_copy *image, const struct rg_jit *jit);
/** Unloads the library on each server that has it. */
CUresult rg_replication_unload(uint64_t library);

#endif
