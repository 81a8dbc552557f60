/* core.c - see core.h. */
#include "interpose/core.h"

#include "client/entry.h"

#include <dlfcn.h>
#include <limits.h>
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

/* Path of the core beside the library that this code is in, links resolved. */
static int core_path(char *out, size_t size)
{
    Dl_info info;
    char resolved[PATH_MAX];
    if (!dladdr((void *)core_path, &info) || !info.dli_fname || !realpath(info.dli_fname, resolved))
        return -1;
    char *slash = strrchr(resolved, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return snprintf(out, size, "%s/" RG_CORE_FILE, resolved) < (int)size ? 0 : -1;
}

void *const *rg_interpose_core(const char *entry_name, size_t count)
{
    char path[PATH_MAX];
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
