/* prealloc.c - slabs, their blocks, and what is said of memory meanwhile. See prealloc.h. */
#include "server/prealloc/prealloc.h"

#include "common/base/log.h"
#include "generated/server/execute.h"
#include "proto/prealloc.h"
#include "server/core/leader_followers.h"
#include "server/prealloc/deferred_free.h"

#include <stdlib.h>
#include <string.h>

#define SLABS_MAX  4096
#define FREE_SHARE 8 /* of what is free on the device, this part at most is made ready */
#define PAGE       4096ull

struct rg_slab {
    struct rg_slab *next;
    uint64_t id;
    uint64_t context;
    CUdevice device;
    CUmemoryPool pool; /* of stream-ordered memory */
    uint32_t kind, element;
    size_t size, height;
    uint64_t bytes; /* of a block, in whole pages */
    unsigned n;
    CUdeviceptr blocks[RG_PREALLOC_MAX];
};

/* A pool that memory was made ready of: its own high mark counts that too. */
struct rg_prealloc_pool {
    struct rg_prealloc_pool *next;
    CUmemoryPool pool;
    uint64_t high;
};

static struct rg_slab **find(struct rg_worker *worker, uint64_t id)
{
    struct rg_slab **link = &worker->slabs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

static uint64_t held_on(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    for (const struct rg_slab *slab = worker->slabs; slab; slab = slab->next)
        if (slab->device == device)
            held += slab->n * slab->bytes;
    return held + rg_deferred_free_held(worker, device);
}

/* --- pools ------------------------------------------------------------------------------------------------------- */

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t number = 0;
    if (!rg_driver.cuMemPoolGetAttribute ||
        rg_driver.cuMemPoolGetAttribute(pool, attribute, &number) != CUDA_SUCCESS)
        return 0;
    return number;
}

static struct rg_prealloc_pool *find_pool(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = worker->prealloc_pools;
    while (known && known->pool != pool)
        known = known->next;
    return known;
}

/* Bytes of the pool that the program uses; what is ready counts in whole pages. */
static uint64_t pool_used(const struct rg_worker *worker, CUmemoryPool pool)
{
    uint64_t ready = 0;
    for (const struct rg_slab *slab = worker->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            ready += slab->n * slab->bytes;
    const uint64_t used = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    return used > ready ? used - ready : 0;
}

/* The program may use more of the pool than ever before. */
static void note_high(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = pool ? find_pool(worker, pool) : NULL;
    const uint64_t used = known ? pool_used(worker, pool) : 0;
    if (known && used > known->high)
        known->high = used;
}

/* From now on the high mark is kept here. */
static bool keep_high(struct rg_worker *worker, CUmemoryPool pool)
{
    if (find_pool(worker, pool))
        return true;
    struct rg_prealloc_pool *known = malloc(sizeof *known);
    if (!known)
        return false;
    *known = (struct rg_prealloc_pool){.next = worker->prealloc_pools,
                                       .pool = pool,
                                       .high = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)};
    worker->prealloc_pools = known;
    return true;
}

bool rg_prealloc_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct rg_prealloc_pool *known = find_pool(worker, pool);
    if (known)
        *high = known->high;
    return known != NULL;
}

void rg_prealloc_pool_reset(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_prealloc_pool *known = find_pool(worker, pool);
    if (known)
        known->high = pool_used(worker, pool);
}

/* The pool that cuMemAllocAsync takes from; NULL: not known. */
static CUmemoryPool pool_meant(CUmemoryPool pool)
{
    CUdevice device;
    if (!pool && rg_driver.cuDeviceGetMemPool && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        rg_driver.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

CUresult rg_execute_cuMemAllocAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                    CUstream stream)
{
    if (!rg_driver.cuMemAllocAsync)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemAllocAsync(dptr, bytesize, stream);
    if (result == CUDA_SUCCESS && request->worker->prealloc_pools)
        note_high(request->worker, pool_meant(NULL));
    return result;
}

CUresult rg_execute_cuMemAllocFromPoolAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                            CUmemoryPool pool, CUstream stream)
{
    if (!rg_driver.cuMemAllocFromPoolAsync)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, stream);
    if (result == CUDA_SUCCESS && request->worker->prealloc_pools)
        note_high(request->worker, pool);
    return result;
}

