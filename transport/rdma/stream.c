/*
 * stream.c - messages as fragments, and how connections end.
 *
 * A message that fits into one fragment is handed out where it was received; its slot goes back to the device
 * with the next receive. One of several fragments, or one with bulk data behind it in further fragments, is
 * assembled in a buffer. What was received before a connection broke can be read to its end.
 *
 * An end in order is a BYE behind the last message; anything else is a loss. Failures are for good, and each
 * side's own, as in transport tcp.
 */
#include "transport/rdma/internal.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    COPY_UNDER_LOCK = 1024, /* payloads up to here are filled without giving up the lock */
};

/* --- sending --- */

/* Where a message stands on its way out: head, message parts, copied bulk parts. */
struct cursor {
    const struct rg_send *message;
    struct rg_rdma_message head;
    int part;      /* 0: the head */
    size_t offset; /* within it */
    size_t left;   /* bytes that travel as fragments */
    bool fault;
};

static struct iovec part_at(const struct cursor *cur)
{
    const struct rg_send *m = cur->message;
    if (cur->part == 0)
        return (struct iovec){(void *)(uintptr_t)&cur->head, sizeof cur->head};
    return cur->part <= m->n_msg ? m->msg[cur->part - 1] : m->bulk[cur->part - 1 - m->n_msg];
}

static void fill(struct rg_rdma_conn *c, struct cursor *cur, unsigned char *to, size_t size)
{
    while (size > 0) {
        struct iovec part = part_at(cur);
        size_t n = part.iov_len - cur->offset;
        if (n > size)
            n = size;
        const char *from = (const char *)part.iov_base + cur->offset;
        if (cur->part <= cur->message->n_msg) {
            memcpy(to, from, n);
        } else {
            if (n > 0 && !rg_safe_copy_from(to, from, n)) {
                memset(to, 0, n);
                cur->fault = true;
            }
            atomic_fetch_add_explicit(&c->bytes_copied[RG_RDMA_SENDER], n, memory_order_relaxed);
        }
        to += n;
        size -= n;
        cur->offset += n;
        if (cur->offset == part.iov_len) {
            cur->part++;
            cur->offset = 0;
        }
    }
}

/* Waits until a fragment can be posted; under the lock. */
static enum rg_status need_advertised(struct rg_rdma_conn *c)
{
    enum rg_status status = rg_rdma_state(c);
    while (status == RG_OK && (c->credits == 0 || c->data_posted - c->data_done >= RG_RDMA_SLOTS))
        status = c->peer_bye ? RG_ERR_LOST : rg_rdma_wait(c, RG_RDMA_SENDER, UINT64_MAX);
    return status;
}

enum rg_status rg_rdma_send_payload(struct rg_rdma_conn *c, const void *payload, size_t size)
{
    RG_TRY(need_advertised(c));
    memcpy(rg_rdma_send_slot(c, c->data_posted) + sizeof(struct rg_rdma_fragment), payload, size);
    return rg_rdma_post_data(c, (uint32_t)size);
}

/* Under the lock. */
static enum rg_status send_fragment(struct rg_rdma_conn *c, struct cursor *cur)
{
    enum rg_status status = need_advertised(c);
    if (status != RG_OK)
        return status;
    unsigned char *payload = rg_rdma_send_slot(c, c->data_posted) + sizeof(struct rg_rdma_fragment);
    size_t n = cur->left < RG_RDMA_PAYLOAD ? cur->left : RG_RDMA_PAYLOAD;
    if (n <= COPY_UNDER_LOCK) {
        fill(c, cur, payload, n);
    } else {
        rg_rdma_unlock(c); /* the slot is the sender's until it is posted */
        fill(c, cur, payload, n);
        rg_rdma_lock(c);
        status = rg_rdma_state(c);
        if (status != RG_OK)
            return status;
    }
    cur->left -= n;
    return rg_rdma_post_data(c, (uint32_t)n);
}

static bool has_arrived(const struct rg_rdma_conn *c, uint32_t data, uint32_t control)
{
    return (int32_t)(c->data_done - data) >= 0 && (int32_t)(c->control_done - control) >= 0;
}

/* Waits until what was sent so far has arrived. Under the lock. */
static enum rg_status delivered(struct rg_rdma_conn *c)
{
    const uint32_t data = c->data_posted, control = c->control_posted;
    enum rg_status status = RG_OK;
    while (status == RG_OK && !has_arrived(c, data, control))
        status = rg_rdma_wait(c, RG_RDMA_SENDER, UINT64_MAX);
    return has_arrived(c, data, control) ? RG_OK : status; /* it may have broken afterwards */
}

