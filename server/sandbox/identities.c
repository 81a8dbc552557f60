/*
 * identities.c - see identities.h.
 *
 * Where the server is root there is a folder /run/remote-gpu, its alone; else $XDG_RUNTIME_DIR/remote-gpu, or one in /tmp
 * that only its user may enter. In it: `users/N`, locked shared by the servers that use uid N, with the identity's digest in
 * it; `identities/DIGEST/`, the runtime folder, owned by that uid, with `secret` and `shm/`. The caches of an identity are the
 * folders `identities/DIGEST` below the configured ones.
 */
#include "server/sandbox/identities.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/cache/digest.h"
#include "common/cache/disk_cache.h"
#include "common/sync/scoped_lock.h"
#include "server/sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_FIRST 60578 /* what systemd leaves unused; see its page on users, groups, uids and gids */
#define DEFAULT_LAST  61179 /* above it is the frontend */
#define ROOT_BASE     "/run/remote-gpu"
/* where an identity's folders are in its mount namespace */
#define MOUNTED "/run/remote-gpu/own"

enum { NAME = 32, SECRET = 32, FILES_MAX = 16384, THREADS_MAX = 16384 };

struct group {
    struct group *next;
    struct rg_sandboxes *sandboxes;
    char name[NAME + 1]; /* of its folders */
    unsigned users;
    uid_t uid; /* 0: the server's */
    int uid_lock, folder_lock;
    int namespaces[RG_SANDBOX_NAMESPACES];
    char runtime[PATH_MAX];
};

struct rg_sandboxes {
    pthread_mutex_t lock;
    struct rg_sandbox_settings settings;
    uid_t first, last;
    uint32_t measures;
    uint64_t unique;
    bool given_up;
    struct group *groups;
    char base[PATH_MAX - 128];
    char image_base[PATH_MAX], soft_base[PATH_MAX]; /* "": none */
};

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

/* --- folders -------------------------------------------------------------------------------------------- */

/* Makes it if it is not there; false with errno: it is not a folder of this process's user alone. */
static bool own_folder(const char *path, mode_t mode)
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

