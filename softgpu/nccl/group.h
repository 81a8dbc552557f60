/*
 * group.h - the calls of a thread between ncclGroupStart and ncclGroupEnd, or the one call outside of both.
 *
 * The state is the thread's. A call that fails in a group makes the group's end return its error and do nothing, as NCCL's.
 */
#ifndef SG_NCCL_GROUP_H
#define SG_NCCL_GROUP_H

#include "softgpu/nccl/exchange.h"

/** In a group, *comm is there when the group ends. The current context's device is the rank's. */
ncclResult_t sg_group_join(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank, bool blocking);
ncclResult_t sg_group_split(ncclComm_t comm, int color, int key, ncclComm_t *out, bool blocking);
/** `excluded`: a bit for each rank that stays away (sg_clique_shrink). */
ncclResult_t sg_group_shrink(ncclComm_t comm, uint64_t excluded, bool abort, ncclComm_t *out, bool blocking);
/** Puts calls into their streams, of which none is captured, as one group. */
ncclResult_t sg_group_run(const struct sg_nccl_call *calls, size_t n);
/** Notes a failure for the group that the thread is in; returns it. */
ncclResult_t sg_group_failed(ncclResult_t result);

#endif
