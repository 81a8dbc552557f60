/*
 * pace.h - how far a thread may run ahead of the device.
 *
 * A driver holds about a thousand launches of a stream, then the thread that launches waits for the device. Here the wire would hold a
 * hundred times as many, and the worker wait in its driver for room: whatever another thread asks for would stand behind all of that,
 * and if the stream waits for what that thread does next, nothing would go on. So who launches waits here, where that holds up nobody,
 * while its stream has about as much to do as a driver has room for. To know that, it has the worker tell when the stream has come to
 * the end of each step of calls (a mark).
 *
 * Where the wire is long, or kernels are short, the device would run dry by that: then steps grow until what the stream has to do
 * takes it a few times as long as an answer takes. Threads that are alone in their program do as they like.
 */
#ifndef RG_CLIENT_TIMELINE_PACE_H
#define RG_CLIENT_TIMELINE_PACE_H

#include "client/core/thread.h"

static inline struct rg_pace *rg_pace_of(struct rg_thread *thread, CUstream stream)
{
    const uintptr_t name = (uintptr_t)
        stream; /* created ones differ from bit 4 on (kinds.h), the default streams in bits 0 and 1 */
    return &thread->timeline.paces[(name >> 4 ^ name) % RG_PACES];
}

/** The end of a step, or another stream than before. */
void rg_pace_step(struct rg_pace *pace, CUstream stream, uint64_t context);

/**
 * Before a launch into `stream`, of the context that is current: may wait until the stream has done earlier work. The thread holds no
 * locks. Failures are later calls' to tell.
 */
static inline void rg_pace(struct rg_thread *thread, CUstream stream, uint64_t context)
{
    struct rg_pace *pace = rg_pace_of(thread, stream);
    if (pace->left <= 0 || pace->stream != stream || pace->context != context)
        rg_pace_step(pace, stream, context);
}

#endif
