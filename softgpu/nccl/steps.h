/*
 * steps.h - the steps of an operation (exchange.h) in each rank's stream: copies, waits, and the host functions between them.
 *
 * A host function tells other processes by itself that its rank is there, with what it gives if that is little. Rather than have its
 * stream sleep until a link's reader has woken it, it then takes part in reading, for a short time (sg_far_read).
 */
#ifndef SG_NCCL_STEPS_H
#define SG_NCCL_STEPS_H

#include "softgpu/nccl/exchange.h"

/**
 * Three passes over all calls of a group, so that calls that concern each other do not depend on their order. `pass` 0 gives, 1
 * reduces, 2 takes.
 */
#define SG_NCCL_PASSES 3
ncclResult_t sg_exchange_enqueue(struct sg_enqueued *enqueued, int pass);

#endif
