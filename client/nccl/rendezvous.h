/*
 * rendezvous.h - ranks of one communicator in several processes: their sessions are connected to each other.
 *
 * The software device's NCCL says of whom a session needs a connection to: first of the one whose process made the id, then of all
 * others. Each is found by its place (struct rg_nccl_place), to which this client asks for an invitation: only who has begun a session
 * there gets one. With that the own server connects the two, as for copies between servers (client/multiserver/peer_link.h). No data of ranks comes here.
 *
 * NVIDIA's NCCL opens its own connections between servers, and needs none of this.
 */
#ifndef RG_CLIENT_NCCL_RENDEZVOUS_H
#define RG_CLIENT_NCCL_RENDEZVOUS_H

#include "client/nccl/nccl.h"

/** Tells the session's worker where it is found, once. */
void rg_nccl_tell_place(const struct rg_session *session);
/**
 * Sees to the connections that a communicator needs until it has begun, or (waits false) as far as they are known by now: then
 * ncclInProgress, if it has not. What is not possible makes the communicator fail, on all ranks.
 */
ncclResult_t rg_nccl_rendezvous(ncclComm_t comm, bool waits);

#endif
