/* mirror.c - the copy of a pool: order, what is not understood, what goes with a new look, and values that come back as they went. */
#include "pool/state/mirror.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A "00000000000000a1"
#define B "00000000000000b2"
#define C "00000000000000c3"

static struct rg_pool_mirror mirror;

static void put(const char *key, const char *value, int64_t created)
{
    rg_pool_mirror_put(&mirror, key, value, created, created + 100);
}

static void end(void)
{
    rg_pool_mirror_fini(&mirror);
}

TestSuite(pool_mirror, .fini = end);

Test(pool_mirror, members_and_gpus_in_any_order)
{
    put("servers/" A "/gpus/3",
        "{\"memory\":64,\"uuid\":\"GPU-3\",\"granted\":[{\"lease\":\"" C "\",\"memory\":16}]}", 1);
    cr_assert_null(rg_pool_mirror_member(&mirror, A), "nothing is known of it but a GPU");
    put("servers/" A "/gpus/0", "{\"memory\":32,\"uuid\":\"GPU-0\"}", 2);
    put("servers/" A, "{\"address\":\"gpu1:7600\",\"rdma\":true,\"draining\":true,\"etcd_lease\":\"77\"}", 3);
    rg_pool_mirror_whole(&mirror, 9);
    const struct rg_pool_member *member = rg_pool_mirror_member(&mirror, A);
    cr_assert_not_null(member);
    cr_assert_str_eq(member->address, "gpu1:7600");
    cr_assert_null(member->cuda);
    cr_assert(member->rdma && member->draining);
    cr_assert_eq(member->etcd_lease, 77);
    cr_assert_eq(member->n_gpus, 2);
    cr_assert_eq(member->gpus[0]->index, 0);
    cr_assert_eq(member->gpus[1]->index, 3);
    cr_assert_eq(member->gpus[1]->changed, 101);
    cr_assert_eq(member->gpus[1]->n_shares, 1);
    cr_assert_eq(member->gpus[1]->shares[0].memory, 16);
    cr_assert_eq(member->gpus[0]->numa_node, -1);
    cr_assert_eq(mirror.revision, 9);
}

Test(pool_mirror, requests_stay_in_the_order_of_their_coming)
{
    put("requests/" B, "{\"gpus\":1}", 20);
    put("requests/" C, "{\"gpus\":1}", 30);
    put("requests/" A, "{\"gpus\":1}", 10);
    put("requests/" B, "{\"gpus\":2}", 20);
    cr_assert_eq(mirror.n_requests, 3);
    cr_assert_str_eq(mirror.requests[0]->id, A);
    cr_assert_str_eq(mirror.requests[1]->id, B);
    cr_assert_str_eq(mirror.requests[2]->id, C);
    cr_assert_eq(rg_json_get_number(mirror.requests[1]->value, "gpus", 0), 2);
}

/* As after a member has lost its etcd lease, and what was bound to it: those who were cut off meanwhile see no more than a new date. */
Test(pool_mirror, a_request_made_anew_comes_behind_those_that_came_meanwhile)
{
    put("requests/" A, "{\"gpus\":1}", 10);
    put("requests/" B, "{\"gpus\":1}", 20);
    put("requests/" C, "{\"gpus\":1}", 30);
    rg_pool_mirror_whole(&mirror, 130);
    rg_pool_mirror_reset(&mirror);
    put("requests/" A, "{\"gpus\":1}", 25);
    put("requests/" B, "{\"gpus\":1}", 40);
    put("requests/" C, "{\"gpus\":1}", 30);
    rg_pool_mirror_whole(&mirror, 140);
    cr_assert_eq(mirror.n_requests, 3);
    cr_assert_str_eq(mirror.requests[0]->id, A);
    cr_assert_str_eq(mirror.requests[1]->id, C);
    cr_assert_str_eq(mirror.requests[2]->id, B);
}

