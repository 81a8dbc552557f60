/*
 * group.c - see group.h.
 *
 * Below the server's runtime folder: `users/N`, locked shared by the servers that use uid N, with the identity's digest in it;
 * `identities/DIGEST/`, the runtime folder, owned by that uid, with `secret` and, unless that is in the machine's /dev/shm, `shm/`. Who takes or gives back either holds `lock` for
 * that moment: a lock that is exclusive before it is shared, or found to be unused before its file is removed, would show others
 * something that is about to change.
 */
#include "server/sandbox/group.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/cache/digest.h"
#include "server/sandbox/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { SECRET = 32 };

/* No server holds the lock for longer than a few system calls, unless it was stopped there. */
#define PATIENCE_NS 2000000000ull

/* Keeps all other servers of this machine from taking or giving back; -1: one of them does not let go. To be closed. */
static int lock_all(const struct rg_sandboxes *sandboxes)
{
    const uint64_t until = rg_now_ns() + PATIENCE_NS;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", sandboxes->base);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || rg_now_ns() >= until) {
            close(fd);
            return -1;
        }
        usleep(200);
    }
    return fd;
}

/* --- users ---------------------------------------------------------------------------------------------- */

/*
 * A file that is locked shared while `text` is what it stands for; -1: it stands for something else, or cannot be written (errno, then
 * not EWOULDBLOCK).
 */
static int claim(const char *path, const char *text)
{
    char held[RG_SANDBOX_GROUP_NAME + 1] = "";
    struct stat about;
    const size_t size = strlen(text);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    bool good = false;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        good = ftruncate(fd, 0) == 0 && pwrite(fd, text, size, 0) == (ssize_t)size &&
               flock(fd, LOCK_SH | LOCK_NB) == 0;
    else if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        good = pread(fd, held, RG_SANDBOX_GROUP_NAME, 0) == (ssize_t)size && memcmp(held, text, size) == 0;
    good = good && fstat(fd, &about) == 0 && about.st_nlink == 1;
    if (good)
        return fd;
    close(fd);
    return -1;
}

/* Whether nothing can be written there, so that other users are no use. */
static bool cannot_be_written(void)
{
    return errno == EFBIG || errno == ENOSPC || errno == EDQUOT || errno == EROFS || errno == EACCES;
}

/*
 * The identity's, or the first one from there that nobody uses; false: all are in use, or none can be noted (errno). The first of the
 * range is the server's own programs'.
 */
static bool take_user(struct rg_sandbox_group *group, bool own)
{
    const struct rg_sandboxes *sandboxes = group->sandboxes;
    const uint32_t n = sandboxes->last - sandboxes->first;
    const uint32_t start = (uint32_t)strtoul((char[]){group->name[0], group->name[1], group->name[2],
                                                      group->name[3], group->name[4], group->name[5], 0},
                                             NULL, 16);
    char path[PATH_MAX];
    for (uint32_t i = 0; i < (own ? 1 : n); i++) {
        const uid_t uid = own ? sandboxes->first : sandboxes->first + 1 + (start + i) % n;
        snprintf(path, sizeof path, "%s/users/%u", sandboxes->base, (unsigned)uid);
        errno = 0;
        group->uid_lock = claim(path, group->name);
        if (group->uid_lock >= 0) {
            group->uid = uid;
            return true;
        }
        if (cannot_be_written())
            return false;
    }
    return false;
}

/* --- groups: what an identity's processes have in common ------------------------------------------------- */

static bool write_secret(const struct rg_sandbox_group *group)
{
    char path[PATH_MAX];
    unsigned char secret[SECRET];
    snprintf(path, sizeof path, "%.*s/secret", PATH_MAX - 16, group->runtime);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == EEXIST;
    const bool good = getrandom(secret, sizeof secret, 0) == (ssize_t)sizeof secret &&
                      write(fd, secret, sizeof secret) == (ssize_t)sizeof secret &&
                      (!group->uid || fchown(fd, group->uid, group->uid) == 0);
    explicit_bzero(secret, sizeof secret);
    close(fd);
    if (!good)
        unlink(path);
    return good;
}

/* A device's driver cannot lock pages of a file that is on a disk, as /run is in many containers (since Linux 6.5). */
static bool is_in_memory(const char *folder)
{
    struct statfs about;
    return statfs(folder, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

/*
 * Whether the place in the machine's /dev/shm, where everybody may make folders, is free, or has what was left by a worker of such a server:
 * what is another user's is not removed.
 */
static bool may_take(const struct rg_sandboxes *sandboxes, const char *path)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return errno == ENOENT;
    return about.st_uid == geteuid() || (about.st_uid >= sandboxes->first && about.st_uid <= sandboxes->last);
}

/*
 * What becomes its processes' /dev/shm. In the machine's its name is of the server's folder itself, not of that one's path, which is
 * another folder in each container.
 */
static bool make_shared_memory(struct rg_sandbox_group *group)
{
    const char *base = group->sandboxes->base;
    struct stat about;
    if (!is_in_memory(base) && is_in_memory("/dev/shm") && stat(base, &about) == 0) {
        const struct rg_digest digest =
            rg_digest_of((const struct rg_digest_part[]){{&about.st_dev, sizeof about.st_dev},
                                                         {&about.st_ino, sizeof about.st_ino},
                                                         {group->name, RG_SANDBOX_GROUP_NAME}},
                         3);
        int used = snprintf(group->shm, sizeof group->shm, "/dev/shm/remote-gpu-%u-", (unsigned)geteuid());
        for (int i = 0; i < RG_SANDBOX_GROUP_NAME / 2; i++)
            used += snprintf(group->shm + used, sizeof group->shm - (size_t)used, "%02x", digest.bytes[i]);
        if (may_take(group->sandboxes, group->shm) && rg_sandbox_folder_of(group->shm, group->uid))
            return true;
    }
    snprintf(group->shm, sizeof group->shm, "%s/identities/%s/shm", base, group->name);
    return rg_sandbox_folder_of(group->shm, group->uid);
}

static bool make_runtime(struct rg_sandbox_group *group)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/identities/%s.lock", group->sandboxes->base, group->name);
    group->folder_lock = claim(path, group->name);
    snprintf(group->runtime, sizeof group->runtime, "%s/identities/%s", group->sandboxes->base, group->name);
    return group->folder_lock >= 0 && rg_sandbox_folder_of(group->runtime, group->uid) &&
           make_shared_memory(group) && write_secret(group);
}

