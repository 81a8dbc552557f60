/* context_storage.c - a list under a lock. See context_storage.h. */
#include "common/cuda/context_storage.h"

#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>

struct stored {
    struct stored *next;
    CUcontext context;
    void *key, *value;
    rg_context_storage_destructor destroy;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stored *all;

/* The link that points at the entry, or at the end. Lock held. */
static struct stored **find(CUcontext context, const void *key)
{
    struct stored **link = &all;
    while (*link != NULL && ((*link)->context != context || (*link)->key != key))
        link = &(*link)->next;
    return link;
}

CUresult rg_context_storage_put(CUcontext context, void *key, void *value,
                                rg_context_storage_destructor destroy)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct stored *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_SCOPED_LOCK(&lock);
    struct stored **link = find(context, key);
    if (*link != NULL) {
        (*link)->value = value;
        (*link)->destroy = destroy;
        free(entry);
    } else {
        *entry = (struct stored){NULL, context, key, value, destroy};
        *link = entry;
    }
    return CUDA_SUCCESS;
}

CUresult rg_context_storage_delete(CUcontext context, const void *key)
{
    pthread_mutex_lock(&lock);
    struct stored **link = find(context, key);
    struct stored *entry = *link;
    if (entry != NULL)
        *link = entry->next;
    pthread_mutex_unlock(&lock);
    free(entry);
    return entry != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult rg_context_storage_get(void **value, CUcontext context, const void *key)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    RG_SCOPED_LOCK(&lock);
    const struct stored *entry = *find(context, key);
    if (entry != NULL)
        *value = entry->value;
    return entry != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void rg_context_storage_end(CUcontext context)
{
    struct stored *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct stored **link = &all; *link != NULL;) {
        struct stored *entry = *link;
        if (entry->context != context) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        entry->next = gone;
        gone = entry;
    }
    pthread_mutex_unlock(&lock);
    while (gone != NULL) {
        struct stored *next = gone->next;
        if (gone->destroy != NULL)
            gone->destroy(gone->context, gone->key, gone->value);
        free(gone);
        gone = next;
    }
}
