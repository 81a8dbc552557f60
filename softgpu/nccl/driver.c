/* driver.c - see driver.h. */
#include "softgpu/nccl/driver.h"

#include "common/base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sg_nccl_driver driver;
static bool loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define ROW(name, symbol) {#symbol, offsetof(struct sg_nccl_driver, p_##name)},
    SG_NCCL_DRIVER(ROW)
#undef ROW
};

static void load(void)
{
    Dl_info info;
    char path[PATH_MAX], file[PATH_MAX + 16];
    char *slash = dladdr((void *)load, &info) && info.dli_fname && realpath(info.dli_fname, path)
                      ? strrchr(path, '/')
                      : NULL;
    if (!slash) {
        rg_error("NCCL of the software device: the folder of this library cannot be found");
        return;
    }
    *slash = '\0';
    snprintf(file, sizeof file, "%s/libcuda.so.1", path);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rg_error("NCCL of the software device: %s; is remote-gpu installed completely?", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(library, functions[i].symbol);
        if (!function) {
            rg_error("NCCL of the software device: %s has no %s", file, functions[i].symbol);
            return;
        }
        memcpy((char *)&driver + functions[i].offset, &function, sizeof function);
    }
    CUuuid id;
    const void *table = NULL;
    memcpy(id.bytes, RG_CAPTURED_TABLE_ID, sizeof id.bytes);
    if (driver.p_cuGetExportTable(&table, &id) != CUDA_SUCCESS ||
        (driver.captured = table)->size != sizeof *driver.captured) {
        rg_error("NCCL of the software device: %s is of another release", file);
        return;
    }
    loaded = driver.p_cuInit(0) == CUDA_SUCCESS;
}

const struct sg_nccl_driver *sg_nccl_driver(void)
{
    pthread_once(&once, load);
    return loaded ? &driver : NULL;
}
