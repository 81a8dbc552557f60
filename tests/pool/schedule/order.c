/* order.c - who comes first. The pool of these tests has no GPU that would do, so that all wait and have a position. */
#include "tests/pool/schedule/pool.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* The order in which requests wait, as their numbers: "0 2 1". */
static const char *queue(struct pool *pool)
{
    static char text[512];
    size_t used = 0;
    if (!pool->snapshot.n_servers) {
        pool_server(pool, 1, 80 * GIB);
        pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN);
    }
    pool_decide(pool);
    text[0] = 0;
    for (uint32_t i = 0; i < pool->outcome.n_waiting; i++) {
        cr_assert_eq(pool->outcome.waiting[i].position, i + 1);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u", i ? " " : "",
                                 pool->outcome.waiting[i].request);
    }
    return text;
}

static void account(struct pool *pool, const char *name, bool project, uint32_t weight, uint64_t usage)
{
    pool->accounts[pool->snapshot.n_accounts++] = (struct rg_pool_account){
        .name = name, .project = project, .weight = weight, .usage = usage, .as_of = NOW};
}

Test(pool_order, first_come_first)
{
    struct pool *pool = pool_new();
    pool_ask(pool, "a", 1, 0)->submitted = NOW - 1;
    pool_ask(pool, "a", 1, 0)->submitted = NOW - 3;
    pool_ask(pool, "a", 1, 0)->submitted = NOW - 2;
    cr_expect_str_eq(queue(pool), "1 2 0");
    pool_end(pool);
}

Test(pool_order, priority_before_all)
{
    struct pool *pool = pool_new();
    account(pool, "greedy", false, 100, 1ull << 50);
    pool_ask(pool, "a", 1, 0);
    pool_ask(pool, "a", 1, 0)->priority = -1;
    pool_ask(pool, "greedy", 1, 0)->priority = 5;
    cr_expect_str_eq(queue(pool), "2 0 1");
    pool_end(pool);
}

Test(pool_order, users_take_turns_whoever_came_first)
{
    struct pool *pool = pool_new();
    for (int i = 0; i < 4; i++)
        pool_ask(pool, "many", 1, 0);
    pool_ask(pool, "few", 1, 0);
    cr_expect_str_eq(queue(pool), "0 4 1 2 3");
    pool_end(pool);
}

Test(pool_order, use_by_weight)
{
    struct pool *pool = pool_new();
    account(pool, "light", false, 100, 100);
    account(pool, "heavy", false, 1000, 900); /* less for its weight */
    pool_ask(pool, "light", 1, 0);
    pool_ask(pool, "heavy", 1, 0);
    cr_expect_str_eq(queue(pool), "1 0");
    pool_end(pool);
}

Test(pool_order, use_is_forgotten_by_halves)
{
    struct pool *pool = pool_new();
    account(pool, "recent", false, 100, 1000);
    account(pool, "long_ago", false, 100, 3000);
    pool->accounts[1].as_of = NOW - 2 * pool->policy.half_life; /* 750 are left */
    pool_ask(pool, "recent", 1, 0);
    pool_ask(pool, "long_ago", 1, 0);
    cr_expect_str_eq(queue(pool), "1 0");
    pool->policy.half_life = 0; /* nothing is forgotten */
    cr_expect_str_eq(queue(pool), "0 1");
    pool_end(pool);
}

Test(pool_order, projects_first_and_users_in_them)
{
    struct pool *pool = pool_new();
    account(pool, "busy", true, 100, 1000000000);
    account(pool, "idle", true, 100, 0);
    account(pool, "x", false, 100, 500);
    pool_ask(pool, "x", 1, 0)->project = "busy";
    pool_ask(pool, "y", 1, 0)->project = "busy";
    pool_ask(pool, "x", 1, 0)->project = "idle";
    pool_ask(pool, "z", 1, 0)->project = "idle";
    cr_expect_str_eq(queue(pool), "3 2 1 0");
    pool_end(pool);
}

