/*
 * write.c - bulk data that is written straight into the receiver's memory.
 *
 * The receiver knows where a message's bulk data belongs only once it has read the message. So the sender
 * sends the message, the receiver answers with addresses and keys (READY_TO_RECEIVE), the sender writes there
 * and says so (ARRIVAL, which the queue pair keeps behind the writes). A READY_TO_RECEIVE may ask for a part;
 * then more follow. Where the receiver has said so ahead (advertised.c), the sender writes without asking,
 * and tells by pieces what it has written.
 *
 * Registered memory at both ends is read and written by the devices alone. Memory that is not registered is
 * registered for the transfer where that was measured to be faster than a copy (register_min), else it goes
 * through bounce buffers of registered memory. Memory that is not there at all (the application's pointers
 * are its word) shows in the bounce copy: zeros leave in its place, or the bytes are dropped, as transport.h
 * says.
 *
 * Threads: the sender's half is the sender's, the receiver's half the receiver's.
 */
#include "transport/rdma/internal.h"

#include "common/base/safe_copy.h"

#include <string.h>
#include <sys/mman.h>

enum { HOLDS = 8 };
static_assert(RG_BULK_MAX <= (RG_RDMA_SEGMENTS - 1) * RG_RDMA_REGION_MAX,
              "one READY_TO_RECEIVE asks for all of a message");

/* --- common --- */

/* The bounce memory of a side: RG_RDMA_BOUNCES buffers; under the lock. */
static enum rg_status need_bounce(struct rg_rdma_conn *c, enum rg_rdma_side side)
{
    if (c->bounce[side])
        return RG_OK;
    size_t size = (size_t)RG_RDMA_BOUNCE * RG_RDMA_BOUNCES;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return RG_ERR_NO_MEMORY;
    struct ibv_mr *mr = ibv_reg_mr(c->pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!mr) {
        rg_error("rdma: %s: no memory for bounce buffers can be registered; raise the limit of locked memory "
                 "(ulimit -l)",
                 c->head.peer);
        munmap(memory, size);
        return RG_ERR_NO_MEMORY;
    }
    c->bounce[side] = memory;
    c->bounce_mr[side] = mr;
    return RG_OK;
}

static void count(atomic_uint_fast64_t *counter, size_t size)
{
    atomic_fetch_add_explicit(counter, size, memory_order_relaxed);
}

/* --- the sender's half --- */

/* Where the source stands. */
struct source {
    const struct rg_send *message;
    int part;
    size_t offset; /* within it */
    bool registered;
    struct rg_rdma_region *holds[HOLDS]; /* regions in use */
    int n_holds;
    uint32_t bounce_write[RG_RDMA_BOUNCES]; /* number behind the last write from each buffer */
    unsigned next_bounce;
    bool fault;
};

bool rg_rdma_is_written(struct rg_rdma_conn *c, const struct rg_send *message)
{
    if (c->two_sided || message->bulk_size == 0)
        return false;
    for (int i = 0; c->n_device_regions > 0 && i < message->n_bulk; i++) {
        const struct rg_rdma_region *region =
            rg_rdma_region_find(c, message->bulk[i].iov_base, message->bulk[i].iov_len);
        if (region && region->device)
            return true; /* there is no other way */
    }
    if (message->bulk_size < RG_RDMA_WRITTEN_MIN)
        return false;
    if (message->bulk_size > RG_RDMA_COPIED_MAX)
        return true;
    for (int i = 0; i < message->n_bulk; i++)
        if (message->bulk[i].iov_len > 0 &&
            !rg_rdma_region_find(c, message->bulk[i].iov_base, message->bulk[i].iov_len))
            return false;
    return true;
}

/* Whether the source can be read by the device: registered, or one part that is worth registering. */
static bool can_read_directly(struct rg_rdma_conn *c, const struct rg_send *message)
{
    for (int i = 0; i < message->n_bulk; i++) {
        const struct iovec *part = &message->bulk[i];
        if (part->iov_len == 0 || rg_rdma_region_find(c, part->iov_base, part->iov_len))
            continue;
        if (message->n_bulk > 1 || part->iov_len < c->register_min)
            return false;
        if (rg_rdma_region_add(c, part->iov_base, part->iov_len, true, NULL) != RG_OK)
            return false;
    }
    return true;
}

