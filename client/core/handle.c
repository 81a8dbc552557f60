/*
 * handle.c - the handle table: chunks of slots, a free list under a lock, look-ups without one.
 */
#include "client/core/handle.h"

#include "common/cuda/errors.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BITS 10
#define CHUNK_SIZE (1u << CHUNK_BITS)
#define CHUNKS     (RG_OBJECTS_MAX / CHUNK_SIZE)

struct slot {
    _Atomic uint64_t
        handle; /* 0 while unused; published last with release, pairs with acquire in rg_handle_shadow */
    uint32_t generation;
    uint32_t next_free;
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
    RG_SCOPED_LOCK(&lock);
    uint32_t index;
    struct slot *slot = take_slot(&index);
    uint64_t handle = 0;
    if (slot) {
        memset(&slot->shadow, 0, sizeof slot->shadow);
        handle = rg_handle_make(kind, index, ++slot->generation);
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
    }
    return handle;
}

struct rg_shadow *rg_handle_shadow(enum rg_kind kind, uint64_t handle)
{
    if (rg_handle_kind(handle) != (unsigned)kind)
        return NULL;
    struct slot *slot = slot_at(rg_handle_index(handle));
    return slot && atomic_load_explicit(&slot->handle, memory_order_acquire) == handle ? &slot->shadow : NULL;
}

void rg_handle_set_home(uint64_t handle, uint64_t home)
{
    struct rg_shadow *shadow = rg_handle_shadow((enum rg_kind)rg_handle_kind(handle), handle);
    if (shadow)
        atomic_store_explicit(&shadow->home, home, memory_order_relaxed);
}

uint64_t rg_handle_home(enum rg_kind kind, uint64_t handle)
{
    const struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
    return shadow ? atomic_load_explicit(&shadow->home, memory_order_relaxed) : 0;
}

void rg_handle_delete(enum rg_kind kind, uint64_t handle)
{
    RG_SCOPED_LOCK(&lock);
    if (rg_handle_shadow(kind, handle)) {
        struct slot *slot = slot_at(rg_handle_index(handle));
        atomic_store_explicit(&slot->handle, 0, memory_order_release);
        slot->next_free = free_list;
        free_list = rg_handle_index(handle);
    }
}

/* What may be said of an object by its shadow, NULL if there is none. */
static CUresult state_of(enum rg_kind kind, uint64_t handle, const struct rg_shadow *shadow, CUresult unknown)
{
    if (!shadow)
        return kind == RG_KIND_STREAM || kind == RG_KIND_EVENT || kind == RG_KIND_ARRAY ||
                       kind == RG_KIND_MIPMAP
                   ? rg_cuda_no_object((const void *)(uintptr_t)handle)
                   : unknown;
    return atomic_load_explicit(&shadow->orphan, memory_order_relaxed) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                       : CUDA_SUCCESS;
}

CUresult rg_handle_check(enum rg_kind kind, uint64_t handle, CUresult unknown)
{
    if (kind == RG_KIND_STREAM && rg_stream_is_default((CUstream)handle))
        return CUDA_SUCCESS;
    const struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
    if (!shadow && kind == RG_KIND_FUNCTION)
        shadow = rg_handle_shadow(RG_KIND_KERNEL, handle);
    return state_of(kind, handle, shadow, unknown);
}

CUresult rg_handle_live(enum rg_kind kind, uint64_t handle, const struct rg_shadow **shadow)
{
    *shadow = rg_handle_shadow(kind, handle);
    return state_of(kind, handle, *shadow, CUDA_ERROR_INVALID_HANDLE);
}

bool rg_handle_known(enum rg_kind kind, uint64_t handle)
{
    return rg_handle_check(kind, handle, CUDA_ERROR_INVALID_HANDLE) == CUDA_SUCCESS;
}

bool rg_handle_orphaned(enum rg_kind kind, uint64_t handle)
{
    const struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
    return shadow && atomic_load_explicit(&shadow->orphan, memory_order_relaxed);
}

void rg_handle_orphan_context(uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
    for (uint32_t index = 1; index < n_slots; index++) {
        struct slot *slot = slot_at(index);
        const unsigned kind = rg_handle_kind(atomic_load_explicit(&slot->handle, memory_order_relaxed));
        if ((kind == RG_KIND_STREAM && slot->shadow.stream.context == context) ||
            (kind == RG_KIND_EVENT && slot->shadow.event.context == context) ||
            (kind == RG_KIND_LINK && slot->shadow.link.context == context) ||
            ((kind == RG_KIND_ARRAY || kind == RG_KIND_MIPMAP) &&
             atomic_load_explicit(&slot->shadow.home, memory_order_relaxed) == context))
            atomic_store_explicit(&slot->shadow.orphan, true, memory_order_relaxed);
    }
}

CUresult rg_handle_made(enum rg_kind kind, uint64_t handle, CUresult status, void *out)
{
    if (status == CUDA_SUCCESS)
        memcpy(out, &handle, sizeof handle);
    else
        rg_handle_delete(kind, handle);
    return status;
}

CUresult rg_handle_found(enum rg_kind kind, uint64_t proposed, uint64_t actual, CUresult status)
{
    if (status != CUDA_SUCCESS || actual != proposed)
        rg_handle_delete(kind, proposed);
    if (status == CUDA_SUCCESS && !rg_handle_shadow(kind, actual))
        return CUDA_ERROR_UNKNOWN;
    return status;
}

size_t rg_handle_list(enum rg_kind kind, uint64_t after, uint64_t *out, size_t max)
{
    size_t n = 0;
    RG_SCOPED_LOCK(&lock);
    for (uint32_t index = rg_handle_index(after) + 1; index < n_slots && n < max; index++) {
        uint64_t handle = atomic_load_explicit(&slot_at(index)->handle, memory_order_relaxed);
        if (handle && rg_handle_kind(handle) == (unsigned)kind)
            out[n++] = handle;
    }
    return n;
}
