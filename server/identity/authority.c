/* authority.c - the authority, and clients' certificates (this server's: server_certificate.c); see authority.h. */
#include "server/identity/authority.h"

#include "common/base/cleanup.h"
#include "server/identity/certificate.h"
#include "server/identity/x509.h"

#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- the authority ------------------------------------------------------------------------------------------------------ */

/* Signs itself with the key that it has, and writes ca.crt. */
static enum rg_status make_certificate(struct rg_authority *authority, struct rg_state *state, int64_t now,
                                       char *why, size_t why_size)
{
    char host[65] = "", name[128];
    uint8_t serial[RG_CERTIFICATE_SERIAL];
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "this machine");
    snprintf(name, sizeof name, "remote-gpu on %s", host);
    X509 *certificate =
        rg_certificate_begin(name, authority->key, NULL, now - RG_CERTIFICATE_EARLIER,
                             now + RG_CERTIFICATE_AUTHORITY_DAYS * RG_CERTIFICATE_DAY, serial);
    authority->certificate = certificate;
    if (!certificate ||
        !rg_certificate_add(certificate, certificate, NID_authority_key_identifier, "keyid:always") ||
        !rg_certificate_add(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !rg_certificate_add(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        X509_sign(certificate, authority->key, EVP_sha256()) <= 0)
        return rg_certificate_failed("making the authority's certificate", why, why_size);
    authority->pem = rg_x509_write(certificate, &authority->pem_size);
    if (!authority->pem)
        return RG_ERR_NO_MEMORY;
    return rg_state_write(state, "ca.crt", authority->pem, authority->pem_size, why, why_size);
}

enum rg_status rg_authority_make(struct rg_authority *authority, struct rg_state *state, int64_t now,
                                 char *why, size_t why_size)
{
    *authority = (struct rg_authority){0};
    RG_TRY(rg_certificate_check_clock(now, why, why_size));
    size_t size = 0;
    authority->key = EVP_EC_gen("P-256");
    char *key = authority->key ? rg_x509_write_key(authority->key, &size) : NULL;
    enum rg_status status = key ? rg_state_write(state, "ca.key", key, size, why, why_size)
                                : rg_certificate_failed("making the authority's key", why, why_size);
    rg_state_wipe(key, size);
    if (status == RG_OK)
        status = make_certificate(authority, state, now, why, why_size);
    if (status != RG_OK)
        rg_authority_fini(authority);
    return status;
}

static enum rg_status load_key(struct rg_authority *authority, const struct rg_state *state, char *why,
                               size_t why_size)
{
    char *text;
    size_t size;
    RG_TRY(rg_state_read(state, "ca.key", RG_STATE_SECRET, &text, &size, why, why_size));
    bool locked;
    authority->key = rg_x509_read_key(text, size, &locked);
    rg_state_wipe(text, size);
    if (authority->key && EVP_PKEY_is_a(authority->key, "EC"))
        return RG_OK;
    return RG_FAILED(
        RG_ERR_INVALID, why, why_size,
        "%s/ca.key is damaged: restore it from a backup, or remove ca.key and ca.crt to make a new "
        "authority (all users must join again)",
        state->path);
}

/* Whether ca.crt is a certificate of that key, and valid now. */
static enum rg_status check_certificate(const struct rg_authority *authority, const struct rg_state *state,
                                        int64_t now, char *why, size_t why_size)
{
    int64_t from, until;
    X509 *certificate = authority->certificate;
    if (!certificate || !rg_x509_dates(certificate, &from, &until) ||
        X509_check_private_key(certificate, authority->key) != 1)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s/ca.crt is %s: restore it from a backup, or remove it alone and it is made again from ca.key",
            state->path, certificate ? "not the certificate of ca.key" : "damaged");
    if (now >= from && now < until)
        return RG_OK;
    char date[32], here[32];
    rg_x509_date_text(now < from ? from : until, date);
    rg_x509_date_text(now, here);
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     now < from
                         ? "%s/ca.crt is valid from %s, but it is %s here: is this machine's clock wrong?"
                         : "%s/ca.crt was valid until %s, and it is %s here: if the clock is right, remove "
                           "ca.crt and ca.key to make a new authority (all users must join again)",
                     state->path, date, here);
}

