/* credit_pool.c - no more is in use than the limit, and no more is given back than was taken. */
#include "common/sync/credit_pool.h"

#include <criterion/criterion.h>
#include <pthread.h>

Test(credit_pool, the_limit_holds)
{
    struct rg_credit_pool pool = {0};
    cr_assert(rg_credit_pool_take(&pool, 60, 100));
    cr_assert_not(rg_credit_pool_take(&pool, 41, 100));
    cr_assert_eq(rg_credit_pool_in_use(&pool), 60);
    cr_assert(rg_credit_pool_take(&pool, 40, 100));
    cr_assert_not(rg_credit_pool_take(&pool, UINT64_MAX, 100));
    cr_assert_not(rg_credit_pool_take(&pool, 0, 99)); /* a limit that was lowered meanwhile */
    cr_assert(rg_credit_pool_given(&pool, 100));
    cr_assert_eq(rg_credit_pool_in_use(&pool), 0);
    cr_assert(rg_credit_pool_take(&pool, 100, 100));
    rg_credit_pool_untake(&pool, 100);
    cr_assert_eq(rg_credit_pool_in_use(&pool), 0);
}

Test(credit_pool, no_more_is_given_than_was_taken)
{
    struct rg_credit_pool pool = {0};
    cr_assert_not(rg_credit_pool_given(&pool, 1));
    cr_assert(rg_credit_pool_take(&pool, 10, 100));
    cr_assert_not(rg_credit_pool_given(&pool, 11));
    cr_assert_not(rg_credit_pool_given(&pool, UINT64_MAX));
    cr_assert_eq(rg_credit_pool_in_use(&pool), 10);
}

Test(credit_pool, sums_may_come_twice_and_late)
{
    struct rg_credit_pool pool = {0};
    cr_assert(rg_credit_pool_take(&pool, 50, 100));
    cr_assert(rg_credit_pool_given(&pool, 30));
    cr_assert(rg_credit_pool_given(&pool, 30));
    cr_assert(rg_credit_pool_given(&pool, 10));
    cr_assert_eq(rg_credit_pool_in_use(&pool), 20);
    cr_assert_not(rg_credit_pool_given(&pool, 51));
    cr_assert_not(rg_credit_pool_given(&pool, UINT64_MAX));
    cr_assert_eq(rg_credit_pool_in_use(&pool), 20);
}

enum { THREADS = 4, ROUNDS = 20000, LIMIT = 3 };
static struct rg_credit_pool shared;
static _Atomic unsigned inside, over;
static _Atomic uint64_t given_back; /* counted before it is told, so sums may be told in another order */

static void *take_and_give(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (!rg_credit_pool_take(&shared, 1, LIMIT))
            continue;
        if (++inside > LIMIT)
            over++;
        inside--;
        if (!rg_credit_pool_given(&shared, ++given_back))
            over++;
    }
    return unused;
}

Test(credit_pool, threads_share_it)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, take_and_give, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(over, 0);
    cr_assert_eq(rg_credit_pool_in_use(&shared), 0);
}
