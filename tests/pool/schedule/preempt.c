/* preempt.c - which sessions are proposed to be suspended for a request of higher priority. */
#include "tests/pool/schedule/pool.h"

#include <criterion/criterion.h>

/* A server of four GPUs, all held for a long time by leases of one each that may be suspended; priorities 1 to 4. */
static struct pool *held(void)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    pool_server(pool, 4, 80 * GIB);
    for (uint32_t i = 0; i < 4; i++) {
        struct rg_pool_lease *lease = pool_lease(pool, i, 1, 0, NOW + 100 * HOUR);
        lease->suspendable = true;
        lease->priority = (int32_t)i + 1;
    }
    return pool;
}

Test(pool_preempt, the_lowest_priority_goes)
{
    struct pool *pool = held();
    pool_ask(pool, "a", 2, 0)->priority = 10;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_proposals, 1);
    cr_assert_eq(pool->outcome.proposals[0].n, 2);
    cr_expect_eq(pool->outcome.proposals[0].request, 0);
    cr_expect_eq(pool->outcome.suspend[0], 0);
    cr_expect_eq(pool->outcome.suspend[1], 1);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_SUSPENSION);
    pool_end(pool);
}

Test(pool_preempt, only_where_it_is_allowed)
{
    struct pool *pool = held();
    pool_ask(pool, "a", 1, 0)->priority = 10;
    pool->policy.preempt = false;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    pool->policy.preempt = true;
    for (int i = 0; i < 4; i++)
        pool->leases[i].suspendable = false;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    for (int i = 0; i < 4; i++) {
        pool->leases[i].suspendable = true;
        pool->leases[i].started = NOW - 59 * SECOND; /* has only begun */
    }
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    pool->leases[3].started = NOW - 60 * SECOND;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_suspend, 1);
    cr_expect_eq(pool->outcome.suspend[0], 3);
    pool_end(pool);
}

Test(pool_preempt, nobody_of_the_same_priority)
{
    struct pool *pool = held();
    pool_ask(pool, "a", 2, 0)->priority = 2;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0, "one of priority 1 does not make two");
    pool->requests[0].n = 1;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 1);
    pool_end(pool);
}

Test(pool_preempt, nothing_where_it_fits)
{
    struct pool *pool = held();
    pool_server(pool, 1, 80 * GIB);
    pool_ask(pool, "a", 1, 0)->priority = 10;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    cr_expect_not_null(pool_grant(pool, 0));
    pool_end(pool);
}

Test(pool_preempt, not_again_while_it_is_under_way)
{
    struct pool *pool = held();
    pool_ask(pool, "a", 2, 0)->priority = 10;
    pool->leases[0].suspending = pool->leases[1].suspending = true;
    pool_ask(pool, "b", 1, 0)->priority = 10;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_SUSPENSION);
    cr_assert_eq(pool->outcome.n_proposals, 1, "of the second request, beside what the first waits for");
    cr_expect_eq(pool->outcome.proposals[0].request, 1);
    cr_expect_eq(pool->outcome.suspend[0], 2);
    pool_end(pool);
}

Test(pool_preempt, a_gang_counts_for_all_of_its_gpus)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    pool_server(pool, 4, 80 * GIB);
    pool_lease(pool, 0, 3, 0, NOW + 100 * HOUR)->suspendable = true;
    pool_lease(pool, 3, 1, 0, NOW + 100 * HOUR)->suspendable = true;
    pool_ask(pool, "a", 1, 0)->priority = 1;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_suspend, 1);
    cr_expect_eq(pool->outcome.suspend[0], 1, "one GPU rather than three");
    pool->requests[0].n = 2;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.suspend[0], 1);
    cr_expect_eq(pool->outcome.n_suspend, 2);
    pool->requests[0].n = 4;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_suspend, 2, "the gang once, though it frees three");
    pool_end(pool);
}

Test(pool_preempt, parts_until_there_is_enough)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    pool_server(pool, 1, 80 * GIB);
    for (int i = 0; i < 3; i++) {
        struct rg_pool_lease *lease = pool_lease(pool, 0, 1, 20 * GIB, RG_POOL_UNKNOWN);
        lease->suspendable = true;
        lease->started = NOW - (uint64_t)(3 - i) * HOUR; /* the last is the youngest */
    }
    pool_ask(pool, "a", 1, 50 * GIB)->priority = 1;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_suspend, 2);
    cr_expect_eq(pool->outcome.suspend[0], 2);
    cr_expect_eq(pool->outcome.suspend[1], 1);
    pool_end(pool);
}

Test(pool_preempt, what_becomes_free_is_kept_for_it)
{
    struct pool *pool = held();
    pool->leases[3].ends = NOW + HOUR;
    pool_ask(pool, "a", 1, 0)->priority = 10;
    pool_ask(pool, "b", 1, 0);
    pool_decide(pool);
    cr_expect_eq(pool->outcome.suspend[0], 0);
    cr_expect_eq(pool_waits(pool, 1)->start, NOW + HOUR, "of what is left");
    pool_end(pool);
}
