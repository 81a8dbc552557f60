/* mirror.c - see mirror.h. */
#include "pool/state/mirror.h"

#include "common/base/log.h"
#include "common/base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- JSON ----------------------------------------------------------------------------------------------------- */

const char *rg_pool_get_text(const json_t *object, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : otherwise;
}

uint64_t rg_pool_get_number(const json_t *object, const char *name, uint64_t otherwise)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
                                                                    : otherwise;
}

static int get_group(const json_t *object, const char *name)
{
    const uint64_t number = rg_pool_get_number(object, name, UINT64_MAX);
    return number < 1u << 20 ? (int)number : -1;
}

json_t *rg_pool_gpu_json(const struct rg_pool_gpu *gpu)
{
    json_t *granted = json_array();
    for (uint32_t i = 0; granted && i < gpu->n_shares; i++)
        if (json_array_append_new(granted, json_pack("{s:s, s:I}", "lease", gpu->shares[i].lease, "memory",
                                                     (json_int_t)gpu->shares[i].memory)) != 0) {
            json_decref(granted);
            granted = NULL;
        }
    json_t *out = json_pack("{s:i, s:s, s:s, s:I, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid, "name",
                            gpu->name, "memory", (json_int_t)gpu->memory, "granted", granted);
    const struct {
        const char *name;
        int number;
    } places[] = {{"numa", gpu->numa_node}, {"nvlink", gpu->nvlink_group}, {"pcie", gpu->pcie_group}};
    for (size_t i = 0; out && i < sizeof places / sizeof places[0]; i++)
        if (places[i].number >= 0)
            (void)json_object_set_new(out, places[i].name, json_integer(places[i].number));
    return out;
}

bool rg_pool_is_id(const char *text)
{
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

bool rg_pool_make_id(char out[RG_POOL_ID])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return false;
    snprintf(out, RG_POOL_ID, "%016" PRIx64, number | 1); /* 0 is none */
    return true;
}

/* --- finding --------------------------------------------------------------------------------------------------- */

static struct rg_pool_member *find_any(const struct rg_pool_mirror *mirror, const char *id)
{
    for (uint32_t i = 0; i < mirror->n_members; i++)
        if (strcmp(mirror->members[i]->id, id) == 0)
            return mirror->members[i];
    return NULL;
}

struct rg_pool_member *rg_pool_mirror_member(const struct rg_pool_mirror *mirror, const char *id)
{
    struct rg_pool_member *found = find_any(mirror, id);
    return found && found->value ? found : NULL;
}

struct rg_pool_queued *rg_pool_mirror_request(const struct rg_pool_mirror *mirror, const char *id)
{
    for (uint32_t i = 0; i < mirror->n_requests; i++)
        if (strcmp(mirror->requests[i]->id, id) == 0)
            return mirror->requests[i];
    return NULL;
}

struct rg_pool_held *rg_pool_mirror_lease(const struct rg_pool_mirror *mirror, const char *id)
{
    for (uint32_t i = 0; i < mirror->n_leases; i++)
        if (strcmp(mirror->leases[i]->id, id) == 0)
            return mirror->leases[i];
    return NULL;
}

struct rg_pool_used *rg_pool_mirror_usage(const struct rg_pool_mirror *mirror, const char *id)
{
    for (uint32_t i = 0; i < mirror->n_usage; i++)
        if (strcmp(mirror->usage[i]->id, id) == 0)
            return mirror->usage[i];
    return NULL;
}

struct rg_pool_gpu *rg_pool_mirror_gpu(const struct rg_pool_member *member, uint32_t index)
{
    for (uint32_t i = 0; i < member->n_gpus; i++)
        if (member->gpus[i]->index == index)
            return member->gpus[i];
    return NULL;
}

/* --- changing --------------------------------------------------------------------------------------------------- */

/* Makes room for one more pointer. */
static bool grow(void *list, uint32_t n, uint32_t max)
{
    void **grown = n < max ? realloc(*(void **)list, (n + 1) * sizeof(void *)) : NULL;
    if (!grown)
        return false;
    *(void **)list = grown;
    return true;
}

static struct rg_pool_member *member_of(struct rg_pool_mirror *mirror, const char *id)
{
    struct rg_pool_member *found = find_any(mirror, id);
    if (found || !grow(&mirror->members, mirror->n_members, RG_POOL_MEMBERS_MAX) ||
        !(found = calloc(1, sizeof *found)))
        return found;
    snprintf(found->id, sizeof found->id, "%s", id);
    mirror->members[mirror->n_members++] = found;
    return found;
}

static void put_member(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t changed)
{
    struct rg_pool_member *member = member_of(mirror, id);
    if (!member)
        return;
    json_decref(member->value);
    member->value = json_incref(value);
    member->seen = true;
    member->changed = changed;
    member->address = rg_pool_get_text(value, "address", NULL);
    member->host = rg_pool_get_text(value, "host", NULL);
    member->cuda = rg_pool_get_text(value, "cuda", NULL);
    member->driver = rg_pool_get_text(value, "driver", NULL);
    member->rdma = json_is_true(json_object_get(value, "rdma"));
    member->draining = json_is_true(json_object_get(value, "draining"));
    member->etcd_lease = strtoll(rg_pool_get_text(value, "etcd_lease", "0"), NULL, 10);
}

