/*
 * remote_key.c - see remote_key.h: a provider of OpenSSL's for keys whose private half is elsewhere.
 *
 * Happy path: the certificate's public key is wrapped (import), OpenSSL compares it with the certificate's (match) and asks it for its
 * sizes and curve (get_params); in a handshake it gives the whole text that is to be signed (digest_sign), of which the hash of the
 * handshake goes to the signer. The provider lives in a library context of its own, so that nobody else's keys come to it.
 *
 * Facts: that a key stays with its provider whatever context it is used in is provider-keymgmt(7)'s.
 */
#include "transport/tls/remote_key.h"

#include "common/base/certificate_verify.h"
#include "transport/tls/certificate.h"

#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PROVIDER   "remote-gpu"
#define PARAM_KEY  "remote-gpu-public"
#define PARAM_SIGN "remote-gpu-signer"

struct key {
    const char *type;
    EVP_PKEY *public_key; /* a reference */
    struct rg_tls_signer signer;
};

struct signing {
    const struct key *key;
    enum rg_tls_digest digest;
};

/* --- keys --------------------------------------------------------------------------------------------------- */

static struct key *key_new(const char *type)
{
    struct key *key = calloc(1, sizeof *key);
    if (key)
        key->type = type;
    return key;
}

static void key_free(void *data)
{
    struct key *key = data;
    EVP_PKEY_free(key->public_key);
    free(key);
}

static int key_has(const void *data, int selection)
{
    const struct key *key = data;
    (void)selection; /* the private half is there, though not here */
    return key->public_key != NULL;
}

static int key_match(const void *a, const void *b, int selection)
{
    const struct key *one = a, *other = b;
    (void)selection;
    return EVP_PKEY_eq(one->public_key, other->public_key) == 1;
}

/* Ours, by pointers; or the public half of OpenSSL's own, to be compared with. */
static int key_import(void *data, int selection, const OSSL_PARAM parameters[])
{
    struct key *key = data;
    const void *public_key, *signer;
    size_t size;
    const OSSL_PARAM *of_key = OSSL_PARAM_locate_const(parameters, PARAM_KEY),
                     *of_signer = OSSL_PARAM_locate_const(parameters, PARAM_SIGN);
    (void)selection;
    if (of_key && of_signer && OSSL_PARAM_get_octet_ptr(of_key, &public_key, &size) &&
        OSSL_PARAM_get_octet_ptr(of_signer, &signer, &size)) {
        key->public_key = (EVP_PKEY *)(uintptr_t)public_key;
        key->signer = *(const struct rg_tls_signer *)signer;
        return EVP_PKEY_up_ref(key->public_key);
    }
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_from_name(NULL, key->type, NULL);
    const int made = maker && EVP_PKEY_fromdata_init(maker) == 1 &&
                     EVP_PKEY_fromdata(maker, &key->public_key, EVP_PKEY_PUBLIC_KEY,
                                       (OSSL_PARAM *)(uintptr_t)parameters) == 1;
    EVP_PKEY_CTX_free(maker);
    return made;
}

static const OSSL_PARAM *key_import_types(int selection)
{
    static const OSSL_PARAM types[] = {OSSL_PARAM_octet_ptr(PARAM_KEY, NULL, 0),
                                       OSSL_PARAM_octet_ptr(PARAM_SIGN, NULL, 0), OSSL_PARAM_END};
    (void)selection;
    return types;
}

static int key_get_params(void *data, OSSL_PARAM parameters[])
{
    const struct key *key = data;
    return EVP_PKEY_get_params(key->public_key, parameters);
}

static const OSSL_PARAM *key_gettable_params(void *context)
{
    static const OSSL_PARAM parameters[] = {
        OSSL_PARAM_int(OSSL_PKEY_PARAM_BITS, NULL),
        OSSL_PARAM_int(OSSL_PKEY_PARAM_SECURITY_BITS, NULL),
        OSSL_PARAM_int(OSSL_PKEY_PARAM_MAX_SIZE, NULL),
        OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, NULL, 0),
        OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_DEFAULT_DIGEST, NULL, 0),
        OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_MANDATORY_DIGEST, NULL, 0),
        OSSL_PARAM_octet_string(OSSL_PKEY_PARAM_PUB_KEY, NULL, 0),
        OSSL_PARAM_END,
    };
    (void)context;
    return parameters;
}

/* --- signatures ---------------------------------------------------------------------------------------------- */

