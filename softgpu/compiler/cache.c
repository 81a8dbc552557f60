/*
 * cache.c - see cache.h. An entry is written to a file of its own name and renamed, so readers see whole entries
 * or none; a checksum tells what a full disk or a crash left of one. Reading an entry sets its times, and the
 * oldest are removed when the folder outgrows its limit: the folder is only gone through at a process's first
 * write and once it has written a part of the limit, so several processes may exceed the limit for a while.
 *
 * The folder is opened anew for each operation: programs may close descriptors that they do not know. Any thread.
 */
#include "softgpu/compiler/cache.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <llvm-c/blake3.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_LIMIT (UINT64_C(256) << 20)
#define ENTRY_MAX     (UINT64_C(64) << 20)
/* A temporary file this old was left by a process that ended. */
#define ABANDONED 3600

#define ENTRY_SUFFIX     ".sgo"
#define TEMPORARY_PREFIX "new."
#define NAME_SIZE        (2 * sizeof(struct sg_digest) + sizeof(ENTRY_SUFFIX))

static const char magic[8] = {'S', 'G', 'K', 'E', 'R', 'N', 0, 1};

struct header {
    char magic[8];
    uint64_t size; /* of what follows */
    struct sg_digest key, checksum;
};
_Static_assert(sizeof(struct header) == 80, "no padding");

struct sg_cache {
    char *folder; /* absolute */
    uint64_t limit;
    pthread_mutex_t lock;
    bool counted;      /* under the lock: `budget` is known */
    uint64_t budget;   /* under the lock: bytes that may be written before the folder is gone through again */
    _Atomic bool told; /* that it cannot be written */
    struct sg_cache_statistics statistics;
};

struct sg_digest sg_digest_of(const struct sg_piece *pieces, size_t count)
{
    llvm_blake3_hasher hasher;
    struct sg_digest digest;
    llvm_blake3_hasher_init(&hasher);
    for (size_t i = 0; i < count; i++) {
        uint64_t size = pieces[i].size;
        llvm_blake3_hasher_update(&hasher, &size, sizeof(size));
        llvm_blake3_hasher_update(&hasher, pieces[i].data, pieces[i].size);
    }
    llvm_blake3_hasher_finalize(&hasher, digest.bytes, sizeof(digest.bytes));
    return digest;
}

static void name_of(const struct sg_digest *key, char name[NAME_SIZE])
{
    for (size_t i = 0; i < sizeof(key->bytes); i++)
        sprintf(name + 2 * i, "%02x", key->bytes[i]);
    strcpy(name + 2 * sizeof(key->bytes), ENTRY_SUFFIX);
}

/* Ours, and nobody else can change it. */
static bool is_own(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* A descriptor of the folder, or -1 with the reason in errno. */
static int open_folder(const char *folder)
{
    struct stat status;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) != 0 || !is_own(&status)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Makes the folder and those above it, as far as they are missing; whether that worked tells who opens it. */
static void make_folder(const char *folder)
{
    RG_CLEANUP_FREE char *path = strdup(folder);
    if (path == NULL || *path == '\0')
        return;
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
}

struct sg_cache *sg_cache_open(const char *folder, uint64_t limit)
{
    make_folder(folder);
    RG_CLEANUP_FD int fd = open_folder(folder);
    if (fd < 0) {
        rg_debug("compiled kernels are not kept: %s: %s", folder,
                 errno == EPERM ? "not a folder of this user's alone" : strerror(errno));
        return NULL;
    }
    struct sg_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->folder = realpath(folder, NULL); /* programs may change their working folder */
    cache->limit = limit;
    pthread_mutex_init(&cache->lock, NULL);
    if (cache->folder == NULL) {
        sg_cache_close(cache);
        return NULL;
    }
    return cache;
}

void sg_cache_close(struct sg_cache *cache)
{
    if (cache == NULL)
        return;
    pthread_mutex_destroy(&cache->lock);
    free(cache->folder);
    free(cache);
}

const struct sg_cache_statistics *sg_cache_statistics(const struct sg_cache *cache)
{
    return &cache->statistics;
}

/* --- the process's cache --- */

static uint64_t limit_by_environment(void)
{
    const char *text = secure_getenv("SOFTGPU_CACHE_SIZE");
    uint64_t limit;
    char why[160];
    if (text == NULL || *text == '\0')
        return DEFAULT_LIMIT;
    if (rg_parse_size(text, &limit, why, sizeof(why)) == RG_OK)
        return limit;
    rg_warn("SOFTGPU_CACHE_SIZE: %s: 256M is used", why);
    return DEFAULT_LIMIT;
}

/* False: none is wanted, or there is no place for it. Programs with other rights than their user's have none. */
static bool folder_by_environment(char *folder, size_t size)
{
    const char *named = secure_getenv("SOFTGPU_CACHE"), *caches = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int length;
    if (named != NULL && strcmp(named, "off") == 0)
        return false;
    if (named != NULL && *named != '\0')
        length = snprintf(folder, size, "%s", named);
    else if (caches != NULL && *caches == '/') /* a relative one is to be ignored */
        length = snprintf(folder, size, "%s/remote-gpu/soft", caches);
    else if (home != NULL && *home == '/')
        length = snprintf(folder, size, "%s/.cache/remote-gpu/soft", home);
    else {
        rg_debug("compiled kernels are not kept: neither SOFTGPU_CACHE nor HOME names a folder");
        return false;
    }
    return length > 0 && (size_t)length < size;
}

static struct sg_cache *default_cache;

static void open_default(void)
{
    char folder[PATH_MAX];
    uint64_t limit = limit_by_environment();
    if (limit > 0 && folder_by_environment(folder, sizeof(folder)))
        default_cache = sg_cache_open(folder, limit);
}

struct sg_cache *sg_cache_default(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_default);
    return default_cache;
}

