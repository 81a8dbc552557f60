/* credit_pool.c - see credit_pool.h. */
#include "common/sync/credit_pool.h"

bool rg_credit_pool_take(struct rg_credit_pool *pool, uint64_t amount, uint64_t limit)
{
    for (;;) {
        const uint64_t given = atomic_load(&pool->given); /* first: see rg_credit_pool_in_use */
        uint64_t taken = atomic_load(&pool->taken);
        if (taken - given > limit || amount > limit - (taken - given))
            return false;
        if (atomic_compare_exchange_weak(&pool->taken, &taken, taken + amount))
            return true;
    }
}

bool rg_credit_pool_given(struct rg_credit_pool *pool, uint64_t total)
{
    if (total > atomic_load(&pool->taken))
        return false;
    uint64_t given = atomic_load(&pool->given);
    while (given < total && !atomic_compare_exchange_weak(&pool->given, &given, total))
        ;
    return true;
}
