/* place.c - where requests go: all of their GPUs or none, close together, near the asker, packed or spread. */
#include "tests/pool/schedule/pool.h"

#include <criterion/criterion.h>
#include <string.h>

static void groups(struct pool *pool, const int32_t *nvlink, const int32_t *pcie, const int32_t *numa,
                   uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        pool_device(pool, i)->nvlink_group = nvlink ? nvlink[i] : -1;
        pool_device(pool, i)->pcie_group = pcie ? pcie[i] : -1;
        pool_device(pool, i)->numa_node = numa ? numa[i] : -1;
    }
}

Test(pool_place, all_or_nothing)
{
    struct pool *pool = pool_new();
    pool_server(pool, 3, 80 * GIB);
    pool_server(pool, 3, 80 * GIB);
    pool_server(pool, 4, 80 * GIB);
    pool_lease(pool, 6, 1, 0, RG_POOL_UNKNOWN);
    pool_ask(pool, "a", 4, 0);
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 0);
    cr_expect_eq(pool_waits(pool, 0)->have, 3);
    pool->requests[0].several_servers = true;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 1);
    cr_expect_eq(pool_grant(pool, 0)->n, 4);
    cr_expect_eq(pool_grant(pool, 0)->closeness, RG_POOL_SEVERAL_SERVERS);
    pool_end(pool);
}

Test(pool_place, few_servers_and_no_more_than_allowed)
{
    struct pool *pool = pool_new();
    for (int i = 0; i < 4; i++)
        pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 4, 80 * GIB);
    pool_ask(pool, "a", 6, 0)->several_servers = true;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 1);
    cr_expect_eq(pool_part(pool, 0, 0), 0, "the server with 4, and one more");
    cr_expect_eq(pool_part(pool, 0, 2), 8);
    pool->policy.servers_max = 2;
    pool->requests[0].n = 7;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 0);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_NEVER_TOO_MANY);
    pool_end(pool);
}

Test(pool_place, the_last_server_is_the_one_that_fits)
{
    struct pool *pool = pool_new();
    pool_server(pool, 4, 80 * GIB);
    pool_server(pool, 3, 80 * GIB);
    pool_server(pool, 1, 80 * GIB);
    pool_ask(pool, "a", 5, 0)->several_servers = true;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 4), 7);
    pool_end(pool);
}

Test(pool_place, packing_fills_and_spreading_does_not)
{
    struct pool *pool = pool_new();
    pool_server(pool, 4, 80 * GIB);
    pool_server(pool, 4, 80 * GIB);
    pool_lease(pool, 4, 2, 0, RG_POOL_UNKNOWN);
    pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 6);
    pool->policy.strategy = RG_POOL_SPREAD;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 0);
    pool->requests[0].strategy = RG_POOL_PACK; /* the request's own wish */
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 6);
    pool_end(pool);
}

Test(pool_place, parts_share_a_gpu)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 3, 1, 30 * GIB, RG_POOL_UNKNOWN);
    for (int i = 0; i < 3; i++)
        pool_ask(pool, "a", 1, 25 * GIB);
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 3);
    cr_expect_eq(pool_part(pool, 0, 0), 3);
    cr_expect_eq(pool_part(pool, 1, 0), 3);
    cr_expect_neq(pool_part(pool, 2, 0), 3, "80 GiB are taken");
    cr_expect_eq(pool->outcome.parts[pool_grant(pool, 0)->first].memory, 25 * GIB);
    pool->policy.strategy = RG_POOL_SPREAD;
    pool_decide(pool);
    cr_expect_neq(pool_part(pool, 0, 0), 3);
    cr_expect_neq(pool_part(pool, 0, 0), pool_part(pool, 1, 0));
    pool_end(pool);
}

Test(pool_place, parts_of_one_request_are_on_different_gpus)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_ask(pool, "a", 2, 10 * GIB);
    pool_ask(pool, "a", 3, 10 * GIB);
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 1);
    cr_expect_neq(pool_part(pool, 0, 0), pool_part(pool, 0, 1));
    cr_expect_eq(pool_waits(pool, 1)->reason, RG_POOL_NEVER_TOO_MANY);
    pool_end(pool);
}

Test(pool_place, fractions_are_of_the_gpu_that_is_chosen)
{
    struct pool *pool = pool_new();
    pool_server(pool, 1, 80 * GIB);
    pool_server(pool, 1, 16 * GIB);
    pool_lease(pool, 1, 1, 9 * GIB, RG_POOL_UNKNOWN);
    pool_ask(pool, "a", 1, 0)->fraction = 500000;
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 1);
    cr_expect_eq(pool_part(pool, 0, 0), 0, "half of the small one is not free");
    cr_expect_eq(pool->outcome.parts[0].memory, 40 * GIB);
    pool_end(pool);
}

