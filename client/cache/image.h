/* image.h - sends a module image to the worker, and translates the options of loading it. */
#ifndef RG_CLIENT_CACHE_IMAGE_H
#define RG_CLIENT_CACHE_IMAGE_H

#include "common/cache/digest.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_reader;

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
/** The same for `size` bytes of whatever a linker takes. */
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
#define RG_JIT_OPTIONS 64

/**
 * The JIT options of a call, taken apart: numbers to send, and buffers that the worker's logs are copied to.
 */
struct rg_jit {
    unsigned count;
    CUjit_option options[RG_JIT_OPTIONS];
    unsigned long long values[RG_JIT_OPTIONS];
    char *info, *error; /* the application's buffers */
    size_t info_size, error_size;
    void **info_size_out, **error_size_out; /* where the driver writes how much there was */
    void **wall_time;                       /* where it writes how long it took */
    uint64_t began;
};

/** CUDA_ERROR_NOT_SUPPORTED for options whose values are pointers that only make sense on this side. */
CUresult rg_jit_read(struct rg_jit *jit, unsigned count, const CUjit_option *options, void *const *values);
/** Copies the logs of the worker's answer into the application's buffers. */
void rg_jit_answer(struct rg_jit *jit, struct rg_reader *reply);
/** The same of an error that was found here; "": of nothing to tell. */
void rg_jit_fail(struct rg_jit *jit, const char *text);
/** The call ends: notes how long it took, as the program waited. */
void rg_jit_done(const struct rg_jit *jit);

#endif
