/* load.c - see load.h. */
#include "interpose/load.h"

#include "client/entry.h"
#include "interpose/core.h"

#include <cuda.h>
#include <pthread.h>

void *const *rg_interpose_table;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *fallback[RG_API_COUNT];

/* Stands for every function if there is no core. Arguments are left unread, which the C calling conventions allow. */
static CUresult not_ready(void)
{
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

static void fill_fallback(void)
{
    for (int i = 0; i < RG_API_COUNT; i++)
        fallback[i] = (void *)not_ready;
}

void *const *rg_interpose_load(void)
{
    void *const *table = rg_interpose_core(RG_CLIENT_ENTRY, RG_API_COUNT);
    if (!table) {
        pthread_once(&once, fill_fallback);
        table = fallback;
    }
    return rg_interpose_first(&rg_interpose_table, table);
}
