/*
 * files.c - the files that a confined program may use, as data, and Landlock made of it.
 *
 * Landlock looks when a file is opened (and at making, removing and renaming), not at what was open before or is
 * inherited. What is not listed is refused with EACCES. Asking for names (stat) is not restricted: whether a file
 * exists can be found out as far as the user's rights go.
 */
#include "server/sandbox/internal.h"

#include "common/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the list ------------------------------------------------------------------------------------------- */

enum access {
    READ = 1,   /* files and folders below */
    WRITE = 2,  /* existing files below */
    DEVICE = 4, /* ioctl */
    CHANGE = 8, /* makes, removes and renames files below */
    EXECUTE = 16,
};

/* Whom a rule is for: all of the bits that are set must hold. */
enum whom {
    ALL = 0,
    NVIDIA = 1, /* NVIDIA's driver or NVML is loaded */
    RDMA = 2,   /* RDMA is allowed */
    NETPERF = 8,
    MANAGER = 16,
    POOL = 32,
};

static const struct rule {
    const char *path;
    int access, whom;
} rules[] = {
    /* libraries, the driver's and ours */
    {"/usr", READ, ALL},
    {"/lib", READ, ALL},
    {"/lib32", READ, ALL},
    {"/lib64", READ, ALL},
    {"/nix/store", READ, ALL},
    {"/etc/ld.so.cache", READ, ALL},
    {"/etc/ld.so.preload", READ, ALL},
    {"/etc/localtime", READ, ALL},
    {"/etc/machine-id", READ, ALL}, /* of which the software device makes its UUIDs */
    /* what every C program may ask for */
    {"/dev/null", READ | WRITE, ALL},
    {"/dev/zero", READ | WRITE, ALL},
    {"/dev/full", READ | WRITE, ALL},
    {"/dev/random", READ, ALL},
    {"/dev/urandom", READ, ALL},
    {"/proc/self", READ | WRITE, ALL},
    {"/proc/cpuinfo", READ, ALL},
    {"/proc/meminfo", READ, ALL},
    {"/proc/stat", READ, ALL},
    {"/proc/version", READ, ALL},
    {"/proc/filesystems", READ, ALL},
    {"/proc/sys/vm", READ, ALL},
    {"/proc/sys/kernel", READ, ALL},
    /* topology: processors, memory nodes, devices, limits of this process's control group */
    {"/sys/devices", READ, ALL},
    {"/sys/bus", READ, ALL},
    {"/sys/class", READ, ALL},
    {"/sys/module", READ, ALL},
    {"/sys/kernel/mm", READ, ALL},
    {"/sys/fs/cgroup", READ, ALL},
    /* NVIDIA's driver; /dev/nvidia0, … are added by number */
    {"/dev/nvidiactl", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-uvm", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-uvm-tools", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-modeset", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-caps", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-caps-imex-channels", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvidia-nvswitchctl", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvmap", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvgpu", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvhost-ctrl-gpu", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/nvhost-gpu", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/dxg", READ | WRITE | DEVICE, NVIDIA},
    {"/dev/shm", READ | WRITE | CHANGE, NVIDIA}, /* memory shared by processes of one user */
    {"/proc/driver", READ | WRITE, NVIDIA},
    {"/proc/devices", READ, NVIDIA},
    {"/proc/modules", READ, NVIDIA},
    {"/proc/sys/fs", READ, NVIDIA},
    {"/etc/nvidia", READ, NVIDIA},
    {"/etc/nvidia-imex", READ, NVIDIA},
    {"/etc/nccl.conf", READ, NVIDIA},
    {"/etc/passwd", READ, NVIDIA},
    {"/etc/group", READ, NVIDIA},
    {"/etc/nsswitch.conf", READ, NVIDIA},
    {"/run/nvidia-persistenced", READ | WRITE, NVIDIA},
    {"/run/opengl-driver", READ, NVIDIA},
    {"/proc", READ, NVIDIA | MANAGER}, /* names of the processes that use a GPU */
    /* names of machines, and the authorities that this one trusts */
    {"/etc/resolv.conf", READ, POOL},
    {"/etc/hosts", READ, POOL},
    {"/etc/host.conf", READ, POOL},
    {"/etc/gai.conf", READ, POOL},
    {"/etc/nsswitch.conf", READ, POOL},
    {"/etc/ssl", READ, POOL},
    {"/etc/pki", READ, POOL},
    {"/run/systemd/resolve", READ, POOL},
    {"/run/resolvconf", READ, POOL},
    {"/run/NetworkManager", READ, POOL},
    /* RDMA: verbs and the connection manager */
    {"/dev/infiniband", READ | WRITE | DEVICE, RDMA},
    {"/etc/libibverbs.d", READ, RDMA},
    {"/etc/rdma", READ, RDMA},
    {"/proc/sys/net", READ, RDMA},
    {"/proc/net", READ, RDMA},
    {"/usr/bin", READ | EXECUTE, RDMA | NETPERF}, /* perftest's programs */
    {"/lib64", READ | EXECUTE, RDMA | NETPERF},
    {"/lib", READ | EXECUTE, RDMA | NETPERF},
    {"/usr/lib", READ | EXECUTE, RDMA | NETPERF},
    {"/usr/lib64", READ | EXECUTE, RDMA | NETPERF},
};

static int whom_of(const struct rg_sandbox_policy *policy)
{
    return ((policy->driver[0] && !policy->soft) || policy->program == RG_SANDBOX_MANAGER ? NVIDIA : 0) |
           (policy->rdma ? RDMA : 0) | (policy->program == RG_SANDBOX_NETPERF ? NETPERF : 0) |
           (policy->program == RG_SANDBOX_MANAGER ? MANAGER : 0) |
           (policy->program == RG_SANDBOX_POOL ? POOL : 0);
}

/* Calls `visit` with every path that the policy names and how it may be used; stops at the first that is not 0. */
typedef int visitor(void *data, const char *path, int access);

static int visit_folder_of(const char *file, visitor *visit, void *data)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (!slash || slash == file || (size_t)(slash - file) >= sizeof folder)
        return 0;
    memcpy(folder, file, (size_t)(slash - file));
    folder[slash - file] = '\0';
    return visit(data, folder, READ);
}

