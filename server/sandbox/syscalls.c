/*
 * syscalls.c - the system calls that a confined program may make, as data with the reason of each group, and the
 * seccomp filter made of it.
 *
 * What is listed is allowed. What no program of ours has a use for, and an attacker has, kills the process
 * (`attacks`): nothing is lost that was still to be trusted, and the log says it. Everything else fails: with
 * EPERM what is refused in its arguments, with ENOSYS the rest, because that is what libraries are prepared for (an
 * old kernel). Architectures other than the machine's own are killed.
 *
 * In mode log nothing fails: what would, is named once in the log (learn.c).
 */
#include "server/sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whom a group is for. */
enum {
    W = 1 << 0, /* worker on the software device */
    N = 1 << 1, /* worker on NVIDIA's driver */
    P = 1 << 2, /* probe, manager: a driver is loaded, nothing is received from a network */
    M = 1 << 3, /* netperf */
    F = 1 << 4, /* frontend */
    R = 1 << 5, /* any of them where RDMA is allowed */
    A = 1 << 6, /* accountant */
    E = 1 << 7, /* the pool's agent, which talks to etcd */
    ALL = W | N | P | M | F | A | E,
    OPENERS = W | N | P | M | A | E,
};

struct group {
    int whom;
    const char *reason;
    const char *calls; /* names with blanks between */
};

static const struct group allowed[] = {
    {ALL, "data on descriptors that were passed in",
     "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range dup dup2 "
     "dup3 lseek sendmsg recvmsg sendto recvfrom sendmmsg recvmmsg shutdown getsockname getpeername "
     "setsockopt getsockopt accept accept4"},
    {ALL, "waiting",
     "poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 pipe2 "
     "signalfd4 timerfd_create timerfd_settime timerfd_gettime restart_syscall pause"},
    {ALL, "locks and threads (a new one only by clone of a thread, below)",
     "futex futex_waitv set_robust_list get_robust_list rseq membarrier set_tid_address gettid getpid "
     "getppid sched_yield sched_getaffinity exit exit_group arch_prctl sched_getparam "
     "sched_getscheduler sched_get_priority_max sched_get_priority_min getcpu"},
    {ALL, "time",
     "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getitimer setitimer alarm "
     "timer_create timer_settime timer_gettime timer_delete timer_getoverrun"},
    {ALL, "memory",
     "brk munmap mremap madvise mincore msync mlock mlock2 munlock munlockall get_mempolicy memfd_create"},
    {OPENERS, "memory on the node of a GPU or adapter",
     "mbind set_mempolicy move_pages set_mempolicy_home_node"},
    {OPENERS, "device code that has just been compiled; libraries",
     "mmap mprotect pkey_mprotect pkey_alloc pkey_free"},
    {ALL, "signals to itself",
     "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack"},
    {ALL, "facts about itself and the machine",
     "getuid geteuid getgid getegid getresuid getresgid getgroups getrusage getrlimit sysinfo uname "
     "getrandom getpgrp getpgid getsid capget getpriority umask getcwd"},
    {ALL, "descriptors' properties (fcntl below)", "fstat newfstatat statx fstatfs ftruncate"},
    {OPENERS, "files, of which Landlock decides",
     "open openat openat2 creat stat lstat access faccessat faccessat2 readlink readlinkat getdents "
     "getdents64 statfs chdir fchdir flock fallocate fadvise64 fsync fdatasync sync_file_range readahead "
     "sendfile copy_file_range unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat "
     "symlink symlinkat truncate utimensat futimesat utime utimes getxattr lgetxattr fgetxattr splice tee "
     "vmsplice"},
    {W | N, "sessions of one identity pass each other descriptors", "bind listen connect"},
    {N | P, "NVIDIA's driver: device files, priorities of its threads, old interfaces",
     "chmod fchmod fchmodat inotify_init1 inotify_add_watch inotify_rm_watch bind listen connect "
     "sched_setaffinity sched_setparam ioprio_get pipe eventfd epoll_create signalfd mknod "
     "mknodat mlockall shmget shmat shmdt shmctl semget semop semctl semtimedop wait4 waitid sched_getattr "
     "fchown chown lchown fchownat kcmp getegid inotify_init sync syncfs sched_rr_get_interval "
     "personality"},
    {M | P, "scheduling of a measurement", "sched_getattr"},
    {R, "RDMA: the connection manager's sockets, events, large pages",
     "bind listen connect shmget shmat shmdt shmctl"},
    {E, "connections to etcd, names of machines", "connect bind"},
    {M, "its own threads and programs are waited for", "wait4 waitid"},
};

