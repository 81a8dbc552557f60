/* prealloc.c - slabs, their blocks, and what is said of memory meanwhile. See prealloc.h. */
#include "server/prealloc/prealloc.h"

#include "common/base/log.h"
#include "generated/server/execute.h"
#include "proto/prealloc.h"
#include "server/core/leader_followers.h"
#include "server/modules.h"
#include "server/prealloc/deferred_free.h"

#include <stdlib.h>
#include <string.h>

#define SLABS_MAX  4096
#define FREE_SHARE 8 /* of what is free on the device, this part at most is made ready */
#define PAGE       4096ull

struct slab {
    struct slab *next;
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
struct pool {
    struct pool *next;
    CUmemoryPool pool;
    uint64_t high; /* since the mark was reset */
    uint64_t most; /* without such memory, whatever the mark: the pool may hold on to that */
};

/* Asking the client for memory that is ready; guarded by the lock. */
struct reclaim {
    bool able;                         /* the client can be asked. The dispatcher's */
    uint64_t number;                   /* of the last one */
    bool due;                          /* it is not answered */
    struct rg_prealloc_return *blocks; /* the answer */
    size_t n;
    pthread_cond_t answered;
};

/* The dispatcher's, but for what has a lock. */
struct prealloc {
    pthread_mutex_t lock; /* of `reclaim` */
    struct slab *slabs;
    unsigned n_slabs;
    struct pool *pools;
    struct reclaim reclaim;
    struct rg_deferred_frees frees;
};

static struct prealloc *prealloc_of(const struct rg_worker *worker)
{
    return worker->state[RG_MODULE_PREALLOC];
}

static struct slab **find(struct rg_worker *worker, uint64_t id)
{
    struct slab **link = &prealloc_of(worker)->slabs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

static uint64_t held_on(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    for (const struct slab *slab = prealloc_of(worker)->slabs; slab; slab = slab->next)
        if (slab->device == device)
            held += slab->n * slab->bytes;
    return held + rg_deferred_free_held(&prealloc_of(worker)->frees, device);
}

/* --- pools ---------------------------------------------------------------------------------------------- */

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t number = 0;
    if (rg_driver.cuMemPoolGetAttribute(pool, attribute, &number) != CUDA_SUCCESS)
        return 0;
    return number;
}

static struct pool *find_pool(struct rg_worker *worker, CUmemoryPool pool)
{
    struct pool *known = prealloc_of(worker)->pools;
    while (known && known->pool != pool)
        known = known->next;
    return known;
}

/* Bytes of the pool that the program uses; what is ready counts in whole pages. */
static uint64_t pool_used(const struct rg_worker *worker, CUmemoryPool pool)
{
    uint64_t ready = 0;
    for (const struct slab *slab = prealloc_of(worker)->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            ready += slab->n * slab->bytes;
    const uint64_t used = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    return used > ready ? used - ready : 0;
}

/* The program may use more of the pool than ever before. */
static void note_high(struct rg_worker *worker, CUmemoryPool pool)
{
    struct pool *known = pool ? find_pool(worker, pool) : NULL;
    const uint64_t used = known ? pool_used(worker, pool) : 0;
    if (known && used > known->high)
        known->high = used;
    if (known && used > known->most)
        known->most = used;
}

/* From now on the high mark is kept here. */
static bool keep_high(struct rg_worker *worker, CUmemoryPool pool)
{
    if (find_pool(worker, pool))
        return true;
    struct pool *known = malloc(sizeof *known);
    if (!known)
        return false;
    *known = (struct pool){.next = prealloc_of(worker)->pools,
                           .pool = pool,
                           .high = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
                           .most = pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)};
    prealloc_of(worker)->pools = known;
    return true;
}

/* What NVIDIA's driver reserves for a pool at a time. */
#define POOL_STEP (32ull << 20)

static uint64_t pool_steps(uint64_t bytes)
{
    return (bytes + POOL_STEP - 1) & ~(POOL_STEP - 1);
}

/* What was made ready of a pool goes back: the pool is not to hold on to it as to memory that the program has had. */
static void trim_pool(struct rg_worker *worker, CUmemoryPool pool)
{
    const struct pool *known = pool ? find_pool(worker, pool) : NULL;
    if (known)
        (void)rg_driver.cuMemPoolTrimTo(pool, pool_steps(known->most));
}

void rg_prealloc_pool_reserved(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct pool *known = find_pool(worker, pool);
    const uint64_t now = known ? pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) : 0;
    const uint64_t most = known && pool_steps(known->most) > now ? pool_steps(known->most) : now;
    if (known && *high > most)
        *high = most;
}

