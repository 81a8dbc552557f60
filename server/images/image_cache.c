/*
 * image_cache.c - images by the digest of their bytes: kept in files, so that a client need not send what
 * this server, by whichever client, has got before.
 *
 * The happy path of rgImageNamed: the file is there, its bytes have the digest, the image is complete and the
 * client is told to keep its copy to itself. Else the client is asked, as for a rendezvous; the reader puts
 * the answers in place while the dispatcher goes on, and waits only where the image is used. Bytes are
 * believed when their digest has been computed here, whether they came from a file or a client: what one
 * client sends cannot become another's image, and a damaged file is merely asked for again. Writing is done
 * by a thread of its own, behind the use.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/cache/digest.h"
#include "common/cache/disk_cache.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/images/image.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZE (8ull << 30)
#define SETTLE_NS    1000000000ull /* how long the end of a session waits for what is being written */

/* As the daemon says (server/daemon/settings/settings.c). */
static struct rg_disk_cache *open_files(void)
{
    char folder[PATH_MAX];
    const uint64_t size = rg_disk_cache_limit("REMOTE_GPU_IMAGE_CACHE_SIZE", DEFAULT_SIZE);
    if (!size || !rg_disk_cache_folder("REMOTE_GPU_IMAGE_CACHE", "images", folder, sizeof folder))
        return NULL;
    return rg_disk_cache_open(folder, size);
}

/* --- writing -------------------------------------------------------------------------------------------- */

static void free_list(struct rg_image *images)
{
    while (images) {
        struct rg_image *image = images;
        images = image->next;
        free(image->data);
        free(image->parts);
        free(image);
    }
}

static void *write_images(void *argument)
{
    struct rg_image_cache *images = argument;
    pthread_mutex_lock(&images->lock);
    while (!images->stop) {
        struct rg_image *image = images->writing;
        if (!image) {
            pthread_cond_wait(&images->changed, &images->lock);
            continue;
        }
        images->writing = image->next;
        if (!images->writing)
            images->last = &images->writing;
        images->busy = true;
        pthread_mutex_unlock(&images->lock);
        const size_t total = image->total;
        rg_disk_cache_write(images->files, image->digest, image->data, total);
        image->next = NULL;
        free_list(image);
        pthread_mutex_lock(&images->lock);
        images->writing_bytes -= total;
        images->busy = false;
        pthread_cond_broadcast(&images->changed);
    }
    pthread_mutex_unlock(&images->lock);
    return NULL;
}

bool rg_image_keep(struct rg_worker *worker, struct rg_image *image)
{
    struct rg_image_cache *images = rg_image_cache_of(worker);
    bool kept = false;
    RG_SCOPED_LOCK(&images->lock);
    if (images->files && !images->writer_runs && !images->stop)
        images->writer_runs = rg_thread_create(&images->writer, "rg-images", write_images, images) == RG_OK;
    const bool room = !images->writing_bytes || (images->writing_bytes < RG_IMAGES_WRITING &&
                                                 image->total < RG_IMAGES_WRITING - images->writing_bytes);
    if (images->writer_runs && room) {
        images->writing_bytes += image->total;
        image->next = NULL;
        *images->last = image;
        images->last = &image->next;
        pthread_cond_broadcast(&images->changed);
        kept = true;
    }
    return kept;
}

void rg_image_cache_settle(struct rg_worker *worker)
{
    struct rg_image_cache *images = rg_image_cache_of(worker);
    const struct timespec until = rg_timespec(rg_now_ns() + SETTLE_NS);
    RG_SCOPED_LOCK(&images->lock);
    while ((images->writing || images->busy) &&
           pthread_cond_timedwait(&images->changed, &images->lock, &until) == 0)
        ;
}

/* --- asking the client ---------------------------------------------------------------------------------- */

static bool has_digest(const void *data, size_t size, const uint8_t digest[RG_DIGEST_BYTES])
{
    const struct rg_digest found = rg_digest_of_bytes(&(struct rg_digest_part){data, size}, 1);
    return memcmp(found.bytes, digest, sizeof found.bytes) == 0;
}

/* The image from its file. */
static bool read_image(struct rg_worker *worker, struct rg_image *image)
{
    struct rg_disk_cache *files = rg_image_cache_of(worker)->files;
    size_t size;
    unsigned char *data =
        files ? rg_disk_cache_read(files, image->digest, 0, image->total, RG_IMAGE_TAIL, &size) : NULL;
    if (!data)
        return false;
    if (size != image->total || !has_digest(data, size, image->digest)) {
        rg_warn("session %llu: a kept image is damaged and dropped", (unsigned long long)worker->session);
        rg_disk_cache_remove(files, image->digest);
        free(data);
        return false;
    }
    free(image->data);
    image->data = data;
    image->received = image->total;
    image->good = true;
    return true;
}

