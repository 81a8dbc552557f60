/*
 * advertised.c - memory that is advertised ahead: the peer places bulk data there without asking where it
 * belongs.
 *
 * Without a tag: chunks of the receiver's, for whatever comes. A message takes as many as it needs, or none;
 * each is used once and comes back with the message. With a tag: the destination of a transfer that both
 * sides know by a number; a piece says where in it the data was placed. The word of each piece is a DATA
 * fragment behind the write, so that the credits of those keep it from overrunning, and its order is that of
 * the stream. How many ADVERTISEs are under way is counted by what the peer tells it has seen.
 *
 * What a peer may do: write at any time into what is advertised (as into all that is registered), say what it
 * wrote only of what was advertised to it. A piece that is not within an advert that it has, or a second one
 * in a chunk, ends the connection.
 *
 * Nobody waits here for anything but the pieces of a message that is being received: what is not advertised
 * is asked for.
 */
#include "transport/rdma/internal.h"

#include "common/base/safe_copy.h"

#include <string.h>

/* --- what this side has advertised --- */

/*
 * Tells the peer of a advert, of as much as one ADVERTISE says; RG_ERR_TIMEOUT: there is no room for the
 * message now.
 */
static enum rg_status tell(struct rg_rdma_conn *c, uint32_t slot, const struct rg_rdma_region *region)
{
    struct rg_rdma_advertised *advertised = &c->advertised[slot];
    struct rg_rdma_advertise advertise = {
        .slot = htole16((uint16_t)slot), .tag = htole64(advertised->tag), .base = htole64(advertised->base)};
    uint16_t n = 0;
    for (size_t done = 0; done < advertised->size; n++) {
        size_t length = advertised->size - done;
        if (n == RG_RDMA_SEGMENTS) {
            advertised->size = done; /* the rest is asked for */
            break;
        }
        const struct ibv_mr *mr = rg_rdma_region_part(region, advertised->memory + done, &length);
        advertise.segments[n] =
            (struct rg_rdma_segment){.address = htole64((uintptr_t)(advertised->memory + done)),
                                     .key = htole32(mr->rkey),
                                     .length = htole32((uint32_t)length)};
        done += length;
    }
    advertise.n = htole16(n);
    if (c->advertisements_posted - c->advertisements_acked >= RG_RDMA_ADVERTISEMENTS)
        return RG_ERR_TIMEOUT;
    enum rg_status status = rg_rdma_post_control(c, RG_RDMA_ADVERTISE, &advertise, sizeof advertise);
    if (status == RG_OK)
        c->advertisements_posted++;
    return status;
}

static uint32_t first_slot(uint64_t tag)
{
    return tag ? RG_RDMA_CHUNKS : 0;
}

static uint32_t end_slot(uint64_t tag)
{
    return tag ? RG_RDMA_ADVERTS : RG_RDMA_CHUNKS;
}

static enum rg_status advertise(struct rg_rdma_conn *c, uint64_t tag, uint64_t base, void *memory,
                                size_t size)
{
    RG_TRY(rg_rdma_state(c));
    uint32_t slot = first_slot(tag);
    while (slot < end_slot(tag) && c->advertised[slot].state != RG_RDMA_AT_HOME)
        slot++;
    if (slot == end_slot(tag))
        return RG_ERR_TIMEOUT;
    struct rg_rdma_region *region = rg_rdma_region_find(c, memory, size);
    if (!region &&
        (!tag || size < c->register_min || rg_rdma_region_add(c, memory, size, true, &region) != RG_OK))
        return RG_ERR_UNSUPPORTED;
    struct rg_rdma_advertised *advertised = &c->advertised[slot];
    *advertised = (struct rg_rdma_advertised){
        .tag = tag, .base = base, .memory = memory, .size = size, .region = tag ? region : NULL};
    if (tag)
        rg_rdma_region_use(region);
    enum rg_status status = tell(c, slot, region);
    if (status == RG_OK)
        advertised->state = RG_RDMA_AWAY;
    else if (tag)
        rg_rdma_region_done(c, region);
    return status;
}

enum rg_status rg_rdma_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    if (c->two_sided || c->asks)
        return RG_ERR_UNSUPPORTED;
    rg_rdma_lock(c);
    enum rg_status status = advertise(c, tag, base, memory, size);
    rg_rdma_unlock(c);
    return status;
}

