/*
 * export_tables.c - see export_tables.h.
 *
 * A table is an array of words; in most, word 0 is the size in bytes. All tables are filled once and never
 * change.
 */
#include "common/cuda/export_tables.h"

#include "common/base/log.h"
#include "common/base/uuid_text.h"
#include "common/cuda/compile_cache.h"
#include "common/cuda/context_storage.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rg_export_operations *operations;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* --- slots without a known meaning: one function each, so that the log can name them --- */

static uint64_t unknown_slot(const char *table, unsigned slot)
{
    rg_debug("export table %s: slot %u called, which has no known meaning", table, slot);
    return 0;
}

#define HEX_DIGITS(M, t, h)                                                                                  \
    M(t, h, 0)                                                                                               \
    M(t, h, 1)                                                                                               \
    M(t, h, 2)                                                                                               \
    M(t, h, 3)                                                                                               \
    M(t, h, 4)                                                                                               \
    M(t, h, 5)                                                                                               \
    M(t, h, 6)                                                                                               \
    M(t, h, 7) M(t, h, 8) M(t, h, 9) M(t, h, a) M(t, h, b) M(t, h, c) M(t, h, d) M(t, h, e) M(t, h, f)
#define DEFINE_SLOT(t, h, l)                                                                                 \
    static uint64_t t##_slot_##h##l(void)                                                                    \
    {                                                                                                        \
        return unknown_slot(t##_name, 0x##h##l);                                                             \
    }
#define NAME_SLOT(t, h, l) (void *)t##_slot_##h##l,

/* A table of up to 16 resp. 112 words. */
#define SMALL_TABLE(t, id)                                                                                   \
    static const char t##_name[] = id;                                                                       \
    HEX_DIGITS(DEFINE_SLOT, t, 0)                                                                            \
    static void *t[16] = {HEX_DIGITS(NAME_SLOT, t, 0)};
#define SEVEN_ROWS(M, t)                                                                                     \
    HEX_DIGITS(M, t, 0)                                                                                      \
    HEX_DIGITS(M, t, 1)                                                                                      \
    HEX_DIGITS(M, t, 2) HEX_DIGITS(M, t, 3) HEX_DIGITS(M, t, 4) HEX_DIGITS(M, t, 5) HEX_DIGITS(M, t, 6)
#define LARGE_TABLE(t, id)                                                                                   \
    static const char t##_name[] = id;                                                                       \
    SEVEN_ROWS(DEFINE_SLOT, t)                                                                               \
    static void *t[112] = {SEVEN_ROWS(NAME_SLOT, t)};

SMALL_TABLE(runtime_interface, "6bd5fb6c (runtime interface)")
SMALL_TABLE(runtime_hooks, "a094798c (runtime hooks)")
SMALL_TABLE(tools_thread, "42d85a81 (tools, thread-local)")
SMALL_TABLE(storage_table, "c693336e (context-local storage)")
SMALL_TABLE(integrity_table, "d4082055 (integrity check)")
LARGE_TABLE(context_checks, "263e8860 (context checks)")
LARGE_TABLE(libraries, "21318c60 (libraries)")
LARGE_TABLE(module_walk, "6e163fbe (module iterator)")
SMALL_TABLE(compilers, "da9151d3 (compilers)")
LARGE_TABLE(extended_device, "b10541e1 (extended device)")
SMALL_TABLE(context_bypass, "0ca50b8c (context creation)")
SMALL_TABLE(heap_access, "195bcbf4 (heap access)")
static const char profilers_name[] = "7cb63f9b (profilers)";
static void *profilers[112];

static const struct table {
    const char *id;
    void **words;
    size_t n_words;
    bool sized; /* word 0 holds the size */
} tables[] = {
    {"6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", runtime_interface, 13, true},
    {"a094798c-2e74-2e74-93f2-0800200c0a66", runtime_hooks, 7, true},
    {"42d85a81-23f6-cb47-8298-f6e78a3aecdc", tools_thread, 4, true},
    {"c693336e-1121-df11-a8c3-68f355d89593", storage_table, 4, false},
    {"d4082055-bde6-704b-8d34-ba123c66e1f2", integrity_table, 3, true},
    {"263e8860-7cd2-6143-92f6-bbd5006dfa7e", context_checks, 17, true},
    {"21318c60-9714-3248-8ca6-41ff7324c8f2", libraries, 96, true},
    {"6e163fbe-b958-444d-835c-e182aff1991e", module_walk, 105, true},
    {"da9151d3-3ae6-cc41-a5c0-4f26d533e328", compilers, 7, true},
    {"b10541e1-f7c7-c74a-9f64-f223be99f1e2", extended_device, 34, true},
    {"0ca50b8c-1004-929a-89a7-d0df10e77286", context_bypass, 2, true},
    {"195bcbf4-d67d-024a-acc5-1d29cea631ae", heap_access, 3, true},
    {"7cb63f9b-9ca4-8e42-a484-beb66e6aed7f", profilers, 112, true},
};

/* --- 6bd5fb6c: what the runtime does not do through public calls --- */

static CUresult runtime_load(CUmodule *out, const void *wrapper)
{
    return operations->module_load(out, wrapper);
}

static CUresult runtime_primary(CUcontext *out, CUdevice device)
{
    return operations->primary_context(out, device);
}

static CUresult runtime_load_options(CUmodule *out, const void *wrapper, void *a, void *b, unsigned flags)
{
    (void)a, (void)b, (void)flags;
    return operations->module_load(out, wrapper);
}

static void runtime_nothing(void)
{
}

static CUresult runtime_load_container(const void *container, CUmodule *out, void *a, void *b, unsigned flags)
{
    (void)a, (void)b, (void)flags;
    return operations->module_load(out, container);
}

/* --- a094798c: room that the runtime keeps its callbacks in --- */

static void hooks_large(void **buffer, size_t *size)
{
    static uint64_t words[1024];
    *buffer = words;
    *size = sizeof words / sizeof words[0];
}

static void hooks_small(void **buffer, size_t *size)
{
    static uint64_t words[14];
    *buffer = words;
    *size = sizeof words / sizeof words[0];
}

static CUresult tools_current_context(CUcontext *out)
{
    *out = operations->current_context();
    return CUDA_SUCCESS;
}

/* --- c693336e: context-local storage --- */

static CUcontext storage_context(CUcontext context)
{
    return context == NULL || context == (CUcontext)(intptr_t)-1 ? operations->current_context() : context;
}

static CUresult storage_put(CUcontext context, void *key, void *value, rg_context_storage_destructor destroy)
{
    return rg_context_storage_put(storage_context(context), key, value, destroy);
}

static CUresult storage_delete(CUcontext context, void *key)
{
    return rg_context_storage_delete(storage_context(context), key);
}

static CUresult storage_get(void **value, CUcontext context, void *key)
{
    return rg_context_storage_get(value, storage_context(context), key);
}

/* --- d4082055: the integrity check --- */

static CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t out[2])
{
    struct rg_integrity_device devices[RG_EXPORT_DEVICES_MAX];
    struct rg_integrity_facts facts = {
        .driver_version = (uint32_t)operations->driver_version(),
        .pid = (uint32_t)getpid(),
        .thread = (uint32_t)(uintptr_t)pthread_self(),
        .runtime_table = runtime_interface,
        .integrity_table = integrity_table,
        .integrity_function = integrity_table[1],
        .devices = devices,
        .n_devices = operations->devices(devices, RG_EXPORT_DEVICES_MAX),
    };
    rg_integrity_answer(&facts, version, unix_seconds, out);
    return CUDA_SUCCESS;
}

