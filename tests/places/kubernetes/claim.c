/* Reading ResourceClaims; the lease's id; names of devices. */
#include "places/kubernetes/claim/claim.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OTHER        "{'driver':'other.example','pool':'p','device':'d','request':'r'}"
#define OURS(device) "{'driver':'" RG_KUBE_DRIVER "','pool':'lab','device':'" device "','request':'gpu'}"

static json_t *json_of(const char *format, const char *part)
{
    char text[4096];
    snprintf(text, sizeof text, format, part);
    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    json_t *json = json_loads(text, 0, NULL);
    cr_assert(json, "%s", text);
    return json;
}

static json_t *claim_with(const char *results)
{
    return json_of(
        "{'metadata':{'uid':'u1','namespace':'a','name':'c','resourceVersion':'7','finalizers':['x']},"
        "'status':{'allocation':{'devices':{'results':[%s]}},'reservedFor':[{'uid':'pod'}]}}",
        results);
}

/* Of the claim's devices: the annotation, and the lease's id. */
static char *devices_of(const json_t *json)
{
    static struct rg_kube_claim claim;
    cr_assert(rg_kube_claim_read(json, &claim));
    return rg_kube_claim_devices(&claim);
}

Test(kube_claim, reads_what_is_of_this_driver)
{
    static struct rg_kube_claim claim;
    json_t *json = claim_with(OTHER "," OURS("gpu-b") "," OURS("gpu-a"));
    cr_assert(rg_kube_claim_read(json, &claim));
    cr_expect_eq(claim.n_devices, 2);
    cr_expect_str_eq(claim.devices[0].name, "gpu-b");
    cr_expect(claim.in_use && !claim.deleting && !claim.has_finalizer && !claim.for_admin);
    cr_expect_str_eq(claim.version, "7");
    cr_expect_str_empty(claim.noted_devices);
    char *devices = rg_kube_claim_devices(&claim);
    cr_expect_str_eq(devices, "lab/gpu-a,lab/gpu-b", "in order");
    free(devices);
    json_decref(json);
}

Test(kube_claim, without_allocation_there_are_no_devices)
{
    json_t *json = claim_with(OTHER);
    char *devices = devices_of(json);
    cr_expect_str_empty(devices);
    free(devices);
    json_decref(json);
}

Test(kube_claim, what_is_no_claim_is_refused)
{
    static struct rg_kube_claim claim;
    json_t *json = json_of("{'metadata':{'name':'c','namespace':'a'%s}}", "");
    cr_expect(!rg_kube_claim_read(json, &claim), "it has no UID");
    json_decref(json);
    cr_expect(!rg_kube_claim_read(NULL, &claim));
    json = json_of("{'metadata':[1,2],'status':%s}", "'text'");
    cr_expect(!rg_kube_claim_read(json, &claim), "what has other types is as if it were not there");
    json_decref(json);
}

Test(kube_claim, too_many_devices_are_refused)
{
    static struct rg_kube_claim claim;
    json_t *json = claim_with(OURS("gpu-a"));
    json_t *results = json_object_get(
        json_object_get(json_object_get(json_object_get(json, "status"), "allocation"), "devices"),
        "results");
    while (json_array_size(results) <= RG_POOL_GPUS_MAX)
        json_array_append(results, json_array_get(results, 0));
    cr_expect(!rg_kube_claim_read(json, &claim));
    json_decref(json);
}

Test(kube_claim, a_lease_is_of_one_claim_and_its_devices)
{
    char id[RG_KUBE_LEASE_ID], again[RG_KUBE_LEASE_ID], other[RG_KUBE_LEASE_ID];
    json_t *one = claim_with(OURS("gpu-a") "," OURS("gpu-b")),
           *turned = claim_with(OURS("gpu-b") "," OURS("gpu-a"));
    char *devices = devices_of(one), *same = devices_of(turned);
    rg_kube_lease_id("u1", devices, id);
    rg_kube_lease_id("u1", same, again);
    cr_expect_str_eq(id, again, "the order does not matter");
    cr_expect_eq(strspn(id, "0123456789abcdef"), 16);
    rg_kube_lease_id("u2", devices, other);
    cr_expect_str_neq(id, other, "another claim's is another");
    rg_kube_lease_id("u1", "lab/gpu-a", other);
    cr_expect_str_neq(id, other);
    rg_kube_lease_id("u1lab/gpu-a", "", again);
    cr_expect_str_neq(again, other, "where the UID ends counts");
    free(devices);
    free(same);
    json_decref(one);
    json_decref(turned);
}

Test(kube_claim, names_and_uuids_belong_together)
{
    char name[RG_KUBE_DEVICE_NAME], uuid[RG_KUBE_DEVICE_NAME];
    cr_assert(rg_kube_device_name("GPU-1B4e28ba-2fa1-11d2-883f-0016d3cca427", name));
    cr_expect_str_eq(name, "gpu-1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    cr_assert(rg_kube_device_uuid(name, uuid));
    cr_expect_str_eq(uuid, "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    cr_assert(rg_kube_device_name("MIG-1B4e28ba-2fa1-11d2-883f-0016d3cca427", name));
    cr_expect_str_eq(name, "mig-1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    cr_assert(rg_kube_device_uuid(name, uuid));
    cr_expect_str_eq(uuid, "MIG-1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    static const char *const bad[] = {"", "GPU-", "MIG-", "TPU-1", "GPU-a/b", "GPU-a_b", "GPU-a-", "gpu-1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect(!rg_kube_device_name(bad[i], name), "%s", bad[i]);
    cr_expect(!rg_kube_device_uuid("node-1", uuid));
}
