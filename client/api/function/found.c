/* found.c - lists of what has been found: functions of modules, kernels of libraries. See function.h. */
#include "client/api/function/function.h"
#include "common/base/uncancelled.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t rg_found_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static struct rg_found_question *asked; /* by threads that wait for the answers */

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

static bool is_asked(const struct rg_found_question *question)
{
    const struct rg_found_question *at = asked;
    while (at && (at->owner != question->owner || at->context != question->context ||
                  (at->name && question->name && strcmp(at->name, question->name) != 0)))
        at = at->next;
    return at;
}

void rg_found_begin(struct rg_found_question *question)
{
    question->cancellable = rg_uncancelled_begin();
    while (is_asked(question))
        pthread_cond_wait(&answered, &rg_found_mutex);
    question->next = asked;
    asked = question;
}

void rg_found_end(struct rg_found_question *question)
{
    rg_found_lock();
    struct rg_found_question **at = &asked;
    while (*at != question)
        at = &(*at)->next;
    *at = question->next;
    pthread_cond_broadcast(&answered);
    rg_found_unlock();
    rg_uncancelled_end(&question->cancellable);
}
