/*
 * sign.c - rg_identity_sign of identity.h: the server's key proves in a handshake of TLS who the server is.
 *
 * The text that is signed is made here, all but the hash at its end (certificate_verify.h), so whoever may ask gets no signature that
 * means anything else. Threads: as identity.h says.
 */
#include "common/base/certificate_verify.h"
#include "server/identity/identity.h"
#include "server/identity/store.h"
#include "server/identity/x509.h"

#include <openssl/rsa.h>
#include <string.h>

static const char *digest_name(enum rg_identity_digest digest)
{
    switch (digest) {
    case RG_IDENTITY_SHA256:
        return "SHA256";
    case RG_IDENTITY_SHA384:
        return "SHA384";
    case RG_IDENTITY_SHA512:
        return "SHA512";
    default:
        return NULL;
    }
}

/* The server's key, read once for all handshakes; or the one before, or the one used last. NULL: another one is asked for. */
static EVP_PKEY *key_of(struct rg_identity_store *store, uint32_t generation)
{
    bool locked;
    if (store->generation != generation)
        return store->generation - generation == 1 ? store->previous_key
               : store->used == generation         ? store->used_key
                                                   : NULL;
    if (!store->server_key && store->server.key)
        store->server_key = rg_x509_read_key(store->server.key, store->server.key_size, &locked);
    return store->server_key;
}

void rg_identity_turn_key(struct rg_identity_store *store)
{
    EVP_PKEY *key = key_of(store, store->generation);
    /* whoever could not use what came since goes on with it */
    if (!store->used_key && store->used == store->generation - 1)
        store->used_key = store->previous_key;
    else
        EVP_PKEY_free(store->previous_key);
    store->previous_key = key;
    store->server_key = NULL;
    store->generation++;
}

void rg_identity_forget_keys(struct rg_identity_store *store)
{
    EVP_PKEY_free(store->server_key);
    EVP_PKEY_free(store->previous_key);
    EVP_PKEY_free(store->used_key);
    store->server_key = store->previous_key = store->used_key = NULL;
}

/* Something has been signed by a key: what is older is of no more use than the one before the last. */
static void note_use(struct rg_identity_store *store, uint32_t generation)
{
    if (generation <= store->used)
        return;
    store->used = generation;
    EVP_PKEY_free(store->used_key);
    store->used_key = NULL;
}

enum rg_status rg_identity_sign(struct rg_identity_store *store, uint32_t generation,
                                enum rg_identity_digest digest, const uint8_t *hash, size_t hash_size,
                                uint8_t signature[RG_IDENTITY_SIGNATURE], size_t *size)
{
    uint8_t text[RG_CERTIFICATE_VERIFY_BEFORE + RG_IDENTITY_HANDSHAKE];
    if (hash_size > RG_IDENTITY_HANDSHAKE)
        return RG_ERR_INVALID;
    EVP_PKEY *key = key_of(store, generation);
    EVP_PKEY_CTX *how = NULL; /* `context` has it */
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    rg_certificate_verify_begin(text);
    memcpy(text + RG_CERTIFICATE_VERIFY_BEFORE, hash, hash_size);
    *size = RG_IDENTITY_SIGNATURE;
    bool done = key && context &&
                EVP_DigestSignInit_ex(context, &how, digest_name(digest), NULL, NULL, key, NULL) == 1;
    if (done && (EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_is_a(key, "RSA-PSS")))
        done = EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PSS_PADDING) > 0 &&
               EVP_PKEY_CTX_set_rsa_pss_saltlen(how, RSA_PSS_SALTLEN_DIGEST) > 0;
    done =
        done && EVP_DigestSign(context, signature, size, text, RG_CERTIFICATE_VERIFY_BEFORE + hash_size) == 1;
    EVP_MD_CTX_free(context);
    (void)rg_x509_error();
    if (done)
        note_use(store, generation);
    return done ? RG_OK : RG_ERR_INVALID;
}
