/* folders.c - see folders.h. */
#include "server/sandbox/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 128 }; /* of folders in each other that are removed */

bool rg_sandbox_own_folder(const char *path, mode_t mode)
{
    struct stat about;
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return false;
    if (lstat(path, &about) != 0)
        return false;
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022)) {
        errno = EPERM;
        return false;
    }
    return (about.st_mode & 0777) == mode || chmod(path, mode) == 0;
}

bool rg_sandbox_make_path(const char *path, mode_t mode)
{
    char part[PATH_MAX];
    const int size = snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1; size < (int)sizeof part && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return mkdir(path, mode) == 0 || errno == EEXIST;
}

/* Of the folder `fd`, which is closed. Its entries may change meanwhile, so nothing is looked up by a path of two names. */
static void empty(int fd, int depth)
{
    DIR *folder = depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!folder) {
        close(fd);
        return;
    }
    for (struct dirent *at; (at = readdir(folder));) {
        if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(folder), at->d_name, 0) == 0 || (errno != EISDIR && errno != EPERM))
            continue;
        const int below = openat(dirfd(folder), at->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            empty(below, depth + 1);
        (void)unlinkat(dirfd(folder), at->d_name, AT_REMOVEDIR);
    }
    closedir(folder);
}

void rg_sandbox_remove_tree(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        empty(fd, 0);
    (void)remove(path);
}

bool rg_sandbox_folder_of(const char *path, uid_t uid)
{
    struct stat about;
    const uid_t owner = uid ? uid : geteuid();
    if (lstat(path, &about) == 0) {
        if (S_ISDIR(about.st_mode) && about.st_uid == owner && !(about.st_mode & 077))
            return true;
        rg_sandbox_remove_tree(path);
        if (lstat(path, &about) == 0) {
            errno = ENOTEMPTY;
            return false;
        }
    }
    return mkdir(path, 0700) == 0 && (owner == geteuid() || chown(path, uid, uid) == 0);
}
