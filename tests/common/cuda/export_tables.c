/* Export tables: sizes, known slots, unknown ids, context-local storage. Slots are called as a runtime calls them. */
#include "common/cuda/export_tables.h"
#include "common/cuda/context_storage.h"

#include <criterion/criterion.h>
#include <string.h>

static CUcontext current = (CUcontext)0x10;
static const void *loaded;

static int version(void)
{
    return 13000;
}
static CUresult primary(CUcontext *out, CUdevice device)
{
    *out = (CUcontext)(uintptr_t)(0x100 + (unsigned)device);
    return CUDA_SUCCESS;
}
static CUresult load(CUmodule *out, const void *image)
{
    loaded = image;
    *out = (CUmodule)0x200;
    return CUDA_SUCCESS;
}
static CUcontext get_current(void)
{
    return current;
}
static CUresult context_id(CUcontext context, unsigned long long *id)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT; /* as where none is current */
    *id = (uintptr_t)context + 1;
    return CUDA_SUCCESS;
}
static CUresult stream_id(CUstream stream, unsigned long long *id)
{
    if (stream == NULL)
        return CUDA_ERROR_INVALID_HANDLE; /* which default stream is meant has been said before */
    *id = (uintptr_t)stream + (1ull << 40);
    return CUDA_SUCCESS;
}
static CUresult create(CUcontext *out, unsigned flags, CUdevice device)
{
    *out = (CUcontext)(uintptr_t)(flags + (unsigned)device);
    return CUDA_SUCCESS;
}
static CUresult function_count(unsigned *count, CUmodule module)
{
    if (module != (CUmodule)0x200)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = 3;
    return CUDA_SUCCESS;
}
static CUresult functions(CUfunction *out, unsigned n, CUmodule module)
{
    (void)module;
    for (unsigned i = 0; i < n; i++)
        out[i] = (CUfunction)(uintptr_t)(0x300 + i);
    return CUDA_SUCCESS;
}
static unsigned newest_ptx;
static unsigned ptx_architecture(void)
{
    return newest_ptx;
}
static size_t devices(struct rg_integrity_device *out, size_t max)
{
    (void)out, (void)max;
    return 0;
}
static const struct rg_export_operations operations = {version,    primary,          load,   get_current,
                                                       context_id, stream_id,        create, function_count,
                                                       functions,  ptx_architecture, devices};

#define RUNTIME   "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"
#define HOOKS     "\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66"
#define STORAGE   "\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93"
#define INTEGRITY "\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2"
#define COMPILERS "\xda\x91\x51\xd3\x3a\xe6\xcc\x41\xa5\xc0\x4f\x26\xd5\x33\xe3\x28"
#define PROFILERS "\x7c\xb6\x3f\x9b\x9c\xa4\x8e\x42\xa4\x84\xbe\xb6\x6e\x6a\xed\x7f"
#define MODULES   "\x6e\x16\x3f\xbe\xb9\x58\x44\x4d\x83\x5c\xe1\x82\xaf\xf1\x99\x1e"
#define LIBRARIES "\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2"

static void *const *table(const char *id)
{
    CUuuid uuid;
    const void *words;
    memcpy(uuid.bytes, id, 16);
    rg_export_tables_init(&operations);
    cr_assert_eq(rg_export_table_get(&words, &uuid), CUDA_SUCCESS);
    return words;
}

Test(tables, have_their_sizes_and_no_empty_slot)
{
    static const struct {
        const char *id;
        size_t words;
    } sized[] = {{RUNTIME, 13},   {HOOKS, 7},     {INTEGRITY, 3},
                 {LIBRARIES, 96}, {COMPILERS, 7}, {PROFILERS, 112}};
    for (size_t i = 0; i < sizeof sized / sizeof sized[0]; i++) {
        void *const *t = table(sized[i].id);
        cr_assert_eq((uintptr_t)t[0], sized[i].words * 8);
        for (size_t k = 1; k < sized[i].words; k++)
            cr_assert_not_null(t[k]);
    }
    cr_assert_eq(((uint64_t(*)(void))table(RUNTIME)[11])(), 0);
}

