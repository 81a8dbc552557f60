/*
 * exchange.h - one operation of all its ranks: the memory through which data goes, and the steps in each rank's stream.
 *
 * Happy path of a collective of n ranks: each rank's stream copies what it gives into its place of page-locked memory, and counts
 * itself in a word there by a host function. It then waits (by a memory operation of the stream) until the word is n, and copies what
 * the rank gets out of it. Where something is to be reduced, a host function of each rank reduces one block in between, block b in the
 * order b+1, b+2, …, b of the ranks as a ring would, and a second word counts who has. Nothing waits on the host, so one thread may call
 * for all ranks. A send is complete when its data is in the memory.
 *
 * Ranks that disagree in what they call make the clique fail, and so does a rank that does not come in time (deadline.h): both words
 * are then set, so that no stream waits.
 */
#ifndef SG_NCCL_EXCHANGE_H
#define SG_NCCL_EXCHANGE_H

#include "softgpu/nccl/clique.h"

enum sg_nccl_kind {
    SG_NCCL_ALL_REDUCE,
    SG_NCCL_REDUCE,
    SG_NCCL_BROADCAST,
    SG_NCCL_ALL_GATHER,
    SG_NCCL_REDUCE_SCATTER,
    SG_NCCL_SEND,
    SG_NCCL_RECEIVE,
};

/** A call, whose values are checked. */
struct sg_nccl_call {
    enum sg_nccl_kind kind;
    ncclComm_t comm;
    CUdeviceptr send, receive;
    size_t count; /* as the caller says it, not 0 */
    ncclDataType_t type;
    int op;   /* an operator's number for those that are made */
    int peer; /* the root, or the other end */
    CUstream stream;
    struct sg_operator operator; /* if it is such a one: as it is now */
};

/** How far a call has been put into its stream. */
struct sg_enqueued {
    struct sg_nccl_call call;
    struct sg_exchange *exchange;
};

/**
 * Three passes over all calls of a group, so that calls that concern each other do not depend on their order. `pass` 0 gives, 1
 * reduces, 2 takes.
 */
#define SG_NCCL_PASSES 3
ncclResult_t sg_exchange_enqueue(struct sg_enqueued *enqueued, int pass);

/** The name of NCCL's function. */
const char *sg_nccl_kind_name(enum sg_nccl_kind kind);
/** Lets all streams go on: the clique has failed; its lock is held. */
void sg_exchange_release(struct sg_clique *clique);
/** Which operation has waited since before `since_ns`, in words; false: none. The clique's lock is held. */
bool sg_exchange_overdue(const struct sg_clique *clique, uint64_t since_ns, char *text, size_t size);
/** Frees all memory of a clique that nobody is in any more. */
void sg_exchange_fini(struct sg_clique *clique);

#endif
