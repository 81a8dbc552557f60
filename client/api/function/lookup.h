/* lookup.h - look-ups whose answer is known of the image, and which are asked all the same. */
#ifndef RG_CLIENT_API_FUNCTION_LOOKUP_H
#define RG_CLIENT_API_FUNCTION_LOOKUP_H

#include "client/cache/image_cache.h"
#include "client/core/future.h"
#include "proto/codec.h"

/**
 * Begins to ask for a function if its answer is known, which is then in *answer. NULL: it is to be waited for. `take`: in a context, where
 * the first of a library's takes memory; it is taken for it, and its answer ends that.
 */
struct rg_future *rg_lookup_begin_known(struct rg_cached_image *cached, bool take, const char *name,
                                        struct rg_reader *answer);

#endif
