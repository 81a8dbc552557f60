#include "interpose/load.h"

#include "client/entry.h"

#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *const *rg_interpose_table;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *fallback[RG_API_COUNT];

/* Stands for every function if there is no core. Arguments are left unread, which the C calling conventions allow. */
static CUresult not_ready(void)
{
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

static void complain(const char *what, const char *why)
{
    char line[PATH_MAX + 512];
    int length = snprintf(line, sizeof line,
                          "remote-gpu: cannot load the client core %s: %s; is remote-gpu installed "
                          "completely?\n",
                          what, why);
    if (length > 0 &&
        write(STDERR_FILENO, line, (size_t)length < sizeof line ? (size_t)length : sizeof line) < 0)
        return; /* nobody to tell */
}

/* Path of client.so beside the library that this code is in, links resolved. */
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
    return snprintf(out, size, "%s/client.so", resolved) < (int)size ? 0 : -1;
}

static void load(void)
{
    char path[PATH_MAX];
    void *const *table = NULL;
    if (core_path(path, sizeof path) != 0) {
        complain("client.so", "the folder of this library cannot be found");
    } else {
        void *core = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        rg_client_entry_fn entry = core ? (rg_client_entry_fn)dlsym(core, RG_CLIENT_ENTRY) : NULL;
        if (!entry)
            complain(path, dlerror());
        else if (!(table = entry(RG_API_COUNT)))
            complain(path, "it is of another version");
    }
    if (!table) {
        for (int i = 0; i < RG_API_COUNT; i++)
            fallback[i] = (void *)not_ready;
        table = fallback;
    }
    __atomic_store_n(&rg_interpose_table, table, __ATOMIC_RELEASE);
}

void *const *rg_interpose_load(void)
{
    pthread_once(&once, load);
    return rg_interpose_table;
}