CUresult rg_execute_rgPoolsSettle(struct rg_request *request)
{
    CUstream stream;
    (void)request;
    /* one with nothing to wait for: pools settle when any stream is waited for */
    const CUresult result = rg_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* of a context that has failed, nobody expects figures */
    (void)rg_driver.cuStreamSynchronize(stream);
    (void)rg_driver.cuStreamDestroy_v2(stream);
    return CUDA_SUCCESS;
}

bool rg_prealloc_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct pool *known = find_pool(worker, pool);
    if (known)
        *high = known->high;
    return known != NULL;
}

void rg_prealloc_pool_reset(struct rg_worker *worker, CUmemoryPool pool)
{
    struct pool *known = find_pool(worker, pool);
    if (known)
        known->high = pool_used(worker, pool);
}

/* The pool that cuMemAllocAsync takes from; NULL: not known. */
static CUmemoryPool pool_meant(CUmemoryPool pool)
{
    CUdevice device;
    if (!pool && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        rg_driver.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

CUresult rg_execute_cuMemAllocAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                    CUstream stream)
{
    rg_worker_memory_of_pools(request->worker);
    CUresult result = rg_driver.cuMemAllocAsync(dptr, bytesize, stream);
    if (result == CUDA_SUCCESS && prealloc_of(request->worker)->pools)
        note_high(request->worker, pool_meant(NULL));
    return result;
}

CUresult rg_execute_cuMemAllocFromPoolAsync(struct rg_request *request, CUdeviceptr *dptr, size_t bytesize,
                                            CUmemoryPool pool, CUstream stream)
{
    rg_worker_memory_of_pools(request->worker);
    CUresult result = rg_driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, stream);
    if (result == CUDA_SUCCESS && prealloc_of(request->worker)->pools)
        note_high(request->worker, pool);
    return result;
}

/* The next pool may have the address of one that ends. */
CUresult rg_execute_cuMemPoolDestroy(struct rg_request *request, CUmemoryPool pool)
{
    for (struct pool **link = &prealloc_of(request->worker)->pools; *link; link = &(*link)->next)
        if ((*link)->pool == pool) {
            struct pool *gone = *link;
            *link = gone->next;
            free(gone);
            break;
        }
    for (struct slab *slab = prealloc_of(request->worker)->slabs; slab; slab = slab->next)
        if (slab->pool == pool)
            slab->pool = NULL; /* the client was to return it first */
    return rg_driver.cuMemPoolDestroy(pool);
}

/* --- blocks --------------------------------------------------------------------------------------------- */

static CUresult make_block(const struct slab *slab, CUstream stream, CUmemoryPool named,
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
static uint64_t bytes_of(const struct slab *slab, uint64_t pitch)
{
    uint64_t size = slab->size;
    if (slab->kind == RG_PREALLOC_PITCHED && __builtin_mul_overflow(pitch, (uint64_t)slab->height, &size))
        return UINT64_MAX;
    return size > UINT64_MAX - PAGE ? UINT64_MAX : (size + PAGE - 1) & ~(PAGE - 1);
}

/* Makes up to `count` blocks, as far as there is memory to spare; returns how many. */
static unsigned make_blocks(struct rg_worker *worker, struct slab *slab, CUstream stream, CUmemoryPool named,
                            unsigned count, struct rg_prealloc_block *blocks)
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
static void refill(struct rg_request *request, struct slab *slab, CUstream stream, CUmemoryPool named,
                   unsigned count)
{
    struct rg_worker *worker = request->worker;
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const unsigned made = make_blocks(worker, slab, stream, named, count, blocks);
    struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = slab->id, .arg = {made, count - made, 0}};
    (void)rg_worker_notice(worker, &notice, blocks, made * sizeof *blocks, NULL, 0);
}

/*
 * Frees a block that nobody has used. The program has not asked for that, and must not be held up by it:
 * cuMemFree may wait for all that the device has to do, except of memory of pools; then another thread calls
 * it.
 */
static void free_block(struct rg_worker *worker, const struct slab *slab, CUdeviceptr address)
{
    const struct rg_object *entry = rg_objects_find(&worker->objects, slab->context);
    const bool current = entry && rg_driver.cuCtxSetCurrent(entry->object) == CUDA_SUCCESS;
    rg_context_unknown();
    if (current && slab->kind != RG_PREALLOC_ORDERED && !rg_context_idle(worker, entry->extra))
        rg_deferred_free_add(&prealloc_of(worker)->frees, entry->extra, slab->device, address, slab->bytes);
    else if (current)
        (void)rg_driver.cuMemFree_v2(address);
    rg_worker_memory_ended(worker);
}

