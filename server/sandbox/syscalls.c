/*
 * syscalls.c - the system calls that a confined program may make, as data with the reason of each group, and the
 * seccomp filter made of it (those of which a part is allowed: arguments.c).
 *
 * What is listed is allowed. What no program of ours has a use for, and an attacker has, kills the process
 * (`attacks`): nothing is lost that was still to be trusted, and the log says it. Everything else fails: with
 * EPERM what is refused in its arguments, with ENOSYS the rest, because that is what libraries are prepared for (an
 * old kernel). Architectures other than the machine's own are killed.
 *
 * In mode log nothing fails: what would, is named once in the log (learn.c).
 */
#include "server/sandbox/filter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

static int whom_of(const struct rg_sandbox_policy *policy)
{
    static const int programs[RG_SANDBOX_PROGRAMS] = {
        [RG_SANDBOX_PROBE] = P,      [RG_SANDBOX_MANAGER] = P, [RG_SANDBOX_NETPERF] = M,
        [RG_SANDBOX_ACCOUNTANT] = A, [RG_SANDBOX_POOL] = E,    [RG_SANDBOX_FRONTEND] = F};
    return (policy->program == RG_SANDBOX_WORKER ? policy->soft ? W : N : programs[policy->program]) |
           (policy->rdma ? R : 0);
}

int rg_sandbox_filter_add(struct rg_sandbox_filter *filter, uint32_t action, const char *name, unsigned n,
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

int rg_sandbox_filter_add_names(struct rg_sandbox_filter *filter, uint32_t action, const char *names)
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
            error = rg_sandbox_filter_add(filter, action, name, 0, NULL);
        at += size;
        at += strspn(at, " ");
    }
    return error;
}

static int fill(struct rg_sandbox_filter *filter)
{
    int error = 0;
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0] && !error; i++)
        if (allowed[i].whom & filter->whom)
            error = rg_sandbox_filter_add_names(filter, SCMP_ACT_ALLOW, allowed[i].calls);
    if (!error)
        error = rg_sandbox_filter_add_names(filter, filter->attack, attacks);
    if (!error)
        error = rg_sandbox_filter_add_arguments(filter);
    for (size_t i = 0; i < sizeof hot / sizeof hot[0] && !error; i++)
        (void)seccomp_syscall_priority(filter->context, seccomp_syscall_resolve_name(hot[i]),
                                       (uint8_t)(255 - i));
    return error;
}

int rg_sandbox_confine_calls(const struct rg_sandbox_policy *policy, char *why, size_t why_size)
{
    const bool learning = policy->mode == RG_SANDBOX_LOG;
    const uint32_t otherwise = learning ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO(ENOSYS);
    struct rg_sandbox_filter filter = {.policy = policy,
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
