/* authority.c - see authority.h. */
#include "server/identity/authority.h"

#include "common/base/cleanup.h"
#include "server/identity/x509.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DAY            86400ll
#define AUTHORITY_DAYS 3652ll
#define SERVER_DAYS    365ll
#define EARLIER        600ll          /* seconds by which clocks may differ */
#define CLOCK_BEGINS   1767225600ll   /* 2026: this software is not older */
#define CLOCK_ENDS     253370764800ll /* 9999: certificates cannot say more */
#define SERIAL_SIZE    16

/* --- building blocks ---------------------------------------------------------------------------------------------------- */

static enum rg_status failed(const char *what, char *why, size_t why_size)
{
    return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "%s failed in OpenSSL: %s", what, rg_x509_error());
}

/* A clock at 1970 would make certificates that nobody believes later. */
static enum rg_status check_clock(int64_t now, char *why, size_t why_size)
{
    if (now >= CLOCK_BEGINS && now < CLOCK_ENDS - AUTHORITY_DAYS * DAY)
        return RG_OK;
    char text[32];
    rg_x509_date_text(now, text);
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "this machine's clock cannot be right, it says %s: set it, then try again", text);
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    const bool done = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return done;
}

static bool set_serial(X509 *certificate, uint8_t serial[SERIAL_SIZE])
{
    if (RAND_bytes(serial, SERIAL_SIZE) != 1)
        return false;
    serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40); /* positive, and always of that size */
    BIGNUM *number = BN_bin2bn(serial, SERIAL_SIZE, NULL);
    const bool done = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return done;
}

static bool set_dates(X509 *certificate, int64_t from, int64_t until)
{
    ASN1_TIME *time = ASN1_TIME_set(NULL, (time_t)from);
    bool done = time && X509_set1_notBefore(certificate, time) == 1 && ASN1_TIME_set(time, (time_t)until) &&
                X509_set1_notAfter(certificate, time) == 1;
    ASN1_TIME_free(time);
    return done;
}

static bool set_name(X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, (const unsigned char *)text, -1,
                                      -1, 0) == 1;
}

/* What all certificates have; `issuer` NULL: it is its own. */
static X509 *begin(const char *name, EVP_PKEY *public_key, X509 *issuer, int64_t from, int64_t until,
                   uint8_t serial[SERIAL_SIZE])
{
    X509 *certificate = X509_new();
    char cut[64 + 1]; /* what X.520 allows for a common name */
    snprintf(cut, sizeof cut, "%s", name);
    if (certificate && X509_set_version(certificate, X509_VERSION_3) == 1 &&
        set_serial(certificate, serial) && set_dates(certificate, from, until) &&
        set_name(X509_get_subject_name(certificate), cut) &&
        X509_set_issuer_name(certificate, X509_get_subject_name(issuer ? issuer : certificate)) == 1 &&
        X509_set_pubkey(certificate, public_key) == 1 &&
        add_extension(certificate, issuer ? issuer : certificate, NID_subject_key_identifier, "hash"))
        return certificate;
    X509_free(certificate);
    return NULL;
}

static bool end_leaf(X509 *certificate, const struct rg_authority *authority, const char *usage)
{
    return add_extension(certificate, authority->certificate, NID_authority_key_identifier, "keyid:always") &&
           add_extension(certificate, authority->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate, authority->certificate, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate, authority->certificate, NID_ext_key_usage, usage) &&
           X509_sign(certificate, authority->key, EVP_sha256()) > 0;
}

/* --- the authority ------------------------------------------------------------------------------------------------------ */

/* Signs itself with the key that it has, and writes ca.crt. */
static enum rg_status make_certificate(struct rg_authority *authority, struct rg_state *state, int64_t now,
                                       char *why, size_t why_size)
{
    char host[65] = "", name[128];
    uint8_t serial[SERIAL_SIZE];
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "this machine");
    snprintf(name, sizeof name, "remote-gpu on %s", host);
    X509 *certificate = begin(name, authority->key, NULL, now - EARLIER, now + AUTHORITY_DAYS * DAY, serial);
    authority->certificate = certificate;
    if (!certificate ||
        !add_extension(certificate, certificate, NID_authority_key_identifier, "keyid:always") ||
        !add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        X509_sign(certificate, authority->key, EVP_sha256()) <= 0)
        return failed("making the authority's certificate", why, why_size);
    authority->pem = rg_x509_write(certificate, &authority->pem_size);
    if (!authority->pem)
        return RG_ERR_NO_MEMORY;
    return rg_state_write(state, "ca.crt", authority->pem, authority->pem_size, why, why_size);
}

