/* ResourceSlices of a pool's picture, and what has to be changed. */
#include "places/kubernetes/controller/slices.h"
#include "places/kubernetes/claim/claim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1ll << 30)

static json_t *gpu(int number, const char *lease)
{
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-0000%04d", number);
    json_t *one =
        json_pack("{s:i, s:s, s:s, s:I, s:s, s:[]}", "index", number, "uuid", uuid, "name", "NVIDIA H100",
                  "memory", (json_int_t)(80 * GIB + 4096), "capability", "9.0.0", "granted");
    if (lease)
        json_array_append_new(json_object_get(one, "granted"), json_pack("{s:s}", "lease", lease));
    return one;
}

/* A pool of one server with GPUs 0 to n - 1. */
static json_t *picture_of(int n)
{
    json_t *gpus = json_array();
    for (int i = n; i-- > 0;)
        json_array_append_new(gpus, gpu(i, NULL));
    return json_pack("{s:s, s:[{s:s, s:s, s:s, s:s, s:b, s:b, s:{s:s, s:s}, s:o}]}", "pool", "lab", "servers",
                     "address", "h:7600", "host", "h", "cuda", "13.0", "driver", "580.65.06", "rdma", 1,
                     "draining", 0, "labels", "room", "north", "no-identifier", "x", "gpus", gpus);
}

static json_t *server_of(json_t *picture)
{
    return json_array_get(json_object_get(picture, "servers"), 0);
}

static json_t *specs_of(json_t *picture, const char *claimed)
{
    json_t *leases = json_object();
    if (claimed)
        json_object_set_new(leases, claimed, json_true());
    json_t *specs = rg_kube_slices_make(picture, "lab", leases, NULL);
    json_decref(leases);
    json_decref(picture);
    return specs;
}

static size_t devices_in(const json_t *specs)
{
    const json_t *spec;
    size_t i, n = 0;
    json_array_foreach(specs, i, spec) n += json_array_size(json_object_get(spec, "devices"));
    return n;
}

/* What is in the cluster after the changes, which are freed. */
static json_t *apply(const json_t *existing, struct rg_kube_slice_change *changes, size_t n)
{
    json_t *out = json_array(), *slice;
    size_t i;
    json_array_foreach(existing, i, slice)
    {
        bool stays = true;
        for (size_t j = 0; j < n; j++)
            stays &=
                strcmp(changes[j].name, rg_json_get_text(json_object_get(slice, "metadata"), "name")) != 0;
        if (stays)
            json_array_append(out, slice);
    }
    for (i = 0; i < n; i++)
        if (changes[i].body)
            json_array_append(out, changes[i].body);
    rg_kube_slices_free(changes, n);
    return out;
}

Test(kube_slices, a_gpu_is_a_device)
{
    json_t *specs = specs_of(picture_of(1), NULL);
    json_t *wanted = json_loads(
        "[{\"driver\":\"gpu.remote-gpu.io\",\"pool\":{\"name\":\"lab\"},\"allNodes\":true,\"devices\":[{"
        "\"name\":\"gpu-00000000\",\"capacity\":{\"memory\":{\"value\":\"80Gi\"}},\"attributes\":{"
        "\"model\":{\"string\":\"NVIDIA H100\"},\"uuid\":{\"string\":\"GPU-00000000\"},"
        "\"server\":{\"string\":\"h\"},\"cudaComputeCapability\":{\"version\":\"9.0.0\"},"
        "\"cudaDriverVersion\":{\"version\":\"13.0.0\"},\"driverVersion\":{\"version\":\"580.65.6\"},"
        "\"rdma\":{\"bool\":true},\"label.remote-gpu.io/room\":{\"string\":\"north\"}}}]}]",
        0, NULL);
    cr_assert(wanted);
    cr_expect(json_equal(specs, wanted), "%s", json_dumps(specs, JSON_INDENT(1)));
    json_decref(wanted);
    json_decref(specs);
}

Test(kube_slices, who_has_it_decides_whether_it_is_published)
{
    json_t *picture = picture_of(2);
    json_array_append_new(json_object_get(server_of(picture), "gpus"), gpu(7, "aa"));
    json_array_append_new(json_object_get(server_of(picture), "gpus"), gpu(8, "bb"));
    json_array_append_new(json_object_get(server_of(picture), "gpus"), gpu(9, ""));
    json_t *specs = specs_of(picture, "aa");
    cr_expect_eq(devices_in(specs), 4,
                 "the claim's stays, somebody else's goes, and what is about to be free stays");
    json_decref(specs);
    picture = picture_of(2);
    json_object_set_new(server_of(picture), "draining", json_true());
    specs = specs_of(picture, NULL);
    cr_expect_eq(devices_in(specs), 0);
    cr_expect_eq(json_array_size(specs), 1, "an empty pool is a slice without devices");
    json_decref(specs);
}

