/*
 * nccl_messages.h - NCCL's collectives that are messages and nothing else (ncclAlltoAll, ncclGather and ncclScatter, of NCCL 2.28), made of
 * ncclSend and ncclRecv: the client's for it, and those of the software device's library for that.
 */
#ifndef RG_COMMON_CUDA_NCCL_MESSAGES_H
#define RG_COMMON_CUDA_NCCL_MESSAGES_H

#include "common/cuda/nccl.h"
#include "common/cuda/nccl_network.h"

#include <stdbool.h>

/** The functions that they are made of. */
struct rg_nccl_messages {
    ncclResult_t (*group_start)(void), (*group_end)(void);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
};

/** What one rank of a communicator sends to the ranks of a range, and receives from those of another one: `count` elements each. */
struct rg_nccl_exchanged {
    const void *send; /* for the first of them; what is for the others lies behind it */
    void *receive;
    size_t count;
    ncclDataType_t type;
    int rank; /* the caller's */
    int to, to_end, from, from_end;
};

/** Of `n` ranks each sends to each. */
static inline struct rg_nccl_exchanged rg_nccl_all_to_all(const void *send, void *receive, size_t count,
                                                          ncclDataType_t type, int rank, int n)
{
    return (struct rg_nccl_exchanged){send, receive, count, type, rank, 0, n, 0, n};
}

/** Each sends to the root. */
static inline struct rg_nccl_exchanged rg_nccl_gather(const void *send, void *receive, size_t count,
                                                      ncclDataType_t type, int root, int rank, int n)
{
    return (struct rg_nccl_exchanged){
        send, receive, count, type, rank, root, root + 1, 0, rank == root ? n : 0};
}

/** The root sends to each. */
static inline struct rg_nccl_exchanged rg_nccl_scatter(const void *send, void *receive, size_t count,
                                                       ncclDataType_t type, int root, int rank, int n)
{
    return (struct rg_nccl_exchanged){send, receive, count, type, rank, 0, rank == root ? n : 0,
                                      root, root + 1};
}

/* Where the part for `peer` is, in a buffer whose first part is for `first`; 0: there is no buffer. */
static inline uintptr_t rg_nccl_part_of(const void *buffer, const struct rg_nccl_exchanged *all, int first,
                                        int peer)
{
    const size_t size = all->count * rg_nccl_type_size((unsigned)all->type);
    return buffer ? (uintptr_t)buffer + size * (size_t)(peer - first) : 0;
}

/**
 * One group of all these messages, or part of the group that the thread is in. What the caller sends to itself stays where it is if it is in its
 * place already. Returns the first failure, which the functions tell. Threads: any.
 */
static inline ncclResult_t rg_nccl_exchange(const struct rg_nccl_messages *by,
                                            const struct rg_nccl_exchanged *all, ncclComm_t comm,
                                            CUstream stream)
{
    const bool in_place = all->rank >= all->to && all->rank < all->to_end && all->rank >= all->from &&
                          all->rank < all->from_end &&
                          rg_nccl_part_of(all->send, all, all->to, all->rank) ==
                              rg_nccl_part_of(all->receive, all, all->from, all->rank);
    ncclResult_t result = by->group_start();
    for (int peer = all->to; peer < all->to_end && result == ncclSuccess; peer++)
        if (!in_place || !all->send || peer != all->rank)
            result = by->send((const void *)rg_nccl_part_of(all->send, all, all->to, peer), all->count,
                              all->type, peer, comm, stream);
    for (int peer = all->from; peer < all->from_end && result == ncclSuccess; peer++)
        if (!in_place || !all->receive || peer != all->rank)
            result = by->receive((void *)rg_nccl_part_of(all->receive, all, all->from, peer), all->count,
                                 all->type, peer, comm, stream);
    const ncclResult_t ended = by->group_end();
    return result == ncclSuccess ? ended : result;
}

#endif