/* The next pool may have the address of one that ends. */
CUresult rg_execute_cuMemPoolDestroy(struct rg_request *request, CUmemoryPool pool)
{
    if (!rg_driver.cuMemPoolDestroy)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (struct rg_prealloc_pool **link = &request->worker->prealloc_pools; *link; link = &(*link)->next)
        if ((*link)->pool == pool) {
            struct rg_prealloc_pool *gone = *link;
            *link = gone->next;
            free(gone);
            break;
        }
    for (struct rg_slab *slab = request->worker->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            slab->pool = NULL; /* the client was to return it first */
    return rg_driver.cuMemPoolDestroy(pool);
}

/* --- blocks -------------------------------------------------------------------------------------------------------- */

static CUresult make_block(const struct rg_slab *slab, CUstream stream, CUmemoryPool named,
                           struct rg_prealloc_block *out)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (slab->kind == RG_PREALLOC_LINEAR && rg_driver.cuMemAlloc_v2)
        result = rg_driver.cuMemAlloc_v2(&address, slab->size);
    else if (slab->kind == RG_PREALLOC_PITCHED && rg_driver.cuMemAllocPitch_v2)
        result = rg_driver.cuMemAllocPitch_v2(&address, &pitch, slab->size, slab->height, slab->element);
    else if (slab->kind == RG_PREALLOC_ORDERED && named && rg_driver.cuMemAllocFromPoolAsync)
        result = rg_driver.cuMemAllocFromPoolAsync(&address, slab->size, named, stream);
    else if (slab->kind == RG_PREALLOC_ORDERED && !named && rg_driver.cuMemAllocAsync)
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
    const bool known =
        rg_driver.cuMemGetInfo_v2 && rg_driver.cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS;
    const uint64_t held = held_on(worker, slab->device);
    uint64_t spare = (before + held) / FREE_SHARE;
    spare = known && spare > held ? spare - held : 0;
    const bool ordered = slab->kind == RG_PREALLOC_ORDERED;
    if (ordered && (!slab->pool || !keep_high(worker, slab->pool)))
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

/*
 * Frees a block that nobody has used. The program has not asked for that, and must not be held up by it: cuMemFree may wait
 * for all that the device has to do, except of memory of pools; then another thread calls it.
 */
static void free_block(struct rg_worker *worker, const struct rg_slab *slab, CUdeviceptr address)
{
    const struct rg_object *entry = rg_objects_find(&worker->objects, slab->context);
    const bool current = entry && rg_driver.cuCtxSetCurrent(entry->object) == CUDA_SUCCESS;
    rg_context_unknown();
    if (current && slab->kind != RG_PREALLOC_ORDERED && !rg_context_idle(worker, entry->extra))
        rg_deferred_free_add(worker, entry->extra, slab->device, address, slab->bytes);
    else if (current && rg_driver.cuMemFree_v2)
        (void)rg_driver.cuMemFree_v2(address);
}

/* --- operations -------------------------------------------------------------------------------------------------------- */

/* A new slab of the client thread's context, which is current; NULL: there are too many. */
static struct rg_slab *add_ticket(struct rg_request *request, const struct rg_prealloc_hint *wish)
{
    struct rg_worker *worker = request->worker;
    struct rg_slab *slab = worker->n_slabs < SLABS_MAX ? calloc(1, sizeof *slab) : NULL;
    if (!slab)
        return NULL;
    *slab = (struct rg_slab){.next = worker->slabs,
                             .id = wish->ticket,
                             .context = request->thread->context,
                             .kind = wish->kind,
                             .element = wish->element,
                             .size = wish->size,
                             .height = wish->height};
    slab->bytes = bytes_of(slab, wish->size); /* at least; of pitched memory it is known from the first on */
    (void)rg_driver.cuCtxGetDevice(&slab->device);
    worker->slabs = slab;
    worker->n_slabs++;
    return slab;
}

CUresult rg_execute_rgMemAhead(struct rg_request *request, unsigned long long id, unsigned int kind,
                               size_t size, size_t height, unsigned int element, CUstream stream,
                               CUmemoryPool pool, unsigned int count)
{
    struct rg_worker *worker = request->worker;
    if (kind > RG_PREALLOC_ORDERED || count > RG_PREALLOC_MAX || !size) {
        rg_request_violation(request, "memory of kind %u", kind);
        return CUDA_ERROR_UNKNOWN;
    }
    struct rg_slab *slab = *find(worker, id);
    if (!slab) {
        const struct rg_prealloc_hint wish = {
            .ticket = id, .size = size, .height = height, .kind = kind, .element = element};
        slab = add_ticket(request, &wish);
        if (!slab) {
            struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = id, .arg = {0, count, 0}};
            (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
            return CUDA_SUCCESS;
        }
        if (kind == RG_PREALLOC_ORDERED)
            slab->pool = pool_meant(pool);
    }
    refill(request, slab, stream, pool, count);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemForesee(struct rg_request *request, size_t size, const void *wishes)
{
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const size_t n = size / sizeof(struct rg_prealloc_hint);
    for (size_t i = 0; i < n; i++) {
        struct rg_prealloc_hint wish;
        memcpy(&wish, (const unsigned char *)wishes + i * sizeof wish, sizeof wish);
        if (n > RG_PREALLOC_HINTS || size % sizeof wish || wish.kind > RG_PREALLOC_PITCHED ||
            wish.count > RG_PREALLOC_MAX || !wish.size || *find(request->worker, wish.ticket)) {
            rg_request_violation(request, "memory of kind %u is wished for", wish.kind);
            return CUDA_ERROR_UNKNOWN;
        }
        struct rg_slab *slab = add_ticket(request, &wish);
        const uint64_t made = slab ? make_blocks(request->worker, slab, NULL, NULL, wish.count, blocks) : 0;
        rg_request_output(request, &made, sizeof made);
        rg_request_output(request, blocks, made * sizeof *blocks);
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemTake(struct rg_request *request, unsigned long long id, CUdeviceptr address,
                              CUstream stream, CUmemoryPool pool, unsigned int count)
{
    struct rg_slab *slab = *find(request->worker, id);
    unsigned index = 0;
    while (slab && index < slab->n && slab->blocks[index] != address)
        index++;
    if (!slab || index == slab->n || count > RG_PREALLOC_MAX) {
        rg_request_violation(request, "memory is taken that was not offered");
        return CUDA_ERROR_UNKNOWN;
    }
    slab->n--;
    memmove(&slab->blocks[index], &slab->blocks[index + 1], (slab->n - index) * sizeof *slab->blocks);
    note_high(request->worker, slab->pool);
    if (count)
        refill(request, slab, stream, pool, count);
    return CUDA_SUCCESS;
}

/* Takes the slab at `link` out of the list. */
static void forget(struct rg_worker *worker, struct rg_slab **link)
{
    struct rg_slab *slab = *link;
    *link = slab->next;
    worker->n_slabs--;
    free(slab);
}

CUresult rg_execute_rgMemReturn(struct rg_request *request, unsigned long long id)
{
    struct rg_slab **link = find(request->worker, id), *slab = *link;
    if (!slab)
        return CUDA_SUCCESS; /* it went with its context */
    for (unsigned i = 0; i < slab->n; i++)
        free_block(request->worker, slab, slab->blocks[i]);
    forget(request->worker, link);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemMayRecall(struct rg_request *request)
{
    request->worker->reclaim.able = true;
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuMemGetInfo_v2(struct rg_request *request, size_t *free_bytes, size_t *total)
{
    CUdevice device;
    if (!rg_driver.cuMemGetInfo_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t freed;
    CUresult result;
    do { /* until nothing has been freed between the two */
        freed = rg_deferred_free_count(request->worker);
        result = rg_driver.cuMemGetInfo_v2(free_bytes, total);
        if (result == CUDA_SUCCESS && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
            *free_bytes += held_on(request->worker, device);
    } while (rg_deferred_free_count(request->worker) != freed);
    return result;
}

/* --- asking for it ------------------------------------------------------------------------------------------------------- */

static bool any_ready(const struct rg_worker *worker)
{
    const struct rg_slab *slab = worker->slabs;
    while (slab && !slab->n)
        slab = slab->next;
    return slab != NULL;
}

/* Frees a block that the client has given back; false: it had none such. */
static bool take_back(struct rg_worker *worker, const struct rg_prealloc_return *block)
{
    struct rg_slab *slab = *find(worker, block->ticket);
    unsigned index = 0;
    while (slab && index < slab->n && slab->blocks[index] != block->address)
        index++;
    if (!slab || index == slab->n)
        return false;
    free_block(worker, slab, block->address);
    slab->n--;
    memmove(&slab->blocks[index], &slab->blocks[index + 1], (slab->n - index) * sizeof *slab->blocks);
    return true;
}

bool rg_prealloc_reclaim(struct rg_request *request)
{
    struct rg_worker *worker = request->worker;
    struct rg_reclaim *reclaim = &worker->reclaim;
    const bool ask = reclaim->able && any_ready(worker);
    if (!rg_executor_of(request)->roles || !(ask || rg_deferred_free_any(worker)))
        return false;
    rg_request_separate_reader(request); /* answers have to be read */
    if (request->violated)
        return false;
    if (!ask) {
        (void)rg_deferred_free_wait(worker, 0);
        return true;
    }
    atomic_fetch_add(&worker->answers_due, 1);
    pthread_mutex_lock(&worker->deferred_lock);
    reclaim->due = true;
    const struct rg_notice notice = {.type = RG_NOTICE_RECLAIM, .id = ++reclaim->number};
    pthread_mutex_unlock(&worker->deferred_lock);
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
    pthread_mutex_lock(&worker->deferred_lock);
    while (reclaim->due && !rg_worker_over(worker))
        pthread_cond_wait(&reclaim->answered, &worker->deferred_lock);
    reclaim->due = false;
    struct rg_prealloc_return *blocks = reclaim->blocks;
    const size_t n = reclaim->n;
    reclaim->blocks = NULL;
    reclaim->n = 0;
    pthread_mutex_unlock(&worker->deferred_lock);
    atomic_fetch_sub(&worker->answers_due, 1);
    for (size_t i = 0; i < n && !request->violated; i++)
        if (!take_back(worker, &blocks[i]))
            rg_request_violation(request, "memory is given back that was not ready");
    free(blocks);
    const bool freed = rg_deferred_free_wait(worker, 0);
    rg_debug(
        "session %llu: %s ran out of memory; %zu blocks that were ready are freed, and it is tried again",
        (unsigned long long)worker->session, worker->operations[request->op].name, n);
    if (!request->violated && rg_request_make_current(request) != CUDA_SUCCESS)
        return false;
    return (n || freed) && !request->violated;
}

bool rg_prealloc_answer(struct rg_worker *worker, const struct rg_answer *answer, size_t bulk_size)
{
    struct rg_reclaim *reclaim = &worker->reclaim;
    const size_t n = bulk_size / sizeof(struct rg_prealloc_return);
    pthread_mutex_lock(&worker->deferred_lock);
    const bool good = reclaim->due && answer->id == reclaim->number &&
                      bulk_size % sizeof(struct rg_prealloc_return) == 0 && n <= SLABS_MAX * RG_PREALLOC_MAX;
    pthread_mutex_unlock(&worker->deferred_lock);
    if (!good)
        return false;
    struct rg_prealloc_return *blocks = bulk_size ? malloc(bulk_size) : NULL;
    const bool received =
        !bulk_size || (rg_conn_recv_bulk(worker->conn, blocks, bulk_size) == RG_OK && blocks != NULL);
    if (!received) {
        free(blocks);
        rg_worker_end(worker, 0, NULL);
        return true;
    }
    pthread_mutex_lock(&worker->deferred_lock);
    reclaim->blocks = blocks;
    reclaim->n = n;
    reclaim->due = false;
    pthread_cond_signal(&reclaim->answered);
    pthread_mutex_unlock(&worker->deferred_lock);
    return true;
}

void rg_prealloc_wake(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->deferred_lock);
    pthread_cond_broadcast(&worker->reclaim.answered);
    pthread_mutex_unlock(&worker->deferred_lock);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

void rg_prealloc_drop_context(struct rg_worker *worker, uint64_t context)
{
    (void)rg_deferred_free_wait(worker, context);
    for (struct rg_slab **link = &worker->slabs; *link;) {
        struct rg_slab *slab = *link;
        if (slab->context != context) {
            link = &slab->next;
            continue;
        }
        if (slab->kind == RG_PREALLOC_ORDERED &&
            rg_driver.cuMemFree_v2) /* it is the pool's, and would stay */
            for (unsigned i = 0; i < slab->n; i++)
                (void)rg_driver.cuMemFree_v2(slab->blocks[i]);
        forget(worker, link);
    }
}

void rg_prealloc_init(struct rg_worker *worker)
{
    pthread_cond_init(&worker->reclaim.answered, NULL);
}

void rg_prealloc_fini(struct rg_worker *worker)
{
    free(worker->reclaim.blocks);
    pthread_cond_destroy(&worker->reclaim.answered);
    while (worker->slabs)
        forget(worker, &worker->slabs);
    while (worker->prealloc_pools) {
        struct rg_prealloc_pool *pool = worker->prealloc_pools;
        worker->prealloc_pools = pool->next;
        free(pool);
    }
}
