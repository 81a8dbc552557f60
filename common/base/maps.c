/* maps.c - see maps.h. */
#include "common/base/maps.h"

#include <stdint.h>
#include <stdio.h>

/* Whether `access` has the letters that are wanted; a dot stands for any. */
static bool fits(const char *access, const char *wanted)
{
    size_t i = 0;
    while (wanted[i] && (wanted[i] == '.' || wanted[i] == access[i]))
        i++;
    return wanted[i] == '\0';
}

/* Whether memory that fits is mapped everywhere in a range; `unknown` where the kernel does not say. */
static bool is_mapped(const void *start, size_t size, const char *wanted, bool unknown)
{
    uintptr_t next = (uintptr_t)start;
    const uintptr_t end = next + size;
    unsigned long long from, to;
    char access[8];
    bool good = true;
    FILE *maps = fopen("/proc/thread-self/maps", "re");
    if (!maps)
        return unknown;
    while (good && next < end && fscanf(maps, "%llx-%llx %7s%*[^\n]", &from, &to, access) == 3) {
        if (to <= next)
            continue;
        good = from <= next && fits(access, wanted);
        next = (uintptr_t)to;
    }
    if (good && next < end)
        good = ferror(maps) && unknown;
    fclose(maps);
    return good;
}

bool rg_maps_allow(const void *start, size_t size, bool writable)
{
    return is_mapped(start, size, writable ? "rw" : "r", true);
}

bool rg_maps_shared(const void *start, size_t size)
{
    return is_mapped(start, size, "rw.s", false);
}
