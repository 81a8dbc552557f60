/*
 * progress.c - completions, credits and waiting.
 *
 * Receives are posted in the order of their slots and given back as they are used up; the device fills them in the
 * order in which they were posted. Sends complete in order too, so that rings with two counters each are enough to
 * know which slots are free, and so that not each of them has to tell of its completion: one that does stands for all
 * before it, of each kind, whose counts its work id carries. A call and its answer then are two completions, not four,
 * and nobody who sleeps is woken by his own message having left.
 *
 * Waiting looks for a moment, where that is worth it (common/wait.h), and then sleeps on the completion channel. What
 * makes it safe that two threads share one channel: whoever is about to return while the other one sleeps leaves the
 * queue armed for it, and whoever handles completions kicks the sleeper by an eventfd of its own. Where completion events
 * do not come (check.c) a sleep is a short one; and where some come, but not for what has completed, that is found out by
 * a sleep that was in vain.
 */
#include "transport/rdma/rdma.h"

#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_BATCH = 16,
    SPIN_NS = 30000,         /* before a sleep that no event ends */
    PATIENCE = 64,           /* pauses for who wants the lock, while looking */
    EVENTS_EVERY = 4096,     /* looks between two looks at the connection manager */
    LOOK_NS = 1000000000,    /* longest sleep */
    DOUBT_NS = 20000000,     /* the same while no event has ended one */
    EVENT_LATE_MS = 50,      /* behind what it tells of, at most */
    POLLED_SLEEP_NS = 50000, /* sleep where events do not come, doubled up to */
    POLLED_SLEEP_MAX_NS = 1000000,
    ACK_EVERY = 1024,
    SILENCE_NS = 2000000000,    /* of a peer that is waited for, before it is asked for a sign of life */
    TETHER_LOOK_NS = 100000000, /* between two looks at the session's first connection */
    TETHER_LATE_NS = 300000000, /* what was sent before its end may come so much later */
};
#define DEAD_NS                                                                                              \
    20000000000u /* of nothing at all while writes are under way: whatever the device says of it */

enum kind { KIND_RECEIVE, KIND_SEND };

/* One send in so many tells of its completion: often enough that who waits for a slot gets it while others are in use. */
enum { SIGNAL_DATA = RG_RDMA_SLOTS / 4, SIGNAL_CONTROL = RG_RDMA_CONTROLS / 4 };

static uint64_t receive_id(uint32_t slot)
{
    return (uint64_t)KIND_RECEIVE << 48 | slot;
}

/* Of the send that is the last one of those counted; 16 bits of each count tell them apart, as few are under way. */
static uint64_t send_id(uint32_t data, uint32_t control, uint32_t writes)
{
    return (uint64_t)KIND_SEND << 48 | (uint64_t)(data & 0xffff) << 32 | (control & 0xffff) << 16 |
           (writes & 0xffff);
}

static void sends_done(struct rg_rdma_conn *c, uint64_t id)
{
    c->data_done += (uint16_t)((id >> 32) - c->data_done);
    c->control_done += (uint16_t)((id >> 16) - c->control_done);
    c->writes_done += (uint16_t)(id - c->writes_done);
}

/* --- memory --- */

enum { RECEIVES = RG_RDMA_SLOTS + RG_RDMA_SPARE };

unsigned char *rg_rdma_receive_slot(struct rg_rdma_conn *c, uint32_t slot)
{
    return c->memory + (size_t)slot * RG_RDMA_SLOT;
}

unsigned char *rg_rdma_send_slot(struct rg_rdma_conn *c, uint32_t number)
{
    return c->memory + (size_t)(RECEIVES + number % RG_RDMA_SLOTS) * RG_RDMA_SLOT;
}

static unsigned char *control_slot(struct rg_rdma_conn *c, uint32_t number)
{
    return c->memory + (size_t)(RECEIVES + RG_RDMA_SLOTS) * RG_RDMA_SLOT +
           (size_t)(number % RG_RDMA_CONTROLS) * RG_RDMA_CONTROL_SIZE;
}

/* --- posting --- */

static enum rg_status failed(struct rg_rdma_conn *c, const char *what, int error)
{
    rg_error("rdma: %s: %s: %s", c->head.peer, what, strerror(error));
    rg_rdma_break(c, RG_ERR_LOST);
    return RG_ERR_LOST;
}

static enum rg_status post_receive(struct rg_rdma_conn *c, uint32_t slot)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)rg_rdma_receive_slot(c, slot), .length = RG_RDMA_SLOT, .lkey = c->memory_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = receive_id(slot), .sg_list = &sge, .num_sge = 1}, *bad;
    int error = ibv_post_recv(c->id->qp, &wr, &bad);
    return error ? failed(c, "a receive cannot be posted", error) : RG_OK;
}

