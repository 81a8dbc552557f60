/* slices.c - see slices.h. */
#include "places/kubernetes/controller/slices.h"

#include "places/kubernetes/claim/claim.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES    128 /* of a slice, as the API server allows */
#define ATTRIBUTES 30  /* of a device: with its capacity 32 at most */
#define NAME       32  /* bytes of an attribute's name, which is a C identifier */
#define TEXT       64  /* bytes of an attribute's text */
#define LABELS     "label.remote-gpu.io/"

void rg_kube_slices_pool_name(const char *pool, char *out, size_t size)
{
    size_t used = 0;
    for (; *pool && used + 1 < size && used < 63; pool++) {
        const char c = (char)tolower((unsigned char)*pool);
        const bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (good || used)
            out[used++] = good ? c : '-';
    }
    while (used && out[used - 1] == '-')
        used--;
    if (!used)
        used = (size_t)snprintf(out, size, "pool");
    out[used < size ? used : size - 1] = '\0';
}

/* --- a device ------------------------------------------------------------------------------------------------------ */

static void add_text(json_t *attributes, const char *name, const char *text)
{
    size_t size = strlen(text) < TEXT ? strlen(text) : TEXT;
    while (size && size < strlen(text) && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--; /* between two characters */
    if (size)
        json_object_set_new(attributes, name, json_pack("{s:o}", "string", json_stringn(text, size)));
}

/* A version as semver.org has it: three numbers without leading zeros; "580.65.06" becomes 580.65.6. */
static void add_version(json_t *attributes, const char *name, const char *text)
{
    unsigned long long numbers[3] = {0};
    char version[TEXT + 1];
    if (!isdigit((unsigned char)*text))
        return;
    for (int i = 0; i < 3 && isdigit((unsigned char)*text); i++) {
        char *end;
        numbers[i] = strtoull(text, &end, 10);
        text = *end == '.' ? end + 1 : end;
    }
    snprintf(version, sizeof version, "%llu.%llu.%llu", numbers[0], numbers[1], numbers[2]);
    json_object_set_new(attributes, name, json_pack("{s:s}", "version", version));
}

static bool is_identifier(const char *text)
{
    if (!*text || strlen(text) > NAME || isdigit((unsigned char)*text))
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    return true;
}

static void add_labels(json_t *attributes, json_t *labels)
{
    const char *key;
    json_t *value;
    json_object_foreach(labels, key, value)
    {
        char name[sizeof LABELS + NAME];
        if (!is_identifier(key) || !json_is_string(value) || json_object_size(attributes) >= ATTRIBUTES)
            continue;
        snprintf(name, sizeof name, LABELS "%s", key);
        add_text(attributes, name, json_string_value(value));
    }
}

/* As the API server would write it: the largest unit that leaves no fraction; what is less than a MiB is left away. */
static json_t *quantity(uint64_t bytes)
{
    static const char *const units[] = {"Mi", "Gi", "Ti", "Pi"};
    uint64_t number = bytes >> 20;
    unsigned unit = 0;
    char text[32];
    for (; number && number % 1024 == 0 && unit < 3; unit++)
        number /= 1024;
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)number, units[unit]);
    return json_string(text);
}

static json_t *device(const json_t *server, const json_t *gpu, const char *name)
{
    json_t *attributes = json_object();
    add_text(attributes, "model", rg_json_get_text(gpu, "name"));
    add_text(attributes, "uuid", rg_json_get_text(gpu, "uuid"));
    add_text(attributes, "server", rg_json_get_text(server, "host"));
    add_version(attributes, "cudaComputeCapability", rg_json_get_text(gpu, "capability"));
    add_version(attributes, "cudaDriverVersion", rg_json_get_text(server, "cuda"));
    add_version(attributes, "driverVersion", rg_json_get_text(server, "driver"));
    json_object_set_new(attributes, "rdma",
                        json_pack("{s:b}", "bool", json_is_true(json_object_get(server, "rdma"))));
    add_labels(attributes, json_object_get(server, "labels"));
    return json_pack("{s:s, s:o, s:{s:{s:o}}}", "name", name, "attributes", attributes, "capacity", "memory",
                     "value", quantity((uint64_t)json_integer_value(json_object_get(gpu, "memory"))));
}

