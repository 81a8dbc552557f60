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

Test(pool_preempt, a_request_may_spare_others_and_a_lease_be_spared)
{
    struct pool *pool = held();
    pool_ask(pool, "a", 1, 0)->priority = 10;
    pool->requests[0].spares = true;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    pool->requests[0].spares = false;
    for (int i = 0; i < 4; i++)
        pool->leases[i].spared_until = NOW + 1;
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_proposals, 0);
    pool->leases[2].spared_until = NOW;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_suspend, 1);
    cr_expect_eq(pool->outcome.suspend[0], 2);
    pool_end(pool);
}

/* The last of two servers of one GPU each has a lease that is suspended. */
static struct pool *suspended(int32_t priority)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_server(pool, 1, 80 * GIB);
    struct rg_pool_lease *lease = pool_lease(pool, 1, 1, 0, RG_POOL_UNKNOWN);
    lease->suspended = true;
    struct rg_pool_request *back = pool_ask(pool, "holder", 1, 0);
    back->priority = priority;
    back->returns = lease->parts;
    return pool;
}

Test(pool_preempt, who_is_suspended_comes_back_to_its_own_gpu)
{
    struct pool *pool = suspended(0);
    pool->servers[1].draining = true;
    pool->servers[1].taints = (const struct rg_pool_label[]){{"team", "red"}};
    pool->servers[1].n_taints = 1;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    pool_lease(pool, 1, 1, 0, RG_POOL_UNKNOWN);
    pool_decide(pool);
    cr_expect_null(pool_grant(pool, 0), "another one is free, and is not its own");
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_GPUS);
    pool_end(pool);
}

Test(pool_preempt, who_comes_back_is_the_first_of_its_priority)
{
    struct pool *pool = suspended(0);
    pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN);
    pool_ask(pool, "other", 1, 0)->submitted = NOW - 100 * HOUR; /* beyond all patience */
    pool->requests[0].submitted = NOW;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    cr_expect_null(pool_grant(pool, 1));
    pool->requests[1].priority = 1;
    pool_decide(pool);
    cr_expect_null(pool_grant(pool, 0));
    cr_expect_eq(pool_part(pool, 1, 0), 1);
    pool_end(pool);
}

Test(pool_preempt, who_comes_back_does_not_wait_for_who_cannot_begin)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 1, 1, 0, RG_POOL_UNKNOWN);
    struct rg_pool_lease *lease = pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN);
    lease->suspended = true;
    pool_ask(pool, "a", 2, 0)->priority = 10;
    pool_ask(pool, "holder", 1, 0)->returns = lease->parts;
    pool_ask(pool, "b", 1, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 1, 0), 0, "the other GPU's lease could not be suspended");
    cr_expect_null(pool_grant(pool, 2), "others wait for their turn");
    pool->leases[0].suspending = true;
    pool_decide(pool);
    cr_expect_null(pool_grant(pool, 1), "as soon as that is suspended, the first request begins");
    pool_end(pool);
}

Test(pool_preempt, nobody_is_suspended_for_who_comes_back)
{
    struct pool *pool = suspended(5);
    pool->policy.preempt = true;
    pool_lease(pool, 1, 1, 0, RG_POOL_UNKNOWN)->suspendable = true;
    pool_decide(pool);
    cr_expect_null(pool_grant(pool, 0));
    cr_expect_eq(pool->outcome.n_proposals, 0);
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
