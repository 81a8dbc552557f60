/*
 * request.h - one record in execution: what generated and hand-written operations (rg_execute_*) work with.
 *
 * A request is made by the dispatcher for each record, lives on one thread, and ends when its operation
 * returns. Anything wrong with the bytes makes the whole session end (rg_request_violation); anything wrong
 * with the call makes only the call fail (request->result).
 */
#ifndef RG_SERVER_CORE_REQUEST_H
#define RG_SERVER_CORE_REQUEST_H

#include "common/base/status.h"
#include "generated/proto/ops.h"
#include "proto/codec.h"
#include "proto/kinds.h"
#include "proto/wire.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_client_thread;
struct rg_lease;
struct rg_worker;
struct rg_worker_context;
struct rg_worker_stream;

struct rg_request {
    struct rg_worker *worker;
    struct rg_client_thread *thread;
    struct rg_reader in; /* the record's parameters */
    uint16_t op;
    uint32_t token; /* 0: nobody waits for the answer */
    bool awaited;   /* and the client thread sends nothing before it is there (RG_RECORD_AWAITED) */
    CUresult result;
    bool violated; /* the session must end */
    bool told; /* the client knows what became of it by more than the result: it cannot be served once more */
    size_t bulk_left; /* bytes of bulk data of this record not yet taken */
    /* outputs and temporary arrays; the dispatcher owns the memory */
    unsigned char *out;
    size_t out_size, out_capacity;
    void *arena;           /* list of temporary blocks, freed with the request */
    unsigned memory_taken; /* of code that was loaded: a level (proto/memory_level.h), which the reply has */
    /*
     * the module, library or linker state that a parameter named, or that owns what it named: it does not end
     * meanwhile (out_of_order.h), nor does the context that it goes with (0: none), which need not be the
     * client thread's
     */
    const void *uses;
    uint64_t uses_context;
    /* bulk data for the reply, set by an operation; must stay valid until the reply is sent */
    const void *reply_bulk;
    size_t reply_bulk_size;
    uint64_t reply_transfer;      /* the client's transfer that it belongs to; 0: none */
    struct rg_lease *reply_lease; /* of that memory, or NULL */
    /* called with `reply_owner` once the reply is sent, or will not be; NULL: nothing is to be given back */
    void (*reply_sent)(struct rg_worker *worker, void *reply_owner);
    void *reply_owner;
};

/**
 * Executes a record (generated). rg_request_enter sees to it that what waits or compiles lets others' records pass;
 * hand-written operations (RG_TRAIT_CUSTOM) see to that themselves (rg_request_detach, rg_request_go_out_of_order). The
 * parameters of what waits must have been copied: no bytes.
 */
typedef void rg_operation(struct rg_request *request);

/**
 * The driver's object behind a handle of the client; NULL for 0. An unknown handle sets request->result to
 * the driver's error for it (rg_request_enter then returns false). RG_KIND_FUNCTION also finds kernels.
 */
void *rg_request_object(struct rg_request *request, enum rg_kind kind, uint64_t handle);
/** The same for streams: 0 and 1 the legacy one, 2 the client thread's own (made on first use). */
CUstream rg_request_stream(struct rg_request *request, uint64_t handle);
/**
 * An array / bytes from the record, copied to aligned temporary memory. On the wire a u64 count stands before
 * the elements; it must equal `count` (which another parameter gave), be within limits and within the record.
 */
void *rg_request_array_in(struct rg_request *request, uint64_t count, size_t size);
/** A string from the record, copied to temporary memory; NULL: there is none. */
const char *rg_request_string_in(struct rg_request *request);
const void *rg_request_bytes_in(struct rg_request *request, uint64_t count);
/** Zeroed temporary memory for outputs; a violation if over RG_REPLY_INLINE bytes. */
void *rg_request_array_out(struct rg_request *request, uint64_t count, size_t size);

/**
 * Once all parameters are decoded: false (with result or violation set) if any was bad or a handle unknown.
 */
bool rg_request_decoded(struct rg_request *request);
/** The same; and if all is well makes the client thread's context current on this thread (if `context`). */
bool rg_request_enter(struct rg_request *request, bool context);
/**
 * Whether `height` rows of `width` bytes, `pitch` apart, from a client's address on are device memory of this session, or host
 * memory that it shares with the device. False: they are not, and the result says so.
 */