/* --- reading --- */

static bool read_all(int fd, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        ssize_t count = read(fd, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

static struct sg_digest checksum_of(const void *data, size_t size)
{
    return sg_digest_of(&(struct sg_piece){data, size}, 1);
}

/* The contents of an open entry; NULL if they are not what was written under the key. */
static void *read_entry(int fd, const struct sg_digest *key, size_t *size)
{
    struct stat status;
    struct header header;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_own(&status) ||
        !read_all(fd, &header, sizeof(header)) || memcmp(header.magic, magic, sizeof(magic)) != 0 ||
        memcmp(&header.key, key, sizeof(*key)) != 0 || header.size == 0 || header.size > ENTRY_MAX ||
        (uint64_t)status.st_size != sizeof(header) + header.size)
        return NULL;
    RG_CLEANUP_FREE void *data = malloc(header.size);
    if (data == NULL || !read_all(fd, data, header.size))
        return NULL;
    struct sg_digest checksum = checksum_of(data, header.size);
    if (memcmp(&checksum, &header.checksum, sizeof(checksum)) != 0)
        return NULL;
    *size = header.size;
    return RG_TAKE_PTR(data);
}

void *sg_cache_read(struct sg_cache *cache, const struct sg_digest *key, size_t *size)
{
    char name[NAME_SIZE];
    name_of(key, name);
    RG_CLEANUP_FD int folder = open_folder(cache->folder);
    RG_CLEANUP_FD int fd =
        folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        void *data = read_entry(fd, key, size);
        if (data != NULL) {
            futimens(fd, NULL); /* used now; on a folder that cannot be written nothing is ever removed */
            atomic_fetch_add(&cache->statistics.hits, 1);
            return data;
        }
    }
    if (fd >= 0 || (folder >= 0 && errno == ELOOP)) {
        rg_debug("compiled kernels: %s/%s is damaged or not this user's, dropped", cache->folder, name);
        unlinkat(folder, name, 0);
        atomic_fetch_add(&cache->statistics.dropped, 1);
    }
    atomic_fetch_add(&cache->statistics.misses, 1);
    return NULL;
}

void sg_cache_drop(struct sg_cache *cache, const struct sg_digest *key)
{
    char name[NAME_SIZE];
    name_of(key, name);
    RG_CLEANUP_FD int folder = open_folder(cache->folder);
    if (folder >= 0 && unlinkat(folder, name, 0) == 0)
        atomic_fetch_add(&cache->statistics.dropped, 1);
}

/* --- making room --- */

struct found {
    char name[NAME_SIZE];
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

/* Removes what a process that ended left of an entry. */
static void remove_abandoned(int folder, const char *name)
{
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_mtim.tv_sec < time(NULL) - ABANDONED)
        unlinkat(folder, name, 0);
}

