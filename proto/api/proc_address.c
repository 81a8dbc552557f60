/* proc_address.c - see proc_address.h. */
#include "proto/api/proc_address.h"

#include "generated/proto/api_table.h"

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

enum rg_proc_result rg_proc_find(const char *name, int version, uint64_t flags, int *index)
{
    int legacy = -1, per_thread = -1;
    size_t i = lower_bound(name);
    if (i == RG_API_COUNT || strcmp(rg_proc_entries[i].name, name) != 0)
        return RG_PROC_UNKNOWN_NAME;
    for (; i < RG_API_COUNT && strcmp(rg_proc_entries[i].name, name) == 0; i++) {
        if (rg_proc_entries[i].since > version)
            continue;
        if (rg_proc_entries[i].per_thread)
            per_thread = rg_proc_entries[i].index;
        else
            legacy = rg_proc_entries[i].index;
    }
    int found = (flags & PER_THREAD_FLAG) && per_thread >= 0 ? per_thread : legacy;
    if (found < 0)
        return RG_PROC_VERSION_NOT_ENOUGH;
    *index = found;
    return RG_PROC_FOUND;
}
