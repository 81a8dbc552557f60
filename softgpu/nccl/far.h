/*
 * far.h - operations with ranks of other processes: who tells whom what, and the data that goes between them.
 *
 * When a member's stream gets to an operation, the other processes that take part hear of it (SG_WIRE_COME): the rank is there, what it
 * has called, and its process has memory for what it is to be sent. To each process that has said so goes, once it is here, what a member
 * gives, as far as ranks of that process reduce or take it, and where all get what is reduced, the block that a member has reduced. So
 * of a sum of S bytes over n processes each sends and receives 2 (n - 1) / n S bytes, as around a ring, in two steps
 * whatever n is; and the order of additions is the same wherever the ranks are.
 *
 * Of a small operation that all need something of (sg_exchange_is_small) all that a rank gives goes with SG_WIRE_COME, and each process
 * reduces all by itself: so a small sum takes the time of one message and not of three.
 *
 * Nobody is sent data that it has no memory for, so readers never wait. Lock: the clique's.
 */
#ifndef SG_NCCL_FAR_H
#define SG_NCCL_FAR_H

#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/peer.h"

/** An operation is new here: what others have said of it is taken. It may fail the clique. */
void sg_far_begin(struct sg_exchange *exchange);
/**
 * A member is there: those who are to hear of it, by their places in the clique where it concerns all of them; how many. They are to be
 * pushed and released (peer.h) without the lock.
 */
int sg_far_tell_come(const struct sg_exchange *exchange, int rank, struct sg_peer *told[SG_NCCL_RANKS_MAX]);
/** Of a small operation whose members are all there: reads what the others give, which have been told, for a while. Without the lock. */
void sg_far_read(const struct sg_exchange *exchange, struct sg_peer *const *told, int n_told);
/** Queues what can be sent by now. */
void sg_far_send(struct sg_exchange *exchange);
/** Whether data is still to be sent or to come. */
bool sg_far_is_waited_for(const struct sg_exchange *exchange);
/** A rank of another process is there; with the list's lock, too. False: that cannot be. */
bool sg_far_comes(struct sg_clique *clique, struct sg_peer *peer, const struct sg_wire *wire,
                  const void *data, size_t size);
/** Data comes; no lock is held. False: that cannot be, or the link is lost. */
bool sg_far_data(struct sg_peer *peer, const struct sg_wire *wire, size_t size);
/** Frees what was said of operations that nobody here called. */
void sg_far_fini(struct sg_clique *clique);

/* --- internal: far_send.c for far.c --- */

/** Whether what is reduced goes to all. */
bool sg_far_is_shared(const struct sg_exchange *exchange);
/** How many parts of what a rank gives ranks of a process need: one block each where they reduce, else all at once. -1: this process. */
int sg_far_parts(const struct sg_exchange *exchange, int far);
/** Whether a member sends what it gives, or has reduced, to that process at all. */
bool sg_far_goes(const struct sg_exchange *exchange, enum sg_phase phase, int rank, int far);

#endif
