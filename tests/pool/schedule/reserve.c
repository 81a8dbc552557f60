/* reserve.c - who waits is not overtaken at its cost: reservations, and what may start beside them. */
#include "tests/pool/schedule/pool.h"

#include <criterion/criterion.h>

/* A server of four GPUs, of which two are free after an hour and one after two; one is free. */
static struct pool *busy(void)
{
    struct pool *pool = pool_new();
    pool_server(pool, 4, 80 * GIB);
    pool_lease(pool, 0, 2, 0, NOW + HOUR);
    pool_lease(pool, 2, 1, 0, NOW + 2 * HOUR);
    return pool;
}

Test(pool_reserve, the_first_that_waits_has_a_time)
{
    struct pool *pool = busy();
    pool_ask(pool, "a", 3, 0);
    pool_ask(pool, "a", 4, 0);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + HOUR);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_GPUS);
    cr_expect_eq(pool_waits(pool, 0)->server, 0);
    cr_expect_eq(pool_waits(pool, 1)->start, RG_POOL_UNKNOWN, "there are not four beside three");
    pool_end(pool);
}

Test(pool_reserve, what_ends_in_time_may_start)
{
    struct pool *pool = busy();
    pool_ask(pool, "a", 3, 0);
    pool_ask(pool, "b", 1, 0)->time_limit = HOUR;
    pool_decide(pool);
    cr_assert_not_null(pool_grant(pool, 1));
    cr_expect_eq(pool_part(pool, 1, 0), 3);
    pool->requests[1].time_limit = HOUR + 1;
    pool_decide(pool);
    cr_assert_not_null(pool_waits(pool, 1), "one nanosecond too late");
    cr_expect_eq(pool_waits(pool, 1)->reason, RG_POOL_WAITS_FOR_TURN);
    cr_expect_eq(pool_waits(pool, 1)->behind, 0);
    pool->requests[1].time_limit = RG_POOL_UNKNOWN;
    pool_decide(pool);
    cr_expect_not_null(pool_waits(pool, 1));
    pool_end(pool);
}

Test(pool_reserve, what_is_not_in_the_way_may_start)
{
    struct pool *pool = busy();
    pool_ask(pool, "a", 2, 0); /* at NOW + HOUR, with device 3 and 0: 1 is free then */
    pool_ask(pool, "b", 1, 0);
    pool_server(pool, 1, 80 * GIB);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 1, 0), 4);
    pool_end(pool);
}

Test(pool_reserve, a_part_beside_a_reserved_part)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_lease(pool, 0, 1, 40 * GIB, NOW + HOUR);
    pool_ask(pool, "a", 1, 50 * GIB);
    pool_ask(pool, "b", 1, 30 * GIB);
    pool_ask(pool, "c", 1, 1 * GIB);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + HOUR);
    cr_expect_not_null(pool_waits(pool, 1), "30 of 40 free, but only until the reservation");
    cr_expect_not_null(pool_waits(pool, 2), "all that is free is part of the 50");
    pool->requests[1].time_limit = HOUR;
    pool->snapshot.n_requests = 2;
    pool_decide(pool);
    cr_expect_not_null(pool_grant(pool, 1));
    pool_end(pool);
}

Test(pool_reserve, what_is_owed_to_earlier_ones_comes_first)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_lease(pool, 0, 1, 40 * GIB, NOW + HOUR);
    pool_lease(pool, 0, 1, 40 * GIB, NOW + 2 * HOUR);
    pool_ask(pool, "a", 1, 30 * GIB);
    pool_ask(pool, "b", 1, 30 * GIB);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + HOUR);
    cr_expect_eq(pool_waits(pool, 1)->start, NOW + 2 * HOUR, "10 GiB are left of the first");
    pool_end(pool);
}

Test(pool_reserve, more_reservations_than_one)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 1, 0, NOW + HOUR);
    pool_lease(pool, 2, 1, 0, NOW + 2 * HOUR);
    pool_ask(pool, "a", 2, 0);
    pool_ask(pool, "b", 2, 0);
    pool_ask(pool, "c", 1, 0);
    pool_decide(pool);
    cr_expect_eq(pool->outcome.n_grants, 0, "both servers are kept");
    cr_expect_eq(pool_waits(pool, 1)->start, NOW + 2 * HOUR);
    pool->policy.reservations = 1;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 2, 0), 3);
    cr_expect_eq(pool_waits(pool, 1)->start, RG_POOL_UNKNOWN);
    pool_end(pool);
}

