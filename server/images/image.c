/*
 * image.c - images arrive in parts and are put together here; each is used once (loaded, or given to a
 * linker) and then freed. Those that are named by a digest: image_cache.c.
 */
#include "server/images/image.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/cuda/image.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"

#include <stdlib.h>
#include <string.h>

struct rg_image **rg_image_find(struct rg_worker *worker, uint64_t id)
{
    struct rg_image **link = &rg_image_cache_of(worker)->waiting;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

struct rg_image *rg_image_take(struct rg_worker *worker, uint64_t id)
{
    struct rg_image **link = rg_image_find(worker, id), *image = *link;
    if (image)
        *link = image->next;
    return image;
}

static void count_out(struct rg_worker *worker, size_t total)
{
    RG_SCOPED_LOCK(&rg_image_cache_of(worker)->lock);
    rg_image_cache_of(worker)->bytes -= total;
    rg_image_cache_of(worker)->n--;
}

void rg_image_free(struct rg_worker *worker, struct rg_image *image)
{
    if (!image)
        return;
    free(image->parts);
    image->parts = NULL;
    if (!rg_image_wait(worker, image)) { /* the session is over, and the reader may be at it */
        pthread_mutex_lock(&rg_image_cache_of(worker)->lock);
        image->next = rg_image_cache_of(worker)->left;
        rg_image_cache_of(worker)->left = image;
        pthread_mutex_unlock(&rg_image_cache_of(worker)->lock);
        return;
    }
    count_out(worker, image->total);
    if (image->keep && image->good && rg_image_keep(worker, image))
        return;
    free(image->data);
    free(image);
}

/* Counts an image among those that wait to be loaded; false: there are too many. */
static bool count_in(struct rg_request *request, size_t total)
{
    struct rg_image_cache *images = rg_image_cache_of(request->worker);
    pthread_mutex_lock(&images->lock);
    const size_t bytes = images->bytes;
    const unsigned n = images->n;
    const bool room = total && total <= RG_IMAGE_MAX - bytes && n < RG_IMAGES_MAX;
    if (room) {
        images->bytes += total;
        images->n++;
    }
    pthread_mutex_unlock(&images->lock);
    if (!room)
        rg_request_violation(request, "an image of %zu bytes where %u with %zu are waiting to be loaded",
                             total, n, bytes);
    return room;
}

struct rg_image *rg_image_make(struct rg_request *request, uint64_t id, size_t total)
{
    struct rg_worker *worker = request->worker;
    if (!count_in(request, total))
        return NULL;
    struct rg_image *image = calloc(1, sizeof *image);
    unsigned char *data = image ? calloc(1, total + RG_IMAGE_TAIL) : NULL;
    if (!data) {
        free(image);
        count_out(worker, total);
        request->result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    *image =
        (struct rg_image){.next = rg_image_cache_of(worker)->waiting, .id = id, .total = total, .data = data};
    rg_image_cache_of(worker)->waiting = image;
    return image;
}

CUresult rg_execute_rgImageData(struct rg_request *request, unsigned long long image, size_t total,
                                size_t offset, size_t bytes)
{
    struct rg_image *to = *rg_image_find(request->worker, image);
    if (!to && offset == 0)
        to = rg_image_make(request, image, total);
    if (!to) /* no memory for it: what follows goes nowhere, and loading it fails */
        return request->result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : request->result;
    if (to->transfer || total != to->total || offset != to->received || bytes > total - offset ||
        bytes != request->bulk_left) {
        rg_request_violation(request, "part of an image that does not fit: %zu bytes at %zu of %zu", bytes,
                             offset, total);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (rg_request_recv_bulk(request, to->data + offset, bytes) != RG_OK)
        return CUDA_ERROR_UNKNOWN;
    to->received += bytes;
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgImageParts(struct rg_request *request, unsigned long long id, unsigned int count,
                                 const unsigned long long *offsets)
{
    struct rg_image *image = *rg_image_find(request->worker, id);
    if (!image || image->parts || !count || rg_image_ready(request, image) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_IMAGE;
    image->parts = calloc((size_t)count + 1, sizeof *image->parts);
    if (!image->parts)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count; i++) {
        struct rg_cuda_image part;
        if (offsets[i] >= image->total || offsets[i] % 16 ||
            rg_cuda_image_identify_bytes(image->data + offsets[i], image->total - offsets[i], &part) !=
                RG_CUDA_IMAGE_CONTAINER) {
            rg_request_violation(request, "part %u of an image at %llu of %zu is no container", i, offsets[i],
                                 image->total);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        image->parts[i] = part.data;
    }
    return CUDA_SUCCESS;
}

/* --- for drivers ---------------------------------------------------------------------------------------- */

static CUresult not_such(unsigned input)
{
    return input == CU_JIT_INPUT_PTX                                     ? CUDA_ERROR_INVALID_PTX
           : input == CU_JIT_INPUT_FATBINARY || input == RG_IMAGE_MODULE ? CUDA_ERROR_INVALID_IMAGE
                                                                         : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* What the bytes are; text may end behind them, where zeros are. */
static enum rg_cuda_image_kind identify(const struct rg_image *image, struct rg_cuda_image *found)
{
    if (rg_cuda_image_identify_bytes(image->data, image->total, found) != RG_CUDA_IMAGE_UNKNOWN ||
        rg_cuda_image_identify_bytes(image->data, image->total + RG_IMAGE_TAIL, found) == RG_CUDA_IMAGE_PTX)
        return found->kind;
    *found = (struct rg_cuda_image){0};
    return RG_CUDA_IMAGE_UNKNOWN;
}

/* Files of host code and intermediate code have no form that is known here. */
static bool is_for_linkers(unsigned input)
{
    return input == CU_JIT_INPUT_OBJECT || input == CU_JIT_INPUT_LIBRARY || input == CU_JIT_INPUT_NVVM;
}

/* Whether such bytes name nothing outside themselves: no address, and no files, as thin archives do. */
static bool stands_alone(const struct rg_image *image)
{
    static const char thin[] = "!<thin>\n";
    return !rg_cuda_image_leads_outside(image->data, image->total) &&
           !rg_cuda_image_holds_address(image->data, image->total) &&
           (image->total < sizeof thin - 1 || memcmp(image->data, thin, sizeof thin - 1) != 0);
}

/* The image and what is still to be linked to it, as in a program of this process. */
static CUresult wrap(struct rg_request *request, const struct rg_image *image, struct rg_image_code *code)
{
    struct rg_cuda_wrapper *wrapper = rg_request_memory(request, sizeof *wrapper);
    if (!wrapper)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *wrapper = (struct rg_cuda_wrapper){RG_CUDA_WRAPPER_MAGIC, 2, code->data, image->parts};
    *code = (struct rg_image_code){wrapper, sizeof *wrapper};
    return CUDA_SUCCESS;
}

CUresult rg_image_code(struct rg_request *request, struct rg_image *image, unsigned input,
                       struct rg_image_code *code)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    struct rg_cuda_image found;
    RG_TRY(rg_image_ready(request, image));
    const enum rg_cuda_image_kind kind = identify(image, &found);
    *code = (struct rg_image_code){found.data, (size_t)found.size};
    if (kind == RG_CUDA_IMAGE_CONTAINER && image->parts)
        return wrap(request, image, code);
    const bool whole = is_for_linkers(input) && kind != RG_CUDA_IMAGE_CONTAINER && kind != RG_CUDA_IMAGE_ELF;
    if (whole) /* text, too, may only be how it begins */
        *code = (struct rg_image_code){image->data, image->total};
    if (!image->parts && (whole ? stands_alone(image) : kind != RG_CUDA_IMAGE_UNKNOWN))
        return CUDA_SUCCESS;
    rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN, "session %llu: an image of %zu bytes that is no %s",
                   (unsigned long long)request->worker->session, image->total,
                   input == RG_IMAGE_MODULE ? "module" : "input of a linker");
    return not_such(input);
}