/* Called by no program of ours or of NVIDIA's: whoever makes one of these has been taken over. */
static const char attacks[] =
    "ptrace process_madvise pidfd_getfd kexec_load kexec_file_load bpf unshare setns mount umount2 "
    "pivot_root chroot move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr init_module "
    "finit_module delete_module create_module reboot swapon swapoff acct quotactl quotactl_fd nfsservctl "
    "settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm modify_ldt "
    "uselib ustat add_key request_key keyctl open_by_handle_at lookup_dcookie vhangup syslog fanotify_init "
    "execveat landlock_create_ruleset";

/* Those of every round trip come first in the filter, or near its root. */
static const char *const hot[] = {"futex", "recvmsg", "sendmsg",  "poll",
                                  "read",  "write",   "recvfrom", "sendto"};

/* --- the filter ----------------------------------------------------------------------------------------- */

struct filter {
    scmp_filter_ctx context;
    const struct rg_sandbox_policy *policy;
    int whom;
    uint32_t attack, refused; /* what becomes of these */
    char *why;
    size_t why_size;
};

static int whom_of(const struct rg_sandbox_policy *policy)
{
    static const int programs[RG_SANDBOX_PROGRAMS] = {
        [RG_SANDBOX_PROBE] = P,      [RG_SANDBOX_MANAGER] = P, [RG_SANDBOX_NETPERF] = M,
        [RG_SANDBOX_ACCOUNTANT] = A, [RG_SANDBOX_POOL] = E,    [RG_SANDBOX_FRONTEND] = F};
    return (policy->program == RG_SANDBOX_WORKER ? policy->soft ? W : N : programs[policy->program]) |
           (policy->rdma ? R : 0);
}

/* One rule; a call that this library or machine does not know needs none, and one that does what it would anyhow. */
static int add(struct filter *filter, uint32_t action, const char *name, unsigned n,
               const struct scmp_arg_cmp *arguments)
{
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR || number < 0)
        return 0;
    const int error = -seccomp_rule_add_exact_array(filter->context, action, number, n, arguments);
    if (error == EACCES || error == EEXIST)
        return 0;
    if (error)
        rg_explain(filter->why, filter->why_size, "%s", name);
    return error;
}

static int add_names(struct filter *filter, uint32_t action, const char *names)
{
    int error = 0;
    for (const char *at = names; *at && !error;) {
        char name[40];
        const size_t size = strcspn(at, " ");
        if (size >= sizeof name)
            return EINVAL;
        memcpy(name, at, size);
        name[size] = '\0';
        /* to learn which files, each is asked about */
        const bool asked =
            filter->policy->mode == RG_SANDBOX_LOG && action == SCMP_ACT_ALLOW &&
            (strcmp(name, "open") == 0 || strcmp(name, "openat") == 0 || strcmp(name, "creat") == 0);
        if (!asked)
            error = add(filter, action, name, 0, NULL);
        at += size;
        at += strspn(at, " ");
    }
    return error;
}

#define ALLOW_IF(filter, name, ...)                                                                          \
    add(filter, SCMP_ACT_ALLOW, name, 1, (const struct scmp_arg_cmp[]){SCMP_CMP64(__VA_ARGS__)})
#define REFUSE_IF(filter, name, code, ...)                                                                   \
    add(filter, (filter)->refused ? (filter)->refused : SCMP_ACT_ERRNO(code), name, 1,                       \
        (const struct scmp_arg_cmp[]){SCMP_CMP64(__VA_ARGS__)})

