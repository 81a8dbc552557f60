/* tokens.c - see tokens.h. */
#include "server/identity/tokens.h"

#include "common/base/hex.h"
#include "server/identity/fields.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define WEEK (7 * 86400ll)

static bool set_file(struct rg_token *token, const uint8_t secret[RG_IDENTITY_SECRET])
{
    uint8_t hash[32];
    if (EVP_Digest(secret, RG_IDENTITY_SECRET, hash, NULL, EVP_sha256(), NULL) != 1)
        return false;
    char text[2 * sizeof hash + 1];
    rg_hex(hash, sizeof hash, text);
    snprintf(token->file, sizeof token->file, "tokens/%s", text);
    return true;
}

static bool take(const struct rg_fields *fields, struct rg_token *token)
{
    char *const *words = fields->words;
    uint64_t left, uses;
    if (rg_fields_is(fields, "user", 2)) {
        snprintf(token->user, sizeof token->user, "%s", words[1]);
        return rg_user_check_name(words[1], NULL, 0) == RG_OK;
    }
    if (rg_fields_is(fields, "uses", 4)) {
        if (!rg_field_number(words[1], UINT32_MAX, &left) || strcmp(words[2], "of") != 0 ||
            !rg_field_number(words[3], UINT32_MAX, &uses) || left > uses)
            return false;
        token->uses_left = (uint32_t)left;
        token->uses = (uint32_t)uses;
        return true;
    }
    if (rg_fields_is(fields, "created", 2))
        return rg_field_time(words[1], &token->created);
    if (rg_fields_is(fields, "expires", 2))
        return rg_field_time(words[1], &token->expires);
    return rg_limits_take(fields, &token->limits);
}

static enum rg_status load(const struct rg_state *state, struct rg_token *token, char *why, size_t why_size)
{
    char *text;
    size_t size;
    enum rg_status status = rg_state_read(state, token->file, RG_STATE_PUBLIC, &text, &size, why, why_size);
    if (status != RG_OK)
        return status;
    struct rg_fields fields = {.file = token->file, .at = text};
    while (status == RG_OK && rg_fields_next(&fields))
        if (!take(&fields, token))
            status = rg_fields_bad(&fields, why, why_size);
    if (status == RG_OK && (!token->user[0] || !token->uses || !token->expires || strlen(text) > size)) {
        rg_explain(why, why_size, "%s/%s is not complete: remove it, and make another token", state->path,
                   token->file);
        status = RG_ERR_INVALID;
    }
    free(text);
    return status;
}

enum rg_status rg_token_find(const struct rg_state *state, const uint8_t secret[RG_IDENTITY_SECRET],
                             struct rg_token *token, char *why, size_t why_size)
{
    memset(token, 0, sizeof *token);
    return set_file(token, secret) ? load(state, token, why, why_size) : RG_ERR_NO_MEMORY;
}

enum rg_status rg_token_load(const struct rg_state *state, const char *hash, struct rg_token *token,
                             char *why, size_t why_size)
{
    memset(token, 0, sizeof *token);
    if (snprintf(token->file, sizeof token->file, "tokens/%s", hash) >= (int)sizeof token->file)
        return RG_ERR_INVALID;
    return load(state, token, why, why_size);
}

enum rg_status rg_token_make(struct rg_token *token, uint8_t secret[RG_IDENTITY_SECRET], char *why,
                             size_t why_size)
{
    if (getrandom(secret, RG_IDENTITY_SECRET, 0) == RG_IDENTITY_SECRET && set_file(token, secret))
        return RG_OK;
    return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "this machine gives no random numbers");
}

enum rg_status rg_token_save(const struct rg_state *state, const struct rg_token *token, char *why,
                             size_t why_size)
{
    struct rg_text text = {0};
    rg_text_add(&text, "user %s\nuses %u of %u\ncreated %lld\nexpires %lld\n", token->user, token->uses_left,
                token->uses, (long long)token->created, (long long)token->expires);
    rg_limits_add(&text, &token->limits);
    const enum rg_status status =
        text.failed ? RG_ERR_NO_MEMORY
                    : rg_state_write(state, token->file, text.data, text.size, why, why_size);
    rg_text_fini(&text);
    return status;
}

enum rg_status rg_tokens_remove(const struct rg_state *state, const char *user, int64_t now, size_t *n,
                                char *why, size_t why_size)
{
    char **names;
    size_t n_names;
    *n = 0;
    enum rg_status status = rg_state_list(state, "tokens", &names, &n_names, why, why_size);
    for (size_t i = 0; status == RG_OK && i < n_names; i++) {
        struct rg_token token;
        char ignored[256];
        if (rg_token_load(state, names[i], &token, ignored, sizeof ignored) != RG_OK)
            continue; /* it lets nobody join */
        const bool is_users = user && strcmp(token.user, user) == 0;
        if (!is_users && token.expires > now - WEEK)
            continue;
        *n += is_users && token.uses_left && token.expires > now;
        status = rg_state_remove(state, token.file, why, why_size);
    }
    rg_state_list_free(names, n_names);
    return status;
}
