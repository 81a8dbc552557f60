/*
 * module.h - what a part of the worker is to the core: its state, and the moments at which it wants to be
 * called.
 *
 * The core (this folder) executes records and knows contexts, streams and handles; transfers, subscriptions,
 * memory made ready and the rest are modules. server/modules.h lists them, and main gives the list to
 * rg_worker_create. Each module has zeroed state of its own for each worker, as tests run several in one
 * process; a hook that is NULL is not called. Hooks are called in the order of the table.
 *
 * Threads: each hook says which; "the dispatcher" executes records, "the reader" takes messages
 * (leader_followers.h).
 */
#ifndef RG_SERVER_CORE_MODULE_H
#define RG_SERVER_CORE_MODULE_H

#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>

#define RG_MODULES_MAX 28

struct rg_request;
struct rg_worker;
struct rg_worker_context;
struct rg_worker_stream;

/** What a module says of an answer of the client. */
enum rg_answered {
    RG_ANSWERED_NOT_MINE,
    RG_ANSWERED_GOOD,
    RG_ANSWERED_WRONG, /* it breaks the protocol */
};

struct rg_server_module {
    size_t size; /* of the state */
    bool locked; /* which begins with a mutex: the core makes it, and ends it after `fini` */
    /* Before the worker's first thread. */
    void (*init)(struct rg_worker *worker);
    /* The session is over: nobody may wait any more. In the reverse order of the table. Any thread. */
    void (*wake)(struct rg_worker *worker);
    /* After the end of the pool's threads, before contexts are destroyed. */
    void (*stop)(struct rg_worker *worker);
    /* Contexts, streams and libraries are gone, the connection is not. Ends the module's own threads. */
    void (*fini)(struct rg_worker *worker);

    /* A stream has been made, or is about to end; what it has left to do is still done. The dispatcher. */
    void (*add_stream)(struct rg_worker *worker, const struct rg_worker_stream *stream);
    void (*drop_stream)(struct rg_worker *worker, struct rg_worker_stream *stream);
    /* A context is about to end; it is current, and has no work left or failed. The dispatcher. */
    void (*drop_context)(struct rg_worker *worker, struct rg_worker_context *context);

    /* A module or library of the driver is about to end. The dispatcher. */
    void (*drop_module)(struct rg_worker *worker, const void *object);

    /*
     * Whether host memory of the client's lies here that the device may access, at this address up to *end. The thread that
     * executes a record.
     */
    bool (*shares)(struct rg_worker *worker, uint64_t address, uint64_t *end);
    /* Before the reply to a record. The thread that executed it. */
    void (*before_reply)(struct rg_worker *worker, const struct rg_request *request);
    /*
     * A record of an operation with RG_TRAIT_CREDIT, which brought so many bytes, has been executed. The
     * dispatcher.
     */
    void (*executed)(struct rg_request *request, size_t bulk);
    /*
     * A record ran out of memory: gives back what the program does not use; false: there is nothing. What
     * `request` points to in the message may be gone afterwards. The dispatcher.
     */
    bool (*reclaim)(struct rg_request *request);
    /*
     * Whether threads of its own have something left to do for which they call the driver. Nothing new comes meanwhile, and the
     * session is not suspended then (device_gate.h).
     */
    bool (*busy)(struct rg_worker *worker);
    /* Why the session can never be suspended as things are, a clause; NULL: it can. While nobody uses the driver. */
    const char *(*unsuspendable)(struct rg_worker *worker);
    /* Somebody waits to use the driver: device_gate.h. Any thread. */
    void (*wanted)(struct rg_worker *worker);
    /*
     * The device gate is no longer closed, and records wait still: what came outside of their order meanwhile is to be done. The
     * thread that closed it.
     */
    void (*reopened)(struct rg_worker *worker);
    /* The client has answered. The reader, which receives the bulk data here. */
    enum rg_answered (*answer)(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *answer, size_t bulk_size);
};

struct rg_executor;
struct rg_record;

/**
 * Where sessions share a device's time: records that give it work are executed when it is the session's turn. NULL in a worker
 * that shares none.
 */
struct rg_turn_hooks {
    /* Whether such a record may be executed now. The dispatcher. */
    bool (*admit)(struct rg_executor *executor, const struct rg_record *record,
                  const unsigned char *parameters);
    /* It may not: sleeps until that may have changed, or a moment. The dispatcher. */
    void (*wait)(struct rg_executor *executor);
    /* An admitted record has been executed; `mine`: its thread still has its role. Its thread. */
    void (*executed)(struct rg_executor *executor, bool mine);
    /* A record has waited for the device. Its thread. */
    void (*awaited)(struct rg_worker *worker);
};

/** Looks on while records are executed: to measure them. NULL in most sessions. */
struct rg_observer {
    void (*begin)(struct rg_executor *executor);
    void (*detached)(struct rg_executor *executor);
    void (*executed)(struct rg_executor *executor);
    void (*finish)(struct rg_executor *executor, uint64_t replied);
};

#endif
