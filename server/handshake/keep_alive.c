/* keep_alive.c - see keep_alive.h. */
#include "server/handshake/keep_alive.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/modules.h"
#include "transport/liveness.h"
#include "transport/state.h"

#include <stdlib.h>

struct keep_alive {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool told; /* the session is over, and its client was told why */
    bool runs;
    pthread_t thread;
    uint32_t seconds;
    struct rg_liveness liveness; /* the thread's */
};

static struct keep_alive *keep_alive_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_KEEP_ALIVE];
}

static uint32_t setting(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    int64_t seconds = otherwise;
    char why[160];
    if (text && *text && rg_parse_integer(text, 0, UINT32_MAX, &seconds, why, sizeof why) != RG_OK)
        rg_warn("%s: %s: %u is used", name, why, otherwise);
    return (uint32_t)seconds;
}

uint32_t rg_keep_alive_seconds(uint32_t wanted)
{
    const uint32_t own = setting("REMOTE_GPU_KEEP_ALIVE", RG_KEEP_ALIVE_S),
                   most = setting("REMOTE_GPU_KEEP_ALIVE_MOST", RG_KEEP_ALIVE_MOST_S);
    if (!own || !wanted)
        return own;
    const uint32_t limit = most > own ? most : own;
    return wanted > limit ? limit : wanted;
}

/* --- the client asks ------------------------------------------------------------------------------------ */

static void say(struct rg_worker *worker)
{
    const struct rg_notice notice = {.type = RG_NOTICE_ALIVE};
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *answer, size_t bulk_size)
{
    (void)header;
    if (answer->type != RG_ANSWER_ALIVE)
        return RG_ANSWERED_NOT_MINE;
    if (bulk_size)
        return RG_ANSWERED_WRONG;
    if (answer->arg[0])
        say(worker);
    return RG_ANSWERED_GOOD;
}

/* --- the client is silent ------------------------------------------------------------------------------- */

/* The reason cannot be told to who takes nothing. */
static void end(struct rg_worker *worker, uint32_t seconds)
{
    const struct rg_conn_progress *seen = &keep_alive_of(worker)->liveness.last;
    rg_log_always(RG_LOG_WARN, "session %llu: its client has been silent for %u s (it is stopped, or hangs)",
                  (unsigned long long)worker->session, seconds);
    if (seen->sending || (seen->has_backlog && seen->unsent))
        rg_conn_interrupt(worker->conn);
    rg_worker_end(worker, 1,
                  "nothing came from the program for %u s: it was stopped, or hung; --keep-alive of "
                  "remote-gpu run asks for more time",
                  seconds);
}

/* The same of one that lives and leaves a channel unread, of which there are no others: whoever sends there is not to be kept for ever. */
static void end_stuck(struct rg_worker *worker, uint32_t seconds)
{
    rg_log_always(
        RG_LOG_WARN,
        "session %llu: its client has taken nothing of one of its connections for bulk data for %u s",
        (unsigned long long)worker->session, seconds);
    rg_conn_interrupt(worker->conn);
    rg_worker_end(worker, 1, "one of the program's connections for bulk data took nothing for %u s", seconds);
}

/* One tick. A reader that executes calls cannot answer a client that asks: whoever waits for them learns it here. */
static void look(struct rg_worker *worker)
{
    struct keep_alive *state = keep_alive_of(worker);
    const struct rg_conn_progress before = state->liveness.last;
    const unsigned silent = rg_liveness_look(&state->liveness, worker->conn, state->seconds != 0);
    const struct rg_conn_progress *now = &state->liveness.last;
    const unsigned stuck = rg_liveness_look_at_channels(&state->liveness, worker->conn);
    if (state->seconds && silent > RG_LIVENESS_TICKS)
        end(worker, state->seconds);
    else if (state->seconds && stuck > RG_LIVENESS_TICKS &&
             !rg_liveness_give_up(&state->liveness, worker->conn, RG_LIVENESS_TICKS))
        end_stuck(worker, state->seconds);
    else if (!now->receiving && !before.receiving && now->received == before.received &&
             rg_liveness_may_send(&state->liveness))
        say(worker);
}

/* Whoever ends the session tells the client why, and is kept by one that takes nothing: for a whole tick, but not for ever. */
static void *watch(void *argument)
{
    struct rg_worker *worker = argument;
    struct keep_alive *state = keep_alive_of(worker);
    const uint32_t seconds = state->seconds ? state->seconds : RG_KEEP_ALIVE_S;
    const uint64_t tick_ns = seconds * 1000000000ull / RG_LIVENESS_TICKS;
    bool was_over = false;
    pthread_mutex_lock(&state->lock);
    while (!state->told) {
        const struct timespec until = rg_timespec(rg_now_ns() + tick_ns);
        if (pthread_cond_timedwait(&state->changed, &state->lock, &until) == 0)
            continue;
        pthread_mutex_unlock(&state->lock);
        const bool over = rg_worker_over(worker);
        if (!over)
            look(worker);
        else if (was_over)
            rg_conn_interrupt(worker->conn);
        was_over = over;
        pthread_mutex_lock(&state->lock);
    }
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

enum rg_status rg_keep_alive_start(struct rg_worker *worker, uint32_t seconds)
{
    struct keep_alive *state = keep_alive_of(worker);
    state->seconds = seconds;
    const enum rg_status status = rg_thread_create(&state->thread, "rg-alive", watch, worker);
    state->runs = status == RG_OK;
    return status;
}

static void init(struct rg_worker *worker)
{
    rg_cond_init(&keep_alive_of(worker)->changed);
}

static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&keep_alive_of(worker)->lock);
    keep_alive_of(worker)->told = true;
    pthread_cond_broadcast(&keep_alive_of(worker)->changed);
}

static void stop(struct rg_worker *worker)
{
    if (keep_alive_of(worker)->runs)
        pthread_join(keep_alive_of(worker)->thread, NULL);
    keep_alive_of(worker)->runs = false;
}

static void fini(struct rg_worker *worker)
{
    pthread_cond_destroy(&keep_alive_of(worker)->changed);
}

const struct rg_server_module rg_keep_alive_module = {
    .size = sizeof(struct keep_alive),
    .locked = true,
    .init = init,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .answer = answer,
};