Test(pool_mirror, what_is_not_understood_is_not_there)
{
    static const char *const keys[] = {"",
                                       "servers/",
                                       "servers/x",
                                       "leases/00000000000000zz",
                                       "leases/" A "/more",
                                       "servers/" A "/gpus/x",
                                       "servers/" A "/gpus/100000",
                                       "others/" A};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        put(keys[i], "{}", 1);
    put("servers/" A, "no JSON", 1);
    put("leases/" A, "[]", 1);
    rg_pool_mirror_remove(&mirror, "leases/" B);
    rg_pool_mirror_whole(&mirror, 2);
    cr_assert_eq(mirror.n_members + mirror.n_requests + mirror.n_leases, 0);
}

Test(pool_mirror, what_is_written_over_by_what_is_not_understood_is_not_there)
{
    put("servers/" A, "{\"address\":\"gpu1:7600\"}", 1);
    put("servers/" A "/gpus/0", "{\"memory\":1}", 1);
    put("servers/" A "/gpus/1", "{\"memory\":1}", 1);
    put("requests/" B, "{}", 1);
    put("leases/" C, "{}", 1);
    rg_pool_mirror_whole(&mirror, 101);
    put("servers/" A "/gpus/1", "no JSON", 1);
    put("requests/" B, "", 1);
    put("leases/" C, "[]", 1);
    rg_pool_mirror_whole(&mirror, 102);
    cr_assert_eq(rg_pool_mirror_member(&mirror, A)->n_gpus, 1);
    cr_assert_null(rg_pool_mirror_request(&mirror, B));
    cr_assert_null(rg_pool_mirror_lease(&mirror, C));
    put("servers/" A, "7", 1);
    rg_pool_mirror_whole(&mirror, 103);
    cr_assert_null(rg_pool_mirror_member(&mirror, A));
    cr_assert_eq(mirror.members[0]->n_gpus, 1);
    put("leases/" C, "{}", 1);
    rg_pool_mirror_whole(&mirror, 104);
    cr_assert_not_null(rg_pool_mirror_lease(&mirror, C));
}

Test(pool_mirror, a_new_look_takes_away_what_is_not_told_again)
{
    put("leases/" A, "{}", 1);
    put("leases/" B, "{}", 1);
    put("servers/" C, "{}", 1);
    put("servers/" C "/gpus/0", "{\"memory\":1}", 1);
    put("servers/" C "/gpus/1", "{\"memory\":1}", 1);
    rg_pool_mirror_whole(&mirror, 2);
    rg_pool_mirror_reset(&mirror);
    put("leases/" B, "{}", 1);
    put("servers/" C, "{}", 1);
    put("servers/" C "/gpus/1", "{\"memory\":1}", 1);
    cr_assert_not_null(rg_pool_mirror_lease(&mirror, A), "until it is whole");
    rg_pool_mirror_whole(&mirror, 3);
    cr_assert_null(rg_pool_mirror_lease(&mirror, A));
    cr_assert_not_null(rg_pool_mirror_lease(&mirror, B));
    cr_assert_eq(rg_pool_mirror_member(&mirror, C)->n_gpus, 1);
    rg_pool_mirror_remove(&mirror, "servers/" C);
    rg_pool_mirror_whole(&mirror, 4);
    cr_assert_null(rg_pool_mirror_member(&mirror, C));
}

Test(pool_mirror, a_gpu_comes_back_as_it_went)
{
    struct rg_pool_gpu gpu = {
        .index = 5,
        .uuid = "GPU-5",
        .name = "Software GPU",
        .memory = 1ull << 40,
        .numa_node = 1,
        .nvlink_group = -1,
        .pcie_group = 2,
        .n_shares = 2,
        .shares = {{.lease = A, .memory = 7, .refused = RG_POOL_SHARE_SHARED, .since = 8},
                   {.lease = B, .memory = 1ull << 39, .state = RG_POOL_SHARE_SUSPENDED, .since = 9}}};
    json_t *value = rg_pool_gpu_json(&gpu);
    char *text = json_dumps(value, JSON_COMPACT);
    put("servers/" C "/gpus/5", text, 1);
    put("servers/" C, "{}", 1);
    const struct rg_pool_gpu *back = rg_pool_mirror_gpu(rg_pool_mirror_member(&mirror, C), 5);
    cr_assert_str_eq(back->uuid, gpu.uuid);
    cr_assert_str_eq(back->name, gpu.name);
    cr_assert_eq(back->memory, gpu.memory);
    cr_assert_eq(back->numa_node, 1);
    cr_assert_eq(back->nvlink_group, -1);
    cr_assert_eq(back->pcie_group, 2);
    cr_assert_eq(back->n_shares, 2);
    cr_assert_str_eq(back->shares[1].lease, B);
    cr_assert_eq(back->shares[1].memory, 1ull << 39);
    cr_assert_eq(back->shares[0].state, RG_POOL_SHARE_ACTIVE);
    cr_assert_eq(back->shares[0].refused, RG_POOL_SHARE_SHARED);
    cr_assert_eq(back->shares[0].since, 8);
    cr_assert_eq(back->shares[1].state, RG_POOL_SHARE_SUSPENDED);
    cr_assert_eq(back->shares[1].since, 9);
    cr_assert_eq(rg_pool_gpu_held(back), 7, "what is suspended holds nothing");
    free(text);
    json_decref(value);
}

