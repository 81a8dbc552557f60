/*
 * group.h - what the processes of one identity have in common while there are any: a user, namespaces, a runtime folder.
 * The monitor's main thread.
 */
#ifndef RG_SERVER_SANDBOX_GROUP_H
#define RG_SERVER_SANDBOX_GROUP_H

#include "server/sandbox/identities.h"

enum { RG_SANDBOX_GROUP_NAME = 32 };

/* where an identity's folders are in its mount namespace */
#define RG_SANDBOX_MOUNTED "/run/remote-gpu/own"

struct rg_sandbox_group {
    struct rg_sandbox_group *next;
    struct rg_sandboxes *sandboxes;
    char name[RG_SANDBOX_GROUP_NAME + 1]; /* of its folders */
    unsigned users;
    uid_t uid; /* 0: the server's */
    int uid_lock, folder_lock;
    int namespaces[RG_SANDBOX_NAMESPACES];
    char runtime[PATH_MAX], shm[PATH_MAX];
};

struct rg_sandboxes {
    struct rg_sandbox_settings settings;
    uid_t first, last;
    uint32_t measures;
    uint64_t unique;
    bool given_up;
    struct rg_sandbox_group *groups;
    char base[PATH_MAX - 128];
    char image_base[PATH_MAX], soft_base[PATH_MAX]; /* "": none */
};

/** That of the identity, found or made; NULL with the reason in `why`. */
struct rg_sandbox_group *rg_sandbox_group_of(struct rg_sandboxes *sandboxes, const char *identity, char *why,
                                             size_t why_size);
/** When the last process has ended. */
void rg_sandbox_group_free(struct rg_sandbox_group *group);

/** Puts the folders that every process keeps, and that of its driver (or NULL), behind the `n` that it has (lease.c). */
void rg_sandbox_keep_folders(struct rg_sandbox_lease *lease, const char *driver, int n);
/**
 * Says where the linker finds libraries, `driver`'s folder (or NULL) behind what the environment says, and puts those of them that are to be
 * seen behind the `n` folders that are kept (libraries.c).
 */
void rg_sandbox_find_libraries(struct rg_sandbox_lease *lease, const char *driver, int n);
/** Frees that; a zeroed lease is fine. */
void rg_sandbox_forget_libraries(struct rg_sandbox_lease *lease);

#endif
