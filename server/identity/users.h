/*
 * users.h - users of our own authority: a file users/NAME each, with limits and the certificates that were given.
 *
 *   max-sessions 4
 *   certificate 4f0c… issued 1790000000 expires 1797776000
 *   certificate 51ab… issued 1790000000 expires 1797776000 revoked 1790003600
 *
 * Only certificates that stand here are accepted, so losing the folder revokes all of them, and revoking is a word in a line.
 * Certificates that expired 30 days ago are left out when a file is written, and all that have expired once there are many. Failures as in state.h, RG_ERR_INVALID for a file that
 * is not understood. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_USERS_H
#define RG_SERVER_IDENTITY_USERS_H

#include "common/base/status.h"
#include "server/identity/fields.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_USER_NAME 65 /* with the NUL: what a certificate's common name may have */

struct rg_user_certificate {
    uint8_t serial[RG_IDENTITY_SERIAL];
    uint8_t serial_size;
    int64_t issued, expires;
    int64_t revoked; /* when; 0: not */
};

struct rg_user {
    char name[RG_USER_NAME];
    struct rg_identity_limits limits;
    size_t n;
    struct rg_user_certificate *certificates; /* room for one more than n */
};

/**
 * Whether a user can be called that: 1 to 64 of letters, digits and "._@+-", not beginning with '.' or '-', and not what could be a
 * serial number. RG_ERR_INVALID with a sentence.
 */
RG_MUST_CHECK enum rg_status rg_user_check_name(const char *name, char *why, size_t why_size);

/** RG_ERR_NOT_FOUND: there is none of that name, or none can be; `user` is then new and empty. To be released by rg_user_fini. */
RG_MUST_CHECK enum rg_status rg_user_load(const struct rg_state *state, const char *name,
                                          struct rg_user *user, char *why, size_t why_size);
/** With the lock. */
RG_MUST_CHECK enum rg_status rg_user_save(const struct rg_state *state, const struct rg_user *user,
                                          int64_t now, char *why, size_t why_size);
void rg_user_fini(struct rg_user *user);

/** NULL: not known. */
struct rg_user_certificate *rg_user_find(struct rg_user *user, const uint8_t *serial, size_t serial_size);
/** Certificates that count towards RG_IDENTITY_CERTIFICATES_MAX: revoked ones stay until they expire. */
size_t rg_user_unexpired(const struct rg_user *user, int64_t now);
/** Certificates that can be used now. */
size_t rg_user_valid(const struct rg_user *user, int64_t now);

/* Lines of limits, which tokens have as well. */
void rg_limits_add(struct rg_text *text, const struct rg_identity_limits *limits);
/** Whether the line was a limit. */
bool rg_limits_take(const struct rg_fields *fields, struct rg_identity_limits *limits);

#endif