enum rg_status rg_rdma_send(struct rg_conn *conn, struct rg_send *message)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    enum rg_status status = rg_rdma_state(c);
    if (status == RG_OK)
        status = c->send_failed != RG_OK ? c->send_failed : c->peer_bye ? RG_ERR_LOST : RG_OK;
    if (status != RG_OK) {
        rg_rdma_unlock(c);
        return status;
    }
    struct rg_rdma_route route;
    const bool placed = rg_rdma_is_written(c, message);
    const bool advertised = placed && rg_rdma_route(c, message, &route);
    struct cursor cur = {.message = message,
                         .head = {.msg_size = htole32((uint32_t)message->msg_size),
                                  .bulk_size = htole32((uint32_t)message->bulk_size),
                                  .bulk_mode = htole32(advertised ? RG_RDMA_BULK_ADVERTISED
                                                       : placed   ? RG_RDMA_BULK_WRITTEN
                                                                  : RG_RDMA_BULK_COPIED)},
                         .left = sizeof cur.head + message->msg_size + (placed ? 0 : message->bulk_size)};
    c->send_busy = true;
    c->ready_wanted = placed && !advertised;
    c->ready_here = false;
    while (cur.left > 0 && status == RG_OK)
        status = send_fragment(c, &cur);
    if (status == RG_OK && placed) {
        rg_rdma_unlock(c);
        status = rg_rdma_write(c, message, advertised ? &route : NULL, &cur.fault);
        rg_rdma_lock(c);
    }
    if (status == RG_OK && c->delivers)
        status = delivered(c);
    c->send_busy = false;
    if (status != RG_OK) {
        c->send_failed = status;
        if (c->broken == RG_OK) {
            rdma_disconnect(c->id); /* the peer must not wait for the rest of the message */
            rg_rdma_break(c, RG_ERR_LOST);
        }
    }
    rg_rdma_unlock(c);
    return status == RG_OK && cur.fault ? RG_ERR_FAULT : status;
}

/* --- receiving; under the lock --- */

static struct rg_rdma_received *first_received(struct rg_rdma_conn *c)
{
    return c->received_head != c->received_tail ? &c->received[c->received_head % RG_RDMA_SLOTS] : NULL;
}

/* Waits for a fragment with something left in it. `within`: an end here is a loss. */
static enum rg_status need_fragment(struct rg_rdma_conn *c, uint64_t deadline, bool within,
                                    struct rg_rdma_received **out)
{
    for (;;) {
        *out = first_received(c);
        if (*out)
            return RG_OK;
        if (c->peer_bye)
            return within ? RG_ERR_LOST : RG_ERR_CLOSED;
        enum rg_status status = rg_rdma_wait(c, RG_RDMA_RECEIVER, deadline);
        if (status == RG_OK)
            continue;
        /* what came last may be the end that explains the failure */
        if (status != RG_ERR_TIMEOUT && status != RG_ERR_CLOSED && (first_received(c) || c->peer_bye))
            continue;
        return status;
    }
}

/* Takes up to `size` bytes of the first fragment, which goes back to the device when it is used up. */
static enum rg_status use_up(struct rg_rdma_conn *c, struct rg_rdma_received *fragment, uint32_t n)
{
    fragment->offset += n;
    fragment->length -= n;
    return fragment->length == 0 && !c->held ? rg_rdma_release(c) : RG_OK;
}

/*
 * The fragment that holds the message stays where it is until the next one is received: this is the one
 * behind it.
 */
enum rg_status rg_rdma_take_payload(struct rg_rdma_conn *c, void *payload, size_t size)
{
    while (c->received_tail - c->received_head <= (c->held ? 1 : 0)) {
        enum rg_status status = c->peer_bye ? RG_ERR_LOST : rg_rdma_wait(c, RG_RDMA_RECEIVER, UINT64_MAX);
        if (status != RG_OK && c->received_tail - c->received_head <= (c->held ? 1 : 0))
            return status;
    }
    struct rg_rdma_received *first = &c->received[c->received_head % RG_RDMA_SLOTS], *fragment = first;
    if (c->held)
        fragment = &c->received[(c->received_head + 1) % RG_RDMA_SLOTS];
    if (fragment->length != size)
        return RG_ERR_PROTOCOL;
    memcpy(payload, rg_rdma_receive_slot(c, fragment->slot) + fragment->offset, size);
    const struct rg_rdma_received used = *fragment;
    *fragment = *first;
    *first = used;
    return rg_rdma_release(c);
}

static enum rg_status read_head(struct rg_rdma_conn *c, uint64_t deadline)
{
    struct rg_rdma_received *fragment;
    RG_TRY(need_fragment(c, deadline, false, &fragment));
    struct rg_rdma_message *head = &c->incoming;
    if (fragment->length < sizeof *head)
        return RG_ERR_PROTOCOL;
    memcpy(head, rg_rdma_receive_slot(c, fragment->slot) + fragment->offset, sizeof *head);
    uint32_t mode = le32toh(head->bulk_mode);
    if (le32toh(head->msg_size) > RG_MESSAGE_MAX || le32toh(head->bulk_size) > RG_BULK_MAX)
        return RG_ERR_LIMIT;
    if (mode > RG_RDMA_BULK_ADVERTISED || head->reserved != 0 ||
        (mode != RG_RDMA_BULK_COPIED && (c->two_sided || head->bulk_size == 0)))
        return RG_ERR_PROTOCOL;
    c->has_head = true;
    c->assembled = 0;
    fragment->offset += (uint32_t)sizeof *head;
    fragment->length -= (uint32_t)sizeof *head;
    return RG_OK;
}

