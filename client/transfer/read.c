/*
 * read.c - memory of the host that the worker sends the device's data into, by parts and when the stream is
 * there.
 *
 * A read that a call waits for (rgCopyOut, rgBoxOut) ends with its call; a deferred one, and one into memory
 * of this client's, ends with its last part. Where the connection can take data in from the peer directly,
 * memory in one piece is advertised: the worker then writes it (one-sided), and the notice says only that it
 * has done so.
 *
 * What can fail: memory that cannot be written is the application's mistake, latched as
 * CUDA_ERROR_INVALID_VALUE; a part that does not fit what was registered ends the session. Threads: callers
 * create and destroy; the reader receives.
 */
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"
#include "common/sync/scoped_lock.h"
#include "transport/memory.h"

#define ADVERTISED_LEAST 8192 /* bytes that are worth a word ahead */

struct read {
    struct rg_transfer transfer;
    uint64_t received; /* bytes */
    /* staged */
    void (*landed)(void *user, bool complete);
    void *user;
};

/* To nowhere if there is no `to`. */
static enum rg_status receive(struct rg_session *session, const struct rg_region *to, size_t offset,
                              size_t size)
{
    RG_THREAD_INSIDE(NULL);
    return to ? rg_region_receive(to, offset, size, session->conn)
              : rg_conn_recv_bulk(session->conn, NULL, size);
}

static bool take_part(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size)
{
    struct rg_session *const session = transfer->session;
    const struct rg_transfer_kind *const kind = transfer->kind;
    const uint64_t offset = notice->arg[0], size = notice->arg[1], total = rg_region_size(&transfer->memory);
    struct read *read = (struct read *)transfer;
    if (size != bulk_size || offset > total || size > total - offset || (!transfer->memory.address && size)) {
        pthread_mutex_unlock(&rg_registry_lock);
        return false;
    }
    read->received += size;
    const bool complete = read->received == total, over = atomic_load(&session->over),
               dropped = over || transfer->revoked;
    const struct rg_region memory = transfer->memory;
    void (*const landed)(void *, bool) = read->landed;
    void *const user = read->user;
    if (!dropped)
        rg_registry_receiving(session, notice->id);
    pthread_mutex_unlock(&rg_registry_lock);
    const enum rg_status status = receive(session, dropped ? NULL : &memory, offset, size);
    const bool received = status == RG_OK || status == RG_ERR_FAULT, last = notice->arg[2] && !kind->awaited;
    /* one that is not received, or after the session: whoever ends the session has the transfer */
    transfer = rg_registry_received(session, received && last && !over ? notice->id : 0);
    if (!received)
        return true; /* the next receive reports the broken connection */
    if (status == RG_ERR_FAULT)
        rg_session_async_error(session, CUDA_ERROR_INVALID_VALUE, RG_OP_rgCopyOut);
    if (transfer) {
        rg_registry_end(transfer);
        if (landed)
            landed(user, complete);
    }
    return true;
}

static void staged_lost(struct rg_transfer *transfer)
{
    struct read *read = (struct read *)transfer;
    read->landed(read->user, false);
}

static const struct rg_transfer_kind awaited = {
    .notice = RG_NOTICE_DEFERRED_READ, .progress = take_part, .awaited = true};
static const struct rg_transfer_kind deferred = {
    .notice = RG_NOTICE_DEFERRED_READ, .progress = take_part, .queued = true, .writes_host = true};
static const struct rg_transfer_kind staged = {
    .notice = RG_NOTICE_DEFERRED_READ, .progress = take_part, .lost = staged_lost};

bool rg_read_gains(const struct rg_session *session, const struct rg_region *memory)
{
    return (rg_conn_caps(session->conn) & RG_CAP_ADVERTISES) && rg_region_size(memory) >= ADVERTISED_LEAST &&
           rg_region_is_gapless(memory);
}

/* Lets the worker write the memory of a read. */
static void advertise(struct rg_session *session, uint64_t id, const struct rg_region *region)
{
    void *const memory = (void *)(uintptr_t)region->address;
    if (rg_conn_advertise(session->conn, id, 0, memory, rg_region_size(region)) != RG_OK)
        return;
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_find(session, id);
    const bool lives = transfer && !atomic_load(&session->over);
    if (lives)
        transfer->advertised = true;
    pthread_mutex_unlock(&rg_registry_lock);
    if (!lives) /* the session has just ended */
        rg_conn_withdraw(session->conn, id, memory);
}

uint64_t rg_read_create(struct rg_session *session, const struct rg_region *memory, bool is_deferred)
{
    struct read *read = rg_registry_new(session, is_deferred ? &deferred : &awaited, sizeof *read);
    if (!read)
        return 0;
    read->transfer.memory = *memory;
    const uint64_t id = rg_registry_add(&read->transfer);
    if (rg_read_gains(session, memory))
        advertise(session, id, memory);
    return id;
}

uint64_t rg_read_create_staged(struct rg_session *session, size_t size,
                               void (*landed)(void *user, bool complete), void *user)
{
    struct read *read = rg_registry_new(session, &staged, sizeof *read);
    if (!read)
        return 0;
    read->transfer.memory = rg_region_line(RG_REGION_HOST, 0, size);
    read->landed = landed;
    read->user = user;
    return rg_registry_add(&read->transfer);
}

void rg_read_set_memory(uint64_t id, unsigned char *memory)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_find(NULL, id);
    if (transfer)
        transfer->memory.address = (uintptr_t)memory;
}

void rg_read_destroy(uint64_t id)
{
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_take(id);
    if (transfer)
        rg_registry_wait_received(transfer->session, id);
    pthread_mutex_unlock(&rg_registry_lock);
    if (transfer)
        rg_probe_bytes(0, ((struct read *)transfer)->received);
    rg_registry_free(transfer);
}
