/*
 * suspend.c - the module and its thread: what it is told, and what it does then. See suspend.h.
 *
 * The thread alone calls the driver's checkpoint functions, without the lock; the lock guards what others tell it. It is started by
 * the first policy or command.
 */
#include "server/suspend/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/suspend/checkpoint.h"

#include <stdlib.h>
#include <time.h>

#define COMMAND_NS    (10 * RG_SUSPEND_S) /* in all */
#define TICK_MOST_NS  (5 * RG_SUSPEND_S)
#define TICK_LEAST_NS (5 * 1000000ull)

enum rg_suspend_state rg_suspend_state(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&rg_suspend_of(worker)->lock);
    const enum rg_suspend_state state = rg_suspend_of(worker)->state;
    return state;
}

/* Whether the monitor has taken its memory for another session; the first time that is answered. */
static bool see_preemption(struct rg_worker *worker, bool away)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    const bool preempted = rg_suspend_is_preempted();
    if (preempted && !suspend->preempted) {
        const enum rg_suspend_result result =
            away ? RG_SUSPEND_DONE : rg_suspend_put_away(worker, rg_now_ns() + COMMAND_NS);
        if (result == RG_SUSPEND_DONE)
            rg_suspend_say(
                worker, "this session is suspended for one of higher priority: its calls wait until the GPU "
                        "has memory for it again");
        rg_suspend_answer_preemption(result);
    }
    suspend->preempted = preempted;
    return preempted;
}

static void run(struct rg_worker *worker, enum rg_suspend_command command)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    if (see_preemption(worker, false) && suspend->state == RG_SUSPEND_SUSPENDED) {
        if (command != RG_SUSPEND_NOTHING)
            rg_suspend_answer(command == RG_SUSPEND_RESUME ? RG_SUSPEND_PREEMPTED : RG_SUSPEND_DONE);
        return;
    }
    if (command == RG_SUSPEND_NOTHING) {
        rg_suspend_idle(worker);
        return;
    }
    enum rg_suspend_result result = RG_SUSPEND_DONE; /* it is running already */
    if (command != RG_SUSPEND_RESUME)
        result = rg_suspend_put_away(worker, rg_now_ns() + COMMAND_NS);
    if (result == RG_SUSPEND_DONE && command == RG_SUSPEND_HOLD) {
        RG_SCOPED_LOCK(&suspend->lock);
        suspend->held = true;
    }
    rg_suspend_answer(result);
}

static void stay_away(struct rg_worker *worker, enum rg_suspend_command command)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    pthread_mutex_lock(&suspend->lock);
    if (command != RG_SUSPEND_NOTHING)
        suspend->held = command == RG_SUSPEND_HOLD;
    const bool wanted = rg_device_wanted(&worker->device_gate), held = suspend->held;
    pthread_mutex_unlock(&suspend->lock);
    if (see_preemption(worker, true)) {
        if (command != RG_SUSPEND_NOTHING)
            rg_suspend_answer(command == RG_SUSPEND_RESUME ? RG_SUSPEND_PREEMPTED : RG_SUSPEND_DONE);
        return;
    }
    if (command == RG_SUSPEND_RESUME || (wanted && !held))
        rg_suspend_resume(worker);
    else if (wanted && !suspend->told_held) {
        suspend->told_held = true;
        rg_suspend_say(
            worker,
            "this session was suspended by the server's operator: its calls wait until it is resumed");
    } else if (suspend->policy.end_ns && !wanted &&
               rg_now_ns() - suspend->away_ns >= suspend->policy.end_ns) {
        rg_worker_end(worker, 1,
                      "the session was suspended for %.1f s without a call, which is all that this server "
                      "allows",
                      (double)suspend->policy.end_ns / 1e9);
    }
    if (command != RG_SUSPEND_NOTHING)
        rg_suspend_answer(RG_SUSPEND_DONE);
}

static uint64_t next_look(const struct rg_suspend *suspend)
{
    uint64_t tick = rg_suspend_timeout(suspend) / 8;
    if (suspend->state == RG_SUSPEND_SUSPENDED)
        tick = suspend->policy.end_ns / 8;
    if (!tick || tick > TICK_MOST_NS)
        tick = TICK_MOST_NS;
    return rg_now_ns() + (tick < TICK_LEAST_NS ? TICK_LEAST_NS : tick);
}

