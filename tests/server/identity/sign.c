/*
 * sign.c - handshakes of TLS whose server has no key: the store signs, with each kind of key that an operator may have. The client is
 * that of transport tls, which believes a server by its signature.
 */
#include "server/identity/identity.h"
#include "tests/server/identity/folder.h"
#include "transport/tls/client.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

static char ca[512], certificate[512], key[512], why[1024];
static struct rg_identity_settings settings;
static struct rg_identity_store *store;

static void make_authority(void)
{
    test_folder();
    snprintf(ca, sizeof ca, "%s/../ca.pem", test_folder());
    snprintf(certificate, sizeof certificate, "%s/../server.pem", test_folder());
    snprintf(key, sizeof key, "%s/../server.key", test_folder());
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    output_of(
        "cd %s/.. && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key "
        "-out ca.pem -subj /CN=company -days 365 2>&1 && "
        "printf 'subjectAltName=DNS:gpu.example.org\\nextendedKeyUsage=serverAuth' > ext",
        test_folder());
    settings = (struct rg_identity_settings){
        .state_dir = test_folder(), .ca_file = ca, .certificate_file = certificate, .key_file = key};
}

/* `kind`: what openssl req -newkey takes. */
static void make_server(const char *kind)
{
    output_of(
        "cd %s/.. && openssl req -newkey %s -nodes -keyout server.key -out server.csr -subj /CN=gpu 2>&1 && "
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext "
        "-out server.pem 2>&1 && chmod 600 server.key",
        test_folder(), kind);
}

static enum rg_status sign(void *data, const struct rg_tls_to_sign *what,
                           uint8_t signature[RG_TLS_SERVER_SIGNATURE_SIZE], size_t *size)
{
    (void)data;
    return rg_identity_sign(store, what->generation, (enum rg_identity_digest)what->digest, what->hash,
                            what->hash_size, signature, size);
}

static struct rg_tls_server *server_without_key(void)
{
    struct rg_identity_material material;
    struct rg_tls_server *server = NULL;
    rg_identity_material(store, &material);
    const struct rg_tls_signer signer = {.sign = sign, .generation = material.generation};
    const struct rg_tls_pem pem = {.ca = material.authority,
                                   .ca_size = material.authority_size,
                                   .certificate = material.certificate,
                                   .certificate_size = material.certificate_size,
                                   .signer = &signer};
    cr_assert_eq(rg_tls_server_create(&pem, &server, why, sizeof why), RG_OK, "%s", why);
    return server;
}

struct serving {
    struct rg_tls_server *server;
    int fd;
    enum rg_status status;
    char why[512];
};

static void *serve(void *data)
{
    struct serving *serving = data;
    struct rg_tls_peer peer;
    struct rg_tls_keys keys;
    serving->status = rg_tls_accept(serving->fd, serving->server, PATIENCE_MS, &peer, &keys, serving->why,
                                    sizeof serving->why);
    close(serving->fd);
    return NULL;
}

/* The client's verdict over a handshake. */
static enum rg_status shake(struct rg_tls_server *server)
{
    const struct rg_tls_client client = {.ca_file = ca, .server_name = "gpu.example.org"};
    struct rg_tls_session session;
    pthread_t thread;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct serving serving = {.server = server, .fd = ends[0]};
    cr_assert_eq(pthread_create(&thread, NULL, serve, &serving), 0);
    const enum rg_status status =
        rg_tls_connect(ends[1], &client, "gpu.example.org", PATIENCE_MS, &session, why, sizeof why);
    close(ends[1]);
    pthread_join(thread, NULL);
    if (status == RG_OK)
        cr_expect_eq(serving.status, RG_OK, "%s", serving.why);
    return status;
}

Test(sign, every_kind_of_key)
{
    static const char *const kinds[] = {"ec -pkeyopt ec_paramgen_curve:P-256",
                                        "ec -pkeyopt ec_paramgen_curve:P-384", "rsa:2048",
                                        "rsa-pss -pkeyopt rsa_keygen_bits:2048", "ed25519"};
    make_authority();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_server(kinds[i]);
        cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s: %s", kinds[i], why);
        struct rg_tls_server *server = server_without_key();
        cr_expect_eq(shake(server), RG_OK, "%s: %s", kinds[i], why);
        rg_tls_server_release(server);
        rg_identity_close(store);
    }
}

Test(sign, handshakes_that_began_before_the_certificate_was_replaced)
{
    bool changed = false;
    make_authority();
    make_server("ec -pkeyopt ec_paramgen_curve:P-256");
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
    struct rg_tls_server *first = server_without_key();
    make_server("ec -pkeyopt ec_paramgen_curve:P-256");
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK, "%s", why);
    cr_assert(changed);
    struct rg_tls_server *second = server_without_key();
    cr_expect_eq(shake(first), RG_OK, "%s", why);
    cr_expect_eq(shake(second), RG_OK, "%s", why);
    make_server("rsa:2048");
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK, "%s", why);
    cr_expect_neq(shake(first), RG_OK, "a key that was replaced twice signs nothing");
    cr_expect_eq(shake(second), RG_OK, "%s", why);
    rg_tls_server_release(first);
    rg_tls_server_release(second);
    rg_identity_close(store);
}

/* Certificates come that nobody can use: those who have the one before go on with it, however many come. */
Test(sign, the_last_that_could_be_used)
{
    bool changed = false;
    make_authority();
    make_server("ec -pkeyopt ec_paramgen_curve:P-256");
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
    struct rg_tls_server *first = server_without_key();
    cr_expect_eq(shake(first), RG_OK, "%s", why);
    for (int i = 0; i < 4; i++) {
        make_server("ec -pkeyopt ec_paramgen_curve:P-256");
        cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK, "%s", why);
        cr_assert(changed);
        cr_expect_eq(shake(first), RG_OK, "%s", why);
    }
    struct rg_tls_server *last = server_without_key();
    cr_expect_eq(shake(last), RG_OK, "%s", why);
    cr_expect_neq(shake(first), RG_OK, "a key that others have taken the place of signs nothing");
    cr_expect_eq(shake(last), RG_OK, "%s", why);
    rg_tls_server_release(first);
    rg_tls_server_release(last);
    rg_identity_close(store);
}

Test(sign, what_is_not_signed)
{
    struct rg_identity_material material;
    uint8_t hash[64] = {1}, signature[RG_IDENTITY_SIGNATURE];
    size_t size = 0;
    make_authority();
    make_server("ed25519");
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
    rg_identity_material(store, &material);
    const uint32_t generation = material.generation;
    cr_expect_eq(rg_identity_sign(store, generation, RG_IDENTITY_NO_DIGEST, hash, 48, signature, &size),
                 RG_OK);
    cr_expect_eq(size, 64);
    cr_expect_neq(rg_identity_sign(store, generation, RG_IDENTITY_NO_DIGEST, hash, 49, signature, &size),
                  RG_OK);
    cr_expect_neq(rg_identity_sign(store, generation, RG_IDENTITY_SHA256, hash, 32, signature, &size), RG_OK);
    cr_expect_neq(rg_identity_sign(store, generation + 1, RG_IDENTITY_NO_DIGEST, hash, 32, signature, &size),
                  RG_OK);
    rg_identity_close(store);
}
