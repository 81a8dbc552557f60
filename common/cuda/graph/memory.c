/*
 * memory.c - the memory of allocation nodes. See graph.h.
 *
 * It is allocated with its node, since the node's address is fixed from then on, and stays allocated as long
 * as the node or a copy of it in an executable graph lives, or what a launch allocated has not been freed. It
 * counts as used from the first launch on, until it is trimmed while nothing is allocated in it. Which
 * launches may follow each other is checked when they are made, as the driver does.
 */
#include "common/cuda/graph/call.h"
#include "common/cuda/graph/plan.h"

#include <stdlib.h>

#define DEVICES_MAX 64

struct rg_graph_memory {
    struct rg_graph_memory *next; /* in `all` or `orphans` */
    unsigned references;          /* of nodes */
    CUdeviceptr address;
    size_t size;
    CUdevice device;
    CUcontext context;
    bool used;      /* by a launch, and not trimmed since */
    bool live;      /* a launch allocated it, nothing freed it yet */
    uint64_t owner; /* the graph with the allocation node, and the one with the free node; 0: none */
    uint64_t freed_by;
};

/* By device, for cuDeviceGetGraphMemAttribute. */
static struct usage {
    uint64_t used, used_high, reserved, reserved_high;
} usages[DEVICES_MAX];

static struct rg_graph_memory *all, *orphans;

static struct rg_graph_memory *find(CUdeviceptr address)
{
    struct rg_graph_memory *m = all;
    while (m && m->address != address)
        m = m->next;
    return m;
}

static void count(uint64_t *now, uint64_t *high, uint64_t size, bool more)
{
    *now = more ? *now + size : *now - size;
    if (*now > *high)
        *high = *now;
}

static void set_used(struct rg_graph_memory *m, bool used)
{
    struct usage *u = &usages[m->device];
    if (m->used != used)
        count(&u->used, &u->used_high, m->size, used);
    m->used = used;
}

/* Neither a node nor a launch holds it any more. */
static void orphan(struct rg_graph_memory *m)
{
    struct rg_graph_memory **at = &all;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->next = orphans;
    orphans = m;
    set_used(m, false);
    count(&usages[m->device].reserved, &usages[m->device].reserved_high, m->size, false);
}

void rg_graph_memory_release(struct rg_graph_memory *m)
{
    if (--m->references == 0 && !m->live)
        orphan(m);
}

void rg_graph_memory_collect(void)
{
    rg_captured_collect();
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_memory *list = orphans;
    orphans = NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    if (!list)
        return;
    const CUstreamCaptureMode mode = rg_capture_relax();
    while (list) {
        struct rg_graph_memory *gone = list;
        list = gone->next;
        CUcontext none;
        /* Without its context the memory is gone already. */
        if (cuCtxPushCurrent_v2(gone->context) == CUDA_SUCCESS) {
            (void)cuMemFree_v2(gone->address);
            (void)cuCtxPopCurrent_v2(&none);
        }
        free(gone);
    }
    rg_capture_restore(mode);
}

CUresult rg_graph_memory_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct rg_graph_memory **out,
                             CUdeviceptr *address)
{
    CUcontext context = NULL, primary = NULL, none;
    CUdevice device = params->poolProps.location.id, current = -1;
    int n = 0;
    RG_TRY(cuDeviceGetCount(&n));
    if (!params->bytesize || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        params->poolProps.location.type == CU_MEM_LOCATION_TYPE_INVALID ||
        params->accessDescCount > (size_t)n)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return rg_graph_backend_unsupported("allocation nodes of memory that is not a device's");
    if (device < 0 || device >= n || device >= DEVICES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    (void)cuCtxGetCurrent(&context);
    if (!context || cuCtxGetDevice(&current) != CUDA_SUCCESS || current != device) {
        RG_TRY(cuDevicePrimaryCtxRetain(&primary, device)); /* stays retained as long as the memory */
        context = primary;
    }
    struct rg_graph_memory *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUstreamCaptureMode mode = rg_capture_relax();
    CUresult result = cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = cuMemAlloc_v2(&m->address, params->bytesize);
        (void)cuCtxPopCurrent_v2(&none);
    }
    rg_capture_restore(mode);
    if (result != CUDA_SUCCESS) {
        free(m);
        return result;
    }
    m->references = 1;
    m->size = params->bytesize;
    m->device = device;
    m->context = context;
    *address = m->address;
    *out = m;
    RG_GRAPH_LOCKED;
    count(&usages[device].reserved, &usages[device].reserved_high, m->size, true);
    m->next = all;
    all = m;
    return CUDA_SUCCESS;
}

void rg_graph_memory_made_by(struct rg_graph_memory *memory, const struct rg_graph *graph)
{
    memory->owner = graph->id;
}

CUresult rg_graph_memory_freed_by(CUdeviceptr address, const struct rg_graph *graph)
{
    struct rg_graph_memory *m = find(address);
    if (!m || m->freed_by == graph->id || (m->freed_by && (m->freed_by == m->owner || m->owner == graph->id)))
        return CUDA_ERROR_INVALID_VALUE;
    m->freed_by = graph->id;
    return CUDA_SUCCESS;
}

/* Goes through the plan's allocations and frees as they will happen; `apply`: and notes them. */
static CUresult walk(const struct rg_graph_plan *plan, bool auto_free, bool apply)
{
    for (size_t i = 0; i < plan->n_memory; i++) {
        const struct rg_graph_plan_memory *step = &plan->memory[i];
        struct rg_graph_memory *m = find(step->address);
        if (!m)
            return CUDA_ERROR_INVALID_VALUE;
        if (apply) {
            m->live = step->allocates;
            set_used(m, true);
            continue;
        }
        bool before = m->live; /* as the plan's earlier steps leave it */
        for (size_t j = 0; j < i; j++)
            if (plan->memory[j].address == step->address)
                before = plan->memory[j].allocates;
        if (step->allocates ? before && !auto_free : !before)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult rg_graph_memory_launch(const struct rg_graph_plan *plan, bool auto_free)
{
    if (!plan->n_memory)
        return CUDA_SUCCESS;
    CUresult result = walk(plan, auto_free, false);
    return result == CUDA_SUCCESS ? walk(plan, auto_free, true) : result;
}

bool rg_graph_memory_takes_free(CUdeviceptr address, CUresult *result)
{
    if (!__atomic_load_n(&all, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_memory *m = find(address);
    if (m) {
        *result = m->live && m->freed_by != m->owner ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        if (*result == CUDA_SUCCESS) {
            m->live = false;
            if (!m->references)
                orphan(m);
        }
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (m)
        rg_graph_memory_collect();
    return m != NULL;
}

/* --- the API --- */

static CUresult check_device(CUdevice device)
{
    int n = 0;
    RG_TRY(cuDeviceGetCount(&n));
    return device >= 0 && device < n && device < DEVICES_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    RG_TRY(check_device(device));
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    const struct usage *u = &usages[device];
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = u->used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = u->used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = u->reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = u->reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    RG_TRY(check_device(device));
    if (!value || *(const cuuint64_t *)value != 0) /* marks can be reset, not set */
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    struct usage *u = &usages[device];
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        u->used_high = u->used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        u->reserved_high = u->reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    RG_TRY(check_device(device));
    pthread_mutex_lock(&rg_graph_lock);
    for (struct rg_graph_memory *m = all; m; m = m->next)
        if (m->device == device && !m->live)
            set_used(m, false);
    pthread_mutex_unlock(&rg_graph_lock);
    rg_graph_memory_collect();
    return CUDA_SUCCESS;
}