static void *suspend_main(void *argument)
{
    struct rg_worker *worker = argument;
    struct rg_suspend *suspend = rg_suspend_of(worker);
    rg_thread_expect_little();
    suspend->used_ns = rg_now_ns();
    pthread_mutex_lock(&suspend->lock);
    while (!rg_worker_over(worker)) {
        const enum rg_suspend_command command = suspend->command;
        const bool away = suspend->state == RG_SUSPEND_SUSPENDED;
        suspend->command = RG_SUSPEND_NOTHING;
        pthread_mutex_unlock(&suspend->lock);
        if (away)
            stay_away(worker, command);
        else
            run(worker, command);
        pthread_mutex_lock(&suspend->lock);
        const bool comes = suspend->state == RG_SUSPEND_SUSPENDED && rg_device_wanted(&worker->device_gate) &&
                           (!suspend->held || !suspend->told_held) && !suspend->preempted;
        const struct timespec until = rg_timespec(next_look(suspend));
        if (!comes && suspend->command == RG_SUSPEND_NOTHING && !rg_worker_over(worker))
            (void)pthread_cond_timedwait(&suspend->changed, &suspend->lock, &until);
    }
    pthread_mutex_unlock(&suspend->lock);
    return NULL;
}

/* --- what is told --------------------------------------------------------------------------------------- */

/* The lock is held. */
static void start_thread(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    if (!suspend->runs)
        suspend->runs = rg_thread_create(&suspend->thread, "rg-suspend", suspend_main, worker) == RG_OK;
    if (!suspend->runs)
        rg_warn("session %llu cannot be suspended: there is no thread for it",
                (unsigned long long)worker->session);
    pthread_cond_broadcast(&suspend->changed);
}

uint64_t rg_suspend_end_ns(void)
{
    const char *text = getenv("REMOTE_GPU_SUSPENDED_TIMEOUT");
    uint64_t ns = 0;
    char why[160];
    if (text && *text && rg_parse_duration(text, &ns, why, sizeof why) != RG_OK)
        rg_warn("REMOTE_GPU_SUSPENDED_TIMEOUT: %s: suspended sessions are not ended", why);
    return ns;
}

void rg_suspend_set_policy(struct rg_worker *worker, const struct rg_suspend_policy *policy)
{
    RG_SCOPED_LOCK(&rg_suspend_of(worker)->lock);
    rg_suspend_of(worker)->policy = *policy;
    if (rg_suspend_timeout(rg_suspend_of(worker)))
        start_thread(worker);
}

void rg_suspend_command(struct rg_worker *worker, enum rg_suspend_command command)
{
    RG_SCOPED_LOCK(&rg_suspend_of(worker)->lock);
    if (command != RG_SUSPEND_LOOK) /* which it does whenever it is woken */
        rg_suspend_of(worker)->command = command;
    start_thread(worker);
}

/* Somebody waits at the closed gate. */
static void wanted(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&rg_suspend_of(worker)->lock);
    pthread_cond_broadcast(&rg_suspend_of(worker)->changed);
}

static void init(struct rg_worker *worker)
{
    rg_cond_init(&rg_suspend_of(worker)->changed);
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&rg_suspend_of(worker)->lock);
    pthread_cond_broadcast(&rg_suspend_of(worker)->changed);
}

/* What the client left behind can be destroyed only by a driver that answers. */
static void stop(struct rg_worker *worker)
{
    struct rg_suspend *suspend = rg_suspend_of(worker);
    char why[200] = "";
    if (suspend->runs)
        pthread_join(suspend->thread, NULL);
    suspend->runs = false;
    const bool away = suspend->state == RG_SUSPEND_SUSPENDED || suspend->state == RG_SUSPEND_RESUMING;
    if (away && rg_checkpoint_back(why, sizeof why) != RG_OK)
        rg_warn("session %llu: what it left is not brought back: %s", (unsigned long long)worker->session,
                why);
    suspend->state = RG_SUSPEND_RUNNING;
}

static void fini(struct rg_worker *worker)
{
    pthread_cond_destroy(&rg_suspend_of(worker)->changed);
}

const struct rg_server_module rg_suspend_module = {
    .size = sizeof(struct rg_suspend),
    .locked = true,
    .init = init,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .wanted = wanted,
};
