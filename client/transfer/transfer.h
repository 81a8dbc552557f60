/*
 * transfer.h - transfers between host memory and the device that happen later than the call that asked for
 * them, host functions, and fences: the worker names them by id when their turn comes.
 *
 *   read          device → host: the worker sends the data in parts (RG_NOTICE_DEFERRED_READ), or writes them
 *                 into the memory where that has been advertised
 *   rendezvous    host → device: the worker asks for the data, part by part (RG_NOTICE_RENDEZVOUS)
 *   host function a function of the application's that a stream waits for (RG_NOTICE_HOST_CALL)
 *   fence         a place in a stream: this client is told when the stream is there, and lets it go on (the
 *                 same notice)
 *
 * Any thread; no locks held but where that is said.
 */
#ifndef RG_CLIENT_TRANSFER_TRANSFER_H
#define RG_CLIENT_TRANSFER_TRANSFER_H

#include "client/core/hooks.h"
#include "client/core/region.h"
#include "proto/wire.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_session;

/* --- reads (read.c) ------------------------------------------------------------------------------------- */

/**
 * Registers where data goes that a call waits for, or, deferred, that no call waits for; returns its id (0:
 * no memory).
 */
uint64_t rg_read_create(struct rg_session *session, const struct rg_region *memory, bool deferred);
/** Whether it saves a round trip to register memory, since it can be advertised to the worker ahead. */
bool rg_read_gains(const struct rg_session *session, const struct rg_region *memory);
/** Forgets a read whose call returns; when this does, nothing is received into its memory any more. */
void rg_read_destroy(uint64_t id);
/**
 * A read of `size` bytes into memory of this client's, which must be named before the worker may send:
 * `landed` is called when nothing more comes, by the reader, which it must not hold up. `complete`: all bytes
 * have arrived.
 */
uint64_t rg_read_create_staged(struct rg_session *session, size_t size,
                               void (*landed)(void *user, bool complete), void *user);
void rg_read_set_memory(uint64_t id, unsigned char *memory);

/* --- rendezvous (rendezvous.c) -------------------------------------------------------------------------- */

struct rg_answer_part;

/** A source that is fetched only when the worker asks for it. */
struct rg_lazy_source {
    /** It will be started: it must live until `start` returns. Under a lock. */
    void (*keep)(struct rg_lazy_source *source);
    void (*start)(struct rg_lazy_source *source);  /* asked for; by the reader, which it must not hold up */
    void (*finish)(struct rg_lazy_source *source); /* nothing of it is needed any more */
    /* of rendezvous.c */
    unsigned char *memory;
    bool started;
    struct rg_answer_part *waiting;
};

/** Registers host memory that the worker will ask for; returns its id (0: no memory). */
uint64_t rg_rendezvous_create(struct rg_session *session, const struct rg_region *memory);
/** The same of `size` bytes of a lazy source. */
uint64_t rg_rendezvous_create_lazy(struct rg_session *session, size_t size, struct rg_lazy_source *source);
/** The bytes are in `memory`, which must stay until `finish` is called. */
void rg_lazy_source_ready(struct rg_session *session, struct rg_lazy_source *source, unsigned char *memory);

/* --- host functions and fences (host_call.c, fence.c) --------------------------------------------------- */

/** Registers a host function (callback NULL) or stream callback; returns its id (0: no memory, or no thread to run it on). */
uint64_t rg_host_call_create(struct rg_session *session, CUhostFn function, CUstreamCallback callback,
                             CUstream stream, void *user);
/**
 * Registers a fence, to be put into a stream as a host call is. `reached` is called by the reader, which it
 * must not hold up; `alive` is false if the stream will never get there. A stream that is there waits for
 * rg_fence_release.
 */
uint64_t rg_fence_create(struct rg_session *session, void (*reached)(void *user, bool alive), void *user);
void rg_fence_release(struct rg_session *session, uint64_t id);

/* --- all of them (settle.c) ----------------------------------------------------------------------------- */

/**
 * Forgets one whose record could not be sent; false: it was finished already. Nothing touches its memory any
 * more when this returns.
 */
bool rg_transfer_cancel(uint64_t id);
/**
 * The memory of a transfer, or all memory in [start, start + size), is the application's again, though the
 * worker may not have said that it is done with it: nothing touches it any more when this returns. What still
 * comes is dropped; zeros are sent of what is asked for. A worker that keeps to the protocol has nothing left
 * of a copy that was waited for. Not by the reader.
 */
void rg_transfer_revoke(uint64_t id);
void rg_transfers_revoke(uint64_t start, uint64_t size);
/** Whether memory of the host may still be written by something queued: deferred reads or host functions. */
bool rg_transfers_may_write_host(void);
/** Whether data of a session's device is yet to come into memory of the host for which no call waits. */
bool rg_transfers_read_of(const struct rg_session *session);
/** Whether [start, start + size) is part of a transfer that has not ended. */
bool rg_transfers_meet(uint64_t start, uint64_t size);
/** Forgets those of a session that has ended. */
void rg_transfers_drop(struct rg_session *session);
/**
 * Waits until nothing is received into memory of a session's transfers; its connection has been interrupted.
 */
void rg_transfers_settle(const struct rg_session *session);
/**
 * The notices by which the worker names a transfer. The bulk data of the message is taken from its
 * connection.
 */
rg_notice_handler rg_transfer_notice;

#endif