enum rg_status rg_rdma_post_receives(struct rg_rdma_conn *c)
{
    enum rg_status status = RG_OK;
    for (uint32_t i = 0; i < RECEIVES && status == RG_OK; i++)
        status = post_receive(c, i);
    return status;
}

static enum rg_status post_send(struct rg_rdma_conn *c, uint64_t id, bool tells, const void *from,
                                uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)from, .length = length, .lkey = c->memory_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = (tells ? IBV_SEND_SIGNALED : 0) |
                                           (length <= c->inline_max ? IBV_SEND_INLINE : 0)},
                       *bad;
    int error = ibv_post_send(c->id->qp, &wr, &bad);
    return error ? failed(c, "a message cannot be posted", error) : RG_OK;
}

static void fill_head(struct rg_rdma_conn *c, void *slot, enum rg_rdma_type type, uint32_t length)
{
    struct rg_rdma_fragment head = {.magic = htole16(RG_RDMA_FRAGMENT_MAGIC),
                                    .type = (uint8_t)type,
                                    .credits = htole16((uint16_t)c->credits_due),
                                    .length = htole32(length),
                                    .lends_seen = htole32(c->lends_seen)};
    c->credits_due = 0;
    memcpy(slot, &head, sizeof head);
}

enum rg_status rg_rdma_post_data(struct rg_rdma_conn *c, uint32_t length)
{
    unsigned char *slot = rg_rdma_send_slot(c, c->data_posted);
    fill_head(c, slot, RG_RDMA_DATA, length);
    const uint32_t number = c->data_posted + 1;
    enum rg_status status = post_send(c, send_id(number, c->control_posted, c->writes_posted),
                                      c->bye_sent || c->delivers || number % SIGNAL_DATA == 0, slot,
                                      (uint32_t)sizeof(struct rg_rdma_fragment) + length);
    if (status != RG_OK)
        return status;
    c->data_posted++;
    c->credits--;
    return RG_OK;
}

enum rg_status rg_rdma_post_control(struct rg_rdma_conn *c, enum rg_rdma_type type, const void *payload,
                                    uint32_t length)
{
    if (c->broken != RG_OK)
        return c->broken;
    if (c->control_posted - c->control_done >= RG_RDMA_CONTROLS)
        return RG_ERR_TIMEOUT;
    unsigned char *slot = control_slot(c, c->control_posted);
    fill_head(c, slot, type, length);
    if (length > 0)
        memcpy(slot + sizeof(struct rg_rdma_fragment), payload, length);
    const uint32_t number = c->control_posted + 1;
    /* from the last message on each tells, so that a close knows when all has arrived */
    const bool tells = type == RG_RDMA_BYE || c->bye_sent || c->delivers || number % SIGNAL_CONTROL == 0;
    enum rg_status status = post_send(c, send_id(c->data_posted, number, c->writes_posted), tells, slot,
                                      (uint32_t)sizeof(struct rg_rdma_fragment) + length);
    if (status == RG_OK)
        c->control_posted++;
    return status;
}

enum rg_status rg_rdma_post_write(struct rg_rdma_conn *c, const void *from, uint32_t size, uint32_t key,
                                  uint64_t to, uint32_t to_key)
{
    struct ibv_sge sge = {.addr = (uintptr_t)from, .length = size, .lkey = key};
    struct ibv_send_wr wr = {.wr_id = send_id(c->data_posted, c->control_posted, c->writes_posted + 1),
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = to, .rkey = to_key}},
                       *bad;
    int error = ibv_post_send(c->id->qp, &wr, &bad);
    if (error)
        return failed(c, "a write cannot be posted", error);
    c->writes_posted++;
    return RG_OK;
}

/* Tells the peer about receives that were posted again, before it runs short of credits. */
static void return_credits(struct rg_rdma_conn *c)
{
    if (c->credits_due >= RG_RDMA_SLOTS / 2 && !c->bye_sent && c->broken == RG_OK)
        (void)!rg_rdma_post_control(c, RG_RDMA_CREDIT, NULL, 0); /* no room: at the next one */
}

enum rg_status rg_rdma_release(struct rg_rdma_conn *c)
{
    uint32_t slot = c->received[c->received_head % RG_RDMA_SLOTS].slot;
    c->received_head++;
    if (c->broken != RG_OK)
        return RG_OK; /* what was received can still be read to its end */
    enum rg_status status = post_receive(c, slot);
    if (status != RG_OK)
        return status;
    c->credits_due++;
    return_credits(c);
    return RG_OK;
}

/* --- completions --- */

static void changed(struct rg_rdma_conn *c)
{
    c->version++;
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        if (c->asleep[side])
            (void)!write(c->kick[side], &(uint64_t){1}, sizeof(uint64_t));
}

