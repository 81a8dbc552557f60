/*
 * taken_over.c - a worker that has been taken over: attack code that runs inside it (sandbox_test.py).
 *
 * It is preloaded into the server's processes and waits for the worker's call of signalfd, the first one after it has
 * confined itself. Then it tries what a client could that runs code of its own there, and says for each attempt on stderr
 * whether it was refused. RG_TEST variables would not reach it: the server passes on what is listed only. So all of it is in
 * CUDA_TEST_ATTACK: the attack's name, then what it needs, with blanks between:
 *
 *   all CACHE STATE SOCKET PORT     everything that a sandbox answers with an error; paths and a port that are not for it
 *   NAME                            one that a sandbox kills for, or what it allows to some: "own network", "shared memory", a file's
 *                                   path, "beside.so", a library by its name
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { NEIGHBOURS = 400 };

static void tell(bool succeeded, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(bool succeeded, const char *format, ...)
{
    char what[256], line[320];
    const int error = errno;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const int size = snprintf(line, sizeof line, "attack: %s: %s (%s)\n", what,
                              succeeded ? "SUCCEEDED" : "refused", succeeded ? "-" : strerror(error));
    (void)!write(2, line, (size_t)size);
}

static bool can_open(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool is_process(int pid)
{
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d", pid);
    return pid > 0 && pid != (int)getpid() && stat(path, &about) == 0;
}

/* Any byte of a mapped page, as the process's maps tell. */
static bool read_memory(int pid)
{
    char path[64], line[256] = "", data[16];
    unsigned long start = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return false;
    if (fgets(line, sizeof line, maps))
        sscanf(line, "%lx", &start);
    fclose(maps);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool good = fd >= 0 && pread(fd, data, sizeof data, (off_t)start) == (ssize_t)sizeof data;
    if (fd >= 0)
        close(fd);
    return good;
}

