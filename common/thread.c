/* thread.c - starting threads with every signal blocked. */
#include "common/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of linux/sched/types.h, in the size that it first had; glibc 2.36 has neither it nor the calls. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: the slice, since Linux 6.12 */
};

void rg_thread_expect_little(void)
{
    struct attributes attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0u) != 0 || attributes.policy != SCHED_OTHER)
        return;
    attributes.flags = 0;
    attributes.runtime = 100000;
    (void)!syscall(SYS_sched_setattr, 0, &attributes, 0u);
}

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