void rg_sandbox_group_free(struct rg_sandbox_group *group)
{
    char path[PATH_MAX];
    RG_CLEANUP_FD int lock =
        group->folder_lock >= 0 || group->uid_lock >= 0 ? lock_all(group->sandboxes) : -1;
    if (group->folder_lock >= 0) {
        /* nobody else uses it, and nobody is about to */
        if (lock >= 0 && flock(group->folder_lock, LOCK_EX | LOCK_NB) == 0) {
            snprintf(path, sizeof path, "%s/identities/%s.lock", group->sandboxes->base, group->name);
            rg_sandbox_remove_tree(group->shm);
            rg_sandbox_remove_tree(group->runtime);
            unlink(path);
        }
        close(group->folder_lock);
    }
    if (group->uid_lock >= 0)
        close(group->uid_lock);
    rg_sandbox_namespaces_close(group->namespaces);
    free(group);
}

static void name_group(struct rg_sandboxes *sandboxes, const char *identity,
                       char out[RG_SANDBOX_GROUP_NAME + 1])
{
    char text[512];
    const size_t size = strlen(identity);
    if (!*identity)
        snprintf(text, sizeof text, "server");
    else if (sandboxes->settings.share == RG_SANDBOX_SHARE_NONE)
        snprintf(text, sizeof text, "session %d %llu", (int)getpid(),
                 (unsigned long long)++sandboxes->unique);
    else if (sandboxes->settings.share == RG_SANDBOX_SHARE_ANY)
        snprintf(text, sizeof text, "any");
    else
        snprintf(text, sizeof text, "identity");
    const struct rg_digest digest = rg_digest_of(
        (const struct rg_digest_part[]){
            {text, strlen(text)},
            {identity, sandboxes->settings.share == RG_SANDBOX_SHARE_IDENTITY ? size : 0}},
        2);
    for (int i = 0; i < RG_SANDBOX_GROUP_NAME / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", digest.bytes[i]);
}

/* What no two servers may have: the user and the folder. */
static bool take(struct rg_sandbox_group *group, bool own, char *why, size_t why_size)
{
    const struct rg_sandboxes *sandboxes = group->sandboxes;
    RG_CLEANUP_FD int lock = lock_all(sandboxes);
    if (lock < 0) {
        rg_explain(why, why_size, "%s/lock cannot be locked (%s): a server that was stopped may hold it",
                   sandboxes->base, strerror(errno));
        return false;
    }
    if ((sandboxes->measures & RG_SANDBOX_OWN_USER) && !take_user(group, own)) {
        if (cannot_be_written())
            rg_explain(why, why_size, "who has a user of its own cannot be written to %s/users: %s",
                       sandboxes->base,
                       errno == EFBIG ? "no file may be so large here (ulimit -f)" : strerror(errno));
        else
            rg_explain(why, why_size, "all users of the range %u-%u are in use; widen --worker-uids",
                       (unsigned)sandboxes->first, (unsigned)sandboxes->last);
        return false;
    }
    if (own || make_runtime(group))
        return true;
    rg_explain(why, why_size, "no folder for the identity's sessions in %s: %s", sandboxes->base,
               strerror(errno));
    return false;
}

struct rg_sandbox_group *rg_sandbox_group_of(struct rg_sandboxes *sandboxes, const char *identity, char *why,
                                             size_t why_size)
{
    char name[RG_SANDBOX_GROUP_NAME + 1];
    name_group(sandboxes, identity, name);
    for (struct rg_sandbox_group *group = sandboxes->groups; group; group = group->next)
        if (strcmp(group->name, name) == 0)
            return group;
    struct rg_sandbox_group *group = calloc(1, sizeof *group);
    if (!group) {
        rg_explain(why, why_size, "no memory");
        return NULL;
    }
    *group = (struct rg_sandbox_group){
        .sandboxes = sandboxes, .uid_lock = -1, .folder_lock = -1, .namespaces = {-1, -1, -1}};
    memcpy(group->name, name, sizeof name);
    bool good = take(group, !*identity, why, why_size);
    if (good)
        good = rg_sandbox_namespaces_make(sandboxes->measures, group->namespaces, why, why_size) == RG_OK;
    if (!good) {
        rg_sandbox_group_free(group);
        return NULL;
    }
    group->next = sandboxes->groups;
    sandboxes->groups = group;
    return group;
}
