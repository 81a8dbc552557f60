/*
 * reclaim.h - internal to prealloc/: asking the client for memory that is ready, when a record has run out of it.
 *
 * The dispatcher asks (RG_NOTICE_RECLAIM) and waits; another thread reads the answer meanwhile. What comes back is freed, and the
 * record tried again. An answer to nothing, or with blocks that were not ready, ends the session.
 */
#ifndef RG_SERVER_PREALLOC_RECLAIM_H
#define RG_SERVER_PREALLOC_RECLAIM_H

#include "proto/prealloc.h"
#include "server/core/worker.h"

struct rg_prealloc;

/** Guarded by the lock of struct rg_prealloc. */
struct rg_reclaim {
    bool able;                         /* the client can be asked. The dispatcher's */
    uint64_t number;                   /* of the last one */
    bool due;                          /* it is not answered */
    struct rg_prealloc_return *blocks; /* the answer */
    size_t n;
    pthread_cond_t answered;
};

/** At the end nobody may wait; an answer that nobody took is dropped. */
void rg_reclaim_init(struct rg_reclaim *reclaim);
void rg_reclaim_fini(struct rg_reclaim *reclaim);
/** The session is over: nobody waits any more. */
void rg_reclaim_wake(struct rg_prealloc *prealloc);
/** The module's hooks (server/core/module.h). */
bool rg_reclaim_ready(struct rg_request *request);
enum rg_answered rg_reclaim_answered(struct rg_worker *worker, const struct rg_message_header *header,
                                     const struct rg_answer *told, size_t bulk_size);

#endif
