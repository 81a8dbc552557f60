/*
 * internal.h - what the module's files share; suspend.h is what others use.
 *
 * suspend.c is the module and its thread, idle.c says when a session goes by itself, transition.c takes it away and brings it back.
 * All but rg_suspend_timeout is the module's thread's, without the lock.
 */
#ifndef RG_SERVER_SUSPEND_INTERNAL_H
#define RG_SERVER_SUSPEND_INTERNAL_H

#include "server/modules.h"
#include "server/suspend/share.h"
#include "server/suspend/suspend.h"

#define RG_SUSPEND_S 1000000000ull

struct rg_suspend {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool runs;
    struct rg_suspend_policy policy;
    enum rg_suspend_state state;
    enum rg_suspend_command command; /* that the thread has not seen yet */
    bool held;                       /* until the monitor says so */
    /* the thread's */
    uint64_t uses, used_ns; /* of the gate when it looked last, and when they had changed */
    uint64_t away_ns;       /* when it was suspended */
    bool warned, told_held;
    bool preempted; /* it has been answered that it is preempted, until it no longer is */
    /* it could not be suspended by itself: not tried again for so long, until then */
    uint64_t again_ns, not_before_ns;
    struct rg_suspend_charges charges;
};

static inline struct rg_suspend *rg_suspend_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_SUSPEND];
}

/** A line for the program's standard error. */
void rg_suspend_say(struct rg_worker *worker, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** What keeps the session from being suspended as things are, a literal; NULL: nothing. */
const char *rg_suspend_why_not(struct rg_worker *worker);
/**
 * Suspends the session, or leaves it running. deadline 0: only if it is at rest now; else it gets no more work until it is, or until
 * then. What keeps the session from it has been logged, but that it is busy.
 */
enum rg_suspend_result rg_suspend_put_away(struct rg_worker *worker, uint64_t deadline);
/** Brings its memory back, and waits for the device's as long as it takes. If it is lost, the session ends. */
void rg_suspend_resume(struct rg_worker *worker);

/** After so long without use; 0: never. The lock, or the thread: the monitor may change it. */
uint64_t rg_suspend_timeout(const struct rg_suspend *suspend);
/** Looks whether a running session is idle: warns, or suspends it. */
void rg_suspend_idle(struct rg_worker *worker);

#endif
