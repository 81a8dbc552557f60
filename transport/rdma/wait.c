/*
 * wait.c - waiting until something has changed, and noticing that the peer is gone.
 *
 * Waiting looks for a moment, where that is worth it (common/sync/adaptive_wait.h), and then sleeps on the
 * completion channel. What makes it safe that two threads share one channel: whoever is about to return while
 * the other one sleeps leaves the queue armed for it, and whoever handles completions kicks the sleeper by an
 * eventfd of its own. Where completion events do not come (check.c) a sleep is a short one; and where some
 * come, but not for what has completed, that is found out by a sleep that was in vain.
 */
#include "transport/rdma/internal.h"

#include "common/base/clock.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 30000,         /* before a sleep that no event ends */
    PATIENCE = 64,           /* pauses for who wants the lock, while looking */
    EVENTS_EVERY = 4096,     /* looks between two looks at the connection manager */
    LOOK_NS = 1000000000,    /* longest sleep */
    DOUBT_NS = 20000000,     /* the same while no event has ended one */
    EVENT_LATE_MS = 50,      /* behind what it tells of, at most */
    POLLED_SLEEP_NS = 50000, /* sleep where events do not come, doubled up to */
    POLLED_SLEEP_MAX_NS = 1000000,
    ACK_EVERY = 1024,
    SILENCE_NS = 2000000000,     /* of a peer that is waited for, before it is asked for a sign of life */
    SIGNS = RG_RDMA_SPARE / 2,   /* empty fragments that nothing has been received after */
    CONTROL_LOOK_NS = 100000000, /* between two looks at the session's first connection */
    CONTROL_LATE_NS = 300000000, /* what was sent before its end may come so much later */
};
#define DEAD_NS                                                                                              \
    20000000000u /* of nothing at all while writes are under way: whatever the device says of it */

/* Looks at the connection manager's events; under the lock. */
static void look_at_events(struct rg_rdma_conn *c)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(c->events, &event) == 0) {
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            rg_rdma_progress(c); /* what arrived before */
            if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
                rg_warn("rdma: %s: the device was removed", c->head.peer);
            rg_rdma_break(c, RG_ERR_LOST);
        }
    }
}

enum rg_status rg_rdma_state(const struct rg_rdma_conn *c)
{
    if (atomic_load_explicit(&c->interrupted, memory_order_acquire))
        return RG_ERR_CLOSED;
    return c->broken;
}

