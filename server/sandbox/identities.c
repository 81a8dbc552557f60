/*
 * identities.c - see identities.h. Here: what the settings and the machine allow; the server's runtime folder.
 *
 * Where the server is root, who can become others, that is /run/remote-gpu, its alone; else $XDG_RUNTIME_DIR/remote-gpu. Where there can
 * be none, as in containers whose files are read-only, it is one of its user's in a folder for temporary files.
 */
#include "server/sandbox/identities.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/cache/disk_cache.h"
#include "server/sandbox/folders.h"
#include "server/sandbox/group.h"

#include <cap-ng.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_FIRST 60578 /* what systemd leaves unused; see its page on users, groups, uids and gids */
#define DEFAULT_LAST  61179 /* above it is the frontend */
#define ROOT_BASE     "/run/remote-gpu"
#define NAMES_OF_ONE  16u

bool rg_sandbox_share_by_name(const char *name, enum rg_sandbox_share *out)
{
    static const char *const names[] = {"none", "identity", "any"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum rg_sandbox_share)i;
            return true;
        }
    return false;
}

/* Whether there is such a user, or group, in this user namespace; `map`: of /proc/self. */
static bool is_mapped(const char *map, uid_t number)
{
    unsigned long first, outside, n;
    FILE *file = fopen(map, "re");
    bool found = !file; /* a kernel without such namespaces */
    while (!found && fscanf(file, "%lu %lu %lu", &first, &outside, &n) == 3)
        found = number >= first && number - first < n;
    if (file)
        fclose(file);
    return found;
}

/* Root may be without, as in a container that is started with --cap-drop all. */
static bool may_change_users(void)
{
    static const unsigned needed[] = {CAP_SETUID, CAP_SETGID, CAP_SYS_CHROOT};
    bool may = capng_get_caps_process() == 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        may = may && capng_have_capability(CAPNG_EFFECTIVE, needed[i]);
    return may;
}

bool rg_sandbox_can_become(uid_t user)
{
    return geteuid() == 0 && may_change_users() && is_mapped("/proc/self/uid_map", user) &&
           is_mapped("/proc/self/gid_map", user);
}

/*
 * Whether root's folder may lie there (`real`: by its own path): everybody may pass through, as the users of root's workers must who have
 * no mounts of their own, and nobody else may rename what is root's, there or in any folder above.
 */
