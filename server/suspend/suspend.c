/*
 * suspend.c - the module's thread. See suspend.h.
 *
 * The thread alone calls the driver's checkpoint functions, without the lock; the lock guards what others tell it. It is started by
 * the first policy or command.
 */
#include "server/suspend/suspend.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/export/export.h"
#include "server/modules.h"
#include "server/suspend/checkpoint.h"
#include "server/suspend/share.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS 1000000ull
#define S  1000000000ull

/*
 * Who is told to suspend a busy session gives it no more work until it has come to rest. What runs may need a later call to end, so
 * after some time a few records pass, then, twice as much later, some more.
 */
#define ATTEMPT_MS    250 /* that the driver waits for what it has */
#define LOOK_NS       (2 * MS)
#define WINDOW_NS     (250 * MS) /* the first; then twice as long … */
#define PASSES        1          /* … and four times as many */
#define PASSING_NS    (20 * MS)
#define COMMAND_NS    (10 * S)   /* in all */
#define RETRY_NS      (100 * MS) /* for memory that is not there yet */
#define SAY_AFTER_NS  S          /* that it is waited for */
#define WARN_PARTS    4          /* of the time-out, the last is after the warning */
#define TICK_MOST_NS  (5 * S)
#define AGAIN_MOST_NS (600 * S) /* between attempts to suspend a session that could not be */
#define TICK_LEAST_NS (5 * MS)

struct suspend {
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

static struct suspend *suspend_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_SUSPEND];
}

enum rg_suspend_state rg_suspend_state(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&suspend_of(worker)->lock);
    const enum rg_suspend_state state = suspend_of(worker)->state;
    return state;
}

static void set_state(struct suspend *suspend, enum rg_suspend_state state)
{
    static const enum rg_share_state shown[] = {
        [RG_SUSPEND_RUNNING] = RG_SHARE_RUNNING,
        [RG_SUSPEND_SUSPENDING] = RG_SHARE_SUSPENDING,
        [RG_SUSPEND_SUSPENDED] = RG_SHARE_SUSPENDED,
        [RG_SUSPEND_RESUMING] = RG_SHARE_RESUMING,
    };
    RG_SCOPED_LOCK(&suspend->lock);
    suspend->state = state;
    rg_suspend_show(shown[state]);
}

