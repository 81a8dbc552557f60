/* disk_cache_room.h - the files in the folder of a cache; for disk_cache.c alone. */
#ifndef RG_COMMON_CACHE_DISK_CACHE_ROOM_H
#define RG_COMMON_CACHE_DISK_CACHE_ROOM_H

#include "common/cache/disk_cache.h"

#define RG_DISK_CACHE_TEMPORARY "new." /* of a file that is being written; its writer has it locked (flock) */
#define RG_DISK_CACHE_TEXT      (2 * RG_DISK_CACHE_NAME + 1) /* bytes of a file's name with its end */

/**
 * If the folder's files and `size` more bytes exceed the limit, the oldest go until an eighth of it is free: *gone counts them. Returns the
 * bytes of all files then, with `size`. One thread of a process at a time.
 */
uint64_t rg_disk_cache_make_room(int folder, uint64_t limit, uint64_t size, size_t *gone);

#endif