/* Threads, never processes, and no namespaces. */
static int add_clone(struct filter *filter)
{
    const uint64_t named = CLONE_THREAD | CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                           CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME;
    int error = ALLOW_IF(filter, "clone", 0, SCMP_CMP_MASKED_EQ, named, CLONE_THREAD);
    if (!error && (filter->whom & M) && (filter->whom & R)) { /* perftest's programs */
        error = ALLOW_IF(filter, "clone", 0, SCMP_CMP_MASKED_EQ, named, 0);
        if (!error)
            error = add_names(filter, SCMP_ACT_ALLOW, "execve vfork fork");
    } else if (!error) {
        /* NVIDIA's library tries to start its helper where a device file is missing */
        error = add_names(filter,
                          filter->refused            ? filter->refused
                          : (filter->whom & (N | P)) ? SCMP_ACT_ERRNO(EPERM)
                                                     : filter->attack,
                          "execve fork vfork");
    }
    return error;
}

/*
 * Only itself: what signals others, limits or looks at them. Memory of its own it reads and writes so where it may not be
 * there (common/base/safe_copy.c); the memory of another process is what an attacker wants.
 */
static int add_self(struct filter *filter)
{
    const scmp_datum_t self = (scmp_datum_t)getpid();
    static const char *const by_process[] = {"kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"};
    int error = 0;
    for (size_t i = 0; i < sizeof by_process / sizeof by_process[0] && !error; i++) {
        error = ALLOW_IF(filter, by_process[i], 0, SCMP_CMP_EQ, self);
        if (!error)
            error = REFUSE_IF(filter, by_process[i], EPERM, 0, SCMP_CMP_NE, self);
    }
    static const char *const memory[] = {"process_vm_readv", "process_vm_writev"};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0] && !error; i++) {
        error = ALLOW_IF(filter, memory[i], 0, SCMP_CMP_EQ, self);
        if (!error)
            error = add(filter, filter->attack, memory[i], 1,
                        (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_NE, self)});
    }
    if (!error && (filter->whom & (N | P))) /* of the calling thread */
        error = add(filter, SCMP_ACT_ALLOW, "setpriority", 2,
                    (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, PRIO_PROCESS),
                                                  SCMP_CMP64(1, SCMP_CMP_EQ, 0)});
    if (!error)
        error = ALLOW_IF(filter, "prlimit64", 0, SCMP_CMP_EQ, 0);
    if (!error)
        error = ALLOW_IF(filter, "prlimit64", 0, SCMP_CMP_EQ, self);
    return error ? error : add(filter, SCMP_ACT_ALLOW, "setrlimit", 0, NULL);
}

enum { OF_A_THREAD = 1 }; /* IOPRIO_WHO_PROCESS */

/*
 * How it is scheduled: the calling thread. NVIDIA's driver may set other threads of its process by the C library, which
 * names them by numbers as another process has them; so what would be worse than the usual is refused, but on which
 * processors a thread runs has no such bound (SECURITY.md).
 */
static int add_scheduling(struct filter *filter)
{
    const bool driver = filter->whom & (N | P);
    int error = driver ? 0 : ALLOW_IF(filter, "sched_setaffinity", 0, SCMP_CMP_EQ, 0);
    if (!error && !driver)
        error = REFUSE_IF(filter, "sched_setaffinity", EPERM, 0, SCMP_CMP_NE, 0);
    if (error || !(filter->whom & (N | P | M)))
        return error;
    error = ALLOW_IF(filter, "sched_setscheduler", 0, SCMP_CMP_EQ, 0);
    if (error || !driver)
        return error;
    error = ALLOW_IF(filter, "sched_setscheduler", 1, SCMP_CMP_LE, SCHED_RR); /* not batch, not idle */
    if (!error)
        error =
            add(filter, filter->refused ? filter->refused : SCMP_ACT_ERRNO(EPERM), "sched_setscheduler", 2,
                (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_NE, 0),
                                              SCMP_CMP64(1, SCMP_CMP_GT, SCHED_RR)});
    if (!error)
        error = ALLOW_IF(filter, "sched_setattr", 0, SCMP_CMP_EQ, 0);
    if (!error)
        error = REFUSE_IF(filter, "sched_setattr", EPERM, 0, SCMP_CMP_NE, 0);
    return error ? error
                 : add(filter, SCMP_ACT_ALLOW, "ioprio_set", 2,
                       (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, OF_A_THREAD),
                                                     SCMP_CMP64(1, SCMP_CMP_EQ, 0)});
}

