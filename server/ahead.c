/* ahead.c - tickets, their blocks, and what is said of memory meanwhile. See ahead.h. */
#include "server/ahead.h"

#include "common/base/log.h"
#include "generated/server/serve.h"
#include "proto/prealloc.h"
#include "server/frees.h"
#include "server/roles.h"

#include <stdlib.h>
#include <string.h>

#define TICKETS_MAX 4096
#define FREE_SHARE  8 /* of what is free on the device, this part at most is made ready */
#define PAGE        4096ull

struct rg_ticket {
    struct rg_ticket *next;
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
struct rg_ahead_pool {
    struct rg_ahead_pool *next;
    CUmemoryPool pool;
    uint64_t high;
};

static struct rg_ticket **find(struct rg_worker *worker, uint64_t id)
{
    struct rg_ticket **link = &worker->tickets;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

static uint64_t held_on(struct rg_worker *worker, CUdevice device)
{
    uint64_t held = 0;
    for (const struct rg_ticket *ticket = worker->tickets; ticket; ticket = ticket->next)
        if (ticket->device == device)
            held += ticket->n * ticket->bytes;
    return held + rg_frees_held(worker, device);
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

static struct rg_ahead_pool *find_pool(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_ahead_pool *known = worker->ahead_pools;
    while (known && known->pool != pool)
        known = known->next;
    return known;
}

/* Bytes of the pool that the program uses; what is ready counts in whole pages. */
static uint64_t pool_used(const struct rg_worker *worker, CUmemoryPool pool)
{
    uint64_t ready = 0;
    for (const struct rg_ticket *ticket = worker->tickets; ticket; ticket = ticket->next)
        if (ticket->pool == pool)
            ready += ticket->n * ticket->bytes;
    const uint64_t used = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    return used > ready ? used - ready : 0;
}

/* The program may use more of the pool than ever before. */
static void note_high(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_ahead_pool *known = pool ? find_pool(worker, pool) : NULL;
    const uint64_t used = known ? pool_used(worker, pool) : 0;
    if (known && used > known->high)
        known->high = used;
}

/* From now on the high mark is kept here. */
static bool keep_high(struct rg_worker *worker, CUmemoryPool pool)
{
    if (find_pool(worker, pool))
        return true;
    struct rg_ahead_pool *known = malloc(sizeof *known);
    if (!known)
        return false;
    *known = (struct rg_ahead_pool){
        .next = worker->ahead_pools, .pool = pool, .high = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)};
    worker->ahead_pools = known;
    return true;
}

bool rg_ahead_pool_high(struct rg_worker *worker, CUmemoryPool pool, unsigned long long *high)
{
    const struct rg_ahead_pool *known = find_pool(worker, pool);
    if (known)
        *high = known->high;
    return known != NULL;
}

void rg_ahead_pool_reset(struct rg_worker *worker, CUmemoryPool pool)
{
    struct rg_ahead_pool *known = find_pool(worker, pool);
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

CUresult rg_serve_cuMemAllocAsync(struct rg_job *job, CUdeviceptr *dptr, size_t bytesize, CUstream stream)
{
    if (!rg_driver.cuMemAllocAsync)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemAllocAsync(dptr, bytesize, stream);
    if (result == CUDA_SUCCESS && job->worker->ahead_pools)
        note_high(job->worker, pool_meant(NULL));
    return result;
}

CUresult rg_serve_cuMemAllocFromPoolAsync(struct rg_job *job, CUdeviceptr *dptr, size_t bytesize,
                                          CUmemoryPool pool, CUstream stream)
{
    if (!rg_driver.cuMemAllocFromPoolAsync)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, stream);
    if (result == CUDA_SUCCESS && job->worker->ahead_pools)
        note_high(job->worker, pool);
    return result;
}

/* The next pool may have the address of one that ends. */
CUresult rg_serve_cuMemPoolDestroy(struct rg_job *job, CUmemoryPool pool)
{
    if (!rg_driver.cuMemPoolDestroy)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (struct rg_ahead_pool **link = &job->worker->ahead_pools; *link; link = &(*link)->next)
        if ((*link)->pool == pool) {
            struct rg_ahead_pool *gone = *link;
            *link = gone->next;
            free(gone);
            break;
        }
    for (struct rg_ticket *ticket = job->worker->tickets; ticket; ticket = ticket->next)
        if (ticket->pool == pool)
            ticket->pool = NULL; /* the client was to return it first */
    return rg_driver.cuMemPoolDestroy(pool);
}

/* --- blocks -------------------------------------------------------------------------------------------------------- */

static CUresult make_block(const struct rg_ticket *ticket, CUstream stream, CUmemoryPool named,
                           struct rg_prealloc_block *out)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (ticket->kind == RG_PREALLOC_LINEAR && rg_driver.cuMemAlloc_v2)
        result = rg_driver.cuMemAlloc_v2(&address, ticket->size);
    else if (ticket->kind == RG_PREALLOC_PITCHED && rg_driver.cuMemAllocPitch_v2)
        result =
            rg_driver.cuMemAllocPitch_v2(&address, &pitch, ticket->size, ticket->height, ticket->element);
    else if (ticket->kind == RG_PREALLOC_ORDERED && named && rg_driver.cuMemAllocFromPoolAsync)
        result = rg_driver.cuMemAllocFromPoolAsync(&address, ticket->size, named, stream);
    else if (ticket->kind == RG_PREALLOC_ORDERED && !named && rg_driver.cuMemAllocAsync)
        result = rg_driver.cuMemAllocAsync(&address, ticket->size, stream);
    *out = (struct rg_prealloc_block){address, pitch};
    return result;
}

/* What a block takes of the device: whole pages. Drivers take larger pieces, which small blocks share. */
static uint64_t bytes_of(const struct rg_ticket *ticket, uint64_t pitch)
{
    uint64_t size = ticket->size;
    if (ticket->kind == RG_PREALLOC_PITCHED && __builtin_mul_overflow(pitch, (uint64_t)ticket->height, &size))
        return UINT64_MAX;
    return size > UINT64_MAX - PAGE ? UINT64_MAX : (size + PAGE - 1) & ~(PAGE - 1);
}

/* Makes up to `count` blocks, as far as there is memory to spare; returns how many. */
static unsigned make_blocks(struct rg_worker *worker, struct rg_ticket *ticket, CUstream stream,
                            CUmemoryPool named, unsigned count, struct rg_prealloc_block *blocks)
{
    unsigned made = 0;
    size_t before = 0, total;
    const bool known =
        rg_driver.cuMemGetInfo_v2 && rg_driver.cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS;
    const uint64_t held = held_on(worker, ticket->device);
    uint64_t spare = (before + held) / FREE_SHARE;
    spare = known && spare > held ? spare - held : 0;
    const bool ordered = ticket->kind == RG_PREALLOC_ORDERED;
    if (ordered && (!ticket->pool || !keep_high(worker, ticket->pool)))
        spare = 0;
    while (made < count && ticket->n < RG_PREALLOC_MAX && ticket->bytes <= spare &&
           make_block(ticket, stream, named, &blocks[made]) == CUDA_SUCCESS) {
        ticket->bytes = bytes_of(ticket, blocks[made].pitch);
        ticket->blocks[ticket->n++] = blocks[made++].address;
        spare -= ticket->bytes < spare ? ticket->bytes : spare;
    }
    return made;
}

/* The same, and tells the client of them. */
static void refill(struct rg_job *job, struct rg_ticket *ticket, CUstream stream, CUmemoryPool named,
                   unsigned count)
{
    struct rg_worker *worker = job->worker;
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const unsigned made = make_blocks(worker, ticket, stream, named, count, blocks);
    struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = ticket->id, .arg = {made, count - made, 0}};
    (void)rg_worker_notice(worker, &notice, blocks, made * sizeof *blocks, NULL, 0);
}

