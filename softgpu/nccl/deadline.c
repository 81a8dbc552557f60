/* deadline.c - see deadline.h. */
#include "softgpu/nccl/deadline.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "softgpu/nccl/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TIMEOUT_S      600.0
#define TIMEOUT_MOST_S 1e9
#define LOOK_MOST_NS   1000000000ull
#define LOOK_LEAST_NS  5000000ull

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sg_clique *list;
static uint64_t timeout_ns; /* 0: no end */
static pthread_once_t once = PTHREAD_ONCE_INIT;

void sg_cliques_lock(void)
{
    pthread_mutex_lock(&list_lock);
}

void sg_cliques_unlock(void)
{
    pthread_mutex_unlock(&list_lock);
}

struct sg_clique **sg_cliques(void)
{
    return &list;
}

static void missing(const struct sg_clique *clique, char *text, size_t size)
{
    int length = 0;
    for (int rank = 0; rank < clique->n && (size_t)length < size; rank++)
        if (!clique->members[rank])
            length += snprintf(text + length, size - (size_t)length, "%s%d", length ? ", " : "", rank);
}

static void look_at(struct sg_clique *clique, uint64_t now)
{
    const uint64_t since = now > timeout_ns ? now - timeout_ns : 0;
    char text[256] = "";
    pthread_mutex_lock(&clique->lock);
    if (clique->error == ncclSuccess && clique->joined < clique->n && clique->began_ns < since) {
        missing(clique, text, sizeof text);
        sg_clique_fail_locked(clique, ncclSystemError,
                              "a communicator of %d ranks did not begin within %g s: rank %s did not come",
                              clique->n, (double)timeout_ns / 1e9, text);
    } else if (clique->error == ncclSuccess && sg_exchange_overdue(clique, since, text, sizeof text)) {
        sg_clique_fail_locked(clique, ncclRemoteError, "%s within %g s", text, (double)timeout_ns / 1e9);
    }
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
        for (struct sg_clique *clique = list; clique; clique = clique->next)
            look_at(clique, now);
        sg_cliques_unlock();
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