/* The server, and every process that began about when this one did: other sessions' workers are among them. */
static void attack_processes(void)
{
    char path[64];
    int memory = 0, environment = 0, descriptors = 0, signals = 0, timers = 0;
    for (int i = -NEIGHBOURS; i <= NEIGHBOURS; i++) {
        const int pid = i == NEIGHBOURS ? (int)getppid() : (int)getpid() + i;
        if (pid <= 1 || pid == (int)getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d", pid);
        if (access(path, F_OK) == 0)
            continue;
        signals += kill(pid, 0) == 0;
        timers += syscall(SYS_tgkill, pid, pid, 0) == 0;
        if (!is_process(pid))
            continue;
        memory += read_memory(pid);
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        environment += can_open(path, O_RDONLY);
        snprintf(path, sizeof path, "/proc/%d/fd/3", pid);
        descriptors += can_open(path, O_RDONLY);
    }
    errno = EPERM;
    tell(memory > 0, "memory of other processes");
    tell(environment > 0, "environment of other processes");
    tell(descriptors > 0, "descriptors of other processes");
    tell(signals > 0, "signals to other processes");
    tell(timers > 0, "signals to other threads");
    tell(kill(-1, 0) == 0, "signals to all");
}

/* As it is scheduled already, or nearly: a test does no harm to the machine that it runs on. */
static void attack_scheduling(void)
{
    const struct sched_param none = {0};
    struct {
        unsigned size, policy;
        unsigned long long flags;
        int nice;
        unsigned priority;
        unsigned long long runtime, deadline, period;
    } batch = {.size = sizeof batch, .policy = SCHED_BATCH};
    int processors = 0, policies = 0, attributes = 0, disks = 0;
    cpu_set_t set;
    for (int i = -NEIGHBOURS; i <= NEIGHBOURS; i++) {
        const int pid = i == NEIGHBOURS ? (int)getppid() : (int)getpid() + i;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d", pid);
        if (pid <= 1 || access(path, F_OK) == 0)
            continue;
        const bool known = sched_getaffinity(pid, sizeof set, &set) == 0;
        processors += known && sched_setaffinity(pid, sizeof set, &set) == 0;
        policies += sched_setscheduler(pid, SCHED_BATCH, &none) == 0;
        attributes += syscall(SYS_sched_setattr, pid, &batch, 0) == 0;
        disks += syscall(SYS_ioprio_set, 1, pid, 2 << 13 | 4) == 0;
    }
    errno = EPERM;
    tell(processors > 0, "other processors for other processes");
    tell(policies > 0, "another policy of scheduling for other processes");
    tell(attributes > 0, "other attributes of scheduling for other processes");
    tell(disks > 0, "another priority at the disk for other processes");
    tell(syscall(SYS_ioprio_set, 3, getuid(), 2 << 13 | 4) == 0,
         "another priority at the disk of all of this user's");
    const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    tell(!known || sched_setaffinity(0, sizeof set, &set) != 0, "kept from choosing processors for itself");
}

/* The kernel sends a descriptor's owner signals, whichever the descriptor's holder chose; a command has 32 bits. */
static void attack_by_descriptors(void)
{
    const struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    int pair[2], server = (int)getppid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    const unsigned long beyond = 1ul << 32;
    tell(fcntl(pair[0], F_SETOWN, server) == 0, "signals by a descriptor");
    tell(fcntl(pair[0], F_SETOWN_EX, &owner) == 0, "signals by a descriptor's thread");
    tell(syscall(SYS_fcntl, pair[0], F_SETOWN | beyond, server) == 0,
         "signals by a descriptor, in a long word");
    tell(fcntl(pair[0], F_SETSIG, SIGKILL) == 0, "a descriptor's signal");
    tell(ioctl(pair[0], FIOSETOWN, &server) == 0, "signals by a socket");
    tell(syscall(SYS_ioctl, pair[0], SIOCSPGRP | beyond, &server) == 0,
         "signals by a socket, in a long word");
    tell(syscall(SYS_ioctl, pair[0], TIOCSTI, "") == 0 || errno == ENOTTY || errno == EINVAL,
         "characters for a terminal");
    tell(syscall(SYS_ioctl, pair[0], TIOCSTI | beyond, "") == 0 || errno == ENOTTY || errno == EINVAL,
         "characters for a terminal, in a long word");
    tell(setpriority(PRIO_USER, 0, getpriority(PRIO_PROCESS, 0)) == 0,
         "another priority of all of this user's");
    close(pair[0]);
    close(pair[1]);
}

static void attack_files(const char *cache, const char *state)
{
    char path[600];
    tell(can_open("/etc/shadow", O_RDONLY), "the users' passwords");
    tell(can_open("/etc/ssl/openssl.cnf", O_RDONLY), "settings of the machine");
    snprintf(path, sizeof path, "%s/ca.key", state);
    tell(can_open(path, O_RDONLY), "the authority's key");
    tell(chmod(path, 0600) == 0, "who may read the authority's key");
    snprintf(path, sizeof path, "%s/identities", cache);
    tell(can_open(path, O_RDONLY | O_DIRECTORY), "whose images are kept");
    snprintf(path, sizeof path, "%s/planted", cache);
    tell(can_open(path, O_WRONLY | O_CREAT), "a file in the others' cache");
    snprintf(path, sizeof path, "%s/planted", state);
    tell(can_open(path, O_WRONLY | O_CREAT), "a file in the server's folder");
    tell(can_open("/run/remote-gpu/identities", O_RDONLY | O_DIRECTORY) ||
             can_open("/run/remote-gpu/users", O_RDONLY | O_DIRECTORY),
         "who else has sessions");
    tell(can_open("/usr/lib/planted", O_WRONLY | O_CREAT), "a file among the libraries");
    tell(can_open("/etc/planted", O_WRONLY | O_CREAT), "a file among the settings");
    tell(can_open("/home/planted", O_WRONLY | O_CREAT), "a file among the homes");
    tell(can_open("/root", O_RDONLY | O_DIRECTORY), "root's home");
    tell(can_open("/dev/kmsg", O_RDONLY), "the kernel's log");
    tell(can_open("/proc/1/environ", O_RDONLY), "the first process's environment");
    tell(can_open("/proc/sysrq-trigger", O_WRONLY), "the kernel's keys");
    const char *pipes =
        getenv("CUDA_MPS_PIPE_DIRECTORY"); /* of a service that this worker's driver may speak to */
    snprintf(path, sizeof path, "%s/planted", pipes ? pipes : "");
    tell(can_open(path, O_WRONLY | O_CREAT), "a file among the pipes of MPS");
    snprintf(path, sizeof path, "%s/control", pipes ? pipes : "");
    tell(unlink(path) == 0, "without the pipes of MPS");
    tell(getenv("SECRET_OF_THE_SERVER") != NULL, "a secret in the server's environment");
}

static bool can_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (path[0] == '@') {
        memcpy(address.sun_path + 1, path + 1, strlen(path) - 1);
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    } else {
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    }
    const bool good = fd >= 0 && connect(fd, (struct sockaddr *)&address, size) == 0;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return good;
}

/* Others than the one of a network of its own. */
static bool has_interfaces(void)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        found = found || strcmp(at->ifa_name, "lo") != 0;
    freeifaddrs(all);
    errno = EPERM;
    return found;
}