/* --- operations ----------------------------------------------------------------------------------------- */

/* A new slab of the client thread's context, which is current; NULL: there are too many. */
static struct slab *add_slab(struct rg_request *request, const struct rg_prealloc_hint *hint)
{
    struct rg_worker *worker = request->worker;
    struct slab *slab = prealloc_of(worker)->n_slabs < SLABS_MAX ? calloc(1, sizeof *slab) : NULL;
    if (!slab)
        return NULL;
    *slab = (struct slab){.next = prealloc_of(worker)->slabs,
                          .id = hint->slab_id,
                          .context = request->thread->context,
                          .kind = hint->kind,
                          .element = hint->element,
                          .size = hint->size,
                          .height = hint->height};
    slab->bytes = bytes_of(slab, hint->size); /* at least; of pitched memory it is known from the first on */
    (void)rg_driver.cuCtxGetDevice(&slab->device);
    prealloc_of(worker)->slabs = slab;
    prealloc_of(worker)->n_slabs++;
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
    struct slab *slab = *find(worker, id);
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
            slab->pool = pool_meant(pool);
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
            hint.count > RG_PREALLOC_MAX || !hint.size || *find(request->worker, hint.slab_id)) {
            rg_request_violation(request, "memory of kind %u is hinted", hint.kind);
            return CUDA_ERROR_UNKNOWN;
        }
        struct slab *slab = add_slab(request, &hint);
        const uint64_t made = slab ? make_blocks(request->worker, slab, NULL, NULL, hint.count, blocks) : 0;
        rg_request_output(request, &made, sizeof made);
        rg_request_output(request, blocks, made * sizeof *blocks);
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemTake(struct rg_request *request, unsigned long long id, CUdeviceptr address,
                              CUstream stream, CUmemoryPool pool, unsigned int count)
{
    struct slab *slab = *find(request->worker, id);
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
static void forget(struct rg_worker *worker, struct slab **link)
{
    struct slab *slab = *link;
    *link = slab->next;
    prealloc_of(worker)->n_slabs--;
    free(slab);
}

CUresult rg_execute_rgMemReturn(struct rg_request *request, unsigned long long id)
{
    struct slab **link = find(request->worker, id), *slab = *link;
    if (!slab)
        return CUDA_SUCCESS; /* it went with its context */
    for (unsigned i = 0; i < slab->n; i++)
        free_block(request->worker, slab, slab->blocks[i]);
    if (slab->n)
        trim_pool(request->worker, slab->pool);
    forget(request->worker, link);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgMemMayRecall(struct rg_request *request)
{
    prealloc_of(request->worker)->reclaim.able = true;
    return CUDA_SUCCESS;
}

CUresult rg_execute_cuMemGetInfo_v2(struct rg_request *request, size_t *free_bytes, size_t *total)
{
    CUdevice device;
    uint64_t freed;
    CUresult result;
    do { /* until nothing has been freed between the two */
        freed = rg_deferred_free_count(&prealloc_of(request->worker)->frees);
        result = rg_driver.cuMemGetInfo_v2(free_bytes, total);
        if (result == CUDA_SUCCESS && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
            *free_bytes += held_on(request->worker, device);
    } while (rg_deferred_free_count(&prealloc_of(request->worker)->frees) != freed);
    return result;
}

/* --- asking for it -------------------------------------------------------------------------------------- */

static bool any_ready(const struct rg_worker *worker)
{
    const struct slab *slab = prealloc_of(worker)->slabs;
    while (slab && !slab->n)
        slab = slab->next;
    return slab != NULL;
}

/* Frees a block that the client has given back; false: it had none such. */
static bool take_back(struct rg_worker *worker, const struct rg_prealloc_return *block)
{
    struct slab *slab = *find(worker, block->slab_id);
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

static bool reclaim_ready(struct rg_request *request)
{
    struct rg_worker *worker = request->worker;
    struct reclaim *reclaim = &prealloc_of(worker)->reclaim;
    const bool ask = reclaim->able && any_ready(worker);
    if (!rg_executor_of(request)->roles || !(ask || rg_deferred_free_any(&prealloc_of(worker)->frees)))
        return false;
    rg_request_separate_reader(request); /* answers have to be read */
    if (request->violated)
        return false;
    if (!ask) {
        (void)rg_deferred_free_wait(&prealloc_of(worker)->frees, 0);
        return true;
    }
    atomic_fetch_add(&worker->answers_due, 1);
    pthread_mutex_lock(&prealloc_of(worker)->lock);
    reclaim->due = true;
    const struct rg_notice notice = {.type = RG_NOTICE_RECLAIM, .id = ++reclaim->number};
    pthread_mutex_unlock(&prealloc_of(worker)->lock);
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
    pthread_mutex_lock(&prealloc_of(worker)->lock);
    while (reclaim->due && !rg_worker_over(worker))
        pthread_cond_wait(&reclaim->answered, &prealloc_of(worker)->lock);
    reclaim->due = false;
    struct rg_prealloc_return *blocks = reclaim->blocks;
    const size_t n = reclaim->n;
    reclaim->blocks = NULL;
    reclaim->n = 0;
    pthread_mutex_unlock(&prealloc_of(worker)->lock);
    atomic_fetch_sub(&worker->answers_due, 1);
    for (size_t i = 0; i < n && !request->violated; i++)
        if (!take_back(worker, &blocks[i]))
            rg_request_violation(request, "memory is given back that was not ready");
    free(blocks);
    const bool freed = rg_deferred_free_wait(&prealloc_of(worker)->frees, 0);
    rg_debug(
        "session %llu: %s ran out of memory; %zu blocks that were ready are freed, and it is tried again",
        (unsigned long long)worker->session, rg_op_names[request->op], n);
    if (!request->violated && rg_request_make_current(request) != CUDA_SUCCESS)
        return false;
    return (n || freed) && !request->violated;
}

static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *told, size_t bulk_size)
{
    (void)header;
    if (told->type != RG_ANSWER_RECLAIMED)
        return RG_ANSWERED_NOT_MINE;
    struct reclaim *reclaim = &prealloc_of(worker)->reclaim;
    const size_t n = bulk_size / sizeof(struct rg_prealloc_return);
    pthread_mutex_lock(&prealloc_of(worker)->lock);
    const bool good = reclaim->due && told->id == reclaim->number &&
                      bulk_size % sizeof(struct rg_prealloc_return) == 0 && n <= SLABS_MAX * RG_PREALLOC_MAX;
    pthread_mutex_unlock(&prealloc_of(worker)->lock);
    if (!good)
        return RG_ANSWERED_WRONG;
    struct rg_prealloc_return *blocks = bulk_size ? malloc(bulk_size) : NULL;
    const bool received =
        !bulk_size || (rg_conn_recv_bulk(worker->conn, blocks, bulk_size) == RG_OK && blocks != NULL);
    if (!received) {
        free(blocks);
        rg_worker_end(worker, 0, NULL);
        return RG_ANSWERED_GOOD;
    }
    pthread_mutex_lock(&prealloc_of(worker)->lock);
    reclaim->blocks = blocks;
    reclaim->n = n;
    reclaim->due = false;
    pthread_cond_signal(&reclaim->answered);
    pthread_mutex_unlock(&prealloc_of(worker)->lock);
    return RG_ANSWERED_GOOD;
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

/* With what was ready in it. */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *state)
{
    struct prealloc *prealloc = prealloc_of(worker);
    (void)rg_deferred_free_wait(&prealloc->frees, state->handle);
    for (struct slab **link = &prealloc->slabs; *link;) {
        struct slab *slab = *link;
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
    struct prealloc *prealloc = prealloc_of(worker);
    pthread_cond_init(&prealloc->reclaim.answered, NULL);
    rg_deferred_free_init(&prealloc->frees, worker);
}

static void wake(struct rg_worker *worker)
{
    struct prealloc *prealloc = prealloc_of(worker);
    pthread_mutex_lock(&prealloc->lock);
    pthread_cond_broadcast(&prealloc->reclaim.answered);
    pthread_mutex_unlock(&prealloc->lock);
    rg_deferred_free_wake(&prealloc->frees);
}

static void stop(struct rg_worker *worker)
{
    rg_deferred_free_join(&prealloc_of(worker)->frees);
}

static void fini(struct rg_worker *worker)
{
    struct prealloc *prealloc = prealloc_of(worker);
    free(prealloc->reclaim.blocks);
    pthread_cond_destroy(&prealloc->reclaim.answered);
    while (prealloc->slabs)
        forget(worker, &prealloc->slabs);
    while (prealloc->pools) {
        struct pool *pool = prealloc->pools;
        prealloc->pools = pool->next;
        free(pool);
    }
    rg_deferred_free_fini(&prealloc->frees);
}

static bool busy(struct rg_worker *worker)
{
    return rg_deferred_free_any(&prealloc_of(worker)->frees);
}

const struct rg_server_module rg_prealloc_module = {
    .size = sizeof(struct prealloc),
    .locked = true,
    .init = init,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .drop_context = drop_context,
    .busy = busy,
    .reclaim = reclaim_ready,
    .answer = answer,
};
