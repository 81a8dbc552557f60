/*
 * condition.c - the handles of conditional nodes. See graph.h.
 *
 * A handle is a place in a table plus a mark that tells it from other numbers, so that what a kernel passes need not be
 * believed. On the software device the kernel sets the value here; a client's handles only name the condition, for which
 * the worker's driver has one of its own.
 */
#include "common/cuda/graph/graph.h"

#include <stdlib.h>

#define CONDITIONS_MAX 65536u
#define MARK           0x5e7c0000u /* above the index, in the high word the generation */

static struct slot {
    struct rg_graph_condition *condition;
    uint32_t generation;
} * slots[CONDITIONS_MAX / 256];
static uint32_t next_slot;

/* A leaf of its own: kernels set values while nothing is known of who holds the graphs' lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct slot *slot_of(CUgraphConditionalHandle handle)
{
    const uint32_t low = (uint32_t)handle, index = low & (CONDITIONS_MAX - 1);
    struct slot *page = slots[index / 256];
    if ((low & ~(CONDITIONS_MAX - 1)) != MARK || !page)
        return NULL;
    struct slot *slot = &page[index % 256];
    return slot->condition && slot->generation == handle >> 32 ? slot : NULL;
}

static bool give_handle(struct rg_graph_condition *condition)
{
    bool given = false;
    pthread_mutex_lock(&lock);
    for (uint32_t tries = 0; tries < CONDITIONS_MAX && !given; tries++) {
        const uint32_t index = next_slot++ % CONDITIONS_MAX;
        struct slot **page = &slots[index / 256];
        if (!*page && !(*page = calloc(256, sizeof **page)))
            break;
        struct slot *slot = &(*page)[index % 256];
        if (slot->condition)
            continue;
        slot->condition = condition;
        slot->generation++;
        condition->handle = (CUgraphConditionalHandle)slot->generation << 32 | MARK | index;
        given = true;
    }
    pthread_mutex_unlock(&lock);
    return given;
}

void rg_graph_condition_set(CUgraphConditionalHandle handle, unsigned value)
{
    pthread_mutex_lock(&lock);
    struct slot *slot = slot_of(handle);
    if (slot)
        atomic_store(&slot->condition->value, value);
    pthread_mutex_unlock(&lock);
}

/* What graphs have of a condition: a place in their list, which refers to the one that kernels know. */
void rg_graph_condition_release(struct rg_graph_condition *condition)
{
    if (atomic_fetch_sub(&condition->references, 1) != 1)
        return;
    pthread_mutex_lock(&lock);
    struct slot *slot = slot_of(condition->handle);
    if (slot)
        slot->condition = NULL;
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
    CUresult result = rg_graph_enter();
    CUdevice device;
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT))
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        (void)cuCtxGetCurrent(&context);
    if (!context || !rg_graph_context_device(context, &device))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_condition *condition = calloc(1, sizeof *condition);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&condition->references, 1);
    condition->context = context;
    condition->initial = initial;
    condition->flags = flags;
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    if (!graph)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!give_handle(condition))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        condition->next = graph->conditions;
        graph->conditions = condition;
        *out = condition->handle;
    } else {
        free(condition);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}
