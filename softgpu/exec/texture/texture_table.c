/*
 * texture_table.c - the table of texture and surface objects. See texture.h. Any thread; look-ups take no
 * lock.
 */
#include "common/sync/scoped_lock.h"
#include "softgpu/exec/texture/texture.h"
#include "softgpu/kernel_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define INDEX_BITS 20
#define CHUNK_BITS 8
#define CHUNK      (1u << CHUNK_BITS)
#define CHUNKS     (1u << (INDEX_BITS - CHUNK_BITS))

struct slot {
    _Atomic uint64_t handle; /* 0 while unused; published last with release */
    uint32_t generation;
    uint32_t next_free; /* index, or 0 */
    void *user;
    struct sg_texture texture;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *_Atomic chunks[CHUNKS];
static uint32_t n_slots = 1; /* slot 0 is never used */
static uint32_t free_list;

static struct slot *slot_at(uint64_t handle)
{
    const uint32_t index = (uint32_t)handle & ((1u << INDEX_BITS) - 1);
    struct slot *chunk = atomic_load_explicit(&chunks[index >> CHUNK_BITS], memory_order_acquire);
    return chunk != NULL ? &chunk[index & (CHUNK - 1)] : NULL;
}

static struct slot *find(uint64_t handle, bool surface)
{
    struct slot *slot = handle != 0 ? slot_at(handle) : NULL;
    if (slot == NULL || atomic_load_explicit(&slot->handle, memory_order_acquire) != handle ||
        slot->texture.surface != surface)
        return NULL;
    return slot;
}

/* A free slot and its index; lock held. */
static struct slot *take_slot(uint32_t *index)
{
    if (free_list != 0) {
        struct slot *slot = slot_at(free_list);
        *index = free_list;
        free_list = slot->next_free;
        return slot;
    }
    if (n_slots >> INDEX_BITS != 0)
        return NULL;
    if (slot_at(n_slots) == NULL) {
        struct slot *chunk = calloc(CHUNK, sizeof *chunk);
        if (chunk == NULL)
            return NULL;
        atomic_store_explicit(&chunks[n_slots >> CHUNK_BITS], chunk, memory_order_release);
    }
    *index = n_slots++;
    return slot_at(*index);
}

uint64_t sg_texture_register(const struct sg_texture *texture, void *user)
{
    uint64_t handle = 0;
    uint32_t index;
    RG_SCOPED_LOCK(&lock);
    struct slot *slot = take_slot(&index);
    if (slot != NULL) {
        slot->texture = *texture;
        sg_texture_choose(&slot->texture);
        slot->user = user;
        slot->generation = (slot->generation & 0xffffu) + 1;
        handle = (uint64_t)slot->generation << INDEX_BITS | index;
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
    }
    return handle;
}

void *sg_texture_user(uint64_t handle, bool surface, bool remove)
{
    void *user = NULL;
    RG_SCOPED_LOCK(&lock);
    struct slot *slot = find(handle, surface);
    if (slot != NULL)
        user = slot->user;
    if (slot != NULL && remove) {
        atomic_store_explicit(&slot->handle, 0, memory_order_release);
        slot->next_free = free_list;
        free_list = (uint32_t)handle & ((1u << INDEX_BITS) - 1);
    }
    return user;
}

const struct sg_texture *sg_texture_find(uint64_t handle, bool surface)
{
    const struct slot *slot = find(handle, surface);
    return slot != NULL ? &slot->texture : NULL;
}

static sg_texel4 no_sample(struct sg_thread *t, const struct sg_texture *x, float u, float v, float w,
                           int32_t layer)
{
    (void)x, (void)u, (void)v, (void)w, (void)layer;
    sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
}

static sg_texel4 no_fetch(struct sg_thread *t, const struct sg_texture *texture, int32_t x, int32_t y,
                          int32_t z, int32_t layer)
{
    (void)texture, (void)x, (void)y, (void)z, (void)layer;
    sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
}

const struct sg_texture *sg_rt_texture(uint64_t handle)
{
    static const struct sg_texture none = {.sample = {no_sample, no_sample, no_sample},
                                           .fetch = {no_fetch, no_fetch, no_fetch}};
    const struct slot *slot = find(handle, false);
    return slot != NULL ? &slot->texture : &none;
}
