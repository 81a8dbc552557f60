/* mirror.c - see mirror.h. */
#include "pool/state/mirror.h"

#include "common/base/log.h"
#include "common/base/parse.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- finding --------------------------------------------------------------------------------------------------- */

/*
 * What a table has of an id. Each thing begins with its link and has its id at `offset`. The table is changed by adding and
 * removing alone, so that of a constant mirror may be looked into.
 */
static void *find(const struct rg_hash_table *table, const char *id, size_t offset)
{
    struct rg_hash_link *at = rg_hash_table_first((struct rg_hash_table *)(uintptr_t)table, rg_hash_text(id));
    while (at && strcmp((const char *)at + offset, id) != 0)
        at = rg_hash_table_next(at);
    return at;
}

static struct rg_pool_member *find_any(const struct rg_pool_mirror *mirror, const char *id)
{
    return find(&mirror->members_by_id, id, offsetof(struct rg_pool_member, id));
}

struct rg_pool_member *rg_pool_mirror_member(const struct rg_pool_mirror *mirror, const char *id)
{
    struct rg_pool_member *found = find_any(mirror, id);
    return found && found->value ? found : NULL;
}

static struct rg_pool_entry *find_entry(const struct rg_hash_table *table, const char *id)
{
    return find(table, id, offsetof(struct rg_pool_entry, id));
}

struct rg_pool_entry *rg_pool_mirror_request(const struct rg_pool_mirror *mirror, const char *id)
{
    return find_entry(&mirror->requests_by_id, id);
}

struct rg_pool_entry *rg_pool_mirror_lease(const struct rg_pool_mirror *mirror, const char *id)
{
    return find_entry(&mirror->leases_by_id, id);
}

struct rg_pool_entry *rg_pool_mirror_usage(const struct rg_pool_mirror *mirror, const char *id)
{
    return find_entry(&mirror->usage_by_id, id);
}

struct rg_pool_entry *rg_pool_mirror_links(const struct rg_pool_mirror *mirror, const char *id)
{
    return find_entry(&mirror->links_by_id, id);
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
    rg_hash_table_add(&mirror->members_by_id, &found->link, rg_hash_text(id));
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
    member->agent = rg_pool_get_text(value, "agent", NULL);
    member->rdma = json_is_true(json_object_get(value, "rdma"));
    member->draining = json_is_true(json_object_get(value, "draining"));
    member->etcd_lease = strtoll(rg_pool_get_text(value, "etcd_lease", "0"), NULL, 10);
}

static int get_group(const json_t *object, const char *name)
{
    const uint64_t number = rg_pool_get_number(object, name, UINT64_MAX);
    return number < 1u << 20 ? (int)number : -1;
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

/* --- lists of entries ------------------------------------------------------------------------------------------- */

struct list {
    struct rg_pool_entry ***entries;
    uint32_t *n, max;
    struct rg_hash_table *by_id;
    bool ordered; /* by their coming */
};

enum kind { REQUEST, LEASE, USAGE, LINKS, N_LISTS, MEMBER = N_LISTS, GPU, NOTHING };

#define ALL_KINDS ((1u << NOTHING) - 1)

static struct list list_of(struct rg_pool_mirror *mirror, enum kind kind)
{
    switch (kind) {
    case REQUEST:
        return (struct list){&mirror->requests, &mirror->n_requests, RG_POOL_REQUESTS_MAX,
                             &mirror->requests_by_id, true};
    case LEASE:
        return (struct list){&mirror->leases, &mirror->n_leases, RG_POOL_LEASES_MAX, &mirror->leases_by_id,
                             false};
    case USAGE:
        return (struct list){&mirror->usage, &mirror->n_usage, RG_POOL_MEMBERS_MAX, &mirror->usage_by_id,
                             false};
    default:
        return (struct list){&mirror->links, &mirror->n_links, RG_POOL_LINKS_MAX, &mirror->links_by_id,
                             false};
    }
}

/* The last one of a list that has an order goes to where it belongs. */
static void place_last(const struct list *list)
{
    struct rg_pool_entry **entries = *list->entries, *entry = entries[*list->n - 1];
    uint32_t place = *list->n - 1;
    for (; list->ordered && place > 0 && entries[place - 1]->created > entry->created; place--)
        entries[place] = entries[place - 1];
    entries[place] = entry;
}

/* It has been made anew, by the same id: it comes behind those that came meanwhile. */
static void place_again(const struct list *list, struct rg_pool_entry *entry)
{
    struct rg_pool_entry **at = *list->entries, **end = at + *list->n;
    while (*at != entry)
        at++;
    memmove(at, at + 1, (size_t)(end - at - 1) * sizeof *at);
    end[-1] = entry;
    place_last(list);
}

static void put_entry(const struct list *list, const char *id, json_t *value, int64_t created,
                      int64_t changed)
{
    struct rg_pool_entry *entry = find_entry(list->by_id, id);
    const bool is_new = !entry, moves = entry && list->ordered && entry->created != created;
    if (is_new) {
        if (!grow(list->entries, *list->n, list->max) || !(entry = calloc(1, sizeof *entry)))
            return;
        snprintf(entry->id, sizeof entry->id, "%s", id);
        rg_hash_table_add(list->by_id, &entry->link, rg_hash_text(id));
        (*list->entries)[(*list->n)++] = entry;
    }
    json_decref(entry->value);
    entry->value = json_incref(value);
    entry->seen = true;
    entry->created = created;
    entry->changed = changed;
    if (is_new)
        place_last(list);
    else if (moves)
        place_again(list, entry);
}

/* --- what is told --------------------------------------------------------------------------------------------------- */

/* What a key is of. */
static enum kind read_key(const char *key, char id[RG_POOL_ID], uint32_t *index)
{
    static const struct {
        const char *folder;
        enum kind kind;
    } folders[] = {{"servers/", MEMBER},
                   {"requests/", REQUEST},
                   {"leases/", LEASE},
                   {"usage/", USAGE},
                   {"links/", LINKS}};
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
        rg_pool_mirror_remove(mirror, key); /* what stood there before stands there no more */
    } else if (kind < N_LISTS) {
        const struct list list = list_of(mirror, kind);
        put_entry(&list, id, object, created, changed);
    } else if (kind == MEMBER) {
        put_member(mirror, id, object, changed);
    } else if (kind == GPU) {
        put_gpu(mirror, id, index, object, changed);
    }
    json_decref(object);
}