/* A line for the program's standard error. */
static void say(struct rg_worker *worker, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct rg_worker *worker, const char *format, ...)
{
    char text[RG_NOTICE_SAY_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_info("session %llu: %s", (unsigned long long)worker->session, text);
    const struct rg_notice notice = {.type = RG_NOTICE_SAY, .arg = {strlen(text)}};
    if (suspend_of(worker)->policy.tells)
        (void)rg_worker_notice(worker, &notice, text, strlen(text), NULL, 0);
}

/* Sleeps until something is told or the time has come. False: the session is over. */
static bool sleep_until(struct rg_worker *worker, uint64_t until_ns)
{
    struct suspend *suspend = suspend_of(worker);
    const struct timespec until = rg_timespec(until_ns);
    RG_SCOPED_LOCK(&suspend->lock);
    if (!rg_worker_over(worker))
        (void)pthread_cond_timedwait(&suspend->changed, &suspend->lock, &until);
    return !rg_worker_over(worker);
}

/* --- away ----------------------------------------------------------------------------------------------- */

static const char *why_not(struct rg_worker *worker)
{
    if (rg_export_shared())
        return "it shares memory or events with other sessions";
    for (const struct rg_server_module *const *module = worker->modules; *module; module++) {
        const char *why = (*module)->unsuspendable ? (*module)->unsuspendable(worker) : NULL;
        if (why)
            return why;
    }
    return NULL;
}

/* One attempt. What keeps the session from it has been logged, but that it is busy. The gate opens again, but not for records. */
static enum rg_suspend_result attempt(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
    char why[200] = "";
    if (rg_device_used(&worker->device) || !rg_device_close(worker))
        return RG_SUSPEND_BUSY;
    const char *never = why_not(worker);
    const enum rg_status status =
        never ? RG_ERR_UNSUPPORTED : rg_checkpoint_away(ATTEMPT_MS, why, sizeof why);
    if (status == RG_OK) {
        rg_suspend_give(&suspend->charges);
        suspend->away_ns = rg_now_ns();
        set_state(suspend, RG_SUSPEND_SUSPENDED);
        return RG_SUSPEND_DONE;
    }
    if (status == RG_ERR_IO)
        rg_worker_end(worker, 1, "the session could not be suspended, and cannot go on: %s", why);
    else if (status == RG_ERR_UNSUPPORTED)
        rg_warn("session %llu cannot be suspended: %s", (unsigned long long)worker->session,
                never ? never : why);
    rg_device_reopen(worker);
    return never ? RG_SUSPEND_SHARED : status == RG_ERR_TIMEOUT ? RG_SUSPEND_BUSY : RG_SUSPEND_REFUSED;
}

/* Gives the device no more work until it is at rest, or `deadline`. */
static enum rg_suspend_result attempt_until(struct rg_worker *worker, uint64_t deadline)
{
    uint64_t window = WINDOW_NS;
    for (int passes = PASSES;; window *= 2, passes *= 4) {
        const uint64_t now = rg_now_ns(), end = deadline - now < window ? deadline : now + window;
        rg_device_hold(&worker->device);
        enum rg_suspend_result result;
        while ((result = attempt(worker)) == RG_SUSPEND_BUSY && rg_now_ns() < end)
            if (!sleep_until(worker, rg_now_ns() + LOOK_NS))
                break;
        if (result != RG_SUSPEND_BUSY || rg_now_ns() >= deadline || rg_worker_over(worker))
            return result;
        rg_device_let_pass(&worker->device, passes);
        (void)sleep_until(worker, rg_now_ns() + PASSING_NS);
    }
}

/* deadline 0: only if it is at rest now. */
static enum rg_suspend_result put_away(struct rg_worker *worker, uint64_t deadline)
{
    struct suspend *suspend = suspend_of(worker);
    if (!rg_checkpoint_possible()) {
        rg_warn("session %llu cannot be suspended: that takes NVIDIA's driver 570 or later, or the software "
                "device",
                (unsigned long long)worker->session);
        return RG_SUSPEND_IMPOSSIBLE;
    }
    set_state(suspend, RG_SUSPEND_SUSPENDING);
    const enum rg_suspend_result result = deadline ? attempt_until(worker, deadline) : attempt(worker);
    if (result != RG_SUSPEND_DONE) {
        set_state(suspend, RG_SUSPEND_RUNNING);
        rg_device_open(worker);
    }
    suspend->warned = suspend->told_held = false;
    return result;
}

/* --- back ----------------------------------------------------------------------------------------------- */

/* A driver whose Restore has failed may never succeed again: it is asked once the ledger has the memory. */
static enum rg_status try_back(struct suspend *suspend, bool *taken, char *why, size_t why_size)
{
    *taken = *taken || rg_suspend_take(&suspend->charges);
    return *taken ? rg_checkpoint_back(why, why_size) : RG_ERR_NO_MEMORY;
}

/* Waits for the device's memory as long as it takes. */
static enum rg_status bring_back(struct rg_worker *worker, char *why, size_t why_size)
{
    struct suspend *suspend = suspend_of(worker);
    const uint64_t began = rg_now_ns();
    bool said = false, taken = false;
    enum rg_status status;
    while ((status = try_back(suspend, &taken, why, why_size)) == RG_ERR_NO_MEMORY) {
        if (!said && rg_now_ns() - began > SAY_AFTER_NS) {
            say(worker, "this session was suspended, and waits until the GPU has memory for it again");
            said = true;
        }
        if (!sleep_until(worker, rg_now_ns() + RETRY_NS))
            return RG_ERR_CLOSED;
    }
    return status;
}

static void resume(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
    const uint64_t began = rg_now_ns();
    char why[200] = "";
    set_state(suspend, RG_SUSPEND_RESUMING);
    const enum rg_status status = bring_back(worker, why, sizeof why);
    if (status == RG_ERR_IO)
        rg_worker_end(worker, 1, "the session was suspended, and its GPU memory cannot be brought back: %s",
                      why);
    if (status != RG_OK)
        return;
    suspend->used_ns = rg_now_ns();
    rg_info("session %llu: is back after %.1f s, in %.3f s", (unsigned long long)worker->session,
            (double)(began - suspend->away_ns) / 1e9, (double)(suspend->used_ns - began) / 1e9);
    rg_suspend_ask_guarantees(&suspend->charges);
    pthread_mutex_lock(&suspend->lock);
    suspend->held = false;
    pthread_mutex_unlock(&suspend->lock);
    set_state(suspend, RG_SUSPEND_RUNNING);
    rg_device_open(worker);
}

/* --- when ----------------------------------------------------------------------------------------------- */

/* The monitor may change it. */
static uint64_t timeout_of(const struct suspend *suspend)
{
    const uint64_t granted = rg_suspend_granted_ns();
    return granted ? granted : suspend->policy.idle_ns;
}

/* Looks whether the device was used; then it is not idle. */
static bool is_used(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
    const uint64_t uses = rg_device_uses(&worker->device);
    if (uses == suspend->uses && !rg_device_used(&worker->device))
        return false;
    suspend->uses = uses;
    suspend->used_ns = rg_now_ns();
    if (suspend->warned)
        rg_suspend_show(RG_SHARE_RUNNING);
    suspend->warned = false;
    return true;
}

/* It stays as it is, and is tried again later, and later each time: what keeps it from being suspended may pass. */
static void put_off(struct suspend *suspend, enum rg_suspend_result result)
{
    const uint64_t again = suspend->again_ns ? 2 * suspend->again_ns : timeout_of(suspend);
    suspend->again_ns = again < AGAIN_MOST_NS ? again : AGAIN_MOST_NS;
    suspend->used_ns = rg_now_ns();
    suspend->not_before_ns =
        result == RG_SUSPEND_IMPOSSIBLE ? UINT64_MAX : suspend->used_ns + suspend->again_ns;
}

/* Work that is still running is use; and who cannot be suspended as things are is not told that it will be. */
static bool can_go(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
    if (!rg_device_close(worker)) {
        suspend->used_ns = rg_now_ns();
        return false;
    }
    const char *never = why_not(worker);
    rg_device_open(worker);
    if (!never)
        return true;
    rg_info("session %llu is idle, and cannot be suspended: %s", (unsigned long long)worker->session, never);
    put_off(suspend, RG_SUSPEND_SHARED);
    return false;
}

/* The time-out is over. What keeps the session from it has been logged. */
static void go_idle(struct rg_worker *worker, double seconds)
{
    struct suspend *suspend = suspend_of(worker);
    const enum rg_suspend_result result = put_away(worker, 0);
    suspend->used_ns = rg_now_ns();
    if (result != RG_SUSPEND_DONE) {
        if (result != RG_SUSPEND_BUSY)
            put_off(suspend, result);
        return;
    }
    suspend->again_ns = 0;
    say(worker, "this session did not use the GPU for %.1f s: its GPU memory is others' until its next call",
        seconds);
}

static void idle(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
    const uint64_t timeout = timeout_of(suspend);
    rg_suspend_ask_guarantees(&suspend->charges);
    if (!timeout || is_used(worker) || !suspend->uses || rg_now_ns() < suspend->not_before_ns)
        return;
    if (!rg_checkpoint_possible()) { /* before anything is told */
        put_off(suspend, put_away(worker, 0));
        return;
    }
    const uint64_t idle_ns = rg_now_ns() - suspend->used_ns;
    if (suspend->warned && idle_ns >= timeout) {
        go_idle(worker, (double)idle_ns / 1e9);
    } else if (!suspend->warned && idle_ns >= timeout - timeout / WARN_PARTS) {
        if (!can_go(worker))
            return;
        suspend->warned = true; /* first, however late it is */
        rg_suspend_show(RG_SHARE_IDLE);
        say(worker,
            "this session does not use the GPU; after %.1f s others get its GPU memory until its next call",
            (double)timeout / 1e9);
    }
}

/* Whether the monitor has taken its memory for another session; the first time that is answered. */
static bool see_preemption(struct rg_worker *worker, bool away)
{
    struct suspend *suspend = suspend_of(worker);
    const bool preempted = rg_suspend_is_preempted();
    if (preempted && !suspend->preempted) {
        const enum rg_suspend_result result =
            away ? RG_SUSPEND_DONE : put_away(worker, rg_now_ns() + COMMAND_NS);
        if (result == RG_SUSPEND_DONE)
            say(worker, "this session is suspended for one of higher priority: its calls wait until the GPU "
                        "has memory for it again");
        rg_suspend_answer_preemption(result);
    }
    suspend->preempted = preempted;
    return preempted;
}

static void run(struct rg_worker *worker, enum rg_suspend_command command)
{
    struct suspend *suspend = suspend_of(worker);
    if (see_preemption(worker, false) && suspend->state == RG_SUSPEND_SUSPENDED) {
        if (command != RG_SUSPEND_NOTHING)
            rg_suspend_answer(command == RG_SUSPEND_RESUME ? RG_SUSPEND_PREEMPTED : RG_SUSPEND_DONE);
        return;
    }
    if (command == RG_SUSPEND_NOTHING) {
        idle(worker);
        return;
    }
    enum rg_suspend_result result = RG_SUSPEND_DONE; /* it is running already */
    if (command != RG_SUSPEND_RESUME)
        result = put_away(worker, rg_now_ns() + COMMAND_NS);
    if (result == RG_SUSPEND_DONE && command == RG_SUSPEND_HOLD) {
        RG_SCOPED_LOCK(&suspend->lock);
        suspend->held = true;
    }
    rg_suspend_answer(result);
}

static void stay_away(struct rg_worker *worker, enum rg_suspend_command command)
{
    struct suspend *suspend = suspend_of(worker);
    pthread_mutex_lock(&suspend->lock);
    if (command != RG_SUSPEND_NOTHING)
        suspend->held = command == RG_SUSPEND_HOLD;
    const bool wanted = rg_device_wanted(&worker->device), held = suspend->held;
    pthread_mutex_unlock(&suspend->lock);
    if (see_preemption(worker, true)) {
        if (command != RG_SUSPEND_NOTHING)
            rg_suspend_answer(command == RG_SUSPEND_RESUME ? RG_SUSPEND_PREEMPTED : RG_SUSPEND_DONE);
        return;
    }
    if (command == RG_SUSPEND_RESUME || (wanted && !held))
        resume(worker);
    else if (wanted && !suspend->told_held) {
        suspend->told_held = true;
        say(worker,
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

static uint64_t next_look(const struct suspend *suspend)
{
    uint64_t tick = timeout_of(suspend) / 8;
    if (suspend->state == RG_SUSPEND_SUSPENDED)
        tick = suspend->policy.end_ns / 8;
    if (!tick || tick > TICK_MOST_NS)
        tick = TICK_MOST_NS;
    return rg_now_ns() + (tick < TICK_LEAST_NS ? TICK_LEAST_NS : tick);
}

static void *suspend_main(void *argument)
{
    struct rg_worker *worker = argument;
    struct suspend *suspend = suspend_of(worker);
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
        const bool comes = suspend->state == RG_SUSPEND_SUSPENDED && rg_device_wanted(&worker->device) &&
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
    struct suspend *suspend = suspend_of(worker);
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
    RG_SCOPED_LOCK(&suspend_of(worker)->lock);
    suspend_of(worker)->policy = *policy;
    if (timeout_of(suspend_of(worker)))
        start_thread(worker);
}

void rg_suspend_command(struct rg_worker *worker, enum rg_suspend_command command)
{
    RG_SCOPED_LOCK(&suspend_of(worker)->lock);
    if (command != RG_SUSPEND_LOOK) /* which it does whenever it is woken */
        suspend_of(worker)->command = command;
    start_thread(worker);
}

/* Somebody waits at the closed gate. */
static void wanted(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&suspend_of(worker)->lock);
    pthread_cond_broadcast(&suspend_of(worker)->changed);
}

static void init(struct rg_worker *worker)
{
    rg_cond_init(&suspend_of(worker)->changed);
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&suspend_of(worker)->lock);
    pthread_cond_broadcast(&suspend_of(worker)->changed);
}

/* What the client left behind can be destroyed only by a driver that answers. */
static void stop(struct rg_worker *worker)
{
    struct suspend *suspend = suspend_of(worker);
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
    pthread_cond_destroy(&suspend_of(worker)->changed);
}

const struct rg_server_module rg_suspend_module = {
    .size = sizeof(struct suspend),
    .locked = true,
    .init = init,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .wanted = wanted,
};
