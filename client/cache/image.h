/* image.h - sends a module image to the worker. Any thread. */
#ifndef RG_CLIENT_CACHE_IMAGE_H
#define RG_CLIENT_CACHE_IMAGE_H

#include "common/cache/digest.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * An image in this process's memory as it is sent: containers one behind the other, each at a multiple of 16,
 * with zeros in between. One allocation.
 */
struct rg_image_view {
    uint64_t size;
    unsigned n_parts; /* containers behind the first */
    unsigned long long *offsets;
    bool digested;
    struct rg_digest digest;
    uint64_t rendezvous; /* by which the worker asks for the bytes where they are; 0: it does not */
    unsigned n_sections;
    struct rg_digest_part sections[];
};
/** Looks at the image at `pointer` (as cuModuleLoadData takes it); the caller frees the view. */
CUresult rg_image_view(const void *pointer, struct rg_image_view **out);
/** The digest of its bytes. */
const struct rg_digest *rg_image_digest(struct rg_image_view *view);
/**
 * How long the bytes of an image stay where they are and as they are; a copy is made where that is not long
 * enough.
 */
enum rg_image_stay {
    RG_IMAGE_STAYS,         /* until the image has been loaded */
    RG_IMAGE_STAYS_IN_FILE, /* the same of what cannot be written in a program's or library's file */
    RG_IMAGE_PASSES,        /* for the call: nobody has loaded it, and its file may be closed */
};
/** Sends an image, or its digest and then what the worker lacks; *id names it on the worker. */
CUresult rg_image_send(struct rg_image_view *view, enum rg_image_stay stay, uint64_t *id);
/** The bytes of an image that was sent need not stay any longer: nothing reads them when this returns, whatever the worker has asked for. */
void rg_image_settle(struct rg_image_view *view);
/** Names an image whose bytes are not at hand. */
CUresult rg_image_name(const struct rg_digest *digest, uint64_t size, uint64_t *id);
/** Sends `size` bytes of whatever a linker takes; likewise. */
CUresult rg_image_send_bytes(const void *data, size_t size, uint64_t *id);
/** An image as it is sent: containers one behind the other, each at a multiple of 16. One allocation. */
struct rg_image_copy {
    uint64_t size;
    unsigned n_parts; /* behind the first */
    unsigned long long *offsets;
    unsigned char *data;
};
/** Copies an image with all that belongs to it; the caller frees it. */
CUresult rg_image_copy(const struct rg_image_view *view, struct rg_image_copy **out);
/** `home`: of the server it is for. */
CUresult rg_image_send_copy(const struct rg_image_copy *copy, uint64_t home, uint64_t *id);

#endif