static void *signing_new(void *context, const char *properties)
{
    (void)context, (void)properties;
    return calloc(1, sizeof(struct signing));
}

static enum rg_tls_digest digest_of(const char *name)
{
    return !name || !*name ? RG_TLS_DIGEST_NONE
           : OPENSSL_strcasecmp(name, "SHA256") == 0 || OPENSSL_strcasecmp(name, "SHA2-256") == 0
               ? RG_TLS_DIGEST_SHA256
           : OPENSSL_strcasecmp(name, "SHA384") == 0 || OPENSSL_strcasecmp(name, "SHA2-384") == 0
               ? RG_TLS_DIGEST_SHA384
           : OPENSSL_strcasecmp(name, "SHA512") == 0 || OPENSSL_strcasecmp(name, "SHA2-512") == 0
               ? RG_TLS_DIGEST_SHA512
               : RG_TLS_DIGESTS;
}

static int signing_init(void *data, const char *digest, void *key, const OSSL_PARAM parameters[])
{
    struct signing *signing = data;
    (void)parameters;
    signing->key = key;
    signing->digest = digest_of(digest);
    return signing->digest < RG_TLS_DIGESTS;
}

static int signing_sign(void *data, unsigned char *signature, size_t *size, size_t room,
                        const unsigned char *text, size_t text_size)
{
    const struct signing *signing = data;
    const struct rg_tls_signer *signer = &signing->key->signer;
    struct rg_tls_to_sign what = {.generation = signer->generation, .digest = signing->digest};
    uint8_t made[RG_TLS_SERVER_SIGNATURE_SIZE], before[RG_CERTIFICATE_VERIFY_BEFORE];
    size_t made_size = 0;
    if (!signature) {
        const int most = EVP_PKEY_get_size(signing->key->public_key);
        *size = (size_t)(most > 0 ? most : 0);
        return most > 0;
    }
    rg_certificate_verify_begin(before);
    if (text_size <= RG_CERTIFICATE_VERIFY_BEFORE ||
        text_size - RG_CERTIFICATE_VERIFY_BEFORE > sizeof what.hash ||
        memcmp(text, before, RG_CERTIFICATE_VERIFY_BEFORE) != 0)
        return 0;
    what.hash_size = (uint8_t)(text_size - RG_CERTIFICATE_VERIFY_BEFORE);
    memcpy(what.hash, text + RG_CERTIFICATE_VERIFY_BEFORE, what.hash_size);
    if (!signer->sign || signer->sign(signer->data, &what, made, &made_size) != RG_OK || !made_size ||
        made_size > room)
        return 0;
    memcpy(signature, made, made_size);
    *size = made_size;
    return 1;
}

/* How RSA pads is fixed in TLS 1.3: PSS, with a salt as long as the digest, which the signer knows. */
static int signing_set_params(void *data, const OSSL_PARAM parameters[])
{
    (void)data, (void)parameters;
    return 1;
}

static const OSSL_PARAM *signing_settable_params(void *data, void *context)
{
    static const OSSL_PARAM parameters[] = {OSSL_PARAM_utf8_string(OSSL_SIGNATURE_PARAM_PAD_MODE, NULL, 0),
                                            OSSL_PARAM_utf8_string(OSSL_SIGNATURE_PARAM_PSS_SALTLEN, NULL, 0),
                                            OSSL_PARAM_END};
    (void)data, (void)context;
    return parameters;
}

/* --- the provider --------------------------------------------------------------------------------------------- */

typedef void (*function)(void);

static const OSSL_DISPATCH signing_functions[] = {
    {OSSL_FUNC_SIGNATURE_NEWCTX, (function)signing_new},
    {OSSL_FUNC_SIGNATURE_FREECTX, (function)free},
    {OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, (function)signing_init},
    {OSSL_FUNC_SIGNATURE_DIGEST_SIGN, (function)signing_sign},
    {OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, (function)signing_set_params},
    {OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, (function)signing_settable_params},
    {0, NULL},
};