/* What the server's own environment adds to the places of libraries. */
static int visit_list(const char *list, bool files, visitor *visit, void *data)
{
    int error = 0;
    for (const char *at = list; at && *at && !error;) {
        char path[PATH_MAX];
        const size_t size = strcspn(at, files ? ": " : ":;");
        if (size > 0 && size < sizeof path && at[0] == '/') {
            memcpy(path, at, size);
            path[size] = '\0';
            error = visit(data, path, READ);
        }
        at += size + (at[size] != '\0');
    }
    return error;
}

static int visit_gpus(const struct rg_sandbox_policy *policy, visitor *visit, void *data)
{
    int error = 0;
    for (int i = 0; i < 64 && !error; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        if (policy->gpus >> i & 1)
            error = visit(data, path, READ | WRITE | DEVICE);
    }
    return error;
}

/* What the identity's sessions keep for the next one, as this process's environment says, which its parent made. */
static int visit_caches(visitor *visit, void *data)
{
    static const char *const variables[] = {"REMOTE_GPU_IMAGE_CACHE", "SOFTGPU_CACHE", "CUDA_CACHE_PATH",
                                            "SOFTGPU_DUMP_IR" /* a developer's wish */};
    int error = 0;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0] && !error; i++) {
        const char *named = getenv(variables[i]);
        if (named && named[0] == '/')
            error = visit(data, named, READ | WRITE | CHANGE);
    }
    return error;
}

static int visit_all(const struct rg_sandbox_policy *policy, visitor *visit, void *data)
{
    const int whom = whom_of(policy);
    char library[PATH_MAX];
    int error = 0;
    if (policy->program == RG_SANDBOX_FRONTEND)
        return 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0] && !error; i++)
        if ((rules[i].whom & whom) == rules[i].whom)
            error = visit(data, rules[i].path, rules[i].access);
    if (!error && rg_path_library("", library, sizeof library) == RG_OK)
        error = visit(data, library, READ);
    if (!error)
        error = visit_folder_of(policy->driver, visit, data);
    const char *nccl = getenv("REMOTE_GPU_NCCL");
    if (!error && nccl && nccl[0] == '/')
        error = visit_folder_of(nccl, visit, data);
    if (!error)
        error = visit_list(getenv("LD_LIBRARY_PATH"), false, visit, data);
    if (!error)
        error = visit_list(getenv("LD_PRELOAD"), true, visit, data);
    if (!error && (whom & NVIDIA))
        error = visit_gpus(policy, visit, data);
    if (!error)
        error = visit_caches(visit, data);
    if (!error && policy->runtime[0])
        error = visit(data, policy->runtime, READ | WRITE | CHANGE);
    if (!error && policy->mps[0])
        error = visit(data, policy->mps, READ | WRITE);
    return error;
}

/* --- Landlock ------------------------------------------------------------------------------------------- */

/* The kernel's interface, of which older headers have only a part. */
#define LL_EXECUTE      (1ull << 0)
#define LL_WRITE_FILE   (1ull << 1)
#define LL_READ_FILE    (1ull << 2)
#define LL_READ_DIR     (1ull << 3)
#define LL_REMOVE_DIR   (1ull << 4)
#define LL_REMOVE_FILE  (1ull << 5)
#define LL_MAKE_DIR     (1ull << 7)
#define LL_MAKE_REG     (1ull << 8)
#define LL_MAKE_SOCK    (1ull << 9)
#define LL_VERSION_1    ((1ull << 13) - 1)
#define LL_REFER        (1ull << 13) /* version 2 */
#define LL_TRUNCATE     (1ull << 14) /* version 3 */
#define LL_IOCTL_DEV    (1ull << 15) /* version 5 */
#define LL_NET_TCP      3ull         /* bind, connect: version 4 */
#define LL_NET_BIND     1ull
#define LL_SCOPE_SOCKET 1ull /* version 6 */
#define LL_SCOPE_SIGNAL 2ull