static bool make_path(const char *path, mode_t mode)
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

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    (void)remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A folder that belongs to `uid` alone. One that belonged to another user is emptied: nothing in it is worth a doubt. */
static bool folder_of(const char *path, uid_t uid)
{
    struct stat about;
    const uid_t owner = uid ? uid : geteuid();
    if (lstat(path, &about) == 0 &&
        (!S_ISDIR(about.st_mode) || about.st_uid != owner || (about.st_mode & 077)))
        remove_tree(path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return false;
    return about.st_uid == owner || chown(path, uid, uid) == 0;
}

static bool find_base(struct rg_sandboxes *sandboxes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char part[PATH_MAX];
    if (geteuid() == 0)
        snprintf(sandboxes->base, sizeof sandboxes->base, "%s", ROOT_BASE);
    else if (runtime && runtime[0] == '/' && access(runtime, W_OK) == 0 &&
             strlen(runtime) < sizeof sandboxes->base - 16)
        snprintf(sandboxes->base, sizeof sandboxes->base, "%.*s/remote-gpu", (int)sizeof sandboxes->base - 16,
                 runtime);
    else
        snprintf(sandboxes->base, sizeof sandboxes->base, "/tmp/remote-gpu-%u", (unsigned)geteuid());
    if (!own_folder(sandboxes->base, geteuid() == 0 ? 0711 : 0700))
        return false;
    snprintf(part, sizeof part, "%s/users", sandboxes->base);
    if (!own_folder(part, 0700))
        return false;
    snprintf(part, sizeof part, "%s/identities", sandboxes->base);
    return own_folder(part, geteuid() == 0 ? 0711 : 0700);
}

/* --- users ---------------------------------------------------------------------------------------------- */

/* A file that is locked shared while `text` is what it stands for; -1: it stands for something else. */
static int claim(const char *path, const char *text)
{
    char held[NAME + 1] = "";
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
        good = pread(fd, held, NAME, 0) == (ssize_t)size && memcmp(held, text, size) == 0;
    good = good && fstat(fd, &about) == 0 && about.st_nlink == 1;
    if (good)
        return fd;
    close(fd);
    return -1;
}

/* The identity's, or the first one from there that nobody uses. The first two are the server's own programs'. */
static bool take_user(struct group *group, bool own)
{
    const struct rg_sandboxes *sandboxes = group->sandboxes;
    const uint32_t n = sandboxes->last - sandboxes->first + 1 - 1;
    const uint32_t start = (uint32_t)strtoul((char[]){group->name[0], group->name[1], group->name[2],
                                                      group->name[3], group->name[4], group->name[5], 0},
                                             NULL, 16);
    char path[PATH_MAX];
    for (uint32_t i = 0; i < (own ? 1 : n); i++) {
        const uid_t uid = own ? sandboxes->first : sandboxes->first + 1 + (start + i) % n;
        snprintf(path, sizeof path, "%s/users/%u", sandboxes->base, (unsigned)uid);
        group->uid_lock = claim(path, group->name);
        if (group->uid_lock >= 0) {
            group->uid = uid;
            return true;
        }
    }
    return false;
}

/* --- groups: what an identity's processes have in common ------------------------------------------------- */

static bool write_secret(const struct group *group)
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

static bool make_runtime(struct group *group)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/identities/%s.lock", group->sandboxes->base, group->name);
    for (int i = 0; i < 100 && group->folder_lock < 0; i++) {
        group->folder_lock = claim(path, group->name);
        if (group->folder_lock < 0)
            usleep(1000); /* another server is removing it */
    }
    snprintf(group->runtime, sizeof group->runtime, "%s/identities/%s", group->sandboxes->base, group->name);
    snprintf(path, sizeof path, "%s/identities/%s/shm", group->sandboxes->base, group->name);
    return group->folder_lock >= 0 && folder_of(group->runtime, group->uid) && folder_of(path, group->uid) &&
           write_secret(group);
}

static void free_group(struct group *group)
{
    char path[PATH_MAX];
    if (group->folder_lock >= 0) {
        /* nobody else uses it */
        if (flock(group->folder_lock, LOCK_EX | LOCK_NB) == 0) {
            snprintf(path, sizeof path, "%s/identities/%s.lock", group->sandboxes->base, group->name);
            remove_tree(group->runtime);
            unlink(path);
        }
        close(group->folder_lock);
    }
    if (group->uid_lock >= 0)
        close(group->uid_lock);
    rg_sandbox_namespaces_close(group->namespaces);
    free(group);
}

static void name_group(struct rg_sandboxes *sandboxes, const char *identity, char out[NAME + 1])
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
    for (int i = 0; i < NAME / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", digest.bytes[i]);
}

/* The lock is held. */
static struct group *group_of(struct rg_sandboxes *sandboxes, const char *identity, char *why,
                              size_t why_size)
{
    char name[NAME + 1];
    name_group(sandboxes, identity, name);
    for (struct group *group = sandboxes->groups; group; group = group->next)
        if (strcmp(group->name, name) == 0)
            return group;
    struct group *group = calloc(1, sizeof *group);
    if (!group) {
        rg_explain(why, why_size, "no memory");
        return NULL;
    }
    *group =
        (struct group){.sandboxes = sandboxes, .uid_lock = -1, .folder_lock = -1, .namespaces = {-1, -1, -1}};
    memcpy(group->name, name, sizeof name);
    bool good = true;
    if (sandboxes->measures & RG_SANDBOX_OWN_USER) {
        good = take_user(group, !*identity);
        if (!good)
            rg_explain(why, why_size, "all users of the range %u-%u are in use; widen --worker-uids",
                       (unsigned)sandboxes->first, (unsigned)sandboxes->last);
    }
    if (good && *identity && !make_runtime(group)) {
        rg_explain(why, why_size, "no folder for the identity's sessions in %s: %s", sandboxes->base,
                   strerror(errno));
        good = false;
    }
    if (good)
        good = rg_sandbox_namespaces_make(sandboxes->measures, group->namespaces, why, why_size) == RG_OK;
    if (!good) {
        free_group(group);
        return NULL;
    }
    group->next = sandboxes->groups;
    sandboxes->groups = group;
    return group;
}

