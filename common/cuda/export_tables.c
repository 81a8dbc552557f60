/*
 * export_tables.c - see export_tables.h.
 *
 * A table is an array of words; in most, word 0 is the size in bytes. All tables are filled once and never
 * change. Context-local storage is a list under a lock of its own; destructors run without it.
 */
#include "common/cuda/export_tables.h"

#include "common/base/log.h"
#include "common/cuda/compile_cache.h"

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
#define LARGE_TABLE(t, id)                                                                                   \
    static const char t##_name[] = id;                                                                       \
    HEX_DIGITS(DEFINE_SLOT, t, 0)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 1)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 2)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 3)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 4)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 5)                                                                            \
    HEX_DIGITS(DEFINE_SLOT, t, 6)                                                                            \
    static void *t[112] = {HEX_DIGITS(NAME_SLOT, t, 0) HEX_DIGITS(NAME_SLOT, t, 1)                           \
                               HEX_DIGITS(NAME_SLOT, t, 2) HEX_DIGITS(NAME_SLOT, t, 3)                       \
                                   HEX_DIGITS(NAME_SLOT, t, 4) HEX_DIGITS(NAME_SLOT, t, 5)                   \
                                       HEX_DIGITS(NAME_SLOT, t, 6)};

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
    unsigned char id[16];
    void **words;
    size_t n_words;
    bool sized; /* word 0 holds the size */
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     runtime_interface,
     13,
     true},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     runtime_hooks,
     7,
     true},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     tools_thread,
     4,
     true},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     storage_table,
     4,
     false},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     integrity_table,
     3,
     true},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     context_checks,
     17,
     true},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     libraries,
     96,
     true},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
     module_walk,
     105,
     true},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28},
     compilers,
     7,
     true},
    {{0xb1, 0x05, 0x41, 0xe1, 0xf7, 0xc7, 0xc7, 0x4a, 0x9f, 0x64, 0xf2, 0x23, 0xbe, 0x99, 0xf1, 0xe2},
     extended_device,
     34,
     true},
    {{0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86},
     context_bypass,
     2,
     true},
    {{0x19, 0x5b, 0xcb, 0xf4, 0xd6, 0x7d, 0x02, 0x4a, 0xac, 0xc5, 0x1d, 0x29, 0xce, 0xa6, 0x31, 0xae},
     heap_access,
     3,
     true},
    {{0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed, 0x7f},
     profilers,
     112,
     true},
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

typedef void (*storage_destructor)(CUcontext context, void *key, void *value);

struct stored {
    struct stored *next;
    CUcontext context;
    void *key, *value;
    storage_destructor destroy;
};

static pthread_mutex_t storage_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stored *storage;

static CUcontext storage_context(CUcontext context)
{
    return context == NULL || context == (CUcontext)(intptr_t)-1 ? operations->current_context() : context;
}

/* The link that points at the entry, or at the end. Lock held. */
static struct stored **storage_find(CUcontext context, const void *key)
{
    struct stored **link = &storage;
    while (*link != NULL && ((*link)->context != context || (*link)->key != key))
        link = &(*link)->next;
    return link;
}

static CUresult storage_put(CUcontext context, void *key, void *value, storage_destructor destroy)
{
    context = storage_context(context);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct stored *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&storage_lock);
    struct stored **link = storage_find(context, key);
    if (*link != NULL) {
        (*link)->value = value;
        (*link)->destroy = destroy;
        free(entry);
    } else {
        *entry = (struct stored){NULL, context, key, value, destroy};
        *link = entry;
    }
    pthread_mutex_unlock(&storage_lock);
    return CUDA_SUCCESS;
}

static CUresult storage_delete(CUcontext context, void *key)
{
    context = storage_context(context);
    pthread_mutex_lock(&storage_lock);
    struct stored **link = storage_find(context, key);
    struct stored *entry = *link;
    if (entry != NULL)
        *link = entry->next;
    pthread_mutex_unlock(&storage_lock);
    free(entry);
    return entry != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult storage_get(void **value, CUcontext context, void *key)
{
    context = storage_context(context);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&storage_lock);
    const struct stored *entry = *storage_find(context, key);
    if (entry != NULL)
        *value = entry->value;
    pthread_mutex_unlock(&storage_lock);
    return entry != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void rg_export_storage_reset(CUcontext context)
{
    struct stored *gone = NULL;
    pthread_mutex_lock(&storage_lock);
    for (struct stored **link = &storage; *link != NULL;) {
        struct stored *entry = *link;
        if (entry->context != context) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        entry->next = gone;
        gone = entry;
    }
    pthread_mutex_unlock(&storage_lock);
    while (gone != NULL) {
        struct stored *next = gone->next;
        if (gone->destroy != NULL)
            gone->destroy(gone->context, gone->key, gone->value);
        free(gone);
        gone = next;
    }
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
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (memcmp(id->bytes, tables[i].id, sizeof tables[i].id) == 0) {
            *table = tables[i].words;
            return CUDA_SUCCESS;
        }
    const unsigned char *b = (const unsigned char *)id->bytes;
    rg_debug("export table %02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x is not known",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
