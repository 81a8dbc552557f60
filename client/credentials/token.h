/*
 * token.h - what an operator hands to a user: rgpu1:BASE64URL@HOST:PORT, with the hash of the authority's key and a
 * secret that is good for joining once. No state; any thread.
 */
#ifndef RG_CLIENT_CREDENTIALS_TOKEN_H
#define RG_CLIENT_CREDENTIALS_TOKEN_H

#include "common/base/status.h"
#include "proto/control/control.h"
#include "transport/address.h"

#include <stdint.h>

struct rg_join_token {
    uint8_t authority[32]; /* SHA-256 of the authority's SubjectPublicKeyInfo */
    uint8_t secret[RG_JOIN_SECRET];
    char server[320]; /* "gpu-machine:7600" */
    struct rg_address address;
};

/** Takes `text` apart. RG_ERR_INVALID with a sentence in `why`, in which nothing of the secret is. */
RG_MUST_CHECK enum rg_status rg_join_token_parse(const char *text, struct rg_join_token *out, char *why,
                                                 size_t why_size);

#endif