bool rg_request_device_memory(struct rg_request *request, uint64_t address, uint64_t pitch, uint64_t width,
                              uint64_t height);
/** Whether all of it is device memory: what travels outside of records (managed/) names addresses, too. Any thread. */
bool rg_is_device_memory(uint64_t address, uint64_t size);
/** Bytes of `n` elements; more than there can be if that is no number. */
static inline uint64_t rg_request_bytes_of(uint64_t n, uint64_t size)
{
    uint64_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? UINT64_MAX : bytes;
}

/**
 * Before the driver is called by a record that may wait for the device: where its caller waits for the
 * answer, and the device is not known to have nothing to do, others' records go on from here, and the record
 * may touch nothing of the dispatcher's any more. `context`: the client thread's context is current here.
 */
void rg_request_may_block(struct rg_request *request, bool context);

/**
 * Before the driver is called by a record that takes long by itself: where its caller waits, others' records
 * go on from here, and the record may touch nothing of the dispatcher's any more but by rg_request_output,
 * rg_request_new and rg_request_found (out_of_order.h).
 */
void rg_request_go_out_of_order(struct rg_request *request);

/** Adds to the outputs. */
void rg_request_output(struct rg_request *request, const void *data, size_t size);
/** Registers a driver object under the client's new handle. A handle in use already is a violation. */
void rg_request_new(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object);
/** As rg_request_new, but an object that has a handle keeps it; outputs the u64 handle that counts. */
void rg_request_found(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object);
/** The same two of what a module or library has, the `owner`, with which it ends (struct rg_object). */
void rg_request_new_of(struct rg_request *request, enum rg_kind kind, uint64_t handle, void *object,
                       const void *owner);
void rg_request_found_of(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object,
                         const void *owner);
/** As rg_request_new, of what another record may have made; the kind is known to fit. The dispatcher. */
void rg_request_add_object(struct rg_request *request, uint64_t handle, void *object, uint64_t context,
                           const void *owner);
void rg_request_delete(struct rg_request *request, enum rg_kind kind, uint64_t handle);

/** The call fails with `result`, unless it has failed before. */
static inline void rg_request_fail(struct rg_request *request, CUresult result)
{
    if (request->result == CUDA_SUCCESS)
        request->result = result;
}

/** Takes `size` bytes of the record's bulk data (to NULL: discards). RG_ERR_*: the session is over. */
RG_MUST_CHECK enum rg_status rg_request_recv_bulk(struct rg_request *request, void *buffer, size_t size);
/** Whether the record's bulk data would go straight into this registered memory, no CPU touching it. */
bool rg_request_places(struct rg_request *request, const void *memory, size_t size);
/**
 * The next bytes of the record's bulk data, `most` at most, where they lie in memory that was advertised to the
 * client (rg_conn_take_advertised); returns how many. 0: they do not, or, with request->violated, the session
 * is over.
 */
size_t rg_request_take_advertised(struct rg_request *request, size_t most, void **memory);

/* --- for hand-written operations ------------------------------------------------------------------------ */

/**
 * The calling record may wait for the GPU from now on: others' records go on meanwhile. False: there is no
 * thread for that, and the call is not to wait, as what it waits for may need others' records; its result is
 * set.
 */
RG_MUST_CHECK bool rg_request_detach(struct rg_request *request);
/** From now on another thread reads, so that answers of the client arrive while this record is executed. */
void rg_request_separate_reader(struct rg_request *request);
/** The state of the client thread's current context, or NULL with request->result set. */
struct rg_worker_context *rg_request_context(struct rg_request *request);
/**
 * The same of the context that a stream belongs to, which a parameter of this record named: copies may be put
 * into streams of other contexts than the current one. That context is current on this thread then.
 */
struct rg_worker_context *rg_request_stream_context(struct rg_request *request, CUstream stream);
/** The state of a stream that a parameter of this record named. NULL: out of memory. */
struct rg_worker_stream *rg_request_stream_state(struct rg_request *request, CUstream stream);
/** Temporary zeroed memory that lives as long as the request. NULL, with the result set: out of memory. */
void *rg_request_memory(struct rg_request *request, size_t size);
/** Makes the client thread's context current on this thread. */
CUresult rg_request_make_current(struct rg_request *request);
/** Forgets what this thread's current context is taken to be. */
void rg_context_unknown(void);

/** Ends the session: logs `format` with op and client; the dispatcher tells the client and stops. */
void rg_request_violation(struct rg_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
