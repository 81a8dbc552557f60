/*
 * credit_pool.h - flow control by credit: how much of something may be under way (bytes of copies, messages, buffers), taken
 * by who sends and given back when the other side has dealt with it.
 *
 * Both are added up from the beginning, so that a peer can tell the sum instead of each part, and a sum that is told twice or
 * late does no harm. 64 bits do not overflow: 2^64 bytes take 46 years at 100 Gb/s.
 *
 * Any thread, without a lock; who waits for credit does so with a lock and condition of its own.
 */
#ifndef RG_COMMON_SYNC_CREDIT_POOL_H
#define RG_COMMON_SYNC_CREDIT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** Starts zeroed. */
struct rg_credit_pool {
    _Atomic uint64_t taken, given;
};

/** What is under way; too much rather than too little while others take and give. */
static inline uint64_t rg_credit_pool_in_use(const struct rg_credit_pool *pool)
{
    /* `given` first: it never passes what `taken` was when it was counted */
    const uint64_t given = atomic_load(&pool->given);
    return atomic_load(&pool->taken) - given;
}
/** Takes `amount`, unless more than `limit` would be in use then (false). */
bool rg_credit_pool_take(struct rg_credit_pool *pool, uint64_t amount, uint64_t limit);
/** What was taken was not needed. */
static inline void rg_credit_pool_untake(struct rg_credit_pool *pool, uint64_t amount)
{
    atomic_fetch_sub(&pool->taken, amount);
}
/** All that was given back from the beginning is `total`, or more by now. False: more than was taken. */
bool rg_credit_pool_given(struct rg_credit_pool *pool, uint64_t total);

#endif
