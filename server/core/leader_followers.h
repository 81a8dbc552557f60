/*
 * leader_followers.h - the pool of threads (executors) and the two roles that they pass to one another.
 *
 * READ: receives messages. DISPATCH: executes records in order. Both roles exist exactly once while the
 * session lives, and one thread, the leader, usually has both: it receives a batch, executes its records one
 * after another, receives the next.
 *
 *   promotion   A record that waits for the GPU gives all roles of its thread to a follower, together with the
 *               rest of the batch; it is detached then: it waits, replies, and its thread becomes a follower.
 *   separation  While answers of the client are due (host functions, deferred copies), executing a record can
 *               block until such an answer has been read. So the roles are then on two threads; the reader
 *               copies batches into a queue. They come together again at the next batch that finds the
 *               dispatcher idle and no answer due.
 *
 * A thread without a role sleeps on its own condition; threads are made when needed, up to a limit, and kept.
 */
#ifndef RG_SERVER_CORE_LEADER_FOLLOWERS_H
#define RG_SERVER_CORE_LEADER_FOLLOWERS_H

#include "common/base/limits.h"
#include "proto/times.h"
#include "server/core/worker.h"

enum { RG_ROLE_READ = 1, RG_ROLE_DISPATCH = 2, RG_ROLES_ALL = 3 };

#define RG_EXECUTOR_OUTPUT  2048u /* bytes of outputs without an allocation */
#define RG_EXECUTOR_SCRATCH 4096u /* bytes of temporary memory without an allocation */

struct rg_gate_device;

struct rg_executor {
    struct rg_request request; /* first: a request is found back to its thread */
    struct rg_worker *worker;
    struct rg_executor *next, *next_idle;
    struct rg_executor *next_out_of_order; /* out_of_order.c */
    bool out_of_order;                     /* the same; its own thread's */
    pthread_t id;
    pthread_cond_t wake;
    unsigned roles; /* changed under the roles lock; its own thread reads it without */
    /* of the record in execution */
    uint64_t seq;
    struct rg_gate_device *admitted; /* the device whose turn it is executed in; NULL: it needs none */
    struct rg_worker_stream *stream; /* state of the stream named last; NULL: the legacy stream */
    CUresult async_result;           /* earlier failure that the reply reports */
    uint16_t async_op;
    uint64_t named_stream, named_event; /* handles that it named last, for times.c */
    struct rg_time time;                /* times.c */
    size_t scratch_used;
    _Alignas(16) unsigned char output[RG_EXECUTOR_OUTPUT];
    _Alignas(16) unsigned char scratch[RG_EXECUTOR_SCRATCH];
};

static inline struct rg_executor *rg_executor_of(struct rg_request *request)
{
    return (struct rg_executor *)(void *)request;
}

/** Before the first thread; starts none. */
void rg_leader_init(struct rg_worker *worker);
/** Starts the first thread, with both roles. */
RG_MUST_CHECK enum rg_status rg_leader_start(struct rg_worker *worker);
/** Wakes every thread of the pool and everyone who waits for the queue; the session is over. */
void rg_leader_wake(struct rg_worker *worker);
/** Waits for all threads to end, and frees them. */
void rg_leader_fini(struct rg_worker *worker);

/** Gives all roles of `executor` to another one. False: there is none to be had; nothing has changed. */
bool rg_leader_promote(struct rg_executor *executor);
/** Separates the roles if `executor` has both. False: no thread or memory. */
bool rg_leader_separate_reader(struct rg_executor *executor);

#endif
