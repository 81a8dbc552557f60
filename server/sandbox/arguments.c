/*
 * arguments.c - the system calls of which a confined program may make a part, by their arguments.
 *
 * Beside the rules that allow stand those that refuse: what the rest fails with is ENOSYS, which libraries take for an old kernel, and
 * for these calls it is to be EPERM. Pointers are never compared, only numbers that the kernel takes from the same registers.
 */
#include "server/sandbox/filter.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALLOW_IF(filter, name, ...)                                                                          \
    rg_sandbox_filter_add(filter, SCMP_ACT_ALLOW, name, 1,                                                   \
                          (const struct scmp_arg_cmp[]){SCMP_CMP64(__VA_ARGS__)})
#define REFUSE_IF(filter, name, code, ...)                                                                   \
    rg_sandbox_filter_add(filter, (filter)->refused ? (filter)->refused : SCMP_ACT_ERRNO(code), name, 1,     \
                          (const struct scmp_arg_cmp[]){SCMP_CMP64(__VA_ARGS__)})

/* Threads, never processes, and no namespaces. */
static int add_clone(struct rg_sandbox_filter *filter)
{
    const uint64_t named = CLONE_THREAD | CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                           CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME;
    int error = ALLOW_IF(filter, "clone", 0, SCMP_CMP_MASKED_EQ, named, CLONE_THREAD);
    if (!error && (filter->whom & M) && (filter->whom & R)) { /* perftest's programs */
        error = ALLOW_IF(filter, "clone", 0, SCMP_CMP_MASKED_EQ, named, 0);
        if (!error)
            error = rg_sandbox_filter_add_names(filter, SCMP_ACT_ALLOW, "execve vfork fork");
    } else if (!error) {
        /* NVIDIA's library tries to start its helper where a device file is missing */
        error = rg_sandbox_filter_add_names(filter,
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
static int add_self(struct rg_sandbox_filter *filter)
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
            error = rg_sandbox_filter_add(filter, filter->attack, memory[i], 1,
                                          (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_NE, self)});
    }
    if (!error && (filter->whom & (N | P))) /* of the calling thread */
        error = rg_sandbox_filter_add(filter, SCMP_ACT_ALLOW, "setpriority", 2,
                                      (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, PRIO_PROCESS),
                                                                    SCMP_CMP64(1, SCMP_CMP_EQ, 0)});
    if (!error)
        error = ALLOW_IF(filter, "prlimit64", 0, SCMP_CMP_EQ, 0);
    if (!error)
        error = ALLOW_IF(filter, "prlimit64", 0, SCMP_CMP_EQ, self);
    return error ? error : rg_sandbox_filter_add(filter, SCMP_ACT_ALLOW, "setrlimit", 0, NULL);
}

enum { OF_A_THREAD = 1 }; /* IOPRIO_WHO_PROCESS */

#define SOCKET_TYPE UINT64_C(0xf) /* without the flags that may be set with it */

/*
 * How it is scheduled: the calling thread. NVIDIA's driver may set other threads of its process by the C library, which
 * names them by numbers as another process has them; so what would be worse than the usual is refused, but on which
 * processors a thread runs has no such bound (SECURITY.md).
 */
static int add_scheduling(struct rg_sandbox_filter *filter)
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
        error = rg_sandbox_filter_add(filter, filter->refused ? filter->refused : SCMP_ACT_ERRNO(EPERM),
                                      "sched_setscheduler", 2,
                                      (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_NE, 0),
                                                                    SCMP_CMP64(1, SCMP_CMP_GT, SCHED_RR)});
    if (!error)
        error = ALLOW_IF(filter, "sched_setattr", 0, SCMP_CMP_EQ, 0);
    if (!error)
        error = REFUSE_IF(filter, "sched_setattr", EPERM, 0, SCMP_CMP_NE, 0);
    return error
               ? error
               : rg_sandbox_filter_add(filter, SCMP_ACT_ALLOW, "ioprio_set", 2,
                                       (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, OF_A_THREAD),
                                                                     SCMP_CMP64(1, SCMP_CMP_EQ, 0)});
}

/*
 * In a network of its own, where nobody is but the same identity's workers, NVIDIA's libraries may have connections: NCCL makes a
 * communicator by them, of ranks of one process, too, and asks the kernel for interfaces. By TCP alone: for another protocol (SCTP, SMC)
 * the kernel would load a module, and be open to what a worker that was taken over asks of that.
 */
static int add_own_network(struct rg_sandbox_filter *filter)
{
    static const int families[] = {AF_INET, AF_INET6}, protocols[] = {0, IPPROTO_TCP};
    int error = 0;
    if (!(filter->whom & N) || !(filter->policy->measures & RG_SANDBOX_NETWORK))
        return 0;
    for (size_t i = 0; i < 4 && !error; i++)
        error = rg_sandbox_filter_add(
            filter, SCMP_ACT_ALLOW, "socket", 3,
            (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, (scmp_datum_t)families[i / 2]),
                                          SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE, SOCK_STREAM),
                                          SCMP_CMP64(2, SCMP_CMP_EQ, (scmp_datum_t)protocols[i % 2])});
    return error ? error
                 : rg_sandbox_filter_add(
                       filter, SCMP_ACT_ALLOW, "socket", 2,
                       (const struct scmp_arg_cmp[]){SCMP_CMP64(0, SCMP_CMP_EQ, AF_NETLINK),
                                                     SCMP_CMP64(2, SCMP_CMP_EQ, NETLINK_ROUTE)});
}

static int add_sockets(struct rg_sandbox_filter *filter)
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
    return error ? error : add_own_network(filter);
}

/* The kernel looks at 32 bits of a command: what more a caller sets changes nothing, and so must not here. */
#define COMMAND UINT64_C(0xffffffff)

/*
 * All but whom a descriptor signals, and by what: the kernel sends such a signal, SIGKILL too, to any process of the same
 * user.
 */
static int add_fcntl(struct rg_sandbox_filter *filter)
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
static int add_other_types(struct rg_sandbox_filter *filter)
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
static int add_ioctl(struct rg_sandbox_filter *filter)
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

static int add_prctl(struct rg_sandbox_filter *filter)
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
static int add_mapping(struct rg_sandbox_filter *filter)
{
    if (!(filter->whom & F))
        return 0;
    const int error = ALLOW_IF(filter, "mmap", 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    return error ? error : ALLOW_IF(filter, "mprotect", 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
}

int rg_sandbox_filter_add_arguments(struct rg_sandbox_filter *filter)
{
    static int (*const parts[])(struct rg_sandbox_filter * filter) = {
        add_clone, add_self, add_scheduling, add_sockets, add_fcntl, add_ioctl, add_prctl, add_mapping};
    int error = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !error; i++)
        error = parts[i](filter);
    return error;
}
