/*
 * timeline.h - how far the device is, as far as this client knows without asking.
 *
 * Each record that is appended to a session's stream has a position. When a call has waited for a stream, an
 * event or a context, all that lies before a position is known to be done there, and questions about it need
 * no server: an event is done whose record lies before it, a stream is idle if no work has been put in behind
 * it.
 *
 * What is not done yet is asked for once, and the worker told to say when it is (subscription.h). Until then
 * the answer is "not ready", and sends nothing. It cannot be stale in a way that the program could notice:
 * whatever shows progress otherwise (a reply, a deferred read, shared memory) comes behind the notices of
 * what was done by then; a host function, in whose place the worker cannot look, makes the client ask again.
 * An event that was queried has a subscription from its next record on, without being asked for.
 *
 * streams.c and events.c are the calls; positions.h is what they know, which sessions, streams and events
 * carry. Any thread. Positions are atomic; subscriptions have a lock, which is a leaf.
 */
#ifndef RG_CLIENT_TIMELINE_TIMELINE_H
#define RG_CLIENT_TIMELINE_TIMELINE_H

#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/hooks.h"
#include "client/core/session.h"

/**
 * A record is appended, with the traits of its operation; the lock of the queue is held. Its position. With
 * RG_TRAIT_STREAM, rg_timeline_work says in which stream its work is, before the lock is released.
 */
static inline uint64_t rg_timeline_submit(struct rg_timeline *timeline, unsigned traits)
{
    const uint64_t position = atomic_load_explicit(&timeline->submitted, memory_order_relaxed) + 1;
    atomic_store_explicit(&timeline->submitted, position, memory_order_relaxed);
    if (traits & RG_TRAIT_WORK) {
        atomic_store_explicit(&timeline->work, position, memory_order_relaxed);
        if (!(traits & RG_TRAIT_STREAM)) {
            atomic_store_explicit(&timeline->work_unnamed, position, memory_order_relaxed);
            atomic_store_explicit(&timeline->work_joined, position, memory_order_relaxed);
        }
    }
    if (traits & RG_TRAIT_ACCESSES)
        atomic_store_explicit(&timeline->accesses, position, memory_order_relaxed);
    if (traits & RG_TRAIT_LASTS)
        atomic_store_explicit(&timeline->lasting, position, memory_order_relaxed);
    if ((traits & (RG_TRAIT_LASTS | RG_TRAIT_STREAM)) == RG_TRAIT_LASTS) {
        atomic_store_explicit(&timeline->lasting_not_legacy, position, memory_order_relaxed);
        atomic_store_explicit(&timeline->lasting_unnamed, position, memory_order_relaxed);
    }
    return position;
}

/**
 * What the call's record gives the device to do is in `stream` alone. Between rg_call_begin and post or wait.
 */
void rg_timeline_work(const struct rg_call *call, CUstream stream);

/**
 * Records an event, and notes where. `stream`: the one that is meant. One that other processes may have opened has been recorded at the
 * device when this returns (rg_timeline_told).
 */
CUresult rg_timeline_record(CUevent event, CUstream stream, unsigned flags, bool with_flags);
/**
 * After another call that has recorded an event, or lets a stream wait for it. Other processes use events that may be shared as well, when
 * this program tells them of its calls: so those have been made at the device when they return. Returns `status`, or an error that the
 * device tells of.
 */
CUresult rg_timeline_told(CUevent event, CUresult status);
/** An event is (or may be) recorded where this client does not see it: it is always asked for. */
void rg_timeline_unseen(CUevent event);

/** These check and send as the operations of the API do, after all checks of parameters. */
CUresult rg_timeline_query_event(CUevent event);
CUresult rg_timeline_wait_event(CUevent event);
CUresult rg_timeline_query_stream(CUstream stream);
CUresult rg_timeline_wait_stream(CUstream stream);
/** The time between two events that are known; version: of cuEventElapsedTime. */
CUresult rg_timeline_event_time(float *milliseconds, CUevent start, CUevent end, unsigned version);
/** context 0: the current one. */
CUresult rg_timeline_wait_context(CUcontext context);

/**
 * Whether a call that waits for the device's work must wait at the call: the work may last until another
 * thread of the program ends it, by calls that must not stand behind this one. A program of one thread cannot
 * do that; its call is as well put into the sequence of records.
 *   context   all work of the context (handle)
 *   stream    what work of the stream comes after
 */
bool rg_timeline_blocks_on_context(uint64_t context);
bool rg_timeline_blocks_on_stream(CUstream stream);
/**
 * Before a context ends: waits for its work if it holds, so that the worker need not, which would hold up all
 * threads.
 */
void rg_timeline_before_end(uint64_t context);

/**
 * This thread's last record was of a call that has waited for all that was in the stream, its own work
 * included.
 */
void rg_timeline_waited(CUstream stream);
/**
 * This thread's last record was of a synchronous copy, which the call returns from before the device has done it: nobody sees that, if
 * questions about what was before it in the stream wait from now on. False: this client does not know such questions.
 */
bool rg_timeline_synchronous(CUstream stream);
/**
 * Of calls by which NVIDIA's driver waits for all work of a context, where nobody waits for their record: how much the context has been
 * given before such a call, and, behind its record, that questions about that much and the record itself wait from now on. False: this
 * client does not know such questions, so the call is to wait.
 */
bool rg_timeline_given(uint64_t context, uint64_t *position);
void rg_timeline_waited_for(uint64_t context, uint64_t position);
/** Whether all by which the device may have accessed memory is known to be done in the context. */
bool rg_timeline_accesses_done(uint64_t context);
/** A host function has shown the program how far the device is: what is not done is asked for again. */
void rg_timeline_new_epoch(void);
/** RG_NOTICE_DONE. */
rg_notice_handler rg_timeline_notice;

/** The event ends: nobody is to be told of it any more. */
void rg_timeline_forget_event(CUevent event);
/** The thread of a per-thread stream ends. */
void rg_timeline_end_thread(struct rg_thread_timeline *thread);
/** The handle of a stream ends: nobody watches it, nor will. */
void rg_timeline_end_stream(CUstream stream);
/** A context has ended, with its events and streams. */
void rg_timeline_forget_context(uint64_t context);

#endif
