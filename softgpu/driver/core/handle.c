/*
 * handle.c - which addresses are handles: a hash table of live objects.
 *
 * A handle that was never given out, was destroyed or is of another kind is refused without being read. Any
 * thread; the table's lock is held for a few instructions only.
 */

#include "softgpu/driver/driver.h"

#define SHARDS  16
#define BUCKETS 1024

static struct {
    pthread_mutex_t lock;
    struct sg_object *buckets[BUCKETS];
} shards[SHARDS];

static void __attribute__((constructor)) start_locks(void)
{
    rg_log_name("remote-gpu: softgpu");
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].lock, NULL);
}

static uint64_t hash(const void *handle)
{
    uint64_t x = (uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15ull;
    return x >> 32;
}

/* The link that points at the object, or at the end of the chain. Lock held. */
static struct sg_object **find(const void *handle, uint64_t h)
{
    struct sg_object **link = &shards[h % SHARDS].buckets[h / SHARDS % BUCKETS];
    while (*link != NULL && *link != handle)
        link = &(*link)->bucket_next;
    return link;
}

void sg_handle_add(struct sg_object *object, enum sg_kind kind, struct sg_context *context,
                   void (*finish)(struct sg_object *))
{
    uint64_t h = hash(object);
    object->kind = kind;
    object->finish = finish;
    if (context != NULL) {
        object->context = context;
        object->generation = atomic_load(&context->generation);
        sg_acquire(&context->object);
    }
    atomic_init(&object->references, 1);
    pthread_mutex_lock(&shards[h % SHARDS].lock);
    struct sg_object **bucket = &shards[h % SHARDS].buckets[h / SHARDS % BUCKETS];
    object->bucket_next = *bucket;
    *bucket = object;
    pthread_mutex_unlock(&shards[h % SHARDS].lock);
}

void *sg_handle_get(const void *handle, enum sg_kind kind)
{
    if (handle == NULL)
        return NULL;
    uint64_t h = hash(handle);
    pthread_mutex_lock(&shards[h % SHARDS].lock);
    struct sg_object *object = *find(handle, h);
    if (object != NULL && object->kind == kind)
        sg_acquire(object);
    else
        object = NULL;
    pthread_mutex_unlock(&shards[h % SHARDS].lock);
    return object;
}

bool sg_object_lives(const struct sg_object *object)
{
    return atomic_load(&object->context->active) &&
           object->generation == atomic_load(&object->context->generation);
}

CUresult sg_handle_get_living(const void *handle, enum sg_kind kind, void **out)
{
    struct sg_object *object = sg_handle_get(handle, kind);
    if (object == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sg_object_lives(object)) {
        sg_release(object);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *out = object;
    return CUDA_SUCCESS;
}

bool sg_handle_remove(const void *handle, enum sg_kind kind)
{
    uint64_t h = hash(handle);
    pthread_mutex_lock(&shards[h % SHARDS].lock);
    struct sg_object **link = find(handle, h);
    bool found = handle != NULL && *link != NULL && (*link)->kind == kind;
    if (found)
        *link = (*link)->bucket_next;
    pthread_mutex_unlock(&shards[h % SHARDS].lock);
    return found;
}

void sg_release(struct sg_object *object)
{
    if (object == NULL || atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) != 1)
        return;
    struct sg_context *context = object->context;
    object->finish(object);
    if (context != NULL)
        sg_release(&context->object);
}