/* All entries of the folder; their number. *entries is the caller's. */
static size_t list_entries(int folder, struct found **entries)
{
    size_t count = 0, capacity = 0;
    *entries = NULL;
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = own < 0 ? NULL : fdopendir(own);
    if (list == NULL) {
        if (own >= 0)
            close(own);
        return 0;
    }
    for (struct dirent *item; (item = readdir(list)) != NULL;) {
        struct stat status;
        if (strncmp(item->d_name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) == 0)
            remove_abandoned(folder, item->d_name);
        size_t length = strlen(item->d_name);
        if (length != NAME_SIZE - 1 ||
            strcmp(item->d_name + length - strlen(ENTRY_SUFFIX), ENTRY_SUFFIX) != 0 ||
            fstatat(folder, item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (count == capacity) {
            size_t room = capacity == 0 ? 256 : capacity * 2;
            struct found *bigger = realloc(*entries, room * sizeof(**entries));
            if (bigger == NULL)
                break;
            *entries = bigger;
            capacity = room;
        }
        struct found *entry = &(*entries)[count++];
        memcpy(entry->name, item->d_name, NAME_SIZE);
        entry->size = (uint64_t)status.st_size;
        entry->used = status.st_mtim;
    }
    closedir(list);
    return count;
}

/*
 * Goes through the folder: if it and `size` more bytes exceed the limit, what was not used for longest goes until
 * an eighth of the limit is free. Under the lock.
 */
static void make_room(struct sg_cache *cache, int folder, uint64_t size)
{
    struct found *entries;
    size_t count = list_entries(folder, &entries), gone = 0;
    uint64_t total = size;
    for (size_t i = 0; i < count; i++)
        total += entries[i].size;
    if (total > cache->limit) {
        uint64_t wanted = cache->limit - cache->limit / 8;
        qsort(entries, count, sizeof(*entries), compare_used);
        for (; gone < count && total > wanted; gone++) {
            unlinkat(folder, entries[gone].name, 0);
            total -= entries[gone].size;
        }
        atomic_fetch_add(&cache->statistics.evicted, gone);
        rg_debug("compiled kernels: %zu of %zu removed from %s", gone, count, cache->folder);
    }
    free(entries);
    uint64_t left = total < cache->limit ? cache->limit - total : 0, part = cache->limit / 16;
    cache->budget = left < part ? left : part;
    cache->counted = true;
}

static void reserve(struct sg_cache *cache, int folder, uint64_t size)
{
    pthread_mutex_lock(&cache->lock);
    if (!cache->counted || cache->budget < size)
        make_room(cache, folder, size);
    else
        cache->budget -= size;
    pthread_mutex_unlock(&cache->lock);
}

/* --- writing --- */

static bool write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t count = write(fd, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* Writes the file and gives it its name; errno tells why not. */
static bool write_entry(int folder, const char *name, const struct header *header, const void *data)
{
    char temporary[40];
    uint64_t number;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
        return false;
    snprintf(temporary, sizeof(temporary), TEMPORARY_PREFIX "%016llx", (unsigned long long)number);
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = write_all(fd, header, sizeof(*header)) && write_all(fd, data, header->size);
    int error = errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && renameat(folder, temporary, folder, name) == 0)
        return true;
    error = good ? errno : error;
    unlinkat(folder, temporary, 0);
    errno = error;
    return false;
}

void sg_cache_write(struct sg_cache *cache, const struct sg_digest *key, const void *data, size_t size)
{
    char name[NAME_SIZE];
    struct header header = {.size = size, .key = *key};
    if (size == 0 || size > ENTRY_MAX || sizeof(header) + size > cache->limit)
        return;
    RG_CLEANUP_FD int folder = open_folder(cache->folder);
    if (folder >= 0) {
        reserve(cache, folder, sizeof(header) + size);
        memcpy(header.magic, magic, sizeof(magic));
        header.checksum = checksum_of(data, size);
        name_of(key, name);
        if (write_entry(folder, name, &header, data)) {
            atomic_fetch_add(&cache->statistics.written, 1);
            return;
        }
    }
    int error = errno;
    if (!atomic_exchange(&cache->told, true))
        rg_debug("compiled kernels are not kept: %s: %s", cache->folder, strerror(error));
}
