/* state.c - see state.h. */
#include "server/identity/state.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY    ".new-" /* how names begin that are not there yet */
#define LOCK_WAIT_NS 2000000000ull
#define LOCK_LOOK_NS 5000000l

static const char *const folders[] = {"tokens", "users"};

/* --- the folder --------------------------------------------------------------------------------------------------------- */

/* mkdir -p; only the last folder is private. */
static bool make_folders(const char *path)
{
    char part[4096];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *at = strchr(part + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return false;
        *at = '/';
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

/* Whether the folder is this user's (root may work on anybody's), and nobody else's. */
static enum rg_status check_folder(struct rg_state *state, char *why, size_t why_size)
{
    struct stat is;
    if (fstat(state->folder, &is) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "the state folder %s cannot be looked at: %s", state->path,
                         strerror(errno));
    state->owner = is.st_uid;
    state->group = is.st_gid;
    if (geteuid() != 0 && is.st_uid != geteuid())
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "the state folder %s belongs to user %u, and this is user %u: run as that user or as "
            "root, or choose another folder with --state-dir",
            state->path, (unsigned)is.st_uid, (unsigned)geteuid());
    if (is.st_mode & 022)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "the state folder %s can be written by other users (mode %04o), so what lies in it cannot "
            "be trusted: look through it, then chmod 700 %s",
            state->path, (unsigned)is.st_mode & 07777, state->path);
    if ((is.st_mode & 077) && fchmod(state->folder, 0700) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size,
                         "the state folder %s is open to other users and cannot be closed: %s", state->path,
                         strerror(errno));
    return RG_OK;
}

/* Gives what root has made to the folder's owner: not what that user has put there as another name of somebody's file. */
static bool give_to_owner(const struct rg_state *state, int fd)
{
    struct stat is;
    if (geteuid() != 0 || state->owner == 0)
        return true;
    if (fstat(fd, &is) != 0)
        return false;
    if (!S_ISDIR(is.st_mode) && (!S_ISREG(is.st_mode) || is.st_nlink != 1)) {
        errno = EMLINK;
        return false;
    }
    return is.st_uid == state->owner || fchown(fd, state->owner, state->group) == 0;
}

static enum rg_status make_inner_folders(const struct rg_state *state, char *why, size_t why_size)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        bool good = mkdirat(state->folder, folders[i], 0700) == 0 || errno == EEXIST;
        RG_CLEANUP_FD const int fd =
            good ? openat(state->folder, folders[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd < 0 || !give_to_owner(state, fd))
            return RG_FAILED(RG_ERR_IO, why, why_size, "the folder %s/%s cannot be made or opened: %s",
                             state->path, folders[i], strerror(errno));
    }
    return RG_OK;
}

enum rg_status rg_state_open(struct rg_state *state, const char *path, bool create, char *why,
                             size_t why_size)
{
    *state = (struct rg_state){.folder = -1, .lock = -1};
    if (snprintf(state->path, sizeof state->path, "%s", path) >= (int)sizeof state->path || !*path)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "the name of the state folder is empty or too long");
    state->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->folder < 0 && errno == ENOENT && create && make_folders(path))
        state->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->folder < 0) {
        const int error = errno;
        rg_explain(why, why_size, "the state folder %s cannot be %s: %s", path,
                   create ? "made or opened" : "opened", strerror(error));
        return error == ENOENT ? RG_ERR_NOT_FOUND : RG_ERR_IO;
    }
    enum rg_status status = check_folder(state, why, why_size);
    if (status == RG_OK && create)
        status = make_inner_folders(state, why, why_size);
    if (status != RG_OK)
        rg_state_close(state);
    return status;
}

void rg_state_close(struct rg_state *state)
{
    rg_state_unlock(state);
    if (state->folder >= 0)
        close(state->folder);
    state->folder = -1;
}

/* --- the lock ----------------------------------------------------------------------------------------------------------- */

