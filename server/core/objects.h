/*
 * objects.h - the driver's objects by the handles that the client chose.
 *
 * A table by the handle's index, in pages made on first use, and for the kinds that the driver may hand out
 * more than once (contexts, modules, functions, pools) a way back from the object to its handle. Only the
 * thread that executes records touches it; another one may ask for the way back alone (rg_objects_handle).
 */
#ifndef RG_SERVER_CORE_OBJECTS_H
#define RG_SERVER_CORE_OBJECTS_H

#include "common/base/hash_table.h"
#include "common/base/status.h"
#include "proto/kinds.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define RG_OBJECT_PAGE 1024u

/** With which that begins which is kept of a stream or linker state beyond its entry. */
struct rg_extra {
    void (*release)(struct rg_extra *extra);
};

/** NULL is fine. */
static inline void rg_extra_release(struct rg_extra *extra)
{
    if (extra)
        extra->release(extra);
}

struct rg_object {
    struct rg_hash_link link; /* of the way back */
    bool linked;
    uint64_t handle;  /* 0: unused */
    void *object;     /* the driver's */
    uint64_t context; /* handle of the context it goes with; 0: of none */
    /* functions, kernels, libraries' modules: the driver's module or library that they end with */
    const void *owner;
    /* of contexts struct rg_worker_context; of streams and linker states what begins with rg_extra */
    void *extra;
};

struct rg_objects {
    struct rg_object *pages[RG_OBJECTS_MAX / RG_OBJECT_PAGE];
    uint32_t n_pages; /* above the last that exists */
    struct rg_hash_table by_object;
    pthread_mutex_t lock; /* a leaf: held where something changes, and where another thread looks */
};

/** Empty; pages are made when handles need them. */
void rg_objects_init(struct rg_objects *objects);

/** The entry of exactly this handle, or NULL. */
static inline struct rg_object *rg_objects_find(struct rg_objects *objects, uint64_t handle)
{
    const uint32_t index = rg_handle_index(handle);
    struct rg_object *page = objects->pages[index / RG_OBJECT_PAGE];
    if (!page || !handle || page[index % RG_OBJECT_PAGE].handle != handle)
        return NULL;
    return &page[index % RG_OBJECT_PAGE];
}

/**
 * Adds an object. It takes the place of an earlier one of the same index, whose name the client has given up,
 * unless that is a context, stream, event or linker state: more goes with those, and they end by records.
 * RG_ERR_INVALID: the handle, or the place of such an object, is in use. RG_ERR_NO_MEMORY.
 */
RG_MUST_CHECK enum rg_status rg_objects_add(struct rg_objects *objects, uint64_t handle, void *object,
                                            uint64_t context);
void rg_objects_remove(struct rg_objects *objects, struct rg_object *entry);
/** The entry of an object of one of the kinds that can be found, or NULL. */
struct rg_object *rg_objects_find_object(struct rg_objects *objects, enum rg_kind kind, const void *object);
/** Its handle, or 0. Any thread. */
uint64_t rg_objects_handle(struct rg_objects *objects, enum rg_kind kind, const void *object);
/** Calls `each` for every entry; it may remove the entry. */
void rg_objects_each(struct rg_objects *objects, void (*each)(struct rg_object *entry, void *user),
                     void *user);
void rg_objects_fini(struct rg_objects *objects);

#endif
