/*
 * lent.c - memory that is lent ahead: the peer places bulk data there without asking where it belongs.
 *
 * Without a tag: chunks of the receiver's, for whatever comes. A message takes as many as it needs, or none; each is
 * used once and comes back with the message. With a tag: the destination of a transfer that both sides know by a number;
 * a piece says where in it the data was placed. The word of each piece is a DATA fragment behind the write, so that the
 * credits of those keep it from overrunning, and its order is that of the stream. How many LENDs are under way is
 * counted by what the peer tells it has seen.
 *
 * What a peer may do: write at any time into what is lent (as into all that is registered), say what it wrote only of
 * what it was lent. A piece that is not within a loan that it has, or a second one in a chunk, ends the connection.
 *
 * Nobody waits here for anything but the pieces of a message that is being received: what is not lent is asked for.
 */
#include "transport/rdma/rdma.h"

#include "common/base/safe_copy.h"

#include <string.h>

/* --- what this side has lent --- */

/* Tells the peer of a loan, of as much as one LEND says; RG_ERR_TIMEOUT: there is no room for the message now. */
static enum rg_status tell(struct rg_rdma_conn *c, uint32_t slot, const struct rg_rdma_region *region)
{
    struct rg_rdma_lent *lent = &c->lent[slot];
    struct rg_rdma_lend lend = {
        .slot = htole16((uint16_t)slot), .tag = htole64(lent->tag), .base = htole64(lent->base)};
    uint16_t n = 0;
    for (size_t done = 0; done < lent->size; n++) {
        size_t length = lent->size - done;
        if (n == RG_RDMA_SEGMENTS) {
            lent->size = done; /* the rest is asked for */
            break;
        }
        const struct ibv_mr *mr = rg_rdma_region_part(region, lent->memory + done, &length);
        lend.segments[n] = (struct rg_rdma_segment){.address = htole64((uintptr_t)(lent->memory + done)),
                                                    .key = htole32(mr->rkey),
                                                    .length = htole32((uint32_t)length)};
        done += length;
    }
    lend.n = htole16(n);
    if (c->lends_posted - c->lends_acked >= RG_RDMA_LENDS)
        return RG_ERR_TIMEOUT;
    enum rg_status status = rg_rdma_post_control(c, RG_RDMA_LEND, &lend, sizeof lend);
    if (status == RG_OK)
        c->lends_posted++;
    return status;
}

static uint32_t first_slot(uint64_t tag)
{
    return tag ? RG_RDMA_CHUNKS : 0;
}

static uint32_t end_slot(uint64_t tag)
{
    return tag ? RG_RDMA_LOANS : RG_RDMA_CHUNKS;
}

static enum rg_status lend(struct rg_rdma_conn *c, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    enum rg_status status = rg_rdma_state(c);
    if (status != RG_OK)
        return status;
    uint32_t slot = first_slot(tag);
    while (slot < end_slot(tag) && c->lent[slot].state != RG_RDMA_AT_HOME)
        slot++;
    if (slot == end_slot(tag))
        return RG_ERR_TIMEOUT;
    struct rg_rdma_region *region = rg_rdma_region_find(c, memory, size);
    if (!region &&
        (!tag || size < c->register_min || rg_rdma_region_add(c, memory, size, true, &region) != RG_OK))
        return RG_ERR_UNSUPPORTED;
    struct rg_rdma_lent *lent = &c->lent[slot];
    *lent = (struct rg_rdma_lent){
        .tag = tag, .base = base, .memory = memory, .size = size, .region = tag ? region : NULL};
    if (tag)
        rg_rdma_region_use(region);
    status = tell(c, slot, region);
    if (status == RG_OK)
        lent->state = RG_RDMA_AWAY;
    else if (tag)
        rg_rdma_region_done(c, region);
    return status;
}

enum rg_status rg_rdma_lend(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (c->two_sided || c->asks)
        return RG_ERR_UNSUPPORTED;
    rg_rdma_lock(c);
    enum rg_status status = lend(c, tag, base, memory, size);
    rg_rdma_unlock(c);
    return status;
}

void rg_rdma_unlend(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    for (uint32_t slot = RG_RDMA_CHUNKS; slot < RG_RDMA_LOANS; slot++) {
        struct rg_rdma_lent *lent = &c->lent[slot];
        if (lent->state == RG_RDMA_AT_HOME || lent->tag != tag || lent->memory != memory)
            continue;
        lent->state = RG_RDMA_AT_HOME;
        rg_rdma_region_done(c, lent->region);
        break;
    }
    rg_rdma_unlock(c);
}

