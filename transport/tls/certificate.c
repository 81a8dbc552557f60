/*
 * certificate.c - see certificate.h.
 *
 * Whoever reads a sentence of these shall know what to do: it names the certificate, what is wrong, and what mends it.
 */
#include "transport/tls/certificate.h"

#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/printable.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- OpenSSL itself --- */

static void start(void)
{
    const uint64_t how = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;
    (void)OPENSSL_init_crypto(how, NULL);
    (void)OPENSSL_init_ssl(how, NULL);
}

void rg_tls_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* --- reading --- */

/* No key of ours has a pass phrase, and nobody is asked for one. */
static int no_pass_phrase(char *buffer, int size, int writing, void *user)
{
    (void)buffer, (void)size, (void)writing, (void)user;
    return -1;
}

STACK_OF(X509) * rg_tls_read_certificates(const void *pem, size_t size)
{
    BIO *bio = pem && size <= RG_TLS_FILE_MAX ? BIO_new_mem_buf(pem, (int)size) : NULL;
    STACK_OF(X509) *all = bio ? sk_X509_new_null() : NULL;
    X509 *one;
    while (all && (one = PEM_read_bio_X509(bio, NULL, no_pass_phrase, NULL))) {
        if (sk_X509_push(all, one) <= 0) {
            X509_free(one);
            break;
        }
    }
    const unsigned long error = ERR_peek_last_error();
    const bool to_the_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    if (all && to_the_end && sk_X509_num(all) > 0)
        return all;
    sk_X509_pop_free(all, X509_free);
    return NULL;
}

EVP_PKEY *rg_tls_read_key(const void *pem, size_t size)
{
    BIO *bio = pem && size <= RG_TLS_FILE_MAX ? BIO_new_mem_buf(pem, (int)size) : NULL;
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_pass_phrase, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return key;
}

/* As libpq has it: a secret volume of a container belongs to root and is read by a group. */
static bool is_too_open(const struct stat *st)
{
    const mode_t allowed = st->st_uid == 0 ? 0640 : 0600;
    return (st->st_mode & 0777 & ~allowed & ~0100u) != 0;
}

enum rg_status rg_tls_read_file(const char *path, const char *what, bool secret, char **data, size_t *size,
                                char *why, size_t why_size)
{
    char shown[256];
    snprintf(shown, sizeof shown, "%s", path);
    rg_printable_clean(shown);
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        rg_explain(why, why_size, "%s %s cannot be read: %s", what, shown, strerror(error));
        return error == ENOENT ? RG_ERR_NOT_FOUND : RG_ERR_INVALID;
    }
    char *text = NULL;
    enum rg_status status = RG_ERR_INVALID;
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > (off_t)RG_TLS_FILE_MAX) {
        rg_explain(why, why_size, "%s %s %s", what, shown,
                   S_ISREG(st.st_mode) && st.st_size == 0 ? "is empty" : "is not a file of a plausible size");
    } else if (secret && is_too_open(&st)) {
        rg_explain(why, why_size,
                   "%s %s can be read by others (mode %04o): chmod 600 it, and replace it if others may have "
                   "seen it",
                   what, shown, (unsigned)(st.st_mode & 0777));
    } else if (!(text = malloc((size_t)st.st_size))) {
        rg_explain(why, why_size, "out of memory");
        status = RG_ERR_NO_MEMORY;
    } else if (!rg_file_read(fd, text, (size_t)st.st_size)) {
        rg_explain(why, why_size, "%s %s cannot be read: %s", what, shown, strerror(errno));
    } else {
        status = RG_OK;
    }
    close(fd);
    if (status != RG_OK) {
        free(text);
        return status;
    }
    *data = text;
    *size = (size_t)st.st_size;
    return RG_OK;
}

void rg_tls_free_file(char *data, size_t size)
{
    if (data)
        OPENSSL_cleanse(data, size);
    free(data);
}

/* --- what it says --- */

static void copy_text(const ASN1_STRING *text, char *out, size_t out_size)
{
    unsigned char *utf8 = NULL;
    const int size = ASN1_STRING_to_UTF8(&utf8, text);
    out[0] = '\0';
    if (size > 0 && (size_t)size < out_size && !memchr(utf8, 0, (size_t)size)) {
        memcpy(out, utf8, (size_t)size);
        out[size] = '\0';
    }
    OPENSSL_free(utf8);
}

