/* core.c - see core.h. */
#include "interpose/core.h"

#include "client/entry.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RG_CORE_FILE
#define RG_CORE_FILE "client.so"
#endif

static void complain(const char *what, const char *why)
{
    char line[PATH_MAX + 512];
    int length = snprintf(line, sizeof line,
                          "remote-gpu: cannot load %s: %s; is remote-gpu installed completely?\n", what, why);
    if (length > 0 &&
        write(STDERR_FILENO, line, (size_t)length < sizeof line ? (size_t)length : sizeof line) < 0)
        return; /* nobody to tell */
}

/* The file that is mapped at `address`, as the kernel knows it. */
static bool mapped_file(uintptr_t address, char out[PATH_MAX])
{
    static char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        const char *path = strchr(line, '/');
        found = path && sscanf(line, "%lx-%lx", &low, &high) == 2 && address >= low && address < high &&
                snprintf(out, PATH_MAX, "%.*s", (int)strcspn(path, "\n"), path) < PATH_MAX;
    }
    if (maps)
        fclose(maps);
    return found;
}

/*
 * Path of the core beside the library that this code is in, links resolved. A library that was found by a relative name
 * (LD_LIBRARY_PATH=lib) is known to ld.so by that, which means another file, or none, once the program has changed its folder.
 */
static int core_path(char *out, size_t size)
{
    Dl_info info;
    static char mapped[PATH_MAX], resolved[PATH_MAX];
    if (!dladdr((void *)core_path, &info) || !info.dli_fname)
        return -1;
    const bool relative = info.dli_fname[0] != '/';
    const char *file = relative && mapped_file((uintptr_t)core_path, mapped) ? mapped : info.dli_fname;
    if (!realpath(file, resolved))
        return -1;
    char *slash = strrchr(resolved, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return snprintf(out, size, "%s/" RG_CORE_FILE, resolved) < (int)size ? 0 : -1;
}

void *const *rg_interpose_core(const char *entry_name, size_t count)
{
    static char path[PATH_MAX];
    if (core_path(path, sizeof path) != 0) {
        complain(RG_CORE_FILE, "the folder of this library cannot be found");
        return NULL;
    }
    void *core = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    rg_client_entry_fn entry = core ? (rg_client_entry_fn)dlsym(core, entry_name) : NULL;
    if (!entry) {
        complain(path, dlerror());
        return NULL;
    }
    void *const *table = entry(count);
    if (!table)
        complain(path, "it is of another version");
    return table;
}
