/*
 * identities.h - the server's side of the sandboxes: who gets which user, namespaces and folders.
 *
 * Processes of one identity have a user, namespaces and two kinds of folders in common: caches, which stay, and a
 * runtime folder, in which its sessions find each other while there are any. From each other they are kept apart by Landlock and seccomp.
 * Which user an identity gets follows from its name as far as that is free; servers of one machine agree by locked
 * files. The monitor's main thread.
 */
#ifndef RG_SERVER_SANDBOX_IDENTITIES_H
#define RG_SERVER_SANDBOX_IDENTITIES_H

#include "server/sandbox/sandbox.h"

/** Whose sessions may share memory and events with each other, and so have a user in common. */
enum rg_sandbox_share { RG_SANDBOX_SHARE_NONE, RG_SANDBOX_SHARE_IDENTITY, RG_SANDBOX_SHARE_ANY };
#define RG_SANDBOX_SHARES "none|identity|any"
/** The words of --share-ipc. False: there is no such word. */
bool rg_sandbox_share_by_name(const char *name, enum rg_sandbox_share *out);

struct rg_sandbox_settings {
    enum rg_sandbox_mode mode;
    enum rg_sandbox_share share;
    const char *uids;        /* "FIRST-LAST"; NULL: the default range */
    bool rdma;               /* workers may use RDMA: then they have no network namespace */
    const char *image_cache; /* below it an identity has its folder; NULL: by the environment */
};

/**
 * Whether this process may become that user and group, and enter an empty root folder before. Root of a user namespace has no others
 * than those that were mapped into it: often none (unshare -r, fakeroot), and is an ordinary user outside. Root without capabilities is one, too.
 */
bool rg_sandbox_can_become(uid_t user);

enum { RG_SANDBOX_VARIABLES = 2 };

struct rg_sandboxes;
struct rg_sandbox_group;

/* What is kept for an identity: images of clients, code that the software device, and NVIDIA's driver, made of them. */
enum rg_sandbox_cache { RG_SANDBOX_IMAGES, RG_SANDBOX_SOFT, RG_SANDBOX_CUDA, RG_SANDBOX_CACHES };

/** A process's: valid until it is released. */
struct rg_sandbox_lease {
    struct rg_sandbox sandbox;
    char text[RG_SANDBOX_TEXT]; /* the program's argument --sandbox */
    char **environment;
    struct rg_sandbox_group *group;
    struct {
        char folder[PATH_MAX], assignment[PATH_MAX + 32]; /* "VARIABLE=…"; "": none */
    } caches[RG_SANDBOX_CACHES];
    char soft_share[PATH_MAX + 32], mps[PATH_MAX + 32]; /* assignments */
    char shm[PATH_MAX], library[PATH_MAX], driver[PATH_MAX];
    char *linker, *nccl;         /* assignments (libraries.c); NULL: none */
    char *kept[RG_SANDBOX_KEEP]; /* folders of libraries that are kept, each at its place in `sandbox` */
};

/**
 * Finds out what this machine can do, and says it in the log. NULL with the reason in `why`: settings that are wrong, or
 * mode strict and something is missing. While the process has one thread.
 */
struct rg_sandboxes *rg_sandboxes_open(const struct rg_sandbox_settings *settings, char *why,
                                       size_t why_size);
void rg_sandboxes_close(struct rg_sandboxes *sandboxes);
/** Which measures workers take. */
uint32_t rg_sandboxes_measures(const struct rg_sandboxes *sandboxes);
enum rg_sandbox_mode rg_sandboxes_mode(const struct rg_sandboxes *sandboxes);

/** A driver does not work in a sandbox, but does without: nothing that loads it is confined. False: it was only a trial. */
void rg_sandboxes_give_up(struct rg_sandboxes *sandboxes, bool given_up);

/** What a process gets beside what its program does. Zeroed: nothing. */
struct rg_sandbox_extra {
    char *variables[RG_SANDBOX_VARIABLES]; /* assignments in its environment; NULL or "": none */
    const char
        *mps; /* the folder of MPS's control daemon, through which its driver goes; NULL: it does not */
};

/**
 * A sandbox for `program`, for a session of `identity` (any text; the server's own programs have "")
 * that loads `driver` (NULL: none) and is granted the devices /dev/nvidiaN of the bits of `gpus`. NULL with the reason in `why`.
 * Release it when the process has ended.
 */
struct rg_sandbox_lease *rg_sandboxes_lease(struct rg_sandboxes *sandboxes, enum rg_sandbox_program program,
                                            const char *identity, const char *driver, bool soft,
                                            uint64_t gpus, const struct rg_sandbox_extra *extra, char *why,
                                            size_t why_size);
void rg_sandbox_release(struct rg_sandbox_lease *lease);

/** Of this process's environment what others may have, and `own` assignments; the array alone is to be freed. */
char **rg_sandbox_environment(char *const *own, size_t n);

#endif