/* The first alternative name of that type that begins with `prefix`, or all of them, joined. */
static void alternative_names(const X509 *certificate, int type, const char *prefix, char *out,
                              size_t out_size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        int its_type;
        const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &its_type);
        char text[RG_TLS_NAME_SIZE] = "";
        if (its_type == GEN_IPADD && type < 0 && ASN1_STRING_length(value) == 4)
            inet_ntop(AF_INET, ASN1_STRING_get0_data(value), text, sizeof text);
        else if (its_type == GEN_IPADD && type < 0 && ASN1_STRING_length(value) == 16)
            inet_ntop(AF_INET6, ASN1_STRING_get0_data(value), text, sizeof text);
        else if ((type < 0 && (its_type == GEN_DNS || its_type == GEN_URI)) || its_type == type)
            copy_text(value, text, sizeof text);
        if (!text[0] || strncmp(text, prefix, strlen(prefix)) != 0)
            continue;
        const size_t used = strlen(out);
        if (used + strlen(text) + 3 > out_size)
            break;
        snprintf(out + used, out_size - used, "%s%s", used ? ", " : "", text);
        if (type >= 0)
            break;
    }
    GENERAL_NAMES_free(names);
}

static int64_t to_seconds(const ASN1_TIME *time)
{
    struct tm tm;
    return ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

void rg_tls_describe(const X509 *certificate, struct rg_tls_certificate *out)
{
    memset(out, 0, sizeof *out);
    char name[RG_TLS_NAME_SIZE] = "";
    alternative_names(certificate, GEN_URI, "spiffe://", name, sizeof name);
    const X509_NAME *subject = X509_get_subject_name(certificate);
    const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (!name[0] && at >= 0)
        copy_text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), name, sizeof name);
    memcpy(out->name, name, sizeof out->name);
    rg_printable_clean(out->name);
    if (strcmp(out->name, name) != 0)
        out->name[0] = '\0'; /* no two names become one */
    const ASN1_INTEGER *serial = X509_get0_serialNumber(certificate);
    if (ASN1_STRING_length(serial) <= RG_TLS_SERIAL_SIZE) {
        out->serial_size = (uint8_t)ASN1_STRING_length(serial);
        memcpy(out->serial, ASN1_STRING_get0_data(serial), out->serial_size);
    }
    unsigned size = sizeof out->fingerprint;
    (void)X509_digest(certificate, EVP_sha256(), out->fingerprint, &size);
    out->not_before = to_seconds(X509_get0_notBefore(certificate));
    out->not_after = to_seconds(X509_get0_notAfter(certificate));
}

bool rg_tls_key_hash(const X509 *certificate, uint8_t hash[RG_TLS_FINGERPRINT_SIZE])
{
    unsigned char *der = NULL;
    unsigned size = RG_TLS_FINGERPRINT_SIZE;
    const int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
    const bool done = length > 0 && EVP_Digest(der, (size_t)length, hash, &size, EVP_sha256(), NULL) == 1;
    OPENSSL_free(der);
    return done;
}

bool rg_tls_serves_as(X509 *certificate, enum rg_tls_role role)
{
    const uint32_t wanted = role == RG_TLS_ROLE_SERVER ? XKU_SSL_SERVER : XKU_SSL_CLIENT;
    return (X509_get_extension_flags(certificate) & EXFLAG_XKUSAGE) &&
           (X509_get_extended_key_usage(certificate) & (wanted | XKU_ANYEKU));
}

/* --- what is wrong with it --- */

static const char *format_time(int64_t seconds, char *out, size_t size)
{
    const time_t time = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&time, &tm) || strftime(out, size, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(out, size, "?");
    return out;
}