/* Waits until `condition` of the sender holds; the peer must still be there. */
#define WAIT_SENDER(c, condition, status)                                                                    \
    while ((status) == RG_OK && !(condition)) {                                                              \
        (status) = (c)->peer_bye ? RG_ERR_LOST : rg_rdma_wait((c), RG_RDMA_SENDER, UINT64_MAX);              \
    }

static enum rg_status finish_writes(struct rg_rdma_conn *c, struct source *s)
{
    enum rg_status status = RG_OK;
    WAIT_SENDER(c, c->writes_done == c->writes_posted, status);
    for (int i = 0; i < s->n_holds; i++)
        rg_rdma_region_done(c, s->holds[i]);
    s->n_holds = 0;
    return status;
}

static enum rg_status hold(struct rg_rdma_conn *c, struct source *s, struct rg_rdma_region *region)
{
    for (int i = 0; i < s->n_holds; i++)
        if (s->holds[i] == region)
            return RG_OK;
    enum rg_status status = s->n_holds == HOLDS ? finish_writes(c, s) : RG_OK;
    if (status == RG_OK) {
        rg_rdma_region_use(region);
        s->holds[s->n_holds++] = region;
    }
    return status;
}

static void skip_empty(struct source *s)
{
    while (s->part < s->message->n_bulk && s->offset == s->message->bulk[s->part].iov_len) {
        s->part++;
        s->offset = 0;
    }
}

/* Writes up to `size` bytes from registered memory; *done tells how many. */
static enum rg_status write_direct(struct rg_rdma_conn *c, struct source *s, size_t size, uint64_t to,
                                   uint32_t key, size_t *done)
{
    skip_empty(s);
    const struct iovec *part = &s->message->bulk[s->part];
    const unsigned char *at = (const unsigned char *)part->iov_base + s->offset;
    size_t n = part->iov_len - s->offset;
    if (n > size)
        n = size;
    if (n > RG_RDMA_WRITE_MAX)
        n = RG_RDMA_WRITE_MAX;
    struct rg_rdma_region *region = rg_rdma_region_find(c, at, n);
    if (!region)
        return RG_ERR_FAULT; /* the owner gave it back in mid-transfer */
    struct ibv_mr *mr = rg_rdma_region_part(region, at, &n);
    enum rg_status status = hold(c, s, region);
    if (status == RG_OK)
        status = rg_rdma_post_write(c, at, (uint32_t)n, mr->lkey, to, key);
    s->offset += n;
    *done = n;
    count(&c->bytes_placed[RG_RDMA_SENDER], n);
    return status;
}

/* Fills `to` with the next bytes of the source. Not under the lock. */
static void gather(struct source *s, unsigned char *to, size_t size)
{
    while (size > 0) {
        skip_empty(s);
        const struct iovec *part = &s->message->bulk[s->part];
        size_t n = part->iov_len - s->offset;
        if (n > size)
            n = size;
        if (!rg_safe_copy_from(to, (const char *)part->iov_base + s->offset, n)) {
            memset(to, 0, n);
            s->fault = true;
        }
        s->offset += n;
        to += n;
        size -= n;
    }
}

/* Writes up to `size` bytes through a bounce buffer. */
static enum rg_status write_bounced(struct rg_rdma_conn *c, struct source *s, size_t size, uint64_t to,
                                    uint32_t key, size_t *done)
{
    enum rg_status status = need_bounce(c, RG_RDMA_SENDER);
    unsigned buffer = s->next_bounce++ % RG_RDMA_BOUNCES;
    WAIT_SENDER(c, (int32_t)(c->writes_done - s->bounce_write[buffer]) >= 0, status);
    if (status != RG_OK)
        return status;
    unsigned char *memory = c->bounce[RG_RDMA_SENDER] + (size_t)buffer * RG_RDMA_BOUNCE;
    size_t n = size < RG_RDMA_BOUNCE ? size : RG_RDMA_BOUNCE;
    rg_rdma_unlock(c);
    gather(s, memory, n);
    rg_rdma_lock(c);
    status = rg_rdma_state(c);
    if (status == RG_OK)
        status = rg_rdma_post_write(c, memory, (uint32_t)n, c->bounce_mr[RG_RDMA_SENDER]->lkey, to, key);
    s->bounce_write[buffer] = c->writes_posted;
    *done = n;
    count(&c->bytes_copied[RG_RDMA_SENDER], n);
    return status;
}