void rg_rdma_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    for (uint32_t slot = RG_RDMA_CHUNKS; slot < RG_RDMA_ADVERTS; slot++) {
        struct rg_rdma_advertised *advertised = &c->advertised[slot];
        if (advertised->state == RG_RDMA_AT_HOME || advertised->tag != tag || advertised->memory != memory)
            continue;
        advertised->state = RG_RDMA_AT_HOME;
        rg_rdma_region_done(c, advertised->region);
        break;
    }
    rg_rdma_unlock(c);
}

void rg_rdma_forget_adverts(struct rg_rdma_conn *c, const unsigned char *base, size_t size)
{
    for (uint32_t slot = 0; slot < RG_RDMA_CHUNKS; slot++) {
        struct rg_rdma_advertised *advertised = &c->advertised[slot];
        if (advertised->memory >= base && advertised->memory < base + size)
            *advertised = (struct rg_rdma_advertised){.state = RG_RDMA_AT_HOME};
    }
}

void rg_rdma_readvertise(struct rg_rdma_conn *c)
{
    if (!c->advertisements_wait || c->broken != RG_OK || c->bye_sent)
        return;
    c->advertisements_wait = false;
    for (uint32_t slot = 0; slot < RG_RDMA_CHUNKS; slot++) {
        struct rg_rdma_advertised *advertised = &c->advertised[slot];
        if (advertised->state != RG_RDMA_LEAVES)
            continue;
        const struct rg_rdma_region *region = rg_rdma_region_find(c, advertised->memory, advertised->size);
        const enum rg_status status = region ? tell(c, slot, region) : RG_ERR_UNSUPPORTED;
        if (status == RG_OK)
            advertised->state = RG_RDMA_AWAY;
        else if (status == RG_ERR_TIMEOUT)
            c->advertisements_wait = true;
        else
            advertised->state = RG_RDMA_AT_HOME;
    }
}

/* --- what comes in --- */

/* The piece at hand; receives the word of the next one if there is none. */
static enum rg_status need_piece(struct rg_rdma_conn *c, size_t bulk_left)
{
    if (c->piece.length > 0)
        return RG_OK;
    struct rg_rdma_piece piece;
    RG_TRY(rg_rdma_take_payload(c, &piece, sizeof piece));
    const uint16_t slot = le16toh(piece.slot);
    const uint32_t length = le32toh(piece.length);
    const uint64_t offset = le64toh(piece.offset);
    struct rg_rdma_advertised *advertised = slot < RG_RDMA_ADVERTS ? &c->advertised[slot] : NULL;
    if (!advertised || advertised->state != RG_RDMA_AWAY || length == 0 || length > bulk_left ||
        offset > advertised->size || length > advertised->size - offset ||
        (!advertised->tag && offset != 0)) {
        rg_error("%s placed bulk data where it was not advertised memory", c->head.peer);
        rg_rdma_break(c, RG_ERR_PROTOCOL);
        return RG_ERR_PROTOCOL;
    }
    if (!advertised->tag)
        advertised->state = RG_RDMA_FILLED;
    c->piece = (struct rg_rdma_piece){.slot = slot, .length = length, .offset = offset};
    return RG_OK;
}

/* `size` bytes of the piece are dealt with. `again`: advertise its memory again when it is used up. */
static void advance(struct rg_rdma_conn *c, size_t size, bool again)
{
    struct rg_rdma_advertised *advertised = &c->advertised[c->piece.slot];
    c->piece.offset += size;
    c->piece.length -= (uint32_t)size;
    if (c->piece.length > 0 || advertised->state != RG_RDMA_FILLED)
        return;
    advertised->state = again ? RG_RDMA_LEAVES : RG_RDMA_AT_HOME;
    c->advertisements_wait |= again;
    rg_rdma_readvertise(c);
}

static void count(atomic_uint_fast64_t *counter, size_t size)
{
    atomic_fetch_add_explicit(counter, size, memory_order_relaxed);
}

