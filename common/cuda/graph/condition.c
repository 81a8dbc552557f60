/*
 * condition.c - the handles of conditional nodes. See graph.h.
 *
 * A handle is a place in a table below a number drawn by lot, so that what a kernel passes need not be
 * believed. On the software device the kernel sets the value here; a client's handles only name the
 * condition, for which the worker's driver has one of its own. The worker finds them among the parameters of
 * kernels by what they are (proto/graph.h): nothing else may look like one, neither a number that programs
 * have, nor an address, nor a handle of another process.
 */
#include "common/cuda/graph/call.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define CONDITIONS_MAX 65536u

static struct rg_graph_condition **slots[CONDITIONS_MAX / 256]; /* by 256; NULL: free */
static uint32_t next_slot;
static uint64_t lot; /* what the next number comes of; 0: nothing has been drawn yet */

/* A leaf of its own: kernels set values while nothing is known of who holds the graphs' lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Bits above an index; the highest are 01, which those of an address are not. The lock is held. */
static uint64_t draw(void)
{
    if (!lot && getrandom(&lot, sizeof lot, GRND_NONBLOCK) != sizeof lot) {
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        lot = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uintptr_t)&now;
    }
    uint64_t mixed = lot += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return ((mixed ^ mixed >> 31) >> 2 | 1ull << 62) & ~(uint64_t)(CONDITIONS_MAX - 1);
}

static struct rg_graph_condition **slot_of(CUgraphConditionalHandle handle)
{
    const uint32_t index = (uint32_t)handle & (CONDITIONS_MAX - 1);
    struct rg_graph_condition **page = slots[index / 256];
    return page && page[index % 256] && page[index % 256]->handle == handle ? &page[index % 256] : NULL;
}

static bool give_handle(struct rg_graph_condition *condition)
{
    RG_SCOPED_LOCK(&lock);
    for (uint32_t tries = 0; tries < CONDITIONS_MAX; tries++) {
        const uint32_t index = next_slot++ % CONDITIONS_MAX;
        struct rg_graph_condition ***page = &slots[index / 256];
        if (!*page && !(*page = calloc(256, sizeof **page)))
            break;
        if ((*page)[index % 256])
            continue;
        (*page)[index % 256] = condition;
        condition->handle = draw() | index;
        return true;
    }
    return false;
}

void rg_graph_condition_set(CUgraphConditionalHandle handle, unsigned value)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_graph_condition **slot = slot_of(handle);
    if (slot)
        atomic_store(&(*slot)->value, value);
}

/* What graphs have of a condition: a place in their list, which refers to the one that kernels know. */
void rg_graph_condition_release(struct rg_graph_condition *condition)
{
    if (atomic_fetch_sub(&condition->references, 1) != 1)
        return;
    pthread_mutex_lock(&lock);
    struct rg_graph_condition **slot = slot_of(condition->handle);
    if (slot)
        *slot = NULL;
    pthread_mutex_unlock(&lock);
    free(condition);
}

struct rg_graph_condition *rg_graph_condition_find(const struct rg_graph *graph,
                                                   CUgraphConditionalHandle handle)
{
    for (; graph; graph = graph->parent)
        for (struct rg_graph_condition *c = graph->conditions; c; c = c->next)
            if (c->handle == handle)
                return c;
    return NULL;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph handle, CUcontext context,
                                        unsigned int initial, unsigned int flags)
{
    CUdevice device;
    RG_TRY(rg_graph_backend_enter());
    if (!out || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT))
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        (void)cuCtxGetCurrent(&context);
    if (!context || !rg_graph_backend_context_device(context, &device))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_condition *condition = calloc(1, sizeof *condition);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&condition->references, 1);
    condition->context = context;
    condition->initial = initial;
    condition->flags = flags;
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    if (!graph || !give_handle(condition)) {
        free(condition);
        return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    condition->next = graph->conditions;
    graph->conditions = condition;
    *out = condition->handle;
    return CUDA_SUCCESS;
}