static void ask_part(struct rg_worker *worker, uint64_t transfer, uint64_t offset, uint64_t size)
{
    const struct rg_notice notice = {.type = RG_NOTICE_RENDEZVOUS, .id = transfer, .arg = {offset, size, 0}};
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

CUresult rg_execute_rgImageNamed(struct rg_request *request, unsigned long long id, size_t total,
                                 unsigned long long transfer, const void *digest)
{
    struct rg_worker *worker = request->worker;
    struct rg_image *image = NULL;
    if (*rg_image_find(worker, id))
        rg_request_violation(request, "image %llu is there already", id);
    else
        image = rg_image_make(request, id, total);
    if (!image) {
        if (transfer && !request->violated)
            ask_part(worker, transfer, total, 0);
        request->told = true;
        return request->result;
    }
    memcpy(image->digest, digest, sizeof image->digest);
    image->named = true;
    if (read_image(worker, image) || !transfer) {
        if (transfer)
            ask_part(worker, transfer, total, 0);
        return CUDA_SUCCESS;
    }
    image->keep = true;
    atomic_fetch_add(&worker->answers_due, 1);
    pthread_mutex_lock(&rg_image_cache_of(worker)->lock);
    image->transfer = transfer;
    image->next_asked = rg_image_cache_of(worker)->asked;
    rg_image_cache_of(worker)->asked = image;
    pthread_mutex_unlock(&rg_image_cache_of(worker)->lock);
    for (size_t at = 0; at < total; at += RG_BULK_MAX)
        ask_part(worker, transfer, at, total - at < RG_BULK_MAX ? total - at : RG_BULK_MAX);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgImageDigest(struct rg_request *request, unsigned long long id, const void *digest)
{
    struct rg_image *image = *rg_image_find(request->worker, id);
    if (!image || image->named || image->received != image->total)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(image->digest, digest, sizeof image->digest);
    image->named = image->keep = true;
    image->good = false; /* it may have been used without a name */
    return CUDA_SUCCESS;
}

/* Of data it is only known by the number whether an image was asked for, or a rendezvous. */
static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *data, size_t bulk_size)
{
    (void)header;
    if (data->type != RG_ANSWER_DATA)
        return RG_ANSWERED_NOT_MINE;
    struct rg_image_cache *images = rg_image_cache_of(worker);
    pthread_mutex_lock(&images->lock);
    struct rg_image **link = &images->asked;
    while (*link && (*link)->transfer != data->id)
        link = &(*link)->next_asked;
    struct rg_image *image = *link;
    const bool good = image && data->arg[1] == bulk_size && bulk_size && data->arg[0] == image->received &&
                      bulk_size <= image->total - image->received;
    pthread_mutex_unlock(&images->lock);
    if (!good)
        return image ? RG_ANSWERED_WRONG : RG_ANSWERED_NOT_MINE;
    /* It cannot go away while a part of it is missing, and nobody else touches its bytes. */
    if (rg_conn_recv_bulk(worker->conn, image->data + image->received, bulk_size) != RG_OK) {
        rg_worker_end(worker, 0, NULL);
        return RG_ANSWERED_GOOD;
    }
    pthread_mutex_lock(&images->lock);
    image->received += bulk_size;
    const bool all = image->received == image->total;
    for (link = &images->asked; all && *link; link = &(*link)->next_asked)
        if (*link == image) {
            *link = image->next_asked;
            break;
        }
    if (all)
        pthread_cond_broadcast(&images->changed);
    pthread_mutex_unlock(&images->lock);
    if (all)
        atomic_fetch_sub(&worker->answers_due, 1);
    return RG_ANSWERED_GOOD;
}

bool rg_image_wait(struct rg_worker *worker, struct rg_image *image)
{
    struct rg_image_cache *images = rg_image_cache_of(worker);
    RG_SCOPED_LOCK(&images->lock);
    while (image->transfer && image->received != image->total && !rg_worker_over(worker))
        pthread_cond_wait(&images->changed, &images->lock);
    return !image->transfer || image->received == image->total;
}

CUresult rg_image_ready(struct rg_request *request, struct rg_image *image)
{
    if (!rg_image_wait(request->worker, image) || image->received != image->total)
        return CUDA_ERROR_INVALID_IMAGE;
    if (image->named && !image->good && !has_digest(image->data, image->total, image->digest)) {
        image->keep = false;
        rg_warn("session %llu: an image of %zu bytes is not the one that it was said to be",
                (unsigned long long)request->worker->session, image->total);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    image->good = true;
    return CUDA_SUCCESS;
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

static void init(struct rg_worker *worker)
{
    struct rg_image_cache *images = rg_image_cache_of(worker);
    rg_cond_init(&images->changed);
    images->last = &images->writing;
    images->files = open_files();
}

/* Whoever waits for an image goes on without it. */
static void wake(struct rg_worker *worker)
{
    RG_SCOPED_LOCK(&rg_image_cache_of(worker)->lock);
    pthread_cond_broadcast(&rg_image_cache_of(worker)->changed);
}

static void fini(struct rg_worker *worker)
{
    struct rg_image_cache *images = rg_image_cache_of(worker);
    rg_image_cache_settle(worker);
    pthread_mutex_lock(&images->lock);
    images->stop = true;
    pthread_cond_broadcast(&images->changed);
    const bool runs = images->writer_runs;
    pthread_mutex_unlock(&images->lock);
    if (runs)
        pthread_join(images->writer, NULL);
    free_list(images->writing);
    free_list(images->waiting);
    free_list(images->left);
    rg_disk_cache_close(images->files);
    pthread_cond_destroy(&images->changed);
}

const struct rg_server_module rg_images_module = {
    .size = sizeof(struct rg_image_cache),
    .locked = true,
    .init = init,
    .wake = wake,
    .fini = fini,
    .answer = answer,
};