/* The message into the assembly buffer, fragment by fragment. */
static enum rg_status assemble(struct rg_rdma_conn *c, uint32_t size, uint64_t deadline)
{
    if (!c->assembly && !(c->assembly = malloc(RG_MESSAGE_MAX)))
        return RG_ERR_NO_MEMORY;
    do {
        struct rg_rdma_received *fragment;
        RG_TRY(need_fragment(c, deadline, true, &fragment));
        uint32_t n = fragment->length < size - c->assembled ? fragment->length : size - c->assembled;
        memcpy(c->assembly + c->assembled, rg_rdma_receive_slot(c, fragment->slot) + fragment->offset, n);
        c->assembled += n;
        RG_TRY(use_up(c, fragment, n));
    } while (c->assembled < size);
    return RG_OK;
}

static enum rg_status receive(struct rg_rdma_conn *c, uint64_t deadline, struct rg_message *out)
{
    enum rg_status status = RG_OK;
    if (c->held) {
        c->held = false;
        status = rg_rdma_release(c);
    }
    if (status == RG_OK && !c->has_head)
        status = read_head(c, deadline);
    if (status != RG_OK)
        return status;
    uint32_t size = le32toh(c->incoming.msg_size), bulk = le32toh(c->incoming.bulk_size);
    c->bulk_mode = le32toh(c->incoming.bulk_mode);
    c->piece = (struct rg_rdma_piece){0};
    struct rg_rdma_received *fragment = c->assembled == 0 ? first_received(c) : NULL;
    uint32_t in_fragment = size + (c->bulk_mode == RG_RDMA_BULK_COPIED ? bulk : 0);
    if (fragment && fragment->length == in_fragment) {
        *out = (struct rg_message){.data = rg_rdma_receive_slot(c, fragment->slot) + fragment->offset,
                                   .size = size,
                                   .bulk_size = bulk};
        fragment->offset += size;
        fragment->length -= size;
        c->held = true;
    } else {
        if (fragment && fragment->length > in_fragment)
            return RG_ERR_PROTOCOL;
        status = assemble(c, size, deadline);
        if (status != RG_OK)
            return status;
        *out = (struct rg_message){.data = c->assembly, .size = size, .bulk_size = bulk};
    }
    c->has_head = false;
    return RG_OK;
}

static uint64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : timeout_ms == 0 ? 0 : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

enum rg_status rg_rdma_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (atomic_load_explicit(&c->interrupted, memory_order_acquire))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    rg_rdma_lock(c);
    enum rg_status status = receive(c, deadline_of(timeout_ms), out);
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        if (c->broken == RG_OK)
            rg_error("%s sent %s", c->head.peer,
                     status == RG_ERR_LIMIT ? "a message beyond the limits"
                                            : "something that is not remote-gpu's");
        rg_rdma_break(c, status);
    }
    rg_rdma_unlock(c);
    if (status != RG_OK && status != RG_ERR_TIMEOUT)
        c->recv_failed = status;
    return status;
}

static enum rg_status take_copied(struct rg_rdma_conn *c, unsigned char *to, size_t size)
{
    bool fault = false;
    enum rg_status status = RG_OK;
    rg_rdma_lock(c);
    while (size > 0 && status == RG_OK) {
        struct rg_rdma_received *fragment;
        status = need_fragment(c, UINT64_MAX, true, &fragment);
        if (status != RG_OK)
            break;
        uint32_t n = fragment->length < size ? fragment->length : (uint32_t)size;
        if (n == 0) {
            status = RG_ERR_PROTOCOL; /* the message ends here, its bulk data does not */
            break;
        }
        const unsigned char *from = rg_rdma_receive_slot(c, fragment->slot) + fragment->offset;
        if (to && !fault) {
            rg_rdma_unlock(c); /* the fragment is the receiver's until it is given back */
            fault = !rg_safe_copy_to(to, from, n);
            rg_rdma_lock(c);
            atomic_fetch_add_explicit(&c->bytes_copied[RG_RDMA_RECEIVER], n, memory_order_relaxed);
            to += n;
        }
        size -= n;
        status = use_up(c, fragment, n);
    }
    rg_rdma_unlock(c);
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

enum rg_status rg_rdma_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (atomic_load_explicit(&c->interrupted, memory_order_acquire))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    enum rg_status status = c->bulk_mode == RG_RDMA_BULK_ADVERTISED
                                ? rg_rdma_receive_advertised(c, buffer, size)
                            : c->bulk_mode == RG_RDMA_BULK_WRITTEN ? rg_rdma_take_written(c, buffer, size)
                                                                   : take_copied(c, buffer, size);
    if (status != RG_OK && status != RG_ERR_FAULT)
        c->recv_failed = status;
    return status;
}
