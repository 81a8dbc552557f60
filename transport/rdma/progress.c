/*
 * progress.c - posting, completions and credits.
 *
 * Receives are posted in the order of their slots and given back as they are used up; the device fills them
 * in the order in which they were posted. Sends complete in order too, so that rings with two counters each
 * are enough to know which slots are free, and so that not each of them has to tell of its completion: one
 * that does stands for all before it, of each kind, whose counts its work id carries. A call and its answer
 * then are two completions, not four, and nobody who sleeps is woken by his own message having left.
 */
#include "transport/rdma/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { POLL_BATCH = 16 };

enum kind { KIND_RECEIVE, KIND_SEND };

/*
 * One send in so many tells of its completion: often enough that who waits for a slot gets it while others
 * are in use.
 */
enum { SIGNAL_DATA = RG_RDMA_SLOTS / 4, SIGNAL_CONTROL = RG_RDMA_CONTROLS / 4 };

static uint64_t receive_id(uint32_t slot)
{
    return (uint64_t)KIND_RECEIVE << 48 | slot;
}

/*
 * Of the send that is the last one of those counted; 16 bits of each count tell them apart, as few are under
 * way.
 */
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
                                    .advertisements_seen = htole32(c->advertisements_seen)};
    c->credits_due = 0;
    memcpy(slot, &head, sizeof head);
}

enum rg_status rg_rdma_post_data(struct rg_rdma_conn *c, uint32_t length)
{
    unsigned char *slot = rg_rdma_send_slot(c, c->data_posted);
    fill_head(c, slot, RG_RDMA_DATA, length);
    const uint32_t number = c->data_posted + 1;
    RG_TRY(post_send(c, send_id(number, c->control_posted, c->writes_posted),
                     c->bye_sent || c->delivers || number % SIGNAL_DATA == 0, slot,
                     (uint32_t)sizeof(struct rg_rdma_fragment) + length));
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

void rg_rdma_post_sign_of_life(struct rg_rdma_conn *c)
{
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
    RG_TRY(post_receive(c, slot));
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
    if (length != sizeof(struct rg_rdma_ready_to_receive) || !c->ready_wanted || c->ready_here)
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
    case RG_RDMA_READY_TO_RECEIVE:
        return read_ready(c, payload, length);
    case RG_RDMA_ARRIVAL:
        if (!c->placing || c->placed || length != 0)
            return false;
        c->placed = true;
        return true;
    case RG_RDMA_BYE:
        c->peer_bye = true;
        return length == 0;
    case RG_RDMA_ADVERTISE:
        return rg_rdma_read_advertisement(c, payload, length);
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
    c->signs = 0;
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
    const uint32_t advertisements_seen = le32toh(head.advertisements_seen) - c->advertisements_acked;
    if (c->credits > RG_RDMA_SLOTS ||
        advertisements_seen > c->advertisements_posted - c->advertisements_acked) {
        (void)!malformed(c);
        return;
    }
    c->advertisements_acked += advertisements_seen;
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
        if (c->broken != RG_OK)
            return;
        if (!c->peer_bye && !c->bye_sent && wc->status != IBV_WC_WR_FLUSH_ERR)
            rg_warn("rdma: %s: %s", c->head.peer, ibv_wc_status_str(wc->status));
        rg_rdma_break(c, RG_ERR_LOST);
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
        rg_rdma_readvertise(c);
        changed(c);
    }
    return total;
}

bool rg_rdma_arm(struct rg_rdma_conn *c)
{
    if (c->polled)
        return false;
    int error = ibv_req_notify_cq(c->cq, 0);
    if (error)
        (void)!failed(c, "no notice of completions", error);
    return rg_rdma_progress(c) > 0;
}
