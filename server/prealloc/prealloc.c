/*
 * prealloc.c - slabs and their blocks (slabs.h).
 *
 * The happy path: the client asks for a slab (rgMemPrealloc, or rgMemPreallocHints with its context), gets blocks, says that it has
 * taken one (rgMemTake), for which the next is made. What a program sees of its pools meanwhile is in pools.c, getting blocks back
 * when memory has run out in reclaim.c, freeing those that nobody wanted in deferred_free.c.
 */
#include "proto/prealloc.h"
#include "generated/server/execute.h"
#include "server/core/leader_followers.h"
#include "server/prealloc/pools.h"
#include "server/prealloc/reclaim.h"
#include "server/prealloc/slabs.h"

#include <stdlib.h>
#include <string.h>

#define FREE_SHARE 8 /* of what is free on the device, this part at most is made ready */
#define PAGE       4096ull

struct rg_slab **rg_slab_find(struct rg_worker *worker, uint64_t id)
{
    struct rg_slab **link = &rg_prealloc_of(worker)->slabs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

bool rg_slab_take(struct rg_slab *slab, CUdeviceptr address)
{
    unsigned index = 0;
    while (slab && index < slab->n && slab->blocks[index] != address)
        index++;
    if (!slab || index == slab->n)
        return false;
    slab->n--;
    memmove(&slab->blocks[index], &slab->blocks[index + 1], (slab->n - index) * sizeof *slab->blocks);
    return true;
}

static uint64_t held_on(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    for (const struct rg_slab *slab = rg_prealloc_of(worker)->slabs; slab; slab = slab->next)
        if (slab->device == device)
            held += slab->n * slab->bytes;
    return held + rg_deferred_free_held(&rg_prealloc_of(worker)->frees, device);
}

/* --- blocks --------------------------------------------------------------------------------------------- */

static CUresult make_block(const struct rg_slab *slab, CUstream stream, CUmemoryPool named,
                           struct rg_prealloc_block *out)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (slab->kind == RG_PREALLOC_LINEAR)
        result = rg_driver.cuMemAlloc_v2(&address, slab->size);
    else if (slab->kind == RG_PREALLOC_PITCHED)
        result = rg_driver.cuMemAllocPitch_v2(&address, &pitch, slab->size, slab->height, slab->element);
    else if (slab->kind == RG_PREALLOC_ORDERED && named)
        result = rg_driver.cuMemAllocFromPoolAsync(&address, slab->size, named, stream);
    else if (slab->kind == RG_PREALLOC_ORDERED)
        result = rg_driver.cuMemAllocAsync(&address, slab->size, stream);
    *out = (struct rg_prealloc_block){address, pitch};
    return result;
}

/* What a block takes of the device: whole pages. Drivers take larger pieces, which small blocks share. */
static uint64_t bytes_of(const struct rg_slab *slab, uint64_t pitch)
{
    uint64_t size = slab->size;
    if (slab->kind == RG_PREALLOC_PITCHED && __builtin_mul_overflow(pitch, (uint64_t)slab->height, &size))
        return UINT64_MAX;
    return size > UINT64_MAX - PAGE ? UINT64_MAX : (size + PAGE - 1) & ~(PAGE - 1);
}

/* Makes up to `count` blocks, as far as there is memory to spare; returns how many. */
static unsigned make_blocks(struct rg_worker *worker, struct rg_slab *slab, CUstream stream,
                            CUmemoryPool named, unsigned count, struct rg_prealloc_block *blocks)
{
    unsigned made = 0;
    size_t before = 0, total;
    const bool known = rg_driver.cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS;
    const uint64_t held = held_on(worker, slab->device);
    uint64_t spare = (before + held) / FREE_SHARE;
    spare = known && spare > held ? spare - held : 0;
    const bool ordered = slab->kind == RG_PREALLOC_ORDERED;
    if (ordered)
        rg_worker_memory_of_pools(worker);
    if (ordered && (!slab->pool || !rg_prealloc_pool_keep(worker, slab->pool)))
        spare = 0;
    while (made < count && slab->n < RG_PREALLOC_MAX && slab->bytes <= spare &&
           make_block(slab, stream, named, &blocks[made]) == CUDA_SUCCESS) {
        slab->bytes = bytes_of(slab, blocks[made].pitch);
        slab->blocks[slab->n++] = blocks[made++].address;
        spare -= slab->bytes < spare ? slab->bytes : spare;
    }
    return made;
}

