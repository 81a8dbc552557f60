/* proc_address.c - see proc_address.h. */
#include "proto/api/proc_address.h"

#include "generated/proto/api_table.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#define PER_THREAD_FLAG 2u /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

/* The first entry whose name is not less than `name`. */
static size_t lower_bound(const char *name)
{
    size_t low = 0, high = RG_API_COUNT;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(rg_proc_entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum rg_proc_result rg_proc_find_in(int newest, const char *name, int version, uint64_t flags, int *index)
{
    int legacy = -1, per_thread = -1;
    bool known = false;
    for (size_t i = lower_bound(name); i < RG_API_COUNT && strcmp(rg_proc_entries[i].name, name) == 0; i++) {
        if (rg_proc_entries[i].since > newest)
            continue;
        known = true;
        if (rg_proc_entries[i].since > version)
            continue;
        if (rg_proc_entries[i].per_thread)
            per_thread = rg_proc_entries[i].index;
        else
            legacy = rg_proc_entries[i].index;
    }
    int found = (flags & PER_THREAD_FLAG) && per_thread >= 0 ? per_thread : legacy;
    if (found < 0)
        return known ? RG_PROC_VERSION_NOT_ENOUGH : RG_PROC_UNKNOWN_NAME;
    *index = found;
    return RG_PROC_FOUND;
}

enum rg_proc_result rg_proc_find(const char *name, int version, uint64_t flags, int *index)
{
    return rg_proc_find_in(INT_MAX, name, version, flags, index);
}

bool rg_proc_same_since(int oldest, const char *name, int version, uint64_t flags)
{
    int one = -1, other = -1;
    return rg_proc_find_in(oldest, name, version, flags, &one) ==
               rg_proc_find(name, version, flags, &other) &&
           one == other;
}
