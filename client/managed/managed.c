/* managed.c - see managed.h. The worker's side of an allocation is ordinary device memory. */
#include "client/managed/managed.h"

#include "client/core/address_map.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "common/base/log.h"
#include "common/cuda/advice.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct managed {
    struct managed *next;
    uint64_t base; /* what the worker allocated; 0: memory of variables */
    uint64_t start, size, context;
    uint64_t owner; /* of variables */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *all;

/* Maps fresh pages at addresses of the worker's. */
static bool map_here(uint64_t start, uint64_t size)
{
    if (!rg_map_reserve(rg_session_current()->number, start, size)) {
        rg_error("the server's address for managed memory is in use in this program");
        return false;
    }
    void *memory = mmap((void *)(uintptr_t)start, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, size, MADV_DONTFORK); /* as the driver has it: managed memory is no child's */
    return true;
}

/* Shares pages of the worker's and keeps them in the list. */
static CUresult place(struct managed *m, enum rg_unified_kind kind)
{
    m->context = rg_context_current();
    if (!map_here(m->start, m->size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_unified_add(kind, m->start, m->size);
    if (status != CUDA_SUCCESS) {
        mmap((void *)(uintptr_t)m->start, m->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        return status;
    }
    pthread_mutex_lock(&lock);
    m->next = all;
    all = m;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult rg_managed_add(uint64_t base, uint64_t start, uint64_t size)
{
    struct managed *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->base = base;
    m->start = start;
    m->size = size;
    CUresult status = place(m, RG_UNIFIED_MANAGED);
    if (status != CUDA_SUCCESS)
        free(m);
    return status;
}

CUresult rg_managed_variables(uint64_t owner, uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1);
    const uint64_t end = (start + size + RG_PAGE - 1) & ~(uint64_t)(RG_PAGE - 1);
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const struct managed *m = all; m && !known; m = m->next)
        known = m->start == first && m->size == end - first;
    pthread_mutex_unlock(&lock);
    if (known)
        return CUDA_SUCCESS;
    struct managed *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->owner = owner;
    m->start = first;
    m->size = end - first;
    CUresult status = place(m, RG_UNIFIED_VARIABLE);
    if (status != CUDA_SUCCESS)
        free(m);
    return status;
}

/* Ends the sharing of an entry that has been taken out of the list. */
static void end(struct managed *m)
{
    rg_unified_remove(m->start, false);
    rg_advice_forget(m->start, m->size);
    free(m);
}

bool rg_managed_remove(uint64_t start, struct rg_managed_memory *out)
{
    struct managed *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &all; *at && !found; at = &(*at)->next)
        if ((*at)->start == start && (*at)->base) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return false;
    *out = (struct rg_managed_memory){.base = found->base, .context = found->context, .size = found->size};
    end(found);
    return true;
}

/* Ends what is of a context, or of an owner; 0: whichever. */
static void drop(uint64_t context, uint64_t owner)
{
    struct managed *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &all; *at;) {
        struct managed *m = *at;
        if ((context && m->context != context) || (owner && m->owner != owner)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = gone;
        gone = m;
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        struct managed *m = gone;
        gone = m->next;
        end(m);
    }
}

void rg_managed_drop_owner(uint64_t owner)
{
    drop(0, owner);
}

void rg_managed_drop_context(uint64_t context)
{
    drop(context, 0);
    rg_unified_drop_context(context);
}
