/* claim.c - see claim.h. */
#include "places/kubernetes/claim/claim.h"

#include "common/base/hex.h"
#include "common/cache/digest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_text(const json_t *array, const char *wanted)
{
    const json_t *one;
    size_t i;
    json_array_foreach(array, i, one) if (json_is_string(one) &&
                                          strcmp(json_string_value(one), wanted) == 0) return true;
    return false;
}

bool rg_kube_claim_read(const json_t *json, struct rg_kube_claim *out)
{
    const json_t *meta = json_object_get(json, "metadata"), *notes = json_object_get(meta, "annotations"),
                 *status = json_object_get(json, "status"), *one;
    const json_t *results =
        json_object_get(json_object_get(json_object_get(status, "allocation"), "devices"), "results");
    size_t i;
    *out = (struct rg_kube_claim){
        .uid = rg_json_get_text(meta, "uid"),
        .space = rg_json_get_text(meta, "namespace"),
        .name = rg_json_get_text(meta, "name"),
        .version = rg_json_get_text(meta, "resourceVersion"),
        .noted_devices = rg_json_get_text(notes, RG_KUBE_NOTE_DEVICES),
        .noted_lease = rg_json_get_text(notes, RG_KUBE_NOTE_LEASE),
        .noted_servers = rg_json_get_text(notes, RG_KUBE_NOTE_SERVERS),
        .noted_waiting = rg_json_get_text(notes, RG_KUBE_NOTE_WAITING),
        .deleting = json_object_get(meta, "deletionTimestamp") != NULL,
        .has_finalizer = has_text(json_object_get(meta, "finalizers"), RG_KUBE_FINALIZER),
        .in_use = json_array_size(json_object_get(status, "reservedFor")) > 0,
    };
    json_array_foreach(results, i, one)
    {
        if (strcmp(rg_json_get_text(one, "driver"), RG_KUBE_DRIVER) != 0)
            continue;
        if (out->n_devices == RG_POOL_GPUS_MAX)
            return false;
        out->for_admin |= json_is_true(json_object_get(one, "adminAccess"));
        out->devices[out->n_devices++] = (struct rg_kube_device){
            rg_json_get_text(one, "request"), rg_json_get_text(one, "pool"), rg_json_get_text(one, "device")};
    }
    return *out->uid && *out->space && *out->name;
}

static int by_name(const void *a, const void *b)
{
    const struct rg_kube_device *one = a, *other = b;
    const int pools = strcmp(one->pool, other->pool);
    return pools ? pools : strcmp(one->name, other->name);
}

char *rg_kube_claim_devices(const struct rg_kube_claim *claim)
{
    struct rg_kube_device sorted[RG_POOL_GPUS_MAX];
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    memcpy(sorted, claim->devices, claim->n_devices * sizeof *sorted);
    qsort(sorted, claim->n_devices, sizeof *sorted, by_name);
    for (unsigned i = 0; i < claim->n_devices; i++)
        fprintf(out, "%s%s/%s", i ? "," : "", sorted[i].pool, sorted[i].name);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

void rg_kube_lease_id(const char *uid, const char *devices, char out[RG_KUBE_LEASE_ID])
{
    const struct rg_digest_part parts[] = {{uid, strlen(uid)}, {devices, strlen(devices)}};
    const struct rg_digest digest = rg_digest_of(parts, 2);
    rg_hex(digest.bytes, (RG_KUBE_LEASE_ID - 1) / 2, out);
}

bool rg_kube_device_name(const char *uuid, char out[RG_KUBE_DEVICE_NAME])
{
    const size_t size = strlen(uuid);
    if ((strncmp(uuid, "GPU-", 4) != 0 && strncmp(uuid, "MIG-", 4) != 0) || size < 5 ||
        size >= RG_KUBE_DEVICE_NAME || uuid[size - 1] == '-')
        return false;
    for (size_t i = 0; i <= size; i++) {
        out[i] = (char)tolower((unsigned char)uuid[i]);
        if (i >= 4 && out[i] && !isdigit((unsigned char)out[i]) && out[i] != '-' &&
            (out[i] < 'a' || out[i] > 'z'))
            return false;
    }
    return true;
}

bool rg_kube_device_uuid(const char *name, char out[RG_KUBE_DEVICE_NAME])
{
    const bool mig = strncmp(name, "mig-", 4) == 0;
    if ((strncmp(name, "gpu-", 4) != 0 && !mig) || strlen(name) < 5 || strlen(name) >= RG_KUBE_DEVICE_NAME)
        return false;
    snprintf(out, RG_KUBE_DEVICE_NAME, "%s-%s", mig ? "MIG" : "GPU", name + 4);
    return true;
}