static int add_sockets(struct filter *filter)
{
    static const int more[] = {AF_INET, AF_INET6, AF_NETLINK};
    int error = ALLOW_IF(filter, "socketpair", 0, SCMP_CMP_EQ, AF_UNIX);
    if (!error && (filter->whom & (W | N | P)))
        error = ALLOW_IF(filter, "socket", 0, SCMP_CMP_EQ, AF_UNIX);
    if (!error && (filter->whom & P)) /* NVML asks the kernel for events of devices */
        error = ALLOW_IF(filter, "socket", 0, SCMP_CMP_EQ, AF_NETLINK);
    for (size_t i = 0; i < sizeof more / sizeof more[0] && !error; i++)
        if (filter->whom & (R | E))
            error = ALLOW_IF(filter, "socket", 0, SCMP_CMP_EQ, (scmp_datum_t)more[i]);
    return error;
}

/* The kernel looks at 32 bits of a command: what more a caller sets changes nothing, and so must not here. */
#define COMMAND UINT64_C(0xffffffff)

/*
 * All but whom a descriptor signals, and by what: the kernel sends such a signal, SIGKILL too, to any process of the same
 * user.
 */
static int add_fcntl(struct filter *filter)
{
    static const struct {
        uint64_t mask, value;
    } allowed_commands[] = {
        {COMMAND & ~UINT64_C(7), 0},    /* F_DUPFD to F_SETLKW */
        {COMMAND, 36},                  /* F_OFD_GETLK */
        {COMMAND, 37},                  /* F_OFD_SETLK */
        {COMMAND, 38},                  /* F_OFD_SETLKW */
        {COMMAND & ~UINT64_C(3), 1028}, /* F_DUPFD_CLOEXEC, sizes of pipes */
        {COMMAND & ~UINT64_C(7), 1032}, /* the same, seals, hints */
    };
    int error = 0;
    for (size_t i = 0; i < sizeof allowed_commands / sizeof allowed_commands[0] && !error; i++)
        error = ALLOW_IF(filter, "fcntl", 1, SCMP_CMP_MASKED_EQ, allowed_commands[i].mask,
                         allowed_commands[i].value);
    /* F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG, F_SETOWN_EX, F_GETOWN_EX */
    return error ? error
                 : REFUSE_IF(filter, "fcntl", EPERM, 1, SCMP_CMP_MASKED_EQ, COMMAND & ~UINT64_C(7), 8);
}

enum { OF_TERMINALS = 0x54, OF_SOCKETS = 0x89 }; /* the second byte of a request */

/* Those of other types: a rule has one comparison of an argument, so each says that one bit of the type is another. */
static int add_other_types(struct filter *filter)
{
    static const uint64_t types[] = {OF_TERMINALS, OF_SOCKETS}; /* which differ in the highest bit */
    int error = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (unsigned bit = 0; bit < 7 && !error; bit++) {
            const uint64_t mask = UINT64_C(0x80) | UINT64_C(1) << bit;
            error = ALLOW_IF(filter, "ioctl", 1, SCMP_CMP_MASKED_EQ, mask << 8,
                             ((types[i] ^ UINT64_C(1) << bit) & mask) << 8);
        }
    /* of interfaces; those below say whom a socket signals */
    for (unsigned bit = 4; bit < 8 && !error; bit++)
        error = ALLOW_IF(filter, "ioctl", 1, SCMP_CMP_MASKED_EQ, UINT64_C(0xff00) | UINT64_C(1) << bit,
                         (uint64_t)OF_SOCKETS << 8 | UINT64_C(1) << bit);
    return error;
}