/* --- leases --------------------------------------------------------------------------------------------- */

/* What the identity keeps below `base`: its real place, and `VARIABLE=…` for its processes. */
static void add_cache(const struct group *group, const char *base, const char *variable, const char *name,
                      struct rg_sandbox_lease *lease, int *n_keep, char *folder, char *assignment,
                      size_t size)
{
    const bool mounted = lease->sandbox.policy.measures & RG_SANDBOX_MOUNTS;
    char parent[PATH_MAX];
    static const char *const at[] = {MOUNTED "/images", MOUNTED "/soft", MOUNTED "/cuda"};
    const char *place = at[name[0] == 'i' ? 0 : name[0] == 's' ? 1 : 2];
    bool good = *base && group->sandboxes->settings.share != RG_SANDBOX_SHARE_NONE &&
                snprintf(parent, sizeof parent, "%s/identities", base) < (int)sizeof parent &&
                snprintf(folder, PATH_MAX, "%s/%s", parent, group->name) < PATH_MAX;
    if (good) {
        good = make_path(base, 0700) && own_folder(parent, 0711) && folder_of(folder, group->uid);
        if (!good)
            rg_debug("nothing is kept in %s: %s", folder, strerror(errno));
    }
    if (good && mounted) {
        lease->sandbox.keep[(*n_keep)++] = (struct rg_sandbox_keep){folder, place};
        snprintf(assignment, size, "%s=%s", variable, place);
    } else {
        snprintf(assignment, size, "%s=%s", variable, good ? folder : "off");
    }
}

/* Groups that the GPU's device files are for, where only groups may open them. */
static void add_device_groups(struct rg_sandbox *sandbox)
{
    static const char *const files[] = {"/dev/nvidiactl",          "/dev/nvidia0",
                                        "/dev/nvidia-uvm",         "/dev/infiniband/uverbs0",
                                        "/dev/infiniband/rdma_cm", "/dev/nvmap"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat about;
        if (stat(files[i], &about) != 0 || (about.st_mode & 006) == 006 || (about.st_mode & 060) != 060 ||
            about.st_gid == 0)
            continue;
        bool there = false;
        for (int j = 0; j < sandbox->n_devices; j++)
            there = there || sandbox->devices[j] == about.st_gid;
        if (!there && sandbox->n_devices < (int)(sizeof sandbox->devices / sizeof sandbox->devices[0]))
            sandbox->devices[sandbox->n_devices++] = about.st_gid;
    }
}

static void keep_folders(struct rg_sandbox_lease *lease, const char *driver, int n)
{
    static const char *const drivers[] = {"/run/nvidia-persistenced", "/run/opengl-driver",
                                          "/tmp/nvidia-mps"};
    struct rg_sandbox_keep *keep = lease->sandbox.keep;
    if (rg_path_library("", lease->library, sizeof lease->library) == RG_OK)
        keep[n++].folder = lease->library;
    char *slash = driver && realpath(driver, lease->driver) ? strrchr(lease->driver, '/') : NULL;
    if (slash && slash != lease->driver) {
        *slash = '\0';
        keep[n++].folder = lease->driver;
    }
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        keep[n++].folder = drivers[i];
    const char *dump = getenv("SOFTGPU_DUMP_IR");
    if (dump && dump[0] == '/')
        keep[n++].folder = dump;
}

static uint32_t measures_of(const struct rg_sandboxes *sandboxes, enum rg_sandbox_program program)
{
    uint32_t measures = sandboxes->measures;
    if (sandboxes->given_up && program != RG_SANDBOX_NETPERF && program != RG_SANDBOX_FRONTEND)
        return 0;
    if (program == RG_SANDBOX_MANAGER) /* it names the processes that use a GPU */
        measures &= ~(uint32_t)(RG_SANDBOX_MOUNTS | RG_SANDBOX_PROCESSES);
    if (program == RG_SANDBOX_PROBE) /* it looks at the machine's network; no client speaks to it */
        measures &= ~(uint32_t)(RG_SANDBOX_NETWORK | RG_SANDBOX_IPC);
    return measures;
}