static bool is_fit_for_root(const char *path, char real[PATH_MAX])
{
    char at[PATH_MAX];
    struct stat about;
    if (!realpath(path, real))
        return false;
    memcpy(at, real, strlen(real) + 1);
    for (;;) {
        if (stat(at[0] ? at : "/", &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != 0 ||
            !(about.st_mode & S_IXOTH) || ((about.st_mode & 022) && !(about.st_mode & S_ISVTX)))
            return false;
        char *slash = strrchr(at, '/');
        if (!slash || !slash[1])
            return true;
        *slash = '\0';
    }
}

/* That is the server's folder, with its parts; false: errno says why not. */
static bool take_base(struct rg_sandboxes *sandboxes, const char *path, bool root)
{
    static const char *const names[] = {"users", "identities"};
    char part[PATH_MAX];
    if ((size_t)snprintf(sandboxes->base, sizeof sandboxes->base, "%s", path) >= sizeof sandboxes->base) {
        errno = ENAMETOOLONG;
        return false;
    }
    bool own = rg_sandbox_own_folder(sandboxes->base, root ? 0711 : 0700);
    for (size_t i = 0; i < sizeof names / sizeof *names && own; i++) {
        snprintf(part, sizeof part, "%s/%s", sandboxes->base, names[i]);
        own = rg_sandbox_own_folder(part, root && i > 0 ? 0711 : 0700);
    }
    return own &&
           access(sandboxes->base, W_OK) == 0; /* it may be an earlier one's, on what is read-only now */
}

/* Anyone may make folders there, also those whose names are meant for others: then the next name is taken. */
static bool take_in_shared(struct rg_sandboxes *sandboxes, const char *parent, bool root)
{
    char path[PATH_MAX], real[PATH_MAX];
    bool own = false;
    if (!parent || parent[0] != '/' || (root && !is_fit_for_root(parent, real)))
        return false;
    parent = root ? real : parent;
    for (unsigned i = 0; i < NAMES_OF_ONE && !own; i++) {
        char further[16] = "";
        if (i > 0)
            snprintf(further, sizeof further, "-%u", i);
        own = snprintf(path, sizeof path, "%s/remote-gpu-%u%s", parent, (unsigned)geteuid(), further) <
                  (int)sizeof path &&
              take_base(sandboxes, path, root);
    }
    return own;
}

/* Containers whose files are read-only have /dev/shm at least. */
static bool take_elsewhere(struct rg_sandboxes *sandboxes, bool root)
{
    const char *const parents[] = {"/tmp", getenv("TMPDIR"), "/var/tmp", "/dev/shm"};
    bool own = false;
    for (size_t i = 0; i < sizeof parents / sizeof *parents && !own; i++)
        own = take_in_shared(sandboxes, parents[i], root);
    return own;
}

/* Whether nothing can be made there. What is there and is somebody else's is for its owner to look after. */
static bool cannot_be_made(int error)
{
    return error == EROFS || error == EACCES || error == ENOENT || error == ENOSPC || error == EDQUOT;
}

/* False: errno, and `base` says where it should have been. */
static bool find_base(struct rg_sandboxes *sandboxes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char usual[PATH_MAX] = "/tmp";
    const bool root = rg_sandbox_can_become(sandboxes->first); /* else /run may be another's */
    const bool own = !root && runtime && runtime[0] == '/' && access(runtime, W_OK) == 0;
    if (root)
        snprintf(usual, sizeof usual, "%s", ROOT_BASE);
    else if (own)
        snprintf(usual, sizeof usual, "%.*s/remote-gpu", PATH_MAX - 16, runtime);
    if ((root || own) && take_base(sandboxes, usual, root))
        return true;
    const int error = root || own ? errno : EACCES;
    if (cannot_be_made(error) && take_elsewhere(sandboxes, root)) {
        if (root || own)
            rg_info("%s is this server's folder, as %s cannot be (%s)", sandboxes->base, usual,
                    strerror(error));
        return true;
    }
    snprintf(sandboxes->base, sizeof sandboxes->base, "%.*s", (int)sizeof sandboxes->base - 1, usual);
    errno = error;
    return false;
}

static bool read_range(struct rg_sandboxes *sandboxes, const char *text, char *why, size_t why_size)
{
    unsigned long long first = DEFAULT_FIRST, last = DEFAULT_LAST;
    int used = 0;
    if (text && (sscanf(text, "%llu-%llu%n", &first, &last, &used) != 2 || text[used] || first == 0 ||
                 last <= first || last >= 0xfffffffeull)) {
        rg_explain(why, why_size,
                   "--worker-uids %s: it must be FIRST-LAST, two numbers of users at least, without 0", text);
        return false;
    }
    sandboxes->first = (uid_t)first;
    sandboxes->last = (uid_t)last;
    return true;
}

/* Where caches are by default: of root's none is in a home, where others could not reach it. */
static void find_caches(struct rg_sandboxes *sandboxes)
{
    const char *image = sandboxes->settings.image_cache;
    if (image)
        snprintf(sandboxes->image_base, sizeof sandboxes->image_base, "%s",
                 strcmp(image, "off") == 0 ? "" : image);
    else if (!rg_disk_cache_folder("REMOTE_GPU_IMAGE_CACHE", "images", sandboxes->image_base,
                                   sizeof sandboxes->image_base))
        sandboxes->image_base[0] = '\0';
    if (!rg_disk_cache_folder("SOFTGPU_CACHE", "soft", sandboxes->soft_base, sizeof sandboxes->soft_base))
        sandboxes->soft_base[0] = '\0';
    char *const bases[] = {sandboxes->image_base, sandboxes->soft_base};
    for (int i = 0; i < 2; i++) {
        char full[PATH_MAX];
        if (bases[i][0] && bases[i][0] != '/' && getcwd(full, sizeof full) &&
            strlen(full) + 1 + strlen(bases[i]) < sizeof full) {
            strcat(strcat(full, "/"), bases[i]);
            memcpy(bases[i], full, strlen(full) + 1);
        }
    }
}

static bool find_measures(struct rg_sandboxes *sandboxes, char *why, size_t why_size)
{
    const enum rg_sandbox_mode mode = sandboxes->settings.mode;
    RG_CLEANUP_FREE struct rg_sandbox_lease *trial = calloc(1, sizeof *trial);
    char missing[1024] = "", names[512];
    uint32_t wanted = RG_SANDBOX_ALL;
    if (sandboxes->settings.rdma)
        wanted &= ~(uint32_t)(RG_SANDBOX_NETWORK | RG_SANDBOX_IPC);
    if (!trial) {
        rg_explain(why, why_size, "no memory");
        return false;
    }
    trial->sandbox = RG_SANDBOX_INIT;
    trial->sandbox.policy = (struct rg_sandbox_policy){
        .program = RG_SANDBOX_WORKER, .mode = RG_SANDBOX_AUTO, .measures = wanted, .soft = true};
    trial->sandbox.uid = trial->sandbox.gid = sandboxes->last;
    /* as workers have them: where there is no /run, as on a root that is read-only, they cannot be made */
    trial->sandbox.keep[0] = (struct rg_sandbox_keep){sandboxes->base, RG_SANDBOX_MOUNTED};
    rg_sandbox_keep_folders(trial, NULL, 1);
    if (geteuid() != 0)
        trial->sandbox.policy.measures &= ~(uint32_t)(RG_SANDBOX_OWN_USER | RG_SANDBOX_PROCESSES);
    sandboxes->measures = rg_sandbox_find(&trial->sandbox, missing, sizeof missing);
    rg_sandbox_forget_libraries(trial);
    if (geteuid() != 0)
        snprintf(missing + strlen(missing), sizeof missing - strlen(missing),
                 "%sown user: the server is not root", missing[0] ? "; " : "");
    rg_sandbox_describe(sandboxes->measures, names, sizeof names);
    rg_info("sandbox (%s): %s", rg_sandbox_mode_name(mode), names);
    if (missing[0])
        rg_log(mode == RG_SANDBOX_STRICT ? RG_LOG_ERROR : RG_LOG_INFO, "sandbox: not to be had here: %s",
               missing);
    if (sandboxes->settings.rdma)
        rg_info("sandbox: RDMA is allowed, so workers share the network of the server");
    if (mode != RG_SANDBOX_STRICT || sandboxes->measures == wanted)
        return true;
    rg_explain(why, why_size, "--sandbox=strict, but this is not to be had here: %s", missing);
    return false;
}

struct rg_sandboxes *rg_sandboxes_open(const struct rg_sandbox_settings *settings, char *why, size_t why_size)
{
    struct rg_sandboxes *sandboxes = calloc(1, sizeof *sandboxes);
    if (!sandboxes) {
        rg_explain(why, why_size, "no memory");
        return NULL;
    }
    sandboxes->settings = *settings;
    find_caches(sandboxes);
    bool good = read_range(sandboxes, settings->uids, why, why_size);
    if (good && !find_base(sandboxes)) {
        rg_explain(why, why_size,
                   "%s cannot be this server's folder: %s; it needs one that it alone can write, there or in "
                   "$TMPDIR, /tmp or /dev/shm, as on a file system in memory (mount -t tmpfs, --tmpfs of a "
                   "container)",
                   sandboxes->base, strerror(errno));
        good = false;
    }
    if (good && settings->mode == RG_SANDBOX_OFF)
        rg_warn("sandbox: off: a client that takes over its worker has all rights of this server");
    else if (good)
        good = find_measures(sandboxes, why, why_size);
    if (good)
        return sandboxes;
    rg_sandboxes_close(sandboxes);
    return NULL;
}

void rg_sandboxes_close(struct rg_sandboxes *sandboxes)
{
    if (!sandboxes)
        return;
    while (sandboxes->groups) {
        struct rg_sandbox_group *group = sandboxes->groups;
        sandboxes->groups = group->next;
        rg_sandbox_group_free(group);
    }
    free(sandboxes);
}

enum rg_sandbox_mode rg_sandboxes_mode(const struct rg_sandboxes *sandboxes)
{
    return sandboxes->settings.mode;
}

void rg_sandboxes_give_up(struct rg_sandboxes *sandboxes, bool given_up)
{
    sandboxes->given_up = given_up;
}