void rg_rdma_lock(struct rg_rdma_conn *c)
{
    if (pthread_mutex_trylock(&c->lock) == 0)
        return;
    atomic_fetch_add_explicit(&c->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    atomic_fetch_sub_explicit(&c->wanted, 1, memory_order_relaxed);
}

void rg_rdma_unlock(struct rg_rdma_conn *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* Who looks has the lock nearly all the time: others get it when they want it. */
static void give_way(struct rg_rdma_conn *c)
{
    for (int i = 0; i < PATIENCE && atomic_load_explicit(&c->wanted, memory_order_relaxed); i++)
        rg_cpu_relax();
}

/* Whether to look once more before a sleep; the lock is given up meanwhile. `since`: when looking began. */
static bool look_again(struct rg_rdma_conn *c, enum rg_rdma_side side, uint64_t *since)
{
    bool look;
    rg_rdma_unlock(c);
    if (c->polled && c->waits[side].mode == RG_WAIT_AUTO) { /* nobody would end the sleep */
        const uint64_t now = rg_now_ns();
        *since = *since ? *since : now;
        look = now - *since < SPIN_NS;
        rg_cpu_relax();
    } else {
        look = rg_adaptive_wait_look(&c->waits[side]);
    }
    if (look)
        give_way(c);
    rg_rdma_lock(c);
    return look;
}

/*
 * The channel has one queue, which gives one event each time it was armed: what is left ends the next sleep
 * at once.
 */
bool rg_rdma_take_event(struct rg_rdma_conn *c)
{
    struct ibv_cq *cq;
    void *context;
    if (ibv_get_cq_event(c->channel, &cq, &context) != 0)
        return false;
    if (++c->events_unacked >= ACK_EVERY) {
        ibv_ack_cq_events(c->cq, c->events_unacked);
        c->events_unacked = 0;
    }
    return true;
}

/* Sleeps until something happens, `deadline`, or for at most `longest`. Returns whether nothing has. */
static bool sleep_once(struct rg_rdma_conn *c, enum rg_rdma_side side, uint64_t deadline, uint64_t longest)
{
    uint64_t now = rg_now_ns(), left = deadline > now ? deadline - now : 0;
    if (left > longest)
        left = longest;
    struct timespec time = rg_timespec(left);
    struct pollfd fds[] = {{.fd = c->kick[side], .events = POLLIN},
                           {.fd = c->events->fd, .events = POLLIN},
                           {.fd = c->polled ? -1 : c->channel->fd, .events = POLLIN}};
    c->asleep[side] = true;
    rg_rdma_unlock(c);
    const int n = ppoll(fds, sizeof fds / sizeof *fds, &time, NULL);
    rg_rdma_lock(c);
    c->asleep[side] = false;
    uint64_t kicks;
    if (fds[0].revents)
        (void)!read(c->kick[side], &kicks, sizeof kicks);
    if (fds[1].revents)
        look_at_events(c);
    if (fds[2].revents && rg_rdma_take_event(c))
        c->events_proven = true;
    return n == 0;
}

/*
 * The queue was armed, and something has completed in a sleep that no event ended: if none comes soon, events
 * are not to be relied on. (One that is on its way, as the sleep ended by itself in just that moment, is
 * there at once.)
 */
static void doubt_events(struct rg_rdma_conn *c)
{
    if (c->polled)
        return;
    struct pollfd event = {.fd = c->channel->fd, .events = POLLIN};
    rg_rdma_unlock(c);
    const int n = poll(&event, 1, EVENT_LATE_MS);
    rg_rdma_lock(c);
    if (n != 0 || c->polled)
        return;
    rg_debug("rdma: %s: completion events do not come after all; completions are polled", c->head.peer);
    c->polled = true;
}

/*
 * Whether the session's first connection has ended, and with it the session: then nothing comes any more by
 * this one.
 */
static void look_at_control(struct rg_rdma_conn *c, uint64_t now)
{
    if (!c->control_conn || c->broken != RG_OK || c->peer_bye || now - c->looked_ns < CONTROL_LOOK_NS)
        return;
    c->looked_ns = now;
    struct pollfd p = {.fd = c->control_conn->ops->fd(c->control_conn), .events = POLLRDHUP};
    rg_rdma_unlock(c);
    const bool ended = poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
    rg_rdma_lock(c);
    if (!ended || !c->control_conn)
        return;
    if (!c->ended_ns)
        c->ended_ns = now;
    if (now - c->ended_ns < CONTROL_LATE_NS)
        return;
    rg_rdma_progress(c);
    if (c->broken != RG_OK || c->peer_bye)
        return;
    rg_info("rdma: %s is gone: the session's first connection has ended", c->head.peer);
    rg_rdma_break(c, RG_ERR_LOST);
}

/*
 * A reliable connection fails when something sent is not acknowledged; who only waits sends nothing and would
 * wait for ever for a peer that is gone. So a write of no bytes is sent now and then: the peer's device
 * acknowledges it without its software. Where there are no one-sided writes, an empty fragment is: it takes a
 * receive, which the peer's software gives back, so that few of them are sent while nothing comes. There the
 * session's first connection tells, too.
 */
static void ask_for_life(struct rg_rdma_conn *c)
{
    uint64_t now = rg_now_ns();
    if (c->two_sided)
        look_at_control(c, now);
    if (c->heard) {
        c->heard = false;
        c->heard_ns = now;
    }
    if (c->checking || c->broken != RG_OK || c->peer_bye || now - c->heard_ns < SILENCE_NS)
        return;
    if (c->two_sided) {
        c->heard_ns = now;
        if (c->signs < SIGNS && !c->bye_sent && rg_rdma_post_control(c, RG_RDMA_CREDIT, NULL, 0) == RG_OK)
            c->signs++;
        return;
    }
    if (c->writes_done != c->writes_posted) {
        if (now - c->heard_ns < DEAD_NS)
            return;
        rg_warn("rdma: %s: nothing was acknowledged for %u s", c->head.peer,
                (unsigned)(DEAD_NS / 1000000000u));
        rg_rdma_break(c, RG_ERR_LOST);
        return;
    }
    c->heard_ns = now;
    rg_rdma_post_sign_of_life(c);
}

enum rg_status rg_rdma_wait(struct rg_rdma_conn *c, enum rg_rdma_side side, uint64_t deadline)
{
    uint64_t seen = c->version, since = 0, pause = POLLED_SLEEP_NS;
    bool in_vain = false, look = true;
    enum rg_status status;
    for (unsigned looks = 1;; looks++) {
        if (rg_rdma_progress(c) > 0 && in_vain)
            doubt_events(c);
        in_vain = false;
        if (looks % EVENTS_EVERY == 0) {
            look_at_events(c);
            ask_for_life(c);
        }
        status = rg_rdma_state(c);
        if (status != RG_OK || c->version != seen)
            break;
        if (deadline == 0 || (deadline != UINT64_MAX && deadline <= rg_now_ns())) {
            status = RG_ERR_TIMEOUT;
            break;
        }
        look = look && look_again(c, side, &since);
        if (look)
            continue;
        ask_for_life(c);
        if (c->version != seen) /* while the lock was given up: nobody wakes who does not sleep yet */
            continue;
        if (rg_rdma_arm(c))
            continue;
        in_vain = sleep_once(c, side, deadline, c->polled ? pause : c->events_proven ? LOOK_NS : DOUBT_NS);
        if (pause < POLLED_SLEEP_MAX_NS)
            pause *= 2;
    }
    rg_adaptive_wait_end(&c->waits[side]);
    if (c->asleep[!side] && c->broken == RG_OK)
        rg_rdma_arm(c); /* the event that it sleeps for may have been the one taken here */
    return status;
}
