/*
 * enrol.c - the tools of enrolment: a key, the proof that one has it, and looking at what comes back.
 *
 * The proof signs "remote-gpu join" and the connection's exporter: it is worth nothing on another connection.
 * Threads: any.
 */
#include "transport/tls/certificate.h"

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <string.h>

#define PROOF_LABEL "remote-gpu join"

enum { PROOF_SIZE = sizeof PROOF_LABEL - 1 + RG_TLS_EXPORTER_SIZE };

static void proof_text(uint8_t text[PROOF_SIZE], const uint8_t exporter[RG_TLS_EXPORTER_SIZE])
{
    memcpy(text, PROOF_LABEL, sizeof PROOF_LABEL - 1);
    memcpy(text + sizeof PROOF_LABEL - 1, exporter, RG_TLS_EXPORTER_SIZE);
}

static bool get_point(const EVP_PKEY *key, uint8_t public_key[RG_TLS_POINT_SIZE])
{
    char group[32] = "";
    size_t size = 0;
    return EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, group, sizeof group, &size) == 1 &&
           strcmp(group, "prime256v1") == 0 &&
           EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, public_key, RG_TLS_POINT_SIZE,
                                           &size) == 1 &&
           size == RG_TLS_POINT_SIZE && public_key[0] == 4;
}

static enum rg_status make_key(char pem[RG_TLS_KEY_PEM_SIZE], uint8_t public_key[RG_TLS_POINT_SIZE])
{
    rg_tls_start();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *bio = key ? BIO_new(BIO_s_secmem()) : NULL;
    char *text = NULL;
    const bool written = bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1;
    const long size = written ? BIO_get_mem_data(bio, &text) : 0;
    const bool done = size > 0 && size < RG_TLS_KEY_PEM_SIZE && get_point(key, public_key);
    if (done) {
        memcpy(pem, text, (size_t)size);
        pem[size] = '\0';
    }
    BIO_free(bio);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return done ? RG_OK : RG_ERR_NO_MEMORY;
}

static enum rg_status prove(const char *pem, size_t pem_size, const uint8_t exporter[RG_TLS_EXPORTER_SIZE],
                            uint8_t signature[RG_TLS_SIGNATURE_SIZE], size_t *size)
{
    rg_tls_start();
    uint8_t text[PROOF_SIZE], point[RG_TLS_POINT_SIZE];
    EVP_PKEY *key = rg_tls_read_key(pem, pem_size);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    proof_text(text, exporter);
    *size = RG_TLS_SIGNATURE_SIZE;
    const bool done = key && context && get_point(key, point) &&
                      EVP_DigestSignInit_ex(context, NULL, "SHA256", NULL, NULL, key, NULL) == 1 &&
                      EVP_DigestSign(context, signature, size, text, sizeof text) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return done ? RG_OK : RG_ERR_INVALID;
}

bool rg_tls_verify_proof(const uint8_t public_key[RG_TLS_POINT_SIZE],
                         const uint8_t exporter[RG_TLS_EXPORTER_SIZE], const uint8_t *signature, size_t size)
{
    rg_tls_start();
    uint8_t text[PROOF_SIZE];
    char group[] = "prime256v1";
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)(uintptr_t)public_key,
                                          RG_TLS_POINT_SIZE),
        OSSL_PARAM_construct_end(),
    };
    EVP_PKEY_CTX *maker = public_key[0] == 4 ? EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL) : NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY *key = NULL;
    proof_text(text, exporter);
    const bool good =
        maker && context && EVP_PKEY_fromdata_init(maker) == 1 &&
        EVP_PKEY_fromdata(maker, &key, EVP_PKEY_PUBLIC_KEY, (OSSL_PARAM *)(uintptr_t)parameters) == 1 &&
        EVP_DigestVerifyInit_ex(context, NULL, "SHA256", NULL, NULL, key, NULL) == 1 &&
        EVP_DigestVerify(context, signature, size, text, sizeof text) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_CTX_free(maker);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return good;
}

static enum rg_status public_key_of(const char *pem, size_t pem_size, uint8_t public_key[RG_TLS_POINT_SIZE])
{
    rg_tls_start();
    EVP_PKEY *key = rg_tls_read_key(pem, pem_size);
    const bool done = key && get_point(key, public_key);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return done ? RG_OK : RG_ERR_INVALID;
}

static enum rg_status describe(const char *pem, size_t pem_size, struct rg_tls_certificate *out)
{
    rg_tls_start();
    STACK_OF(X509) *all = rg_tls_read_certificates(pem, pem_size);
    if (!all)
        return RG_ERR_INVALID;
    rg_tls_describe(sk_X509_value(all, 0), out);
    sk_X509_pop_free(all, X509_free);
    return RG_OK;
}

static enum rg_status key_hash(const char *pem, size_t pem_size, uint8_t hash[RG_TLS_FINGERPRINT_SIZE])
{
    rg_tls_start();
    STACK_OF(X509) *all = rg_tls_read_certificates(pem, pem_size);
    const bool done = all && rg_tls_key_hash(sk_X509_value(all, 0), hash);
    sk_X509_pop_free(all, X509_free);
    return done ? RG_OK : RG_ERR_INVALID;
}

static enum rg_status check(const struct rg_tls_pem *pem, char *why, size_t why_size)
{
    rg_tls_start();
    STACK_OF(X509) *chain = rg_tls_read_certificates(pem->certificate, pem->certificate_size);
    STACK_OF(X509) *roots = rg_tls_read_certificates(pem->ca, pem->ca_size);
    EVP_PKEY *key = rg_tls_read_key(pem->key, pem->key_size);
    const struct rg_tls_judgement judgement = {
        .role = RG_TLS_ROLE_CLIENT, .roots = roots, .owner = "the certificate"};
    int error;
    enum rg_status status = RG_ERR_INVALID;
    if (!chain || !roots || !key)
        rg_explain(why, why_size, "the %s is not PEM",
                   !chain   ? "certificate"
                   : !roots ? "authority's certificate"
                            : "key");
    else if (X509_check_private_key(sk_X509_value(chain, 0), key) != 1)
        rg_explain(why, why_size, "the certificate does not fit the key");
    else if (rg_tls_judge(&judgement, sk_X509_value(chain, 0), chain, &error, why, why_size) == RG_OK)
        status = RG_OK;
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return status;
}

const struct rg_tls_tools rg_tls_tools = {
    .make_key = make_key,
    .prove = prove,
    .public_key = public_key_of,
    .describe = describe,
    .check = check,
    .key_hash = key_hash,
};
