/* join.c - what clients ask: joining by a token, a new certificate for an old one, and whether one is allowed; see identity.h. */
#include "server/identity/identity.h"
#include "server/identity/operator.h"
#include "server/identity/revoked.h"
#include "server/identity/store.h"
#include "server/identity/tokens.h"
#include "server/identity/users.h"
#include "server/identity/x509.h"

#include <string.h>

/* --- who is allowed ----------------------------------------------------------------------------------------------------- */

/* Whether our own authority's user may come with this certificate. The user is loaded, also where it is refused. */
static enum rg_status check_user(struct rg_identity_store *store, const char *name, const uint8_t *serial,
                                 size_t serial_size, struct rg_user *user, int64_t *expires, char *why,
                                 size_t why_size)
{
    const enum rg_status status = rg_user_load(&store->state, name, user, why, why_size);
    if (status != RG_OK && status != RG_ERR_NOT_FOUND)
        return status;
    const struct rg_user_certificate *one = status == RG_OK ? rg_user_find(user, serial, serial_size) : NULL;
    if (!one)
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "this server does not know this certificate of '%s' (its state folder may be a new one): "
            "join again with a new token",
            name);
    if (one->revoked) {
        char date[32];
        rg_x509_date_text(one->revoked, date);
        return RG_FAILED(RG_ERR_REFUSED, why, why_size,
                         "this certificate of '%s' was revoked on %s; ask the server's operator", name, date);
    }
    *expires = one->expires;
    return RG_OK;
}

enum rg_status rg_identity_check(struct rg_identity_store *store, const char *name, const uint8_t *serial,
                                 size_t serial_size, struct rg_identity_limits *limits, int64_t *expires,
                                 char *why, size_t why_size)
{
    int64_t until = 0;
    memset(limits, 0, sizeof *limits);
    if (expires)
        *expires = 0;
    if (!name[0] || serial_size == 0 || serial_size > RG_IDENTITY_SERIAL)
        return RG_FAILED(RG_ERR_REFUSED, why, why_size, "the certificate has no name or no serial number");
    RG_TRY(rg_revoked_check(&store->state, name, serial, serial_size, why, why_size));
    if (!store->is_own) {
        if (rg_operator_allows(&store->settings, name))
            return RG_OK;
        return RG_FAILED(RG_ERR_REFUSED, why, why_size,
                         "'%s' is not among the names that may use this server; ask its operator", name);
    }
    struct rg_user user = {0};
    enum rg_status status = check_user(store, name, serial, serial_size, &user, &until, why, why_size);
    if (status == RG_OK)
        *limits = user.limits;
    if (status == RG_OK && expires)
        *expires = until;
    rg_user_fini(&user);
    return status;
}

/* --- certificates ------------------------------------------------------------------------------------------------------- */

static enum rg_status check_request(const struct rg_identity_store *store, const uint8_t *public_key,
                                    char *why, size_t why_size)
{
    if (!store->is_own)
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "this server gives no certificates itself, as it uses its operator's own authority: get "
            "one from that");
    if (!rg_authority_is_point(public_key))
        return RG_FAILED(RG_ERR_REFUSED, why, why_size, "the public key is not one of the curve P-256");
    return RG_OK;
}

/* Makes a certificate and enters it for the user: on disk, before anybody gets it. With the lock. */
static enum rg_status give(struct rg_identity_store *store, struct rg_user *user, const uint8_t *public_key,
                           struct rg_identity_grant *grant, char *why, size_t why_size)
{
    const int64_t now = rg_identity_now(store);
    if (rg_user_unexpired(user, now) >= RG_IDENTITY_CERTIFICATES_MAX)
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "'%s' has %u certificates that have not expired, as many as a user can have; ask the "
            "server's operator for a token of another user",
            user->name, RG_IDENTITY_CERTIFICATES_MAX);
    RG_TRY(rg_authority_issue(&store->authority, user->name, public_key, now,
                              store->settings.certificate_days, grant, why, why_size));
    struct rg_user_certificate *one = &user->certificates[user->n++];
    *one = (struct rg_user_certificate){
        .serial_size = grant->serial_size, .issued = now, .expires = grant->not_after};
    memcpy(one->serial, grant->serial, grant->serial_size);
    return rg_user_save(&store->state, user, now, why, why_size);
}

static enum rg_status check_token(const struct rg_identity_store *store, const struct rg_token *token,
                                  char *why, size_t why_size)
{
    const int64_t now = rg_identity_now(store);
    if (token->uses_left == 0)
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "this token has been used %u time%s, as often as it can be; ask the server's operator for "
            "a new one",
            token->uses, token->uses == 1 ? "" : "s");
    if (now >= token->expires) {
        char until[32], here[32];
        rg_x509_date_text(token->expires, until);
        rg_x509_date_text(now, here);
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "this token was valid until %s, and it is %s on the server; ask the server's operator for "
            "a new one",
            until, here);
    }
    return RG_OK;
}

/* What the token says of the user's limits; what it does not mention stays. */
static void take_limits(struct rg_identity_limits *to, const struct rg_identity_limits *from)
{
    if (from->max_sessions)
        to->max_sessions = from->max_sessions;
    if (from->max_gpus)
        to->max_gpus = from->max_gpus;
}

