/* found.c - lists of what has been found: functions of modules, kernels of libraries. See function.h. */
#include "client/api/function.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void rg_found_lock(void)
{
    pthread_mutex_lock(&lock);
}

void rg_found_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

uint64_t rg_found_by_name(const struct rg_found_function *list, const char *name)
{
    for (; list; list = list->next)
        if (strcmp(list->name, name) == 0)
            return list->handle;
    return 0;
}

uint64_t rg_found_by_key(const struct rg_found_function *list, uint64_t key)
{
    for (; list; list = list->next)
        if (list->key == key)
            return list->handle;
    return 0;
}

bool rg_found_add(struct rg_found_function **list, const char *name, uint64_t key, uint64_t handle)
{
    size_t length = name ? strlen(name) : 0;
    struct rg_found_function *entry = malloc(sizeof *entry + length + 1);
    if (!entry)
        return false;
    *entry = (struct rg_found_function){.next = *list, .handle = handle, .key = key};
    memcpy(entry->name, name ? name : "", length + 1);
    *list = entry;
    return true;
}

/*
 * What a function's shadow owns is not freed: another thread may be reading it; it is small and modules are
 * few.
 */
void rg_found_free(struct rg_found_function **list, enum rg_kind kind)
{
    while (*list) {
        struct rg_found_function *entry = *list;
        *list = entry->next;
        if (kind < RG_KIND_COUNT)
            rg_handle_delete(kind, entry->handle);
        free(entry);
    }
}

uint64_t rg_found_take(struct rg_found_function **list, uint64_t key)
{
    while (*list && (*list)->key != key)
        list = &(*list)->next;
    struct rg_found_function *entry = *list;
    const uint64_t handle = entry ? entry->handle : 0;
    if (entry)
        *list = entry->next;
    free(entry);
    return handle;
}
