/* copy_peer.h - copies of boxes between devices as copies of boxes. */
#ifndef RG_COMMON_CUDA_COPY_PEER_H
#define RG_COMMON_CUDA_COPY_PEER_H

#include "common/cuda/api.h"

/** The same copy without the contexts: addresses and arrays tell by themselves whose they are. */
CUDA_MEMCPY3D rg_cuda_copy_of_peer(const CUDA_MEMCPY3D_PEER *c);
/** The contexts whose devices it is between: NULL for an end that is the host's, whose context is ignored. */
void rg_cuda_contexts_of_peer(const CUDA_MEMCPY3D_PEER *c, CUcontext *to, CUcontext *from);

#endif