enum rg_status rg_rdma_receive_advertised(struct rg_rdma_conn *c, unsigned char *to, size_t size)
{
    bool fault = false;
    enum rg_status status = RG_OK;
    rg_rdma_lock(c);
    while (size > 0 && (status = need_piece(c, c->head.bulk_left + size)) == RG_OK) {
        const size_t n = c->piece.length < size ? c->piece.length : size;
        unsigned char *from = c->advertised[c->piece.slot].memory + c->piece.offset;
        if (to == from) {
            count(&c->bytes_placed[RG_RDMA_RECEIVER], n);
        } else if (to && !fault) {
            rg_rdma_unlock(c); /* the advert is used up, or its owner's to keep meanwhile */
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

enum rg_status rg_rdma_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    *size = 0;
    if (atomic_load_explicit(&c->interrupted, memory_order_acquire))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK || c->bulk_mode != RG_RDMA_BULK_ADVERTISED)
        return c->recv_failed;
    rg_rdma_lock(c);
    enum rg_status status = need_piece(c, c->head.bulk_left);
    if (status == RG_OK && !c->advertised[c->piece.slot].tag && c->piece.length <= most) {
        *memory = c->advertised[c->piece.slot].memory + c->piece.offset;
        *size = c->piece.length;
        count(&c->bytes_placed[RG_RDMA_RECEIVER], *size);
        advance(c, *size, false);
    }
    rg_rdma_unlock(c);
    if (status != RG_OK)
        c->recv_failed = status;
    return status;
}

/* --- what the peer has advertised --- */

bool rg_rdma_read_advertisement(struct rg_rdma_conn *c, const unsigned char *payload, uint32_t length)
{
    struct rg_rdma_advertise advertise;
    if (length != sizeof advertise || c->two_sided)
        return false;
    memcpy(&advertise, payload, sizeof advertise);
    const uint16_t slot = le16toh(advertise.slot), n = le16toh(advertise.n);
    if (slot >= RG_RDMA_ADVERTS || (slot < RG_RDMA_CHUNKS) != (advertise.tag == 0) || n < 1 ||
        n > RG_RDMA_SEGMENTS)
        return false;
    struct rg_rdma_advert *advert = &c->adverts[slot];
    if (slot < RG_RDMA_CHUNKS && advert->here)
        return false;
    *advert = (struct rg_rdma_advert){
        .here = true, .tag = le64toh(advertise.tag), .base = le64toh(advertise.base), .n = n};
    for (uint16_t i = 0; i < n; i++) {
        advert->segments[i] = advertise.segments[i];
        advert->size += le32toh(advertise.segments[i].length);
        if (advertise.segments[i].length == 0)
            return false;
    }
    c->advertisements_seen++;
    return true;
}

static bool route_by_tag(const struct rg_rdma_conn *c, const struct rg_send *message,
                         struct rg_rdma_route *out)
{
    for (unsigned slot = RG_RDMA_CHUNKS; slot < RG_RDMA_ADVERTS; slot++) {
        const struct rg_rdma_advert *advert = &c->adverts[slot];
        if (!advert->here || advert->tag != message->tag || message->base < advert->base)
            continue;
        const uint64_t offset = message->base - advert->base;
        if (offset > advert->size || message->bulk_size > advert->size - offset)
            continue;
        out->n = 1;
        out->pieces[0].slot = (uint16_t)slot;
        out->pieces[0].offset = offset;
        out->pieces[0].length = (uint32_t)message->bulk_size;
        out->pieces[0].advert = *advert;
        return true;
    }
    return false;
}

bool rg_rdma_has_advertised(struct rg_conn *conn, size_t size)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    uint64_t room = 0;
    rg_rdma_lock(c);
    for (unsigned i = 0; i < RG_RDMA_CHUNKS && !c->asks; i++)
        room += c->adverts[i].here ? c->adverts[i].size : 0;
    rg_rdma_unlock(c);
    return room >= size;
}

bool rg_rdma_route(struct rg_rdma_conn *c, const struct rg_send *message, struct rg_rdma_route *out)
{
    if (c->asks)
        return false;
    if (message->tag)
        return route_by_tag(c, message, out);
    size_t left = message->bulk_size;
    out->n = 0;
    for (unsigned i = 0; i < RG_RDMA_CHUNKS && left > 0; i++) {
        const uint16_t slot = (uint16_t)((c->next_advert + i) % RG_RDMA_CHUNKS);
        const struct rg_rdma_advert *advert = &c->adverts[slot];
        if (!advert->here)
            continue;
        const uint32_t n = (uint32_t)(advert->size < left ? advert->size : left);
        out->pieces[out->n].slot = slot;
        out->pieces[out->n].offset = 0;
        out->pieces[out->n].length = n;
        out->pieces[out->n++].advert = *advert;
        left -= n;
    }
    if (left > 0)
        return false; /* all or nothing: a message that has begun waits for nobody */
    for (unsigned i = 0; i < out->n; i++)
        c->adverts[out->pieces[i].slot].here = false;
    c->next_advert = out->pieces[out->n - 1].slot + 1u;
    return true;
}
