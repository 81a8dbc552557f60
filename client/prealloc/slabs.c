/* slabs.c - see slabs.h. */
#include "client/prealloc/slabs.h"

#include "client/core/future.h"
#include "client/core/thread.h"

#include <stdlib.h>

#define SLABS_MAX 1024u

struct rg_slabs rg_slabs = {.order = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t thread_of(const struct rg_prealloc_key *key)
{
    const struct rg_thread *thread = rg_thread_if_any();
    return key->stream == CU_STREAM_PER_THREAD && thread ? thread->number + 1 : 0;
}

static uint64_t hash_of(const struct rg_prealloc_key *key, uint64_t context)
{
    return (key->size * 0x9E3779B97F4A7C15ull) ^ (key->height * 0xC2B2AE3D27D4EB4Full) ^
           ((uint64_t)(uintptr_t)key->stream << 7) ^ context ^ (uint64_t)key->kind;
}

struct rg_slab *rg_slabs_after(const struct rg_slab *at)
{
    return (struct rg_slab *)rg_hash_table_after(&rg_slabs.table, at ? &at->link : NULL);
}

struct rg_slab *rg_slabs_find(const struct rg_prealloc_key *key, uint64_t context)
{
    struct rg_hash_link *at = rg_hash_table_first(&rg_slabs.table, hash_of(key, context));
    for (; at; at = rg_hash_table_next(at)) {
        struct rg_slab *slab = (struct rg_slab *)at;
        if (slab->context == context && slab->key.kind == key->kind && slab->key.size == key->size &&
            slab->key.height == key->height && slab->key.element == key->element &&
            slab->key.stream == key->stream && slab->key.pool == key->pool && slab->thread == thread_of(key))
            return slab;
    }
    return NULL;
}

void rg_slabs_remove(struct rg_slab *slab)
{
    rg_hash_table_remove(&rg_slabs.table, &slab->link);
    free(slab);
}

struct rg_slab *rg_slabs_find_id(const struct rg_session *session, uint64_t slab_id)
{
    struct rg_slab *slab = rg_slabs_after(NULL);
    while (slab && (slab->slab_id != slab_id || slab->session != session))
        slab = rg_slabs_after(slab);
    return slab;
}

void rg_slab_drop_future(struct rg_slab *slab)
{
    if (!slab->future)
        return;
    rg_future_release(slab->future);
    slab->future = NULL;
    atomic_fetch_sub(&rg_slabs.awaited, 1);
}

/* Makes room: of what was asked for, and is not made ready, nothing is remembered. Both locks are held. */
static void forget_idle(void)
{
    for (struct rg_slab *at = rg_slabs_after(NULL), *next; at; at = next) {
        next = rg_slabs_after(at);
        if (!at->slab_id)
            rg_slabs_remove(at);
    }
}

struct rg_slab *rg_slabs_add(const struct rg_prealloc_key *key, struct rg_session *session)
{
    const uint64_t context = rg_context_current_owner();
    struct rg_slab *slab = rg_slabs_find(key, context);
    if (slab)
        return slab;
    if (rg_slabs.table.n == SLABS_MAX)
        forget_idle();
    slab = rg_slabs.table.n < SLABS_MAX ? calloc(1, sizeof *slab) : NULL;
    if (!slab)
        return NULL;
    *slab = (struct rg_slab){.key = *key, .session = session, .context = context, .thread = thread_of(key)};
    rg_hash_table_add(&rg_slabs.table, &slab->link, hash_of(key, context));
    return slab;
}
