/*
 * managed.c - managed memory and variables by address, and whose they are (managed.h).
 *
 * Each piece is memory that the worker has at the same addresses, mapped here and shared (unified.h). It ends with a call, its context
 * or its module. Variables of libraries outlive contexts: when one ends they come to the host, and go to the context in which work
 * begins next. A server whose addresses are in use here already is refused with an error of the allocation. One lock, not held while
 * memory is shared or fetched.
 */
#include "client/managed/managed.h"

#include "client/core/address_map.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "common/base/log.h"
#include "common/cuda/advice.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

struct managed {
    struct managed *next;
    uint64_t base; /* what the worker allocated; 0: memory of variables */
    uint64_t start, size;
    uint64_t context; /* 0: it has ended; its variables wait until work begins in another one */
    uint64_t owner;   /* of variables */
    bool lasts;       /* variables of a library, which outlive contexts */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *all;
static atomic_uint n_without_context;

/* Maps fresh pages at addresses of the worker's. */
static bool map_here(uint64_t start, uint64_t size)
{
    const unsigned session = rg_session_current()->number;
    if (!rg_map_reserve(session, start, size)) {
        rg_error("the server's address for managed memory is in use in this program");
        return false;
    }
    /* the addresses are the server's word: nothing is replaced but what was reserved for it */
    const int place = rg_map_is_reserved(session, start, size) ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    void *memory = mmap((void *)(uintptr_t)start, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | place, -1, 0);
    if (memory != MAP_FAILED && (uint64_t)(uintptr_t)memory != start) { /* a kernel that took it as a hint */
        munmap(memory, size);
        return false;
    }
    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, size, MADV_DONTFORK); /* as the driver has it: managed memory is no child's */
    return true;
}

/* Shares pages of the worker's and keeps them in the list. */
static CUresult place(struct managed *m, enum rg_unified_kind kind)
{
    m->context = rg_context_current_owner();
    if (!map_here(m->start, m->size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = rg_unified_add(kind, m->start, m->size);
    if (status != CUDA_SUCCESS) {
        mmap((void *)(uintptr_t)m->start, m->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        return status;
    }
    RG_SCOPED_LOCK(&lock);
    m->next = all;
    all = m;
    return CUDA_SUCCESS;
}

/* Whether a server says of memory that it has given already that it is new; variables share pages. */
static bool is_given(uint64_t start, uint64_t size)
{
    RG_SCOPED_LOCK(&lock);
    const struct managed *m = all;
    while (m && !(m->base && m->start < start + size && start < m->start + m->size))
        m = m->next;
    return m != NULL;
}

CUresult rg_managed_add(uint64_t base, uint64_t start, uint64_t size)
{
    if (is_given(start, size)) {
        rg_error("the server's address for managed memory is that of managed memory which is in use");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
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

CUresult rg_managed_variables(uint64_t owner, bool lasts, uint64_t start, uint64_t size)
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
    m->lasts = lasts;
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
    if (m->lasts && !m->context) { /* the addresses stay reserved */
        atomic_fetch_sub(&n_without_context, 1);
        mmap((void *)(uintptr_t)m->start, m->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    if (m->lasts)
        (void)rg_map_remove(m->start, 1u << RG_RANGE_MANAGED, NULL);
    rg_advice_forget(m->start, m->size);
    free(m);
}

/* The first variables of `context` that outlive it; they have `next` instead. False: there are none. */
static bool hand_over(uint64_t context, uint64_t next, struct managed *out)
{
    RG_SCOPED_LOCK(&lock);
    struct managed *m = all;
    while (m && !(m->lasts && m->context == context))
        m = m->next;
    if (!m)
        return false;
    m->context = next;
    *out = *m;
    return true;
}

/* Brings what outlives a context to the host. */
static void recall(uint64_t context)
{
    struct managed m;
    for (uint64_t at = 0;; at = m.start + 1) {
        pthread_mutex_lock(&lock);
        const struct managed *next = NULL;
        for (const struct managed *i = all; i; i = i->next)
            if (i->lasts && i->context == context && i->start >= at && (!next || i->start < next->start))
                next = i;
        if (next)
            m = *next;
        pthread_mutex_unlock(&lock);
        if (!next)
            return;
        rg_unified_recall(m.start, m.size);
    }
}

CUresult rg_managed_begin_work(bool kernel, bool *begun)
{
    struct managed m;
    const uint64_t context = rg_context_current_owner();
    while (atomic_load_explicit(&n_without_context, memory_order_relaxed) && context &&
           hand_over(0, context, &m)) {
        atomic_fetch_sub(&n_without_context, 1);
        const struct rg_range range = {.start = m.start,
                                       .size = m.size,
                                       .kind = RG_RANGE_MANAGED,
                                       .context = context,
                                       .device = rg_device_current()};
        RG_TRY(rg_unified_add(RG_UNIFIED_MANAGED, m.start, m.size));
        (void)rg_map_add(&range);
    }
    return rg_unified_begin_work(kernel, begun);
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

/* Ends what is of a context and does not outlive it, or what is of an owner. */
static void drop(uint64_t context, uint64_t owner)
{
    struct managed *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &all; *at;) {
        struct managed *m = *at;
        if ((context && (m->context != context || m->lasts)) || (owner && m->owner != owner)) {
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

void rg_managed_before_end(uint64_t context, bool failed)
{
    if (!failed)
        recall(context);
    drop(context, 0);
}

void rg_managed_drop_context(uint64_t context)
{
    struct managed m;
    while (hand_over(context, 0, &m)) {
        atomic_fetch_add(&n_without_context, 1);
        rg_unified_leave_to_host(m.start);
    }
    drop(context, 0); /* what other threads had of it after all */
    rg_unified_drop_context(context);
}
