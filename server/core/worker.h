/*
 * worker.h - one session on the machine with the GPU: everything its parts share.
 *
 * A worker executes the records of one connection through one driver (the global table rg_driver). Its threads come
 * from a pool and carry roles (leader_followers.h): the reader takes messages from the connection, the dispatcher executes records
 * in their order; both are usually the same thread. A thread that must wait for the GPU gives its roles away first.
 *
 * The happy path: rg_worker_create, rg_worker_start, then rg_worker_wait until the session is over: the client
 * closed the connection, or rg_worker_end was called with the reason. Nothing is ever sent or executed after that.
 */
#ifndef RG_SERVER_CORE_WORKER_H
#define RG_SERVER_CORE_WORKER_H

#include "common/base/tuning.h"
#include "common/sync/chunk_size.h"
#include "common/sync/priority_lock.h"
#include "generated/proto/ops.h"
#include "proto/bulk_credit.h"
#include "server/core/objects.h"
#include "server/core/out_of_order.h"
#include "server/core/request.h"
#include "server/managed/managed.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

struct rg_executor;

/* Bytes of batches that may lie here unexecuted before the reader slows down, and before the session ends. */
#define RG_QUEUE_SLOW (64ull << 20)
#define RG_QUEUE_MAX  (4ull << 30)

/** The rest of a batch: records to be executed, and the bulk data of the last of them. */
struct rg_batch_cursor {
    const unsigned char *at, *end;
    uint32_t left; /* records */
    uint64_t seq;  /* of the next record */
    size_t bulk_left;
    const unsigned char *bulk;     /* where it is; NULL: still to come from the connection */
    struct rg_queued_batch *owner; /* memory to free afterwards; NULL: the connection's */
};

/** A batch that was copied, because the thread that executes records is not the one that reads. */
struct rg_queued_batch {
    struct rg_queued_batch *next;
    struct rg_batch_cursor cursor;
    size_t size;
    unsigned char data[];
};

/** Pending work of a context on its pinned memory: see staging.h. */
struct rg_staging_buffer;

/** Bytes since the session began that copies to the device brought: credit.c; guarded by the staging lock. */
struct rg_credit {
    uint64_t taken, freed; /* by records; of them, what the device has taken */
    uint64_t told;         /* of which the client knows */
    uint64_t looked;       /* `taken` at the last look at what is free */
    uint64_t every;        /* the client is told of each so many bytes more; 0: of none. The dispatcher's */
    struct rg_staging_buffer *first, *last; /* buffers that hold the rest, in the order in which it came */
};

/** What the worker keeps for a context; made when the context's handle is. */
struct rg_worker_context {
    uint64_t handle;
    CUcontext object;
    CUdevice device; /* of primary contexts */
    bool primary;
    unsigned retained;                /* primary contexts: as often as this session has retained it */
    struct rg_staging_buffer *buffer; /* all its pinned memory; guarded by the worker's staging lock */
    size_t staging_bytes;
    struct rg_worker_stream *legacy; /* deferred transfers of the legacy stream */
    /* the streams made in it: those that found a place (context.c polls them if that is all), and how many there are */
    CUstream few_streams[4];
    unsigned n_streams;
    uint64_t left_at; /* the last record that ended a stream which had work left; 0: none */
    /* the last synchronous copy from the host: other streams are ordered after it */
    CUevent synchronous;
    uint64_t synchronous_seq;
    const struct rg_worker_stream *synchronous_stream; /* NULL: the legacy stream */
    _Atomic uint64_t idle_at; /* all work of records up to this one is known to be done */
    bool released;            /* retired: nothing of the worker's is in it */
    struct rg_worker_context *next_retired;
};

/** What the worker keeps for a stream. Only the dispatcher uses it. */
struct rg_worker_stream {
    CUstream object;
    uint64_t context;
    bool non_blocking, per_thread;
    uint64_t seen_synchronous; /* the last synchronous copy that it is ordered after */
    struct rg_staging_buffer
        *rendezvous_slots[RG_DEFERRED_SLOTS]; /* used by one deferred transfer after another */
    struct rg_staging_buffer *read_slots[RG_DEFERRED_SLOTS];
    size_t next_read_slot; /* of the deferred read slots, the one whose turn it is */
};

