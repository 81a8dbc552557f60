/*
 * transfer.h - transfers between host memory and the device that happen later than the call that asked for them, and
 * host functions: the worker names them by id when their turn comes.
 *
 *   landing   device → host: the worker sends the data by RG_NOTICE_DEFERRED_READ, in parts
 *   pull      host → device: the worker asks for the data by RG_NOTICE_RENDEZVOUS, part by part
 *   host call a function of the application that a stream waits for
 *   point     a place in a stream: this client is told when the stream is there, and lets it go on
 */
#ifndef RG_CLIENT_TRANSFER_TRANSFER_H
#define RG_CLIENT_TRANSFER_TRANSFER_H

#include "client/core/hooks.h"
#include "client/core/region.h"
#include "proto/wire.h"
#include "transport/transport.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_session;

/** Registers where a transfer lands; returns its id (0: no memory). `late`: no call waits for it. */
uint64_t rg_deferred_read_create(struct rg_session *session, const struct rg_host_region *region, bool late);
/** Whether a landing there saves a round trip, since the worker can be told of the memory ahead. */
bool rg_deferred_read_gains(const struct rg_session *session, const struct rg_host_region *region);
/** Forgets a landing whose call returns; when this does, nothing is received into its memory any more. */
void rg_deferred_read_destroy(uint64_t id);
/** Registers the source of a pull. */
uint64_t rg_rendezvous_create(struct rg_session *session, const struct rg_host_region *region);
/** Registers a host function (callback NULL) or stream callback. */
uint64_t rg_host_call_create(struct rg_session *session, CUhostFn function, CUstreamCallback callback,
                             CUstream stream, void *user);
/**
 * A landing of `size` bytes in memory of this client's, which must be named before the worker may send: `landed` is called
 * when nothing more comes, by the reader, which it must not hold up. `complete`: all bytes have arrived.
 */
uint64_t rg_deferred_read_create_for(struct rg_session *session, size_t size,
                                     void (*landed)(void *user, bool complete), void *user);
void rg_deferred_read_memory(uint64_t id, unsigned char *memory);

/** The source of a pull that is fetched only when the worker asks for it. */
struct rg_lazy_source {
    void (*keep)(struct rg_lazy_source
                     *supply); /* it will be started: it must live until `start` returns; under a lock */
    void (*start)(struct rg_lazy_source *supply);  /* asked for; by the reader, which it must not hold up */
    void (*finish)(struct rg_lazy_source *supply); /* nothing of it is needed any more */
    /* of transfer.c */
    unsigned char *memory;
    bool started;
    struct pull_part *waiting;
};
/** Registers a pull of `size` bytes. */
uint64_t rg_rendezvous_create_supplied(struct rg_session *session, size_t size,
                                       struct rg_lazy_source *supply);
/** The bytes are in `memory`, which must stay until `finish` is called. Any thread. */
void rg_lazy_source_ready(struct rg_session *session, struct rg_lazy_source *supply, unsigned char *memory);

/**
 * Registers a point, to be put into a stream as a host call is. `reached` is called by the reader, which it must not
 * hold up; `alive` is false if the stream will never get there. A stream that is there waits for rg_fence_release.
 */
uint64_t rg_fence_create(struct rg_session *session, void (*reached)(void *user, bool alive), void *user);
void rg_fence_release(struct rg_session *session, uint64_t id);

/**
 * Forgets a transfer, host call or point whose record could not be sent; false: it was finished already. Nothing touches its
 * memory any more when this returns.
 */
bool rg_transfer_cancel(uint64_t id);
/**
 * The memory of a transfer, or all memory in [start, start + size), is the application's again, though the worker may not have
 * said that it is done with it: nothing touches it any more when this returns. What still comes is dropped; zeros are sent of
 * what is asked for. A worker that keeps to the protocol has nothing left of a copy that was waited for. Not by the reader.
 */
void rg_transfer_revoke(uint64_t id);
void rg_transfers_revoke(uint64_t start, uint64_t size);
/** Whether memory of the host may still be written by something queued: landings or host functions. */
bool rg_transfers_may_write_host(void);
/** Forgets those of a session that has ended. */
void rg_transfers_drop(struct rg_session *session);
/** Waits until nothing is received into memory of a session's transfers; its connection has been interrupted. */
void rg_transfers_settle(const struct rg_session *session);

/** Whether [start, start + size) is part of a transfer that has not ended. */
bool rg_transfers_meet(uint64_t start, uint64_t size);
/** What is asked of the worker about memory that is shared (RG_ANSWER_MANAGED_OUT), and its answer. */
struct rg_page_request {
    struct rg_session *session;
    uint64_t context, address;
    size_t size;    /* at most RG_BULK_MAX */
    unsigned flags; /* enum rg_managed_flags */
    void *data;     /* where the contents go */
    /* the answer */
    CUresult result; /* the worker's, or that the session has ended */
    bool busy;       /* the device may be at work; with RG_MANAGED_IF_IDLE there are no contents then */
    bool steady;
    bool done;
    uint64_t id;
};
/** Sends a question. Each must be waited for. */
void rg_page_request_send(struct rg_page_request *question);
void rg_page_request_wait(struct rg_page_request *question);

/** RG_NOTICE_HOST_CALL, LANDING, PULL and UNIFIED. The bulk data of the message is taken from its connection. */
rg_notice_handler rg_transfer_notice;
/** Sends one piece of a queued part of a pull; false if there is none. The sender thread calls it. */
bool rg_rendezvous_send_next(struct rg_session *session);

#endif
