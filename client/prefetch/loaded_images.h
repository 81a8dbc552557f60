/*
 * loaded_images.h - images that were loaded before the program asks for them, as a library, as a module or as
 * both. The program gets each once, in one of its forms; whoever asks first waits for the answer if it has
 * not come.
 *
 * startup_profile.c and image_prefetch.c load them. There are few, once: what has been taken is not freed,
 * since another thread may be looking at it. Any thread; one lock, which is not held while anything is waited
 * for.
 */
#ifndef RG_CLIENT_PREFETCH_LOADED_IMAGES_H
#define RG_CLIENT_PREFETCH_LOADED_IMAGES_H

#include "client/cache/image_cache.h"
#include "proto/codec.h"

struct rg_future;

enum rg_loaded_form { RG_LOADED_LIBRARY, RG_LOADED_MODULE, RG_LOADED_FORMS };

struct rg_loaded_image {
    struct rg_loaded_image *next;
    uint64_t context;
    struct {
        struct rg_cached_image *cached;
        uint64_t handle; /* 0: there is none, or it has been taken */
    } as[RG_LOADED_FORMS];
    struct rg_future *future; /* NULL: its answer has been read */
    /** Reads the answer of what was loaded; NULL: nobody does. With the lock held. */
    void (*read)(struct rg_loaded_image *image, struct rg_reader *answer);
    /** The program gets it; false: that cannot be. NULL: nothing is to be done. */
    bool (*taken)(enum rg_kind kind, uint64_t handle, struct rg_cached_image *cached);
};

/**
 * For the answer to a load of such an image, whose memory is taken for it until it is there (client/cache/load_memory.h). NULL: it is
 * not loaded now, since it might not fit. Then rg_loaded_image_end with what came of sending it, as rg_future_end.
 */
struct rg_future *rg_loaded_image_begin(const struct rg_cached_image *cached);
CUresult rg_loaded_image_end(struct rg_future *future, CUresult status);

/** The kind of handle that a form is. */
enum rg_kind rg_loaded_image_kind(enum rg_loaded_form form);
/** There is none in this form. */
void rg_loaded_image_drop(struct rg_loaded_image *image, enum rg_loaded_form form);
/** Its load has been sent. From now on the program can get it. */
void rg_loaded_images_add(struct rg_loaded_image *image);
/**
 * A context ends, before its modules do: those of which the answer says that they could not be loaded are
 * none. No locks held.
 */
void rg_loaded_images_context_ended(uint64_t context);
/**
 * The module or library of this image that was loaded in the current context before it was asked for; 0:
 * there is none.
 */
uint64_t rg_loaded_images_take(enum rg_kind kind, struct rg_cached_image *cached);

/** One that nobody has asked for, and nobody can any more. */
struct rg_withdrawn_image {
    enum rg_kind kind;
    uint64_t context, handle;
};

/**
 * Takes one for the caller to unload, since the memory that it holds is wanted. Waits for the answer to its load. False:
 * there is none.
 */
bool rg_loaded_images_withdraw(struct rg_withdrawn_image *out);

#endif