enum rg_status rg_authority_make(struct rg_authority *authority, struct rg_state *state, int64_t now,
                                 char *why, size_t why_size)
{
    *authority = (struct rg_authority){0};
    RG_TRY(check_clock(now, why, why_size));
    size_t size = 0;
    authority->key = EVP_EC_gen("P-256");
    char *key = authority->key ? rg_x509_write_key(authority->key, &size) : NULL;
    enum rg_status status = key ? rg_state_write(state, "ca.key", key, size, why, why_size)
                                : failed("making the authority's key", why, why_size);
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
        status = check_clock(now, why, why_size);
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

/* The last second of a certificate made now: not beyond the authority's own. */
static int64_t ends(const struct rg_authority *authority, int64_t now, int64_t days)
{
    int64_t from, until;
    if (!rg_x509_dates(authority->certificate, &from, &until) || until > now + days * DAY)
        return now + days * DAY;
    return until;
}

enum rg_status rg_authority_issue(const struct rg_authority *authority, const char *name,
                                  const uint8_t point[RG_IDENTITY_PUBLIC_KEY], int64_t now, uint32_t days,
                                  struct rg_identity_grant *grant, char *why, size_t why_size)
{
    EVP_PKEY *key = key_of(point);
    uint8_t serial[SERIAL_SIZE];
    const int64_t until = ends(authority, now, days);
    size_t size = 0;
    X509 *certificate = key ? begin(name, key, authority->certificate, now - EARLIER, until, serial) : NULL;
    RG_CLEANUP_FREE char *pem = certificate && end_leaf(certificate, authority, "clientAuth")
                                    ? rg_x509_write(certificate, &size)
                                    : NULL;
    X509_free(certificate);
    EVP_PKEY_free(key);
    if (!pem)
        return failed("making the certificate", why, why_size);
    if (size >= sizeof grant->certificate || authority->pem_size >= sizeof grant->authority)
        return RG_ERR_LIMIT;
    memset(grant, 0, sizeof *grant);
    memcpy(grant->certificate, pem, size);
    memcpy(grant->authority, authority->pem, authority->pem_size);
    snprintf(grant->user, sizeof grant->user, "%s", name);
    memcpy(grant->serial, serial, SERIAL_SIZE);
    grant->serial_size = SERIAL_SIZE;
    grant->not_after = until;
    return RG_OK;
}

/* --- this server -------------------------------------------------------------------------------------------------------- */

/* An address or a host's name as an alternative name; NULL: no memory. */
static GENERAL_NAME *alternative(const char *name)
{
    unsigned char address[16];
    const int size = inet_pton(AF_INET, name, address) == 1    ? 4
                     : inet_pton(AF_INET6, name, address) == 1 ? 16
                                                               : 0;
    GENERAL_NAME *general = GENERAL_NAME_new();
    ASN1_STRING *value = size ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    if (general && value &&
        ASN1_STRING_set(value, size ? (const void *)address : name, size ? size : (int)strlen(name)) == 1) {
        GENERAL_NAME_set0_value(general, size ? GEN_IPADD : GEN_DNS, value);
        return general;
    }
    GENERAL_NAME_free(general);
    ASN1_STRING_free(value);
    return NULL;
}

static bool add_names(X509 *certificate, char *const *names, size_t n)
{
    GENERAL_NAMES *all = sk_GENERAL_NAME_new_null();
    bool done = all != NULL;
    for (size_t i = 0; done && i < n; i++) {
        GENERAL_NAME *one = alternative(names[i]);
        done = one && sk_GENERAL_NAME_push(all, one) > 0;
        if (!done)
            GENERAL_NAME_free(one);
    }
    done = done && X509_add1_ext_i2d(certificate, NID_subject_alt_name, all, 0, X509V3_ADD_DEFAULT) == 1;
    sk_GENERAL_NAME_pop_free(all, GENERAL_NAME_free);
    return done;
}

enum rg_status rg_authority_issue_server(const struct rg_authority *authority, char *const *names, size_t n,
                                         int64_t now, struct rg_key_pair *pair, char *why, size_t why_size)
{
    uint8_t serial[SERIAL_SIZE];
    *pair = (struct rg_key_pair){0};
    RG_TRY(check_clock(now, why, why_size));
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = key ? begin(names[0], key, authority->certificate, now - EARLIER,
                                    ends(authority, now, SERVER_DAYS), serial)
                            : NULL;
    if (certificate && add_names(certificate, names, n) && end_leaf(certificate, authority, "serverAuth")) {
        pair->certificate = rg_x509_write(certificate, &pair->certificate_size);
        pair->key = rg_x509_write_key(key, &pair->key_size);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    if (pair->certificate && pair->key)
        return RG_OK;
    rg_key_pair_fini(pair);
    return failed("making the server's certificate", why, why_size);
}

static bool is_good(const struct rg_authority *authority, X509 *certificate, EVP_PKEY *key,
                    char *const *names, size_t n, int64_t now, char *why, size_t why_size)
{
    int64_t from, until;
    if (!certificate || !key || X509_check_private_key(certificate, key) != 1 ||
        !rg_x509_dates(certificate, &from, &until)) {
        rg_explain(why, why_size, "its files are damaged or do not fit together");
        return false;
    }
    if (X509_verify(certificate, authority->key) != 1) {
        rg_explain(why, why_size, "it is of another authority");
        return false;
    }
    if (now < from || now >= from + (until - from) / 3 * 2) {
        char date[32];
        rg_x509_date_text(now < from ? from : until, date);
        rg_explain(why, why_size, now < from ? "it is not valid before %s" : "it is valid until %s", date);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!rg_x509_has_name(certificate, names[i])) {
            rg_explain(why, why_size, "this server is now called %s as well", names[i]);
            return false;
        }
    return true;
}

bool rg_authority_server_is_good(const struct rg_authority *authority, const struct rg_key_pair *pair,
                                 char *const *names, size_t n, int64_t now, char *why, size_t why_size)
{
    bool locked;
    X509 *certificate = rg_x509_read(pair->certificate, pair->certificate_size);
    EVP_PKEY *key = rg_x509_read_key(pair->key, pair->key_size, &locked);
    const bool good = is_good(authority, certificate, key, names, n, now, why, why_size);
    X509_free(certificate);
    EVP_PKEY_free(key);
    (void)rg_x509_error();
    return good;
}

void rg_key_pair_fini(struct rg_key_pair *pair)
{
    rg_state_wipe(pair->key, pair->key_size);
    free(pair->certificate);
    *pair = (struct rg_key_pair){0};
}
