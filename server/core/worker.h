/*
 * worker.h - one session on the machine with the GPU: what its parts share.
 *
 * A worker executes the records of one connection through one driver (the global table rg_driver). Its
 * threads come from a pool and carry roles (leader_followers.h): the reader takes messages from the
 * connection, the dispatcher executes records in their order; both are usually the same thread. A thread that
 * must wait for the GPU gives its roles away first. What the core does not need to know is a module's
 * (module.h).
 *
 * The happy path: rg_worker_create, rg_worker_start, then rg_worker_wait until the session is over: the
 * client closed the connection, or rg_worker_end was called with the reason. Nothing is ever sent or executed
 * after that.
 */
#ifndef RG_SERVER_CORE_WORKER_H
#define RG_SERVER_CORE_WORKER_H

#include "common/sync/chunk_size.h"
#include "common/sync/priority_lock.h"
#include "generated/proto/ops.h"
#include "server/core/context.h"
#include "server/core/device_gate.h"
#include "server/core/dispatch.h"
#include "server/core/module.h"
#include "server/core/objects.h"
#include "server/core/out_of_order.h"
#include "server/core/request.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

/** A thread of the client, as far as records say of it. */
struct rg_client_thread {
    uint32_t number;
    uint64_t context;                 /* handle of its current context; 0: none */
    atomic_bool waits;                /* one of its calls is being waited for by a thread of the pool */
    struct rg_worker_stream *streams; /* per-thread default streams, one a context */
};

/** Ranges of addresses that records may name, by address: the driver has said so (device_memory.c). */
struct rg_known_ranges {
    struct rg_known_range {
        uint64_t start, end;
    } ranges[RG_KNOWN_RANGES_MAX];
    unsigned n;
    uint64_t epoch; /* as memory_epoch was when the first of them was asked for */
};

/*
 * Locks, in the order in which a thread may take them; those of modules (README.md) come between the first
 * and the others: out_of_order.lock, objects.lock, roles, end_lock, send_lock. rg_worker_end calls every
 * module's `wake`, so it is not to be called with a lock that one of them takes.
 */
struct rg_worker {
    struct rg_conn *conn;
    uint64_t session;
    rg_operation *operations[RG_OP_COUNT];
    const struct rg_server_module *const *modules; /* ended by NULL */
    void *state[RG_MODULES_MAX];                   /* of each module */
    const struct rg_observer *observer;            /* NULL: nobody looks on */
    const struct rg_turn_hooks *turns;             /* NULL: the device's time is not shared */
    /* a level (proto/memory_level.h): what the session may still take of its devices' memory; NULL: nobody knows */
    const _Atomic uint8_t *memory_left;
    atomic_bool gated; /* the dispatcher waits for its turn, or for the device gate */

    struct rg_device_gate device_gate; /* who uses the driver */

    struct rg_priority_lock send_lock; /* the right to send; held across the system call */
    atomic_bool detaches;        /* the last large bulk data travelled by itself, without the right to send */
    struct rg_chunk_size chunk;  /* of bulk data to the client */
    _Atomic uint64_t executed;   /* sequence number of the last record executed */
    _Atomic uint64_t submitted;  /* of the last whose work, if any, the driver has been given */
    _Atomic uint64_t sent, read; /* messages to the client; of these, those that it has read, as it says */
    /*
     * answers of the client that are still to come, each to be read while a record may be executed; and
     * whether it may send some that nobody has asked for
     */
    atomic_uint answers_due;
    atomic_bool answers_unasked;

    /* leader_followers.h; guarded by `roles` except as noted */
    pthread_mutex_t roles;
    struct rg_executor *executors, *idle; /* all of them; those without a role */
    unsigned n_executors;
    bool separated;                      /* reader and dispatcher are different threads */
    struct rg_executor *dispatcher_idle; /* separated: it waits for the queue */
    struct rg_queued_batch *queue, **queue_last;
    size_t queue_bytes;
    pthread_cond_t queue_changed;
    struct rg_delta *delta; /* the reader's: the records that batches refer to; NULL: none has yet */
    uint64_t next_seq;      /* the reader's */

