/* managed_ranges.c - see managed_ranges.h. */
#include "client/managed/managed_ranges.h"

#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

struct rg_managed_ranges rg_managed_ranges = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                              .forked = PTHREAD_COND_INITIALIZER};
static __thread bool forks; /* its handlers of pthread_atfork may call CUDA */

void rg_managed_ranges_await_forks(void)
{
    RG_UNCANCELLED;
    while (rg_managed_ranges.forks && !forks)
        pthread_cond_wait(&rg_managed_ranges.forked, &rg_managed_ranges.lock);
}

void rg_managed_ranges_fork(bool begins)
{
    forks = begins;
    rg_managed_ranges.forks += begins ? 1u : -1u;
    pthread_cond_broadcast(&rg_managed_ranges.forked);
}

size_t rg_managed_ranges_after(uint64_t address)
{
    size_t low = 0, high = rg_managed_ranges.n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rg_managed_ranges.at[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rg_managed_range *rg_managed_ranges_find(uint64_t address)
{
    const size_t at = rg_managed_ranges_after(address);
    return at > 0 && address - rg_managed_ranges.at[at - 1]->start < rg_managed_ranges.at[at - 1]->size
               ? rg_managed_ranges.at[at - 1]
               : NULL;
}

static bool meets(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1), end = start + size;
    const size_t at = rg_managed_ranges_after(first);
    return (at > 0 && first - rg_managed_ranges.at[at - 1]->start < rg_managed_ranges.at[at - 1]->size) ||
           (at < rg_managed_ranges.n && rg_managed_ranges.at[at]->start < end);
}

bool rg_unified_meets(uint64_t start, uint64_t size)
{
    if (atomic_load_explicit(&rg_managed_ranges.n, memory_order_acquire) == 0)
        return false;
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    return meets(start, size);
}

bool rg_managed_ranges_insert(struct rg_managed_range *range)
{
    if (rg_managed_ranges.n == rg_managed_ranges.capacity) {
        const size_t more = rg_managed_ranges.capacity ? rg_managed_ranges.capacity * 2 : 64;
        struct rg_managed_range **bigger = realloc(rg_managed_ranges.at, more * sizeof *bigger);
        if (!bigger)
            return false;
        rg_managed_ranges.at = bigger;
        rg_managed_ranges.capacity = more;
    }
    const size_t at = rg_managed_ranges_after(range->start);
    memmove(&rg_managed_ranges.at[at + 1], &rg_managed_ranges.at[at],
            (rg_managed_ranges.n - at) * sizeof *rg_managed_ranges.at);
    rg_managed_ranges.at[at] = range;
    atomic_fetch_add(&rg_managed_ranges.n, 1);
    return true;
}

void rg_managed_range_set_state(struct rg_managed_range *range, size_t first, size_t end,
                                enum rg_page_state state)
{
    size_t held = 0;
    for (size_t i = first; i < end; i++)
        held += rg_page_held(range->state[i]);
    range->n_held -= held;
    rg_managed_ranges.n_held -= held;
    memset(&range->state[first], state, end - first);
    if (rg_page_held(state)) {
        range->n_held += end - first;
        rg_managed_ranges.n_held += end - first;
    }
}

uint64_t rg_managed_range_page(const struct rg_managed_range *range, size_t page)
{
    return range->start + (uint64_t)page * RG_PAGE;
}