Test(tables, unknown_ids_are_refused)
{
    CUuuid uuid = {"nothing of ours"};
    const void *words = &uuid;
    cr_assert_eq(rg_export_table_get(&words, &uuid), CUDA_ERROR_NOT_FOUND);
    cr_assert_null(words);
    cr_assert_eq(rg_export_table_get(NULL, &uuid), CUDA_ERROR_INVALID_VALUE);
}

Test(profilers, are_told_that_nothing_can_be_traced)
{
    void *const *t = table(PROFILERS);
    for (size_t k = 1; k < 112; k++)
        cr_assert_eq(((CUresult(*)(void))t[k])(), CUDA_ERROR_NOT_SUPPORTED);
}

Test(runtime, primary_context_and_modules)
{
    void *const *t = table(RUNTIME);
    CUcontext context;
    CUmodule module;
    cr_assert_eq(((CUresult(*)(CUcontext *, CUdevice))t[2])(&context, 3), CUDA_SUCCESS);
    cr_assert_eq(context, (CUcontext)0x103);
    cr_assert_eq(((CUresult(*)(CUmodule *, const void *))t[1])(&module, "a"), CUDA_SUCCESS);
    cr_assert_str_eq(loaded, "a");
    cr_assert_eq(
        ((CUresult(*)(CUmodule *, const void *, void *, void *, unsigned))t[6])(&module, "b", 0, 0, 0), 0);
    cr_assert_str_eq(loaded, "b");
    cr_assert_eq(
        ((CUresult(*)(const void *, CUmodule *, void *, void *, unsigned))t[8])("c", &module, 0, 0, 0), 0);
    cr_assert_str_eq(loaded, "c");
    uint32_t id;
    cr_assert_eq(((CUresult(*)(CUcontext, uint32_t *))table(LIBRARIES)[4])((CUcontext)0x10, &id),
                 CUDA_SUCCESS);
    cr_assert_eq(id, 0x11);
    cr_assert_eq(((CUresult(*)(CUcontext, uint32_t *))table(LIBRARIES)[4])(NULL, &id), CUDA_SUCCESS);
    cr_assert_eq(id, 0);
}

/* As cuBLAS asks, with the bits of its stack where the answer is to be. */
static unsigned long long number_of(CUstream handle, int per_thread)
{
    void *const *t = table(LIBRARIES);
    CUstream stream = (CUstream)-1;
    unsigned long long id = 0x7f9d00000000;
    cr_assert_eq(((CUresult(*)(CUcontext, CUstream, CUstream *, int))t[51])((CUcontext)0x10, handle, &stream,
                                                                            per_thread),
                 CUDA_SUCCESS);
    cr_assert_eq(
        ((CUresult(*)(CUcontext, CUstream, unsigned long long *))t[39])((CUcontext)0x10, stream, &id),
        CUDA_SUCCESS);
    return id;
}

Test(libraries, tell_streams_apart)
{
    cr_assert_eq(number_of((CUstream)0x400, 0), (1ull << 40) + 0x400);
    cr_assert_eq(number_of((CUstream)0x500, 0), (1ull << 40) + 0x500);
    cr_assert_eq(number_of(NULL, 0), number_of(CU_STREAM_LEGACY, 0));
    cr_assert_eq(number_of(NULL, 1), number_of(CU_STREAM_PER_THREAD, 1));
    cr_assert_neq(number_of(NULL, 0), number_of(NULL, 1));
}

static CUfunction seen[8];
static unsigned n_seen;

static void see(void *data, CUfunction function)
{
    cr_assert_eq(data, seen);
    seen[n_seen++] = function;
}

Test(modules, are_walked_function_by_function)
{
    int (*walk)(CUcontext, CUmodule, void (*)(void *, CUfunction), void *) =
        (int (*)(CUcontext, CUmodule, void (*)(void *, CUfunction), void *))table(MODULES)[7];
    cr_assert_eq(walk((CUcontext)0x10, (CUmodule)0x200, see, seen), 1);
    cr_assert_eq(n_seen, 3);
    cr_assert_eq(seen[2], (CUfunction)0x302);
    cr_assert_eq(walk((CUcontext)0x10, (CUmodule)0x201, see, seen), 0);
    cr_assert_eq(n_seen, 3);
}

