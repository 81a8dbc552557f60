/*
 * meeting.h - ranks find each other in the process that has made their id.
 *
 * Happy path: each rank joins, from its own process by a call and from others by a message (SG_WIRE_JOIN). When all have, each process
 * gets the table of who is where (SG_WIRE_TABLE). An id is good for one communicator: joining it again is refused.
 *
 * Lock: the list's of cliques.
 */
#ifndef SG_NCCL_MEETING_H
#define SG_NCCL_MEETING_H

#include "softgpu/nccl/wire.h"

struct sg_peer;

/** A new id, of this process; false: the system gives no random numbers, or there is no memory. */
bool sg_meeting_new(struct rg_nccl_id *id);
/** A rank of this process; `*why` is a sentence if it may not join. The lock is held. */
ncclResult_t sg_meeting_join(uint64_t key, int rank, int n, char why[SG_NCCL_WHY]);
/** A rank of another process. */
bool sg_meeting_joins(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size);
/** The communicator has failed in some process: who has joined is told, and nobody else may. The lock is held. */
void sg_meeting_failed(uint64_t key, ncclResult_t error, const char *why);
/** A link has ended: who waits for its ranks is told. The lock is held. */
void sg_meetings_lost(struct sg_peer *peer);
/** Those whose ranks have not all come since before `since_ns` fail; `seconds` is how long that is. The lock is held. */
void sg_meetings_look(uint64_t since_ns, double seconds);

#endif