Test(pool_place, whole_gpus_are_shared_with_nobody)
{
    struct pool *pool = pool_new();
    pool_server(pool, 3, 80 * GIB);
    pool_lease(pool, 0, 1, 1, RG_POOL_UNKNOWN);
    pool_device(pool, 1)->memory_outside = 1;
    pool_ask(pool, "a", 1, 0);
    pool_ask(pool, "a", 1, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 2);
    cr_expect_not_null(pool_waits(pool, 1));
    pool_end(pool);
}

Test(pool_place, small_gpus_first_for_those_who_do_not_care)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 4, 16 * GIB);
    pool_ask(pool, "a", 1, 0);
    pool_decide(pool);
    cr_expect_geq(pool_part(pool, 0, 0), 2);
    pool_end(pool);
}

Test(pool_place, nvlink_before_pcie_before_numa)
{
    struct pool *pool = pool_new();
    pool_server(pool, 6, 80 * GIB);
    groups(pool, (const int32_t[]){-1, -1, -1, -1, 5, 5}, (const int32_t[]){-1, -1, 2, 2, -1, -1},
           (const int32_t[]){0, 0, 1, 2, 3, 4}, 6);
    for (int i = 0; i < 3; i++)
        pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_assert_eq(pool->outcome.n_grants, 3);
    static const enum rg_pool_closeness close[] = {RG_POOL_NVLINK, RG_POOL_PCIE, RG_POOL_NUMA};
    static const uint32_t first[] = {4, 2, 0};
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect_eq(pool_grant(pool, i)->closeness, close[i]);
        cr_expect_eq(pool_part(pool, i, 0), first[i]);
    }
    pool_end(pool);
}

Test(pool_place, a_single_gpu_does_not_break_up_a_group)
{
    struct pool *pool = pool_new();
    pool_server(pool, 7, 80 * GIB);
    groups(pool, (const int32_t[]){1, 1, 1, 1, 2, 2, -1}, NULL, NULL, 7);
    pool_ask(pool, "a", 1, 0);
    pool_ask(pool, "a", 1, 0);
    pool_ask(pool, "a", 4, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 6);
    cr_expect_eq(pool_part(pool, 1, 0), 4);
    cr_expect_eq(pool_grant(pool, 2)->closeness, RG_POOL_NVLINK);
    pool_end(pool);
}

Test(pool_place, within_a_group_the_nearer_ones)
{
    struct pool *pool = pool_new();
    pool_server(pool, 4, 80 * GIB);
    groups(pool, (const int32_t[]){1, 1, 1, 1}, NULL, (const int32_t[]){0, 1, 0, 1}, 4);
    pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 0);
    cr_expect_eq(pool_part(pool, 0, 1), 2);
    pool_end(pool);
}

Test(pool_place, close_gpus_before_a_near_server)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 2, 80 * GIB);
    groups(pool, (const int32_t[]){1, 1}, NULL, NULL, 2);
    const struct rg_pool_link links[] = {{20000, 0}, {200000, 0}};
    pool_ask(pool, "a", 2, 0)->links = links;
    pool_ask(pool, "a", 1, 0)->links = links;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 2);
    cr_expect_eq(pool_part(pool, 1, 0), 0);
    pool_end(pool);
}

Test(pool_place, latency_counts_where_it_is_another_order)
{
    struct pool *pool = pool_new();
    for (int i = 0; i < 4; i++)
        pool_server(pool, 2, 80 * GIB);
    pool_lease(pool, 4, 1, 0, RG_POOL_UNKNOWN);
    struct rg_pool_link links[] = {{RG_POOL_UNKNOWN, 0}, {40000, 0}, {45000, 0}, {300000, 0}};
    pool_ask(pool, "a", 1, 0)->links = links;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 5, "5 us more, but it is begun");
    links[2].latency = 90000;
    pool_decide(pool);
    cr_expect_eq(pool->devices[pool_part(pool, 0, 0)].server, 1);
    links[1].latency = RG_POOL_UNKNOWN;
    links[2].latency = RG_POOL_UNKNOWN;
    pool_decide(pool);
    cr_expect_eq(pool->devices[pool_part(pool, 0, 0)].server, 3, "a known one before unknown ones");
    pool_end(pool);
}

Test(pool_place, bandwidth_where_all_else_is_alike)
{
    struct pool *pool = pool_new();
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 2, 80 * GIB);
    const struct rg_pool_link links[] = {{40000, 1000}, {40000, 2000}};
    pool_ask(pool, "a", 1, 0)->links = links;
    pool_decide(pool);
    cr_expect_eq(pool->devices[pool_part(pool, 0, 0)].server, 1);
    pool_end(pool);
}

