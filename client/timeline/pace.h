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
 *
 * What a stream does by then says nothing of what it has to do behind a gate: something that it waits for, and that a thread may do whenever it
 * likes. From each gate on, all streams' steps are the least again.
 */
#ifndef RG_CLIENT_TIMELINE_PACE_H
#define RG_CLIENT_TIMELINE_PACE_H

#include "client/core/thread.h"

#include <stdatomic.h>

/** How many gates there have been. */
extern atomic_uint rg_pace_gates;

/** A stream is about to be given a gate: a value that it waits for, or a function of the host's. */
static inline void rg_pace_gate(void)
{
    atomic_fetch_add_explicit(&rg_pace_gates, 1, memory_order_relaxed);
}

/** A stream is about to be given what may stand behind another's gate. */
static inline void rg_pace_may_gate(void)
{
    if (atomic_load_explicit(&rg_pace_gates, memory_order_relaxed))
        rg_pace_gate();
}

/** Where the thread counts the stream, or would have to forget another one to do so. */
static inline struct rg_pace *rg_pace_of(struct rg_thread *thread, CUstream stream, uint64_t context)
{
    const uint64_t hash = ((uint64_t)(uintptr_t)stream + context * 31) * 0x9e3779b97f4a7c15u >> 32;
    struct rg_pace *const paces = thread->timeline.paces, *place = NULL;
    for (unsigned i = 0; i < RG_PACE_PLACES; i++) {
        struct rg_pace *pace = &paces[(hash + i) % RG_PACES];
        if (pace->step && pace->stream == stream && pace->context == context)
            return pace;
        if (!place && !pace->step)
            place = pace;
    }
    return place ? place : &paces[hash % RG_PACES];
}

/** The end of a step, another stream than before, or a gate since then. */
void rg_pace_step(struct rg_pace *pace, CUstream stream, uint64_t context);

/**
 * Before a launch into `stream`, of the context that is current: may wait until the stream has done earlier work. The thread holds no
 * locks. Failures are later calls' to tell.
 */
static inline void rg_pace(struct rg_thread *thread, CUstream stream, uint64_t context)
{
    struct rg_pace *pace = rg_pace_of(thread, stream, context);
    if (pace->left <= 0 || pace->stream != stream || pace->context != context ||
        pace->gates != atomic_load_explicit(&rg_pace_gates, memory_order_relaxed))
        rg_pace_step(pace, stream, context);
}

/** The stream, of that context, gets `n` things more to do. Any n below STEP_MOST of pace.c. */
static inline void rg_pace_count(struct rg_thread *thread, CUstream stream, uint64_t context, int n)
{
    struct rg_pace *pace = rg_pace_of(thread, stream, context);
    if (pace->stream == stream && pace->context == context)
        pace->left -= n;
}

#endif
