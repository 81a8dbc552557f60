/*
 * image_prefetch.h - on a first start, when nothing is known of a program (image_cache.h, startup_profile.h):
 * its questions are asked before it does, many at a time.
 *
 *   - With its first context, the images in its own files (common/cuda/program/own_images.h), as long as they are few and small,
 *     are loaded on
 *     the server, and all that is in them comes back in one answer for each. When the program loads one, as a
 *     library or as
 *     a module, it is there, and so are the answers about its kernels and variables.
 *   - Any other load, which waits for its result, asks with it what kernels there are.
 *
 * All of it is what the server's driver says of these very objects, so nothing is guessed but that the
 * program will use them; they are its own only once it does. What is loaded in vain costs the server some
 * memory until the session ends, or until there is no other. A program that started before (with a server in the same state) is known and
 * asks for none of it. Any thread.
 */
#ifndef RG_CLIENT_PREFETCH_IMAGE_PREFETCH_H
#define RG_CLIENT_PREFETCH_IMAGE_PREFETCH_H

#include "client/cache/image_cache.h"

struct rg_future;

/**
 * A context was made. The first time: sends what is likely to be needed; the calling thread makes the calls.
 */
void rg_image_prefetch_context(uint64_t context);

/** Behind the record of a load that is going to be waited for: asks what is in it. NULL: it is not asked. */
struct rg_future *rg_image_prefetch_describe(enum rg_kind kind, uint64_t handle,
                                             const struct rg_cached_image *cached);
/** Waits for that, if it is not NULL: then the load's answer is there as well. */
void rg_image_prefetch_read(struct rg_future *description, struct rg_cached_image *cached);
/** The same at once, of what has been loaded; others' calls pass it. */
void rg_image_prefetch_ask(enum rg_kind kind, uint64_t handle, struct rg_cached_image *cached);

#endif