static void put_shares(struct rg_pool_gpu *gpu, const json_t *granted)
{
    const json_t *one;
    size_t i;
    gpu->n_shares = 0;
    json_array_foreach(granted, i, one)
    {
        const char *lease = rg_pool_get_text(one, "lease", "");
        if (gpu->n_shares == RG_POOL_SHARES_MAX || !rg_pool_is_id(lease))
            continue;
        struct rg_pool_share *share = &gpu->shares[gpu->n_shares++];
        snprintf(share->lease, sizeof share->lease, "%s", lease);
        share->memory = rg_pool_get_number(one, "memory", gpu->memory);
    }
}

static void put_gpu(struct rg_pool_mirror *mirror, const char *id, uint32_t index, const json_t *value,
                    int64_t changed)
{
    struct rg_pool_member *member = member_of(mirror, id);
    struct rg_pool_gpu *gpu = member ? rg_pool_mirror_gpu(member, index) : NULL;
    if (!gpu && (!member || member->n_gpus == RG_DEVICES_MAX || !(gpu = calloc(1, sizeof *gpu))))
        return;
    if (!rg_pool_mirror_gpu(member, index)) {
        uint32_t place = member->n_gpus++;
        for (; place > 0 && member->gpus[place - 1]->index > index; place--)
            member->gpus[place] = member->gpus[place - 1];
        member->gpus[place] = gpu;
    }
    gpu->seen = true;
    gpu->changed = changed;
    gpu->index = index;
    gpu->memory = rg_pool_get_number(value, "memory", 0);
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", rg_pool_get_text(value, "uuid", ""));
    snprintf(gpu->name, sizeof gpu->name, "%s", rg_pool_get_text(value, "name", ""));
    gpu->numa_node = get_group(value, "numa");
    gpu->nvlink_group = get_group(value, "nvlink");
    gpu->pcie_group = get_group(value, "pcie");
    put_shares(gpu, json_object_get(value, "granted"));
}

static void put_request(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t created,
                        int64_t changed)
{
    struct rg_pool_queued *request = rg_pool_mirror_request(mirror, id);
    if (!request) {
        if (!grow(&mirror->requests, mirror->n_requests, RG_POOL_REQUESTS_MAX) ||
            !(request = calloc(1, sizeof *request)))
            return;
        uint32_t place = mirror->n_requests++;
        for (; place > 0 && mirror->requests[place - 1]->created > created; place--)
            mirror->requests[place] = mirror->requests[place - 1];
        mirror->requests[place] = request;
        snprintf(request->id, sizeof request->id, "%s", id);
    }
    json_decref(request->value);
    request->value = json_incref(value);
    request->seen = true;
    request->created = created;
    request->changed = changed;
}

static void put_lease(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t created,
                      int64_t changed)
{
    struct rg_pool_held *lease = rg_pool_mirror_lease(mirror, id);
    if (!lease) {
        if (!grow(&mirror->leases, mirror->n_leases, RG_POOL_LEASES_MAX) ||
            !(lease = calloc(1, sizeof *lease)))
            return;
        mirror->leases[mirror->n_leases++] = lease;
        snprintf(lease->id, sizeof lease->id, "%s", id);
    }
    json_decref(lease->value);
    lease->value = json_incref(value);
    lease->seen = true;
    lease->created = created;
    lease->changed = changed;
}

static void put_usage(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t changed)
{
    struct rg_pool_used *used = rg_pool_mirror_usage(mirror, id);
    if (!used) {
        if (!grow(&mirror->usage, mirror->n_usage, RG_POOL_MEMBERS_MAX) || !(used = calloc(1, sizeof *used)))
            return;
        mirror->usage[mirror->n_usage++] = used;
        snprintf(used->id, sizeof used->id, "%s", id);
    }
    json_decref(used->value);
    used->value = json_incref(value);
    used->seen = true;
    used->changed = changed;
}

enum kind { NOTHING, MEMBER, GPU, REQUEST, LEASE, USAGE };

/* What a key is of. */
static enum kind read_key(const char *key, char id[RG_POOL_ID], uint32_t *index)
{
    static const struct {
        const char *folder;
        enum kind kind;
    } folders[] = {{"servers/", MEMBER}, {"requests/", REQUEST}, {"leases/", LEASE}, {"usage/", USAGE}};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const size_t size = strlen(folders[i].folder);
        int64_t number;
        if (strncmp(key, folders[i].folder, size) != 0 || strlen(key) < size + 16)
            continue;
        memcpy(id, key + size, 16);
        id[16] = '\0';
        const char *rest = key + size + 16;
        if (!rg_pool_is_id(id))
            return NOTHING;
        if (*rest == '\0')
            return folders[i].kind;
        if (folders[i].kind != MEMBER || strncmp(rest, "/gpus/", 6) != 0 ||
            rg_parse_integer(rest + 6, 0, RG_DEVICES_MAX - 1, &number, NULL, 0) != RG_OK)
            return NOTHING;
        *index = (uint32_t)number;
        return GPU;
    }
    return NOTHING;
}

