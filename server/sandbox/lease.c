/*
 * lease.c - the sandbox of one process: what of its identity's and of the machine's it gets.
 *
 * The caches of an identity are the folders `identities/DIGEST` below the configured ones.
 */
#include "server/sandbox/group.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/cuda/mps.h"
#include "server/sandbox/folders.h"
#include "server/sandbox/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MAX = 16384, THREADS_MAX = 16384 };

static const struct {
    const char *variable, *place;
    const char *off; /* the assignment where nothing is kept */
} caches[RG_SANDBOX_CACHES] = {
    [RG_SANDBOX_IMAGES] = {"REMOTE_GPU_IMAGE_CACHE", RG_SANDBOX_MOUNTED "/images",
                           "REMOTE_GPU_IMAGE_CACHE=off"},
    [RG_SANDBOX_SOFT] = {"SOFTGPU_CACHE", RG_SANDBOX_MOUNTED "/soft", "SOFTGPU_CACHE=off"},
    [RG_SANDBOX_CUDA] = {"CUDA_CACHE_PATH", RG_SANDBOX_MOUNTED "/cuda", "CUDA_CACHE_DISABLE=1"},
};

/* What the identity keeps below `base` ("": nothing): its real place, and the assignment for its processes. */
static void add_cache(const struct rg_sandbox_group *group, enum rg_sandbox_cache cache, const char *base,
                      struct rg_sandbox_lease *lease, int *n_keep)
{
    const bool mounted = lease->sandbox.policy.measures & RG_SANDBOX_MOUNTS;
    char parent[PATH_MAX], *folder = lease->caches[cache].folder;
    if (!*base || group->sandboxes->settings.share == RG_SANDBOX_SHARE_NONE ||
        snprintf(parent, sizeof parent, "%s/identities", base) >= (int)sizeof parent ||
        snprintf(folder, PATH_MAX, "%s/%s", parent, group->name) >= PATH_MAX)
        return;
    if (!rg_sandbox_make_path(base, 0700) || !rg_sandbox_own_folder(parent, 0711) ||
        !rg_sandbox_folder_of(folder, group->uid)) {
        rg_debug("nothing is kept in %s: %s", folder, strerror(errno));
        return;
    }
    if (mounted)
        lease->sandbox.keep[(*n_keep)++] = (struct rg_sandbox_keep){folder, caches[cache].place};
    snprintf(lease->caches[cache].assignment, sizeof lease->caches[cache].assignment, "%s=%s",
             caches[cache].variable, mounted ? caches[cache].place : folder);
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

static bool loads_driver(enum rg_sandbox_program program)
{
    return program == RG_SANDBOX_WORKER || program == RG_SANDBOX_PROBE || program == RG_SANDBOX_MANAGER;
}

void rg_sandbox_keep_folders(struct rg_sandbox_lease *lease, const char *driver, int n)
{
    static const char *const drivers[] = {"/run/nvidia-persistenced", "/run/opengl-driver"};
    /* where /etc/resolv.conf may lead */
    static const char *const names[] = {"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"};
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
    for (size_t i = 0; lease->sandbox.policy.program == RG_SANDBOX_POOL && i < sizeof names / sizeof names[0];
         i++)
        keep[n++].folder = names[i];
    const char *dump = getenv("SOFTGPU_DUMP_IR");
    if (dump && dump[0] == '/')
        keep[n++].folder = dump;
    if (lease->sandbox.policy.mps[0])
        keep[n++].folder = lease->sandbox.policy.mps;
    /* the driver opens further libraries by name, as its compiler: they lie beside it, which may be no place of the linker's */
    const bool beside = loads_driver(lease->sandbox.policy.program) && !lease->sandbox.policy.soft;
    rg_sandbox_find_libraries(lease, beside ? driver : NULL, n);
}

static uint32_t measures_of(const struct rg_sandboxes *sandboxes, enum rg_sandbox_program program)
{
    uint32_t measures = sandboxes->measures;
    if (sandboxes->given_up && loads_driver(program))
        return 0;
    if (program ==
        RG_SANDBOX_ACCOUNTANT) /* its file is the server's user's, in a folder that only this may enter */
        measures &= ~(uint32_t)(RG_SANDBOX_OWN_USER | RG_SANDBOX_MOUNTS | RG_SANDBOX_PROCESSES);
    if (program == RG_SANDBOX_MANAGER) /* it names the processes that use a GPU */
        measures &= ~(uint32_t)(RG_SANDBOX_MOUNTS | RG_SANDBOX_PROCESSES);
    if (program == RG_SANDBOX_POOL) /* its work is with the network */
        measures &= ~(uint32_t)RG_SANDBOX_NETWORK;
    if (program == RG_SANDBOX_PROBE) /* it looks at the machine's network; no client speaks to it */
        measures &= ~(uint32_t)(RG_SANDBOX_NETWORK | RG_SANDBOX_IPC);
    return measures;
}

uint32_t rg_sandboxes_measures(const struct rg_sandboxes *sandboxes)
{
    return measures_of(sandboxes, RG_SANDBOX_WORKER);
}

/*
 * The driver goes through MPS, or, whatever the server's environment says, not. NVIDIA's shares memory with the daemon, in the
 * machine's /dev/shm.
 */
static void set_mps(struct rg_sandbox_lease *lease, const char *folder)
{
    struct rg_sandbox *sandbox = &lease->sandbox;
    if (!loads_driver(sandbox->policy.program))
        return;
    snprintf(lease->mps, sizeof lease->mps, RG_MPS_FOLDER "=%s", folder ? folder : RG_MPS_NO_FOLDER);
    if (!folder)
        return;
    snprintf(sandbox->policy.mps, sizeof sandbox->policy.mps, "%s", folder);
    if (!sandbox->policy.soft)
        sandbox->shm = "/dev/shm";
}

static void fill_lease(struct rg_sandbox_lease *lease, struct rg_sandbox_group *group,
                       enum rg_sandbox_program program, const char *identity, const char *driver, bool soft,
                       uint64_t gpus, const char *mps)
{
    const struct rg_sandboxes *sandboxes = group->sandboxes;
    struct rg_sandbox *sandbox = &lease->sandbox;
    int n_keep = 0;
    *sandbox = RG_SANDBOX_INIT;
    sandbox->policy.program = program;
    sandbox->policy.mode = sandboxes->settings.mode;
    sandbox->policy.measures = measures_of(sandboxes, program);
    sandbox->policy.soft = soft;
    sandbox->policy.rdma = (sandboxes->settings.rdma && program != RG_SANDBOX_FRONTEND &&
                            program != RG_SANDBOX_ACCOUNTANT && program != RG_SANDBOX_POOL) ||
                           program == RG_SANDBOX_PROBE;
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
    if (program != RG_SANDBOX_FRONTEND && program != RG_SANDBOX_ACCOUNTANT && program != RG_SANDBOX_POOL)
        add_device_groups(sandbox);
    if (program == RG_SANDBOX_WORKER && *identity) {
        const bool mounted = sandbox->policy.measures & RG_SANDBOX_MOUNTS;
        char cuda[PATH_MAX] = "";
        if (sandboxes->image_base[0] && !soft)
            snprintf(cuda, sizeof cuda, "%.*s/cuda", PATH_MAX - 16, sandboxes->image_base);
        add_cache(group, RG_SANDBOX_IMAGES, sandboxes->image_base, lease, &n_keep);
        add_cache(group, RG_SANDBOX_SOFT, sandboxes->soft_base, lease, &n_keep);
        add_cache(group, RG_SANDBOX_CUDA, cuda, lease, &n_keep);
        snprintf(lease->shm, sizeof lease->shm, "%s", group->shm);
        sandbox->shm = lease->shm;
        if (mounted)
            sandbox->keep[n_keep++] =
                (struct rg_sandbox_keep){group->runtime, RG_SANDBOX_MOUNTED "/sessions"};
        snprintf(sandbox->policy.runtime, sizeof sandbox->policy.runtime, "%s",
                 mounted ? RG_SANDBOX_MOUNTED "/sessions" : group->runtime);
        snprintf(lease->soft_share, sizeof lease->soft_share, "SOFTGPU_SHARE=%s", sandbox->policy.runtime);
    }
    for (int i = 0; i < RG_SANDBOX_CACHES; i++)
        if (!*lease->caches[i].assignment)
            snprintf(lease->caches[i].assignment, sizeof lease->caches[i].assignment, "%s", caches[i].off);
    set_mps(lease, mps);
    rg_sandbox_keep_folders(lease, driver, n_keep);
    rg_sandbox_format(&sandbox->policy, lease->text);
}

struct rg_sandbox_lease *rg_sandboxes_lease(struct rg_sandboxes *sandboxes, enum rg_sandbox_program program,
                                            const char *identity, const char *driver, bool soft,
                                            uint64_t gpus, const struct rg_sandbox_extra *extra, char *why,
                                            size_t why_size)
{
    RG_CLEANUP_FREE struct rg_sandbox_lease *lease = calloc(1, sizeof *lease);
    if (!lease) {
        rg_explain(why, why_size, "no memory");
        return NULL;
    }
    struct rg_sandbox_group *group = rg_sandbox_group_of(sandboxes, identity, why, why_size);
    if (!group)
        return NULL;
    fill_lease(lease, group, program, identity, driver, soft, gpus, extra->mps);
    char *const own[] = {extra->variables[0],
                         extra->variables[1],
                         lease->mps,
                         lease->linker,
                         lease->nccl,
                         lease->caches[RG_SANDBOX_IMAGES].assignment,
                         lease->caches[RG_SANDBOX_SOFT].assignment,
                         lease->caches[RG_SANDBOX_CUDA].assignment,
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
    struct rg_sandbox_group *group = lease->group;
    struct rg_sandboxes *sandboxes = group->sandboxes;
    if (--group->users == 0) {
        struct rg_sandbox_group **link = &sandboxes->groups;
        while (*link != group)
            link = &(*link)->next;
        *link = group->next;
        rg_sandbox_group_free(group);
    }
    free(lease->environment);
    rg_sandbox_forget_libraries(lease);
    free(lease);
}
