/* protected.c - see protected.h. */
#include "client/managed/protected.h"

#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/managed/faults.h"
#include "client/managed/unified.h"
#include "common/base/safe_copy.h"

#include <signal.h>

/* Else the signal ends the program, whatever handler there is. */
static bool may_be_signalled(void)
{
    sigset_t now;
    return pthread_sigmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGSEGV);
}

/* Written, it holds what it held: another thread's value if that has changed it meanwhile. */
static void touch(uintptr_t at, bool write)
{
    volatile unsigned char *byte = (volatile unsigned char *)at;
    unsigned char value = *byte;
    if (write)
        (void)__atomic_compare_exchange_n(byte, &value, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Pages that can be accessed notice nothing of it. */
static void touch_pages(uintptr_t start, size_t size, bool write)
{
    const uintptr_t end = start + size;
    for (uintptr_t at = start; at < end; at = (at & ~(uintptr_t)(RG_PAGE - 1)) + RG_PAGE)
        touch(at, write);
}

/* Memory that is page-locked stays accessible to devices, whatever its protection. */
static bool is_ordinary(const struct rg_region *region)
{
    struct rg_range range;
    return !rg_map_find(region->address, &range) &&
           !(rg_unified_any() && rg_unified_meets(region->address, rg_region_extent(region)));
}

void rg_protected_open(const struct rg_region *region, bool write)
{
    const size_t rows = region->height * region->depth;
    if (!rg_region_size(region) || !rg_faults_has_program_handler() || !is_ordinary(region) ||
        rg_memory_bring_in((const void *)(uintptr_t)region->address, rg_region_extent(region), write) ||
        !may_be_signalled())
        return;
    const bool before = rg_per_thread_default_stream;
    rg_per_thread_default_stream = false; /* a handler may not come back here; the copy has its stream */
    for (size_t i = 0; i < rows; i++) {
        struct iovec row;
        size_t covered;
        rg_region_iovec(region, i * region->width, region->width, &row, 1, &covered);
        touch_pages((uintptr_t)row.iov_base, row.iov_len, write);
    }
    rg_per_thread_default_stream = before;
}
