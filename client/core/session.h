/*
 * session.h - the sessions of this process, one a server: how they begin, what they are, how they end.
 *
 * They are made by the first call that needs a server (cuInit, or a question before it) and live until the
 * process ends. The parts of each: the queue (queue.h) that carries calls to the worker, the receiver
 * (receiver.h) that takes what comes back, what is kept of the application's threads (thread.h).
 *
 * Behind the program's own sessions stand those that it has as a guest (client/connect/guest.h): on servers that it does not use itself,
 * begun when it opens what another process has there, while its other threads go on.
 *
 * A call belongs to the session of the context that is current, or of what it names. A session can end early:
 * the connection breaks, the server ends it, a fork leaves it behind. From then on every call that belongs to
 * it returns the same error, and when there is none left, every call does; nothing of the application is
 * touched.
 */
#ifndef RG_CLIENT_CORE_SESSION_H
#define RG_CLIENT_CORE_SESSION_H

#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/stats.h"
#include "client/credentials/credentials.h"
#include "common/base/limits.h"
#include "common/sync/chunk_size.h"
#include "generated/proto/ops.h"
#include "proto/control/control.h"
#include "transport/transport.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rg_session {
    unsigned number; /* in rg_sessions */
    unsigned place;  /* of the server, in the user's list; of a guest: its part of the address space */
    bool guest;
    struct rg_conn *conn;
    struct rg_conn *control_conn;      /* the one that the session began on, if it moved; or NULL */
    char peer[160];                    /* the address that the session began at */
    char server[256];                  /* as the user named it */
    struct rg_credentials credentials; /* for it */
    uint64_t window_start,
        window_size; /* of addresses for its device memory (client/connect/address_window.h) */
    struct rg_server_hello hello;
    struct rg_control hello_message;  /* owns hello's memory */
    uint16_t op_numbers[RG_OP_COUNT]; /* ours → the server's; 0: the server does not know it */
    /* CUDA_SUCCESS while calls are possible; set once, read without a lock by every call */
    _Atomic CUresult ended;
    atomic_bool over;       /* the connection is not to be used any more */
    pthread_mutex_t ending; /* held by who ends the session, until `ended` is set */
    /* error of a call that nobody waited for, to be returned by the next that waits */
    _Atomic CUresult latched;
    _Atomic uint64_t context; /* the last one that a call used here */
    struct rg_timeline timeline;
    struct rg_queue queue;
    struct rg_receiver receiver;
    struct rg_chunk_size chunk; /* of bulk data to the server */
    struct rg_stats stats;
    _Atomic uint64_t quickest_ns; /* that a call waited for its reply: about a round trip; 0: none has yet */
    /* client/cache/load_memory.h: what the server last said is left, a level; what loads that were not waited for may take, bytes */
    _Atomic uint8_t memory_left;
    _Atomic uint64_t memory_loading;
    _Atomic uint8_t gpu_paths[RG_DEVICES_MAX]; /* enum rg_gpu_path, as far as the worker has told */
};

/**
 * Those that began, in the order in which the user named the servers, then those of a guest. What is there stays; the number of the
 * program's own is constant once rg_connect_start has succeeded, and that of all grows.
 */
extern struct rg_session rg_sessions[RG_SERVERS_MAX];
extern _Atomic unsigned rg_n_sessions;
extern unsigned rg_n_own_sessions;
/** CUDA_SUCCESS from cuInit on, for as long as one session of the program's own lives. */
extern _Atomic CUresult rg_sessions_ended;
/** What became of the attempt to begin them, or the error with which the last one has ended. */
extern CUresult rg_sessions_outcome;
/**
 * A worker has told of an error that ends a context, but not of which one: an operation may have failed for
 * the context of its stream, and failures arrive later. The next call that needs a context finds out (struct
 * rg_hooks, contexts_suspect).
 */
extern atomic_bool rg_contexts_suspect;
/**
 * The process has called exit: the CUDA runtime unloads what the program had, while other threads of it may still be running
 * on what goes. Nothing is waited for that need not be, so that this takes no longer than it would directly.
 */
extern atomic_bool rg_process_exits;

/** Whether calls of the session are possible. Any thread. */
static inline bool rg_session_lives(const struct rg_session *session)
{
    return atomic_load(&session->ended) == CUDA_SUCCESS;
}
/** And its connection is to be used. */
static inline bool rg_session_goes_on(const struct rg_session *session)
{
    return rg_session_lives(session) && !atomic_load(&session->over);
}
/** Marks a session as over, tells the user why (one line, once), wakes all who wait. Any thread. */
void rg_session_end(struct rg_session *session, CUresult error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/**
 * Notes an error that the worker reported for an earlier call; one that ends a context sets
 * rg_contexts_suspect.
 */
void rg_session_async_error(struct rg_session *session, CUresult error, unsigned op);
/** Takes the latched error, if there is one. */
CUresult rg_session_take_latched(struct rg_session *session);
/** Whether an error of the context stays until the context is gone. */
bool rg_error_is_sticky(CUresult error);
/**
 * Pinned memory of the application begins (ends): transports that can take bulk data from it without a copy
 * prepare it. It must stay mapped until it is withdrawn. Any thread; no locks held.
 */
void rg_sessions_announce(void *memory, size_t size);
void rg_sessions_withdraw(void *memory);
/** The version of the driver, of several the oldest. */
int rg_driver_version(void);
/** cuInit was called and succeeded. */
extern atomic_bool rg_initialised;

#endif
