/*
 * thread.h - what the client keeps for each of the application's threads: its current contexts, and the place
 * where it waits for replies.
 */
#ifndef RG_CLIENT_CORE_THREAD_H
#define RG_CLIENT_CORE_THREAD_H

#include "client/core/handle.h"
#include "client/core/region.h"
#include "common/base/limits.h"
#include "transport/transport.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_REPLY_SMALL 512 /* bytes of outputs that a thread keeps without an allocation */

struct rg_region;
struct rg_session;

/** One awaited reply. Guarded by the receiver's lock but for the thread that holds the reader role. */
struct rg_waiter {
    const struct rg_session *session; /* that the reply comes from */
    pthread_cond_t wake;
    struct rg_waiter *next, *previous; /* threads that wait, in the receiver's list */
    uint32_t token;
    bool done;
    bool for_notice; /* for no reply: whoever receives wakes it after each message */
    bool filling;    /* the reply is being received, into `into` too: the waiter must not go, whatever ends */
    CUresult result;
    uint8_t memory_taken;  /* by code that was loaded: a level (proto/memory_level.h) */
    uint64_t size;         /* bytes of outputs */
    uint64_t received;     /* bytes of the reply as it came, bulk data included */
    unsigned char *output; /* small, or allocated */
    unsigned char small[RG_REPLY_SMALL];
    const struct rg_region *into; /* where bulk data of the reply goes; NULL: it is dropped */
};

struct rg_thread {
    uint32_t number; /* index in the table of threads */
    uint32_t generation;
    bool host_call;     /* this thread is running a host function: CUDA calls are not permitted */
    uint64_t *contexts; /* stack; the last one is current */
    size_t n_contexts, capacity;
    /* by session: what its worker knows */
    struct {
        bool announced;        /* it has seen a record of this thread */
        uint64_t sent_context; /* what it takes for this thread's current context */
    } at[RG_SERVERS_MAX];
    struct rg_waiter waiter;
    /*
     * A signal handler of the program's may interrupt a call that waits, and make calls itself. If what it has interrupted rests in a
     * transport, its calls go to the worker as those of another thread, since one of a thread is taken at a time.
     */
    volatile bool waits;        /* its waiter is in use */
    volatile bool in_transport; /* it sends, or receives */
    /* it receives: whether it sleeps there is known to the connection */
    const struct rg_conn *volatile awaited;
    struct rg_thread *handler; /* that other thread, made when first needed */
    struct rg_thread_timeline timeline;
    unsigned
        posted; /* records since it last waited for a reply: some of the first it sends by itself (queue.c) */
};

/** What is kept of the calling thread, made on first use; NULL if there are too many or memory ran out. */
struct rg_thread *rg_thread_current(void);
/** The same if it was made. */
struct rg_thread *rg_thread_if_any(void);
/** What rg_thread_speaker returns of a thread that is in a call. */
struct rg_thread *rg_thread_handler(struct rg_thread *interrupted);
/**
 * As which thread the next call of this one goes to the worker: itself, or where this is a signal handler that has interrupted a call,
 * its `handler`. NULL: neither can be, what was interrupted would not go on.
 */
static inline struct rg_thread *rg_thread_speaker(struct rg_thread *thread)
{
    return thread->waits || thread->in_transport ? rg_thread_handler(thread) : thread;
}
/** The calling thread, if it is known, is in a transport (`awaited`: it receives) for as long as the scope lasts. */
struct rg_thread_inside {
    struct rg_thread *thread;
    bool in_transport;
    const struct rg_conn *awaited;
};
/** What RG_THREAD_INSIDE does at both ends. Scopes nest: leaving puts back what was true before. */
struct rg_thread_inside rg_thread_enter(const struct rg_conn *awaited);
void rg_thread_leave(const struct rg_thread_inside *inside);
#define RG_THREAD_INSIDE(awaited)                                                                            \
    __attribute__((cleanup(rg_thread_leave), unused)) const struct rg_thread_inside rg_inside =              \
        rg_thread_enter(awaited)
/** It has come out, by a failure: what is to be done about that may be calls. */
struct rg_thread_inside rg_thread_step_out(void);
#define RG_THREAD_OUTSIDE                                                                                    \
    __attribute__((cleanup(rg_thread_leave), unused)) const struct rg_thread_inside rg_outside =             \
        rg_thread_step_out()
/** Whether this thread, interrupted in rg_conn_recv of `conn`, may call it as well: it has the reader role. */
bool rg_thread_rests_at(const struct rg_conn *conn);

/** The live thread with that token's number and generation, or NULL. */
struct rg_thread *rg_thread_of_token(uint32_t token);
/** A token for the next reply that this thread waits for. */
uint32_t rg_thread_token(const struct rg_thread *thread);

/** Current context handle of the thread, 0 if none. */
static inline uint64_t rg_thread_context(const struct rg_thread *thread)
{
    return thread->n_contexts ? thread->contexts[thread->n_contexts - 1] : 0;
}
/** The context that a context's memory, modules and events belong to: itself, or of a green context's the primary one. */
uint64_t rg_context_owner(uint64_t context);
/** The owner of the calling thread's current context, 0 if it has none; no checks. Streams are made in that context itself: */
uint64_t rg_context_current_owner(void);
/** The calling thread's current context handle, 0 if none; no checks. */
uint64_t rg_context_current_handle(void);
/** Replaces the top of the stack (0: removes it); false: out of memory. */
bool rg_thread_set_context(struct rg_thread *thread, uint64_t context);
bool rg_thread_push_context(struct rg_thread *thread, uint64_t context);

#endif
