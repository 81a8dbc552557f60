/* shared_memory.h - memory that the monitor and workers map, by a descriptor that cannot change its size. */
#ifndef RG_SERVER_SHARES_SHARED_MEMORY_H
#define RG_SERVER_SHARES_SHARED_MEMORY_H

#include <stddef.h>

/** Zeroed. *fd: to be given to others, and closed. NULL: no memory or descriptors; errno says which. */
void *rg_shared_memory_create(const char *name, size_t size, int *fd);
/** Maps what was received, whose size must be at least `least`; *size: what it is. NULL: it is too small. */
void *rg_shared_memory_open(int fd, size_t least, size_t *size);

#endif
