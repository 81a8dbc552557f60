/*
 * range_saved.c - device memory that is put away and brought back, as a checkpoint of the process does.
 *
 * Pages of an allocation move to an address outside the window and back (mremap: nothing is copied, nothing needs room twice); what
 * is a file's stays in the file. In its place is nothing, so that an access by mistake is noticed. What kernels can reach behind an
 * allocation (range.h) is no allocation's and stays where it is, and so does page-locked host memory. The calling thread does it all,
 * under the ranges' lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/sync/scoped_lock.h"
#include "softgpu/driver/range/internal.h"

static void *at(const struct sg_range *range)
{
    return (void *)(uintptr_t)range->base;
}

/*
 * Moves a private range's pages to an address that the kernel chooses. Nobody can access them before and after: memory that can be
 * written counts towards a process's limit (RLIMIT_DATA), where it must not stand twice for a moment.
 */
static bool move_out(struct sg_range *range)
{
    const uint64_t bytes = sg_range_committed(range);
    void *host = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED)
        return false;
    /* DONTUNMAP: no moment in which somebody else could be given these addresses */
    if (mprotect(at(range), bytes, PROT_NONE) != 0 ||
        mremap(at(range), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, host) ==
            MAP_FAILED) {
        const int why = errno;
        (void)mprotect(at(range), bytes, PROT_READ | PROT_WRITE);
        munmap(host, bytes);
        errno = why;
        return false;
    }
    range->host = host;
    return true;
}

static bool put_away(struct sg_range *range)
{
    range->away =
        range->kind == SG_RANGE_MAPPED ? sg_window_map_nothing(at(range), range->size) : move_out(range);
    return range->away;
}

static bool map_again(struct sg_range *range, uint64_t bytes)
{
    if (mmap(at(range), bytes, sg_range_protection(range), MAP_SHARED | MAP_FIXED, range->file,
             (off_t)range->file_offset) == MAP_FAILED)
        return false;
    sg_window_advise(at(range), bytes);
    return true;
}

/* Whether the pages are at their address again, or were already. */
static bool move_back(struct sg_range *range, uint64_t bytes)
{
    if (range->host != NULL &&
        mremap(range->host, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(range)) == MAP_FAILED)
        return false;
    range->host = NULL;
    return mprotect(at(range), bytes, PROT_READ | PROT_WRITE) == 0;
}

static bool bring_back(struct sg_range *range)
{
    const uint64_t bytes = sg_range_committed(range);
    range->away = !(range->kind == SG_RANGE_MAPPED ? map_again(range, bytes) : move_back(range, bytes));
    return !range->away;
}

/* Brings all back that is away. Lock held. */
static bool all_back(void)
{
    const struct sg_range_set *set = &sg_memory.device;
    for (size_t i = 0; i < set->n; i++)
        if (set->at[i]->away && !bring_back(set->at[i]))
            return false;
    return true;
}

CUresult sg_ranges_put_away(void)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    const struct sg_range_set *set = &sg_memory.device;
    for (size_t i = 0; i < set->n; i++)
        if (set->at[i]->shared) {
            rg_warn("device memory that other processes have, or may have, a part in cannot be put away");
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    for (size_t i = 0; i < set->n; i++) {
        if (put_away(set->at[i]))
            continue;
        rg_warn("device memory cannot be put away: %s", strerror(errno));
        return all_back() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    }
    memcpy(sg_memory.put_away, sg_memory.used, sizeof sg_memory.used);
    memset(sg_memory.used, 0, sizeof sg_memory.used);
    return CUDA_SUCCESS;
}

CUresult sg_ranges_bring_back(void)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    if (!all_back()) {
        rg_warn("device memory cannot be brought back: %s", strerror(errno));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(sg_memory.used, sg_memory.put_away, sizeof sg_memory.used);
    return CUDA_SUCCESS;
}
