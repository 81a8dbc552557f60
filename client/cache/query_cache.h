/*
 * query_cache.h - answers of the worker that are kept: those to questions whose answer only this client's own
 * calls can change.
 *
 * Which they are is in the specification (`keeps=GROUP`), as is what changes them (`changes=GROUP`). An
 * answer is found again by the operation, its parameters and, where it needs one, the current context; only
 * success is kept. Generated encoders use this as follows: rg_query_cache_begin, rg_query_cache_by for each
 * parameter, then rg_query_cache_find; if there is no answer, ask, and rg_query_cache_out for each output of
 * a success, then rg_query_cache_add.
 *
 * Any thread; one lock, a leaf.
 */
#ifndef RG_CLIENT_CACHE_QUERY_CACHE_H
#define RG_CLIENT_CACHE_QUERY_CACHE_H

#include "generated/proto/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rg_query_cache_group {
    RG_QUERY_CACHE_EVER,     /* constant */
    RG_QUERY_CACHE_LIMIT,    /* limits of contexts */
    RG_QUERY_CACHE_CACHE,    /* preferences of contexts for caches and shared memory */
    RG_QUERY_CACHE_FUNCTION, /* attributes of functions, and what follows from them */
    RG_QUERY_CACHE_STREAM,   /* attributes of streams */
    RG_QUERY_CACHE_POOL,     /* which pool is whose, and who may use it */
    RG_QUERY_CACHE_GROUPS
};

#define RG_QUERY_CACHE_KEY    512u /* bytes of parameters; what has more is not kept */
#define RG_QUERY_CACHE_ANSWER 192u /* bytes of outputs */

/** One question, on the stack of the call. */
struct rg_cached_query {
    enum rg_query_cache_group group;
    unsigned needs; /* of rg_call_allowed */
    unsigned epoch; /* of the group, when the question was asked */
    bool fits;
    size_t key_size, answer_size, read;
    unsigned char key[RG_QUERY_CACHE_KEY];
    unsigned char answer[RG_QUERY_CACHE_ANSWER];
};

/** Begins a question: `op`, whose answer is one of `group`. Its parts follow. */
void rg_query_cache_begin(struct rg_cached_query *query, enum rg_op op, enum rg_query_cache_group group);
/** A part of the question. NULL is one, too. */
void rg_query_cache_by(struct rg_cached_query *query, const void *part, size_t size);
/** The answer is not one to keep. */
static inline void rg_query_cache_not(struct rg_cached_query *query)
{
    query->fits = false;
}
/**
 * Whether the answer is known, and the call is possible at all; then rg_query_cache_get gives the outputs in
 * order.
 */
bool rg_query_cache_find(struct rg_cached_query *query);
void rg_query_cache_get(struct rg_cached_query *query, void *to, size_t size);
/** An output; NULL: the caller did not want it, so the answer is not whole and not kept. */
void rg_query_cache_out(struct rg_cached_query *query, const void *output, size_t size);
void rg_query_cache_add(const struct rg_cached_query *query);

/** What is kept of the group may have changed. */
void rg_query_cache_change(enum rg_query_cache_group group);
/** A context has ended: what is found by it may mean something else. */
void rg_query_cache_context_ended(void);

#endif
