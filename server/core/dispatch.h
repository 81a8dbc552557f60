/*
 * dispatch.h - the records of a batch, one after another: each becomes a request, is executed, and answered.
 * See dispatch.c. The dispatcher.
 */
#ifndef RG_SERVER_CORE_DISPATCH_H
#define RG_SERVER_CORE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_executor;
struct rg_queued_batch;
struct rg_worker;

/** The rest of a batch: records to be executed, and the bulk data of the last of them. */
struct rg_batch_cursor {
    const unsigned char *at, *end;
    uint32_t left; /* records */
    uint64_t seq;  /* of the next record */
    size_t bulk_left;
    const unsigned char *bulk;     /* where it is; NULL: still to come from the connection */
    struct rg_queued_batch *owner; /* memory to free afterwards; NULL: the connection's */
};

/**
 * Executes the next record of the worker's cursor; `executor` may have no role afterwards. Waits before it while the session is
 * suspended and, where the device's time is shared, for the session's turn if the record gives the device work.
 */
void rg_dispatch_next(struct rg_worker *worker, struct rg_executor *executor);
/**
 * Whether the next record may block on the GPU and yet stays in order: it says so, or its context is at work already, so that it may
 * have to wait until there is room for more, or for code that is loaded when it is first used.
 */
bool rg_dispatch_next_blocks(struct rg_worker *worker);
/** Reports the failure that no reply has carried; before the dispatcher waits for input. */
void rg_dispatch_report_failure(struct rg_worker *worker);

#endif
