/*
 * peer_copy.h - copies between servers: the destination pulls. Where the two are connected (peer_link.h) the data goes from one
 * to the other; else what is asked for is read from the source into memory of this client, in parts, a few of them ahead.
 */
#ifndef RG_CLIENT_MULTISERVER_PEER_COPY_H
#define RG_CLIENT_MULTISERVER_PEER_COPY_H

#include <cuda.h>
#include <stdint.h>

struct rg_copy;

/**
 * Puts a copy between servers, the homes of its ends, into its stream; returns at once, unless it is
 * synchronous.
 */
CUresult rg_peer_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_home);

#endif