Test(pool_order, who_has_no_project_stands_beside_projects)
{
    struct pool *pool = pool_new();
    account(pool, "p", true, 100, 0);
    account(pool, "loner", false, 100, 10000000000);
    pool_ask(pool, "loner", 1, 0)->project = "";
    pool_ask(pool, "x", 1, 0)->project = "p";
    pool_ask(pool, "x", 1, 0)->project = "p";
    cr_expect_str_eq(queue(pool), "1 2 0");
    pool_end(pool);
}

Test(pool_order, what_is_held_counts)
{
    struct pool *pool = pool_new();
    pool_server(pool, 3, 80 * GIB);
    pool_lease(pool, 0, 2, 0, RG_POOL_UNKNOWN)->user = "holder";
    pool_lease(pool, 2, 1, 0, RG_POOL_UNKNOWN)->user = "other";
    pool_ask(pool, "holder", 1, 0);
    pool_ask(pool, "other", 1, 0);
    cr_expect_str_eq(queue(pool), "1 0");
    pool->leases[0].suspended = true; /* has nothing any more: but then it would be free, so fill it again */
    pool_lease(pool, 0, 2, 0, RG_POOL_UNKNOWN)->user = "third";
    cr_expect_str_eq(queue(pool), "0 1");
    pool_end(pool);
}

Test(pool_order, parts_of_a_gpu_count_in_part)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 1, 70 * GIB, RG_POOL_UNKNOWN)->user = "most";
    pool_lease(pool, 1, 1, 79 * GIB, RG_POOL_UNKNOWN)->user = "all";
    pool_ask(pool, "all", 1, 0);
    pool_ask(pool, "most", 1, 0);
    cr_expect_str_eq(queue(pool), "1 0");
    pool_end(pool);
}

Test(pool_order, the_patient_come_by_arrival)
{
    struct pool *pool = pool_new();
    account(pool, "greedy", false, 100, 1ull << 50);
    pool_ask(pool, "greedy", 1, 0)->submitted = NOW - 25 * HOUR;
    pool_ask(pool, "modest", 1, 0)->submitted = NOW - 24 * HOUR - 1;
    pool_ask(pool, "modest", 1, 0)->submitted = NOW - 23 * HOUR;
    pool_ask(pool, "new", 1, 0)->priority = 1;
    cr_expect_str_eq(queue(pool), "3 0 1 2");
    pool->policy.patience = RG_POOL_UNKNOWN;
    cr_expect_str_eq(queue(pool), "3 1 2 0");
    pool_end(pool);
}

Test(pool_order, does_not_depend_on_how_the_snapshot_lists)
{
    struct pool *pool = pool_new();
    for (int i = 0; i < 3; i++)
        pool_ask(pool, "u", 1, 0)->submitted = NOW;
    const struct rg_pool_request first = pool->requests[0];
    pool->requests[0] = pool->requests[2];
    pool->requests[2] = first;
    cr_expect_str_eq(queue(pool), "2 1 0"); /* by id: r0, r1, r2 */
    pool_end(pool);
}

Test(pool_order, accounts_are_charged)
{
    struct rg_pool_account account = {.name = "u", .usage = 1000, .as_of = NOW};
    rg_pool_account_charge(&account, 500000, 4 * SECOND, NOW + HOUR, HOUR);
    cr_expect_eq(account.usage, 500 + 2000, "%lu", account.usage);
    cr_expect_eq(account.as_of, NOW + HOUR);
    rg_pool_account_charge(&account, 1000000, SECOND, NOW, HOUR); /* the clock was set back */
    cr_expect_eq(account.usage, 3500, "%lu", account.usage);
    cr_expect_eq(account.as_of, NOW + HOUR);
    cr_expect_eq(rg_pool_usage_decayed(1000, HOUR / 2, HOUR), 707);
    cr_expect_eq(rg_pool_usage_decayed(UINT64_MAX, 100 * HOUR, HOUR), 0);
}
