/* certificate.c - see certificate.h. */
#include "server/identity/certificate.h"

#include "server/identity/x509.h"

#include <openssl/bn.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#define CLOCK_BEGINS 1767225600ll   /* 2026: this software is not older */
#define CLOCK_ENDS   253370764800ll /* 9999: certificates cannot say more */

enum rg_status rg_certificate_failed(const char *what, char *why, size_t why_size)
{
    return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "%s failed in OpenSSL: %s", what, rg_x509_error());
}

enum rg_status rg_certificate_check_clock(int64_t now, char *why, size_t why_size)
{
    if (now >= CLOCK_BEGINS && now < CLOCK_ENDS - RG_CERTIFICATE_AUTHORITY_DAYS * RG_CERTIFICATE_DAY)
        return RG_OK;
    char text[32];
    rg_x509_date_text(now, text);
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "this machine's clock cannot be right, it says %s: set it, then try again", text);
}

bool rg_certificate_add(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    const bool done = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return done;
}

static bool set_serial(X509 *certificate, uint8_t serial[RG_CERTIFICATE_SERIAL])
{
    if (RAND_bytes(serial, RG_CERTIFICATE_SERIAL) != 1)
        return false;
    serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40); /* positive, and always of that size */
    BIGNUM *number = BN_bin2bn(serial, RG_CERTIFICATE_SERIAL, NULL);
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

X509 *rg_certificate_begin(const char *name, EVP_PKEY *public_key, X509 *issuer, int64_t from, int64_t until,
                           uint8_t serial[RG_CERTIFICATE_SERIAL])
{
    X509 *certificate = X509_new();
    char cut[64 + 1]; /* what X.520 allows for a common name */
    snprintf(cut, sizeof cut, "%s", name);
    if (certificate && X509_set_version(certificate, X509_VERSION_3) == 1 &&
        set_serial(certificate, serial) && set_dates(certificate, from, until) &&
        set_name(X509_get_subject_name(certificate), cut) &&
        X509_set_issuer_name(certificate, X509_get_subject_name(issuer ? issuer : certificate)) == 1 &&
        X509_set_pubkey(certificate, public_key) == 1 &&
        rg_certificate_add(certificate, issuer ? issuer : certificate, NID_subject_key_identifier, "hash"))
        return certificate;
    X509_free(certificate);
    return NULL;
}

bool rg_certificate_end_leaf(X509 *certificate, const struct rg_authority *authority, const char *usage)
{
    return rg_certificate_add(certificate, authority->certificate, NID_authority_key_identifier,
                              "keyid:always") &&
           rg_certificate_add(certificate, authority->certificate, NID_basic_constraints,
                              "critical,CA:FALSE") &&
           rg_certificate_add(certificate, authority->certificate, NID_key_usage,
                              "critical,digitalSignature") &&
           rg_certificate_add(certificate, authority->certificate, NID_ext_key_usage, usage) &&
           X509_sign(certificate, authority->key, EVP_sha256()) > 0;
}

int64_t rg_certificate_ends(const struct rg_authority *authority, int64_t now, int64_t days)
{
    int64_t from, until;
    if (!rg_x509_dates(authority->certificate, &from, &until) || until > now + days * RG_CERTIFICATE_DAY)
        return now + days * RG_CERTIFICATE_DAY;
    return until;
}
