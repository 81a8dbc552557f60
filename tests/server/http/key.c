/*
 * key.c - handshakes of GnuTLS whose server has no key: somebody else signs, who is given the handshake's hash alone. The client is
 * GnuTLS', which believes no signature that is not of its own handshake.
 */
#include "server/http/key.h"

#include <criterion/criterion.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, GENERATION = 7 };

/* Who signs, and how often. */
static struct {
    gnutls_privkey_t key;
    gnutls_pk_algorithm_t kind;
    bool refuses;
    int asked;
} signer;

static gnutls_datum_t certificate; /* PEM */

static void init(void)
{
    signal(SIGPIPE, SIG_IGN); /* an end that gives up */
}

TestSuite(http_key, .init = init);

/* A key and a certificate of its own for it. */
static void make_key(gnutls_pk_algorithm_t kind, unsigned bits)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    const time_t now = time(NULL);
    cr_assert(gnutls_x509_privkey_init(&key) == 0 && gnutls_x509_privkey_generate(key, kind, bits, 0) == 0);
    cr_assert(gnutls_x509_crt_init(&crt) == 0 && gnutls_x509_crt_set_version(crt, 3) == 0 &&
              gnutls_x509_crt_set_key(crt, key) == 0 && gnutls_x509_crt_set_serial(crt, "\1", 1) == 0 &&
              gnutls_x509_crt_set_activation_time(crt, now - 60) == 0 &&
              gnutls_x509_crt_set_expiration_time(crt, now + 3600) == 0);
    cr_assert(gnutls_x509_crt_sign2(crt, crt, key,
                                    kind == GNUTLS_PK_EDDSA_ED25519 ? GNUTLS_DIG_SHA512 : GNUTLS_DIG_SHA256,
                                    0) == 0);
    cr_assert_eq(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &certificate), 0);
    memset(&signer, 0, sizeof signer);
    signer.kind = kind;
    cr_assert(gnutls_privkey_init(&signer.key) == 0 &&
              gnutls_privkey_import_x509(signer.key, key, GNUTLS_PRIVKEY_IMPORT_AUTO_RELEASE) == 0);
    gnutls_x509_crt_deinit(crt);
}

static void drop_key(void)
{
    gnutls_privkey_deinit(signer.key);
    gnutls_free(certificate.data);
}

static gnutls_sign_algorithm_t algorithm_of(enum rg_tls_digest digest)
{
    static const gnutls_sign_algorithm_t rsa[] = {0, GNUTLS_SIGN_RSA_PSS_RSAE_SHA256,
                                                  GNUTLS_SIGN_RSA_PSS_RSAE_SHA384,
                                                  GNUTLS_SIGN_RSA_PSS_RSAE_SHA512},
                                         ec[] = {0, GNUTLS_SIGN_ECDSA_SHA256, GNUTLS_SIGN_ECDSA_SHA384,
                                                 GNUTLS_SIGN_ECDSA_SHA512};
    return signer.kind == GNUTLS_PK_RSA     ? rsa[digest]
           : signer.kind == GNUTLS_PK_ECDSA ? ec[digest]
                                            : GNUTLS_SIGN_EDDSA_ED25519;
}

/* As the monitor does (server/identity/sign.c). */
static enum rg_status sign(void *data, const struct rg_tls_to_sign *what,
                           uint8_t signature[RG_TLS_SERVER_SIGNATURE_SIZE], size_t *size)
{
    static const char name[] = "TLS 1.3, server CertificateVerify";
    unsigned char text[64 + sizeof name + RG_TLS_SECRET_SIZE];
    gnutls_datum_t made, given = {text, (unsigned)(64 + sizeof name + what->hash_size)};
    cr_expect_eq(data, &signer);
    cr_expect_eq(what->generation, GENERATION);
    signer.asked++;
    if (signer.refuses)
        return RG_ERR_REFUSED;
    memset(text, ' ', 64);
    memcpy(text + 64, name, sizeof name);
    memcpy(text + 64 + sizeof name, what->hash, what->hash_size);
    cr_assert_eq(gnutls_privkey_sign_data2(signer.key, algorithm_of(what->digest), 0, &given, &made), 0);
    cr_assert_leq(made.size, RG_TLS_SERVER_SIGNATURE_SIZE);
    memcpy(signature, made.data, made.size);
    *size = made.size;
    gnutls_free(made.data);
    return RG_OK;
}

/* --- handshakes ---------------------------------------------------------------------------------------------- */

