/*
 * enter.c - the part of a sandbox that a child takes between fork and exec, with the rights of its parent.
 *
 * Limits, namespaces (joined, and a mount namespace of its own), then the user and with it the last right to do
 * any of this. Everything here is async-signal-safe and allocates nothing: the parent may have threads. The first
 * failure ends the child; which measures can be had was found out before (find.c).
 */
#include "server/sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int set_limit(__rlimit_resource_t which, uint64_t value)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0)
        return -1;
    if (limit.rlim_max < value)
        value = limit.rlim_max;
    limit.rlim_cur = limit.rlim_max = value;
    return setrlimit(which, &limit);
}

static int unlimit(__rlimit_resource_t which)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit limit;
    /* without the right to raise the hard limit it stays */
    if (setrlimit(which, &none) == 0)
        return 0;
    if (errno != EPERM || getrlimit(which, &limit) != 0)
        return -1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(which, &limit);
}

static int enter_limits(const struct rg_sandbox *sandbox)
{
    if (set_limit(RLIMIT_CORE, 0) != 0)
        return -1;
    if (sandbox->max_files && set_limit(RLIMIT_NOFILE, sandbox->max_files) != 0)
        return -1;
    /*
     * Root locks as much memory as it likes, for GPUs and RDMA; so may those who had to give up being root. How much
     * there is to be locked is another limit (handshake/host_memory.h).
     */
    if ((sandbox->policy.measures & RG_SANDBOX_OWN_USER) && unlimit(RLIMIT_MEMLOCK) != 0)
        return -1;
    /* of an ordinary user's, others of the user's processes would count */
    if (sandbox->max_processes && (sandbox->policy.measures & RG_SANDBOX_OWN_USER))
        return set_limit(RLIMIT_NPROC, sandbox->max_processes);
    return 0;
}

static int join_namespaces(const struct rg_sandbox *sandbox)
{
    /* with the kind: a service manager's filter refuses what does not say it */
    static const int kinds[RG_SANDBOX_NAMESPACES] = {CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET};
    for (int i = 0; i < RG_SANDBOX_NAMESPACES; i++)
        if (sandbox->namespaces[i] >= 0 && setns(sandbox->namespaces[i], kinds[i]) != 0)
            return -1;
    return 0;
}

/* --- mounts --------------------------------------------------------------------------------------------- */

/* What is covered by an empty folder. What the driver and this program need of it is in sandbox->keep. */
static const char *const covered[] = {"/tmp", "/var/tmp", "/run", "/home", "/root", "/srv", "/mnt", "/media"};

/* The covered folder that `path` lies in, or NULL. */
static const char *cover_of(const char *path)
{
    for (size_t i = 0; i < sizeof covered / sizeof covered[0]; i++) {
        const size_t size = strlen(covered[i]);
        if (strncmp(path, covered[i], size) == 0 && (path[size] == '/' || path[size] == '\0'))
            return covered[i];
    }
    return NULL;
}

bool rg_sandbox_is_below_cover(const char *path)
{
    const char *cover = cover_of(path), *rest = cover ? path + strlen(cover) : "";
    while (*rest == '/' || (*rest == '.' && (rest[1] == '/' || !rest[1])))
        rest++;
    return *rest && !strstr(path, "/..");
}

/* mkdir -p; those that exist are well. */
static int make_folders(const char *path)
{
    char part[PATH_MAX];
    const size_t size = strlen(path);
    if (size >= sizeof part)
        return errno = ENAMETOOLONG, -1;
    memcpy(part, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        const char held = part[i];
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return -1;
        part[i] = held;
    }
    return 0;
}

/* "/proc/self/fd/N": no snprintf here. */
static void name_descriptor(int fd, char out[32])
{
    static const char head[] = "/proc/self/fd/";
    char digits[12];
    size_t n = 0, at = sizeof head - 1;
    memcpy(out, head, sizeof head);
    do
        digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) > 0);
    while (n > 0)
        out[at++] = digits[--n];
    out[at] = '\0';
}

