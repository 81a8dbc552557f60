/* key.c - see key.h. */
#include "server/http/key.h"

#include "common/base/certificate_verify.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "server/http/transcript.h"

#include <stdlib.h>
#include <string.h>

struct rg_http_key {
    gnutls_pcert_st chain[RG_TLS_CHAIN_MAX]; /* the server's first */
    unsigned n, bits;
    gnutls_pk_algorithm_t kind;
    struct rg_tls_signer signer;
};

struct rg_http_handshake {
    const struct rg_http_key *key;
    gnutls_session_t session;
    gnutls_privkey_t private_key;
    struct rg_transcript transcript;
};

/* --- signing ------------------------------------------------------------------------------------------------ */

/* What is to be signed now; its size, 0: it is not known. */
static size_t make_text(const struct rg_http_handshake *handshake, struct rg_tls_to_sign *what,
                        uint8_t text[RG_CERTIFICATE_VERIFY_SIZE])
{
    const size_t size =
        rg_transcript_hash(&handshake->transcript, gnutls_prf_hash_get(handshake->session), what->hash);
    _Static_assert(sizeof what->hash >= RG_TRANSCRIPT_SIZE, "a hash has room");
    what->generation = handshake->key->signer.generation;
    what->hash_size = (uint8_t)size;
    rg_certificate_verify_begin(text);
    memcpy(text + RG_CERTIFICATE_VERIFY_BEFORE, what->hash, size);
    return size ? RG_CERTIFICATE_VERIFY_BEFORE + size : 0;
}

static int ask_signer(const struct rg_http_handshake *handshake, const struct rg_tls_to_sign *what,
                      gnutls_datum_t *signature)
{
    const struct rg_tls_signer *signer = &handshake->key->signer;
    uint8_t made[RG_TLS_SERVER_SIGNATURE_SIZE];
    size_t size = 0;
    if (signer->sign(signer->data, what, made, &size) != RG_OK || !size || size > sizeof made ||
        !(signature->data = gnutls_malloc(size)))
        return GNUTLS_E_PK_SIGN_FAILED;
    memcpy(signature->data, made, size);
    signature->size = (unsigned)size;
    return 0;
}

static enum rg_tls_digest digest_of(gnutls_digest_algorithm_t digest)
{
    return digest == GNUTLS_DIG_SHA256   ? RG_TLS_DIGEST_SHA256
           : digest == GNUTLS_DIG_SHA384 ? RG_TLS_DIGEST_SHA384
           : digest == GNUTLS_DIG_SHA512 ? RG_TLS_DIGEST_SHA512
                                         : RG_TLS_DIGESTS;
}

static int sign_digest(gnutls_privkey_t key, gnutls_sign_algorithm_t how, void *data, unsigned flags,
                       const gnutls_datum_t *digest, gnutls_datum_t *signature)
{
    const gnutls_digest_algorithm_t kind = gnutls_sign_get_hash_algorithm(how);
    struct rg_tls_to_sign what = {.digest = digest_of(kind)};
    uint8_t text[RG_CERTIFICATE_VERIFY_SIZE], expected[64];
    const size_t size = make_text(data, &what, text);
    (void)key, (void)flags;
    if (!size || what.digest == RG_TLS_DIGESTS || gnutls_hash_fast(kind, text, size, expected) < 0 ||
        digest->size != gnutls_hash_get_len(kind) || memcmp(digest->data, expected, digest->size) != 0)
        return GNUTLS_E_PK_SIGN_FAILED;
    return ask_signer(data, &what, signature);
}

/* By a key that takes the text as it is. */
static int sign_text(gnutls_privkey_t key, gnutls_sign_algorithm_t how, void *data, unsigned flags,
                     const gnutls_datum_t *given, gnutls_datum_t *signature)
{
    struct rg_tls_to_sign what = {.digest = RG_TLS_DIGEST_NONE};
    uint8_t text[RG_CERTIFICATE_VERIFY_SIZE];
    const size_t size = make_text(data, &what, text);
    (void)key, (void)how, (void)flags;
    if (!size || given->size != size || memcmp(given->data, text, size) != 0)
        return GNUTLS_E_PK_SIGN_FAILED;
    return ask_signer(data, &what, signature);
}