struct client {
    int fd, result;
    const char *priorities;
};

static int shake(gnutls_session_t session)
{
    int result;
    gnutls_handshake_set_timeout(session, PATIENCE_MS);
    while ((result = gnutls_handshake(session)) < 0 && !gnutls_error_is_fatal(result))
        ;
    return result;
}

static void *connect_to_it(void *data)
{
    struct client *client = data;
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    cr_assert(gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_KEY_SHARE_TOP) == 0 &&
              gnutls_certificate_allocate_credentials(&credentials) == 0 &&
              gnutls_priority_set_direct(session, client->priorities, NULL) == 0 &&
              gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
    gnutls_transport_set_int(session, client->fd);
    client->result = shake(session);
    shutdown(client->fd, SHUT_RDWR);
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    return NULL;
}

/* In the place of what hears the handshake's messages. */
static int hear_nothing(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                        const gnutls_datum_t *message)
{
    (void)session, (void)type, (void)when, (void)incoming, (void)message;
    return 0;
}

/* Whether both ends were content. `deaf`: the server does not hear of the handshake's messages. */
static bool serve(const char *priorities, bool deaf)
{
    char why[256] = "";
    const struct rg_tls_signer by = {.sign = sign, .data = &signer, .generation = GENERATION};
    const struct rg_tls_pem pem = {
        .certificate = certificate.data, .certificate_size = certificate.size, .signer = &by};
    struct rg_http_key *key = rg_http_key_create(&pem, why, sizeof why);
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    pthread_t thread;
    int ends[2];
    cr_assert(key, "%s", why);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct client client = {.fd = ends[1], .priorities = priorities};
    cr_assert(gnutls_init(&session, GNUTLS_SERVER) == 0 &&
              gnutls_certificate_allocate_credentials(&credentials) == 0 &&
              gnutls_priority_set_direct(
                  session, "SECURE128:-VERS-ALL:+VERS-TLS1.3:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1",
                  NULL) == 0 &&
              gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
    gnutls_certificate_set_retrieve_function2(credentials, rg_http_key_choose);
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
    gnutls_transport_set_int(session, ends[0]);
    struct rg_http_handshake *handshake = rg_http_handshake_begin(key, session);
    cr_assert(handshake);
    if (deaf)
        gnutls_handshake_set_hook_function(session, (unsigned)GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_PRE,
                                           hear_nothing);
    cr_assert_eq(pthread_create(&thread, NULL, connect_to_it, &client), 0);
    const int result = shake(session);
    shutdown(ends[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    close(ends[0]);
    close(ends[1]);
    gnutls_deinit(session);
    rg_http_handshake_end(handshake);
    rg_http_key_destroy(key);
    gnutls_certificate_free_credentials(credentials);
    return result == 0 && client.result == 0;
}

/* The hash of a cipher suite, and of handshakes in which the server asks for another hello (it has not the group X448). */
static const char *const ways[] = {
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-256-GCM",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:-GROUP-ALL:+GROUP-X448:+GROUP-SECP256R1",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-256-GCM:-GROUP-ALL:+GROUP-X448:+GROUP-SECP256R1",
};

Test(http_key, every_kind_of_key)
{
    static const struct {
        gnutls_pk_algorithm_t kind;
        unsigned bits;
    } kinds[] = {{GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1)},
                 {GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP384R1)},
                 {GNUTLS_PK_RSA, 2048},
                 {GNUTLS_PK_EDDSA_ED25519, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_ED25519)}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_key(kinds[i].kind, kinds[i].bits);
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            signer.asked = 0;
            cr_expect(serve(ways[way], false), "%s, %s", gnutls_pk_get_name(kinds[i].kind), ways[way]);
            cr_expect_eq(signer.asked, 1);
        }
        drop_key();
    }
}

Test(http_key, without_a_signature_there_is_no_connection)
{
    make_key(GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1));
    signer.refuses = true;
    cr_expect_not(serve(ways[0], false));
    cr_expect_eq(signer.asked, 1);
    drop_key();
}

Test(http_key, what_is_not_the_handshake_as_it_was_heard_is_not_signed)
{
    make_key(GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1));
    cr_expect_not(serve(ways[0], true));
    cr_expect_eq(signer.asked, 0);
    drop_key();
    make_key(GNUTLS_PK_EDDSA_ED25519, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_ED25519));
    cr_expect_not(serve(ways[0], true));
    cr_expect_eq(signer.asked, 0);
    drop_key();
}