Test(pool_place, taints_filters_and_drained_servers_are_kept)
{
    struct pool *pool = pool_new();
    static const struct rg_pool_label taint[] = {{"team", "red"}}, any[] = {{"team", NULL}},
                                      blue[] = {{"team", "blue"}};
    pool_server(pool, 1, 80 * GIB)->draining = true;
    struct rg_pool_server *tainted = pool_server(pool, 1, 80 * GIB);
    tainted->taints = taint;
    tainted->n_taints = 1;
    pool_server(pool, 1, 80 * GIB)->has_rdma = true;
    pool_server(pool, 1, 40 * GIB);
    struct rg_pool_filter filters[2];
    cr_assert_eq(rg_pool_filters_parse((const char *const[]){"device.memory>=60G", "server.has-rdma=false"},
                                       2, filters, NULL, 0),
                 RG_OK);
    struct rg_pool_request *request = pool_ask(pool, "a", 1, 0);
    request->filters = filters;
    request->n_filters = 2;
    request->tolerations = any;
    request->n_tolerations = 1;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    request->tolerations = taint;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    request->tolerations = blue;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_DRAINED);
    pool_end(pool);
}

Test(pool_place, gpus_that_are_named_and_no_others)
{
    struct pool *pool = pool_new();
    static const char *const names[] = {"GPU-0000000b", "0000000C"}, *const nowhere[] = {"GPU-0000000f"};
    static const char *const uuids[] = {"GPU-0000000a", "GPU-0000000b", "GPU-0000000c", "GPU-0000000d"};
    pool_server(pool, 2, 80 * GIB);
    pool_server(pool, 2, 80 * GIB);
    for (uint32_t i = 0; i < 4; i++)
        pool->devices[i].uuid = uuids[i];
    struct rg_pool_request *request = pool_ask(pool, "a", 2, 0), *other = pool_ask(pool, "b", 1, 0);
    request->devices = names;
    request->n_devices = 2;
    request->several_servers = true;
    other->devices = nowhere;
    other->n_devices = 1;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    cr_expect_eq(pool_part(pool, 0, 1), 2);
    cr_expect_eq(pool_waits(pool, 1)->reason, RG_POOL_NEVER_TOO_MANY);
    pool_lease(pool, 2, 1, 0, RG_POOL_UNKNOWN);
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_WAITS_FOR_GPUS);
    cr_expect(strstr(pool_say(pool, 0), "of those that it names"), "%s", pool_say(pool, 0));
    pool_end(pool);
}

Test(pool_place, instances_of_divided_gpus_go_one_to_a_request)
{
    struct pool *pool = pool_new();
    static const char *const uuids[] = {"MIG-0000000a", "GPU-0000000b", "MIG-0000000c", "GPU-0000000d"};
    pool_server(pool, 4, 80 * GIB);
    for (uint32_t i = 0; i < 4; i++)
        pool->devices[i].uuid = uuids[i];
    struct rg_pool_request *request = pool_ask(pool, "a", 2, 0);
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 1);
    cr_expect_eq(pool_part(pool, 0, 1), 3);
    request->n = 3;
    pool_decide(pool);
    cr_expect_eq(pool_waits(pool, 0)->reason, RG_POOL_NEVER_TOO_MANY);
    static const char *const named[] = {"mig-0000000c"};
    request->n = 1;
    request->devices = named;
    request->n_devices = 1;
    pool_decide(pool);
    cr_expect_eq(pool_part(pool, 0, 0), 2);
    pool_end(pool);
}

Test(pool_place, a_snapshot_that_contradicts_itself_is_refused)
{
    struct pool *pool = pool_new();
    char why[256] = "";
    pool_server(pool, 2, 80 * GIB);
    pool_ask(pool, "a", 1, 0);
#define REFUSED(said)                                                                                        \
    do {                                                                                                     \
        cr_expect_eq(rg_pool_schedule(&pool->snapshot, &pool->policy, NOW, &pool->outcome, why, sizeof why), \
                     RG_ERR_INVALID);                                                                        \
        cr_expect(strstr(why, said), "%s", why);                                                             \
        cr_expect_null(pool->outcome.grants);                                                                \
    } while (0)
    pool->devices[0].server = 1;
    REFUSED("device 0 is of server 1");
    pool_server(pool, 1, 80 * GIB);
    REFUSED("not in the order");
    pool->devices[0].server = 0;
    pool->devices[1].memory = 0;
    REFUSED("no memory");
    pool->devices[1].memory = GIB;
    pool_lease(pool, 1, 1, 2 * GIB, 0);
    REFUSED("more memory");
    pool->parts[0][0].device = 77;
    REFUSED("device 77");
    pool->snapshot.n_leases = 0;
    pool->requests[0].n = 0;
    REFUSED("no GPU");
    pool->requests[0].n = 1;
    pool->requests[0].fraction = 1000001;
    REFUSED("more than a whole GPU");
    pool->requests[0].fraction = 0;
    pool->policy.reservations = 0;
    REFUSED("at least one reservation");
    pool->policy.reservations = 1;
    pool_decide(pool);
    pool_end(pool);
}