Test(pool_reserve, unknown_ends_keep_everybody_out)
{
    struct pool *pool = busy();
    pool->leases[0].ends = RG_POOL_UNKNOWN;
    pool_ask(pool, "a", 3, 0);
    pool_ask(pool, "b", 1, 0)->time_limit = 1;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, RG_POOL_UNKNOWN);
    cr_expect_eq(pool_waits(pool, 1)->reason, RG_POOL_WAITS_FOR_TURN);
    pool_end(pool);
}

Test(pool_reserve, the_fewest_unknown_ends)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN);
    pool_lease(pool, 1, 1, 0, RG_POOL_UNKNOWN);
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 2, 1, 0, RG_POOL_UNKNOWN);
    pool_lease(pool, 3, 1, 0, NOW + 90 * HOUR);
    pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->server, 1);
    pool_end(pool);
}

Test(pool_reserve, of_one_server_the_known_ends)
{
    struct pool *pool = pool_new();
    pool_server(pool, 3, 80 * GIB);
    pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN);
    pool_lease(pool, 1, 1, 0, NOW + 90 * HOUR);
    pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + 90 * HOUR);
    pool_end(pool);
}

Test(pool_reserve, overdue_leases_end_any_moment)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 1, 0, NOW - HOUR);
    pool_ask(pool, "a", 2, 0);
    pool_ask(pool, "b", 1, 0)->time_limit = MINUTE;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + 1);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_GPUS, "nobody suspends it");
    cr_expect_not_null(pool_waits(pool, 1));
    pool_end(pool);
}

Test(pool_reserve, what_is_granted_in_the_same_decision_counts)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_ask(pool, "a", 1, 0)->time_limit = HOUR;
    pool_ask(pool, "b", 2, 0);
    pool_ask(pool, "c", 1, 0)->time_limit = 2 * HOUR;
    pool_decide(pool);
    cr_expect_not_null(pool_grant(pool, 0));
    cr_expect_eq(pool_waits(pool, 1)->start, NOW + HOUR);
    cr_expect_not_null(pool_waits(pool, 2));
    pool_end(pool);
}

Test(pool_reserve, several_servers_wait_for_several)
{
    struct pool *pool = pool_new();
    for (uint32_t s = 0; s < 3; s++) {
        pool_server(pool, 2, 80 * GIB);
        pool_lease(pool, 2 * s, 2, 0, NOW + (3 - s) * HOUR);
    }
    pool_ask(pool, "a", 4, 0)->several_servers = true;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + 2 * HOUR);
    pool_end(pool);
}

Test(pool_reserve, few_enough_servers_even_if_later)
{
    struct pool *pool = pool_new();
    pool->policy.servers_max = 2;
    for (uint32_t s = 0; s < 3; s++) {
        pool_server(pool, 1, 80 * GIB);
        pool_lease(pool, s, 1, 0, NOW + HOUR);
    }
    for (uint32_t s = 0; s < 2; s++) {
        pool_server(pool, 2, 80 * GIB);
        pool_lease(pool, 3 + 2 * s, 2, 0, NOW + 5 * HOUR);
    }
    pool_ask(pool, "a", 4, 0)->several_servers = true;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->start, NOW + 5 * HOUR);
    pool_end(pool);
}

Test(pool_reserve, suspended_leases_are_in_nobodys_way)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN)->suspended = true;
    pool_ask(pool, "a", 1, 0);
    pool_decide(pool);
    cr_expect_not_null(pool_grant(pool, 0));
    pool_end(pool);
}

Test(pool_reserve, a_server_that_is_overcommitted_is_full)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_lease(pool, 0, 1, 60 * GIB, NOW + HOUR);
    pool_lease(pool, 0, 1, 60 * GIB, NOW + 2 * HOUR);
    pool->devices[0].memory_outside = 10 * GIB;
    pool_ask(pool, "a", 1, GIB);
    pool_decide(pool);
    cr_expect_not_null(pool_waits(pool, 0));
    pool_end(pool);
}
