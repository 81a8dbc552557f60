/* nccl.c - see nccl.h. */
#include "interpose/nccl.h"

#include "client/entry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static void *const *functions; /* once loaded; read with acquire */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *fallback[RG_NCCL_FUNCTION_COUNT];

static ncclResult_t not_ready(void)
{
    return ncclSystemError;
}

static const char *not_ready_text(void)
{
    return "remote-gpu is not installed completely";
}

static void fill_fallback(void)
{
    for (int i = 0; i < RG_NCCL_FUNCTION_COUNT; i++)
        fallback[i] = (void *)not_ready;
    fallback[RG_NCCL_ncclGetErrorString] = fallback[RG_NCCL_ncclGetLastError] = (void *)not_ready_text;
}

static void *const *load(void)
{
    void *const *table = rg_interpose_core(RG_CLIENT_NCCL_ENTRY, RG_NCCL_FUNCTION_COUNT);
    if (!table) {
        pthread_once(&once, fill_fallback);
        table = fallback;
    }
    return rg_interpose_first(&functions, table);
}

void *rg_nccl_entry(enum rg_nccl_function function)
{
    void *const *table = __atomic_load_n(&functions, __ATOMIC_ACQUIRE);
    return (table ? table : load())[function];
}

ncclResult_t rg_nccl_later(const char *name)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        dprintf(STDERR_FILENO,
                "remote-gpu: NCCL's %s is of a later version than 2.27, which is what there is here; with "
                "--opt -nccl the program "
                "has its own NCCL\n",
                name);
    return ncclInvalidUsage;
}
