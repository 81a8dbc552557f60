/*
 * disk_cache.c - see disk_cache.h. The folder is opened anew for each operation (programs close descriptors that they do not know),
 * and gone through only at the first write and when a part of the limit has been written since: several processes may
 * exceed the limit for a while. Reading a file sets its times, by which the least recently used is known.
 */
#include "common/cache/disk_cache.h"
#include "common/base/hex.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/cache/disk_cache_room.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct rg_disk_cache {
    uint64_t limit;
    pthread_mutex_t lock;
    bool counted;    /* under the lock: `budget` is known */
    uint64_t budget; /* under the lock: bytes that may be written before the folder is gone through again */
    atomic_bool told;
    struct rg_disk_cache_counts counts;
    char folder[PATH_MAX]; /* absolute: programs may change their working folder */
};

struct rg_disk_cache *rg_disk_cache_open(const char *folder, uint64_t limit)
{
    RG_CLEANUP_FREE struct rg_disk_cache *cache = calloc(1, sizeof *cache);
    RG_CLEANUP_FREE char *here = *folder == '/' ? NULL : getcwd(NULL, 0);
    if (!cache || !*folder || (*folder != '/' && !here))
        return NULL;
    const int length =
        snprintf(cache->folder, sizeof cache->folder, "%s%s%s", here ? here : "", here ? "/" : "", folder);
    if (length < 0 || (size_t)length >= sizeof cache->folder)
        return NULL;
    cache->limit = limit;
    pthread_mutex_init(&cache->lock, NULL);
    return RG_TAKE_PTR(cache);
}

void rg_disk_cache_close(struct rg_disk_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

const struct rg_disk_cache_counts *rg_disk_cache_counts(const struct rg_disk_cache *cache)
{
    return &cache->counts;
}

/* --- where, by the environment ---------------------------------------------------------------------------------- */

bool rg_disk_cache_folder(const char *variable, const char *part, char *out, size_t size)
{
    const char *named = secure_getenv(variable), *caches = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME"), *slash = *part ? "/" : "";
    int length = -1;
    if (named && strcmp(named, "off") == 0)
        return false;
    if (named && *named)
        length = snprintf(out, size, "%s", named);
    else if (caches && *caches == '/') /* a relative one is to be ignored */
        length = snprintf(out, size, "%s/remote-gpu%s%s", caches, slash, part);
    else if (home && *home == '/' && access(home, X_OK) == 0) /* a home that is not there is not made */
        length = snprintf(out, size, "%s/.cache/remote-gpu%s%s", home, slash, part);
    if (length > 0 && (size_t)length < size)
        return true;
    rg_debug("nothing is kept: %s names no folder, nor does HOME", variable);
    return false;
}

uint64_t rg_disk_cache_limit(const char *variable, uint64_t otherwise)
{
    const char *text = secure_getenv(variable);
    uint64_t limit = otherwise;
    char why[160];
    if (text && *text && rg_parse_size(text, &limit, why, sizeof why) != RG_OK)
        rg_warn("%s: %s: %lluM is used", variable, why, (unsigned long long)(otherwise >> 20));
    return limit;
}

/* --- the folder ------------------------------------------------------------------------------------------------- */

static void text_of(const uint8_t name[RG_DISK_CACHE_NAME], char text[RG_DISK_CACHE_TEXT])
{
    rg_hex(name, RG_DISK_CACHE_NAME, text);
}

/* Ours, and nobody else can change it. */
static bool is_own(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* A descriptor of the folder, or -1 with the reason in errno. */
static int open_folder(const struct rg_disk_cache *cache)
{
    struct stat status;
    int fd = open(cache->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) != 0 || !is_own(&status)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* The same, for writing: makes the folder and those above it as far as they are missing. */
static int make_folder(const struct rg_disk_cache *cache)
{
    int fd = open_folder(cache);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s", cache->folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            (void)mkdir(path, 0700);
            *at = '/';
        }
    (void)mkdir(path, 0700);
    return open_folder(cache);
}

static void tell(struct rg_disk_cache *cache)
{
    const int error = errno;
    if (!atomic_exchange(&cache->told, true))
        rg_debug("nothing is kept in %s: %s", cache->folder,
                 error == EPERM ? "not a folder of this user's alone" : strerror(error));
}

bool rg_disk_cache_make(struct rg_disk_cache *cache)
{
    RG_CLEANUP_FD int folder = make_folder(cache);
    if (folder < 0)
        tell(cache);
    return folder >= 0;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

/* What is of no use, or could be somebody else's, goes, so that another can be kept under the name. */
static void drop(struct rg_disk_cache *cache, int folder, const char *name)
{
    if (unlinkat(folder, name, 0) != 0)
        return;
    atomic_fetch_add(&cache->counts.dropped, 1);
    rg_debug("%s/%s is damaged or not this user's alone, removed", cache->folder, name);
}

/* The bytes of an open file, used now, as rg_disk_cache_read gives them. */
static void *read_open(int fd, size_t head, size_t length, size_t tail)
{
    RG_CLEANUP_FREE unsigned char *data = malloc(head + length + tail + 1);
    if (!data || !rg_file_read(fd, data + head, length))
        return NULL;
    memset(data + head + length, 0, tail);
    (void)futimens(fd, NULL); /* where that is not allowed, nothing is ever removed either */
    return RG_TAKE_PTR(data);
}

void *rg_disk_cache_read(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME], size_t head,
                         size_t max, size_t tail, size_t *size)
{
    char text[RG_DISK_CACHE_TEXT];
    struct stat status;
    text_of(name, text);
    RG_CLEANUP_FD int folder = open_folder(cache);
    if (folder < 0)
        return NULL;
    RG_CLEANUP_FD int fd = openat(folder, text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENXIO) /* a link, a socket */
            drop(cache, folder, text);
        return NULL;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_own(&status)) {
        drop(cache, folder, text);
        return NULL;
    }
    if ((uint64_t)status.st_size > max)
        return NULL;
    void *data = read_open(fd, head, (size_t)status.st_size, tail);
    if (data)
        *size = (size_t)status.st_size;
    return data;
}

void rg_disk_cache_remove(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME])
{
    char text[RG_DISK_CACHE_TEXT];
    text_of(name, text);
    RG_CLEANUP_FD int folder = open_folder(cache);
    if (folder >= 0)
        drop(cache, folder, text);
}

