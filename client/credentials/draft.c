/* draft.c - see draft.h. */
#include "client/credentials/draft.h"

#include "client/credentials/credentials.h"
#include "common/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIDDEN  ".joining-"
#define DEFAULT ".default" /* becomes the file that names the server to use */

static enum rg_status failed(const char *what, const char *path, char *why, size_t why_size)
{
    const int error = errno;
    const char *advice = error == ENOSPC || error == EDQUOT ? "make room there"
                         : error == EROFS || error == EACCES || error == EPERM
                             ? "REMOTE_GPU_CREDENTIALS can name a folder that can be written"
                             : "check the folder";
    return RG_FAILED(RG_ERR_IO, why, why_size, "cannot %s %s: %s; %s", what, path, strerror(error), advice);
}

/* Makes the folder and those above it. */
static bool make_folders(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            if (mkdir(part, 0700) != 0 && errno != EEXIST)
                return false;
            *at = '/';
        }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

/* Removes a folder of files; its name may be gone already. */
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

static int open_locked(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Removes what processes have left that did not come to an end. */
static void remove_leftovers(const char *servers)
{
    char path[PATH_MAX];
    DIR *folder = opendir(servers);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, HIDDEN, strlen(HIDDEN)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", servers, entry->d_name) >= (int)sizeof path)
            continue;
        const int fd = open_locked(path);
        if (fd < 0)
            continue;
        remove_folder(path);
        close(fd);
    }
    if (folder)
        closedir(folder);
}

enum rg_status rg_draft_begin(struct rg_draft *draft, const struct rg_address *server, bool force, char *why,
                              size_t why_size)
{
    char servers[PATH_MAX];
    bool named;
    *draft = (struct rg_draft){.fd = -1};
    if (rg_credentials_base(draft->base, sizeof draft->base, &named) != RG_OK)
        return RG_FAILED(
            RG_ERR_NOT_FOUND, why, why_size,
            "there is no place for credentials, as HOME is not set; REMOTE_GPU_CREDENTIALS can name a "
            "folder");
    if (rg_credentials_place(draft->base, server, draft->final, sizeof draft->final) != RG_OK ||
        snprintf(servers, sizeof servers, "%s/servers", draft->base) >= (int)sizeof servers ||
        snprintf(draft->path, sizeof draft->path, "%s/" HIDDEN "XXXXXX", servers) >= (int)sizeof draft->path)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "the name of the credentials folder is too long");
    if (!force && access(draft->final, F_OK) == 0)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "there are credentials for this server already, in %s; --force replaces them, if they do "
            "not work any more",
            draft->final);
    if (!make_folders(servers))
        return failed("make the folder", servers, why, why_size);
    remove_leftovers(servers);
    if (!mkdtemp(draft->path))
        return failed("make a folder in", servers, why, why_size);
    draft->fd = open_locked(draft->path);
    if (draft->fd >= 0)
        return RG_OK;
    const enum rg_status status = failed("open the folder", draft->path, why, why_size);
    rmdir(draft->path);
    return status;
}

static enum rg_status write_all(int folder, const char *in, const char *name, const char *text, char *why,
                                size_t why_size)
{
    const size_t size = strlen(text);
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && rg_file_write(fd, text, size) && ftruncate(fd, (off_t)size) == 0 && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        good = false;
    if (good)
        return RG_OK;
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", in, name);
    return failed("write", path, why, why_size);
}

enum rg_status rg_draft_write(struct rg_draft *draft, const char *name, const char *text, char *why,
                              size_t why_size)
{
    return write_all(draft->fd, draft->base, name, text, why, why_size);
}

enum rg_status rg_draft_reserve(struct rg_draft *draft, const char *name, size_t size, char *why,
                                size_t why_size)
{
    const int fd = openat(draft->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)size);
    if (fd >= 0)
        close(fd);
    if (!error)
        return RG_OK;
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", draft->base, name);
    errno = error;
    return failed("write", path, why, why_size);
}

/* So that what was renamed in it has its name after a power failure as well. */
static void sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/*
 * Where two folders cannot change places (NFS): an older one goes aside first, and comes back if the new one cannot
 * follow. Its lock keeps other drafts from removing it meanwhile.
 */
static bool replace_in_steps(const struct rg_draft *draft, const char *servers)
{
    char old[PATH_MAX];
    if (snprintf(old, sizeof old, "%s/" HIDDEN "XXXXXX", servers) >= (int)sizeof old || !mkdtemp(old))
        return false;
    const int lock = open_locked(draft->final);
    const bool aside = lock >= 0 && rename(draft->final, old) == 0;
    const bool good = aside && rename(draft->path, draft->final) == 0;
    const int error = errno;
    if (aside && !good)
        (void)rename(old, draft->final);
    else
        remove_folder(old);
    if (lock >= 0)
        close(lock);
    errno = error;
    return good;
}

enum rg_status rg_draft_commit(struct rg_draft *draft, char *why, size_t why_size)
{
    char from[PATH_MAX + 16], to[PATH_MAX + 16];
    const char *name = strrchr(draft->final, '/') + 1;
    snprintf(from, sizeof from, "%s\n", name);
    RG_TRY(rg_draft_write(draft, RG_CREDENTIALS_SERVER, from, why, why_size));
    enum rg_status status = rg_draft_write(draft, DEFAULT, from, why, why_size);
    if (status != RG_OK)
        return status;
    fsync(draft->fd);
    /* an older one and this change places in one step, so that there is one at every moment */
    const bool replaced = renameat2(AT_FDCWD, draft->path, AT_FDCWD, draft->final, RENAME_EXCHANGE) == 0;
    const bool in_the_way = !replaced && access(draft->final, F_OK) == 0;
    snprintf(from, sizeof from, "%.*s", (int)(name - 1 - draft->final), draft->final);
    if (!replaced && (in_the_way ? !replace_in_steps(draft, from) : rename(draft->path, draft->final) != 0))
        return failed("make", draft->final, why, why_size);
    sync_folder(from);
    if (replaced)
        remove_folder(draft->path);
    snprintf(from, sizeof from, "%s/%s", draft->final, DEFAULT);
    snprintf(to, sizeof to, "%s/%s", draft->base, RG_CREDENTIALS_SERVER);
    if (rename(from, to) != 0)
        status = failed("make", to, why, why_size);
    close(draft->fd);
    draft->fd = -1;
    sync_folder(draft->base);
    return status;
}

void rg_draft_abandon(struct rg_draft *draft)
{
    if (draft->fd < 0)
        return;
    remove_folder(draft->path);
    close(draft->fd);
    draft->fd = -1;
}

enum rg_status rg_draft_replace(const char *folder, const char *name, const char *text, char *why,
                                size_t why_size)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return failed("open", folder, why, why_size);
    char temporary[64];
    snprintf(temporary, sizeof temporary, ".%.32s-%d", name, (int)getpid());
    enum rg_status status = write_all(fd, folder, temporary, text, why, why_size);
    if (status == RG_OK && renameat(fd, temporary, fd, name) != 0)
        status = failed("replace", name, why, why_size);
    if (status != RG_OK)
        unlinkat(fd, temporary, 0);
    else
        fsync(fd);
    close(fd);
    return status;
}
