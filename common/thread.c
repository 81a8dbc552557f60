/* thread.c - starting threads with every signal blocked. */
#include "common/thread.h"

#include <signal.h>

enum rg_status rg_thread_create(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0)
        return RG_ERR_NO_MEMORY;
    pthread_setname_np(thread, name);
    *out = thread;
    return RG_OK;
}