static int bind_descriptor(int fd, const char *path)
{
    char name[32];
    name_descriptor(fd, name);
    return mount(name, path, NULL, MS_BIND | MS_REC, NULL);
}

static bool is_folder(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Only here, where it is covered: elsewhere it is seen as it is. */
static const char *place_of(const struct rg_sandbox_keep *keep)
{
    return keep->at ? keep->at : cover_of(keep->folder) ? keep->folder : NULL;
}

static int cover(const struct rg_sandbox *sandbox, const int *kept)
{
    for (size_t i = 0; i < sizeof covered / sizeof covered[0]; i++)
        if (is_folder(covered[i]) &&
            mount("none", covered[i], "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m") != 0)
            return -1;
    for (size_t i = 0; i < RG_SANDBOX_KEEP && sandbox->keep[i].folder; i++)
        if (kept[i] >= 0 && (make_folders(place_of(&sandbox->keep[i])) != 0 ||
                             bind_descriptor(kept[i], place_of(&sandbox->keep[i])) != 0))
            return -1;
    return 0;
}

/* NVIDIA's driver shares memory between the processes of one identity in /dev/shm. */
static int cover_shared_memory(int own)
{
    if (!is_folder("/dev/shm"))
        return 0;
    return own >= 0 ? bind_descriptor(own, "/dev/shm")
                    : mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k");
}

static int enter_mounts(const struct rg_sandbox *sandbox)
{
    int kept[RG_SANDBOX_KEEP];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        return -1;
    /* they are closed by exec */
    for (size_t i = 0; i < RG_SANDBOX_KEEP && sandbox->keep[i].folder; i++)
        kept[i] = place_of(&sandbox->keep[i])
                      ? open(sandbox->keep[i].folder, O_PATH | O_DIRECTORY | O_CLOEXEC)
                      : -1;
    const int shm = sandbox->shm ? open(sandbox->shm, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (cover(sandbox, kept) != 0 || cover_shared_memory(shm) != 0)
        return -1;
    if (sandbox->policy.measures & RG_SANDBOX_PROCESSES)
        return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2");
    return 0;
}

/* --- user ----------------------------------------------------------------------------------------------- */

/* By number, as the C library's functions would wait for threads that this child does not have. */
static int enter_user(const struct rg_sandbox *sandbox)
{
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            return -1;
    if (syscall(SYS_setgroups, (size_t)sandbox->n_devices, sandbox->devices) != 0 ||
        syscall(SYS_setresgid, sandbox->gid, sandbox->gid, sandbox->gid) != 0)
        return -1;
    return (int)syscall(SYS_setresuid, sandbox->uid, sandbox->uid, sandbox->uid);
}

int rg_sandbox_enter(const struct rg_sandbox *sandbox, const char **step)
{
    const uint32_t measures = sandbox->policy.measures;
    umask(022); /* folders in covered ones are for all to pass */
    *step = "its limits cannot be set";
    if ((measures & RG_SANDBOX_LIMITS) && enter_limits(sandbox) != 0)
        return -1;
    *step = "its namespaces cannot be joined";
    if (join_namespaces(sandbox) != 0)
        return -1;
    *step = "no mount namespace of its own";
    if ((measures & RG_SANDBOX_MOUNTS) && enter_mounts(sandbox) != 0) {
        if (access("/proc/self", F_OK) != 0)
            *step = "no mount namespace of its own, as /proc is not mounted";
        return -1;
    }
    *step = "it cannot leave the server's folder";
    if (measures && chdir("/") != 0)
        return -1;
    *step = "no user of its own";
    if ((measures & RG_SANDBOX_OWN_USER) && enter_user(sandbox) != 0)
        return -1;
    umask(077);
    return 0;
}

/* --- namespaces of an identity -------------------------------------------------------------------------- */

/* The user keeps its number in its namespace. */
static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const size_t size = strlen(text);
    const bool good = fd >= 0 && write(fd, text, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return good ? 0 : -1;
}

/*
 * A network of one's own begins with an interface that is down. NVIDIA's libraries connect a process's threads, and one identity's
 * processes, by it. Without it they say so themselves.
 */
static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
        request.ifr_flags |= IFF_UP;
        (void)ioctl(fd, SIOCSIFFLAGS, &request);
    }
    close(fd);
}