    /* the dispatcher's */
    struct rg_batch_cursor cursor;
    struct rg_objects objects;
    struct rg_client_thread *threads[RG_CLIENT_THREADS_MAX];
    uint32_t n_threads; /* of those, behind which there never was one */
    struct rg_out_of_order out_of_order;
    struct rg_known_ranges known;
    CUresult failed; /* of a record that nobody waited for, not yet reported */
    uint16_t failed_op;
    uint64_t last_work; /* sequence number of the last record that may have given the GPU something to do */
    struct rg_worker_context
        *retired;                   /* contexts that have ended; a thread that waits for one may look at it */
    atomic_uint detached;           /* records that are executed by threads without a role */
    _Atomic uint64_t context_epoch; /* contexts may have ended since a thread cached one as current */
    _Atomic uint64_t memory_epoch;  /* memory may have ended since the driver was asked about it */
    atomic_bool pooled; /* memory may end when somebody waits: pools give back what is free then */

    pthread_mutex_t end_lock;
    pthread_cond_t end_changed;
    bool ended;       /* everybody has been told; guarded by end_lock */
    atomic_bool over; /* set first: nothing is sent or executed any more */
    int exit_code;
    int over_fd; /* eventfd that becomes readable; -1: none */
};

/**
 * Takes `conn` over. `over_fd` (an eventfd, or -1) is written to when the session is over. `modules`: a table
 * ended by NULL. NULL: out of memory.
 */
struct rg_worker *rg_worker_create(struct rg_conn *conn, uint64_t session, int over_fd,
                                   const struct rg_server_module *const *modules);
/** Starts executing on threads of the worker's own. */
RG_MUST_CHECK enum rg_status rg_worker_start(struct rg_worker *worker);
/**
 * After the end: waits for all threads, destroys what the client left behind in the driver, frees. Takes as
 * long as the work that the client left behind; a process that only served this session exits instead.
 */
void rg_worker_destroy(struct rg_worker *worker);

/** What is left to the session of device memory, for the client: a level. Any thread. */
static inline unsigned rg_worker_memory_left(const struct rg_worker *worker)
{
    return worker->memory_left ? atomic_load_explicit(worker->memory_left, memory_order_relaxed) : 0;
}

/** Calls a hook of every module that has it. */
#define RG_MODULES_CALL(worker, hook, ...)                                                                   \
    do {                                                                                                     \
        for (const struct rg_server_module *const *module_ = (worker)->modules; *module_; module_++)         \
            if ((*module_)->hook)                                                                            \
                (*module_)->hook(__VA_ARGS__);                                                               \
    } while (0)

/** After anything that may have ended memory, or given its addresses to other memory. Any thread. */
static inline void rg_worker_memory_ended(struct rg_worker *worker)
{
    atomic_fetch_add_explicit(&worker->memory_epoch, 1, memory_order_release);
}

/** Before memory of a pool is there, or memory is freed in the order of a stream. Any thread. */
static inline void rg_worker_memory_of_pools(struct rg_worker *worker)
{
    atomic_store_explicit(&worker->pooled, true, memory_order_relaxed);
}

/* --- messages and the end (worker_send.c). Any thread --------------------------------------------------- */

/** Waits until the session is over; returns the exit code of a process that had only this to do. */
int rg_worker_wait(struct rg_worker *worker);
/** Ends the session; the first call counts. With a `format`, the client is told the reason; it is logged. */
void rg_worker_end(struct rg_worker *worker, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool rg_worker_over(struct rg_worker *worker)
{
    return atomic_load_explicit(&worker->over, memory_order_acquire);
}

/**
 * Sends one message of `kind` with its body in `parts`; ends the session if that fails. Its bulk data belongs
 * to the client's transfer `tag`, from byte `base` of it on; 0: to none. `lease`: of its memory, or NULL.
 */
enum rg_status rg_worker_send(struct rg_worker *worker, uint64_t tag, uint64_t base, struct rg_lease *lease,
                              unsigned kind, const struct iovec *parts, int n_parts, const struct iovec *bulk,
                              int n_bulk);
/** Sends a notice, with text or bulk data (either may be empty). */
enum rg_status rg_worker_notice(struct rg_worker *worker, const struct rg_notice *notice, const void *text,
                                size_t text_size, const void *bulk, size_t bulk_size);
/**
 * Sends part of a transfer to the host (RG_NOTICE_DEFERRED_READ), in pieces that others' messages go between.
 * `lease`: of the memory, or NULL.
 */
enum rg_status rg_worker_send_transfer(struct rg_worker *worker, uint64_t id, uint64_t offset,
                                       const void *data, size_t size, bool last, struct rg_lease *lease);
/** Lets the modules give back what the program does not use; false: there is nothing. The dispatcher. */
bool rg_worker_reclaim(struct rg_request *request);

#endif
