/*
 * record.c - see record.h. A record's nonce is its number, exclusive-or the direction's vector; its header is
 * authenticated with it.
 */
#include "transport/tls/record.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

/* Keys of the direction's secret, and from record `number` on. */
static enum rg_status use_secret(struct rg_tls_direction *d, uint64_t number)
{
    uint8_t key[RG_TLS_KEY_MOST];
    enum rg_status status = rg_tls_derive_keys(d->suite, d->secret, key, d->iv);
    if (status != RG_OK) {
        OPENSSL_cleanse(key, sizeof key);
        return status;
    }
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, d->suite->cipher, NULL);
    const bool set = cipher && EVP_CipherInit_ex(d->context, cipher, NULL, key, NULL, d->seals) == 1;
    EVP_CIPHER_free(cipher); /* the context has a reference */
    OPENSSL_cleanse(key, sizeof key);
    d->number = number;
    return set ? RG_OK : RG_ERR_NO_MEMORY;
}

enum rg_status rg_tls_direction_init(struct rg_tls_direction *d, uint16_t cipher, bool seals,
                                     const uint8_t secret[RG_TLS_SECRET_SIZE], uint64_t number)
{
    *d = (struct rg_tls_direction){.suite = rg_tls_suite_find(cipher), .seals = seals};
    if (!d->suite)
        return RG_ERR_INVALID;
    memcpy(d->secret, secret, d->suite->secret_size);
    d->context = EVP_CIPHER_CTX_new();
    enum rg_status status = d->context ? use_secret(d, number) : RG_ERR_NO_MEMORY;
    if (status != RG_OK)
        rg_tls_direction_fini(d);
    return status;
}

void rg_tls_direction_fini(struct rg_tls_direction *d)
{
    EVP_CIPHER_CTX_free(d->context);
    OPENSSL_cleanse(d, sizeof *d);
}

enum rg_status rg_tls_direction_update(struct rg_tls_direction *d)
{
    enum rg_status status = rg_tls_next_secret(d->suite, d->secret);
    return status == RG_OK ? use_secret(d, 0) : status;
}

/* Starts the next record, with its header as what is authenticated only. */
static bool begin(struct rg_tls_direction *d, const uint8_t header[RG_TLS_HEADER])
{
    uint8_t nonce[RG_TLS_IV];
    int n;
    memcpy(nonce, d->iv, sizeof nonce);
    for (int i = 0; i < 8; i++)
        nonce[RG_TLS_IV - 1 - i] ^= (uint8_t)(d->number >> (8 * i));
    return EVP_CipherInit_ex(d->context, NULL, NULL, NULL, nonce, d->seals) == 1 &&
           EVP_CipherUpdate(d->context, NULL, &n, header, RG_TLS_HEADER) == 1;
}

enum rg_status rg_tls_seal(struct rg_tls_direction *d, enum rg_tls_content type, const struct iovec *parts,
                           int n_parts, uint8_t *out, size_t *out_size)
{
    size_t size = 0;
    for (int i = 0; i < n_parts; i++)
        size += parts[i].iov_len;
    const size_t body = size + 1 + RG_TLS_TAG;
    out[0] = RG_TLS_DATA;
    out[1] = out[2] = 3; /* TLS 1.2, as all records say */
    out[3] = (uint8_t)(body >> 8);
    out[4] = (uint8_t)body;
    uint8_t *cur = out + RG_TLS_HEADER;
    const uint8_t inner = (uint8_t)type;
    int n = 0;
    bool good = begin(d, out);
    for (int i = 0; i < n_parts && good; i++) {
        if (parts[i].iov_len == 0)
            continue;
        good = EVP_EncryptUpdate(d->context, cur, &n, parts[i].iov_base, (int)parts[i].iov_len) == 1;
        cur += n;
    }
    good = good && EVP_EncryptUpdate(d->context, cur, &n, &inner, 1) == 1 &&
           EVP_EncryptFinal_ex(d->context, cur + 1, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(d->context, EVP_CTRL_AEAD_GET_TAG, RG_TLS_TAG, cur + 1) == 1;
    d->number++;
    *out_size = RG_TLS_HEADER + body;
    return good ? RG_OK : RG_ERR_NO_MEMORY;
}

enum rg_status rg_tls_header(const uint8_t header[RG_TLS_HEADER], size_t *content_size)
{
    const size_t body = (size_t)header[3] << 8 | header[4];
    if (header[0] != RG_TLS_DATA || header[1] != 3 || header[2] != 3 || body <= 1 + RG_TLS_TAG ||
        body > RG_TLS_PLAIN + 1 + RG_TLS_TAG)
        return RG_ERR_PROTOCOL;
    *content_size = body - 1 - RG_TLS_TAG;
    return RG_OK;
}

enum rg_status rg_tls_open(struct rg_tls_direction *d, const uint8_t *record, size_t content_size,
                           uint8_t *content, uint8_t *type)
{
    const uint8_t *cur = record + RG_TLS_HEADER;
    uint8_t tag[RG_TLS_TAG];
    int n = 0;
    memcpy(tag, cur + content_size + 1, sizeof tag);
    const bool good = begin(d, record) &&
                      EVP_DecryptUpdate(d->context, content, &n, cur, (int)content_size) == 1 &&
                      EVP_DecryptUpdate(d->context, type, &n, cur + content_size, 1) == 1 &&
                      EVP_CIPHER_CTX_ctrl(d->context, EVP_CTRL_AEAD_SET_TAG, RG_TLS_TAG, tag) == 1 &&
                      EVP_DecryptFinal_ex(d->context, tag, &n) == 1;
    d->number++;
    if (good)
        return RG_OK;
    OPENSSL_cleanse(content, content_size);
    return RG_ERR_PROTOCOL;
}
