/* mirror.c - what is told of a pool, and the lists of what is there (its servers: members.c); see mirror.h. */
#include "pool/state/internal.h"

#include "common/base/log.h"
#include "common/base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- finding --------------------------------------------------------------------------------------------------- */

void *rg_mirror_find(const struct rg_hash_table *table, const char *id, size_t offset)
{
    struct rg_hash_link *at = rg_hash_table_first((struct rg_hash_table *)(uintptr_t)table, rg_hash_text(id));
    while (at && strcmp((const char *)at + offset, id) != 0)
        at = rg_hash_table_next(at);
    return at;
}

static struct rg_pool_entry *find_entry(const struct rg_hash_table *table, const char *id)
{
    return rg_mirror_find(table, id, offsetof(struct rg_pool_entry, id));
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

bool rg_mirror_grow(void *list, uint32_t n, uint32_t max)
{
    void **grown = n < max ? realloc(*(void **)list, (n + 1) * sizeof(void *)) : NULL;
    if (!grown)
        return false;
    *(void **)list = grown;
    return true;
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
        if (!rg_mirror_grow(list->entries, *list->n, list->max) || !(entry = calloc(1, sizeof *entry)))
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
        rg_mirror_put_member(mirror, id, object, created, changed);
    } else if (kind == GPU) {
        rg_mirror_put_gpu(mirror, id, index, object, changed);
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
    struct rg_pool_member *member = kind == MEMBER || kind == GPU ? rg_mirror_any_member(mirror, id) : NULL;
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
        rg_mirror_sweep_members(mirror);
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