/* Bytes [offset, offset + left) of a segment of the peer's. */
static enum rg_status write_segment(struct rg_rdma_conn *c, struct source *s,
                                    const struct rg_rdma_segment *segment, uint64_t offset, size_t left)
{
    uint64_t to = le64toh(segment->address) + offset;
    uint32_t key = le32toh(segment->key);
    enum rg_status status = RG_OK;
    while (left > 0 && status == RG_OK) {
        WAIT_SENDER(c, c->writes_posted - c->writes_done < RG_RDMA_WRITES, status);
        if (status != RG_OK)
            break;
        size_t done = 0;
        status = s->registered ? write_direct(c, s, left, to, key, &done)
                               : write_bounced(c, s, left, to, key, &done);
        to += done;
        left -= done;
    }
    return status;
}

/* Serves one READY_TO_RECEIVE; *left of the bulk data is still to be asked for. */
static enum rg_status serve_ready(struct rg_rdma_conn *c, struct source *s, size_t *left)
{
    struct rg_rdma_ready_to_receive ready = c->ready;
    c->ready_here = false;
    uint32_t n = le32toh(ready.n);
    size_t asked = 0;
    bool fits = n >= 1 && n <= RG_RDMA_SEGMENTS;
    for (uint32_t i = 0; fits && i < n; i++) {
        size_t length = le32toh(ready.segments[i].length);
        fits = length > 0 && length <= *left - asked;
        asked += fits ? length : 0;
    }
    if (!fits) {
        rg_error("%s asked for bulk data that is not there", c->head.peer);
        rg_rdma_break(c, RG_ERR_PROTOCOL);
        return RG_ERR_PROTOCOL;
    }
    *left -= asked;
    c->ready_wanted = *left > 0;
    enum rg_status status = RG_OK;
    for (uint32_t i = 0; i < n && status == RG_OK; i++)
        status = write_segment(c, s, &ready.segments[i], 0, le32toh(ready.segments[i].length));
    while (status == RG_OK) {
        status = rg_rdma_post_control(c, RG_RDMA_ARRIVAL, NULL, 0);
        if (status != RG_ERR_TIMEOUT)
            break;
        status = rg_rdma_wait(c, RG_RDMA_SENDER, UINT64_MAX);
    }
    return status;
}

/* A piece into advertised memory, and the word of it, which the queue pair keeps behind the writes. */
static enum rg_status write_piece(struct rg_rdma_conn *c, struct source *s, const struct rg_rdma_route *route,
                                  unsigned i)
{
    const struct rg_rdma_advert *advert = &route->pieces[i].advert;
    uint64_t at = route->pieces[i].offset;
    size_t left = route->pieces[i].length;
    enum rg_status status = RG_OK;
    for (uint32_t k = 0; k < advert->n && left > 0 && status == RG_OK; k++) {
        const uint64_t length = le32toh(advert->segments[k].length);
        if (at >= length) {
            at -= length;
            continue;
        }
        const size_t n = length - at < left ? length - at : left;
        status = write_segment(c, s, &advert->segments[k], at, n);
        left -= n;
        at = 0;
    }
    const struct rg_rdma_piece piece = {.slot = htole16(route->pieces[i].slot),
                                        .length = htole32(route->pieces[i].length),
                                        .offset = htole64(route->pieces[i].offset)};
    return status == RG_OK ? rg_rdma_send_payload(c, &piece, sizeof piece) : status;
}