struct rg_thread_stream {
    struct rg_thread_stream *next;
    struct rg_worker_stream stream;
};

struct rg_client_thread {
    uint32_t number;
    uint64_t context;                 /* handle of its current context; 0: none */
    atomic_bool waits;                /* one of its calls is being waited for by a thread of the pool */
    struct rg_thread_stream *streams; /* per-thread default streams, one a context */
};

struct rg_image {
    struct rg_image *next;
    uint64_t id;
    size_t total, received; /* while it is asked for, `received` is guarded by the images' lock */
    unsigned char *data;    /* total bytes and some zeros */
    const void **parts;     /* containers of objects that are still to be linked, ended by NULL; or NULL */
    /* image_cache.c */
    uint8_t digest[32];
    bool named;                  /* it has a digest */
    bool good;                   /* which is that of its bytes */
    bool keep;                   /* the bytes are to be written to the cache */
    uint64_t transfer;           /* by which it is asked for; 0: it is not */
    struct rg_image *next_asked; /* guarded by the images' lock */
};

/** Images by digest: image_cache.c. */
struct rg_disk_cache;
struct rg_image_cache {
    struct rg_disk_cache *shelf; /* NULL: nothing is kept */
    pthread_mutex_t lock;
    size_t bytes; /* of images that wait to be loaded or are being loaded, and how many they are */
    unsigned n;
    struct rg_image *left; /* that the reader may still be at: the session is over */
    pthread_cond_t changed;
    struct rg_image *asked;           /* of the client, whose answers the reader takes */
    struct rg_image *writing, **last; /* to be written and freed */
    size_t writing_bytes;             /* of those, and of the one that is being written */
    bool writer_runs, stop, busy;
    pthread_t writer;
};

struct rg_deferred_item;
struct rg_times;
struct rg_completion_watch;
struct rg_slab;
struct rg_prealloc_pool;
struct rg_advertised;
struct rg_gpudirect;
struct rg_gpudirect_area;
struct rg_prealloc_return;

/** What the client wants to be told of; completion.c's. */
struct rg_completion_list {
    pthread_mutex_t lock, order; /* order, then lock */
    pthread_cond_t changed;
    struct rg_completion_watch *first, **last;
    atomic_uint n;  /* in the list, or taken out and not told yet */
    uint64_t since; /* when the list last changed */
    pthread_t thread;
    bool runs;
};

/** Times that are wished with events; event_times.c's. */
struct rg_event_interval;
struct rg_event_intervals {
    pthread_mutex_t lock; /* a leaf; the driver is asked under it */
    struct rg_event_interval *first;
};

/** Asking the client for memory that is ready; prealloc.c's, guarded by the late lock. */
struct rg_reclaim {
    bool able;                         /* the client can be asked. The dispatcher's */
    uint64_t number;                   /* of the last one */
    bool due;                          /* it is not answered */
    struct rg_prealloc_return *blocks; /* the answer */
    size_t n;
    pthread_cond_t answered;
};

/** What is to be freed that no call frees; deferred_free.c's. */
struct rg_deferred_free;
struct rg_deferred_frees {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_deferred_free *first, **last;
    uint64_t count; /* that were freed */
    pthread_t thread;
    bool runs;
};

struct rg_worker {
    struct rg_conn *conn;
    uint64_t session;
    struct rg_operation operations[RG_OP_COUNT];

    struct rg_priority_lock send_turn; /* the right to send; held across the system call */
    atomic_bool detaches;       /* the last large bulk data travelled by itself, without the right to send */
    struct rg_chunk_size pace;  /* of bulk data to the client */
    _Atomic uint64_t executed;  /* sequence number of the last record executed */
    _Atomic uint64_t submitted; /* of the last whose work, if any, the driver has been given */

    /* leader_followers.h; guarded by `roles` except as noted */
    pthread_mutex_t roles;
    struct rg_executor *executors, *idle; /* all of them; those without a role */
    unsigned n_executors;
    bool split;                          /* reader and dispatcher are different threads */
    struct rg_executor *dispatcher_idle; /* split: it waits for the queue */
    struct rg_queued_batch *queue, **queue_last;
    size_t queue_bytes;
    pthread_cond_t queue_changed;
    struct rg_delta *delta;        /* the reader's: the records that batches refer to; NULL: none has yet */
    struct rg_batch_cursor cursor; /* the dispatcher's */
    uint64_t next_seq;             /* the reader's */