bool rg_kube_slices_is_ours(const json_t *gpu, const json_t *claimed)
{
    const json_t *share;
    size_t i;
    json_array_foreach(json_object_get(gpu, "granted"), i, share)
    {
        const char *lease = rg_json_get_text(share, "lease");
        if (*lease && !json_object_get(claimed, lease))
            return false;
    }
    return true;
}

/* By name, so that the same pool makes the same slices; two GPUs of one name are one that is known twice, of which the first counts. */
static json_t *devices(const json_t *picture, const json_t *claimed)
{
    json_t *by_name = json_object();
    const json_t *server, *gpu;
    size_t i, j;
    json_array_foreach(json_object_get(picture, "servers"), i, server)
        json_array_foreach(json_object_get(server, "gpus"), j, gpu)
    {
        char name[RG_KUBE_DEVICE_NAME];
        if (!json_is_true(json_object_get(server, "draining")) && rg_kube_slices_is_ours(gpu, claimed) &&
            rg_kube_device_name(rg_json_get_text(gpu, "uuid"), name) && !json_object_get(by_name, name))
            json_object_set_new(by_name, name, device(server, gpu, name));
    }
    return by_name;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* An object's values in the order of its keys. */
static json_t *sorted(json_t *object)
{
    const size_t n = json_object_size(object);
    const char **keys = calloc(n + 1, sizeof *keys), *key;
    json_t *array = keys ? json_array() : NULL, *value;
    size_t i = 0;
    json_object_foreach(object, key, value) if (keys) keys[i++] = key;
    if (keys)
        qsort(keys, n, sizeof *keys, by_text);
    for (i = 0; array && i < n; i++)
        json_array_append(array, json_object_get(object, keys[i]));
    free(keys);
    return array;
}

/* --- slices --------------------------------------------------------------------------------------------------------- */

json_t *rg_kube_slices_make(const json_t *picture, const char *pool_name, const json_t *claimed,
                            const json_t *nodes)
{
    json_t *by_name = devices(picture, claimed), *all = sorted(by_name), *specs = json_array();
    const size_t n = json_array_size(all);
    json_decref(by_name);
    for (size_t i = 0; all && (i < n || i == 0);
         i += DEVICES) { /* a pool without GPUs is one slice without devices */
        json_t *some = json_array();
        for (size_t j = i; j < n && j < i + DEVICES; j++)
            json_array_append(some, json_array_get(all, j));
        json_t *spec = json_pack("{s:s, s:{s:s}, s:o}", "driver", RG_KUBE_DRIVER, "pool", "name", pool_name,
                                 "devices", some);
        json_object_set_new(spec, nodes ? "nodeSelector" : "allNodes",
                            nodes ? json_deep_copy(nodes) : json_true());
        json_array_append_new(specs, spec);
    }
    json_decref(all);
    return specs;
}

/* Whether all that is in `ours` is in `theirs`, to which the API server may have added. */
static bool contains(const json_t *theirs, json_t *ours)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_object(ours)) {
        json_object_foreach(ours, key,
                            value) if (!contains(json_object_get(theirs, key), value)) return false;
        return json_is_object(theirs);
    }
    if (!json_is_array(ours))
        return json_equal(theirs, ours);
    if (json_array_size(theirs) != json_array_size(ours))
        return false;
    json_array_foreach(ours, i, value) if (!contains(json_array_get(theirs, i), value)) return false;
    return true;
}

/* "gpu.remote-gpu.io-lab-0" */
static void name_of(const char *pool_name, size_t number, char *out, size_t size)
{
    snprintf(out, size, RG_KUBE_DRIVER "-%s-%zu", pool_name, number);
}