Test(kube_slices, no_text_or_number_is_more_than_the_api_server_takes)
{
    json_t *picture = picture_of(1);
    json_t *one = json_array_get(json_object_get(server_of(picture), "gpus"), 0);
    char longer[200];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + 63, "\xc3\xa4", 2); /* a character across the limit */
    longer[sizeof longer - 1] = '\0';
    json_object_set_new(one, "name", json_string(longer));
    json_object_set_new(one, "memory", json_integer(81559ll << 20));
    json_object_set_new(server_of(picture), "driver", json_string("none"));
    for (int i = 0; i < 60; i++) {
        char label[16];
        snprintf(label, sizeof label, "l%d", i);
        json_object_set_new(json_object_get(server_of(picture), "labels"), label, json_string("x"));
    }
    json_t *specs = specs_of(picture, NULL);
    const json_t *device = json_array_get(json_object_get(json_array_get(specs, 0), "devices"), 0);
    const json_t *attributes = json_object_get(device, "attributes");
    cr_expect_eq(strlen(rg_json_get_text(json_object_get(attributes, "model"), "string")), 63);
    cr_expect_str_eq(
        rg_json_get_text(json_object_get(json_object_get(device, "capacity"), "memory"), "value"), "81559Mi");
    cr_expect_null(json_object_get(attributes, "driverVersion"));
    cr_expect_leq(json_object_size(attributes), 31);
    json_decref(specs);
}

Test(kube_slices, changes_lead_to_what_is_wanted_and_then_there_are_none)
{
    struct rg_kube_slice_change *changes;
    json_t *none = json_array(), *specs = specs_of(picture_of(200), NULL);
    cr_expect_eq(json_array_size(specs), 2, "128 in one");
    size_t n = rg_kube_slices_compare(none, specs, "lab", &changes);
    cr_assert_eq(n, 2);
    cr_expect_str_eq(changes[0].method, "POST");
    json_t *there = apply(none, changes, n);
    cr_expect_eq(rg_kube_slices_compare(there, specs, "lab", &changes), 0);
    cr_expect_null(changes);
    json_t *fewer = specs_of(picture_of(3), NULL);
    n = rg_kube_slices_compare(there, fewer, "lab", &changes);
    cr_assert_eq(n, 2);
    cr_expect_str_eq(changes[0].method, "PUT");
    cr_expect_str_eq(changes[1].method, "DELETE");
    const json_t *pool = json_object_get(json_object_get(changes[0].body, "spec"), "pool");
    cr_expect_eq(json_integer_value(json_object_get(pool, "generation")), 2);
    cr_expect_eq(json_integer_value(json_object_get(pool, "resourceSliceCount")), 1);
    json_t *after = apply(there, changes, n);
    cr_expect_eq(rg_kube_slices_compare(after, fewer, "lab", &changes), 0);
    json_decref(after);
    json_decref(there);
    json_decref(none);
    json_decref(fewer);
    json_decref(specs);
}

Test(kube_slices, what_the_api_server_adds_is_no_difference_and_what_others_change_is)
{
    struct rg_kube_slice_change *changes;
    json_t *none = json_array(), *specs = specs_of(picture_of(1), NULL);
    const size_t made = rg_kube_slices_compare(none, specs, "lab", &changes);
    json_t *there = apply(none, changes, made);
    json_t *spec = json_object_get(json_array_get(there, 0), "spec");
    json_object_set_new(spec, "addedByDefault", json_true());
    cr_expect_eq(rg_kube_slices_compare(there, specs, "lab", &changes), 0);
    json_array_clear(json_object_get(spec, "devices"));
    const size_t n = rg_kube_slices_compare(there, specs, "lab", &changes);
    cr_expect_eq(n, 1);
    rg_kube_slices_free(changes, n);
    json_decref(there);
    json_decref(none);
    json_decref(specs);
}

Test(kube_slices, a_change_of_who_may_reach_them_is_a_new_slice)
{
    struct rg_kube_slice_change *changes;
    json_t *none = json_array(), *specs = specs_of(picture_of(1), NULL), *leases = json_object(),
           *nodes = json_pack("{s:[]}", "nodeSelectorTerms"), *picture = picture_of(1);
    const size_t made = rg_kube_slices_compare(none, specs, "lab", &changes);
    json_t *there = apply(none, changes, made);
    json_t *others = rg_kube_slices_make(picture, "lab", leases, nodes);
    const size_t n = rg_kube_slices_compare(there, others, "lab", &changes);
    cr_assert_eq(n, 1);
    cr_expect_str_eq(changes[0].method, "DELETE");
    rg_kube_slices_free(changes, n);
    json_decref(others);
    json_decref(there);
    json_decref(picture);
    json_decref(nodes);
    json_decref(leases);
    json_decref(specs);
    json_decref(none);
}

Test(kube_slices, pool_names_become_dns_labels)
{
    char name[64];
    rg_kube_slices_pool_name("Lab_3.north", name, sizeof name);
    cr_expect_str_eq(name, "lab-3-north");
    rg_kube_slices_pool_name("__", name, sizeof name);
    cr_expect_str_eq(name, "pool");
    rg_kube_slices_pool_name("-a-", name, sizeof name);
    cr_expect_str_eq(name, "a");
}
