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
           kind == RG_KIND_KERNEL || kind == RG_KIND_POOL || kind == RG_KIND_ALLOCATION ||
           kind == RG_KIND_LINK;
}

/* Whether more is kept of such an object than its entry: it must end before another takes its place. */
static bool holds_its_place(unsigned kind)
{
    return kind == RG_KIND_CONTEXT || kind == RG_KIND_STREAM || kind == RG_KIND_EVENT || kind == RG_KIND_LINK;
}

static uint64_t hash(unsigned kind, const void *object)
{
    return (uint64_t)(uintptr_t)object >> 3 ^ (uint64_t)kind << 56;
}

static struct rg_object *at(struct rg_objects *objects, uint32_t index)
{
    return &objects->pages[index / RG_OBJECT_PAGE][index % RG_OBJECT_PAGE];
}

static void remove_entry(struct rg_objects *objects, struct rg_object *entry)
{
    if (entry->linked)
        rg_hash_table_remove(&objects->by_object, &entry->link);
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
    const bool linked = can_be_found(kind) && !rg_objects_find_object(objects, kind, object);
    *entry = (struct rg_object){.handle = handle, .object = object, .context = context, .linked = linked};
    if (linked)
        rg_hash_table_add(&objects->by_object, &entry->link, hash(kind, object));
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
    for (struct rg_hash_link *link = rg_hash_table_first(&objects->by_object, hash(kind, object)); link;
         link = rg_hash_table_next(link)) {
        struct rg_object *entry = (struct rg_object *)link;
        if (entry->object == object && rg_handle_kind(entry->handle) == (unsigned)kind)
            return entry;
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
    for (uint32_t page = 0; page < objects->n_pages; page++) {
        struct rg_object *first = objects->pages[page];
        for (struct rg_object *entry = first; first && entry < first + RG_OBJECT_PAGE; entry++)
            if (entry->handle)
                each(entry, user);
    }
}

void rg_objects_fini(struct rg_objects *objects)
{
    for (uint32_t i = 0; i < objects->n_pages; i++)
        free(objects->pages[i]);
    free(objects->by_object.buckets);
    pthread_mutex_destroy(&objects->lock);
    memset(objects, 0, sizeof *objects);
}
