/*
 * publish.c - the cluster's ResourceSlices become as the pool is (slices.h says what has to change). What cannot be written is tried
 * again in the next round, and said. The controller's thread.
 */
#include "places/kubernetes/controller/state.h"

#include "common/base/log.h"
#include "places/kubernetes/controller/slices.h"

#include <stdio.h>
#include <string.h>

static bool apply(struct rg_kube_controller *controller, const struct rg_kube_slice_change *change)
{
    char path[400];
    struct rg_kube_failure failure;
    json_t *answer = NULL;
    const bool is_new = strcmp(change->method, "POST") == 0;
    snprintf(path, sizeof path, is_new ? "%s" : "%s/%s", RG_KUBE_SLICES, change->name);
    const enum rg_status status =
        rg_kube_call(controller->kube, change->method, path, change->body, &answer, &failure);
    if (status == RG_OK && change->body)
        rg_kube_store_put(controller->slices, answer);
    json_decref(answer);
    if (status == RG_OK || status == RG_ERR_NOT_FOUND || failure.conflict)
        return status == RG_OK; /* else the watch brings what has changed */
    rg_warn("the ResourceSlice %s cannot be written: %s", change->name, failure.why);
    atomic_fetch_add(&controller->figures->failures, 1);
    return false;
}

static unsigned count_devices(const json_t *specs)
{
    const json_t *spec;
    size_t i, n = 0;
    json_array_foreach(specs, i, spec) n += json_array_size(json_object_get(spec, "devices"));
    return (unsigned)n;
}

static json_t *values_of(json_t *objects)
{
    json_t *out = json_array(), *object;
    const char *key;
    json_object_foreach(objects, key, object) json_array_append(out, object);
    return out;
}

void rg_kube_slices_publish(struct rg_kube_controller *controller)
{
    json_t *objects = rg_kube_store_read(controller->slices), *ours = rg_kube_claims_leases(controller);
    if (!objects || !ours || !controller->picture || !rg_kube_store_is_true(controller->slices)) {
        json_decref(objects);
        json_decref(ours);
        return;
    }
    char name[RG_KUBE_DEVICE_NAME];
    struct rg_kube_slice_change *changes;
    rg_kube_slices_pool_name(rg_json_get_text(controller->picture, "pool"), name, sizeof name);
    json_t *existing = values_of(objects);
    json_t *specs = rg_kube_slices_make(controller->picture, name, ours, controller->settings->nodes);
    const size_t n = rg_kube_slices_compare(existing, specs, name, &changes);
    size_t done = 0;
    while (done < n && apply(controller, &changes[done]))
        done++;
    if (n && done == n)
        rg_info("%u GPUs of pool %s are published", count_devices(specs), name);
    atomic_store(&controller->figures->devices, count_devices(specs));
    rg_kube_slices_free(changes, n);
    json_decref(specs);
    json_decref(existing);
    json_decref(ours);
    json_decref(objects);
}
