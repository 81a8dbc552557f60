/*
 * handle.c - which addresses are handles: a hash table of live objects.
 *
 * A handle that was never given out, was destroyed or is of another kind is refused without being read. Any
 * thread; the table's lock is held for a few instructions only.
 */

#include "common/base/log_limit.h"
#include "common/cuda/errors.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/driver.h"

#define SHARDS 16

static struct shard {
    pthread_mutex_t lock;
    struct rg_hash_table living; /* by address */
} shards[SHARDS];

static void __attribute__((constructor)) start_locks(void)
{
    rg_log_name("remote-gpu: softgpu");
    if (secure_getenv("SOFTGPU_LOG_LIMIT") != NULL) /* a server's worker: what it says is a client's doing */
        rg_log_limit_process(RG_LOG_PROCESS_LINES);
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].lock, NULL);
}

static struct shard *shard_of(const void *handle)
{
    return &shards[((uintptr_t)handle >> 6) % SHARDS];
}

/* The object, if it is one of the kind. Lock held. */
static struct sg_object *find(struct shard *shard, const void *handle, enum sg_kind kind)
{
    struct sg_object *object = (struct sg_object *)rg_hash_table_first(&shard->living, (uintptr_t)handle);
    return object != NULL && object->kind == kind ? object : NULL;
}

void sg_handle_add(struct sg_object *object, enum sg_kind kind, struct sg_context *context,
                   void (*finish)(struct sg_object *))
{
    struct shard *shard = shard_of(object);
    object->kind = kind;
    object->finish = finish;
    if (context != NULL) {
        object->context = context;
        object->generation = atomic_load(&context->generation);
        sg_acquire(&context->object);
    }
    atomic_init(&object->references, 1);
    RG_SCOPED_LOCK(&shard->lock);
    rg_hash_table_add(&shard->living, &object->link, (uintptr_t)object);
}

void *sg_handle_get(const void *handle, enum sg_kind kind)
{
    struct shard *shard = shard_of(handle);
    RG_SCOPED_LOCK(&shard->lock);
    struct sg_object *object = find(shard, handle, kind);
    if (object != NULL)
        sg_acquire(object);
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
        return rg_cuda_no_object(handle);
    if (!sg_object_lives(object)) {
        sg_release(object);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *out = object;
    return CUDA_SUCCESS;
}

bool sg_handle_remove(const void *handle, enum sg_kind kind)
{
    struct shard *shard = shard_of(handle);
    RG_SCOPED_LOCK(&shard->lock);
    struct sg_object *object = find(shard, handle, kind);
    if (object != NULL)
        rg_hash_table_remove(&shard->living, &object->link);
    return object != NULL;
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
