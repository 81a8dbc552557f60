/*
 * prealloc.h - device memory that the worker makes before the program asks for it
 * (server/prealloc/prealloc.c), so that allocating costs no round trip.
 *
 * What a program allocates for the second time (the same kind, size, context and stream) it is likely to
 * allocate again: from then on the worker keeps a few blocks ready. How many follows from need: each time
 * none was ready although some were asked for, twice as many. Where the worker refuses (it makes only a part
 * of what is free ready), allocations ask as before.
 *
 * What a program allocated when it started before (client/prefetch/startup_profile.h) is asked for with its
 * first context, in one go; the first allocation of it waits for that answer, and the others find theirs. It
 * is kept ready somewhat longer.
 *
 * The worker asks for blocks when it runs out of memory itself, in a call that nobody waits for
 * (rg_prealloc_answer_reclaim).
 *
 * Blocks go back when any call runs out of memory (which is then tried once more), when they have not been
 * needed for half a second, before their stream, pool or context ends, and, of pools, before a question about
 * memory.
 *
 * Any thread; no locks held. The reader calls rg_prealloc_notice.
 */
#ifndef RG_CLIENT_PREALLOC_PREALLOC_H
#define RG_CLIENT_PREALLOC_PREALLOC_H

#include "client/core/hooks.h"
#include "proto/prealloc.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_session;

/** What is allocated; the current context's. */
struct rg_prealloc_key {
    enum rg_prealloc_kind kind;
    unsigned element;
    size_t size, height;
    CUstream stream; /* effective */
    CUmemoryPool pool;
};

/** Takes a block that is ready; false: the worker is to be asked. */
bool rg_prealloc_take(const struct rg_prealloc_key *key, struct rg_prealloc_block *out);
/** The worker was asked, and gave. */
void rg_prealloc_want(const struct rg_prealloc_key *key);

/**
 * Of each kind of memory (`counts[i]` blocks of `keys[i]`, RG_PREALLOC_HINTS at most, none stream-ordered),
 * the worker is to make some ready in the current context. Sends one record, and does not wait.
 */
void rg_prealloc_hint(const struct rg_prealloc_key *keys, const unsigned *counts, unsigned n);

/** Gives back all that the session's worker keeps ready; false: there was nothing. */
bool rg_prealloc_give_back(struct rg_session *session);
/**
 * The same for a context, stream or pool (with NULL: what comes from whichever pool is current), or a
 * thread's own stream.
 */
void rg_prealloc_give_back_context(uint64_t context);
void rg_prealloc_give_back_stream(CUstream stream);
void rg_prealloc_give_back_pool(CUmemoryPool pool);
/** The same for all pools, because of a question about memory: what was wanted is wanted again. */
void rg_prealloc_give_back_pools(void);
void rg_prealloc_give_back_thread(uint32_t thread);

/** Whether anything is ready or due; then rg_prealloc_age is to be called every RG_SENDER_IDLE_MS. */
bool rg_prealloc_any(const struct rg_session *session);
/** Gives back what was not needed for long. */
void rg_prealloc_age(struct rg_session *session);

/** Answers the worker if it reclaims memory, with what is ready. The sender thread. */
void rg_prealloc_answer_reclaim(struct rg_session *session);

/** RG_NOTICE_PREALLOC, and RG_NOTICE_RECLAIM, which the sender then answers. */
rg_notice_handler rg_prealloc_notice, rg_prealloc_reclaim_notice;

#endif