void rg_rdma_withdraw(struct rg_rdma_conn *c, const unsigned char *base, size_t size)
{
    for (uint32_t slot = 0; slot < RG_RDMA_CHUNKS; slot++) {
        struct rg_rdma_lent *lent = &c->lent[slot];
        if (lent->memory >= base && lent->memory < base + size)
            *lent = (struct rg_rdma_lent){.state = RG_RDMA_AT_HOME};
    }
}

void rg_rdma_lend_again(struct rg_rdma_conn *c)
{
    if (!c->lends_wait || c->broken != RG_OK || c->bye_sent)
        return;
    c->lends_wait = false;
    for (uint32_t slot = 0; slot < RG_RDMA_CHUNKS; slot++) {
        struct rg_rdma_lent *lent = &c->lent[slot];
        if (lent->state != RG_RDMA_LEAVES)
            continue;
        const struct rg_rdma_region *region = rg_rdma_region_find(c, lent->memory, lent->size);
        const enum rg_status status = region ? tell(c, slot, region) : RG_ERR_UNSUPPORTED;
        if (status == RG_OK)
            lent->state = RG_RDMA_AWAY;
        else if (status == RG_ERR_TIMEOUT)
            c->lends_wait = true;
        else
            lent->state = RG_RDMA_AT_HOME;
    }
}

/* --- what comes in --- */

/* The piece at hand; receives the word of the next one if there is none. */
static enum rg_status need_piece(struct rg_rdma_conn *c, size_t bulk_left)
{
    if (c->piece.length > 0)
        return RG_OK;
    struct rg_rdma_piece piece;
    enum rg_status status = rg_rdma_take_payload(c, &piece, sizeof piece);
    if (status != RG_OK)
        return status;
    const uint16_t slot = le16toh(piece.slot);
    const uint32_t length = le32toh(piece.length);
    const uint64_t offset = le64toh(piece.offset);
    struct rg_rdma_lent *lent = slot < RG_RDMA_LOANS ? &c->lent[slot] : NULL;
    if (!lent || lent->state != RG_RDMA_AWAY || length == 0 || length > bulk_left || offset > lent->size ||
        length > lent->size - offset || (!lent->tag && offset != 0)) {
        rg_error("%s placed bulk data where it was not lent memory", c->head.peer);
        rg_rdma_break(c, RG_ERR_PROTOCOL);
        return RG_ERR_PROTOCOL;
    }
    if (!lent->tag)
        lent->state = RG_RDMA_FILLED;
    c->piece = (struct rg_rdma_piece){.slot = slot, .length = length, .offset = offset};
    return RG_OK;
}

/* `size` bytes of the piece are dealt with. `again`: lend its memory again when it is used up. */
static void advance(struct rg_rdma_conn *c, size_t size, bool again)
{
    struct rg_rdma_lent *lent = &c->lent[c->piece.slot];
    c->piece.offset += size;
    c->piece.length -= (uint32_t)size;
    if (c->piece.length > 0 || lent->state != RG_RDMA_FILLED)
        return;
    lent->state = again ? RG_RDMA_LEAVES : RG_RDMA_AT_HOME;
    c->lends_wait |= again;
    rg_rdma_lend_again(c);
}

static void count(atomic_uint_fast64_t *counter, size_t size)
{
    atomic_fetch_add_explicit(counter, size, memory_order_relaxed);
}