void rg_rdma_break(struct rg_rdma_conn *c, enum rg_status status)
{
    if (c->broken == RG_OK)
        c->broken = status;
    changed(c);
}

static enum rg_status malformed(struct rg_rdma_conn *c)
{
    rg_error("%s sent something that is not remote-gpu's", c->head.peer);
    rg_rdma_break(c, RG_ERR_PROTOCOL);
    return RG_ERR_PROTOCOL;
}

static bool read_ready(struct rg_rdma_conn *c, const unsigned char *payload, uint32_t length)
{
    if (length != sizeof(struct rg_rdma_ready) || !c->ready_wanted || c->ready_here)
        return false;
    memcpy(&c->ready, payload, sizeof c->ready);
    c->ready_here = true;
    return true;
}

static bool read_answer(uint32_t *to, const unsigned char *payload, uint32_t length)
{
    uint32_t value;
    if (length != sizeof value)
        return false;
    memcpy(&value, payload, sizeof value);
    *to = le32toh(value) == 1 ? 2 : 1;
    return true;
}

/* A fragment that is not DATA. Returns whether it makes sense now. */
static bool read_control(struct rg_rdma_conn *c, uint8_t type, const unsigned char *payload, uint32_t length)
{
    switch (type) {
    case RG_RDMA_CREDIT:
        return length == 0;
    case RG_RDMA_READY:
        return read_ready(c, payload, length);
    case RG_RDMA_PLACED:
        if (!c->placing || c->placed || length != 0)
            return false;
        c->placed = true;
        return true;
    case RG_RDMA_BYE:
        c->peer_bye = true;
        return length == 0;
    case RG_RDMA_LEND:
        return rg_rdma_read_lend(c, payload, length);
    case RG_RDMA_CHECK_AREA:
        if (!c->checking || c->check_area_seen || length != sizeof c->check_area)
            return false;
        memcpy(&c->check_area, payload, sizeof c->check_area);
        c->check_area_seen = 2;
        return true;
    case RG_RDMA_CHECK_WRITTEN:
        return c->checking && !c->check_written && read_answer(&c->check_written, payload, length);
    case RG_RDMA_CHECK_VERDICT:
        return c->checking && !c->check_verdict && read_answer(&c->check_verdict, payload, length);
    default:
        return false;
    }
}

static void received(struct rg_rdma_conn *c, uint32_t slot, uint32_t size)
{
    const unsigned char *at = rg_rdma_receive_slot(c, slot);
    struct rg_rdma_fragment head = {0};
    if (size >= sizeof head)
        memcpy(&head, at, sizeof head);
    uint32_t length = le32toh(head.length);
    if (le16toh(head.magic) != RG_RDMA_FRAGMENT_MAGIC || length != size - sizeof head) {
        if (c->checking)
            (void)!post_receive(c, slot); /* a write that the device turned into a send */
        else
            (void)!malformed(c);
        return;
    }
    c->credits += le16toh(head.credits);
    const uint32_t lends_seen = le32toh(head.lends_seen) - c->lends_acked;
    if (c->credits > RG_RDMA_SLOTS || lends_seen > c->lends_posted - c->lends_acked) {
        (void)!malformed(c);
        return;
    }
    c->lends_acked += lends_seen;
    if (head.type == RG_RDMA_DATA) {
        if (length == 0 || c->received_tail - c->received_head >= RG_RDMA_SLOTS) {
            (void)!malformed(c);
            return;
        }
        c->received[c->received_tail++ % RG_RDMA_SLOTS] = (struct rg_rdma_received){
            .slot = (uint16_t)slot, .offset = (uint32_t)sizeof head, .length = length};
        return;
    }
    if (!read_control(c, head.type, at + sizeof head, length)) {
        (void)!malformed(c);
        return;
    }
    (void)!post_receive(c, slot);
}

static void completed(struct rg_rdma_conn *c, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        if (c->broken == RG_OK && !c->peer_bye && !c->bye_sent) {
            if (wc->status != IBV_WC_WR_FLUSH_ERR)
                rg_warn("rdma: %s: %s", c->head.peer, ibv_wc_status_str(wc->status));
            rg_rdma_break(c, RG_ERR_LOST);
        } else if (c->broken == RG_OK) {
            rg_rdma_break(c, RG_ERR_LOST);
        }
        return;
    }
    if (wc->wr_id >> 48 == KIND_RECEIVE)
        received(c, (uint32_t)wc->wr_id, wc->byte_len);
    else
        sends_done(c, wc->wr_id);
}