enum rg_status rg_rdma_write(struct rg_rdma_conn *c, const struct rg_send *message,
                             const struct rg_rdma_route *route, bool *fault)
{
    rg_rdma_lock(c);
    struct source s = {.message = message, .registered = can_read_directly(c, message)};
    for (int i = 0; i < RG_RDMA_BOUNCES; i++)
        s.bounce_write[i] = c->writes_posted;
    size_t left = route ? 0 : message->bulk_size;
    enum rg_status status = RG_OK;
    for (unsigned i = 0; route && i < route->n && status == RG_OK; i++)
        status = write_piece(c, &s, route, i);
    while (left > 0 && status == RG_OK) {
        WAIT_SENDER(c, c->ready_here, status);
        if (status == RG_OK)
            status = serve_ready(c, &s, &left);
    }
    enum rg_status finished = finish_writes(c, &s);
    c->ready_wanted = false;
    rg_rdma_unlock(c);
    *fault = s.fault;
    return status != RG_OK ? status : finished;
}

/* --- the receiver's half --- */

/* Asks for `size` bytes at `to`, which `region` holds (NULL: bounce memory), and waits for them. */
static enum rg_status ask(struct rg_rdma_conn *c, const struct rg_rdma_region *region, unsigned char *to,
                          size_t size)
{
    struct rg_rdma_ready_to_receive ready = {0};
    uint32_t n = 0;
    for (size_t done = 0; done < size && n < RG_RDMA_SEGMENTS; n++) {
        size_t length = size - done;
        struct ibv_mr *mr =
            region ? rg_rdma_region_part(region, to + done, &length) : c->bounce_mr[RG_RDMA_RECEIVER];
        ready.segments[n] = (struct rg_rdma_segment){.address = htole64((uintptr_t)(to + done)),
                                                     .key = htole32(mr->rkey),
                                                     .length = htole32((uint32_t)length)};
        done += length;
    }
    ready.n = htole32(n);
    c->placing = true;
    c->placed = false;
    enum rg_status status;
    while ((status = rg_rdma_post_control(c, RG_RDMA_READY_TO_RECEIVE, &ready, sizeof ready)) ==
           RG_ERR_TIMEOUT) {
        status = rg_rdma_wait(c, RG_RDMA_RECEIVER, UINT64_MAX);
        if (status != RG_OK)
            break;
    }
    while (status == RG_OK && !c->placed)
        status = c->peer_bye ? RG_ERR_LOST : rg_rdma_wait(c, RG_RDMA_RECEIVER, UINT64_MAX);
    if (status != RG_ERR_CLOSED && c->placed)
        status = RG_OK; /* it came before what broke the connection */
    c->placing = false;
    return status;
}

/* A region for the destination: a lasting one, or one for this transfer; NULL: bounce. */
static struct rg_rdma_region *destination(struct rg_rdma_conn *c, unsigned char *to, size_t size)
{
    if (!to)
        return NULL;
    struct rg_rdma_region *region = rg_rdma_region_find(c, to, size);
    if (!region && size >= c->register_min && rg_rdma_region_add(c, to, size, true, &region) != RG_OK)
        return NULL;
    return region;
}

enum rg_status rg_rdma_take_written(struct rg_rdma_conn *c, unsigned char *to, size_t size)
{
    bool fault = false;
    rg_rdma_lock(c);
    enum rg_status status = RG_OK;
    struct rg_rdma_region *region = destination(c, to, size);
    if (region) {
        rg_rdma_region_use(region);
        status = ask(c, region, to, size);
        rg_rdma_region_done(c, region);
        if (status == RG_OK)
            count(&c->bytes_placed[RG_RDMA_RECEIVER], size);
        size = 0;
    } else {
        status = need_bounce(c, RG_RDMA_RECEIVER);
    }
    while (size > 0 && status == RG_OK) {
        size_t n = size < RG_RDMA_BOUNCE * RG_RDMA_BOUNCES ? size : RG_RDMA_BOUNCE * RG_RDMA_BOUNCES;
        status = ask(c, NULL, c->bounce[RG_RDMA_RECEIVER], n);
        if (status == RG_OK && to && !fault) {
            rg_rdma_unlock(c);
            fault = !rg_safe_copy_to(to, c->bounce[RG_RDMA_RECEIVER], n);
            rg_rdma_lock(c);
            count(&c->bytes_copied[RG_RDMA_RECEIVER], n);
            to += n;
        }
        size -= n;
    }
    rg_rdma_unlock(c);
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}
