/* explain.c - the sentences that users read while they wait, word for word. */
#include "tests/pool/schedule/pool.h"

#include <criterion/criterion.h>
#include <string.h>

Test(pool_explain, what_others_have)
{
    struct pool *pool = pool_new();
    pool_server(pool, 4, 80 * GIB);
    pool_lease(pool, 0, 3, 0, NOW + 12 * MINUTE);
    pool_ask(pool, "a", 4, 20 * GIB);
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "waits for 4 GPUs with 20 GiB each free on one server: no server has more than 1 "
                     "now, expected on h0 in about 12 min");
    pool->requests[0].several_servers = true;
    pool->requests[0].memory = 0;
    pool->leases[0].ends = RG_POOL_UNKNOWN;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0), "waits for 4 whole GPUs on few servers: 1 is free now");
    pool_lease(pool, 3, 1, 0, RG_POOL_UNKNOWN);
    pool->requests[0].n = 1;
    pool->requests[0].fraction = 125000;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0), "waits for 1 GPU with 12.5% of the memory free: it is not free now");
    pool_end(pool);
}

Test(pool_explain, what_is_kept_for_others)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 1, 0, NOW + 3 * HOUR);
    pool_ask(pool, "ann", 2, 0);
    pool_ask(pool, "ben", 1, 0);
    pool_decide(pool);
    cr_expect_str_eq(
        pool_say(pool, 1),
        "waits for its turn: what is free is kept for a request of ann for 2 GPUs, which comes first");
    pool_end(pool);
}

Test(pool_explain, suspension_and_draining)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    struct rg_pool_server *server = pool_server(pool, 1, 80 * GIB);
    pool_lease(pool, 0, 1, 0, RG_POOL_UNKNOWN)->suspendable = true;
    pool_ask(pool, "a", 1, 0)->priority = 1;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0), "waits until sessions of lower priority on h0 have been suspended");
    server->draining = true;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0), "waits for a server that drains: only such servers have 1 whole GPU");
    pool_end(pool);
}

Test(pool_explain, what_can_never_be)
{
    struct pool *pool = pool_new();
    pool_ask(pool, "a", 9, 30 * GIB);
    pool_decide(pool);
    cr_expect_str_eq(
        pool_say(pool, 0),
        "never fits: the pool has no GPU; start remote-gpud on a GPU machine with this pool's name");
    pool_server(pool, 8, 80 * GIB);
    pool_server(pool, 4, 16 * GIB);
    pool_lease(pool, 0, 8, 0, RG_POOL_UNKNOWN); /* makes no difference */
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "never fits: it asks for 9 GPUs with 30 GiB each free on one server, and there are at "
                     "most 8; ask for fewer, or let it lie on several servers (--spread)");
    pool->requests[0].several_servers = true;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "never fits: it asks for 9 GPUs with 30 GiB each free on few servers, and there are "
                     "at most 8; ask for fewer");
    pool->requests[0].memory = 81 * GIB;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "never fits: it asks for 81 GiB of a GPU, and the largest that matches has 80 GiB; "
                     "ask for less memory, or more GPUs");
    pool_end(pool);
}

Test(pool_explain, which_filter_excludes_what)
{
    struct pool *pool = pool_new();
    pool_server(pool, 8, 80 * GIB);
    pool_server(pool, 4, 16 * GIB)->has_rdma = true;
    struct rg_pool_filter filters[3];
    cr_assert_eq(rg_pool_filters_parse(
                     (const char *const[]){"device.memory>=40G", "device.index<4", "server.has-rdma=true"}, 3,
                     filters, NULL, 0),
                 RG_OK);
    struct rg_pool_request *request = pool_ask(pool, "a", 1, 0);
    request->filters = filters;
    request->n_filters = 3;
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "never fits: no GPU of the pool matches 'server.has-rdma=true' of the 4 that the "
                     "filters before it leave; remove or widen that filter");
    pool_end(pool);
}

Test(pool_explain, taints)
{
    struct pool *pool = pool_new();
    static const struct rg_pool_label taint[] = {{"team", "red"}};
    struct rg_pool_server *server = pool_server(pool, 1, 80 * GIB);
    server->taints = taint;
    server->n_taints = 1;
    pool_ask(pool, "a", 1, 0);
    pool_decide(pool);
    cr_expect_str_eq(pool_say(pool, 0),
                     "never fits: all servers that match keep out whoever does not tolerate their taints; "
                     "--tolerate says that you do, and remote-gpu list shows them");
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_NEVER_TAINTS);
    pool_end(pool);
}

Test(pool_explain, before_it_is_queued)
{
    struct pool *pool = pool_new();
    char why[256] = "";
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 0, 2, 0, RG_POOL_UNKNOWN);
    struct rg_pool_request *request = pool_ask(pool, "a", 2, 0);
    cr_expect_eq(rg_pool_admissible(&pool->snapshot, &pool->policy, request, why, sizeof why), RG_OK);
    request->n = 3;
    cr_expect_eq(rg_pool_admissible(&pool->snapshot, &pool->policy, request, why, sizeof why),
                 RG_ERR_UNSUPPORTED);
    cr_expect(strstr(why, "at most 2"), "%s", why);
    pool_end(pool);
}

Test(pool_explain, is_cut_where_there_is_no_room)
{
    struct pool *pool = pool_new();
    char text[12] = "xxxxxxxxxxx";
    pool_ask(pool, "a", 1, 0);
    pool_decide(pool);
    rg_pool_explain(&pool->snapshot, &pool->outcome, 0, NOW, text, sizeof text);
    cr_expect_str_eq(text, "never fits:");
    rg_pool_explain(&pool->snapshot, &pool->outcome, 0, NOW, text, 0);
    cr_expect_str_eq(text, "never fits:");
    pool_end(pool);
}