enum rg_status rg_rdma_receive_lent(struct rg_rdma_conn *c, unsigned char *to, size_t size)
{
    bool fault = false;
    enum rg_status status = RG_OK;
    rg_rdma_lock(c);
    while (size > 0 && (status = need_piece(c, c->head.bulk_left + size)) == RG_OK) {
        const size_t n = c->piece.length < size ? c->piece.length : size;
        unsigned char *from = c->lent[c->piece.slot].memory + c->piece.offset;
        if (to == from) {
            count(&c->bytes_placed[RG_RDMA_RECEIVER], n);
        } else if (to && !fault) {
            rg_rdma_unlock(c); /* the loan is used up, or its owner's to keep meanwhile */
            fault = !rg_safe_copy_to(to, from, n);
            rg_rdma_lock(c);
            count(&c->bytes_copied[RG_RDMA_RECEIVER], n);
        }
        to = to ? to + n : NULL;
        size -= n;
        advance(c, n, true);
    }
    rg_rdma_unlock(c);
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

enum rg_status rg_rdma_take_lent(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    *size = 0;
    if (atomic_load_explicit(&c->interrupted, memory_order_acquire))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK || c->bulk_mode != RG_RDMA_BULK_LENT)
        return c->recv_failed;
    rg_rdma_lock(c);
    enum rg_status status = need_piece(c, c->head.bulk_left);
    if (status == RG_OK && !c->lent[c->piece.slot].tag && c->piece.length <= most) {
        *memory = c->lent[c->piece.slot].memory + c->piece.offset;
        *size = c->piece.length;
        count(&c->bytes_placed[RG_RDMA_RECEIVER], *size);
        advance(c, *size, false);
    }
    rg_rdma_unlock(c);
    if (status != RG_OK)
        c->recv_failed = status;
    return status;
}

/* --- what the peer has lent --- */

bool rg_rdma_read_lend(struct rg_rdma_conn *c, const unsigned char *payload, uint32_t length)
{
    struct rg_rdma_lend lend;
    if (length != sizeof lend || c->two_sided)
        return false;
    memcpy(&lend, payload, sizeof lend);
    const uint16_t slot = le16toh(lend.slot), n = le16toh(lend.n);
    if (slot >= RG_RDMA_LOANS || (slot < RG_RDMA_CHUNKS) != (lend.tag == 0) || n < 1 || n > RG_RDMA_SEGMENTS)
        return false;
    struct rg_rdma_loan *loan = &c->loans[slot];
    if (slot < RG_RDMA_CHUNKS && loan->here)
        return false;
    *loan = (struct rg_rdma_loan){.here = true, .tag = le64toh(lend.tag), .base = le64toh(lend.base), .n = n};
    for (uint16_t i = 0; i < n; i++) {
        loan->segments[i] = lend.segments[i];
        loan->size += le32toh(lend.segments[i].length);
        if (lend.segments[i].length == 0)
            return false;
    }
    c->lends_seen++;
    return true;
}

static bool route_by_tag(const struct rg_rdma_conn *c, const struct rg_outgoing *message,
                         struct rg_rdma_route *out)
{
    for (uint16_t slot = RG_RDMA_CHUNKS; slot < RG_RDMA_LOANS; slot++) {
        const struct rg_rdma_loan *loan = &c->loans[slot];
        if (!loan->here || loan->tag != message->tag || message->base < loan->base)
            continue;
        const uint64_t offset = message->base - loan->base;
        if (offset > loan->size || message->bulk_size > loan->size - offset)
            continue;
        out->n = 1;
        out->pieces[0].slot = slot;
        out->pieces[0].offset = offset;
        out->pieces[0].length = (uint32_t)message->bulk_size;
        out->pieces[0].loan = *loan;
        return true;
    }
    return false;
}

bool rg_rdma_has_room(struct rg_conn *conn, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    uint64_t room = 0;
    rg_rdma_lock(c);
    for (unsigned i = 0; i < RG_RDMA_CHUNKS && !c->asks; i++)
        room += c->loans[i].here ? c->loans[i].size : 0;
    rg_rdma_unlock(c);
    return room >= size;
}

bool rg_rdma_route(struct rg_rdma_conn *c, const struct rg_outgoing *message, struct rg_rdma_route *out)
{
    if (c->asks)
        return false;
    if (message->tag)
        return route_by_tag(c, message, out);
    size_t left = message->bulk_size;
    out->n = 0;
    for (unsigned i = 0; i < RG_RDMA_CHUNKS && left > 0; i++) {
        const uint16_t slot = (uint16_t)((c->next_loan + i) % RG_RDMA_CHUNKS);
        const struct rg_rdma_loan *loan = &c->loans[slot];
        if (!loan->here)
            continue;
        const uint32_t n = (uint32_t)(loan->size < left ? loan->size : left);
        out->pieces[out->n].slot = slot;
        out->pieces[out->n].offset = 0;
        out->pieces[out->n].length = n;
        out->pieces[out->n++].loan = *loan;
        left -= n;
    }
    if (left > 0)
        return false; /* all or nothing: a message that has begun waits for nobody */
    for (unsigned i = 0; i < out->n; i++)
        c->loans[out->pieces[i].slot].here = false;
    c->next_loan = out->pieces[out->n - 1].slot + 1u;
    return true;
}
