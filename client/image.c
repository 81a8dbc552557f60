/* image.c - images in chunks of bulk data, JIT options, logs. */
#include "client/image.h"

#include "client/call.h"
#include "common/cuda/image.h"
#include "common/limits.h"
#include "common/log.h"
#include "generated/client/operations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_ullong next_image = 1;

#define PARTS_MAX     4096
#define ALIGNED(size) (((size) + 15) & ~(uint64_t)15)

/* Sends bytes [offset, offset + size) of an image of `total` bytes. */
static CUresult send_bytes(uint64_t id, uint64_t total, uint64_t offset, const void *data, uint64_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (uint64_t at = 0; at < size && status == CUDA_SUCCESS; at += RG_BULK_MAX) {
        size_t part = size - at < RG_BULK_MAX ? (size_t)(size - at) : RG_BULK_MAX;
        struct iovec bulk = {(void *)((uintptr_t)data + at), part};
        status = rg_op_rgImageData(id, total, offset + at, part, &bulk, 1);
    }
    return status;
}

/* One container behind the others, and zeros up to where the next one may begin. */
static CUresult send_part(uint64_t id, uint64_t total, uint64_t *offset, const void *data, uint64_t size)
{
    static const unsigned char zeros[16];
    CUresult status = send_bytes(id, total, *offset, data, size);
    if (status == CUDA_SUCCESS && ALIGNED(size) != size)
        status = send_bytes(id, total, *offset + size, zeros, ALIGNED(size) - size);
    *offset += ALIGNED(size);
    return status;
}