/* --- the others --- */

static CUresult checks_context(CUcontext context, uint32_t *out, void **unused)
{
    (void)context, (void)unused;
    *out = 0;
    return CUDA_SUCCESS;
}

static CUresult checks_nothing(void)
{
    return CUDA_SUCCESS;
}

/* cuBLAS asks before the runtime has made a context current in the thread, and gives up on an error. */
static CUresult libraries_context_id(CUcontext context, uint32_t *out)
{
    unsigned long long id = 0;
    CUresult result = operations->context_id(context, &id);
    if (context == NULL && result == CUDA_ERROR_INVALID_CONTEXT)
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *out = (uint32_t)id;
    return result;
}

/*
 * What the driver has for a stream's handle, to be given to other slots: here a handle that needs nothing to be understood.
 * `per_thread`: NULL means the thread's default stream. The caller has just asked for the context, which is the current one.
 */
static CUresult libraries_stream(CUcontext context, CUstream handle, CUstream *out, int per_thread)
{
    (void)context;
    *out = handle != NULL ? handle : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    return CUDA_SUCCESS;
}

/*
 * Which stream that is. A handle of cuBLAS's has a pool of workspaces: products of the same stream share one, and those of another stream
 * get it only when an event says that it is free. So a wrong answer here makes wrong products.
 */
static CUresult libraries_stream_id(CUcontext context, CUstream stream, unsigned long long *out)
{
    (void)context;
    return operations->stream_id(stream, out);
}

/*
 * 6e163fbe: shows `visit` each function of a module. cuFFT, which names no kernels, takes the last it is shown. What
 * `visit` returns cannot be relied on: cuFFT's returns nothing. 1 says that it worked.
 */
