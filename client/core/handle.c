/*
 * handle.c - the handle table: chunks of slots, a free list under a lock, look-ups without one.
 */
#include "client/core/handle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BITS 10
#define CHUNK_SIZE (1u << CHUNK_BITS)
#define CHUNKS     (RG_OBJECTS_MAX / CHUNK_SIZE)

struct slot {
    _Atomic uint64_t handle; /* 0 while unused; published last with release, pairs with acquire in find() */
    uint32_t generation;
    uint32_t next_free;
    _Atomic uint64_t home;
    atomic_bool orphan; /* its context is gone */
    struct rg_shadow shadow;
};

static struct slot *_Atomic chunks[CHUNKS]; /* published with release, pairs with acquire in slot_at() */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_slots = 1; /* slot 0 is never used */
static uint32_t free_list;   /* 0: none */

static struct slot *slot_at(uint32_t index)
{
    if (index >= RG_OBJECTS_MAX)
        return NULL;
    struct slot *chunk = atomic_load_explicit(&chunks[index >> CHUNK_BITS], memory_order_acquire);
    return chunk ? &chunk[index & (CHUNK_SIZE - 1)] : NULL;
}

static struct slot *find(enum rg_kind kind, uint64_t handle)
{
    if (rg_handle_kind(handle) != (unsigned)kind)
        return NULL;
    struct slot *slot = slot_at(rg_handle_index(handle));
    return slot && atomic_load_explicit(&slot->handle, memory_order_acquire) == handle ? slot : NULL;
}

/* A slot off the free list or a new one, and its index; the lock is held. */
static struct slot *take_slot(uint32_t *index)
{
    struct slot *slot = free_list ? slot_at(free_list) : NULL;
    if (slot) {
        *index = free_list;
        free_list = slot->next_free;
        return slot;
    }
    if (n_slots >= RG_OBJECTS_MAX)
        return NULL;
    if (!slot_at(n_slots)) {
        struct slot *chunk = calloc(CHUNK_SIZE, sizeof *chunk);
        if (!chunk)
            return NULL;
        atomic_store_explicit(&chunks[n_slots >> CHUNK_BITS], chunk, memory_order_release);
    }
    *index = n_slots++;
    return slot_at(*index);
}

uint64_t rg_handle_create(enum rg_kind kind)
{
    pthread_mutex_lock(&lock);
    uint32_t index;
    struct slot *slot = take_slot(&index);
    uint64_t handle = 0;
    if (slot) {
        memset(&slot->shadow, 0, sizeof slot->shadow);
        atomic_store_explicit(&slot->home, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->orphan, false, memory_order_relaxed);
        handle = rg_handle_make(kind, index, ++slot->generation);
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

struct rg_shadow *rg_handle_shadow(enum rg_kind kind, uint64_t handle)
{
    struct slot *slot = find(kind, handle);
    return slot ? &slot->shadow : NULL;
}

void rg_handle_set_home(uint64_t handle, uint64_t home)
{
    struct slot *slot = find((enum rg_kind)rg_handle_kind(handle), handle);
    if (slot)
        atomic_store_explicit(&slot->home, home, memory_order_relaxed);
}

uint64_t rg_handle_home(enum rg_kind kind, uint64_t handle)
{
    struct slot *slot = find(kind, handle);
    return slot ? atomic_load_explicit(&slot->home, memory_order_relaxed) : 0;
}

static void release_slot(struct slot *slot, uint32_t index)
{
    atomic_store_explicit(&slot->handle, 0, memory_order_release);
    slot->next_free = free_list;
    free_list = index;
}

void rg_handle_delete(enum rg_kind kind, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct slot *slot = find(kind, handle);
    if (slot)
        release_slot(slot, rg_handle_index(handle));
    pthread_mutex_unlock(&lock);
}

bool rg_handle_known(enum rg_kind kind, uint64_t handle)
{
    if (kind == RG_KIND_STREAM && handle <= (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD)
        return true;
    const struct slot *slot = find(kind, handle);
    return slot ? !atomic_load_explicit(&slot->orphan, memory_order_relaxed)
                : kind == RG_KIND_FUNCTION && find(RG_KIND_KERNEL, handle);
}

bool rg_handle_orphaned(enum rg_kind kind, uint64_t handle)
{
    const struct slot *slot = find(kind, handle);
    return slot && atomic_load_explicit(&slot->orphan, memory_order_relaxed);
}

CUresult rg_handle_check(enum rg_kind kind, uint64_t handle, CUresult unknown)
{
    if (rg_handle_known(kind, handle))
        return CUDA_SUCCESS;
    return rg_handle_orphaned(kind, handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : unknown;
}

void rg_handle_orphan_context(uint64_t context)
{
    pthread_mutex_lock(&lock);
    for (uint32_t index = 1; index < n_slots; index++) {
        struct slot *slot = slot_at(index);
        const unsigned kind = rg_handle_kind(atomic_load_explicit(&slot->handle, memory_order_relaxed));
        if ((kind == RG_KIND_STREAM && slot->shadow.stream.context == context) ||
            (kind == RG_KIND_EVENT && slot->shadow.event.context == context) ||
            (kind == RG_KIND_LINK && slot->shadow.link.context == context))
            atomic_store_explicit(&slot->orphan, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

CUresult rg_handle_found(enum rg_kind kind, uint64_t proposed, uint64_t actual, CUresult status)
{
    if (status != CUDA_SUCCESS || actual != proposed)
        rg_handle_delete(kind, proposed);
    if (status == CUDA_SUCCESS && !find(kind, actual))
        return CUDA_ERROR_UNKNOWN;
    return status;
}

size_t rg_handle_list(enum rg_kind kind, uint64_t after, uint64_t *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t index = rg_handle_index(after) + 1; index < n_slots && n < max; index++) {
        uint64_t handle = atomic_load_explicit(&slot_at(index)->handle, memory_order_relaxed);
        if (handle && rg_handle_kind(handle) == (unsigned)kind)
            out[n++] = handle;
    }
    pthread_mutex_unlock(&lock);
    return n;
}