/* A program with device code that is yet to be linked: its own container and those of the objects. */
static CUresult send_parts(uint64_t id, const struct rg_cuda_image *image)
{
    unsigned long long offsets[PARTS_MAX];
    struct rg_cuda_image part;
    uint64_t total = ALIGNED(image->size);
    unsigned n = 0;
    for (; image->prelinked[n]; n++) {
        if (n == PARTS_MAX || rg_cuda_image_identify(image->prelinked[n], &part) != RG_CUDA_IMAGE_CONTAINER)
            return CUDA_ERROR_INVALID_IMAGE;
        offsets[n] = total;
        total += ALIGNED(part.size);
    }
    if (total > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    uint64_t offset = 0;
    CUresult status = send_part(id, total, &offset, image->data, image->size);
    for (unsigned i = 0; i < n && status == CUDA_SUCCESS; i++) {
        (void)rg_cuda_image_identify(image->prelinked[i], &part);
        status = send_part(id, total, &offset, part.data, part.size);
    }
    return status == CUDA_SUCCESS ? rg_op_rgImageParts(id, n, offsets) : status;
}

CUresult rg_image_send(const void *pointer, uint64_t *id)
{
    struct rg_cuda_image image;
    if (rg_cuda_image_identify(pointer, &image) == RG_CUDA_IMAGE_UNKNOWN || image.size > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    *id = atomic_fetch_add(&next_image, 1);
    if (image.prelinked && image.prelinked[0])
        return send_parts(*id, &image);
    return send_bytes(*id, image.size, 0, image.data, image.size);
}

CUresult rg_image_send_bytes(const void *data, size_t size, uint64_t *id)
{
    *id = atomic_fetch_add(&next_image, 1);
    return send_bytes(*id, size, 0, data, size);
}

CUresult rg_image_copy(const void *pointer, struct rg_image_copy **out)
{
    struct rg_cuda_image image, part;
    if (rg_cuda_image_identify(pointer, &image) == RG_CUDA_IMAGE_UNKNOWN || image.size > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    uint64_t total = image.size;
    unsigned n = 0;
    for (; image.prelinked && image.prelinked[n]; n++) {
        if (n == PARTS_MAX || rg_cuda_image_identify(image.prelinked[n], &part) != RG_CUDA_IMAGE_CONTAINER)
            return CUDA_ERROR_INVALID_IMAGE;
        total = ALIGNED(total) + part.size;
    }
    total = n ? ALIGNED(total) : total;
    struct rg_image_copy *copy =
        total > RG_IMAGE_MAX ? NULL : calloc(1, sizeof *copy + n * sizeof *copy->offsets + total);
    if (!copy)
        return total > RG_IMAGE_MAX ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
    copy->size = total;
    copy->n_parts = n;
    copy->offsets = (unsigned long long *)(copy + 1);
    copy->data = (unsigned char *)(copy->offsets + n);
    memcpy(copy->data, image.data, image.size);
    uint64_t at = ALIGNED(image.size);
    for (unsigned i = 0; i < n; i++) {
        (void)rg_cuda_image_identify(image.prelinked[i], &part);
        copy->offsets[i] = at;
        memcpy(copy->data + at, part.data, part.size);
        at += ALIGNED(part.size);
    }
    *out = copy;
    return CUDA_SUCCESS;
}

CUresult rg_image_send_copy(const struct rg_image_copy *copy, uint64_t *id)
{
    CUresult status = rg_image_send_bytes(copy->data, copy->size, id);
    return status == CUDA_SUCCESS && copy->n_parts ? rg_op_rgImageParts(*id, copy->n_parts, copy->offsets)
                                                   : status;
}

CUresult rg_image_read_file(const char *path, void **out, size_t *out_size)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    CUresult status = CUDA_ERROR_INVALID_IMAGE;
    char *data = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        if (size > 0 && (unsigned long)size <= RG_IMAGE_MAX) {
            data = malloc((size_t)size + 1);
            status = CUDA_ERROR_OUT_OF_MEMORY;
            if (data && fread(data, 1, (size_t)size, file) == (size_t)size) {
                data[size] = '\0';
                *out_size = (size_t)size;
                status = CUDA_SUCCESS;
            }
        }
    }
    fclose(file);
    if (status != CUDA_SUCCESS) {
        free(data);
        return status;
    }
    *out = data;
    return CUDA_SUCCESS;
}

CUresult rg_jit_read(struct rg_jit *jit, unsigned count, const CUjit_option *options, void *const *values)
{
    *jit = (struct rg_jit){0};
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    if (count > RG_JIT_OPTIONS)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
            jit->info = values[i];
            continue;
        case CU_JIT_ERROR_LOG_BUFFER:
            jit->error = values[i];
            continue;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            jit->info_size = (unsigned)(uintptr_t)values[i];
            jit->info_size_out = (void **)(uintptr_t)&values[i];
            continue;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            jit->error_size = (unsigned)(uintptr_t)values[i];
            jit->error_size_out = (void **)(uintptr_t)&values[i];
            continue;
        case CU_JIT_WALL_TIME:
            continue; /* an output; not measured for this side */
        case CU_JIT_GLOBAL_SYMBOL_NAMES:
        case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
        case CU_JIT_REFERENCED_KERNEL_NAMES:
        case CU_JIT_REFERENCED_VARIABLE_NAMES:
            return rg_unsupported("module loading with JIT options that name symbols");
        default:
            jit->options[jit->count] = options[i];
            jit->values[jit->count++] = (unsigned long long)(uintptr_t)values[i];
        }
    }
    if (!jit->info)
        jit->info_size = 0;
    if (!jit->error)
        jit->error_size = 0;
    return CUDA_SUCCESS;
}

/* One log: at most `size` bytes with the NUL, and how many were written. */
static void copy_log(struct rg_reader *in, char *buffer, size_t size, void **size_out)
{
    size_t length = rg_get_count(in, RG_REPLY_INLINE, 1);
    const char *text = rg_get(in, length);
    if (!text || !buffer || !size)
        return;
    if (length > size - 1)
        length = size - 1;
    memcpy(buffer, text, length);
    buffer[length] = '\0';
    if (size_out)
        *size_out = (void *)(uintptr_t)(length + 1);
}

void rg_jit_answer(struct rg_jit *jit, struct rg_call *reply)
{
    if (rg_left(&reply->reply) == 0)
        return;
    copy_log(&reply->reply, jit->info, jit->info_size, jit->info_size_out);
    copy_log(&reply->reply, jit->error, jit->error_size, jit->error_size_out);
}
