/*
 * sandbox.h - what a process of the server cannot do once it has been taken over.
 *
 * It is made in two steps. Between fork and exec the child gets what its parent's rights are needed for: a user
 * of its own, namespaces, limits (rg_sandbox_enter; struct rg_process names the sandbox). The program's main gives
 * up the rest before it loads a driver or reads a byte of a client's: capabilities, new privileges, files
 * (Landlock), system calls (seccomp) by rg_sandbox_confine. What of it this machine can do is tried once when the
 * server starts (rg_sandbox_find). From then on each measure found is required: a process that cannot take it does
 * not begin.
 *
 *   parent:  rg_sandbox_find(…, &measures) once; for each child fill in a struct rg_sandbox, give
 *            rg_sandbox_format(&sandbox.policy) as its argument --sandbox, start it with .sandbox = &sandbox
 *   child:   rg_sandbox_parse(argument, &policy), rg_sandbox_confine(&policy, why)
 */
#ifndef RG_SERVER_SANDBOX_SANDBOX_H
#define RG_SERVER_SANDBOX_SANDBOX_H

#include "common/base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Which program: what it may call and open follows from this (syscalls.c, arguments.c, files.c). */
enum rg_sandbox_program {
    RG_SANDBOX_WORKER,     /* executes a session's calls through the driver */
    RG_SANDBOX_PROBE,      /* loads the driver once to look at it */
    RG_SANDBOX_MANAGER,    /* asks NVML */
    RG_SANDBOX_NETPERF,    /* answers measurements */
    RG_SANDBOX_ACCOUNTANT, /* keeps the accounts: the files of `runtime` alone, nothing of others' */
    RG_SANDBOX_POOL,       /* talks to etcd: the network, and what names are looked up with */
    RG_SANDBOX_FRONTEND, /* talks to the unknown: inherited descriptors only, opens nothing. Confine it when all libraries are loaded */
    RG_SANDBOX_PROGRAMS
};

enum rg_sandbox_mode {
    RG_SANDBOX_OFF,
    RG_SANDBOX_AUTO,   /* what this machine can do */
    RG_SANDBOX_STRICT, /* all, or the server does not start */
    RG_SANDBOX_LOG,    /* as auto, but system calls and files that would be refused are allowed and logged */
};
#define RG_SANDBOX_MODES "auto|strict|log|off"

/** The measures. */
enum {
    RG_SANDBOX_OWN_USER = 1 << 0, /* a user and group of the range --worker-uids, one an identity */
    RG_SANDBOX_MOUNTS = 1 << 1,   /* mount namespace: others' /tmp, /dev/shm, /run and homes are not there */
    RG_SANDBOX_IPC = 1 << 2,      /* IPC namespace */
    RG_SANDBOX_NETWORK = 1 << 3,  /* network namespace: no network but the descriptors passed in */
    RG_SANDBOX_LIMITS = 1 << 4,   /* core dumps, processes, open files */
    RG_SANDBOX_CAPABILITIES = 1 << 5,  /* none, and none to be had */
    RG_SANDBOX_NO_PRIVILEGES = 1 << 6, /* no_new_privs */
    RG_SANDBOX_FILES = 1 << 7,         /* Landlock: files by a list */
    RG_SANDBOX_SCOPES = 1 << 8,        /* Landlock: no signals to others, no abstract sockets of others */
    RG_SANDBOX_CALLS = 1 << 9,         /* seccomp: system calls by a list */
    RG_SANDBOX_PROCESSES = 1 << 10,    /* /proc shows this user's processes only; with MOUNTS and OWN_USER */
    RG_SANDBOX_ALL = (1 << 11) - 1,
};

/** What the program's main is to do; a text of it travels as its argument. */
struct rg_sandbox_policy {
    enum rg_sandbox_program program;
    enum rg_sandbox_mode mode;
    uint32_t measures;     /* those to be taken; the rest is skipped */
    bool soft;             /* the driver is the software device */
    bool rdma;             /* RDMA is allowed: its devices and sockets */
    uint64_t gpus;         /* /dev/nvidia0 is bit 0, …; all set: every one */
    char driver[PATH_MAX]; /* its library; "": none */
    char runtime
        [PATH_MAX];     /* what sessions of the identity share while they run: sockets, shm/; "": nothing */
    char mps[PATH_MAX]; /* the pipes of MPS's control daemon; "": they are not for it */
};