/*
 * Frees a block that nobody has used. The program has not asked for that, and must not be held up by it: cuMemFree may wait
 * for all that the device has to do, except of memory of pools; then another thread calls it.
 */
static void free_block(struct rg_worker *worker, const struct rg_ticket *ticket, CUdeviceptr address)
{
    const struct rg_object *entry = rg_objects_find(&worker->objects, ticket->context);
    const bool current = entry && rg_driver.cuCtxSetCurrent(entry->object) == CUDA_SUCCESS;
    rg_current_context_unknown();
    if (current && ticket->kind != RG_PREALLOC_ORDERED && !rg_context_idle(worker, entry->extra))
        rg_frees_add(worker, entry->extra, ticket->device, address, ticket->bytes);
    else if (current && rg_driver.cuMemFree_v2)
        (void)rg_driver.cuMemFree_v2(address);
}

/* --- operations -------------------------------------------------------------------------------------------------------- */

/* A new ticket of the lane's context, which is current; NULL: there are too many. */
static struct rg_ticket *add_ticket(struct rg_job *job, const struct rg_prealloc_hint *wish)
{
    struct rg_worker *worker = job->worker;
    struct rg_ticket *ticket = worker->n_tickets < TICKETS_MAX ? calloc(1, sizeof *ticket) : NULL;
    if (!ticket)
        return NULL;
    *ticket = (struct rg_ticket){.next = worker->tickets,
                                 .id = wish->ticket,
                                 .context = job->lane->context,
                                 .kind = wish->kind,
                                 .element = wish->element,
                                 .size = wish->size,
                                 .height = wish->height};
    ticket->bytes =
        bytes_of(ticket, wish->size); /* at least; of pitched memory it is known from the first on */
    (void)rg_driver.cuCtxGetDevice(&ticket->device);
    worker->tickets = ticket;
    worker->n_tickets++;
    return ticket;
}

