/*
 * network.h - connections between the workers of several processes, by which ranks of the software device's NCCL reach each other
 * (common/cuda/nccl_network.h). The clients see to it that there are such (server/peers/peers.h).
 */
#ifndef RG_SERVER_NCCL_NETWORK_H
#define RG_SERVER_NCCL_NETWORK_H

#include "server/nccl/library.h"

/** Has connections serve NCCL, where it is the software device's; the first call counts. Any thread. */
void rg_nccl_network_start(void);

#endif