int rg_rdma_progress(struct rg_rdma_conn *c)
{
    int total = 0;
    for (;;) {
        struct ibv_wc wc[POLL_BATCH];
        int n = ibv_poll_cq(c->cq, POLL_BATCH, wc);
        if (n < 0) {
            (void)!failed(c, "completions cannot be polled", errno);
            return total + 1;
        }
        for (int i = 0; i < n; i++)
            completed(c, &wc[i]);
        total += n;
        if (n < POLL_BATCH)
            break;
    }
    if (total > 0) {
        c->heard = true;
        return_credits(c);
        rg_rdma_lend_again(c);
        changed(c);
    }
    return total;
}

/* --- waiting --- */

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
        rg_wait_relax();
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
        rg_wait_relax();
    } else {
        look = rg_wait_look(&c->waits[side]);
    }
    if (look)
        give_way(c);
    rg_rdma_lock(c);
    return look;
}

/* The channel has one queue, which gives one event each time it was armed: what is left ends the next sleep at once. */
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

/* Asks for an event at the next completion; true: something has completed meanwhile. */
static bool arm(struct rg_rdma_conn *c)
{
    if (c->polled)
        return false;
    int error = ibv_req_notify_cq(c->cq, 0);
    if (error)
        (void)!failed(c, "no notice of completions", error);
    return rg_rdma_progress(c) > 0;
}

/* Sleeps until something happens, `deadline`, or for at most `longest`. Returns whether nothing has. */
static bool sleep_once(struct rg_rdma_conn *c, enum rg_rdma_side side, uint64_t deadline, uint64_t longest)
{
    uint64_t now = rg_now_ns(), left = deadline > now ? deadline - now : 0;
    if (left > longest)
        left = longest;
    struct timespec time = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
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
        rg_rdma_look_at_events(c);
    if (fds[2].revents && rg_rdma_take_event(c))
        c->events_proven = true;
    return n == 0;
}

/*
 * The queue was armed, and something has completed in a sleep that no event ended: if none comes soon, events are not to be
 * relied on. (One that is on its way, as the sleep ended by itself in just that moment, is there at once.)
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

/* Whether the session's first connection has ended, and with it the session: then nothing comes any more by this one. */
static void look_at_tether(struct rg_rdma_conn *c, uint64_t now)
{
    if (!c->tether || c->broken != RG_OK || c->peer_bye || now - c->looked_ns < TETHER_LOOK_NS)
        return;
    c->looked_ns = now;
    struct pollfd p = {.fd = c->tether->ops->fd(c->tether), .events = POLLRDHUP};
    rg_rdma_unlock(c);
    const bool ended = poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
    rg_rdma_lock(c);
    if (!ended || !c->tether)
        return;
    if (!c->ended_ns)
        c->ended_ns = now;
    if (now - c->ended_ns < TETHER_LATE_NS)
        return;
    rg_rdma_progress(c);
    if (c->broken != RG_OK || c->peer_bye)
        return;
    rg_info("rdma: %s is gone: the session's first connection has ended", c->head.peer);
    rg_rdma_break(c, RG_ERR_LOST);
}

/*
 * A reliable connection fails when something sent is not acknowledged; who only waits sends nothing and would wait for
 * ever for a peer that is gone. So a write of no bytes is sent now and then: the peer's device acknowledges it without
 * its software. Where there are no one-sided writes, the session's first connection tells.
 */
static void ask_for_life(struct rg_rdma_conn *c)
{
    uint64_t now = rg_now_ns();
    if (c->two_sided)
        look_at_tether(c, now);
    if (c->heard) {
        c->heard = false;
        c->heard_ns = now;
    }
    if (c->two_sided || c->checking || c->broken != RG_OK || c->peer_bye || now - c->heard_ns < SILENCE_NS)
        return;
    if (c->writes_done != c->writes_posted) {
        if (now - c->heard_ns < DEAD_NS)
            return;
        rg_warn("rdma: %s: nothing was acknowledged for %u s", c->head.peer,
                (unsigned)(DEAD_NS / 1000000000u));
        rg_rdma_break(c, RG_ERR_LOST);
        return;
    }
    c->heard_ns = now;
    struct ibv_send_wr wr = {.wr_id = send_id(c->data_posted, c->control_posted, c->writes_posted + 1),
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = le64toh(c->check_area.address),
                                         .rkey = le32toh(c->check_area.key)}},
                       *bad;
    int error = ibv_post_send(c->id->qp, &wr, &bad);
    if (error)
        (void)!failed(c, "a sign of life cannot be asked for", error);
    else
        c->writes_posted++;
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
            rg_rdma_look_at_events(c);
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
        if (arm(c))
            continue;
        in_vain = sleep_once(c, side, deadline, c->polled ? pause : c->events_proven ? LOOK_NS : DOUBT_NS);
        if (pause < POLLED_SLEEP_MAX_NS)
            pause *= 2;
    }
    rg_wait_end(&c->waits[side]);
    if (c->asleep[!side] && c->broken == RG_OK)
        arm(c); /* the event that it sleeps for may have been the one taken here */
    return status;
}
