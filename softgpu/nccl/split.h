/*
 * split.h - communicators that are made of the ranks of another one.
 *
 * Every rank enters with a colour and a key, and says so to the other processes (SG_WIRE_SPLIT). When all have, each process makes the
 * cliques of the colours that its own members have; their keys follow from the parent's, so nobody has to tell them. A communicator is
 * shrunk by a split that some ranks do not enter: all others know which, and those are taken for ranks without a colour.
 *
 * Locks: the list's, then the parent's.
 */
#ifndef SG_NCCL_SPLIT_H
#define SG_NCCL_SPLIT_H

#include "softgpu/nccl/clique.h"

/** Enters the split that is comm's next. The new communicator, or NULL for no colour, is at *out when sg_clique_wait_split has returned. */
ncclResult_t sg_clique_split(ncclComm_t comm, int color, int key, bool blocking, ncclComm_t *out,
                             struct sg_split **split);
/**
 * The same without the ranks of `excluded` (a bit each), which do nothing. With `abort`, what goes on in comm ends first, and that comm has
 * failed, then or before, does not matter.
 */
ncclResult_t sg_clique_shrink(ncclComm_t comm, uint64_t excluded, bool abort, bool blocking, ncclComm_t *out,
                              struct sg_split **split);
/** Waits until all have entered and, if the new communicator blocks, until it has begun. */
ncclResult_t sg_clique_wait_split(ncclComm_t comm, struct sg_split *split);
/** A rank of another process enters. False: that cannot be. */
bool sg_split_far_enters(struct sg_peer *peer, const struct sg_wire *wire);
/** Gives up those that a member has waited for since before `since_ns`: a rank does not come. The clique's lock is held. */
void sg_splits_look(struct sg_clique *clique, uint64_t since_ns, double seconds);
/** Frees those of a clique that nobody is in any more. */
void sg_splits_fini(struct sg_clique *clique);
/** Frees what is kept of how often a communicator was shrunk. */
void sg_shrinks_fini(ncclComm_t comm);

#endif