#define LL_CREATE_RULESET 444
#define LL_ADD_RULE       445
#define LL_RESTRICT_SELF  446

struct ll_ruleset {
    uint64_t files, net, scoped;
};
struct ll_path {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

/* What is refused of ports. In a network of their own workers on NVIDIA's driver may have any (arguments.c). */
static uint64_t ports_of(const struct rg_sandbox_policy *policy)
{
    const bool own = policy->program == RG_SANDBOX_WORKER && policy->driver[0] && !policy->soft &&
                     (policy->measures & RG_SANDBOX_NETWORK);
    if (policy->rdma || own)
        return 0;
    return policy->program == RG_SANDBOX_POOL ? LL_NET_BIND : LL_NET_TCP;
}

/* Landlock's version on this kernel; 0: none. */
static int landlock_version(void)
{
    const long version = syscall(LL_CREATE_RULESET, NULL, 0, 1u);
    return version > 0 ? (int)version : 0;
}

struct building {
    int ruleset;
    uint64_t handled;
    char *why;
    size_t why_size;
};

static uint64_t rights_of(int access)
{
    return (access & READ ? LL_READ_FILE | LL_READ_DIR : 0) |
           (access & WRITE ? LL_WRITE_FILE | LL_TRUNCATE : 0) | (access & EXECUTE ? LL_EXECUTE : 0) |
           (access & DEVICE ? LL_IOCTL_DEV : 0) |
           (access & CHANGE
                ? LL_REMOVE_DIR | LL_REMOVE_FILE | LL_MAKE_DIR | LL_MAKE_REG | LL_MAKE_SOCK | LL_REFER
                : 0);
}

static int add_path(void *data, const char *path, int access)
{
    struct building *building = data;
    /* in /proc a folder that nobody holds may be another one when it is looked up again */
    const int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat about;
    if (fd < 0)
        return 0; /* what is not there, or not for this user, is not needed */
    if (fstat(fd, &about) != 0) {
        close(fd);
        return 0;
    }
    uint64_t rights = rights_of(access) & building->handled;
    if (!S_ISDIR(about.st_mode))
        rights &= LL_EXECUTE | LL_READ_FILE | LL_WRITE_FILE | LL_TRUNCATE | LL_IOCTL_DEV;
    const struct ll_path rule = {.allowed = rights, .parent = fd};
    const int error = syscall(LL_ADD_RULE, building->ruleset, 1, &rule, 0u) == 0 ? 0 : errno;
    if (error)
        rg_explain(building->why, building->why_size, "%s", path);
    if (strcmp(path, "/proc/self") != 0 || error)
        close(fd);
    return error;
}

int rg_sandbox_confine_files(const struct rg_sandbox_policy *policy, char *why, size_t why_size)
{
    const int version = landlock_version();
    const bool files = (policy->measures & RG_SANDBOX_FILES) && policy->mode != RG_SANDBOX_LOG;
    struct ll_ruleset set = {0};
    if (version == 0)
        return ENOSYS;
    if (files) {
        set.files = LL_VERSION_1 | (version >= 2 ? LL_REFER : 0) | (version >= 3 ? LL_TRUNCATE : 0) |
                    (version >= 5 ? LL_IOCTL_DEV : 0);
        set.net = version < 4 ? 0 : ports_of(policy);
    }
    if (policy->measures & RG_SANDBOX_SCOPES) {
        if (version < 6)
            return ENOSYS;
        /* NVIDIA's processes find each other by abstract sockets; a network namespace keeps them apart */
        set.scoped = LL_SCOPE_SIGNAL | (policy->driver[0] && !policy->soft ? 0 : LL_SCOPE_SOCKET);
    }
    if (!set.files && !set.net && !set.scoped)
        return 0;
    struct building building = {.ruleset = (int)syscall(LL_CREATE_RULESET, &set,
                                                        version >= 6   ? sizeof set
                                                        : version >= 4 ? sizeof set - 8
                                                                       : sizeof set - 16,
                                                        0u),
                                .handled = set.files,
                                .why = why,
                                .why_size = why_size};
    if (building.ruleset < 0)
        return errno;
    int error = files ? visit_all(policy, add_path, &building) : 0;
    if (!error && syscall(LL_RESTRICT_SELF, building.ruleset, 0u) != 0)
        error = errno;
    close(building.ruleset);
    return error;
}

/* --- by name, for those who learn ----------------------------------------------------------------------- */

struct question {
    const char *path;
    int access;
};

static int is_allowed(void *data, const char *path, int access)
{
    const struct question *question = data;
    const size_t size = strlen(path);
    return (access & question->access) == question->access && strncmp(question->path, path, size) == 0 &&
           (question->path[size] == '\0' || question->path[size] == '/');
}

bool rg_sandbox_file_allowed(const struct rg_sandbox_policy *policy, const char *path, bool write)
{
    struct question question = {path, write ? WRITE : READ};
    return visit_all(policy, is_allowed, &question) != 0;
}
