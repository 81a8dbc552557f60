/*
 * hold.c - a lease that is held by a connection, while a command runs that may start one program after the other: see pool.h.
 *
 * Happy path: nothing comes by the connection until the command has ended. Where it ends before, the pool waits a while for its client
 * (server/pool/own.c), which asks to hold the lease by another connection. If nobody answers in that time, it is said once: programs that
 * run go on, and those that the command starts later get no session. One thread, which takes no signals.
 */
#include "client/cli/pool/pool.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PAUSE_MS     1000
#define GIVE_BACK_NS 2000000000ull
#define LOOK_NS      10000000ull

struct rg_lease_holder {
    const char *member;
    struct rg_pool_lease_of *lease;
    uint64_t timeout_ns;
    pthread_t thread;
    int end;             /* an event descriptor: the command has ended */
    atomic_bool waiting; /* the thread sleeps, and sees `end` */
};

/* Whether the command has ended, in so many milliseconds (negative: for ever) or before the connection says something. */
static bool has_ended(struct rg_lease_holder *holder, int connection, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = holder->end, .events = POLLIN}, {.fd = connection, .events = POLLIN}};
    atomic_store(&holder->waiting, true);
    while (poll(fds, 2, timeout_ms) < 0 && errno == EINTR)
        ;
    const bool ended = fds[0].revents != 0;
    atomic_store(&holder->waiting, ended);
    return ended;
}

/* Whether the connection has come to its end. */
static bool is_lost(struct rg_pool_talk *talk)
{
    const char *text;
    size_t size;
    char why[RG_CONTROL_REASON + 64];
    const enum rg_status status = rg_pool_talk_next(talk, PAUSE_MS, &text, &size, why, sizeof why);
    return status != RG_OK && status != RG_ERR_TIMEOUT;
}

/* Asks one server. False: `failure`. */
static bool ask(struct rg_lease_holder *holder, const char *server, struct rg_pool_failure *failure)
{
    struct rg_pool_lease_of again;
    if (!rg_pool_hold(server, holder->lease, holder->timeout_ns, &again, failure))
        return false;
    holder->lease->talk = again.talk;
    memcpy(holder->lease->hold, again.hold, sizeof again.hold);
    again.talk = (struct rg_pool_talk){.conn = NULL};
    rg_pool_lease_fini(&again);
    return true;
}

/* Whether asking again may have another answer. */
static bool may_change(const struct rg_pool_failure *failure)
{
    return failure->status != RG_ERR_REFUSED || strcmp(failure->code, "pool-unreachable") == 0 ||
           strcmp(failure->code, "lease-busy") == 0 || strcmp(failure->code, "lease-clients") == 0 ||
           !*failure->code;
}

/* The member that was asked first, then the lease's servers, once each. False: `failure`. */
static bool ask_all(struct rg_lease_holder *holder, struct rg_pool_failure *failure)
{
    const json_t *gpu;
    const char *last = holder->member;
    size_t i;
    if (ask(holder, holder->member, failure))
        return true;
    json_array_foreach(holder->lease->gpus, i, gpu)
    {
        const char *address = json_string_value(json_object_get(gpu, "address"));
        if (!may_change(failure))
            return false;
        if (address && strcmp(address, last) != 0 && ask(holder, address, failure))
            return true;
        last = address ? address : last;
    }
    return false;
}

/* False: the command has ended, or the lease is not held any more, and that was said. */
static bool hold_again(struct rg_lease_holder *holder)
{
    const uint64_t end_ns = rg_now_ns() + RG_RECONNECT_S * 1000000000ull;
    struct rg_pool_failure failure;
    rg_pool_talk_end(&holder->lease->talk);
    rg_debug("the connection that holds the lease %s was lost", holder->lease->id);
    while (!ask_all(holder, &failure)) {
        if (may_change(&failure) && rg_now_ns() < end_ns) {
            if (has_ended(holder, -1, PAUSE_MS))
                return false;
            continue;
        }
        rg_warn("the lease %s ends when no program runs by it, and programs that are started later get no "
                "session: the connection that held it was lost, and %s",
                holder->lease->id, failure.why);
        return false;
    }
    rg_debug("the lease %s is held again", holder->lease->id);
    return true;
}

static void *hold(void *data)
{
    struct rg_lease_holder *holder = data;
    for (;;) {
        const int connection = rg_conn_fd(holder->lease->talk.conn);
        if (has_ended(holder, connection, -1))
            return NULL;
        if (is_lost(&holder->lease->talk) && !hold_again(holder))
            break;
    }
    (void)has_ended(holder, -1, -1);
    return NULL;
}

/* The command has ended while nobody held its lease: any server of it may take it back; else the pool notices. */
static void give_back(const struct rg_lease_holder *holder)
{
    struct rg_pool_failure failure;
    const uint64_t timeout_ns = holder->timeout_ns < GIVE_BACK_NS ? holder->timeout_ns : GIVE_BACK_NS;
    if (rg_pool_release(holder->member, holder->lease->id, timeout_ns, &failure) || !may_change(&failure))
        return;
    const json_t *first = json_array_get(holder->lease->gpus, 0);
    const char *address = json_string_value(json_object_get(first, "address"));
    if (address && strcmp(address, holder->member) != 0 &&
        !rg_pool_release(address, holder->lease->id, timeout_ns, &failure))
        rg_debug("the lease %s is not given back: %s", holder->lease->id, failure.why);
}

struct rg_lease_holder *rg_lease_holder_begin(const char *member, struct rg_pool_lease_of *lease,
                                              uint64_t timeout_ns)
{
    struct rg_lease_holder *holder = calloc(1, sizeof *holder);
    sigset_t all, before;
    if (!holder)
        return NULL;
    holder->member = member;
    holder->lease = lease;
    holder->timeout_ns = timeout_ns;
    holder->end = eventfd(0, EFD_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool good = holder->end >= 0 && pthread_create(&holder->thread, NULL, hold, holder) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (good)
        return holder;
    if (holder->end >= 0)
        close(holder->end);
    free(holder);
    return NULL;
}

bool rg_lease_holder_end(struct rg_lease_holder *holder)
{
    if (!holder)
        return true;
    const uint64_t one = 1;
    (void)!write(holder->end, &one, sizeof one);
    for (const uint64_t end_ns = rg_now_ns() + GIVE_BACK_NS; !atomic_load(&holder->waiting);)
        if (rg_now_ns() < end_ns)
            rg_pause(LOOK_NS);
        else
            return false; /* it may take as long as a connection does */
    pthread_join(holder->thread, NULL);
    if (!holder->lease->talk.conn)
        give_back(holder);
    close(holder->end);
    free(holder);
    return true;
}