static int destroyed;

static void destroy(CUcontext context, void *key, void *value)
{
    cr_assert_eq(context, (CUcontext)0x10);
    cr_assert_eq(key, &destroyed);
    destroyed = (int)(intptr_t)value;
}

Test(storage, belongs_to_a_context)
{
    void *const *t = table(STORAGE);
    CUresult (*put)(CUcontext, void *, void *, void *) = (CUresult(*)(CUcontext, void *, void *, void *))t[0];
    CUresult (*drop)(CUcontext, void *) = (CUresult(*)(CUcontext, void *))t[1];
    CUresult (*get)(void **, CUcontext, void *) = (CUresult(*)(void **, CUcontext, void *))t[2];
    void *value, *key = &destroyed;
    cr_assert_eq(get(&value, NULL, key), CUDA_ERROR_INVALID_HANDLE);
    cr_assert_eq(put(NULL, key, (void *)5, (void *)destroy), CUDA_SUCCESS);
    cr_assert_eq(get(&value, (CUcontext)0x10, key), CUDA_SUCCESS);
    cr_assert_eq(value, (void *)5);
    cr_assert_eq(get(&value, (CUcontext)0x20, key), CUDA_ERROR_INVALID_HANDLE);
    cr_assert_eq(put((CUcontext)-1, key, (void *)6, (void *)destroy), CUDA_SUCCESS);
    rg_context_storage_end((CUcontext)0x20);
    cr_assert_eq(destroyed, 0);
    rg_context_storage_end((CUcontext)0x10);
    cr_assert_eq(destroyed, 6);
    cr_assert_eq(get(&value, NULL, key), CUDA_ERROR_INVALID_HANDLE);
    cr_assert_eq(put(NULL, key, (void *)7, (void *)destroy), CUDA_SUCCESS);
    cr_assert_eq(drop(NULL, key), CUDA_SUCCESS);
    cr_assert_eq(drop(NULL, key), CUDA_ERROR_INVALID_HANDLE);
    rg_context_storage_end((CUcontext)0x10);
    cr_assert_eq(destroyed, 6);
    current = NULL;
    cr_assert_eq(put(NULL, key, (void *)7, (void *)destroy), CUDA_ERROR_INVALID_CONTEXT);
}

typedef CUresult (*begin_function)(void **, unsigned, const void *, size_t, const char *, const char *,
                                   const char *, unsigned, unsigned);
typedef CUresult (*find_function)(void *, unsigned, void **, uint32_t *);

/* As NVRTC asks; CUDA_SUCCESS without a result made it give out empty programs. */
Test(compilers, find_nothing_for_devices_of_machine_code)
{
    void *const *t = table(COMPILERS);
    void *compile = (void *)1;
    newest_ptx = 0;
    cr_assert_neq(
        ((begin_function)t[1])(&compile, 1, "BC", 2, " -arch=sm_90", "HOST64", "Aug 20 2025", 90, 0),
        CUDA_SUCCESS);
    cr_assert_null(compile);
    cr_assert_neq(((CUresult(*)(void))t[5])(), CUDA_SUCCESS);
}

Test(compilers, find_what_carries_ptx_for_others)
{
    static const char ptx[] = ".version 8.0\n.target sm_75\n";
    void *const *t = table(COMPILERS);
    void *compile, *data = NULL;
    uint32_t size = 0;
    newest_ptx = 120;
    cr_assert_eq(
        ((begin_function)t[1])(&compile, 1, ptx, sizeof ptx, " -arch=sm_120 -c", "HOST64", "", 120, 0),
        CUDA_SUCCESS);
    cr_assert_eq(((find_function)t[3])(compile, 0, &data, &size), CUDA_SUCCESS);
    cr_assert_not_null(memmem(data, size, ptx, strlen(ptx)));
    ((void (*)(void *))t[6])(data);
    cr_assert_eq(((CUresult(*)(void *))t[2])(compile), CUDA_SUCCESS);
}
