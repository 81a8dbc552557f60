/* deadline.c - see deadline.h. */
#include "softgpu/nccl/deadline.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/meeting.h"
#include "softgpu/nccl/peer.h"
#include "softgpu/nccl/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TIMEOUT_S      600.0
#define TIMEOUT_MOST_S 1e9
#define LOOK_MOST_NS   1000000000ull
#define LOOK_LEAST_NS  5000000ull

static uint64_t timeout_ns; /* 0: no end */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Why a clique has not begun, in words. */
static void say_missing(const struct sg_clique *clique, char *text, size_t size)
{
    if (!clique->placed) {
        snprintf(text, size, "the process that made the id %s",
                 clique->root_peer ? "did not answer" : "was not reached");
        return;
    }
    int length = 0;
    for (int rank = 0; rank < clique->n && (size_t)length < size; rank++)
        if (clique->at[rank] >= 0 && !clique->far[clique->at[rank]].ready)
            length += snprintf(text + length, size - (size_t)length, "%s%d", length ? ", " : "rank ", rank);
    if ((size_t)length < size)
        snprintf(text + length, size - (size_t)length, " was not connected to all others");
}

/* Ranks that have not come at all are named by the process that made the id (meeting.h), if that is there. */
static bool is_late(const struct sg_clique *clique, uint64_t now)
{
    if (!clique->placed && clique->root.process == sg_process())
        return false;
    const uint64_t patience = timeout_ns + timeout_ns / 4 + (clique->placed ? 0 : LOOK_MOST_NS);
    bool begun = clique->placed;
    for (int i = 0; i < clique->n_far && begun; i++)
        begun = clique->far[i].ready;
    return !begun && now - clique->began_ns > patience;
}

static void look_at(struct sg_clique *clique, uint64_t now)
{
    const uint64_t since = now > timeout_ns ? now - timeout_ns : 0;
    char text[256] = "";
    pthread_mutex_lock(&clique->lock);
    if (clique->error == ncclSuccess && is_late(clique, now)) {
        say_missing(clique, text, sizeof text);
        sg_clique_fail_locked(clique, ncclSystemError,
                              "a communicator of %d ranks did not begin within %g s: %s", clique->n,
                              (double)timeout_ns / 1e9, text);
    } else if (clique->error == ncclSuccess && sg_exchange_overdue(clique, since, text, sizeof text)) {
        sg_clique_fail_locked(clique, ncclRemoteError, "%s within %g s", text, (double)timeout_ns / 1e9);
    }
    sg_splits_look(clique, since, (double)timeout_ns / 1e9);
    sg_clique_end_stuck(clique);
    pthread_mutex_unlock(&clique->lock);
}

static void *watch(void *unused)
{
    (void)unused;
    uint64_t pause = timeout_ns / 16;
    pause = pause < LOOK_LEAST_NS ? LOOK_LEAST_NS : pause > LOOK_MOST_NS ? LOOK_MOST_NS : pause;
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)(pause / 1000000000u),
                                     .tv_nsec = (long)(pause % 1000000000u)},
                  NULL);
        const uint64_t now = rg_now_ns();
        sg_cliques_lock();
        sg_meetings_look(now > timeout_ns ? now - timeout_ns : 0, (double)timeout_ns / 1e9);
        for (struct sg_clique *clique = *sg_cliques(); clique; clique = clique->next)
            look_at(clique, now);
        sg_cliques_unlock();
        sg_cliques_end_left();
    }
    return NULL;
}

static void start(void)
{
    const char *said = secure_getenv("SOFTGPU_NCCL_TIMEOUT");
    char *end = NULL;
    double seconds = said && *said ? strtod(said, &end) : TIMEOUT_S;
    if (said && *said && (*end || !(seconds >= 0 && seconds <= TIMEOUT_MOST_S))) {
        rg_warn("SOFTGPU_NCCL_TIMEOUT=%s is no number of seconds; it is %g now", said, TIMEOUT_S);
        seconds = TIMEOUT_S;
    }
    timeout_ns = (uint64_t)(seconds * 1e9);
    if (timeout_ns && !rg_thread_start("softgpu-nccl", watch, NULL))
        rg_warn("NCCL of the software device cannot start a thread: ranks that do not come are waited for "
                "without end");
}

void sg_deadline_watch(void)
{
    pthread_once(&once, start);
}