enum rg_status rg_authority_load(struct rg_authority *authority, struct rg_state *state, int64_t now,
                                 char *why, size_t why_size)
{
    *authority = (struct rg_authority){0};
    const enum rg_status got =
        rg_state_read(state, "ca.crt", RG_STATE_PUBLIC, &authority->pem, &authority->pem_size, why, why_size);
    enum rg_status status =
        got == RG_OK || got == RG_ERR_NOT_FOUND ? load_key(authority, state, why, why_size) : got;
    if (status == RG_ERR_NOT_FOUND && got == RG_OK) {
        rg_explain(why, why_size,
                   "%s has ca.crt, but ca.key is missing: restore it from a backup, or remove ca.crt to make "
                   "a new authority (all users must join again)",
                   state->path);
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK && got == RG_OK) {
        authority->certificate = rg_x509_read(authority->pem, authority->pem_size);
        status = check_certificate(authority, state, now, why, why_size);
    } else if (status == RG_OK) {
        status = rg_certificate_check_clock(now, why, why_size);
        if (status == RG_OK)
            status = make_certificate(authority, state, now, why, why_size);
    }
    if (status != RG_OK)
        rg_authority_fini(authority);
    return status;
}

void rg_authority_fini(struct rg_authority *authority)
{
    EVP_PKEY_free(authority->key); /* which overwrites it */
    X509_free(authority->certificate);
    free(authority->pem);
    *authority = (struct rg_authority){0};
}

enum rg_status rg_authority_hash(const struct rg_authority *authority, uint8_t hash[32])
{
    unsigned char *data = NULL;
    const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(authority->certificate), &data);
    const bool done = size > 0 && EVP_Digest(data, (size_t)size, hash, NULL, EVP_sha256(), NULL) == 1;
    OPENSSL_free(data);
    return done ? RG_OK : RG_ERR_NO_MEMORY;
}

/* --- clients ------------------------------------------------------------------------------------------------------------ */

/* The key of a point; NULL if it is none of the curve. */
static EVP_PKEY *key_of(const uint8_t point[RG_IDENTITY_PUBLIC_KEY])
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)(uintptr_t) "P-256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)(uintptr_t)point,
                                          RG_IDENTITY_PUBLIC_KEY),
        OSSL_PARAM_construct_end(),
    };
    EVP_PKEY *key = NULL;
    if (point[0] != 4) /* compressed and hybrid forms are not what was agreed upon */
        return NULL;
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    const bool made = maker && EVP_PKEY_fromdata_init(maker) == 1 &&
                      EVP_PKEY_fromdata(maker, &key, EVP_PKEY_PUBLIC_KEY, params) == 1;
    EVP_PKEY_CTX_free(maker);
    EVP_PKEY_CTX *checker = made ? EVP_PKEY_CTX_new(key, NULL) : NULL;
    const bool good = checker && EVP_PKEY_public_check(checker) == 1;
    EVP_PKEY_CTX_free(checker);
    if (good)
        return key;
    EVP_PKEY_free(key);
    (void)rg_x509_error();
    return NULL;
}

bool rg_authority_is_point(const uint8_t point[RG_IDENTITY_PUBLIC_KEY])
{
    EVP_PKEY *key = key_of(point);
    EVP_PKEY_free(key);
    return key != NULL;
}

enum rg_status rg_authority_issue(const struct rg_authority *authority, const char *name,
                                  const uint8_t point[RG_IDENTITY_PUBLIC_KEY], int64_t now, uint32_t days,
                                  struct rg_identity_grant *grant, char *why, size_t why_size)
{
    EVP_PKEY *key = key_of(point);
    uint8_t serial[RG_CERTIFICATE_SERIAL];
    const int64_t until = rg_certificate_ends(authority, now, days);
    size_t size = 0;
    X509 *certificate = key ? rg_certificate_begin(name, key, authority->certificate,
                                                   now - RG_CERTIFICATE_EARLIER, until, serial)
                            : NULL;
    RG_CLEANUP_FREE char *pem = certificate && rg_certificate_end_leaf(certificate, authority, "clientAuth")
                                    ? rg_x509_write(certificate, &size)
                                    : NULL;
    X509_free(certificate);
    EVP_PKEY_free(key);
    if (!pem)
        return rg_certificate_failed("making the certificate", why, why_size);
    if (size >= sizeof grant->certificate || authority->pem_size >= sizeof grant->authority)
        return RG_ERR_LIMIT;
    memset(grant, 0, sizeof *grant);
    memcpy(grant->certificate, pem, size);
    memcpy(grant->authority, authority->pem, authority->pem_size);
    snprintf(grant->user, sizeof grant->user, "%s", name);
    memcpy(grant->serial, serial, RG_CERTIFICATE_SERIAL);
    grant->serial_size = RG_CERTIFICATE_SERIAL;
    grant->not_after = until;
    return RG_OK;
}