static void say_what_is_wrong(const struct rg_tls_judgement *j, X509 *leaf, X509 *culprit, int error,
                              char *why, size_t why_size)
{
    const bool authority = culprit && culprit != leaf;
    const char *owner = authority ? "the certificate of the authority" : j->owner;
    struct rg_tls_certificate c;
    char then[48], now[48], names[512] = "";
    rg_tls_describe(culprit ? culprit : leaf, &c);
    format_time((int64_t)time(NULL), now, sizeof now);
    const char *mend = authority || j->role == RG_TLS_ROLE_SERVER
                           ? "the server's operator has to renew it"
                           : "get a new one by 'remote-gpu join' or from its issuer";
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        rg_explain(why, why_size,
                   "%s ('%s') expired on %s, and it is %s here: %s, or set the clock that is wrong", owner,
                   c.name, format_time(c.not_after, then, sizeof then), now, mend);
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        rg_explain(why, why_size,
                   "%s ('%s') is not valid before %s, and it is %s here: set the clock that is wrong", owner,
                   c.name, format_time(c.not_before, then, sizeof then), now);
        return;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        alternative_names(leaf, -1, "", names, sizeof names);
        rg_printable_clean(names);
        rg_explain(why, why_size,
                   "%s is for %s, not for '%s': use one of its names, or have the server's operator add this "
                   "one (remote-gpud --tls-name)",
                   j->owner, names[0] ? names : "no name at all", j->name);
        return;
    case X509_V_ERR_INVALID_PURPOSE:
        rg_explain(why, why_size,
                   "%s ('%s') is not for %s (its extended key usage lacks %s): it needs another one", owner,
                   c.name, j->role == RG_TLS_ROLE_SERVER ? "servers" : "clients",
                   j->role == RG_TLS_ROLE_SERVER ? "serverAuth" : "clientAuth");
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        if (j->role == RG_TLS_ROLE_SERVER)
            rg_explain(why, why_size,
                       "%s ('%s') is not of the authority that is trusted here: it is another server, or one "
                       "set up anew; ask its operator for a token and join again",
                       j->owner, c.name);
        else
            rg_explain(why, why_size,
                       "%s ('%s') is not of an authority that this server trusts: join this server, or use "
                       "the credentials that belong to it",
                       j->owner, c.name);
        return;
    default:
        rg_explain(why, why_size, "%s ('%s') is not accepted: %s", owner, c.name,
                   X509_verify_cert_error_string(error));
    }
}

/* Names of servers: RFC 6125 by OpenSSL; a SPIFFE name is compared as a whole. */
static bool set_name(X509_VERIFY_PARAM *parameters, const char *name)
{
    unsigned char address[16];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(parameters, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(parameters, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(parameters, name, 0) == 1;
}

/* The certificates, among those that came along, whose key has the hash: who is believed. */
static STACK_OF(X509) * find_roots(STACK_OF(X509) * others, const uint8_t *hash)
{
    STACK_OF(X509) *found = sk_X509_new_null();
    for (int i = 0; found && i < sk_X509_num(others); i++) {
        uint8_t its[RG_TLS_FINGERPRINT_SIZE];
        X509 *one = sk_X509_value(others, i);
        if (rg_tls_key_hash(one, its) && CRYPTO_memcmp(its, hash, sizeof its) == 0 && X509_check_ca(one) > 0)
            (void)sk_X509_push(found, one);
    }
    return found;
}

enum rg_status rg_tls_judge(const struct rg_tls_judgement *j, X509 *leaf, STACK_OF(X509) * others, int *error,
                            char *why, size_t why_size)
{
    const bool spiffe = j->name && strncmp(j->name, "spiffe://", 9) == 0;
    STACK_OF(X509) *roots = j->roots ? j->roots : find_roots(others, j->root_hash);
    X509_STORE *store = X509_STORE_new(); /* empty: who is believed is in the stack */
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    bool good = roots && store && context && X509_STORE_CTX_init(context, store, leaf, others) == 1;
    *error = X509_V_ERR_OUT_OF_MEM;
    if (good) {
        X509_STORE_CTX_set0_trusted_stack(context, roots);
        X509_VERIFY_PARAM *parameters = X509_STORE_CTX_get0_param(context);
        X509_VERIFY_PARAM_set_depth(parameters, RG_TLS_CHAIN_MAX);
        X509_VERIFY_PARAM_set_auth_level(parameters, 2);
        (void)X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
        (void)X509_VERIFY_PARAM_set_purpose(
            parameters, j->role == RG_TLS_ROLE_SERVER ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
        good = !j->name || spiffe || set_name(parameters, j->name);
    }
    X509 *culprit = NULL;
    if (good) {
        good = X509_verify_cert(context) == 1;
        *error = X509_STORE_CTX_get_error(context);
        culprit = X509_STORE_CTX_get_current_cert(context);
    }
    if (good && !rg_tls_serves_as(leaf, j->role)) {
        good = false;
        culprit = leaf;
        *error = X509_V_ERR_INVALID_PURPOSE;
    }
    if (good && spiffe) {
        char its[RG_TLS_NAME_SIZE] = "";
        alternative_names(leaf, GEN_URI, "spiffe://", its, sizeof its);
        good = strcmp(its, j->name) == 0;
        *error = X509_V_ERR_HOSTNAME_MISMATCH;
    }
    if (!good)
        say_what_is_wrong(j, leaf, culprit, *error, why, why_size);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    if (!j->roots)
        sk_X509_free(roots);
    ERR_clear_error();
    return good ? RG_OK : RG_ERR_REFUSED;
}
