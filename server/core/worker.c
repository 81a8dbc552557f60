/* worker.c - beginning and end of a worker, and sending. See worker.h. */
#include "server/core/worker.h"
#include "server/prealloc/deferred_free.h"
#include "server/timeline/event_times.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "generated/server/driver.h"
#include "generated/server/execute.h"
#include "server/api/link.h"
#include "server/core/leader_followers.h"
#include "server/images/image.h"
#include "server/prealloc/prealloc.h"
#include "server/timeline/completion.h"
#include "server/timeline/output.h"
#include "server/timeline/times.h"
#include "server/transfer/advertised.h"
#include "server/transfer/deferred.h"
#include "server/transfer/gpudirect.h"
#include "server/transfer/staging.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SMALL_BULK    65536 /* bytes that are sent as soon as messages without bulk data are */
#define LAST_WORDS_MS 1000  /* how long the end waits for its turn to tell the client why */

struct rg_worker *rg_worker_create(struct rg_conn *conn, uint64_t session, int over_fd)
{
    struct rg_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    worker->conn = conn;
    worker->session = session;
    worker->over_fd = over_fd;
    worker->output_fd = -1;
    rg_register_all(worker->operations);
    rg_priority_lock_init(&worker->send_turn);
    pthread_mutex_init(&worker->staging_lock, NULL);
    pthread_cond_init(&worker->staging_given, NULL);
    rg_managed_init(worker);
    pthread_mutex_init(&worker->output_lock, NULL);
    pthread_mutex_init(&worker->end_lock, NULL);
    pthread_cond_init(&worker->end_changed, NULL);
    rg_leader_init(worker);
    rg_adaptive_wait_init(&worker->wait, RG_WAIT_DEFAULT);
    rg_deferred_init(worker);
    rg_prealloc_init(worker);
    rg_deferred_free_init(worker);
    rg_completion_init(worker);
    rg_event_times_init(worker);
    rg_image_cache_init(worker);
    rg_objects_init(&worker->objects);
    rg_out_of_order_init(&worker->out_of_order);
    return worker;
}

enum rg_status rg_worker_start(struct rg_worker *worker)
{
    return rg_leader_start(worker);
}

/* --- sending ------------------------------------------------------------------------------------------------------- */

enum rg_status rg_worker_send(struct rg_worker *worker, unsigned kind, const struct iovec *parts, int n_parts,
                              const struct iovec *bulk, int n_bulk)
{
    return rg_worker_send_to(worker, 0, 0, NULL, kind, parts, n_parts, bulk, n_bulk);
}

enum rg_status rg_worker_send_to(struct rg_worker *worker, uint64_t tag, uint64_t base, struct rg_lease *hold,
                                 unsigned kind, const struct iovec *parts, int n_parts,
                                 const struct iovec *bulk, int n_bulk)
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
                           .lease = hold,
                           .detachable = true};
    size_t bulk_size = 0;
    for (int i = 0; i < n_bulk; i++)
        bulk_size += bulk[i].iov_len;
    const bool small = bulk_size <= SMALL_BULK;
    rg_priority_lock_acquire(&worker->send_turn,
                             small || atomic_load_explicit(&worker->detaches, memory_order_relaxed));
    enum rg_status status = rg_worker_over(worker) ? RG_ERR_CLOSED : rg_conn_send(worker->conn, &send);
    rg_priority_lock_release(&worker->send_turn);
    if (!small)
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
    struct iovec parts[2] = {{(void *)(uintptr_t)notice, sizeof *notice},
                             {(void *)(uintptr_t)text, text_size}};
    struct iovec bulk_part = {(void *)(uintptr_t)bulk, bulk_size};
    return rg_worker_send(worker, RG_MESSAGE_NOTICE, parts, text_size ? 2 : 1, &bulk_part, bulk_size ? 1 : 0);
}

enum rg_status rg_worker_send_transfer(struct rg_worker *worker, uint64_t id, uint64_t offset,
                                       const void *data, size_t size, bool last, struct rg_lease *hold)
{
    enum rg_status status = RG_OK;
    for (size_t at = 0, piece = 0; at < size && status == RG_OK; at += piece) {
        piece = rg_conn_piece(worker->conn, rg_chunk_size_get(&worker->pace));
        piece = size - at < piece ? size - at : piece;
        const struct rg_notice notice = {.type = RG_NOTICE_DEFERRED_READ,
                                         .id = id,
                                         .arg = {offset + at, piece, last && at + piece == size}};
        const uint64_t began = rg_now_ns();
        const struct iovec part = {(void *)(uintptr_t)&notice, sizeof notice},
                           bulk = {(char *)(uintptr_t)data + at, piece};
        status = rg_worker_send_to(worker, id, offset + at, hold, RG_MESSAGE_NOTICE, &part, 1, &bulk, 1);
        rg_chunk_size_sent(&worker->pace, piece, rg_now_ns() - began);
    }
    return status;
}