void rg_pool_mirror_reset(struct rg_pool_mirror *mirror)
{
    mirror->marked = ALL_KINDS;
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        mirror->members[i]->seen = false;
        for (uint32_t j = 0; j < mirror->members[i]->n_gpus; j++)
            mirror->members[i]->gpus[j]->seen = false;
    }
    for (int kind = 0; kind < N_LISTS; kind++) {
        const struct list list = list_of(mirror, (enum kind)kind);
        for (uint32_t i = 0; i < *list.n; i++)
            (*list.entries)[i]->seen = false;
    }
}

/* Removed keys are marked, and go with those that were not told. */
void rg_pool_mirror_remove(struct rg_pool_mirror *mirror, const char *key)
{
    char id[RG_POOL_ID];
    uint32_t index = 0;
    const enum kind kind = read_key(key, id, &index);
    struct rg_pool_member *member = kind == MEMBER || kind == GPU ? find_any(mirror, id) : NULL;
    struct rg_pool_gpu *gpu = kind == GPU && member ? rg_pool_mirror_gpu(member, index) : NULL;
    struct rg_pool_entry *entry = kind < N_LISTS ? find_entry(list_of(mirror, kind).by_id, id) : NULL;
    if (kind != NOTHING)
        mirror->marked |= 1u << kind;
    if (kind == MEMBER && member)
        member->seen = false;
    if (gpu)
        gpu->seen = false;
    if (entry)
        entry->seen = false;
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
        member->address = member->host = member->cuda = member->driver = member->agent = NULL;
    }
}

static void sweep_members(struct rg_pool_mirror *mirror)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        struct rg_pool_member *member = mirror->members[i];
        sweep_member(member);
        if (member->value || member->n_gpus) {
            mirror->members[n++] = member;
        } else {
            rg_hash_table_remove(&mirror->members_by_id, &member->link);
            free(member);
        }
    }
    mirror->n_members = n;
}

static void sweep_list(const struct list *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < *list->n; i++) {
        struct rg_pool_entry *entry = (*list->entries)[i];
        if (entry->seen) {
            (*list->entries)[n++] = entry;
        } else {
            rg_hash_table_remove(list->by_id, &entry->link);
            json_decref(entry->value);
            free(entry);
        }
    }
    *list->n = n;
}

/* Removes what was not told, or was told to be gone. */
static void sweep(struct rg_pool_mirror *mirror)
{
    if (mirror->marked & (1u << MEMBER | 1u << GPU))
        sweep_members(mirror);
    for (int kind = 0; kind < N_LISTS; kind++) {
        const struct list list = list_of(mirror, (enum kind)kind);
        if (mirror->marked & 1u << kind)
            sweep_list(&list);
    }
    mirror->marked = 0;
}

void rg_pool_mirror_whole(struct rg_pool_mirror *mirror, int64_t revision)
{
    sweep(mirror);
    mirror->revision = revision;
}

/* The tables are empty then; their buckets are left. */
static void no_more(struct rg_hash_link *link)
{
    (void)link;
}

void rg_pool_mirror_fini(struct rg_pool_mirror *mirror)
{
    rg_pool_mirror_reset(mirror);
    sweep(mirror);
    rg_hash_table_clear(&mirror->members_by_id, no_more);
    for (int kind = 0; kind < N_LISTS; kind++) {
        const struct list list = list_of(mirror, (enum kind)kind);
        rg_hash_table_clear(list.by_id, no_more);
        free(*list.entries);
    }
    free(mirror->members);
    *mirror = (struct rg_pool_mirror){0};
}