/* Of a driver's device files Landlock decides; without one only what the C library asks sockets and terminals. */
static int add_ioctl(struct filter *filter)
{
    static const uint64_t plain[] = {FIONREAD, FIONBIO, TCGETS, TIOCGWINSZ, TIOCOUTQ, FIOCLEX, FIONCLEX};
    /* pushing characters into a terminal that was inherited; signals to others by a socket */
    static const uint64_t refused[] = {TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP};
    int error = 0;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && !error; i++)
        error = ALLOW_IF(filter, "ioctl", 1, SCMP_CMP_MASKED_EQ, COMMAND, plain[i]);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0] && !error; i++)
        error = REFUSE_IF(filter, "ioctl", EPERM, 1, SCMP_CMP_MASKED_EQ, COMMAND, refused[i]);
    return error || !(filter->whom & (N | P | R)) ? error : add_other_types(filter);
}

static int add_prctl(struct filter *filter)
{
    static const int options[] = {PR_SET_NAME,      PR_GET_NAME,         PR_SET_PDEATHSIG,
                                  PR_GET_PDEATHSIG, PR_GET_DUMPABLE,     PR_SET_DUMPABLE,
                                  PR_CAPBSET_READ,  PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS,
                                  PR_GET_SECCOMP,   PR_SET_TIMERSLACK,   PR_GET_TIMERSLACK,
                                  PR_GET_KEEPCAPS,  PR_GET_SECUREBITS,   0x53564d41 /* PR_SET_VMA */};
    int error = 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0] && !error; i++)
        error = ALLOW_IF(filter, "prctl", 0, SCMP_CMP_EQ, (scmp_datum_t)options[i]);
    return error;
}

/* The frontend runs no code but what it began with. */
static int add_mapping(struct filter *filter)
{
    if (!(filter->whom & F))
        return 0;
    const int error = ALLOW_IF(filter, "mmap", 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    return error ? error : ALLOW_IF(filter, "mprotect", 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
}

static int fill(struct filter *filter)
{
    int error = add_clone(filter);
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0] && !error; i++)
        if (allowed[i].whom & filter->whom)
            error = add_names(filter, SCMP_ACT_ALLOW, allowed[i].calls);
    if (!error)
        error = add_names(filter, filter->attack, attacks);
    if (!error)
        error = add_self(filter);
    if (!error)
        error = add_scheduling(filter);
    if (!error)
        error = add_sockets(filter);
    if (!error)
        error = add_fcntl(filter);
    if (!error)
        error = add_ioctl(filter);
    if (!error)
        error = add_prctl(filter);
    if (!error)
        error = add_mapping(filter);
    for (size_t i = 0; i < sizeof hot / sizeof hot[0] && !error; i++)
        (void)seccomp_syscall_priority(filter->context, seccomp_syscall_resolve_name(hot[i]),
                                       (uint8_t)(255 - i));
    return error;
}

int rg_sandbox_confine_calls(const struct rg_sandbox_policy *policy, char *why, size_t why_size)
{
    const bool learning = policy->mode == RG_SANDBOX_LOG;
    const uint32_t otherwise = learning ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO(ENOSYS);
    struct filter filter = {.policy = policy,
                            .whom = whom_of(policy),
                            .attack = learning ? SCMP_ACT_NOTIFY : SCMP_ACT_KILL_PROCESS,
                            .refused = learning ? SCMP_ACT_NOTIFY : 0,
                            .why = why,
                            .why_size = why_size};
    filter.context = seccomp_init(otherwise);
    if (!filter.context)
        return ENOMEM;
    int error = -seccomp_attr_set(filter.context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error = -seccomp_attr_set(filter.context, SCMP_FLTATR_CTL_NNP, 0); /* set already */
    if (!error && !learning)
        error = -seccomp_attr_set(filter.context, SCMP_FLTATR_CTL_TSYNC, 1);
    (void)seccomp_attr_set(filter.context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (!error)
        error = fill(&filter);
    if (!error)
        error = learning ? rg_sandbox_learn(filter.context, policy) : -seccomp_load(filter.context);
    seccomp_release(filter.context);
    return error;
}
