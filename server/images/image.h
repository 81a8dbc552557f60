/*
 * image.h - images that the client has sent, waiting to be loaded or linked. The dispatcher's, but for one
 * that was taken: that is the record's which has taken it.
 */
#ifndef RG_SERVER_IMAGES_IMAGE_H
#define RG_SERVER_IMAGES_IMAGE_H

#include "common/base/limits.h"
#include "server/core/worker.h"
#include "server/modules.h"

struct rg_disk_cache;

#define RG_IMAGE_TAIL 64 /* zeros behind an image: text is ended, and no header begins in the last bytes */

struct rg_image {
    struct rg_image *next;
    uint64_t id;
    size_t total, received; /* while it is asked for, `received` is guarded by the images' lock */
    unsigned char *data;    /* total bytes and some zeros */
    const void **parts;     /* containers of objects that are still to be linked, ended by NULL; or NULL */
    /* image_cache.c */
    uint8_t digest[32];
    bool named;                  /* it has a digest */
    bool good;                   /* which is that of its bytes */
    bool keep;                   /* the bytes are to be written to the cache */
    uint64_t transfer;           /* by which it is asked for; 0: it is not */
    struct rg_image *next_asked; /* guarded by the images' lock */
};

/** Images that wait to be loaded, and those that are kept by their digest (image_cache.c). */
struct rg_image_cache {
    pthread_mutex_t lock;
    struct rg_image *waiting;    /* to be loaded: the dispatcher's */
    struct rg_disk_cache *files; /* NULL: nothing is kept */
    size_t bytes; /* of images that wait to be loaded or are being loaded, and how many they are */
    unsigned n;
    struct rg_image *left; /* that the reader may still be at: the session is over */
    pthread_cond_t changed;
    struct rg_image *asked;           /* of the client, whose answers the reader takes */
    struct rg_image *writing, **last; /* to be written and freed */
    size_t writing_bytes;             /* of those, and of the one that is being written */
    bool writer_runs, stop, busy;
    pthread_t writer;
};

static inline struct rg_image_cache *rg_image_cache_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_IMAGES];
}

/** Where the image's link is; *link is NULL if there is none. */
struct rg_image **rg_image_find(struct rg_worker *worker, uint64_t id);
/** Takes an image that is about to be used out of the list; NULL: there is none. The caller frees it. */
struct rg_image *rg_image_take(struct rg_worker *worker, uint64_t id);
/**
 * Frees an image that was taken (or NULL), once its bytes have come; or leaves it to the cache. Any thread.
 */
void rg_image_free(struct rg_worker *worker, struct rg_image *image);
/** Makes an image of `total` bytes, none of which has come; NULL with request->result or a violation set. */
struct rg_image *rg_image_make(struct rg_request *request, uint64_t id, size_t total);

/* --- image_cache.c -------------------------------------------------------------------------------------- */

/** Waits for images that are being written to the cache, for a second at most. */
void rg_image_cache_settle(struct rg_worker *worker);
/** Waits until nothing more of it is to come; false: the session is over, and the reader may be at it. */
bool rg_image_wait(struct rg_worker *worker, struct rg_image *image);
/**
 * The image is about to be used: waits for what the client has been asked for, and checks the bytes against
 * the digest. CUDA_ERROR_INVALID_IMAGE: it is not complete, or not what it was said to be.
 */
CUresult rg_image_ready(struct rg_request *request, struct rg_image *image);
/** No more bytes of images wait to be written: a client may send them faster than a disk takes them. */
#define RG_IMAGES_WRITING (512u << 20)
/** Takes the bytes of a good image to write them; false: they are still the caller's to free. */
bool rg_image_keep(struct rg_worker *worker, struct rg_image *image);

/** What a driver is given of an image: `data` for as long as the request and the image live. */
struct rg_image_code {
    const void *data;
    size_t size; /* where a call takes it */
};
/**
 * The only way from a client's bytes to a driver. Drivers take bare pointers and go by what they find there,
 * so it is told from the bytes alone what they are and where they end, whatever they were said to be: `input`
 * is what a linker is told, or RG_IMAGE_MODULE for what loading calls take. Waits for the bytes, as
 * rg_image_ready does. No pointer of the client's comes through; the errors are a driver's for what it cannot
 * use as such input.
 */
CUresult rg_image_code(struct rg_request *request, struct rg_image *image, unsigned input,
                       struct rg_image_code *code);
#define RG_IMAGE_MODULE ((unsigned)CU_JIT_NUM_INPUT_TYPES)

#endif