/* The same, and tells the client of them. */
static void refill(struct rg_request *request, struct rg_slab *slab, CUstream stream, CUmemoryPool named,
                   unsigned count)
{
    struct rg_worker *worker = request->worker;
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const unsigned made = make_blocks(worker, slab, stream, named, count, blocks);
    struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = slab->id, .arg = {made, count - made, 0}};
    (void)rg_worker_notice(worker, &notice, blocks, made * sizeof *blocks, NULL, 0);
}

void rg_slab_free_block(struct rg_worker *worker, const struct rg_slab *slab, CUdeviceptr address)
{
    const struct rg_object *entry = rg_objects_find(&worker->objects, slab->context);
    const bool current = entry && rg_driver.cuCtxSetCurrent(entry->object) == CUDA_SUCCESS;
    rg_context_unknown();
    if (current && slab->kind != RG_PREALLOC_ORDERED && !rg_context_idle(worker, entry->extra))
        rg_deferred_free_add(&rg_prealloc_of(worker)->frees, entry->extra, slab->device, address,
                             slab->bytes);
    else if (current)
        (void)rg_driver.cuMemFree_v2(address);
    rg_worker_memory_ended(worker);
}

/* --- operations ----------------------------------------------------------------------------------------- */

/* A new slab of the client thread's context, which is current; NULL: there are too many. */
static struct rg_slab *add_slab(struct rg_request *request, const struct rg_prealloc_hint *hint)
{
    struct rg_worker *worker = request->worker;
    struct rg_slab *slab =
        rg_prealloc_of(worker)->n_slabs < RG_PREALLOC_SLABS_MAX ? calloc(1, sizeof *slab) : NULL;
    if (!slab)
        return NULL;
    *slab = (struct rg_slab){.next = rg_prealloc_of(worker)->slabs,
                             .id = hint->slab_id,
                             .context = request->thread->context,
                             .kind = hint->kind,
                             .element = hint->element,
                             .size = hint->size,
                             .height = hint->height};
    slab->bytes = bytes_of(slab, hint->size); /* at least; of pitched memory it is known from the first on */
    (void)rg_driver.cuCtxGetDevice(&slab->device);
    rg_prealloc_of(worker)->slabs = slab;
    rg_prealloc_of(worker)->n_slabs++;
    return slab;
}