Test(pool_mirror, a_server_whose_own_key_is_gone_says_nothing)
{
    put("servers/" A,
        "{\"address\":\"gpu1:7600\",\"host\":\"gpu1\",\"cuda\":\"13.0\",\"driver\":\"580\",\"agent\":\"" B
        "\"}",
        1);
    put("servers/" A "/gpus/0", "{\"memory\":32}", 2);
    rg_pool_mirror_whole(&mirror, 3);
    cr_assert_str_eq(mirror.members[0]->agent, B);
    rg_pool_mirror_remove(&mirror, "servers/" A);
    rg_pool_mirror_whole(&mirror, 4);
    cr_assert_eq(mirror.n_members, 1, "its GPU is still there");
    const struct rg_pool_member *member = mirror.members[0];
    cr_assert(!member->address && !member->host && !member->cuda && !member->driver && !member->agent);
    cr_assert_null(rg_pool_mirror_member(&mirror, A));
}

Test(pool_mirror, entries_are_found_by_their_ids_whatever_comes_and_goes)
{
    enum { N = 3000 };
    char key[40], value[40];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            snprintf(key, sizeof key, "leases/%016x", i * 7 + 1);
            snprintf(value, sizeof value, "{\"n\":%d}", i + round);
            put(key, value, i);
        }
        for (int i = 0; i < N; i += 3) {
            snprintf(key, sizeof key, "leases/%016x", i * 7 + 1);
            rg_pool_mirror_remove(&mirror, key);
        }
        rg_pool_mirror_whole(&mirror, round + 1);
        cr_assert_eq(mirror.n_leases, N - N / 3);
        for (int i = 0; i < N; i++) {
            snprintf(key, sizeof key, "%016x", i * 7 + 1);
            const struct rg_pool_entry *found = rg_pool_mirror_lease(&mirror, key);
            cr_assert_eq(found != NULL, i % 3 != 0);
            cr_assert(!found || rg_json_get_number(found->value, "n", 0) == (uint64_t)(i + round));
        }
    }
}

Test(pool_mirror, what_was_measured)
{
    put("links/" A, "{\"user\":\"u\",\"machine\":\"m\",\"servers\":{\"gpu1:7600\":[45000,1000000]}}", 1);
    put("usage/" A, "{\"users\":{}}", 1);
    rg_pool_mirror_whole(&mirror, 2);
    cr_assert_not_null(rg_pool_mirror_links(&mirror, A));
    cr_assert_not_null(rg_pool_mirror_usage(&mirror, A));
    cr_assert_null(rg_pool_mirror_lease(&mirror, A));
    rg_pool_mirror_remove(&mirror, "links/" A);
    rg_pool_mirror_whole(&mirror, 3);
    cr_assert_null(rg_pool_mirror_links(&mirror, A));
    cr_assert_not_null(rg_pool_mirror_usage(&mirror, A));
}

Test(pool_mirror, ids)
{
    char id[RG_POOL_ID];
    cr_assert(rg_pool_make_id(id));
    cr_assert(rg_pool_is_id(id));
    cr_assert(!rg_pool_is_id("") && !rg_pool_is_id("00000000000000a") && !rg_pool_is_id(A "0") &&
              !rg_pool_is_id("0000000000000/a1"));
}
