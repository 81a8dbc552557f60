/*
 * keys.c - HKDF-Expand-Label of the traffic secrets, by OpenSSL's TLS13-KDF.
 *
 * Only memory can run out. Threads: any.
 */
#include "transport/tls/keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

static const struct rg_tls_suite suites[] = {
    {0x1301, 16, 32, "TLS_AES_128_GCM_SHA256", "AES-128-GCM", "SHA256"},
    {0x1302, 32, 48, "TLS_AES_256_GCM_SHA384", "AES-256-GCM", "SHA384"},
    {0x1303, 32, 32, "TLS_CHACHA20_POLY1305_SHA256", "ChaCha20-Poly1305", "SHA256"},
};

const struct rg_tls_suite *rg_tls_suite_find(uint16_t number)
{
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        if (suites[i].number == number)
            return &suites[i];
    return NULL;
}

void rg_tls_wipe(void *secret, size_t size)
{
    OPENSSL_cleanse(secret, size);
}

/* HKDF-Expand-Label(secret, label, "", size) */
static enum rg_status expand(const struct rg_tls_suite *suite, const uint8_t *secret, const char *label,
                             uint8_t *out, size_t size)
{
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)suite->digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, suite->secret_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, (void *)(uintptr_t) "tls13 ", 6),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, (void *)(uintptr_t)label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_TLS1_3_KDF, NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    const bool done = context && EVP_KDF_derive(context, out, size, parameters) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done ? RG_OK : RG_ERR_NO_MEMORY;
}

enum rg_status rg_tls_derive_keys(const struct rg_tls_suite *suite, const uint8_t secret[RG_TLS_SECRET_SIZE],
                                  uint8_t key[RG_TLS_KEY_MOST], uint8_t iv[RG_TLS_IV])
{
    enum rg_status status = expand(suite, secret, "key", key, suite->key_size);
    return status == RG_OK ? expand(suite, secret, "iv", iv, RG_TLS_IV) : status;
}

enum rg_status rg_tls_next_secret(const struct rg_tls_suite *suite, uint8_t secret[RG_TLS_SECRET_SIZE])
{
    uint8_t next[RG_TLS_SECRET_SIZE];
    enum rg_status status = expand(suite, secret, "traffic upd", next, suite->secret_size);
    if (status == RG_OK)
        memcpy(secret, next, suite->secret_size);
    OPENSSL_cleanse(next, sizeof next);
    return status;
}
