/*
 * cache.h - compiled kernels, kept in files (common/cache/disk_cache.h) from one run of a program to the
 * next.
 *
 * A file holds one kernel: a header (magic, key, size, checksum) and the object code. The key is a digest of
 * all that the code depends on. Nothing here is an error to the caller: what cannot be read, is damaged or
 * belongs to somebody else is no entry, what cannot be written is not kept; a debug line tells.
 *
 * Any number of threads and processes may use one folder at the same time.
 */
#ifndef SG_COMPILER_JIT_CACHE_H
#define SG_COMPILER_JIT_CACHE_H

#include "common/cache/digest.h"

#include <stddef.h>
#include <stdint.h>

struct sg_cache_statistics {
    uint64_t hits, misses;
    uint64_t dropped; /* entries found damaged or not ours, and removed */
    uint64_t written, evicted;
};

struct sg_cache;

/**
 * A cache in `folder`, which is made (for the owner alone) if it is not there; at most `limit` bytes. NULL if
 * it cannot be made or is not the caller's own.
 */
struct sg_cache *sg_cache_open(const char *folder, uint64_t limit);
void sg_cache_close(struct sg_cache *cache);

/**
 * The process's cache, as the environment says: SOFTGPU_CACHE (a folder, or "off"), else below XDG_CACHE_HOME
 * or ~/.cache; SOFTGPU_CACHE_SIZE. NULL: none. Opened at the first call and never closed.
 */
struct sg_cache *sg_cache_default(void);

/** What is kept under `key`, to be freed with free(), and its size; NULL if nothing is. */
void *sg_cache_read(struct sg_cache *cache, const struct rg_digest *key, size_t *size);
/** Keeps `size` bytes under `key`; makes room by removing what was not used for longest. */
void sg_cache_write(struct sg_cache *cache, const struct rg_digest *key, const void *data, size_t size);
/** Removes what is kept under `key`. */
void sg_cache_drop(struct sg_cache *cache, const struct rg_digest *key);

/** What this process has found and done so far. */
struct sg_cache_statistics sg_cache_statistics(const struct sg_cache *cache);

#endif