/* --- making room ------------------------------------------------------------------------------------------ */

/* Under the lock. */
static void make_room(struct rg_disk_cache *cache, int folder, uint64_t size)
{
    size_t gone = 0;
    const uint64_t total = rg_disk_cache_make_room(folder, cache->limit, size, &gone);
    if (gone) {
        atomic_fetch_add(&cache->counts.evicted, gone);
        rg_debug("%zu files removed from %s, which was full", gone, cache->folder);
    }
    const uint64_t left = total < cache->limit ? cache->limit - total : 0, part = cache->limit / 16;
    cache->budget = left < part ? left : part;
    cache->counted = true;
}

static void reserve(struct rg_disk_cache *cache, int folder, uint64_t size)
{
    RG_SCOPED_LOCK(&cache->lock);
    if (!cache->counted || cache->budget < size)
        make_room(cache, folder, size);
    else
        cache->budget -= size;
}

/* --- writing ---------------------------------------------------------------------------------------------- */

/* Writes a file and gives it its name; errno tells why not. */
static bool write_file(int folder, const char *name, const void *data, size_t size)
{
    char temporary[40];
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        return false;
    snprintf(temporary, sizeof temporary, RG_DISK_CACHE_TEMPORARY "%016llx", (unsigned long long)number);
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    /* Locked until it has its name. Where files cannot be locked, others may remove it: then it is not kept. */
    (void)flock(fd, LOCK_EX | LOCK_NB);
    const bool good = rg_file_write(fd, data, size) && renameat(folder, temporary, folder, name) == 0;
    const int error = errno;
    if (!good)
        (void)unlinkat(folder, temporary, 0);
    close(fd);
    errno = error;
    return good;
}

/* Whether the process may write files of such a size (ulimit -f); it gets a signal that ends it otherwise. */
static bool is_allowed(size_t size)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/* The folder, with room for `size` more bytes. -1: they are not to be kept. */
static int open_for(struct rg_disk_cache *cache, size_t size)
{
    if (!size || size > cache->limit || !is_allowed(size))
        return -1;
    const int folder = make_folder(cache);
    if (folder >= 0)
        reserve(cache, folder, size);
    else
        tell(cache);
    return folder;
}

void rg_disk_cache_write(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME],
                         const void *data, size_t size)
{
    char text[RG_DISK_CACHE_TEXT];
    RG_CLEANUP_FD int folder = open_for(cache, size);
    if (folder < 0)
        return;
    text_of(name, text);
    if (write_file(folder, text, data, size))
        atomic_fetch_add(&cache->counts.written, 1);
    else
        tell(cache);
}

void rg_disk_cache_append(struct rg_disk_cache *cache, const uint8_t name[RG_DISK_CACHE_NAME],
                          const void *data, size_t size)
{
    char text[RG_DISK_CACHE_TEXT];
    struct stat status;
    RG_CLEANUP_FD int folder = open_for(cache, size);
    if (folder < 0)
        return;
    text_of(name, text);
    RG_CLEANUP_FD int fd =
        openat(folder, text, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    /* One write: a part of a record at the end of a full disk is for the reader to tell. */
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_own(&status) ||
        !is_allowed((size_t)status.st_size + size) || write(fd, data, size) != (ssize_t)size)
        tell(cache);
}