/* Removes what processes that died were about to write. With the lock nobody else is. */
static void sweep(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0)
            (void)unlinkat(folder, entry->d_name, 0);
    closedir(entries);
}

static void sweep_all(const struct rg_state *state)
{
    sweep(state->folder);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        RG_CLEANUP_FD const int fd =
            openat(state->folder, folders[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            sweep(fd);
    }
}

static bool take_lock(int fd, uint64_t patience_ns)
{
    const uint64_t until = rg_now_ns() + (patience_ns ? patience_ns : LOCK_WAIT_NS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || rg_now_ns() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_LOOK_NS}, NULL);
    }
    return true;
}

enum rg_status rg_state_lock(struct rg_state *state, char *why, size_t why_size)
{
    const int fd =
        openat(state->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || !give_to_owner(state, fd)) {
        rg_explain(why, why_size, "%s/lock cannot be %s: %s", state->path,
                   fd < 0 ? "opened" : "given to its owner", strerror(errno));
        if (fd >= 0)
            close(fd);
        return RG_ERR_IO;
    }
    if (!take_lock(fd, state->patience_ns)) {
        const bool held = errno == EWOULDBLOCK;
        rg_explain(
            why, why_size,
            held ? "%s is being changed by another process that does not finish (fuser %s/lock shows it)"
                 : "%s/lock cannot be locked: %s",
            state->path, held ? state->path : strerror(errno));
        close(fd);
        return held ? RG_ERR_TIMEOUT : RG_ERR_IO;
    }
    state->lock = fd;
    sweep_all(state);
    return RG_OK;
}

void rg_state_unlock(struct rg_state *state)
{
    if (state->lock >= 0)
        close(state->lock);
    state->lock = -1;
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

static enum rg_status check_file(const struct rg_state *state, const char *name, int fd,
                                 enum rg_state_privacy privacy, size_t *size, char *why, size_t why_size)
{
    struct stat is;
    if (fstat(fd, &is) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s/%s cannot be looked at: %s", state->path, name,
                         strerror(errno));
    if (!S_ISREG(is.st_mode))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s/%s is not a file", state->path, name);
    if (is.st_uid != state->owner && is.st_uid != 0 && is.st_uid != geteuid())
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s/%s belongs to user %u, not to the folder's owner",
                         state->path, name, (unsigned)is.st_uid);
    if (privacy == RG_STATE_SECRET && (is.st_mode & 077))
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s/%s is open to other users (mode %04o, must be 0600): if nobody can have read it, "
            "chmod 600 it; else remove it, so that a new one is made",
            state->path, name, (unsigned)is.st_mode & 07777);
    if (is.st_mode & 022)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s/%s can be written by other users (mode %04o): look through it, then chmod 600 it",
            state->path, name, (unsigned)is.st_mode & 07777);
    if (is.st_size > RG_IDENTITY_FILE_MAX)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s/%s is larger than %u bytes", state->path, name,
                         RG_IDENTITY_FILE_MAX);
    *size = (size_t)is.st_size;
    return RG_OK;
}

