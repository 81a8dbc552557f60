/*
 * cache.c - see cache.h. The disk cache sees to the folder, its limit and that entries appear whole; what is added
 * here is a checksum, which tells what a full disk or a crash left of one, and the key, which tells an entry
 * under another's name.
 */
#include "softgpu/compiler/jit/cache.h"

#include "common/base/cleanup.h"
#include "common/cache/disk_cache.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT (UINT64_C(256) << 20)
#define CODE_MAX      ((size_t)64 << 20)

static const char magic[8] = {'S', 'G', 'K', 'E', 'R', 'N', 0, 2};

/* In files; the object code follows. */
struct header {
    char magic[8];
    uint64_t size; /* of what follows */
    struct rg_digest key, checksum;
};
_Static_assert(sizeof(struct header) == 80, "no padding");
_Static_assert(sizeof(struct rg_digest) == RG_DISK_CACHE_NAME, "a key is a file's name");

struct sg_cache {
    struct rg_disk_cache *cache;
    _Atomic uint64_t hits, misses;
};

struct sg_cache *sg_cache_open(const char *folder, uint64_t limit)
{
    struct sg_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->cache = rg_disk_cache_open(folder, limit);
    if (cache->cache == NULL || !rg_disk_cache_make(cache->cache)) {
        sg_cache_close(cache);
        return NULL;
    }
    return cache;
}

void sg_cache_close(struct sg_cache *cache)
{
    if (cache == NULL)
        return;
    rg_disk_cache_close(cache->cache);
    free(cache);
}

struct sg_cache_statistics sg_cache_statistics(const struct sg_cache *cache)
{
    const struct rg_disk_cache_counts *counts = rg_disk_cache_counts(cache->cache);
    return (struct sg_cache_statistics){.hits = atomic_load(&cache->hits),
                                        .misses = atomic_load(&cache->misses),
                                        .dropped = atomic_load(&counts->dropped),
                                        .written = atomic_load(&counts->written),
                                        .evicted = atomic_load(&counts->evicted)};
}

static struct sg_cache *default_cache;

static void open_default(void)
{
    char folder[PATH_MAX];
    uint64_t limit = rg_disk_cache_limit("SOFTGPU_CACHE_SIZE", DEFAULT_LIMIT);
    if (limit > 0 && rg_disk_cache_folder("SOFTGPU_CACHE", "soft", folder, sizeof(folder)))
        default_cache = sg_cache_open(folder, limit);
}

struct sg_cache *sg_cache_default(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_default);
    return default_cache;
}

/* The header of `size` bytes of code under a key. */
static struct header header_of(const struct rg_digest *key, const void *code, size_t size)
{
    struct header header = {
        .size = size, .key = *key, .checksum = rg_digest_of(&(struct rg_digest_part){code, size}, 1)};
    memcpy(header.magic, magic, sizeof(magic));
    return header;
}

/* Whether a file's bytes are what was written under the key. */
static bool is_whole(const unsigned char *file, size_t size, const struct rg_digest *key)
{
    if (size <= sizeof(struct header))
        return false;
    struct header expected = header_of(key, file + sizeof(expected), size - sizeof(expected));
    return memcmp(file, &expected, sizeof(expected)) == 0;
}

void *sg_cache_read(struct sg_cache *cache, const struct rg_digest *key, size_t *size)
{
    size_t all;
    RG_CLEANUP_FREE unsigned char *file =
        rg_disk_cache_read(cache->cache, key->bytes, 0, sizeof(struct header) + CODE_MAX, 0, &all);
    if (file != NULL && is_whole(file, all, key)) {
        atomic_fetch_add(&cache->hits, 1);
        *size = all - sizeof(struct header);
        memmove(file, file + sizeof(struct header), *size);
        return RG_TAKE_PTR(file);
    }
    if (file != NULL)
        rg_disk_cache_remove(cache->cache, key->bytes);
    atomic_fetch_add(&cache->misses, 1);
    return NULL;
}

void sg_cache_drop(struct sg_cache *cache, const struct rg_digest *key)
{
    rg_disk_cache_remove(cache->cache, key->bytes);
}

void sg_cache_write(struct sg_cache *cache, const struct rg_digest *key, const void *data, size_t size)
{
    if (size == 0 || size > CODE_MAX)
        return;
    struct header header = header_of(key, data, size);
    RG_CLEANUP_FREE unsigned char *file = malloc(sizeof(header) + size);
    if (file == NULL)
        return;
    memcpy(file, &header, sizeof(header));
    memcpy(file + sizeof(header), data, size);
    rg_disk_cache_write(cache->cache, key->bytes, file, sizeof(header) + size);
}
