/* core.c - see core.h. */
#include "interpose/core.h"

#include "client/entry.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RG_CORE_FILE
#define RG_CORE_FILE "client.so"
#endif

#define INSTALLED "is remote-gpu installed completely?"
#define ALLOWED   "may this process have more open files (ulimit -n) and memory (ulimit -v, -l)?"

/* Once, however many threads come at the same time. */
static void complain(const char *what, const char *why, const char *question)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char line[PATH_MAX + 512];
    if (atomic_flag_test_and_set(&said))
        return;
    int length = snprintf(line, sizeof line, "remote-gpu: cannot load %s: %s; %s\n", what, why, question);
    if (length > 0 &&
        write(STDERR_FILENO, line, (size_t)length < sizeof line ? (size_t)length : sizeof line) < 0)
        return; /* nobody to tell */
}

/* The file that is mapped at `address`, as the kernel knows it; NULL: it does not say. The caller frees it. */
static char *mapped_file(uintptr_t address)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL, *found = NULL;
    size_t room = 0;
    while (maps && !found && getline(&line, &room, maps) > 0) {
        unsigned long low, high;
        const char *path = strchr(line, '/');
        if (path && sscanf(line, "%lx-%lx", &low, &high) == 2 && address >= low && address < high)
            found = strndup(path, strcspn(path, "\n"));
    }
    free(line);
    if (maps)
        fclose(maps);
    return found;
}

/*
 * Path of the core beside the library that this code is in, links resolved; NULL: it cannot be found. The caller frees it. A library
 * that was found by a relative name (LD_LIBRARY_PATH=lib) is known to ld.so by that, which means another file, or none, once the program
 * has changed its folder.
 */
static char *core_path(void)
{
    Dl_info info;
    if (!dladdr((void *)core_path, &info) || !info.dli_fname)
        return NULL;
    char *mapped = info.dli_fname[0] != '/' ? mapped_file((uintptr_t)core_path) : NULL;
    char *library = realpath(mapped ? mapped : info.dli_fname, NULL), *path = NULL;
    const char *slash = library ? strrchr(library, '/') : NULL;
    if (slash && asprintf(&path, "%.*s/" RG_CORE_FILE, (int)(slash - library), library) < 0)
        path = NULL;
    free(mapped);
    free(library);
    return path;
}

void *const *rg_interpose_core(const char *entry_name, size_t count)
{
    char *path = core_path();
    if (!path) {
        complain(RG_CORE_FILE, "the folder of this library cannot be found", INSTALLED);
        return NULL;
    }
    void *core = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    rg_client_entry_fn entry = core ? (rg_client_entry_fn)dlsym(core, entry_name) : NULL;
    void *const *table = entry ? entry(count) : NULL;
    if (!table)
        complain(path, entry ? "it is of another version" : dlerror(),
                 core || access(path, R_OK) != 0 ? INSTALLED : ALLOWED);
    free(path);
    return table;
}

void *const *rg_interpose_first(void *const **table, void *const *loaded)
{
    void *const *none = NULL;
    const bool first =
        __atomic_compare_exchange_n(table, &none, loaded, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return first ? loaded : none;
}