enum rg_status rg_state_read(const struct rg_state *state, const char *name, enum rg_state_privacy privacy,
                             char **text, size_t *size, char *why, size_t why_size)
{
    RG_CLEANUP_FD const int fd =
        openat(state->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return RG_ERR_NOT_FOUND;
    if (fd < 0) {
        rg_explain(why, why_size, errno == ELOOP ? "%s/%s is a symbolic link" : "%s/%s cannot be opened: %s",
                   state->path, name, strerror(errno));
        return errno == ELOOP ? RG_ERR_INVALID : RG_ERR_IO;
    }
    size_t length;
    RG_TRY(check_file(state, name, fd, privacy, &length, why, why_size));
    char *memory = malloc(length + 1);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    if (!rg_file_read(fd, memory, length)) {
        rg_explain(why, why_size, "%s/%s cannot be read: %s", state->path, name, strerror(errno));
        rg_state_wipe(memory, length);
        return RG_ERR_IO;
    }
    memory[length] = 0;
    *text = memory;
    *size = length;
    return RG_OK;
}

/* The folder of `name`, and what it is called there. -1: errno tells why. */
static int folder_of(const struct rg_state *state, const char *name, const char **last)
{
    const char *slash = strchr(name, '/');
    *last = slash ? slash + 1 : name;
    if (!slash)
        return openat(state->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char folder[32];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    return openat(state->folder, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A new file with these contents on disk, under a name of its own. */
static bool write_temporary(const struct rg_state *state, int folder, const char *temporary, const void *data,
                            size_t size)
{
    RG_CLEANUP_FD const int fd =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd >= 0 && fchmod(fd, 0600) == 0 && rg_file_write(fd, data, size) && give_to_owner(state, fd) &&
           fsync(fd) == 0;
}

enum rg_status rg_state_write(const struct rg_state *state, const char *name, const void *data, size_t size,
                              char *why, size_t why_size)
{
    if (size > RG_IDENTITY_FILE_MAX) { /* which could not be read again */
        return RG_FAILED(RG_ERR_LIMIT, why, why_size, "%s/%s would be larger than %u bytes", state->path,
                         name, RG_IDENTITY_FILE_MAX);
    }
    const char *last;
    uint64_t number;
    char temporary[40];
    RG_CLEANUP_FD const int folder = folder_of(state, name, &last);
    bool done = folder >= 0 && getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number;
    if (done) {
        snprintf(temporary, sizeof temporary, TEMPORARY "%016llx", (unsigned long long)number);
        done = write_temporary(state, folder, temporary, data, size) &&
               renameat(folder, temporary, folder, last) == 0;
        const int error = errno;
        if (!done)
            (void)unlinkat(folder, temporary, 0);
        errno = error;
    }
    /* the name is as durable as the contents, before anybody is told */
    if (!done || fsync(folder) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s/%s cannot be written: %s", state->path, name,
                         strerror(errno));
    return RG_OK;
}

enum rg_status rg_state_remove(const struct rg_state *state, const char *name, char *why, size_t why_size)
{
    const char *last;
    RG_CLEANUP_FD const int folder = folder_of(state, name, &last);
    if (folder < 0 && errno == ENOENT)
        return RG_OK;
    if (folder < 0 || (unlinkat(folder, last, 0) != 0 && errno != ENOENT) || fsync(folder) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s/%s cannot be removed: %s", state->path, name,
                         strerror(errno));
    return RG_OK;
}

/* --- lists -------------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum rg_status collect(DIR *entries, char **names, size_t *n)
{
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        if (*n == RG_IDENTITY_FILES_MAX)
            return RG_ERR_LIMIT;
        names[*n] = strdup(entry->d_name);
        if (!names[*n])
            return RG_ERR_NO_MEMORY;
        ++*n;
    }
    return RG_OK;
}

enum rg_status rg_state_list(const struct rg_state *state, const char *folder, char ***names, size_t *n,
                             char *why, size_t why_size)
{
    *names = NULL;
    *n = 0;
    const int fd = openat(state->folder, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return RG_OK;
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        rg_explain(why, why_size, "%s/%s cannot be listed: %s", state->path, folder, strerror(errno));
        if (fd >= 0)
            close(fd);
        return RG_ERR_IO;
    }
    char **found = calloc(RG_IDENTITY_FILES_MAX, sizeof *found);
    size_t count = 0;
    const enum rg_status status = found ? collect(entries, found, &count) : RG_ERR_NO_MEMORY;
    closedir(entries);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s/%s has more than %u files", state->path, folder, RG_IDENTITY_FILES_MAX);
        rg_state_list_free(found, count);
        return status;
    }
    if (count)
        qsort(found, count, sizeof *found, by_name);
    *names = found;
    *n = count;
    return RG_OK;
}

void rg_state_list_free(char **names, size_t n)
{
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

void rg_state_wipe(char *text, size_t size)
{
    if (text)
        explicit_bzero(text, size);
    free(text);
}
