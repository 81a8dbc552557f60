/*
 * tokens.h - what lets a user join: a file tokens/HASH each, named after the SHA-256 of the secret, which itself is kept nowhere.
 *
 *   user alice
 *   uses 1 of 1
 *   created 1790000000
 *   expires 1790086400
 *   max-sessions 4
 *
 * A token that is used up or expired stays for a week, so that the user learns which of the two it was. A file is found by a hash of 128
 * random bits: how long that takes tells nothing of the secret. Failures as in state.h. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_TOKENS_H
#define RG_SERVER_IDENTITY_TOKENS_H

#include "common/base/status.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"
#include "server/identity/users.h"

#include <stddef.h>
#include <stdint.h>

struct rg_token {
    char file[80]; /* "tokens/HASH" */
    char user[RG_USER_NAME];
    uint32_t uses, uses_left;
    int64_t created, expires;
    struct rg_identity_limits limits; /* that the user gets; 0: stays as it is */
};

/** RG_ERR_NOT_FOUND: no such token. */
RG_MUST_CHECK enum rg_status rg_token_find(const struct rg_state *state,
                                           const uint8_t secret[RG_IDENTITY_SECRET], struct rg_token *token,
                                           char *why, size_t why_size);
/** By its file's name below tokens/. */
RG_MUST_CHECK enum rg_status rg_token_load(const struct rg_state *state, const char *hash,
                                           struct rg_token *token, char *why, size_t why_size);
/** A new secret, and the name of the file that a token with it has. */
RG_MUST_CHECK enum rg_status rg_token_make(struct rg_token *token, uint8_t secret[RG_IDENTITY_SECRET],
                                           char *why, size_t why_size);
/** With the lock. */
RG_MUST_CHECK enum rg_status rg_token_save(const struct rg_state *state, const struct rg_token *token,
                                           char *why, size_t why_size);

/** Removes those of `user` (NULL: of nobody) and those that ended a week ago; *n: how many of the user's could still be used. With the
 * lock. */
RG_MUST_CHECK enum rg_status rg_tokens_remove(const struct rg_state *state, const char *user, int64_t now,
                                              size_t *n, char *why, size_t why_size);

#endif
