/* extension.h - the functions of struct rg_nccl_extension (common/cuda/nccl_network.h) by the files that have them. */
#ifndef SG_NCCL_EXTENSION_H
#define SG_NCCL_EXTENSION_H

#include "common/cuda/nccl_network.h"

/* peer.c */
void sg_extension_use(const struct rg_nccl_network *network);
void sg_extension_set_place(const unsigned char place[RG_NCCL_PLACE_BYTES]);
struct sg_peer *sg_extension_opened(void *link);
/* receive.c */
bool sg_extension_message(struct sg_peer *peer, const void *message, size_t size, size_t data_size);
void sg_extension_lost(struct sg_peer *peer);
/* placing.c */
ncclResult_t sg_extension_await(ncclComm_t comm, bool waits, unsigned char (*places)[RG_NCCL_PLACE_BYTES],
                                unsigned most, unsigned *n);
void sg_extension_unreachable(ncclComm_t comm, const char *why);

#endif