/* The process whose namespaces they are until they have been opened: ends when its pipe does. */
static _Noreturn void hold(int flags, const char *uid_map, const char *gid_map, int told, int held)
{
    int error = 0;
    char byte;
    (void)prctl(PR_SET_DUMPABLE,
                1); /* or the files of /proc that matter here would be root's, and not of this user */
    if (unshare(flags) != 0 || ((flags & CLONE_NEWUSER) && (write_file("/proc/self/setgroups", "deny") != 0 ||
                                                            write_file("/proc/self/uid_map", uid_map) != 0 ||
                                                            write_file("/proc/self/gid_map", gid_map) != 0)))
        error = errno;
    if (!error && (flags & CLONE_NEWNET))
        raise_loopback();
    if (write(told, &error, sizeof error) == (ssize_t)sizeof error)
        while (read(held, &byte, 1) < 0 && errno == EINTR)
            ;
    _exit(0);
}

static int open_namespaces(pid_t child, int flags, int out[RG_SANDBOX_NAMESPACES])
{
    static const struct {
        const char *name;
        int flag;
    } kinds[RG_SANDBOX_NAMESPACES] = {{"user", CLONE_NEWUSER}, {"ipc", CLONE_NEWIPC}, {"net", CLONE_NEWNET}};
    for (int i = 0; i < RG_SANDBOX_NAMESPACES; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)child, kinds[i].name);
        if ((flags & kinds[i].flag) && (out[i] = open(path, O_RDONLY | O_CLOEXEC)) < 0)
            return errno;
    }
    return 0;
}

enum rg_status rg_sandbox_namespaces_make(uint32_t measures, int out[RG_SANDBOX_NAMESPACES], char *why,
                                          size_t why_size)
{
    const int flags = ((measures & RG_SANDBOX_IPC) ? CLONE_NEWIPC : 0) |
                      ((measures & RG_SANDBOX_NETWORK) ? CLONE_NEWNET : 0) |
                      (geteuid() != 0 && (measures & RG_SANDBOX_NAMESPACED) ? CLONE_NEWUSER : 0);
    int told[2] = {-1, -1}, held[2] = {-1, -1}, error = 0;
    char uid_map[64], gid_map[64];
    out[0] = out[1] = out[2] = -1;
    if (!flags)
        return RG_OK;
    if (pipe2(told, O_CLOEXEC) != 0 || pipe2(held, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        snprintf(uid_map, sizeof uid_map, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
        snprintf(gid_map, sizeof gid_map, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
        pid_t child = fork();
        if (child == 0) {
            close(held[1]);
            hold(flags, uid_map, gid_map, told[1], held[0]);
        }
        error = child < 0 ? errno : 0;
        close(told[1]);
        told[1] = -1;
        if (child > 0) {
            if (read(told[0], &error, sizeof error) != (ssize_t)sizeof error)
                error = EIO;
            if (!error)
                error = open_namespaces(child, flags, out);
            close(held[1]);
            held[1] = -1;
            rg_sandbox_reap(child);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (told[i] >= 0)
            close(told[i]);
        if (held[i] >= 0)
            close(held[i]);
    }
    if (!error)
        return RG_OK;
    rg_sandbox_namespaces_close(out);
    return RG_FAILED(RG_ERR_UNSUPPORTED, why, why_size, "no namespaces of their own for processes: %s%s",
                     strerror(error), error == EAGAIN ? " (ulimit -u, TasksMax=)" : "");
}

void rg_sandbox_namespaces_close(int namespaces[RG_SANDBOX_NAMESPACES])
{
    for (int i = 0; i < RG_SANDBOX_NAMESPACES; i++) {
        if (namespaces[i] >= 0)
            close(namespaces[i]);
        namespaces[i] = -1;
    }
}