    /* the dispatcher's */
    struct rg_objects objects;
    struct rg_client_thread *threads[RG_CLIENT_THREADS_MAX];
    struct rg_image *images; /* that wait to be loaded */
    uint64_t preload_ns;     /* for how long images have been loaded that nobody has asked for */
    struct rg_image_cache named;
    struct rg_out_of_order out_of_order;
    uint64_t
        ready_contexts; /* devices, a bit each, whose primary contexts are retained once for nobody yet */
    _Atomic uint64_t sent, read; /* messages to the client; of these, those that it has read, as it says */
    CUresult failed;             /* of a record that nobody waited for, not yet reported */
    uint16_t failed_op;
    struct rg_adaptive_wait wait; /* how the GPU is waited for: wait.c */
    unsigned vain_polls;
    uint64_t last_work; /* sequence number of the last record that may have given the GPU something to do */
    struct rg_worker_context
        *retired;         /* of contexts that have ended; a thread that still waits for one may look at it */
    atomic_uint detached; /* records that are executed by threads without a role */
    /* contexts may have ended since a thread cached one as current */
    _Atomic uint64_t context_epoch;

    pthread_mutex_t staging_lock;
    pthread_cond_t staging_given;     /* a buffer was given back, while somebody waits */
    bool staging_waits;               /* the staging lock */
    struct rg_advertised *advertised; /* memory lent to the client; NULL: not yet */
    struct rg_gpudirect *direct;      /* the dispatcher's; NULL: not yet */
    struct rg_credit credit;
    struct rg_managed managed;
    bool tells_ways;        /* the client wants to know: RG_NOTICE_GPU_PATH */
    struct rg_times *times; /* NULL: the client has not asked for them */

    /* deferred.c */
    pthread_mutex_t deferred_lock;
    struct rg_deferred_item *deferred[4096];
    size_t deferred_bytes;   /* of these */
    atomic_uint answers_due; /* host calls and rendezvous that the client has not answered, due or not */
    pthread_cond_t deferred_settled; /* nobody is at work on some item any more */
    struct rg_deferred_item *read_first, **read_last;
    pthread_cond_t read_wake;
    pthread_t read_thread;
    bool read_thread_runs;

    struct rg_completion_list completions;
    struct rg_event_intervals intervals;

    /* prealloc.c; the dispatcher's */
    struct rg_slab *slabs;
    unsigned n_slabs;
    struct rg_reclaim reclaim;
    struct rg_prealloc_pool *prealloc_pools;
    struct rg_deferred_frees deferred_frees;

    /* output.c */
    int output_fd; /* read end of what the driver prints; -1: not redirected */
    pthread_mutex_t output_lock;
    pthread_t output_thread;
    bool output_thread_runs;

    pthread_mutex_t end_lock;
    pthread_cond_t end_changed;
    bool ended;       /* everybody has been told; guarded by end_lock */
    atomic_bool over; /* set first: nothing is sent or executed any more */
    int exit_code;
    int over_fd; /* eventfd that becomes readable; -1: none */
};

/** Takes `conn` over. `over_fd` (an eventfd, or -1) is written to when the session is over. NULL: out of memory. */
struct rg_worker *rg_worker_create(struct rg_conn *conn, uint64_t session, int over_fd);
/** Starts serving on threads of the worker's own. */
RG_MUST_CHECK enum rg_status rg_worker_start(struct rg_worker *worker);
/** Waits until the session is over; returns the exit code of a process that had only this to do. */
int rg_worker_wait(struct rg_worker *worker);
/**
 * Ends the session; the first call counts. With a `format`, the client is told the reason and it is logged. Any thread.
 */
