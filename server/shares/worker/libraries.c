/*
 * libraries.c - libraries, which take memory in a context where the first of their kernels, their module or a variable is asked for there,
 * and keep it until they are unloaded.
 *
 * How much that will be is read from the image when a library is loaded: its variables, which may be of any size. So it is charged, or
 * refused, before the driver takes it, as nothing gives it back afterwards but the end of the library. What the driver takes beyond that
 * is charged when it shows. A driver that keeps the session's limit by itself is only asked afterwards. Any thread; `known.lock` is a leaf.
 */
#include "common/base/hash_table.h"
#include "common/cuda/fatbin/variables.h"
#include "common/cuda/image.h"
#include "common/sync/scoped_lock.h"
#include "server/shares/worker/memory.h"

#include <pthread.h>
#include <stdlib.h>

enum { INSTANCES_MAX = 64 }; /* contexts in which a library has memory, of those that are given up at once */

struct library {
    struct rg_hash_link link;
    uint64_t key;
    uint64_t bytes; /* of its variables */
};

static struct {
    pthread_mutex_t lock;
    struct rg_hash_table table;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct library *find(uint64_t key)
{
    struct rg_hash_link *at = rg_hash_table_first(&known.table, key);
    while (at && ((struct library *)at)->key != key)
        at = rg_hash_table_next(at);
    return (struct library *)at;
}

/* --- how much it will take ------------------------------------------------------------------------------- */

/* Variables by name: an image has them once for each architecture. */
struct variable {
    struct rg_hash_link link;
    uint64_t bytes;
};

struct sum {
    struct rg_hash_table names;
    uint64_t bytes;
};

static void add_variable(void *user, const struct rg_image_variable *variable)
{
    struct sum *sum = user;
    const uint64_t name = rg_hash_bytes(0, variable->name, variable->length);
    if (variable->bytes == RG_VARIABLE_UNSIZED || rg_hash_table_first(&sum->names, name))
        return;
    struct variable *counted = calloc(1, sizeof *counted);
    if (counted)
        rg_hash_table_add(&sum->names, &counted->link, name);
    sum->bytes = sum->bytes > UINT64_MAX - variable->bytes ? UINT64_MAX : sum->bytes + variable->bytes;
}

static void drop_variable(struct rg_hash_link *link)
{
    free(link);
}

static uint64_t bytes_of_variables(const void *code)
{
    struct rg_cuda_image image;
    struct sum sum = {.bytes = 0};
    if (rg_cuda_image_identify(code, &image) == RG_CUDA_IMAGE_UNKNOWN)
        return 0;
    (void)rg_image_variables(image.data, image.size, add_variable, &sum);
    rg_hash_table_clear(&sum.names, drop_variable);
    return sum.bytes ? rg_meter_round(sum.bytes) : 0;
}

static void note(CUlibrary library, uint64_t bytes)
{
    struct library *new = bytes ? calloc(1, sizeof *new) : NULL;
    if (!new)
        return;
    new->key = (uintptr_t)library;
    new->bytes = bytes;
    RG_SCOPED_LOCK(&known.lock);
    rg_hash_table_add(&known.table, &new->link, new->key);
}

static void forget(CUlibrary library)
{
    RG_SCOPED_LOCK(&known.lock);
    struct library *gone = find((uintptr_t)library);
    if (gone)
        rg_hash_table_remove(&known.table, &gone->link);
    free(gone);
}

/* Of the calling thread's context: 0 where it has its memory already, or none is known of. */
static uint64_t expected(CUlibrary library)
{
    if (rg_meter_has_here(RG_METER_INSTANCE, (uintptr_t)library))
        return 0;
    RG_SCOPED_LOCK(&known.lock);
    const struct library *of = find((uintptr_t)library);
    const uint64_t bytes = of ? of->bytes : 0;
    return bytes;
}

/* --- its memory in a context ------------------------------------------------------------------------------ */

struct instance {
    CUlibrary library;
    struct rg_meter meter;
    struct rg_meter_change change;
};

/* False: there is not so much left. */
static bool begin(struct instance *instance, CUlibrary library)
{
    instance->library = library;
    if (rg_share.own_memory)
        return true;
    if (!rg_meter_begin_current(&instance->meter, expected(library)))
        return false;
    rg_meter_watch_current(&instance->change);
    return true;
}

static CUresult end(struct instance *instance, CUresult result)
{
    CUdevice device;
    if (rg_share.own_memory && rg_meter_current(&device))
        rg_meter_look(device);
    if (rg_share.own_memory ||
        rg_meter_instance_end(&instance->meter, &instance->change, result, (uintptr_t)instance->library))
        return result;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult get_function(CUfunction *out, CUkernel kernel)
{
    struct instance instance;
    CUlibrary library = NULL;
    if (!rg_share.own_memory && rg_driver_has(cuKernelGetLibrary) &&
        rg_share_direct.cuKernelGetLibrary(&library, kernel) != CUDA_SUCCESS)
        library = NULL;
    if (!begin(&instance, library))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&instance, rg_share_direct.cuKernelGetFunction(out, kernel));
}

static CUresult get_module(CUmodule *out, CUlibrary library)
{
    struct instance instance;
    if (!begin(&instance, library))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&instance, rg_share_direct.cuLibraryGetModule(out, library));
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    struct instance instance;
    if (!begin(&instance, library))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&instance, rg_share_direct.cuLibraryGetGlobal(address, bytes, library, name));
}

static CUresult get_managed(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    struct instance instance;
    if (!begin(&instance, library))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&instance, rg_share_direct.cuLibraryGetManaged(address, bytes, library, name));
}

/* --- their lives ------------------------------------------------------------------------------------------- */

static CUresult load(CUlibrary *out, const void *code, CUjit_option *options, void **values, unsigned int n,
                     CUlibraryOption *library_options, void **library_values, unsigned int n_library)
{
    struct rg_meter_change change;
    rg_meter_watch_current(&change);
    const CUresult result = rg_share_direct.cuLibraryLoadData(out, code, options, values, n, library_options,
                                                              library_values, n_library);
    if (!rg_meter_watched(&change, result, RG_METER_LIBRARY, result == CUDA_SUCCESS ? (uintptr_t)*out : 0)) {
        (void)rg_share_direct.cuLibraryUnload(*out);
        rg_meter_look(change.device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && !rg_share.own_memory)
        note(*out, bytes_of_variables(code));
    return result;
}

static CUresult unload(CUlibrary library)
{
    struct rg_meter_freed own = rg_meter_free_begin(RG_METER_LIBRARY, (uintptr_t)library),
                          instances[INSTANCES_MAX];
    unsigned n = 0;
    while (n < INSTANCES_MAX &&
           (instances[n] = rg_meter_free_begin(RG_METER_INSTANCE, (uintptr_t)library)).entry)
        n++;
    forget(library);
    const CUresult result = rg_share_direct.cuLibraryUnload(library);
    rg_meter_free_end(&own, result);
    while (n-- > 0)
        rg_meter_free_end(&instances[n], result);
    return result;
}

void rg_share_enter_libraries(void)
{
    RG_SHARE_ENTER(cuLibraryLoadData, load);
    RG_SHARE_ENTER(cuLibraryUnload, unload);
    RG_SHARE_ENTER(cuKernelGetFunction, get_function);
    RG_SHARE_ENTER(cuLibraryGetModule, get_module);
    RG_SHARE_ENTER(cuLibraryGetGlobal, get_global);
    RG_SHARE_ENTER(cuLibraryGetManaged, get_managed);
}
