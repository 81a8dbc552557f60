/*
 * hooks.h - what the core tells the parts above it, and what it asks of them. The core knows sessions,
 * records, batches, replies and threads; what they are used for is the business of the parts, which
 * client/modules.c enters into this table before the first call.
 *
 * All slots are set. Locks: those that a call may hold (none of the core's) unless a slot says otherwise. Any
 * thread unless a slot names one.
 */
#ifndef RG_CLIENT_CORE_HOOKS_H
#define RG_CLIENT_CORE_HOOKS_H

#include "proto/codec.h"
#include "proto/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_client_hello;
struct rg_session;
struct rg_thread;

#define RG_NOTICE_TYPES 64u

/**
 * Handles a notice, with `in` behind its head; the bulk data is taken from the connection. False: it is
 * malformed. The reader.
 */
typedef bool rg_notice_handler(struct rg_session *session, const struct rg_notice *notice,
                               struct rg_reader *in, size_t bulk_size);

struct rg_hooks {
    /* --- a call (call.c) --- */

    /** A context may have failed (rg_contexts_suspect): asks the workers. */
    void (*contexts_suspect)(void);
    /**
     * Whether work of the context may last until another thread ends it, so that a call that blocks has to
     * wait.
     */
    bool (*blocks_on_context)(uint64_t context);
    /**
     * What the host has written goes to the device, since a record that may touch memory is about to be
     * appended; `kernel`: which may follow pointers in memory. With *begun, work_ends follows behind the
     * record, under the queue's lock.
     */
    CUresult (*work_begins)(bool kernel, bool *begun);
    void (*work_ends)(void);
    /** A call has waited for the device with success. */
    void (*has_waited)(void);
    /** Around a host function of the program, on the thread that runs it. */
    void (*host_call_begins)(void);
    void (*host_call_ends)(void);
    /** The worker has no memory: gives back what is kept ready. False: there was nothing. */
    bool (*out_of_memory)(struct rg_session *session);

    /* --- the sender thread of a session (queue.c) --- */

    /**
     * Whether sender_idle is to be called every RG_SENDER_IDLE_MS although no records wait. Under the queue's
     * lock.
     */
    bool (*sender_is_due)(const struct rg_session *session);
    void (*sender_idle)(struct rg_session *session);
    /** It was woken. */
    void (*sender_runs)(struct rg_session *session);
    /** Sends a piece of bulk data that the worker has asked for; false: there is none. */
    bool (*sender_piece)(struct rg_session *session);

    /* --- messages (receiver.c) --- */

    /** By enum rg_notice_type; NULL: the core's own, or unknown. */
    rg_notice_handler *notice[RG_NOTICE_TYPES];

    /* --- lives --- */

    /** Adds what is wanted of the only server to the hello. */
    void (*hello)(struct rg_client_hello *hello);
    /**
     * The connection was interrupted: waits until nothing of it is received into the application's memory.
     */
    void (*session_settles)(const struct rg_session *session);
    /** The session has ended: forgets what was to come of it. */
    void (*session_ended)(struct rg_session *session);
    /** A thread of the application ends: it can still make calls, and then it cannot. */
    void (*thread_ends)(struct rg_thread *thread);
    void (*thread_ended)(struct rg_thread *thread);
};

/** Set once, before the first call. */
extern struct rg_hooks rg_hooks;

#define RG_SENDER_IDLE_MS 100

#endif
