/*
 * state.h - the state folder: small files that are there as a whole or not at all, and a lock between processes.
 *
 *   ca.crt ca.key      our own authority                    tls.crt tls.key   this server's certificate and key
 *   tokens/HASH        one file a token                     users/NAME        one file a user
 *   revoked            names and serials of another authority that are refused
 *   pool/ID            one file a run that was to come into a pool (server/daemon/pool/runs.h)
 *   port               that clients come to                 lock              held by whoever changes something
 *
 * The folder is for its owner alone (0700), and so are its files (0600). Whatever else is found there is refused with a sentence:
 * a folder that others can write, a key that others can read, a link. Files are written under a temporary name, synced and renamed;
 * what a process that died has left of that is removed by the next one that has the lock. When root works on the folder of another
 * user (a service with DynamicUser=), the files are given to that user.
 *
 * Failures: RG_ERR_NOT_FOUND, RG_ERR_INVALID (modes, owners, kinds, sizes), RG_ERR_IO, each with a sentence; RG_ERR_TIMEOUT from the
 * lock. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_STATE_H
#define RG_SERVER_IDENTITY_STATE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rg_state {
    int folder; /* -1: not open */
    int lock;   /* -1: not held */
    uid_t owner;
    gid_t group;
    uint64_t patience_ns; /* how long the lock is waited for; 0: two seconds */
    char path[4096];
};

/** What a file is allowed to be for others than its owner. */
enum rg_state_privacy {
    RG_STATE_SECRET, /* nobody else may read it */
    RG_STATE_PUBLIC, /* nobody else may write it */
};

/** Opens the folder; `create`: makes it, with those above it, if it is not there (else RG_ERR_NOT_FOUND). */
RG_MUST_CHECK enum rg_status rg_state_open(struct rg_state *state, const char *path, bool create, char *why,
                                           size_t why_size);
void rg_state_close(struct rg_state *state);

/** Keeps other processes from changing anything; waits for patience_ns at most. Not to be taken twice. */
RG_MUST_CHECK enum rg_status rg_state_lock(struct rg_state *state, char *why, size_t why_size);
void rg_state_unlock(struct rg_state *state);

/**
 * The contents of `name` ("ca.key", "users/alice") with a NUL behind them, to be freed (rg_state_wipe for secrets). RG_ERR_NOT_FOUND
 * without a sentence: no such file.
 */
RG_MUST_CHECK enum rg_status rg_state_read(const struct rg_state *state, const char *name,
                                           enum rg_state_privacy privacy, char **text, size_t *size,
                                           char *why, size_t why_size);
/** Replaces or makes the file (RG_ERR_LIMIT: of more than RG_IDENTITY_FILE_MAX bytes); on failure there is what was there before. With the lock. */
RG_MUST_CHECK enum rg_status rg_state_write(const struct rg_state *state, const char *name, const void *data,
                                            size_t size, char *why, size_t why_size);
/** Removes a file; one that is not there is fine. With the lock. */
RG_MUST_CHECK enum rg_status rg_state_remove(const struct rg_state *state, const char *name, char *why,
                                             size_t why_size);

/**
 * The names in a folder ("users", "tokens"), sorted: an array to be freed by rg_state_list_free. A folder that is not there is empty.
 * RG_ERR_LIMIT: more than RG_IDENTITY_FILES_MAX.
 */
RG_MUST_CHECK enum rg_status rg_state_list(const struct rg_state *state, const char *folder, char ***names,
                                           size_t *n, char *why, size_t why_size);
void rg_state_list_free(char **names, size_t n);

/** Overwrites and frees; NULL is fine. */
void rg_state_wipe(char *text, size_t size);

#endif
