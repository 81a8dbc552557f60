/*
 * nvml.c - libnvidia-ml.so.1 as the application sees it: exported functions that find their implementation.
 *
 * As with the driver's stand-in (load.h), nothing happens when the library is loaded; the first call loads the client
 * core. If that is not possible, the reason is told once on stderr and every call says that a library was not found.
 */
#include "client/entry.h"
#include "client/nvml/functions.h"
#include "interpose/core.h"

#include <pthread.h>

static void *const *functions; /* once loaded; read with acquire */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *fallback[RG_NVML_FUNCTION_COUNT];

static int not_found(void)
{
    return RG_NVML_LIBRARY_NOT_FOUND;
}

static const char *not_found_text(void)
{
    return "remote-gpu is not installed completely";
}

static void fill_fallback(void)
{
    for (int i = 0; i < RG_NVML_FUNCTION_COUNT; i++)
        fallback[i] = (void *)not_found;
    fallback[RG_NVML_FUNCTION_nvmlErrorString] = (void *)not_found_text;
}

static void *const *load(void)
{
    void *const *table = rg_interpose_core(RG_CLIENT_NVML_ENTRY, RG_NVML_FUNCTION_COUNT);
    if (!table) {
        pthread_once(&once, fill_fallback);
        table = fallback;
    }
    return rg_interpose_first(&functions, table);
}

static void *find(enum rg_nvml_function function)
{
    void *const *table = __atomic_load_n(&functions, __ATOMIC_ACQUIRE);
    return (table ? table : load())[function];
}

#define SERVED(returns, name, parameters, arguments)                                                         \
    RG_EXPORT returns name parameters                                                                        \
    {                                                                                                        \
        return ((__typeof__(name) *)find(RG_NVML_FUNCTION_##name))arguments;                                 \
    }
#define DEVICE(name)                                                                                         \
    RG_EXPORT int name(rg_nvml_device device);                                                               \
    RG_EXPORT int name(rg_nvml_device device)                                                                \
    {                                                                                                        \
        return ((int (*)(rg_nvml_device))find(RG_NVML_FUNCTION_##name))(device);                             \
    }
#define SYSTEM(name)                                                                                         \
    RG_EXPORT int name(void);                                                                                \
    RG_EXPORT int name(void)                                                                                 \
    {                                                                                                        \
        return ((int (*)(void))find(RG_NVML_FUNCTION_##name))();                                             \
    }
#define OLDER(name, served) RG_EXPORT extern __typeof__(served) name __attribute__((alias(#served)));
RG_NVML_SERVED_FUNCTIONS(SERVED)
RG_NVML_OLDER_NAMES(OLDER)
/* What was not passed is not looked at: the calling conventions of Linux allow it for numbers and addresses. */
#define ASK(name, signature)                                                                                 \
    RG_EXPORT int name(rg_nvml_device device, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,            \
                       uintptr_t e, uintptr_t f);                                                            \
    RG_EXPORT int name(rg_nvml_device device, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,            \
                       uintptr_t e, uintptr_t f)                                                             \
    {                                                                                                        \
        return ((rg_nvml_asked *)find(RG_NVML_FUNCTION_##name))(device, a, b, c, d, e, f);                   \
    }
RG_MANAGEMENT_QUESTIONS(ASK)
RG_NVML_UNSUPPORTED_FUNCTIONS(DEVICE, SYSTEM)
RG_NVML_REFUSED_FUNCTIONS(DEVICE, SYSTEM)
