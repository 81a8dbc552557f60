/* valgrind.h - whether this process runs under valgrind, which has one thread run at a time and maps pages slowly. */
#ifndef RG_COMMON_BASE_VALGRIND_H
#define RG_COMMON_BASE_VALGRIND_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/** By what it preloads; the environment is to be as the program was started with. */
static inline bool rg_under_valgrind(void)
{
    const char *preload = secure_getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

#endif