/* Of RSA the monitor pads by PSS alone, as TLS 1.3 wants it. */
static bool can_sign(const struct rg_http_key *key, gnutls_sign_algorithm_t how)
{
    return gnutls_sign_supports_pk_algorithm(how, key->kind) &&
           gnutls_sign_get_pk_algorithm(how) != GNUTLS_PK_RSA;
}

static int tell_about_key(gnutls_privkey_t private_key, unsigned flags, void *data)
{
    const struct rg_http_key *key = ((const struct rg_http_handshake *)data)->key;
    (void)private_key;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO)
        return (int)key->kind;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO_BITS)
        return (int)key->bits;
    if (flags & GNUTLS_PRIVKEY_INFO_HAVE_SIGN_ALGO)
        return can_sign(key, (gnutls_sign_algorithm_t)GNUTLS_FLAGS_TO_SIGN_ALGO(flags));
    return -1;
}

/* --- handshakes ---------------------------------------------------------------------------------------------- */

/* Each message of a handshake, before anything is done with it. */
static int hear(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                const gnutls_datum_t *message)
{
    struct rg_http_handshake *handshake = gnutls_db_get_ptr(session);
    (void)when, (void)incoming;
    if (type != GNUTLS_HANDSHAKE_CHANGE_CIPHER_SPEC) /* which TLS 1.3 does not count */
        rg_transcript_add(&handshake->transcript, type, message->data, message->size);
    return 0;
}

struct rg_http_handshake *rg_http_handshake_begin(const struct rg_http_key *key, gnutls_session_t session)
{
    struct rg_http_handshake *handshake = calloc(1, sizeof *handshake);
    if (!handshake)
        return NULL;
    handshake->key = key;
    handshake->session = session;
    if (!rg_transcript_init(&handshake->transcript) || gnutls_privkey_init(&handshake->private_key) < 0 ||
        gnutls_privkey_import_ext4(handshake->private_key, handshake, sign_text, sign_digest, NULL, NULL,
                                   tell_about_key, 0) < 0) {
        rg_http_handshake_end(handshake);
        return NULL;
    }
    gnutls_db_set_ptr(session, handshake);
    gnutls_handshake_set_hook_function(session, (unsigned)GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_PRE, hear);
    return handshake;
}

void rg_http_handshake_end(struct rg_http_handshake *handshake)
{
    if (!handshake)
        return;
    rg_transcript_fini(&handshake->transcript);
    if (handshake->private_key)
        gnutls_privkey_deinit(handshake->private_key);
    free(handshake);
}

int rg_http_key_choose(gnutls_session_t session, const gnutls_datum_t *names, int n_names,
                       const gnutls_pk_algorithm_t *kinds, int n_kinds, gnutls_pcert_st **chain,
                       unsigned *n_chain, gnutls_privkey_t *key)
{
    const struct rg_http_handshake *handshake = gnutls_db_get_ptr(session);
    (void)names, (void)n_names, (void)kinds, (void)n_kinds;
    if (!handshake)
        return -1;
    *chain = (gnutls_pcert_st *)(uintptr_t)handshake->key->chain;
    *n_chain = handshake->key->n;
    *key = handshake->private_key;
    return 0;
}

/* --- the key ------------------------------------------------------------------------------------------------- */

struct rg_http_key *rg_http_key_create(const struct rg_tls_pem *pem, char *why, size_t why_size)
{
    struct rg_http_key *key = calloc(1, sizeof *key);
    gnutls_datum_t text = {(unsigned char *)(uintptr_t)pem->certificate, (unsigned)pem->certificate_size};
    if (!key) {
        rg_explain(why, why_size, "out of memory");
        return NULL;
    }
    key->n = RG_TLS_CHAIN_MAX;
    key->signer = *pem->signer;
    const int got = gnutls_pcert_list_import_x509_raw(key->chain, &key->n, &text, GNUTLS_X509_FMT_PEM, 0);
    if (got < 0) {
        rg_explain(why, why_size, "GnuTLS cannot use the server's certificate: %s", gnutls_strerror(got));
        free(key);
        return NULL;
    }
    key->kind = (gnutls_pk_algorithm_t)gnutls_pubkey_get_pk_algorithm(key->chain[0].pubkey, &key->bits);
    return key;
}

void rg_http_key_destroy(struct rg_http_key *key)
{
    if (!key)
        return;
    for (unsigned i = 0; i < key->n; i++)
        gnutls_pcert_deinit(&key->chain[i]);
    free(key);
}