void rg_pool_mirror_put(struct rg_pool_mirror *mirror, const char *key, const char *value, int64_t created,
                        int64_t changed)
{
    char id[RG_POOL_ID];
    uint32_t index = 0;
    json_t *object = json_loads(value, 0, NULL);
    const enum kind kind = read_key(key, id, &index);
    if (!json_is_object(object)) {
        rg_warn("etcd's value of %s is not understood: a server of another version is in the pool", key);
    } else if (kind == MEMBER) {
        put_member(mirror, id, object, changed);
    } else if (kind == GPU) {
        put_gpu(mirror, id, index, object, changed);
    } else if (kind == REQUEST) {
        put_request(mirror, id, object, created, changed);
    } else if (kind == LEASE) {
        put_lease(mirror, id, object, created, changed);
    } else if (kind == USAGE) {
        put_usage(mirror, id, object, changed);
    }
    json_decref(object);
}

void rg_pool_mirror_reset(struct rg_pool_mirror *mirror)
{
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        mirror->members[i]->seen = false;
        for (uint32_t j = 0; j < mirror->members[i]->n_gpus; j++)
            mirror->members[i]->gpus[j]->seen = false;
    }
    for (uint32_t i = 0; i < mirror->n_requests; i++)
        mirror->requests[i]->seen = false;
    for (uint32_t i = 0; i < mirror->n_leases; i++)
        mirror->leases[i]->seen = false;
    for (uint32_t i = 0; i < mirror->n_usage; i++)
        mirror->usage[i]->seen = false;
}

/* Removed keys are marked, and go with those that were not told. */
void rg_pool_mirror_remove(struct rg_pool_mirror *mirror, const char *key)
{
    char id[RG_POOL_ID];
    uint32_t index = 0;
    const enum kind kind = read_key(key, id, &index);
    struct rg_pool_member *member = kind == MEMBER || kind == GPU ? find_any(mirror, id) : NULL;
    struct rg_pool_gpu *gpu = kind == GPU && member ? rg_pool_mirror_gpu(member, index) : NULL;
    struct rg_pool_queued *request = kind == REQUEST ? rg_pool_mirror_request(mirror, id) : NULL;
    struct rg_pool_held *lease = kind == LEASE ? rg_pool_mirror_lease(mirror, id) : NULL;
    if (kind == MEMBER && member)
        member->seen = false;
    if (gpu)
        gpu->seen = false;
    if (request)
        request->seen = false;
    if (lease)
        lease->seen = false;
    struct rg_pool_used *used = kind == USAGE ? rg_pool_mirror_usage(mirror, id) : NULL;
    if (used)
        used->seen = false;
}

static void sweep_member(struct rg_pool_member *member)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < member->n_gpus; i++)
        if (member->gpus[i]->seen)
            member->gpus[n++] = member->gpus[i];
        else
            free(member->gpus[i]);
    member->n_gpus = n;
    if (!member->seen) {
        json_decref(member->value);
        member->value = NULL;
    }
}

/* Removes what was not told, or was told to be gone. */
static void sweep(struct rg_pool_mirror *mirror)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        struct rg_pool_member *member = mirror->members[i];
        sweep_member(member);
        if (member->value || member->n_gpus)
            mirror->members[n++] = member;
        else
            free(member);
    }
    mirror->n_members = n;
    n = 0;
    for (uint32_t i = 0; i < mirror->n_requests; i++)
        if (mirror->requests[i]->seen) {
            mirror->requests[n++] = mirror->requests[i];
        } else {
            json_decref(mirror->requests[i]->value);
            free(mirror->requests[i]);
        }
    mirror->n_requests = n;
    n = 0;
    for (uint32_t i = 0; i < mirror->n_leases; i++)
        if (mirror->leases[i]->seen) {
            mirror->leases[n++] = mirror->leases[i];
        } else {
            json_decref(mirror->leases[i]->value);
            free(mirror->leases[i]);
        }
    mirror->n_leases = n;
    n = 0;
    for (uint32_t i = 0; i < mirror->n_usage; i++)
        if (mirror->usage[i]->seen) {
            mirror->usage[n++] = mirror->usage[i];
        } else {
            json_decref(mirror->usage[i]->value);
            free(mirror->usage[i]);
        }
    mirror->n_usage = n;
}

void rg_pool_mirror_whole(struct rg_pool_mirror *mirror, int64_t revision)
{
    sweep(mirror);
    mirror->revision = revision;
}

void rg_pool_mirror_fini(struct rg_pool_mirror *mirror)
{
    rg_pool_mirror_reset(mirror);
    sweep(mirror);
    free(mirror->members);
    free(mirror->requests);
    free(mirror->leases);
    free(mirror->usage);
    *mirror = (struct rg_pool_mirror){0};
}
