/*
 * image_cache.h - what was learned of an image when this user's programs loaded it before, on a server in the
 * same state: that loading it succeeds, what its kernels are, which of its variables are asked for.
 *
 * A load that is known to succeed does not wait, nor do look-ups whose answers are known. Each is still sent,
 * and its answer compared when it comes: knowledge that turns out to be wrong is thrown away, and the call's
 * error is reported by the next call that waits, as asynchronous errors are. What "the same state" means the
 * server says in its hello (`answers`): its programs, driver, settings and devices.
 *
 * A file for each image in $XDG_CACHE_HOME/remote-gpu/answers (REMOTE_GPU_CACHE: another folder, or "off") is
 * read at the first load and added to as more is learned. Entries live as long as the process. Any thread.
 */
#ifndef RG_CLIENT_CACHE_IMAGE_CACHE_H
#define RG_CLIENT_CACHE_IMAGE_CACHE_H

#include "client/cache/image.h"
#include "client/cache/jit_options.h"
#include "common/base/hash_table.h"
#include "proto/kinds.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_cached_image;
struct rg_session;

/**
 * What is known of an image that is to be loaded as `kind` (RG_KIND_MODULE, RG_KIND_LIBRARY) with these
 * options on the current session and device. NULL: nothing is kept.
 */
struct rg_cached_image *rg_image_cache_find(enum rg_kind kind, struct rg_image_view *image,
                                            const struct rg_jit *jit);
/** Which image an entry is of, and under which name it is kept. */
struct rg_cached_image_name {
    uint32_t kind;
    uint32_t plain; /* loaded without options, and nothing is to be linked to it */
    uint8_t name[RG_DIGEST_BYTES];
    struct rg_digest digest;
    uint64_t size;
};
/** Which it is; for as long as the entry lives. */
const struct rg_cached_image_name *rg_image_cache_name(const struct rg_cached_image *cached);
/**
 * The entry of an image that was loaded in an earlier session with a server in the same state; NULL as
 * rg_image_cache_find.
 */
struct rg_cached_image *rg_image_cache_find_named(const struct rg_cached_image_name *image);
/** Whether its answers are those for the current device. */
bool rg_image_cache_here(const struct rg_cached_image *cached);
/** It was wrong: forgets all, here and on disk. */
void rg_image_cache_drop(struct rg_cached_image *cached);

/** Whether the image is known to load, by a load in this session or an earlier one; and that it has. */
bool rg_image_cache_loads(const struct rg_cached_image *cached);
void rg_image_cache_note_load(struct rg_cached_image *cached);
/** The most device memory that loading it, or the first use of a kernel of its in a context, took: a level (proto/memory_level.h). */
unsigned rg_image_cache_memory(const struct rg_cached_image *cached);
void rg_image_cache_note_memory(struct rg_cached_image *cached, unsigned level);

/** A kernel or function. */
struct rg_cached_function {
    struct rg_hash_link link; /* with the others of its image */
    _Atomic bool taken;       /* of a kernel: its function in a context was asked for, and there was one */
    bool kept, taken_kept;    /* in the file */
    bool improved;            /* with its attributes, which `answer` does not have */
    size_t size;
    /* that describes it: struct rg_function_info and its parameters. RG_FUNCTION_UNLOADED is not kept in the
     * file */
    unsigned char *answer;
    char name[];
};

/** What is known under that name; it stays. NULL: nothing. */
const struct rg_cached_function *rg_image_cache_function(struct rg_cached_image *cached, const char *name);
void rg_image_cache_note_function(struct rg_cached_image *cached, const char *name, const void *answer,
                                  size_t size);
/** The worker has answered the same, perhaps with attributes that were not known: then later sessions know them. */
void rg_image_cache_note_attributes(struct rg_cached_image *cached, const struct rg_cached_function *known,
                                    const void *answer);
/** Of a kernel that has been noted: asking for its function succeeded. */
void rg_image_cache_note_taken(struct rg_cached_image *cached, const char *name);
/** The same as these two, but it gets into the file only when it is used. */
void rg_image_cache_learn_function(struct rg_cached_image *cached, const char *name, bool taken,
                                   const void *answer, size_t size);
/** A function that is known was asked for; `taken`: in a context. */
void rg_image_cache_used(struct rg_cached_image *cached, const char *name, bool taken);

/** The variables that were asked for: one after another, NULL behind the last. */
const char *rg_image_cache_variable(struct rg_cached_image *cached, unsigned index, bool *managed);
void rg_image_cache_note_variable(struct rg_cached_image *cached, const char *name, bool managed);

#endif
