/* advertised.c - see advertised.h. */
#include "server/transfer/advertised.h"

#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/modules.h"
#include "transport/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

struct chunk {
    enum { HERE, AWAY, TAKEN, IN_USE } state; /* TAKEN: came back with a message; IN_USE: until `ready` */
    CUevent ready;                            /* of `context` */
    struct rg_worker_context *context;        /* NULL: there is no event */
};

struct ring {
    unsigned char *memory;                /* NULL: it cannot be had */
    size_t size;                          /* of it */
    struct rg_worker_context *locked_for; /* page-locked by this one; NULL: by none */
    unsigned n;
    struct chunk chunks[];
};

struct advertised {
    pthread_mutex_t lock;
    struct ring *ring; /* NULL: not yet */
};

static struct ring *make(struct rg_worker *worker)
{
    const unsigned n = RG_ADVERTISED_CHUNKS + rg_conn_rails(worker->conn) * RG_ADVERTISED_RAIL_CHUNKS;
    struct ring *ring = calloc(1, sizeof *ring + n * sizeof *ring->chunks);
    if (!ring)
        return NULL;
    ring->n = n;
    ring->size = n * (size_t)RG_ADVERTISED_CHUNK;
    void *memory = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return ring;
    if (rg_conn_register(worker->conn, memory, ring->size) != RG_OK) {
        rg_info("session %llu: no memory can be registered ahead; bulk data is asked for",
                (unsigned long long)worker->session);
        rg_conn_unregister(worker->conn, memory); /* some rails may have it */
        munmap(memory, ring->size);
        return ring;
    }
    ring->memory = memory;
    return ring;
}

/*
 * Page-locks the ring: portable, for all contexts; one that ends takes that with it. Copies work without,
 * slower.
 */
static void lock_pages(struct ring *ring, struct rg_worker_context *context)
{
    if (!ring->locked_for &&
        rg_driver.cuMemHostRegister_v2(ring->memory, ring->size, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        ring->locked_for = context;
}

void rg_advertised_tend(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct advertised *advertised = worker->state[RG_MODULE_ADVERTISED];
    RG_SCOPED_LOCK(&advertised->lock);
    if (!advertised->ring)
        advertised->ring = make(worker);
    struct ring *ring = advertised->ring;
    if (ring && ring->memory) {
        lock_pages(ring, context);
        const bool ended = rg_conn_adverts_ended(worker->conn);
        for (size_t i = 0; i < ring->n; i++) {
            struct chunk *chunk = &ring->chunks[i];
            if (chunk->state == IN_USE && rg_driver.cuEventQuery(chunk->ready) != CUDA_ERROR_NOT_READY)
                chunk->state = HERE;
            if (chunk->state == AWAY && ended)
                chunk->state = HERE;
            if (chunk->state == HERE &&
                rg_conn_advertise(worker->conn, 0, 0, ring->memory + i * RG_ADVERTISED_CHUNK,
                                  RG_ADVERTISED_CHUNK) == RG_OK)
                chunk->state = AWAY;
        }
    }
}

static struct chunk *chunk_at(struct ring *ring, const void *memory)
{
    return &ring->chunks[(size_t)((const unsigned char *)memory - ring->memory) / RG_ADVERTISED_CHUNK];
}

size_t rg_advertised_take(struct rg_request *request, size_t most, void **memory)
{
    struct advertised *advertised = request->worker->state[RG_MODULE_ADVERTISED];
    const size_t size = rg_request_take_advertised(request, most, memory);
    if (!size)
        return 0;
    RG_SCOPED_LOCK(&advertised->lock);
    chunk_at(advertised->ring, *memory)->state = TAKEN;
    return size;
}

void rg_advertised_give_after(struct rg_worker *worker, struct rg_worker_context *context, void *memory,
                              CUstream stream)
{
    struct advertised *advertised = worker->state[RG_MODULE_ADVERTISED];
    RG_SCOPED_LOCK(&advertised->lock);
    struct chunk *chunk = chunk_at(advertised->ring, memory);
    if (chunk->context != context) {
        if (chunk->context)
            (void)rg_driver.cuEventDestroy_v2(chunk->ready);
        chunk->context =
            rg_driver.cuEventCreate(&chunk->ready, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? context : NULL;
    }
    if (!chunk->context) /* cannot be told of: it is waited for */
        (void)rg_driver.cuStreamSynchronize(stream);
    /* if the event cannot be recorded the context has failed, and nothing will use the memory any more */
    chunk->state =
        chunk->context && rg_driver.cuEventRecord(chunk->ready, stream) == CUDA_SUCCESS ? IN_USE : HERE;
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct advertised *advertised = worker->state[RG_MODULE_ADVERTISED];
    RG_SCOPED_LOCK(&advertised->lock);
    struct ring *ring = advertised->ring;
    for (size_t i = 0; ring && i < ring->n; i++) {
        struct chunk *chunk = &ring->chunks[i];
        if (chunk->context != context)
            continue;
        (void)rg_driver.cuEventDestroy_v2(chunk->ready);
        chunk->context = NULL;
        if (chunk->state == IN_USE)
            chunk->state = HERE;
    }
    if (ring && ring->locked_for == context) {
        (void)rg_driver.cuMemHostUnregister(ring->memory);
        ring->locked_for = NULL;
    }
}

static void fini(struct rg_worker *worker)
{
    struct advertised *advertised = worker->state[RG_MODULE_ADVERTISED];
    struct ring *ring = advertised->ring;
    if (ring && ring->memory) {
        rg_conn_unregister(worker->conn, ring->memory);
        munmap(ring->memory, ring->size);
    }
    free(ring);
}

const struct rg_server_module rg_advertised_module = {
    .size = sizeof(struct advertised),
    .locked = true,
    .fini = fini,
    .drop_context = drop_context,
};
