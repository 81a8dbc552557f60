/* image.c - images as bulk data, or by their digest and what the worker asks for. See image.h. */
#include "client/cache/image.h"

#include "client/core/call.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/transfer/transfer.h"
#include "common/base/limits.h"
#include "common/cuda/image.h"
#include "generated/client/operations.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_ullong next_image = 1;

#define PARTS_MAX     4096
#define SENT_ALWAYS   65536 /* bytes: an image that is no longer is sent rather than asked for */
#define ALIGNED(size) (((size) + 15) & ~(uint64_t)15)

/* Sends bytes [offset, offset + size) of an image of `total` bytes. */
static CUresult send_bytes(uint64_t id, uint64_t total, uint64_t offset, const void *data, uint64_t size,
                           uint64_t home)
{
    CUresult status = CUDA_SUCCESS;
    for (uint64_t at = 0; at < size && status == CUDA_SUCCESS; at += RG_BULK_MAX) {
        size_t part = size - at < RG_BULK_MAX ? (size_t)(size - at) : RG_BULK_MAX;
        const struct iovec bytes = {(void *)((uintptr_t)data + at), part};
        struct rg_bulk bulk = {.data = &bytes, .n = 1};
        status = rg_op_rgImageData(id, total, offset + at, part, home, &bulk);
    }
    return status;
}

