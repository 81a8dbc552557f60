/* library.c - see library.h. */
#include "server/nccl/library.h"

#include "common/base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "libnccl.so.2"

static const char *driver_path;
static struct rg_nccl_library library;
static const struct rg_nccl_extension *extension;
static bool loaded;
static char reason[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    size_t offset;
    bool needed;
} functions[] = {
#define ROW(name) {#name, offsetof(struct rg_nccl_library, name), true},
    RG_NCCL_USED(ROW)
#undef ROW
#define ROW(name) {#name, offsetof(struct rg_nccl_library, name), false},
        RG_NCCL_USED_IF_THERE(ROW)
#undef ROW
};

void rg_nccl_set_driver(const char *driver)
{
    driver_path = driver;
}

/* Which file to load. */
static const char *find(char *path, size_t size)
{
    const char *named = getenv("REMOTE_GPU_NCCL"), *slash = driver_path ? strrchr(driver_path, '/') : NULL;
    if (named && *named)
        return named;
    if (slash && snprintf(path, size, "%.*s/" NAME, (int)(slash - driver_path), driver_path) < (int)size &&
        access(path, R_OK) == 0)
        return path;
    return NAME;
}

static void load(void)
{
    char path[PATH_MAX];
    const char *file = find(path, sizeof path);
    if (strcmp(file, "off") == 0) {
        snprintf(reason, sizeof reason, "the server's operator has switched NCCL off (REMOTE_GPU_NCCL=off)");
        return;
    }
    /* Buffers are taken when a communicator begins, where they are charged, and not at its first calls. */
    (void)setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    void *opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        snprintf(reason, sizeof reason,
                 "the server has no NCCL (%s); its operator can install " NAME
                 " or name it by REMOTE_GPU_NCCL, and 'remote-gpu run --opt -nccl' uses the program's own",
                 dlerror());
        rg_info("%s", reason);
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(opened, functions[i].name);
        if (!function && functions[i].needed) {
            snprintf(reason, sizeof reason, "the server's NCCL, %s, is too old: it has no %s", file,
                     functions[i].name);
            rg_info("%s", reason);
            return;
        }
        memcpy((char *)&library + functions[i].offset, &function, sizeof function);
    }
    extension = dlsym(opened, RG_NCCL_EXTENSION);
    if (extension && extension->size != sizeof *extension) {
        snprintf(reason, sizeof reason, "the server's NCCL, %s, is of another release than the server", file);
        rg_info("%s", reason);
        return;
    }
    loaded = true;
}

const struct rg_nccl_extension *rg_nccl_library_extension(void)
{
    pthread_once(&once, load);
    return loaded ? extension : NULL;
}

const struct rg_nccl_library *rg_nccl_library(const char **why)
{
    pthread_once(&once, load);
    if (why)
        *why = loaded ? "" : reason;
    return loaded ? &library : NULL;
}
