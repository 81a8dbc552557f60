/*
 * worker_send.c - messages to the client, and the end of the session, which is the last of them. See
 * worker.h.
 *
 * What a message consists of leaves under the right to send, but for bulk data that the transport can send by
 * itself: so small messages of other threads go out meanwhile. Whatever fails ends the session.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/core/leader_followers.h"
#include "server/core/worker.h"
#include "transport/control.h"
#include "transport/multipath/multipath.h"
#include "transport/multirail/multirail.h"
#include "transport/resumable/resumable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL_BULK    65536 /* bytes that are sent as soon as messages without bulk data are */
#define LAST_WORDS_MS 1000  /* how long the end waits for its turn to tell the client why */

enum rg_status rg_worker_send(struct rg_worker *worker, uint64_t tag, uint64_t base, struct rg_lease *lease,
                              unsigned kind, const struct iovec *parts, int n_parts, const struct iovec *bulk,
                              int n_bulk)
{
    enum { MAX_PARTS = 4 };
    struct rg_message_header header = {
        .kind = (uint16_t)kind,
        .version = RG_PROTOCOL_MAJOR,
        .count = 1,
        .ack = atomic_load_explicit(&worker->executed, memory_order_relaxed),
    };
    struct iovec all[MAX_PARTS] = {{&header, sizeof header}};
    memcpy(all + 1, parts, (size_t)n_parts * sizeof *parts);
    struct rg_send send = {.msg = all,
                           .n_msg = n_parts + 1,
                           .bulk = bulk,
                           .n_bulk = n_bulk,
                           .tag = tag,
                           .base = base,
                           .lease = lease,
                           .detachable = true};
    size_t bulk_size = 0;
    for (int i = 0; i < n_bulk; i++)
        bulk_size += bulk[i].iov_len;
    const bool small = bulk_size <= SMALL_BULK,
               large = bulk_size >= RG_MULTIPATH_MIN; /* less never travels by itself */
    rg_priority_lock_acquire(&worker->send_lock,
                             small ||
                                 (large && atomic_load_explicit(&worker->detaches, memory_order_relaxed)));
    enum rg_status status = rg_worker_over(worker) ? RG_ERR_CLOSED : rg_conn_send(worker->conn, &send);
    rg_priority_lock_release(&worker->send_lock);
    if (large && (send.detached || bulk_size >= RG_MULTIRAIL_MIN))
        atomic_store_explicit(&worker->detaches, send.detached, memory_order_relaxed);
    if (send.detached) /* without the lock: small messages of other threads go out meanwhile */
        status = rg_conn_send_detached(worker->conn, &send);
    atomic_fetch_add_explicit(&worker->sent, 1, memory_order_relaxed);
    if (status == RG_ERR_FAULT) {
        rg_error("session %llu: memory of a transfer was freed while it was sent",
                 (unsigned long long)worker->session);
        return RG_OK;
    }
    if (status != RG_OK)
        rg_worker_end(worker, 0, NULL);
    return status;
}

enum rg_status rg_worker_notice(struct rg_worker *worker, const struct rg_notice *notice, const void *text,
                                size_t text_size, const void *bulk, size_t bulk_size)
{
    struct rg_notice own = *notice;
    struct iovec parts[2] = {{&own, sizeof own}, {(void *)(uintptr_t)text, text_size}};
    struct iovec bulk_part = {(void *)(uintptr_t)bulk, bulk_size};
    own.memory_left = rg_worker_memory_left(worker);
    return rg_worker_send(worker, 0, 0, NULL, RG_MESSAGE_NOTICE, parts, text_size ? 2 : 1, &bulk_part,
                          bulk_size ? 1 : 0);
}

enum rg_status rg_worker_send_transfer(struct rg_worker *worker, uint64_t id, uint64_t offset,
                                       const void *data, size_t size, bool last, struct rg_lease *lease)
{
    enum rg_status status = RG_OK;
    for (size_t at = 0, piece = 0; at < size && status == RG_OK; at += piece) {
        piece = rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->chunk));
        piece = size - at < piece ? size - at : piece;
        const struct rg_notice notice = {.type = RG_NOTICE_DEFERRED_READ,
                                         .id = id,
                                         .arg = {offset + at, piece, last && at + piece == size}};
        const uint64_t began = rg_now_ns();
        const struct iovec part = {(void *)(uintptr_t)&notice, sizeof notice},
                           bulk = {(char *)(uintptr_t)data + at, piece};
        status = rg_worker_send(worker, id, offset + at, lease, RG_MESSAGE_NOTICE, &part, 1, &bulk, 1);
        rg_chunk_size_sent(&worker->chunk, piece, rg_now_ns() - began);
    }
    return status;
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Tells the client why, unless somebody has been sending for long to a client that does not read. */
static void last_words(struct rg_worker *worker, const char *text)
{
    struct rg_control message;
    rg_session_end_init(&message, "%s", text);
    if (!rg_priority_lock_acquire_within(&worker->send_lock, LAST_WORDS_MS))
        return;
    (void)!rg_control_send(worker->conn, &message);
    rg_priority_lock_release(&worker->send_lock);
}

void rg_worker_end(struct rg_worker *worker, int exit_code, const char *format, ...)
{
    pthread_mutex_lock(&worker->end_lock);
    const bool first = !rg_worker_over(worker);
    if (first) {
        worker->exit_code = exit_code;
        atomic_store_explicit(&worker->over, true, memory_order_release);
    }
    pthread_mutex_unlock(&worker->end_lock);
    if (!first)
        return;
    rg_resumable_set_final(worker->conn);
    if (format) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        rg_log_always(exit_code ? RG_LOG_ERROR : RG_LOG_INFO, "session %llu ends: %s",
                      (unsigned long long)worker->session, text);
        last_words(worker, text);
    }
    rg_conn_interrupt(worker->conn);
    rg_leader_wake(worker);
    rg_device_gate_wake(&worker->device_gate);
    /* the last first: host functions of the driver are released before locks under which the driver is asked */
    unsigned n = 0;
    while (worker->modules[n])
        n++;
    while (n--)
        if (worker->modules[n]->wake)
            worker->modules[n]->wake(worker);
    const uint64_t one = 1;
    if (worker->over_fd >= 0 && write(worker->over_fd, &one, sizeof one) < 0)
        rg_warn("session %llu: its end could not be signalled", (unsigned long long)worker->session);
    pthread_mutex_lock(&worker->end_lock);
    worker->ended = true;
    pthread_cond_broadcast(&worker->end_changed);
    pthread_mutex_unlock(&worker->end_lock);
}

int rg_worker_wait(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&worker->end_lock);
    while (!worker->ended)
        pthread_cond_wait(&worker->end_changed, &worker->end_lock);
    return worker->exit_code;
}
