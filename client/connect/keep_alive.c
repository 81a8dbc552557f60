/* keep_alive.c - see keep_alive.h. */
#include "client/connect/keep_alive.h"

#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "transport/liveness.h"
#include "transport/state.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define FOR_EVER UINT32_MAX

/* The user's seconds; 0: never, or not set where *set is false. It is asked for each session; what is wrong is told once. */
static uint32_t setting(bool *set)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *text = secure_getenv("REMOTE_GPU_KEEP_ALIVE");
    int64_t seconds = RG_KEEP_ALIVE_S;
    char why[160];
    *set = text && *text;
    if (*set && rg_parse_integer(text, 0, INT32_MAX, &seconds, why, sizeof why) != RG_OK) {
        if (!atomic_flag_test_and_set(&told))
            rg_warn("REMOTE_GPU_KEEP_ALIVE: %s: %d is used", why, RG_KEEP_ALIVE_S);
        *set = false;
    }
    return (uint32_t)seconds;
}

uint32_t rg_keep_alive_wanted(void)
{
    bool set;
    const uint32_t seconds = setting(&set);
    return !set ? 0 : seconds ? seconds : FOR_EVER;
}

/* Sessions that began together, by the first one's number. */
struct group {
    unsigned first, n;
    uint64_t tick_ns;
    uint32_t patience_s; /* with a silent server; 0: for ever */
};
static struct group groups[RG_SERVERS_MAX];
static struct rg_liveness liveness[RG_SERVERS_MAX];

static bool answers(const struct rg_session *session)
{
    return session->hello.capabilities & RG_CONTROL_CAP_KEEP_ALIVE;
}

static void look(const struct group *group, struct rg_session *session, struct rg_liveness *seen)
{
    const struct rg_conn_progress before = seen->last;
    if (!rg_session_goes_on(session))
        return;
    rg_receiver_poll(session); /* what the worker said while nobody waited */
    const unsigned silent = rg_liveness_look(seen, session->conn, false);
    const uint64_t patience_ns = group->patience_s * 1000000000ull;
    if (group->patience_s && answers(session) && silent > patience_ns / group->tick_ns) {
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE,
                       "%s has not answered for %u s: the session's worker is stopped or hangs there; "
                       "--keep-alive of remote-gpu run waits longer",
                       session->server, group->patience_s);
        return;
    }
    /* a server that is asked is not silent: it answers, or says that it is busy */
    if ((seen->last.sent == before.sent || silent) && rg_liveness_may_send(seen))
        rg_queue_say_alive(session, seen->last.receiving);
}

static void *watch(void *argument)
{
    const struct group *group = argument;
    rg_thread_expect_little();
    for (;;) {
        rg_pause(group->tick_ns);
        for (unsigned i = group->first; i < group->first + group->n; i++)
            look(group, &rg_sessions[i], &liveness[i]);
    }
    return NULL;
}

enum rg_status rg_keep_alive_start(unsigned first, unsigned n)
{
    struct group *group = &groups[first];
    bool set, needed = false;
    *group = (struct group){.first = first, .n = n, .patience_s = setting(&set)};
    uint32_t least = group->patience_s ? group->patience_s : FOR_EVER;
    for (unsigned i = first; i < first + n; i++) {
        const uint32_t theirs = rg_sessions[i].hello.keep_alive;
        least = theirs && theirs < least ? theirs : least;
        needed |= answers(&rg_sessions[i]);
    }
    if (!needed || least == FOR_EVER)
        return RG_OK;
    group->tick_ns = least * 1000000000ull / RG_LIVENESS_TICKS;
    return rg_thread_create_detached("rg-alive", watch, group);
}