static void fill_lease(struct rg_sandbox_lease *lease, struct group *group, enum rg_sandbox_program program,
                       const char *identity, const char *driver, bool soft, uint64_t gpus)
{
    const struct rg_sandboxes *sandboxes = group->sandboxes;
    struct rg_sandbox *sandbox = &lease->sandbox;
    int n_keep = 0;
    *sandbox = RG_SANDBOX_INIT;
    sandbox->policy.program = program;
    sandbox->policy.mode = sandboxes->settings.mode;
    sandbox->policy.measures = measures_of(sandboxes, program);
    sandbox->policy.soft = soft;
    sandbox->policy.rdma =
        (sandboxes->settings.rdma && program != RG_SANDBOX_FRONTEND) || program == RG_SANDBOX_PROBE;
    sandbox->policy.gpus = gpus;
    sandbox->uid = sandbox->gid = group->uid;
    sandbox->max_files = FILES_MAX;
    sandbox->max_processes = THREADS_MAX;
    if (sandbox->policy.measures & (RG_SANDBOX_MOUNTS | RG_SANDBOX_IPC | RG_SANDBOX_NETWORK))
        sandbox->namespaces[RG_SANDBOX_NS_USER] = group->namespaces[RG_SANDBOX_NS_USER];
    if (sandbox->policy.measures & RG_SANDBOX_IPC)
        sandbox->namespaces[RG_SANDBOX_NS_IPC] = group->namespaces[RG_SANDBOX_NS_IPC];
    if (sandbox->policy.measures & RG_SANDBOX_NETWORK)
        sandbox->namespaces[RG_SANDBOX_NS_NET] = group->namespaces[RG_SANDBOX_NS_NET];
    if (driver && strlen(driver) < PATH_MAX)
        memcpy(sandbox->policy.driver, driver, strlen(driver) + 1);
    if (program != RG_SANDBOX_FRONTEND)
        add_device_groups(sandbox);
    if (program == RG_SANDBOX_WORKER && *identity) {
        const bool mounted = sandbox->policy.measures & RG_SANDBOX_MOUNTS;
        add_cache(group, sandboxes->image_base, "REMOTE_GPU_IMAGE_CACHE", "images", lease, &n_keep,
                  lease->folders[0], lease->image_cache, sizeof lease->image_cache);
        add_cache(group, sandboxes->soft_base, "SOFTGPU_CACHE", "soft", lease, &n_keep, lease->folders[1],
                  lease->soft_cache, sizeof lease->soft_cache);
        char cuda[PATH_MAX] = "";
        if (sandboxes->image_base[0] && !soft)
            snprintf(cuda, sizeof cuda, "%.*s/cuda", PATH_MAX - 16, sandboxes->image_base);
        add_cache(group, cuda, "CUDA_CACHE_PATH", "cuda", lease, &n_keep, lease->folders[2],
                  lease->cuda_cache, sizeof lease->cuda_cache);
        snprintf(lease->shm, sizeof lease->shm, "%.*s/shm", PATH_MAX - 16, group->runtime);
        sandbox->shm = lease->shm;
        if (mounted)
            sandbox->keep[n_keep++] = (struct rg_sandbox_keep){group->runtime, MOUNTED "/sessions"};
        snprintf(sandbox->policy.runtime, sizeof sandbox->policy.runtime, "%s",
                 mounted ? MOUNTED "/sessions" : group->runtime);
        snprintf(lease->soft_share, sizeof lease->soft_share, "SOFTGPU_SHARE=%s", sandbox->policy.runtime);
    }
    if (program != RG_SANDBOX_WORKER) {
        snprintf(lease->image_cache, sizeof lease->image_cache, "REMOTE_GPU_IMAGE_CACHE=off");
        snprintf(lease->soft_cache, sizeof lease->soft_cache, "SOFTGPU_CACHE=off");
        snprintf(lease->cuda_cache, sizeof lease->cuda_cache, "CUDA_CACHE_DISABLE=1");
    }
    keep_folders(lease, driver, n_keep);
    rg_sandbox_format(&sandbox->policy, lease->text);
}