CUresult rg_serve_rgMemAhead(struct rg_job *job, unsigned long long id, unsigned int kind, size_t size,
                             size_t height, unsigned int element, CUstream stream, CUmemoryPool pool,
                             unsigned int count)
{
    struct rg_worker *worker = job->worker;
    if (kind > RG_PREALLOC_ORDERED || count > RG_PREALLOC_MAX || !size) {
        rg_job_violation(job, "memory of kind %u", kind);
        return CUDA_ERROR_UNKNOWN;
    }
    struct rg_ticket *ticket = *find(worker, id);
    if (!ticket) {
        const struct rg_prealloc_hint wish = {
            .ticket = id, .size = size, .height = height, .kind = kind, .element = element};
        ticket = add_ticket(job, &wish);
        if (!ticket) {
            struct rg_notice notice = {.type = RG_NOTICE_PREALLOC, .id = id, .arg = {0, count, 0}};
            (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
            return CUDA_SUCCESS;
        }
        if (kind == RG_PREALLOC_ORDERED)
            ticket->pool = pool_meant(pool);
    }
    refill(job, ticket, stream, pool, count);
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgMemForesee(struct rg_job *job, size_t size, const void *wishes)
{
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
    const size_t n = size / sizeof(struct rg_prealloc_hint);
    for (size_t i = 0; i < n; i++) {
        struct rg_prealloc_hint wish;
        memcpy(&wish, (const unsigned char *)wishes + i * sizeof wish, sizeof wish);
        if (n > RG_PREALLOC_HINTS || size % sizeof wish || wish.kind > RG_PREALLOC_PITCHED ||
            wish.count > RG_PREALLOC_MAX || !wish.size || *find(job->worker, wish.ticket)) {
            rg_job_violation(job, "memory of kind %u is wished for", wish.kind);
            return CUDA_ERROR_UNKNOWN;
        }
        struct rg_ticket *ticket = add_ticket(job, &wish);
        const uint64_t made = ticket ? make_blocks(job->worker, ticket, NULL, NULL, wish.count, blocks) : 0;
        rg_job_output(job, &made, sizeof made);
        rg_job_output(job, blocks, made * sizeof *blocks);
    }
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgMemTake(struct rg_job *job, unsigned long long id, CUdeviceptr address, CUstream stream,
                            CUmemoryPool pool, unsigned int count)
{
    struct rg_ticket *ticket = *find(job->worker, id);
    unsigned index = 0;
    while (ticket && index < ticket->n && ticket->blocks[index] != address)
        index++;
    if (!ticket || index == ticket->n || count > RG_PREALLOC_MAX) {
        rg_job_violation(job, "memory is taken that was not offered");
        return CUDA_ERROR_UNKNOWN;
    }
    ticket->n--;
    memmove(&ticket->blocks[index], &ticket->blocks[index + 1], (ticket->n - index) * sizeof *ticket->blocks);
    note_high(job->worker, ticket->pool);
    if (count)
        refill(job, ticket, stream, pool, count);
    return CUDA_SUCCESS;
}

/* Takes the ticket at `link` out of the list. */
static void forget(struct rg_worker *worker, struct rg_ticket **link)
{
    struct rg_ticket *ticket = *link;
    *link = ticket->next;
    worker->n_tickets--;
    free(ticket);
}

CUresult rg_serve_rgMemReturn(struct rg_job *job, unsigned long long id)
{
    struct rg_ticket **link = find(job->worker, id), *ticket = *link;
    if (!ticket)
        return CUDA_SUCCESS; /* it went with its context */
    for (unsigned i = 0; i < ticket->n; i++)
        free_block(job->worker, ticket, ticket->blocks[i]);
    forget(job->worker, link);
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgMemMayRecall(struct rg_job *job)
{
    job->worker->recall.able = true;
    return CUDA_SUCCESS;
}

CUresult rg_serve_cuMemGetInfo_v2(struct rg_job *job, size_t *free_bytes, size_t *total)
{
    CUdevice device;
    if (!rg_driver.cuMemGetInfo_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t freed;
    CUresult result;
    do { /* until nothing has been freed between the two */
        freed = rg_frees_count(job->worker);
        result = rg_driver.cuMemGetInfo_v2(free_bytes, total);
        if (result == CUDA_SUCCESS && rg_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
            *free_bytes += held_on(job->worker, device);
    } while (rg_frees_count(job->worker) != freed);
    return result;
}

/* --- asking for it ------------------------------------------------------------------------------------------------------- */

static bool any_ready(const struct rg_worker *worker)
{
    const struct rg_ticket *ticket = worker->tickets;
    while (ticket && !ticket->n)
        ticket = ticket->next;
    return ticket != NULL;
}

/* Frees a block that the client has given back; false: it had none such. */
static bool take_back(struct rg_worker *worker, const struct rg_prealloc_return *block)
{
    struct rg_ticket *ticket = *find(worker, block->ticket);
    unsigned index = 0;
    while (ticket && index < ticket->n && ticket->blocks[index] != block->address)
        index++;
    if (!ticket || index == ticket->n)
        return false;
    free_block(worker, ticket, block->address);
    ticket->n--;
    memmove(&ticket->blocks[index], &ticket->blocks[index + 1], (ticket->n - index) * sizeof *ticket->blocks);
    return true;
}

bool rg_ahead_recall(struct rg_job *job)
{
    struct rg_worker *worker = job->worker;
    struct rg_recall *recall = &worker->recall;
    const bool ask = recall->able && any_ready(worker);
    if (!rg_thread_of(job)->roles || !(ask || rg_frees_any(worker)))
        return false;
    rg_job_split(job); /* answers have to be read */
    if (job->violated)
        return false;
    if (!ask) {
        (void)rg_frees_wait(worker, 0);
        return true;
    }
    atomic_fetch_add(&worker->answers_due, 1);
    pthread_mutex_lock(&worker->late_lock);
    recall->due = true;
    const struct rg_notice notice = {.type = RG_NOTICE_RECLAIM, .id = ++recall->number};
    pthread_mutex_unlock(&worker->late_lock);
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
    pthread_mutex_lock(&worker->late_lock);
    while (recall->due && !rg_worker_over(worker))
        pthread_cond_wait(&recall->answered, &worker->late_lock);
    recall->due = false;
    struct rg_prealloc_return *blocks = recall->blocks;
    const size_t n = recall->n;
    recall->blocks = NULL;
    recall->n = 0;
    pthread_mutex_unlock(&worker->late_lock);
    atomic_fetch_sub(&worker->answers_due, 1);
    for (size_t i = 0; i < n && !job->violated; i++)
        if (!take_back(worker, &blocks[i]))
            rg_job_violation(job, "memory is given back that was not ready");
    free(blocks);
    const bool freed = rg_frees_wait(worker, 0);
    rg_debug(
        "session %llu: %s ran out of memory; %zu blocks that were ready are freed, and it is tried again",
        (unsigned long long)worker->session, worker->operations[job->op].name, n);
    if (!job->violated && rg_job_make_current(job) != CUDA_SUCCESS)
        return false;
    return (n || freed) && !job->violated;
}

bool rg_ahead_answer(struct rg_worker *worker, const struct rg_answer *answer, size_t bulk_size)
{
    struct rg_recall *recall = &worker->recall;
    const size_t n = bulk_size / sizeof(struct rg_prealloc_return);
    pthread_mutex_lock(&worker->late_lock);
    const bool good = recall->due && answer->id == recall->number &&
                      bulk_size % sizeof(struct rg_prealloc_return) == 0 &&
                      n <= TICKETS_MAX * RG_PREALLOC_MAX;
    pthread_mutex_unlock(&worker->late_lock);
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
    pthread_mutex_lock(&worker->late_lock);
    recall->blocks = blocks;
    recall->n = n;
    recall->due = false;
    pthread_cond_signal(&recall->answered);
    pthread_mutex_unlock(&worker->late_lock);
    return true;
}

void rg_ahead_wake(struct rg_worker *worker)
{
    pthread_mutex_lock(&worker->late_lock);
    pthread_cond_broadcast(&worker->recall.answered);
    pthread_mutex_unlock(&worker->late_lock);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

void rg_ahead_drop_context(struct rg_worker *worker, uint64_t context)
{
    (void)rg_frees_wait(worker, context);
    for (struct rg_ticket **link = &worker->tickets; *link;) {
        struct rg_ticket *ticket = *link;
        if (ticket->context != context) {
            link = &ticket->next;
            continue;
        }
        if (ticket->kind == RG_PREALLOC_ORDERED &&
            rg_driver.cuMemFree_v2) /* it is the pool's, and would stay */
            for (unsigned i = 0; i < ticket->n; i++)
                (void)rg_driver.cuMemFree_v2(ticket->blocks[i]);
        forget(worker, link);
    }
}

void rg_ahead_init(struct rg_worker *worker)
{
    pthread_cond_init(&worker->recall.answered, NULL);
}

void rg_ahead_fini(struct rg_worker *worker)
{
    free(worker->recall.blocks);
    pthread_cond_destroy(&worker->recall.answered);
    while (worker->tickets)
        forget(worker, &worker->tickets);
    while (worker->ahead_pools) {
        struct rg_ahead_pool *pool = worker->ahead_pools;
        worker->ahead_pools = pool->next;
        free(pool);
    }
}