/* A kind of key: what OpenSSL's own provider calls it, and its signatures. */
#define KIND(id, type, signature)                                                                            \
    static void *id##_new(void *context)                                                                     \
    {                                                                                                        \
        (void)context;                                                                                       \
        return key_new(type);                                                                                \
    }                                                                                                        \
    static const char *id##_operation(int operation)                                                         \
    {                                                                                                        \
        return operation == OSSL_OP_SIGNATURE ? signature : NULL;                                            \
    }                                                                                                        \
    static const OSSL_DISPATCH id##_functions[] = {                                                          \
        {OSSL_FUNC_KEYMGMT_NEW, (function)id##_new},                                                         \
        {OSSL_FUNC_KEYMGMT_FREE, (function)key_free},                                                        \
        {OSSL_FUNC_KEYMGMT_HAS, (function)key_has},                                                          \
        {OSSL_FUNC_KEYMGMT_MATCH, (function)key_match},                                                      \
        {OSSL_FUNC_KEYMGMT_IMPORT, (function)key_import},                                                    \
        {OSSL_FUNC_KEYMGMT_IMPORT_TYPES, (function)key_import_types},                                        \
        {OSSL_FUNC_KEYMGMT_GET_PARAMS, (function)key_get_params},                                            \
        {OSSL_FUNC_KEYMGMT_GETTABLE_PARAMS, (function)key_gettable_params},                                  \
        {OSSL_FUNC_KEYMGMT_QUERY_OPERATION_NAME, (function)id##_operation},                                  \
        {0, NULL},                                                                                           \
    };

KIND(ec, "EC", "ECDSA")
KIND(rsa, "RSA", "RSA")
KIND(rsa_pss, "RSA-PSS", "RSA")
KIND(ed25519, "ED25519", "ED25519")
KIND(ed448, "ED448", "ED448")

#define PROPERTIES "provider=" PROVIDER

static const OSSL_ALGORITHM kinds[] = {
    {"EC:id-ecPublicKey", PROPERTIES, ec_functions, NULL},
    {"RSA:rsaEncryption", PROPERTIES, rsa_functions, NULL},
    {"RSA-PSS:RSASSA-PSS", PROPERTIES, rsa_pss_functions, NULL},
    {"ED25519", PROPERTIES, ed25519_functions, NULL},
    {"ED448", PROPERTIES, ed448_functions, NULL},
    {NULL, NULL, NULL, NULL},
};

static const OSSL_ALGORITHM signatures[] = {
    {"ECDSA", PROPERTIES, signing_functions, NULL},
    {"RSA", PROPERTIES, signing_functions, NULL},
    {"ED25519", PROPERTIES, signing_functions, NULL},
    {"ED448", PROPERTIES, signing_functions, NULL},
    {NULL, NULL, NULL, NULL},
};

static const OSSL_ALGORITHM *query(void *context, int operation, int *no_cache)
{
    (void)context;
    *no_cache = 0;
    return operation == OSSL_OP_KEYMGMT ? kinds : operation == OSSL_OP_SIGNATURE ? signatures : NULL;
}

static int begin(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out,
                 void **context)
{
    static const OSSL_DISPATCH functions[] = {{OSSL_FUNC_PROVIDER_QUERY_OPERATION, (function)query},
                                              {0, NULL}};
    static char nothing;
    (void)handle, (void)in;
    *out = functions;
    *context = &nothing;
    return 1;
}

static OSSL_LIB_CTX *library; /* NULL: it could not be made */

static void make_library(void)
{
    rg_tls_start();
    library = OSSL_LIB_CTX_new();
    if (library && OSSL_PROVIDER_add_builtin(library, PROVIDER, begin) == 1 &&
        OSSL_PROVIDER_load(library, PROVIDER))
        return;
    OSSL_LIB_CTX_free(library);
    library = NULL;
}

EVP_PKEY *rg_tls_remote_key(X509 *certificate, const struct rg_tls_signer *signer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *public_key = X509_get0_pubkey(certificate), *asked = (void *)(uintptr_t)signer;
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_ptr(PARAM_KEY, &public_key, sizeof public_key),
        OSSL_PARAM_construct_octet_ptr(PARAM_SIGN, &asked, sizeof asked), OSSL_PARAM_construct_end()};
    EVP_PKEY *key = NULL;
    pthread_once(&once, make_library);
    EVP_PKEY_CTX *maker = library && public_key
                              ? EVP_PKEY_CTX_new_from_name(library, EVP_PKEY_get0_type_name(public_key), NULL)
                              : NULL;
    if (maker && EVP_PKEY_fromdata_init(maker) == 1)
        (void)EVP_PKEY_fromdata(maker, &key, EVP_PKEY_KEYPAIR, (OSSL_PARAM *)(uintptr_t)parameters);
    EVP_PKEY_CTX_free(maker);
    return key;
}
