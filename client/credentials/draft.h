/*
 * draft.h - a credentials folder in the making: whatever happens on the way, either all of it takes its place or
 * nothing is left.
 *
 * The files are written into a hidden folder beside the final one, synced, and the folder gets its name by one rename.
 * Room for what is not known yet is taken beforehand, so that a full disk shows before a token is used up. What a
 * process that was killed has left is removed by the next draft: a lock tells which folders nobody works in.
 *
 * What can fail is a sentence in `why`: no right to write, a full disk, credentials that are there already. One thread.
 */
#ifndef RG_CLIENT_CREDENTIALS_DRAFT_H
#define RG_CLIENT_CREDENTIALS_DRAFT_H

#include "common/base/status.h"
#include "transport/address.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct rg_draft {
    char base[PATH_MAX];  /* of all credentials */
    char final[PATH_MAX]; /* the folder that it becomes */
    char path[PATH_MAX];  /* where it is made */
    int fd;               /* of that folder, locked; -1: no draft is open */
};

/**
 * Begins one for `server`. RG_ERR_INVALID: there are credentials for it and `force` does not say that they are to be
 * replaced; RG_ERR_IO, RG_ERR_NOT_FOUND: the folder cannot be made.
 */
RG_MUST_CHECK enum rg_status rg_draft_begin(struct rg_draft *draft, const struct rg_address *server,
                                            bool force, char *why, size_t why_size);
/** Writes a whole file of the folder (mode 0600), over what was reserved for it. */
RG_MUST_CHECK enum rg_status rg_draft_write(struct rg_draft *draft, const char *name, const char *text,
                                            char *why, size_t why_size);
/** Takes room for a file whose contents come later. */
RG_MUST_CHECK enum rg_status rg_draft_reserve(struct rg_draft *draft, const char *name, size_t size,
                                              char *why, size_t why_size);
/** Puts the folder in its place, instead of one that is there; it is then the server that is used by default. */
RG_MUST_CHECK enum rg_status rg_draft_commit(struct rg_draft *draft, char *why, size_t why_size);
/** Removes what was made so far; nothing to do after a commit, or if none was begun. */
void rg_draft_abandon(struct rg_draft *draft);

/** Replaces one file of a finished folder by a rename, so that readers find the old or the new one. */
RG_MUST_CHECK enum rg_status rg_draft_replace(const char *folder, const char *name, const char *text,
                                              char *why, size_t why_size);

#endif
