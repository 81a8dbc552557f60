/* objects.c - the table of the driver's objects. See objects.h. */
#include "server/core/objects.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

void rg_objects_init(struct rg_objects *objects)
{
    *objects = (struct rg_objects){0};
    pthread_mutex_init(&objects->lock, NULL);
}

static bool can_be_found(unsigned kind)
{
    return kind == RG_KIND_CONTEXT || kind == RG_KIND_MODULE || kind == RG_KIND_FUNCTION ||
           kind == RG_KIND_POOL || kind == RG_KIND_ALLOCATION || kind == RG_KIND_LINK;
}

/* Whether more is kept of such an object than its entry: it must end before another takes its place. */
static bool holds_its_place(unsigned kind)
{
    return kind == RG_KIND_CONTEXT || kind == RG_KIND_STREAM || kind == RG_KIND_EVENT || kind == RG_KIND_LINK;
}

static uint32_t hash(unsigned kind, const void *object)
{
    uint64_t x = ((uint64_t)(uintptr_t)object >> 3) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32) ^ (kind * 0x85ebca6bu);
}

static struct rg_object *at(struct rg_objects *objects, uint32_t index)
{
    return &objects->pages[index / RG_OBJECT_PAGE][index % RG_OBJECT_PAGE];
}

static void chain(struct rg_objects *objects, struct rg_object *entry)
{
    const uint32_t bucket = hash(rg_handle_kind(entry->handle), entry->object) % objects->n_buckets;
    entry->next = objects->buckets[bucket];
    objects->buckets[bucket] = rg_handle_index(entry->handle) + 1;
    entry->chained = true;
}

static bool grow_buckets(struct rg_objects *objects)
{
    const uint32_t n = objects->n_buckets ? objects->n_buckets * 4 : 256;
    uint32_t *buckets = calloc(n, sizeof *buckets);
    if (!buckets)
        return objects->n_buckets != 0; /* longer chains will do */
    free(objects->buckets);
    objects->buckets = buckets;
    objects->n_buckets = n;
    for (uint32_t i = 0; i < objects->n_pages * RG_OBJECT_PAGE; i++)
        if (objects->pages[i / RG_OBJECT_PAGE] && at(objects, i)->handle && at(objects, i)->chained)
            chain(objects, at(objects, i));
    return true;
}

static void unchain(struct rg_objects *objects, struct rg_object *entry)
{
    const uint32_t bucket = hash(rg_handle_kind(entry->handle), entry->object) % objects->n_buckets;
    const uint32_t self = rg_handle_index(entry->handle) + 1;
    uint32_t *link = &objects->buckets[bucket];
    while (*link && *link != self)
        link = &at(objects, *link - 1)->next;
    if (*link)
        *link = entry->next;
    objects->n_chained--;
}

static void remove_entry(struct rg_objects *objects, struct rg_object *entry)
{
    if (entry->chained)
        unchain(objects, entry);
    memset(entry, 0, sizeof *entry);
}

static enum rg_status add(struct rg_objects *objects, uint64_t handle, void *object, uint64_t context)
{
    const uint32_t index = rg_handle_index(handle), page = index / RG_OBJECT_PAGE;
    if (index >= RG_OBJECTS_MAX)
        return RG_ERR_INVALID;
    if (!objects->pages[page]) {
        objects->pages[page] = calloc(RG_OBJECT_PAGE, sizeof *objects->pages[page]);
        if (!objects->pages[page])
            return RG_ERR_NO_MEMORY;
        if (page >= objects->n_pages)
            objects->n_pages = page + 1;
    }
    struct rg_object *entry = at(objects, index);
    if (entry->handle == handle || (entry->handle && holds_its_place(rg_handle_kind(entry->handle))))
        return RG_ERR_INVALID;
    if (entry->handle)
        remove_entry(objects, entry);
    const unsigned kind = rg_handle_kind(handle);
    const bool chained = can_be_found(kind) && !rg_objects_find_object(objects, kind, object);
    if (chained && objects->n_chained >= objects->n_buckets && !grow_buckets(objects))
        return RG_ERR_NO_MEMORY;
    *entry = (struct rg_object){.handle = handle, .object = object, .context = context};
    if (chained) {
        chain(objects, entry);
        objects->n_chained++;
    }
    return RG_OK;
}

enum rg_status rg_objects_add(struct rg_objects *objects, uint64_t handle, void *object, uint64_t context)
{
    RG_SCOPED_LOCK(&objects->lock);
    return add(objects, handle, object, context);
}

void rg_objects_remove(struct rg_objects *objects, struct rg_object *entry)
{
    RG_SCOPED_LOCK(&objects->lock);
    remove_entry(objects, entry);
}

struct rg_object *rg_objects_find_object(struct rg_objects *objects, enum rg_kind kind, const void *object)
{
    if (!objects->n_buckets)
        return NULL;
    for (uint32_t i = objects->buckets[hash(kind, object) % objects->n_buckets]; i;) {
        struct rg_object *entry = at(objects, i - 1);
        if (entry->object == object && rg_handle_kind(entry->handle) == (unsigned)kind)
            return entry;
        i = entry->next;
    }
    return NULL;
}

uint64_t rg_objects_handle(struct rg_objects *objects, enum rg_kind kind, const void *object)
{
    RG_SCOPED_LOCK(&objects->lock);
    const struct rg_object *entry = rg_objects_find_object(objects, kind, object);
    return entry ? entry->handle : 0;
}

void rg_objects_each(struct rg_objects *objects, void (*each)(struct rg_object *entry, void *user),
                     void *user)
{
    for (uint32_t i = 0; i < objects->n_pages * RG_OBJECT_PAGE; i++)
        if (objects->pages[i / RG_OBJECT_PAGE] && at(objects, i)->handle)
            each(at(objects, i), user);
}

void rg_objects_fini(struct rg_objects *objects)
{
    for (uint32_t i = 0; i < objects->n_pages; i++)
        free(objects->pages[i]);
    free(objects->buckets);
    pthread_mutex_destroy(&objects->lock);
    memset(objects, 0, sizeof *objects);
}
