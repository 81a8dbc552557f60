/*
 * disk_cache_room.c - making room in the folder of a cache: the files that were used least recently go, and what writers left that ended.
 * Several processes may do it at once; what another has removed is removed. A folder that cannot be read is as if it were empty.
 */
#include "common/cache/disk_cache_room.h"

#include "common/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct found {
    char name[RG_DISK_CACHE_TEXT]; /* empty: it is being written, and stays */
    uint64_t size;
    struct timespec used;
};

static int compare_used(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used, *y = &((const struct found *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool is_name(const char *text)
{
    return strlen(text) == RG_DISK_CACHE_TEXT - 1 &&
           strspn(text, "0123456789abcdef") == RG_DISK_CACHE_TEXT - 1;
}

/* Whether the writer of a temporary file has ended without giving it its name: nobody has it locked. */
static bool is_abandoned(int folder, const char *name)
{
    RG_CLEANUP_FD int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? errno == ELOOP : flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/*
 * All files of the folder, those that are being written as well, and removes what writers left that ended; what is not a
 * cache's stays. Returns how many; *found is the caller's.
 */
static size_t list_files(int folder, struct found **found)
{
    size_t n = 0, capacity = 0;
    *found = NULL;
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = own < 0 ? NULL : fdopendir(own);
    if (!list) {
        if (own >= 0)
            close(own);
        return 0;
    }
    for (struct dirent *item; (item = readdir(list)) != NULL;) {
        struct stat status;
        const bool temporary =
            strncmp(item->d_name, RG_DISK_CACHE_TEMPORARY, strlen(RG_DISK_CACHE_TEMPORARY)) == 0;
        if ((!temporary && !is_name(item->d_name)) ||
            fstatat(folder, item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (temporary && is_abandoned(folder, item->d_name)) {
            (void)unlinkat(folder, item->d_name, 0);
            continue;
        }
        if (n == capacity) {
            const size_t more = capacity ? capacity * 2 : 256;
            struct found *bigger = realloc(*found, more * sizeof *bigger);
            if (!bigger)
                break;
            *found = bigger;
            capacity = more;
        }
        struct found *entry = &(*found)[n++];
        memset(entry->name, 0, RG_DISK_CACHE_TEXT);
        if (!temporary)
            memcpy(entry->name, item->d_name, RG_DISK_CACHE_TEXT);
        entry->size = (uint64_t)status.st_size;
        entry->used = status.st_mtim;
    }
    closedir(list);
    return n;
}

uint64_t rg_disk_cache_make_room(int folder, uint64_t limit, uint64_t size, size_t *gone)
{
    struct found *files;
    const size_t n = list_files(folder, &files);
    uint64_t total = size;
    for (size_t i = 0; i < n; i++)
        total += files[i].size;
    if (total > limit) {
        qsort(files, n, sizeof *files, compare_used);
        for (size_t i = 0; i < n && total > limit - limit / 8; i++) {
            if (!*files[i].name)
                continue;
            (void)unlinkat(folder, files[i].name, 0);
            total -= files[i].size;
            ++*gone;
        }
    }
    free(files);
    return total;
}
