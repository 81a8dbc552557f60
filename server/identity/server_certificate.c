/*
 * server_certificate.c - this server's own certificate: made for all the names that it has, and whether the one that there is will do.
 *
 * Made anew once two thirds of its year are over, when the server has got another name, and where its files are damaged. Failures: see
 * authority.h. One thread at a time.
 */
#include "server/identity/authority.h"
#include "server/identity/certificate.h"
#include "server/identity/x509.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_DAYS 365ll

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
    uint8_t serial[RG_CERTIFICATE_SERIAL];
    *pair = (struct rg_key_pair){0};
    RG_TRY(rg_certificate_check_clock(now, why, why_size));
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate =
        key ? rg_certificate_begin(names[0], key, authority->certificate, now - RG_CERTIFICATE_EARLIER,
                                   rg_certificate_ends(authority, now, SERVER_DAYS), serial)
            : NULL;
    if (certificate && add_names(certificate, names, n) &&
        rg_certificate_end_leaf(certificate, authority, "serverAuth")) {
        pair->certificate = rg_x509_write(certificate, &pair->certificate_size);
        pair->key = rg_x509_write_key(key, &pair->key_size);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    if (pair->certificate && pair->key)
        return RG_OK;
    rg_key_pair_fini(pair);
    return rg_certificate_failed("making the server's certificate", why, why_size);
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