void rg_worker_end(struct rg_worker *worker, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/**
 * After the end: waits for all threads, destroys what the client left behind in the driver, frees. Takes as long as the
 * work that the client left behind; a process that only served this session exits instead.
 */
void rg_worker_destroy(struct rg_worker *worker);

static inline bool rg_worker_over(struct rg_worker *worker)
{
    return atomic_load_explicit(&worker->over, memory_order_acquire);
}

/** Sends one message of `kind` with its body in `parts`; ends the session if that fails. Any thread. */
enum rg_status rg_worker_send(struct rg_worker *worker, unsigned kind, const struct iovec *parts, int n_parts,
                              const struct iovec *bulk, int n_bulk);
/**
 * As rg_worker_send, of bulk data that belongs to the client's transfer `tag`, from byte `base` of it on; 0: to none. `hold`: of
 * its memory, or NULL.
 */
enum rg_status rg_worker_send_to(struct rg_worker *worker, uint64_t tag, uint64_t base, struct rg_lease *hold,
                                 unsigned kind, const struct iovec *parts, int n_parts,
                                 const struct iovec *bulk, int n_bulk);
/** Sends a notice, with text or bulk data (either may be empty). Any thread. */
enum rg_status rg_worker_notice(struct rg_worker *worker, const struct rg_notice *notice, const void *text,
                                size_t text_size, const void *bulk, size_t bulk_size);
/** Sends part of a transfer to the host (RG_NOTICE_DEFERRED_READ), in pieces that others' messages go between. Any thread. `hold`: of
 * the memory, or NULL. */
enum rg_status rg_worker_send_transfer(struct rg_worker *worker, uint64_t id, uint64_t offset,
                                       const void *data, size_t size, bool last, struct rg_lease *hold);

/** Executes the next record of the cursor. The dispatcher; `thread` may have no role afterwards. */
void rg_dispatch_next(struct rg_worker *worker, struct rg_executor *executor);
/** Whether the next record of the cursor may block on the GPU and yet stays in order. The dispatcher. */
bool rg_dispatch_next_blocks(const struct rg_worker *worker);
/** Reports the failure that no reply has carried. The dispatcher, before it waits for input. */
void rg_dispatch_report_failure(struct rg_worker *worker);

/* --- for operations (request.h has what generated code uses) ------------------------------------------------------ */

/**
 * The calling record may wait for the GPU from now on: others' records go on meanwhile. False: there is no thread for that, and
 * the call is not to wait, as what it waits for may need others' records; its result is set.
 */
RG_MUST_CHECK bool rg_request_detach(struct rg_request *request);
/** From now on another thread reads messages, so that answers of the client arrive while this record is executed. */
void rg_request_separate_reader(struct rg_request *request);
/** The state of the client thread's current context, or NULL with request->result set. */
struct rg_worker_context *rg_request_context(struct rg_request *request);
/**
 * The same of the context that a stream belongs to, which a parameter of this record named: copies may be put into streams
 * of other contexts than the current one. That context is current on this thread then.
 */
struct rg_worker_context *rg_request_stream_context(struct rg_request *request, CUstream stream);
/** The state of a stream that a parameter of this record named. NULL: out of memory. */
struct rg_worker_stream *rg_request_stream_state(struct rg_request *request, CUstream stream);
/** Temporary zeroed memory that lives as long as the request. NULL with request->result set: out of memory. */
void *rg_request_memory(struct rg_request *request, size_t size);
/** Makes the client thread's context current on this thread. */
CUresult rg_request_make_current(struct rg_request *request);
/** Forgets what this thread's current context is taken to be. */
void rg_context_unknown(void);

/** Everything that goes with a context but its handle: before the driver ends it. */
void rg_context_release_contents(struct rg_worker *worker, struct rg_worker_context *context);
void rg_context_forget_objects(struct rg_worker *worker, uint64_t handle);

/** A stream of the context has been made; NULL: one that is not to be polled. The dispatcher. */
void rg_context_add_stream(struct rg_worker *worker, uint64_t context, CUstream stream);
/** A stream of the context is about to end; what it has left to do is done all the same. The dispatcher. */
void rg_context_leave_stream(struct rg_request *request, uint64_t context, CUstream stream);
/** Whether the context is known to have nothing to do. The dispatcher. */
bool rg_context_idle(struct rg_worker *worker, const struct rg_worker_context *context);
/** A stream of the context ends. The dispatcher. */
void rg_context_remove_stream(struct rg_worker *worker, uint64_t context, CUstream stream);

void rg_client_thread_free(struct rg_client_thread *thread);

#endif
