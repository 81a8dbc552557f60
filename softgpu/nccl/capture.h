/* capture.h - calls in captured streams, which become nodes of graphs (common/cuda/graph/captured.h). Any thread. */
#ifndef SG_NCCL_CAPTURE_H
#define SG_NCCL_CAPTURE_H

#include "softgpu/nccl/exchange.h"

/**
 * Fills in call->capture; ncclSuccess, or why the call cannot be: its stream is none, or is captured otherwise than those of the n calls of
 * its group that are there. `captured`: some of those are.
 */
ncclResult_t sg_capture_check(struct sg_nccl_call *call, const struct sg_nccl_call *group, size_t n,
                              bool captured);
/** Makes nodes of those calls whose streams are captured, one for each communicator, and takes them out: *n becomes what is left. */
ncclResult_t sg_capture_calls(struct sg_nccl_call *calls, size_t *n);
/** Whether graphs have calls of the communicator, which its program ends: then it goes with the last of them. */
bool sg_capture_keeps(ncclComm_t comm);

#endif