/* Namespaces that an identity's processes have in common, in the order in which they are joined. */
enum { RG_SANDBOX_NS_USER, RG_SANDBOX_NS_IPC, RG_SANDBOX_NS_NET, RG_SANDBOX_NAMESPACES };
enum { RG_SANDBOX_KEEP = 64 };

/** A folder that stays where others are covered, possibly under another name. */
struct rg_sandbox_keep {
    const char *folder; /* NULL: the end of the list */
    const char *at;     /* NULL: where it is */
};

/** What the child does between fork and exec, all of it prepared by the parent. */
struct rg_sandbox {
    struct rg_sandbox_policy policy;
    uid_t uid; /* OWN_USER: never 0 */
    gid_t gid;
    gid_t devices[8]; /* groups that the GPU's device files belong to, where only groups may open them */
    int n_devices;
    int namespaces[RG_SANDBOX_NAMESPACES]; /* to be joined, from rg_sandbox_namespaces_make; -1: none */
    uint64_t max_files;                    /* RLIMIT_NOFILE; 0: as it is */
    uint64_t max_processes; /* RLIMIT_NPROC, threads included, of this uid; only with OWN_USER; 0: as it is */
    const char *shm;        /* MOUNTS: what becomes /dev/shm; NULL: an empty one */
    struct rg_sandbox_keep keep[RG_SANDBOX_KEEP]; /* MOUNTS: what stays; ends with an empty one */
};

/** An empty sandbox: no measures, nothing to join. */
#define RG_SANDBOX_INIT ((struct rg_sandbox){.namespaces = {-1, -1, -1}})

enum { RG_SANDBOX_TEXT = 3 * PATH_MAX + 128 };

/**
 * Makes the namespaces of `measures` (IPC, NETWORK; MOUNTS asks for a user namespace where this process is not
 * root) for the children of one identity; to be closed by rg_sandbox_namespaces_close. Any thread.
 */
RG_MUST_CHECK enum rg_status rg_sandbox_namespaces_make(uint32_t measures, int out[RG_SANDBOX_NAMESPACES],
                                                        char *why, size_t why_size);
void rg_sandbox_namespaces_close(int namespaces[RG_SANDBOX_NAMESPACES]);

/** The mode of that name; false: it is none. */
bool rg_sandbox_mode_by_name(const char *name, enum rg_sandbox_mode *out);
const char *rg_sandbox_mode_name(enum rg_sandbox_mode mode);

/**
 * Which of `sandbox->policy.measures` this process can give a child: each is tried in a child. `why` says for
 * each that is missing why and what would help ("" if none is). Any thread that may fork; at the start.
 */
uint32_t rg_sandbox_find(const struct rg_sandbox *sandbox, char *why, size_t why_size);

/** "own user, mount namespace, …" of these measures. */
void rg_sandbox_describe(uint32_t measures, char *out, size_t size);

/** The policy as one argument of the program's command line. */
void rg_sandbox_format(const struct rg_sandbox_policy *policy, char out[RG_SANDBOX_TEXT]);
RG_MUST_CHECK enum rg_status rg_sandbox_parse(const char *text, struct rg_sandbox_policy *out);

/**
 * In the child between fork and exec: async-signal-safe. 0, or -1 with errno and *step, what could not be done.
 * Every measure of the policy that belongs here is taken or the child must end.
 */
int rg_sandbox_enter(const struct rg_sandbox *sandbox, const char **step);

/**
 * In main, while there is one thread (but for the frontend, see above: then all threads are confined), before
 * anything of a client's is read. RG_ERR_UNSUPPORTED with the measure in `why`: the program must end.
 */
RG_MUST_CHECK enum rg_status rg_sandbox_confine(const struct rg_sandbox_policy *policy, char *why,
                                                size_t why_size);

/**
 * rg_sandbox_parse and rg_sandbox_confine for a program's main, which says why not itself (log): false means that it
 * must end. `text` NULL: it was started without.
 */
RG_MUST_CHECK bool rg_sandbox_begin(const char *text, struct rg_sandbox_policy *out);

#endif