static int walk_functions(CUcontext context, CUmodule module, void (*visit)(void *data, CUfunction function),
                          void *data)
{
    unsigned n;
    (void)context; /* the caller has made it current */
    if (operations->function_count(&n, module) != CUDA_SUCCESS)
        return 0;
    CUfunction *functions = calloc(n > 0 ? n : 1, sizeof *functions);
    bool good = functions != NULL && (n == 0 || operations->functions(functions, n, module) == CUDA_SUCCESS);
    for (unsigned i = 0; good && i < n; i++)
        visit(data, functions[i]);
    free(functions);
    return good;
}

static CUresult device_attribute_extended(CUdevice device, unsigned attribute, int unused, size_t out[2])
{
    (void)unused;
    rg_debug("extended attribute %u of device %d asked for: 0", attribute, (int)device);
    if (out != NULL)
        out[0] = out[1] = 0;
    return CUDA_SUCCESS;
}

static CUresult device_flag(unsigned char *out, CUdevice device)
{
    (void)device;
    *out = 0;
    return CUDA_SUCCESS;
}

/* --- da9151d3: the cache of compiled code --- */

static CUresult compile_begin(struct rg_compile **out, unsigned kind, const void *input, size_t size,
                              const char *options, const char *host, const char *built, unsigned architecture)
{
    (void)host, (void)built;
    return rg_compile_begin(out, operations->ptx_architecture(), kind, input, size, options, architecture);
}

static CUresult compile_find(const struct rg_compile *compile, unsigned unused, void **data, uint32_t *size)
{
    (void)unused;
    return rg_compile_find(compile, data, size);
}

static CUresult compile_store(const struct rg_compile *compile, unsigned unused, const void *data,
                              uint32_t size)
{
    (void)unused;
    return rg_compile_store(compile, data, size);
}

static CUresult compile_unknown(void)
{
    rg_debug("export table %s: slot 5 called, which has no known meaning", compilers_name);
    return CUDA_ERROR_NOT_SUPPORTED; /* success would mean that something has been found */
}

/* --- 7cb63f9b: what CUPTI has the driver trace, which is not forwarded --- */

/*
 * CUPTI is of no use without this table, not even for its own version, and JAX does not start where that cannot be had. With
 * it, CUPTI (12.9 to 13.5 were tried) tells its version and the time, and each attempt to trace ends with its own error.
 */
static CUresult profile_nothing(void)
{
    rg_debug("export table %s: a profiler wants to trace the driver's work, which is not supported",
             profilers_name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult bypass_create(CUcontext *out, unsigned flags, CUdevice device)
{
    return operations->context_create(out, flags, device);
}

static void fill(void)
{
    runtime_interface[1] = (void *)runtime_load;
    runtime_interface[2] = (void *)runtime_primary;
    runtime_interface[6] = (void *)runtime_load_options;
    runtime_interface[7] = (void *)runtime_nothing;
    runtime_interface[8] = (void *)runtime_load_container;
    runtime_hooks[2] = (void *)hooks_large;
    runtime_hooks[6] = (void *)hooks_small;
    tools_thread[2] = (void *)tools_current_context;
    storage_table[0] = (void *)storage_put;
    storage_table[1] = (void *)storage_delete;
    storage_table[2] = (void *)storage_get;
    integrity_table[1] = (void *)integrity_check;
    context_checks[2] = (void *)checks_context;
    context_checks[3] = (void *)checks_nothing;
    libraries[4] = (void *)libraries_context_id;
    libraries[39] = (void *)libraries_stream_id;
    libraries[51] = (void *)libraries_stream;
    module_walk[7] = (void *)walk_functions;
    compilers[1] = (void *)compile_begin;
    compilers[2] = (void *)rg_compile_end;
    compilers[3] = (void *)compile_find;
    compilers[4] = (void *)compile_store;
    compilers[5] = (void *)compile_unknown;
    compilers[6] = (void *)free;
    extended_device[5] = (void *)device_attribute_extended;
    extended_device[13] = (void *)device_flag;
    context_bypass[1] = (void *)bypass_create;
    for (size_t i = 0; i < sizeof profilers / sizeof profilers[0]; i++)
        profilers[i] = (void *)profile_nothing;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].sized)
            tables[i].words[0] = (void *)(tables[i].n_words * sizeof(void *));
}

void rg_export_tables_init(const struct rg_export_operations *given)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (operations == NULL)
        operations = given;
    pthread_mutex_unlock(&lock);
    pthread_once(&once, fill);
}

CUresult rg_export_table_get(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    char named[RG_UUID_TEXT];
    const char *text = rg_uuid_bare(rg_uuid_text((const uint8_t *)id->bytes, false, named, sizeof named));
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(text, tables[i].id) == 0) {
            *table = tables[i].words;
            return CUDA_SUCCESS;
        }
    rg_debug("export table %s is not known", text);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