struct rg_sandbox_lease *rg_sandboxes_lease(struct rg_sandboxes *sandboxes, enum rg_sandbox_program program,
                                            const char *identity, const char *driver, bool soft,
                                            uint64_t gpus, char *variable, char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct rg_sandbox_lease *lease = calloc(1, sizeof *lease);
    if (!lease) {
        rg_explain(why, why_size, "no memory");
        return NULL;
    }
    RG_SCOPED_LOCK(&sandboxes->lock);
    struct group *group = group_of(sandboxes, identity, why, why_size);
    if (!group)
        return NULL;
    fill_lease(lease, group, program, identity, driver, soft, gpus);
    const bool kept = strcmp(lease->cuda_cache, "CUDA_CACHE_PATH=off") != 0;
    char *const own[] = {variable, lease->image_cache, lease->soft_cache,
                         kept ? lease->cuda_cache
                              : NULL, /* without one NVIDIA's driver keeps nothing: it has no home */
                         lease->soft_share};
    lease->environment = rg_sandbox_environment(own, sizeof own / sizeof own[0]);
    lease->group = group;
    group->users++;
    return RG_TAKE_PTR(lease);
}

void rg_sandbox_release(struct rg_sandbox_lease *lease)
{
    if (!lease)
        return;
    struct group *group = lease->group;
    struct rg_sandboxes *sandboxes = group->sandboxes;
    pthread_mutex_lock(&sandboxes->lock);
    if (--group->users == 0) {
        struct group **link = &sandboxes->groups;
        while (*link != group)
            link = &(*link)->next;
        *link = group->next;
        free_group(group);
    }
    pthread_mutex_unlock(&sandboxes->lock);
    free(lease->environment);
    free(lease);
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

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
    struct rg_sandbox_lease trial = {.shm = ""};
    char missing[1024] = "", names[512];
    uint32_t wanted = RG_SANDBOX_ALL;
    if (sandboxes->settings.rdma)
        wanted &= ~(uint32_t)(RG_SANDBOX_NETWORK | RG_SANDBOX_IPC);
    trial.sandbox = RG_SANDBOX_INIT;
    trial.sandbox.policy = (struct rg_sandbox_policy){
        .program = RG_SANDBOX_WORKER, .mode = RG_SANDBOX_AUTO, .measures = wanted, .soft = true};
    trial.sandbox.uid = trial.sandbox.gid = sandboxes->last;
    keep_folders(&trial, NULL, 0);
    if (geteuid() != 0)
        trial.sandbox.policy.measures &= ~(uint32_t)(RG_SANDBOX_OWN_USER | RG_SANDBOX_PROCESSES);
    sandboxes->measures = rg_sandbox_find(&trial.sandbox, missing, sizeof missing);
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
    pthread_mutex_init(&sandboxes->lock, NULL);
    find_caches(sandboxes);
    bool good = read_range(sandboxes, settings->uids, why, why_size);
    if (good && !find_base(sandboxes)) {
        rg_explain(why, why_size, "%s cannot be this server's folder: %s", sandboxes->base, strerror(errno));
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
        struct group *group = sandboxes->groups;
        sandboxes->groups = group->next;
        free_group(group);
    }
    pthread_mutex_destroy(&sandboxes->lock);
    free(sandboxes);
}

uint32_t rg_sandboxes_measures(const struct rg_sandboxes *sandboxes)
{
    return sandboxes->measures;
}

enum rg_sandbox_mode rg_sandboxes_mode(const struct rg_sandboxes *sandboxes)
{
    return sandboxes->settings.mode;
}

void rg_sandboxes_give_up(struct rg_sandboxes *sandboxes, bool given_up)
{
    sandboxes->given_up = given_up;
}