/* The user gets the certificate, then the token counts: whoever is interrupted between the two has lost nothing. */
static enum rg_status use_token(struct rg_identity_store *store, struct rg_token *token,
                                const uint8_t *public_key, struct rg_identity_grant *grant, char *why,
                                size_t why_size)
{
    struct rg_user user;
    enum rg_status status = rg_user_load(&store->state, token->user, &user, why, why_size);
    if (status != RG_OK && status != RG_ERR_NOT_FOUND)
        return status;
    const bool is_new = status == RG_ERR_NOT_FOUND;
    const struct rg_identity_limits limits = user.limits;
    take_limits(&user.limits, &token->limits);
    const size_t before = user.n;
    status = give(store, &user, public_key, grant, why, why_size);
    if (status == RG_OK) {
        token->uses_left--;
        status = rg_token_save(&store->state, token, why, why_size);
        if (status != RG_OK) { /* nobody has got it */
            char path[RG_USER_NAME + 8];
            snprintf(path, sizeof path, "users/%s", user.name);
            user.n = before;
            user.limits = limits;
            const enum rg_status undone =
                is_new ? rg_state_remove(&store->state, path, NULL, 0)
                       : rg_user_save(&store->state, &user, rg_identity_now(store), NULL, 0);
            (void)undone; /* an entry of a certificate that does not exist does no harm */
        }
    }
    rg_user_fini(&user);
    return status;
}

/* A token that can be used. */
static enum rg_status find_token(const struct rg_identity_store *store,
                                 const uint8_t secret[RG_IDENTITY_SECRET], struct rg_token *token, char *why,
                                 size_t why_size)
{
    const enum rg_status status = rg_token_find(&store->state, secret, token, why, why_size);
    if (status == RG_OK)
        return check_token(store, token, why, why_size);
    if (status != RG_ERR_NOT_FOUND)
        return status;
    return RG_FAILED(
        RG_ERR_REFUSED, why, why_size,
        "this server does not know this token: it was withdrawn, or ended more than a week ago, or is "
        "of another server; ask the server's operator for a new one");
}

/* With the lock. */
static enum rg_status join(struct rg_identity_store *store, const uint8_t *secret, const uint8_t *public_key,
                           struct rg_identity_grant *grant, char *why, size_t why_size)
{
    struct rg_token token;
    RG_TRY(find_token(store, secret, &token, why, why_size));
    /* no serial number is in question: of the name alone */
    RG_TRY(rg_revoked_check(&store->state, token.user, NULL, 0, why, why_size));
    return use_token(store, &token, public_key, grant, why, why_size);
}

enum rg_status rg_identity_join(struct rg_identity_store *store, const uint8_t secret[RG_IDENTITY_SECRET],
                                const uint8_t public_key[RG_IDENTITY_PUBLIC_KEY],
                                struct rg_identity_grant *grant, char *why, size_t why_size)
{
    struct rg_token token;
    memset(grant, 0, sizeof *grant);
    RG_TRY(check_request(store, public_key, why, why_size));
    /* before the lock: strangers, whose tokens there are not, are not to keep the server waiting for it */
    RG_TRY(find_token(store, secret, &token, why, why_size));
    RG_TRY(rg_state_lock(&store->state, why, why_size));
    const enum rg_status status = join(store, secret, public_key, grant, why, why_size);
    rg_state_unlock(&store->state);
    if (status != RG_OK)
        memset(grant, 0, sizeof *grant);
    return status;
}

/* A client that renews without end would keep the server waiting for its disk. */
static enum rg_status check_pace(const struct rg_identity_store *store, const struct rg_user *user, char *why,
                                 size_t why_size)
{
    const int64_t now = rg_identity_now(store);
    unsigned n = 0;
    for (size_t i = 0; i < user->n; i++)
        n += user->certificates[i].issued > now - 60 && user->certificates[i].issued <= now;
    if (n < RG_IDENTITY_RENEWALS_MAX)
        return RG_OK;
    return RG_FAILED(RG_ERR_REFUSED, why, why_size,
                     "'%s' has got %u certificates within a minute; try again later", user->name, n);
}

/* With the lock. The user is loaded, also where it fails. */
static enum rg_status renew(struct rg_identity_store *store, const char *name, const uint8_t *serial,
                            size_t serial_size, const uint8_t *public_key, struct rg_user *user,
                            struct rg_identity_grant *grant, char *why, size_t why_size)
{
    struct rg_identity_limits limits;
    RG_TRY(rg_identity_check(store, name, serial, serial_size, &limits, NULL, why, why_size));
    RG_TRY(rg_user_load(&store->state, name, user, why, why_size));
    RG_TRY(check_pace(store, user, why, why_size));
    return give(store, user, public_key, grant, why, why_size);
}

enum rg_status rg_identity_renew(struct rg_identity_store *store, const char *name, const uint8_t *serial,
                                 size_t serial_size, const uint8_t public_key[RG_IDENTITY_PUBLIC_KEY],
                                 struct rg_identity_grant *grant, char *why, size_t why_size)
{
    struct rg_user user = {0};
    RG_TRY(check_request(store, public_key, why, why_size));
    RG_TRY(rg_state_lock(&store->state, why, why_size));
    const enum rg_status status =
        renew(store, name, serial, serial_size, public_key, &user, grant, why, why_size);
    rg_user_fini(&user);
    rg_state_unlock(&store->state);
    if (status != RG_OK)
        memset(grant, 0, sizeof *grant);
    return status;
}