static const json_t *find(const json_t *existing, const char *name)
{
    const json_t *slice;
    size_t i;
    json_array_foreach(existing, i,
                       slice) if (strcmp(rg_json_get_text(json_object_get(slice, "metadata"), "name"),
                                         name) == 0) return slice;
    return NULL;
}

static json_int_t pool_number(const json_t *slice, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(json_object_get(slice, "spec"), "pool"), name));
}

/* Whether the slices are what they should be; *newest: the highest generation of the pool. */
static bool are_true(const json_t *existing, const json_t *specs, const char *pool_name, json_int_t *newest)
{
    const size_t n = json_array_size(specs);
    bool good = json_array_size(existing) == n;
    const json_t *slice;
    size_t i;
    *newest = 0;
    json_array_foreach(existing, i, slice)
    {
        const json_int_t generation = pool_number(slice, "generation");
        good = good && (i == 0 || generation == *newest) &&
               pool_number(slice, "resourceSliceCount") == (json_int_t)n;
        *newest = generation > *newest ? generation : *newest;
    }
    for (i = 0; good && i < n; i++) {
        char name[300];
        name_of(pool_name, i, name, sizeof name);
        good = contains(json_object_get(find(existing, name), "spec"), json_array_get(specs, i));
    }
    return good;
}

static json_t *whole(const json_t *slice, const json_t *spec, const char *name, json_int_t generation,
                     size_t n)
{
    json_t *copy = json_deep_copy(spec), *pool = json_object_get(copy, "pool");
    const char *version = rg_json_get_text(json_object_get(slice, "metadata"), "resourceVersion");
    json_object_set_new(pool, "generation", json_integer(generation));
    json_object_set_new(pool, "resourceSliceCount", json_integer((json_int_t)n));
    return json_pack("{s:s, s:s, s:{s:s, s:s*}, s:o}", "apiVersion", "resource.k8s.io/v1", "kind",
                     "ResourceSlice", "metadata", "name", name, "resourceVersion", slice ? version : NULL,
                     "spec", copy);
}

/* What cannot be changed in place: who may reach the devices, and the pool. */
static bool can_be_changed(const json_t *slice, const json_t *spec)
{
    const json_t *there = json_object_get(slice, "spec");
    return !slice || (strcmp(rg_json_get_text(json_object_get(there, "pool"), "name"),
                             rg_json_get_text(json_object_get(spec, "pool"), "name")) == 0 &&
                      !json_object_get(there, "allNodes") == !json_object_get(spec, "allNodes"));
}

size_t rg_kube_slices_compare(const json_t *existing, const json_t *specs, const char *pool_name,
                              struct rg_kube_slice_change **out)
{
    const size_t wanted = json_array_size(specs), most = wanted + json_array_size(existing);
    json_int_t newest;
    const json_t *slice;
    size_t n = 0, i;
    *out = NULL;
    if (are_true(existing, specs, pool_name, &newest) || !(*out = calloc(most + 1, sizeof **out)))
        return 0;
    for (i = 0; i < wanted; i++) {
        struct rg_kube_slice_change *change = &(*out)[n++];
        name_of(pool_name, i, change->name, sizeof change->name);
        slice = find(existing, change->name);
        const json_t *spec = json_array_get(specs, i);
        const bool in_place = can_be_changed(slice, spec);
        change->method = !slice     ? "POST"
                         : in_place ? "PUT"
                                    : "DELETE"; /* the next comparison makes it anew */
        change->body = in_place ? whole(slice, spec, change->name, newest + 1, wanted) : NULL;
    }
    json_array_foreach(existing, i, slice)
    {
        const char *name = rg_json_get_text(json_object_get(slice, "metadata"), "name");
        bool stays = false;
        for (size_t j = 0; j < wanted; j++)
            stays |= strcmp((*out)[j].name, name) == 0;
        if (stays)
            continue;
        (*out)[n].method = "DELETE";
        snprintf((*out)[n++].name, sizeof(*out)->name, "%s", name);
    }
    return n;
}

void rg_kube_slices_free(struct rg_kube_slice_change *changes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(changes[i].body);
    free(changes);
}