/* A connection to itself, as NCCL makes when it begins: by the address of an interface that is up. */
static bool has_own_network(void)
{
    struct ifaddrs *all = NULL;
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        if ((at->ifa_flags & IFF_UP) && at->ifa_addr && at->ifa_addr->sa_family == AF_INET)
            memcpy(&address, at->ifa_addr, sizeof address);
    freeifaddrs(all);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = 0;
    const bool good = address.sin_family == AF_INET && listener >= 0 && fd >= 0 &&
                      bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                      listen(listener, 1) == 0 &&
                      getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
                      connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(listener);
    close(fd);
    return good;
}

static void attack_network(const char *socket_path, int port)
{
    char abstract[128];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tell(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "a connection to a port");
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    tell(fd >= 0 && sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address) == 1, "a datagram");
    tell(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP) >= 0, "a socket of another protocol than TCP");
    tell(socket(AF_PACKET, SOCK_RAW, 0) >= 0, "a packet socket");
    tell(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT) >= 0, "the kernel's events");
    tell(has_interfaces(), "interfaces of the machine");
    tell(can_connect(socket_path), "a unix socket in a folder");
    snprintf(abstract, sizeof abstract, "@%s", socket_path);
    tell(can_connect(abstract), "an abstract unix socket");
}

static void attack_rights(void)
{
    const struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit core;
    tell(setuid(0) == 0 && geteuid() == 0 && can_open("/etc/shadow", O_RDONLY), "another user");
    tell(chown("/proc/self/comm", 1, 1) == 0, "another owner of a file");
    tell(setrlimit(RLIMIT_CORE, &more) == 0 || (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max != 0),
         "core dumps");
    tell(setpriority(PRIO_PROCESS, (id_t)getppid(), 5) == 0, "another priority of the server");
    tell(syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno == EFAULT, "io_uring");
    tell(syscall(SYS_userfaultfd, 0) >= 0, "userfaultfd");
    tell(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0) >= 0 || errno == EFAULT, "perf events");
    const long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    tell(child > 0, "a process of its own");
}

/* What a sandbox kills for. */
static void attack_by_name(const char *name)
{
    struct iovec none = {NULL, 0};
    char *const arguments[] = {(char *)"true", NULL};
    union bpf_attr attributes;
    struct statfs about;
    bool good = false;
    memset(&attributes, 0, sizeof attributes);
    if (strcmp(name, "ptrace") == 0)
        good = ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0;
    else if (strcmp(name, "process_vm_readv") == 0)
        good = process_vm_readv(getppid(), &none, 1, &none, 1, 0) == 0;
    else if (strcmp(name, "unshare") == 0)
        good = unshare(CLONE_NEWUSER) == 0;
    else if (strcmp(name, "mount") == 0)
        good = mount("none", "/", "tmpfs", 0, NULL) == 0;
    else if (strcmp(name, "bpf") == 0)
        good = syscall(SYS_bpf, 0, &attributes, sizeof attributes) >= 0 || errno == EINVAL;
    else if (strcmp(name, "execve") == 0)
        good = execve("/bin/true", arguments, NULL) == 0;
    else if (strcmp(name, "own network") == 0)
        good = has_own_network();
    else if (name[0] == '/')
        good = can_open(name, O_RDONLY);
    else if (strcmp(name, "shared memory") == 0)
        good = statfs("/dev/shm", &about) == 0 && about.f_type == TMPFS_MAGIC &&
               can_open("/dev/shm/own", O_RDWR | O_CREAT);
    else if (strcmp(name, "beside.so") == 0)
        good = dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL;
    tell(good, "%s, and it lives", name);
}

static void attack(const char *orders)
{
    char cache[300] = "/", state[300] = "/", socket_path[100] = "/";
    int port = 1;
    if (strncmp(orders, "all ", 4) != 0) {
        attack_by_name(orders);
        return;
    }
    if (sscanf(orders + 4, "%299s %299s %99s %d", cache, state, socket_path, &port) != 4)
        return;
    attack_files(cache, state);
    attack_network(socket_path, port);
    attack_rights();
    attack_processes();
    attack_scheduling();
    attack_by_descriptors();
    const int size = snprintf(cache, sizeof cache, "attack: all were tried\n");
    (void)!write(2, cache, (size_t)size);
}

__attribute__((visibility("default"))) int signalfd(int fd, const sigset_t *mask, int flags)
{
    const char *orders = getenv("CUDA_TEST_ATTACK");
    char name[32] = "";
    const int comm = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (comm >= 0) {
        (void)!read(comm, name, sizeof name - 1);
        close(comm);
    }
    if (orders && strncmp(name, "worker", 6) == 0)
        attack(orders);
    int (*next)(int, const sigset_t *, int) =
        (int (*)(int, const sigset_t *, int))dlsym(RTLD_NEXT, "signalfd");
    return next(fd, mask, flags);
}
