/* maps.c - see maps.h. */
#include "common/base/maps.h"

#include <stdint.h>
#include <stdio.h>

bool rg_maps_allow(const void *start, size_t size, bool writable)
{
    uintptr_t next = (uintptr_t)start;
    const uintptr_t end = next + size;
    unsigned long long from, to;
    char access[8];
    bool good = true;
    FILE *maps = fopen("/proc/thread-self/maps", "re");
    if (!maps)
        return true;
    while (good && next < end && fscanf(maps, "%llx-%llx %7s%*[^\n]", &from, &to, access) == 3) {
        if (to <= next)
            continue;
        good = from <= next && access[0] == 'r' && (!writable || access[1] == 'w');
        next = (uintptr_t)to;
    }
    good = good && (next >= end || ferror(maps));
    fclose(maps);
    return good;
}
