/*
 * logs.c - the driver's log: the messages that this stand-in writes about calls that fail, kept for the
 * program.
 *
 * Warnings and errors of common/base/log.h are kept whether or not they are shown. A ring holds the last of
 * them; an iterator is the number of the next message, counted from the start of the process, so one that
 * points to an overwritten message is told by its age. Callbacks run on the thread that logs, without the
 * lock; they may not be told of what they log themselves.
 */
#include "common/base/log.h"
#include "common/cuda/api.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES     100
#define MESSAGE_SIZE 256 /* 100 of them make the 25600 bytes that the API promises at most */

static const char truncated[] = "[older messages have been dropped]\n";

struct CUlogsCallbackEntry_st {
    struct CUlogsCallbackEntry_st *next;
    CUlogsCallback call;
    void *user;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char ring[MESSAGES][MESSAGE_SIZE]; /* with newline and NUL */
static CUlogIterator next;                /* number of the next message */
static struct CUlogsCallbackEntry_st *callbacks;
static __thread bool calling;

static void keep(enum rg_log_level level, const char *text, size_t size)
{
    if (calling)
        return;
    struct {
        CUlogsCallback call;
        void *user;
    } all[16];
    size_t n = 0;
    pthread_mutex_lock(&lock);
    snprintf(ring[next % MESSAGES], MESSAGE_SIZE, "%.*s\n",
             (int)(size < MESSAGE_SIZE - 2 ? size : MESSAGE_SIZE - 2), text);
    next++;
    for (const struct CUlogsCallbackEntry_st *at = callbacks; at && n < sizeof all / sizeof *all;
         at = at->next) {
        all[n].call = at->call;
        all[n++].user = at->user;
    }
    pthread_mutex_unlock(&lock);
    calling = true;
    for (size_t i = 0; i < n; i++) {
        char copy[MESSAGE_SIZE];
        snprintf(copy, sizeof copy, "%.*s", (int)size, text);
        all[i].call(all[i].user, level == RG_LOG_ERROR ? CU_LOG_LEVEL_ERROR : CU_LOG_LEVEL_WARNING, copy,
                    strlen(copy));
    }
    calling = false;
}

static void __attribute__((constructor)) listen_to_log(void)
{
    rg_log_tap(keep);
}

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData,
                                CUlogsCallbackHandle *callback_out)
{
    if (!callbackFunc)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUlogsCallbackEntry_st *entry = calloc(1, sizeof *entry);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry->call = callbackFunc;
    entry->user = userData;
    pthread_mutex_lock(&lock);
    entry->next = callbacks;
    callbacks = entry;
    pthread_mutex_unlock(&lock);
    if (callback_out)
        *callback_out = entry;
    return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
    struct CUlogsCallbackEntry_st **link = &callbacks;
    pthread_mutex_lock(&lock);
    while (*link && *link != callback)
        link = &(*link)->next;
    struct CUlogsCallbackEntry_st *found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator *iterator_out, unsigned int flags)
{
    if (!iterator_out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&lock);
    *iterator_out = next;
    return CUDA_SUCCESS;
}

/* The first message that is still there of those from `iterator` on; the lock is held. */
static CUlogIterator first_kept(const CUlogIterator *iterator, bool *dropped)
{
    const CUlogIterator oldest = next > MESSAGES ? next - MESSAGES : 0, wanted = iterator ? *iterator : 0;
    *dropped = wanted < oldest;
    return wanted < oldest ? oldest : wanted > next ? next : wanted;
}

CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *pathToFile, unsigned int flags)
{
    if (!pathToFile || flags)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(pathToFile, "we");
    if (!file)
        return CUDA_ERROR_INVALID_VALUE;
    bool dropped;
    pthread_mutex_lock(&lock);
    CUlogIterator at = first_kept(iterator, &dropped);
    if (dropped)
        fputs(truncated, file);
    while (at < next)
        fputs(ring[at++ % MESSAGES], file);
    pthread_mutex_unlock(&lock);
    const bool written = !ferror(file);
    if (fclose(file) != 0 || !written)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (iterator)
        *iterator = at;
    return CUDA_SUCCESS;
}

CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
    if (!buffer || !size || !*size || flags)
        return CUDA_ERROR_INVALID_VALUE;
    bool dropped;
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    const CUlogIterator oldest = first_kept(iterator, &dropped);
    /* The last messages are the ones that count: as many of them as fit, behind the note that some do not. */
    size_t room = *size - 1, used = 0;
    CUlogIterator at = next;
    while (at > oldest) {
        const size_t length = strlen(ring[(at - 1) % MESSAGES]);
        const size_t note = dropped || at - 1 > oldest ? sizeof truncated - 1 : 0;
        if (used + length + note > room)
            break;
        used += length;
        at--;
    }
    if (at > oldest)
        dropped = true;
    if (at == next && oldest < next) {
        status = CUDA_ERROR_INVALID_VALUE; /* no room for one */
        used = 0;
    } else {
        char *to = buffer;
        if (dropped)
            to = stpcpy(to, truncated);
        for (; at < next; at++)
            to = stpcpy(to, ring[at % MESSAGES]);
        *to = '\0';
        used = (size_t)(to - buffer);
        if (iterator)
            *iterator = next;
    }
    pthread_mutex_unlock(&lock);
    if (used == 0)
        *buffer = '\0';
    *size = used;
    return status;
}
