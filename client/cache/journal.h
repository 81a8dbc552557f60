/*
 * journal.h - files of records that are only ever added to (common/cache/disk_cache.h), each checked by a
 * digest of itself. What follows a bad one is not believed: the file then begins anew. Threads: the caller's
 * lock.
 */
#ifndef RG_CLIENT_CACHE_JOURNAL_H
#define RG_CLIENT_CACHE_JOURNAL_H

#include "common/cache/disk_cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Beyond so many bytes nothing is added to a file. */
#define RG_JOURNAL_MAX (4u << 20)

struct rg_journal {
    struct rg_disk_cache *cache; /* NULL: nothing is read or kept */
    uint8_t name[RG_DISK_CACHE_NAME];
    size_t size; /* of the file, as far as this process knows */
};

struct rg_journal_record {
    uint32_t type, flags;
    const char *name; /* "" if it has none */
    const void *data;
    size_t size;
};

/**
 * The cache of what this user's programs learn; NULL: nothing is kept (REMOTE_GPU_CACHE=off, or no place).
 */
struct rg_disk_cache *rg_journal_disk_cache(void);
/** Gives every record to `take`. False: one was bad, or `take` did not know it; the file is removed. */
bool rg_journal_read(struct rg_journal *records,
                     bool (*take)(void *user, const struct rg_journal_record *record), void *user);
/** Adds one; name may be NULL. */
void rg_journal_add(struct rg_journal *records, uint32_t type, uint32_t flags, const char *name,
                    const void *data, size_t size);
void rg_journal_remove(struct rg_journal *records);

#endif