CUresult rg_execute_rgMemPrealloc(struct rg_request *request, unsigned long long id, unsigned int kind,
                                  size_t size, size_t height, unsigned int element, CUstream stream,
                                  CUmemoryPool pool, unsigned int count)
{
    struct rg_worker *worker = request->worker;
    if (kind > RG_PREALLOC_ORDERED || count > RG_PREALLOC_MAX || !size) {
        rg_request_violation(request, "memory of kind %u", kind);
        return CUDA_ERROR_UNKNOWN;
    }
    struct rg_slab *slab = *rg_slab_find(worker, id);
    if (!slab) {
        const struct rg_prealloc_hint hint = {
            .slab_id = id, .size = size, .height = height, .kind = kind, .element = element};
        slab = add_slab(request, &hint);
        if (!slab) {
            struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = id, .arg = {0, count, 0}};
            (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
            return CUDA_SUCCESS;
        }
        if (kind == RG_PREALLOC_ORDERED)
            slab->pool = rg_prealloc_pool_meant(pool);
    }
    refill(request, slab, stream, pool, count);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemPreallocHints(struct rg_request *request, size_t size, const void *hints)
{
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const size_t n = size / sizeof(struct rg_prealloc_hint);
    for (size_t i = 0; i < n; i++) {
        struct rg_prealloc_hint hint;
        memcpy(&hint, (const unsigned char *)hints + i * sizeof hint, sizeof hint);
        if (n > RG_PREALLOC_HINTS || size % sizeof hint || hint.kind > RG_PREALLOC_PITCHED ||
            hint.count > RG_PREALLOC_MAX || !hint.size || *rg_slab_find(request->worker, hint.slab_id)) {
            rg_request_violation(request, "memory of kind %u is hinted", hint.kind);
            return CUDA_ERROR_UNKNOWN;
        }
        struct rg_slab *slab = add_slab(request, &hint);
        const uint64_t made = slab ? make_blocks(request->worker, slab, NULL, NULL, hint.count, blocks) : 0;
        rg_request_output(request, &made, sizeof made);
        rg_request_output(request, blocks, made * sizeof *blocks);
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemTake(struct rg_request *request, unsigned long long id, CUdeviceptr address,
                              CUstream stream, CUmemoryPool pool, unsigned int count)
{
    struct rg_slab *slab = *rg_slab_find(request->worker, id);
    if (count > RG_PREALLOC_MAX || !rg_slab_take(slab, address)) {
        rg_request_violation(request, "memory is taken that was not offered");
        return CUDA_ERROR_UNKNOWN;
    }
    rg_prealloc_pool_note_use(request->worker, slab->pool);
    if (count)
        refill(request, slab, stream, pool, count);
    return CUDA_SUCCESS;
}

/* Takes the slab at `link` out of the list. */
static void forget(struct rg_worker *worker, struct rg_slab **link)
{
    struct rg_slab *slab = *link;
    *link = slab->next;
    rg_prealloc_of(worker)->n_slabs--;
    free(slab);
}

CUresult rg_execute_rgMemReturn(struct rg_request *request, unsigned long long id)
{
    struct rg_slab **link = rg_slab_find(request->worker, id), *slab = *link;
    if (!slab)
        return CUDA_SUCCESS; /* it went with its context */
    for (unsigned i = 0; i < slab->n; i++)
        rg_slab_free_block(request->worker, slab, slab->blocks[i]);
    if (slab->n)
        rg_prealloc_pool_trim(request->worker, slab->pool);
    forget(request->worker, link);
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuMemGetInfo_v2(struct rg_request *request, size_t *free_bytes, size_t *total)
{
    CUdevice device;
    uint64_t freed;
    CUresult result;
    do { /* until nothing has been freed between the two */
        freed = rg_deferred_free_count(&rg_prealloc_of(request->worker)->frees);
        result = rg_driver.cuMemGetInfo_v2(free_bytes, total);
        if (result == CUDA_SUCCESS && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
            *free_bytes += held_on(request->worker, device);
    } while (rg_deferred_free_count(&rg_prealloc_of(request->worker)->frees) != freed);
    return result;
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

/* With what was ready in it. */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *state)
{
    struct rg_prealloc *prealloc = rg_prealloc_of(worker);
    (void)rg_deferred_free_wait(&prealloc->frees, state->handle);
    for (struct rg_slab **link = &prealloc->slabs; *link;) {
        struct rg_slab *slab = *link;
        if (slab->context != state->handle) {
            link = &slab->next;
            continue;
        }
        if (slab->kind == RG_PREALLOC_ORDERED) /* it is the pool's, and would stay */
            for (unsigned i = 0; i < slab->n; i++)
                (void)rg_driver.cuMemFree_v2(slab->blocks[i]);
        forget(worker, link);
    }
}

static void init(struct rg_worker *worker)
{
    struct rg_prealloc *prealloc = rg_prealloc_of(worker);
    rg_reclaim_init(&prealloc->reclaim);
    rg_deferred_free_init(&prealloc->frees, worker);
}

static void wake(struct rg_worker *worker)
{
    struct rg_prealloc *prealloc = rg_prealloc_of(worker);
    rg_reclaim_wake(prealloc);
    rg_deferred_free_wake(&prealloc->frees);
}

static void stop(struct rg_worker *worker)
{
    rg_deferred_free_join(&rg_prealloc_of(worker)->frees);
}

static void fini(struct rg_worker *worker)
{
    struct rg_prealloc *prealloc = rg_prealloc_of(worker);
    rg_reclaim_fini(&prealloc->reclaim);
    while (prealloc->slabs)
        forget(worker, &prealloc->slabs);
    rg_prealloc_pools_fini(prealloc);
    rg_deferred_free_fini(&prealloc->frees);
}

static bool busy(struct rg_worker *worker)
{
    return rg_deferred_free_any(&rg_prealloc_of(worker)->frees);
}

const struct rg_server_module rg_prealloc_module = {
    .size = sizeof(struct rg_prealloc),
    .locked = true,
    .init = init,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .drop_context = drop_context,
    .busy = busy,
    .reclaim = rg_reclaim_ready,
    .answer = rg_reclaim_answered,
};