CUresult rg_image_view(const void *pointer, struct rg_image_view **out)
{
    static const unsigned char zeros[16];
    struct rg_cuda_image image, part;
    if (rg_cuda_image_identify(pointer, &image) == RG_CUDA_IMAGE_UNKNOWN || image.size > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    unsigned n = 0;
    while (image.prelinked && image.prelinked[n])
        if (n++ == PARTS_MAX)
            return CUDA_ERROR_INVALID_IMAGE;
    struct rg_image_view *view =
        calloc(1, sizeof *view + (2 * n + 2) * sizeof *view->sections + n * sizeof *view->offsets);
    if (!view)
        return CUDA_ERROR_OUT_OF_MEMORY;
    view->offsets = (unsigned long long *)(view->sections + 2 * n + 2);
    for (unsigned i = 0; i <= n; i++) {
        const void *container = i ? image.prelinked[i - 1] : NULL;
        if (i && rg_cuda_image_identify(container, &part) != RG_CUDA_IMAGE_CONTAINER) {
            free(view);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        const struct rg_cuda_image *at = i ? &part : &image;
        if (i)
            view->offsets[view->n_parts++] = view->size;
        view->sections[view->n_sections++] = (struct rg_digest_part){at->data, at->size};
        view->size += at->size;
        if (n && ALIGNED(view->size) != view->size) {
            view->sections[view->n_sections++] =
                (struct rg_digest_part){zeros, ALIGNED(view->size) - view->size};
            view->size = ALIGNED(view->size);
        }
        if (view->size > RG_IMAGE_MAX) {
            free(view);
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    *out = view;
    return CUDA_SUCCESS;
}

const struct rg_digest *rg_image_digest(struct rg_image_view *view)
{
    if (!view->digested)
        view->digest = rg_digest_of_bytes(view->sections, view->n_sections);
    view->digested = true;
    return &view->digest;
}

/* Writes the bytes of an image, view->size, one behind the other. */
static void gather(const struct rg_image_view *view, unsigned char *to)
{
    for (unsigned i = 0; i < view->n_sections; i++) {
        memcpy(to, view->sections[i].data, view->sections[i].size);
        to += view->sections[i].size;
    }
}

/* --- by digest ------------------------------------------------------------------------------------------ */

/* The bytes of an image while the worker may ask for them. */
struct source {
    struct rg_lazy_source lazy; /* first */
    unsigned char *copy;        /* NULL: they stay where they are */
};

static void source_done(struct rg_lazy_source *lazy)
{
    struct source *source = (struct source *)lazy;
    free(source->copy);
    free(source);
}

/* Whether the bytes are part of a file that is mapped as a program or library, and cannot be written. */
static int is_constant_part(struct dl_phdr_info *info, size_t size, void *user)
{
    const struct rg_digest_part *part = user;
    const uintptr_t start = (uintptr_t)part->data;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_W) && start >= at &&
            start - at < segment->p_filesz && part->size <= segment->p_filesz - (start - at))
            return 1;
    }
    return 0;
}

static struct source *make_source(const struct rg_image_view *view, enum rg_image_stay stay)
{
    struct source *source = calloc(1, sizeof *source);
    if (!source)
        return NULL;
    source->lazy.finish = source_done;
    if (view->n_sections == 1 && stay != RG_IMAGE_PASSES &&
        (stay == RG_IMAGE_STAYS || dl_iterate_phdr(is_constant_part, (void *)(uintptr_t)view->sections)))
        return source;
    source->copy = malloc(view->size);
    if (!source->copy) {
        free(source);
        return NULL;
    }
    gather(view, source->copy);
    return source;
}

static CUresult send_named(struct rg_image_view *view, enum rg_image_stay stay, uint64_t id)
{
    struct rg_session *session = rg_session_current();
    const struct rg_digest *digest = rg_image_digest(view);
    struct source *source = make_source(view, stay);
    if (!source)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *memory = source->copy ? source->copy : (unsigned char *)(uintptr_t)view->sections[0].data;
    const uint64_t rendezvous = rg_rendezvous_create_lazy(session, view->size, &source->lazy);
    if (!rendezvous) {
        source_done(&source->lazy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rg_lazy_source_ready(session, &source->lazy, memory);
    view->rendezvous =
        memory == source->copy ? 0 : rendezvous; /* before it is asked for, and the source may go */
    CUresult status = rg_op_rgImageNamed(id, view->size, rendezvous, digest->bytes, 0);
    if (status != CUDA_SUCCESS && rg_transfer_cancel(rendezvous))
        source_done(&source->lazy);
    return status;
}

void rg_image_settle(struct rg_image_view *view)
{
    if (view->rendezvous)
        rg_transfer_revoke(view->rendezvous);
    view->rendezvous = 0;
}

CUresult rg_image_name(const struct rg_digest *digest, uint64_t size, uint64_t *id)
{
    *id = atomic_fetch_add(&next_image, 1);
    return rg_op_rgImageNamed(*id, size, 0, digest->bytes, 0);
}

CUresult rg_image_send(struct rg_image_view *view, enum rg_image_stay stay, uint64_t *id)
{
    CUresult status = CUDA_SUCCESS;
    uint64_t offset = 0;
    const bool name = rg_optimise[RG_OPT_IMAGE_DEDUP] && rg_session_current()->op_numbers[RG_OP_rgImageNamed];
    *id = atomic_fetch_add(&next_image, 1);
    if (name && view->size > SENT_ALWAYS) {
        status = send_named(view, stay, *id);
    } else {
        for (unsigned i = 0; i < view->n_sections && status == CUDA_SUCCESS; i++) {
            status = send_bytes(*id, view->size, offset, view->sections[i].data, view->sections[i].size, 0);
            offset += view->sections[i].size;
        }
        if (name && status == CUDA_SUCCESS)
            status = rg_op_rgImageDigest(*id, rg_image_digest(view)->bytes, 0);
    }
    return status == CUDA_SUCCESS && view->n_parts ? rg_op_rgImageParts(*id, view->n_parts, view->offsets, 0)
                                                   : status;
}

CUresult rg_image_send_bytes(const void *data, size_t size, uint64_t *id)
{
    *id = atomic_fetch_add(&next_image, 1);
    return send_bytes(*id, size, 0, data, size, 0);
}

CUresult rg_image_copy(const struct rg_image_view *view, struct rg_image_copy **out)
{
    struct rg_image_copy *copy = calloc(1, sizeof *copy + view->n_parts * sizeof *copy->offsets + view->size);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->size = view->size;
    copy->n_parts = view->n_parts;
    copy->offsets = (unsigned long long *)(copy + 1);
    copy->data = (unsigned char *)(copy->offsets + view->n_parts);
    memcpy(copy->offsets, view->offsets, view->n_parts * sizeof *copy->offsets);
    gather(view, copy->data);
    *out = copy;
    return CUDA_SUCCESS;
}

CUresult rg_image_send_copy(const struct rg_image_copy *copy, uint64_t home, uint64_t *id)
{
    *id = atomic_fetch_add(&next_image, 1);
    CUresult status = send_bytes(*id, copy->size, 0, copy->data, copy->size, home);
    return status == CUDA_SUCCESS && copy->n_parts
               ? rg_op_rgImageParts(*id, copy->n_parts, copy->offsets, home)
               : status;
}