/* --- the end --------------------------------------------------------------------------------------------------------- */

/* Tells the client why, unless somebody has been sending for long to a client that does not read. */
static void last_words(struct rg_worker *worker, const char *text)
{
    struct rg_control message;
    rg_session_end_init(&message, "%s", text);
    if (!rg_priority_lock_acquire_within(&worker->send_turn, LAST_WORDS_MS))
        return;
    (void)!rg_control_send(worker->conn, &message);
    rg_priority_lock_release(&worker->send_turn);
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
        rg_log(exit_code ? RG_LOG_ERROR : RG_LOG_INFO, "session %llu ends: %s",
               (unsigned long long)worker->session, text);
        last_words(worker, text);
    }
    rg_conn_interrupt(worker->conn);
    rg_leader_wake(worker);
    rg_deferred_wake(worker);
    rg_prealloc_wake(worker);
    rg_deferred_free_wake(worker);
    rg_image_cache_wake_all(worker);
    rg_completion_wake(worker);
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
    pthread_mutex_lock(&worker->end_lock);
    while (!worker->ended)
        pthread_cond_wait(&worker->end_changed, &worker->end_lock);
    const int code = worker->exit_code;
    pthread_mutex_unlock(&worker->end_lock);
    return code;
}

/* --- what a client leaves behind --------------------------------------------------------------------------------------- */

static void destroy_unbound(struct rg_object *entry, void *user)
{
    (void)user;
    if (rg_handle_kind(entry->handle) == RG_KIND_LIBRARY && rg_driver.cuLibraryUnload)
        (void)rg_driver.cuLibraryUnload(entry->object);
    if (rg_handle_kind(entry->handle) == RG_KIND_STREAM)
        free(entry->extra);
    if (rg_handle_kind(entry->handle) == RG_KIND_LINK)
        rg_linker_release(entry->extra);
}

static void destroy_context(struct rg_object *entry, void *user)
{
    struct rg_worker *worker = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_CONTEXT)
        return;
    struct rg_worker_context *context = entry->extra;
    if (rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS)
        rg_context_release_contents(worker, context);
    (void)rg_driver.cuCtxSetCurrent(NULL);
    if (!context->primary)
        (void)rg_driver.cuCtxDestroy_v2(context->object);
    for (; context->primary && context->retained; context->retained--)
        (void)rg_driver.cuDevicePrimaryCtxRelease_v2(context->device);
    free(context->legacy);
    free(context);
}

static void free_images(struct rg_image *images)
{
    while (images) {
        struct rg_image *image = images;
        images = image->next;
        free(image->data);
        free(image->parts);
        free(image);
    }
}

void rg_worker_destroy(struct rg_worker *worker)
{
    if (!worker)
        return;
    rg_worker_end(worker, 0, NULL);
    (void)rg_worker_wait(worker); /* somebody else may still be ending it */
    rg_leader_fini(worker);
    rg_out_of_order_fini(worker);
    rg_link_drop_context(worker, 0);
    rg_deferred_free_join(worker);
    rg_objects_each(&worker->objects, destroy_context, worker); /* with what is watched in them */
    rg_completion_fini(worker);
    rg_event_times_fini(worker);
    rg_objects_each(&worker->objects, destroy_unbound, worker);
    rg_deferred_fini(worker);
    rg_output_fini(worker);
    for (uint32_t i = 0; i < RG_CLIENT_THREADS_MAX; i++)
        if (worker->threads[i])
            rg_client_thread_free(worker->threads[i]);
    while (worker->retired) {
        struct rg_worker_context *context = worker->retired;
        worker->retired = context->next_retired;
        rg_staging_drop(worker, context); /* nothing is left of one that ended as it should */
        free(context);
    }
    free_images(worker->images);
    free_images(worker->named.left);
    rg_image_cache_fini(worker);
    rg_prealloc_fini(worker);
    rg_deferred_free_fini(worker);
    rg_objects_fini(&worker->objects);
    rg_advertised_fini(worker);
    rg_gpudirect_fini(worker);
    rg_conn_destroy(worker->conn);
    rg_priority_lock_fini(&worker->send_turn);
    rg_managed_fini(worker);
    pthread_cond_destroy(&worker->staging_given);
    pthread_mutex_destroy(&worker->staging_lock);
    pthread_mutex_destroy(&worker->output_lock);
    pthread_mutex_destroy(&worker->end_lock);
    pthread_cond_destroy(&worker->end_changed);
    rg_times_destroy(worker->times);
    free(worker);
}
