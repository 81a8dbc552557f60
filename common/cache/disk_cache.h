/*
 * disk_cache.h - a folder of files that may be thrown away: what was learned, received or made once and would cost time to get
 * again.
 *
 * A file is named by a digest. It appears whole or not at all (written under another name, then renamed), and belongs to
 * this process's user alone; what another user could have changed is not read but removed. Files used least recently go
 * when the folder outgrows its limit. Whether a file holds what its name says is the reader's to check, who removes it
 * if not: a disk may have lost a part.
 *
 * Failures are silent: a cache that cannot be read is empty, one that cannot be written keeps nothing (said once, at debug
 * level). Any thread, and any number of processes on one folder.
 */
#ifndef RG_COMMON_CACHE_DISK_CACHE_H
#define RG_COMMON_CACHE_DISK_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_DISK_CACHE_NAME 32 /* bytes of a name */

struct rg_disk_cache;

/** What a process did to the files of a cache. */
struct rg_disk_cache_counts {
    _Atomic uint64_t written;
    _Atomic uint64_t dropped; /* removed, by their reader or because they were not this user's alone */
    _Atomic uint64_t evicted; /* removed to make room */
};

/**
 * `folder` is made when something is first kept, or by rg_disk_cache_make; a relative one is below the working folder of now.
 * `limit`: bytes of all files. NULL: no memory, or no name of a folder. Free with rg_disk_cache_close.
 */
struct rg_disk_cache *rg_disk_cache_open(const char *folder, uint64_t limit);
void rg_disk_cache_close(struct rg_disk_cache *cache);
/** Makes the folder now, for the user alone. False: it cannot be made, or others can change it. */
bool rg_disk_cache_make(struct rg_disk_cache *cache);
/** Valid as long as the cache. */
const struct rg_disk_cache_counts *rg_disk_cache_counts(const struct rg_disk_cache *cache);

/**
 * The file's bytes behind `head` bytes of room and before `tail` zeros, to be freed; *size is the file's. NULL: it is not
 * there, longer than `max`, or not safe to read.
 */
void *rg_disk_cache_read(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME], size_t head,
                         size_t max, size_t tail, size_t *size);
/** Keeps a file, in place of one of that name. */
void rg_disk_cache_write(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME],
                         const void *data, size_t size);
/** Adds to the end of a file, which is made if it is not there; several that add at once do not mix. */
void rg_disk_cache_append(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME],
                          const void *data, size_t size);
void rg_disk_cache_remove(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME]);

/**
 * Where this user wants such files: the folder that the environment's `variable` names, else `part` ("" for all of them)
 * below $XDG_CACHE_HOME/remote-gpu or ~/.cache/remote-gpu. False: nowhere (`variable` says "off", there is no place, such as
 * a HOME that does not exist, or the program has other rights than its user).
 */
bool rg_disk_cache_folder(const char *variable, const char *part, char *out, size_t size);
/** The limit that the environment's `variable` sets, as "1G", else `otherwise`; what is no size is warned of. */
uint64_t rg_disk_cache_limit(const char *variable, uint64_t otherwise);

#endif
