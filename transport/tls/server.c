/*
 * server.c - the server's side of tls.h: it judges a client's certificate, but lets the handshake end either way (tls.h
 * says why); that the client has the certificate's key is OpenSSL's to prove.
 *
 * What can fail is explained to the caller, and mostly the peer's doing. Threads: as tls.h says.
 */
#include "transport/tls/handshake.h"

#include "common/base/clock.h"
#include "transport/tls/remote_key.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct rg_tls_server {
    atomic_uint references;
    SSL_CTX *context;
    STACK_OF(X509) * roots;
};

enum rg_status rg_tls_server_create(const struct rg_tls_pem *pem, struct rg_tls_server **out, char *why,
                                    size_t why_size)
{
    rg_tls_start();
    struct rg_tls_server *server = calloc(1, sizeof *server);
    STACK_OF(X509) *chain = rg_tls_read_certificates(pem->certificate, pem->certificate_size);
    EVP_PKEY *key = !pem->signer ? rg_tls_read_key(pem->key, pem->key_size)
                    : chain      ? rg_tls_remote_key(sk_X509_value(chain, 0), pem->signer)
                                 : NULL;
    enum rg_status status = RG_ERR_NO_MEMORY;
    if (server) {
        atomic_init(&server->references, 1);
        server->context = rg_tls_handshake_context(true);
        server->roots = rg_tls_read_certificates(pem->ca, pem->ca_size);
    }
    if (server && server->context) {
        status = rg_tls_handshake_set_certificate(server->context, chain, key, RG_TLS_ROLE_SERVER,
                                                  " of the server", " of the server", why, why_size);
        if (status == RG_OK && !server->roots) {
            rg_explain(why, why_size, "the certificate of the authority is not PEM");
            status = RG_ERR_INVALID;
        }
    } else {
        rg_explain(why, why_size, "out of memory");
    }
    /* who joins knows the authority's key by its hash only, and has to be shown the certificate */
    for (int i = 0; status == RG_OK && i < sk_X509_num(server->roots); i++) {
        X509 *root = sk_X509_value(server->roots, i);
        const int last = sk_X509_num(chain) - 1;
        if (X509_check_issued(root, sk_X509_value(chain, last)) == X509_V_OK &&
            X509_cmp(root, sk_X509_value(chain, last)) != 0)
            (void)SSL_CTX_add1_chain_cert(server->context, root);
    }
    sk_X509_pop_free(chain, X509_free);
    EVP_PKEY_free(key);
    if (status == RG_OK)
        *out = server;
    else
        rg_tls_server_release(server);
    return status;
}

struct rg_tls_server *rg_tls_server_acquire(struct rg_tls_server *server)
{
    atomic_fetch_add(&server->references, 1);
    return server;
}

void rg_tls_server_release(struct rg_tls_server *server)
{
    if (!server || atomic_fetch_sub(&server->references, 1) != 1)
        return;
    SSL_CTX_free(server->context);
    sk_X509_pop_free(server->roots, X509_free);
    free(server);
}

enum rg_status rg_tls_is_hello(int fd, int timeout_ms, bool *is_tls)
{
    const uint64_t until = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        unsigned char first;
        ssize_t n = recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 1) {
            *is_tls = first == SSL3_RT_HANDSHAKE;
            return RG_OK;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return RG_ERR_CLOSED;
        const uint64_t now = rg_now_ns();
        if (now >= until)
            return RG_ERR_TIMEOUT;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)poll(&p, 1, (int)((until - now + 999999u) / 1000000u));
    }
}

enum rg_status rg_tls_accept(int fd, struct rg_tls_server *server, int timeout_ms, struct rg_tls_peer *peer,
                             struct rg_tls_keys *keys, char *why, size_t why_size)
{
    struct rg_tls_handshake h = {
        .fd = fd,
        .is_server = true,
        .verdict = RG_ERR_REFUSED,
        .judgement = {.role = RG_TLS_ROLE_CLIENT, .roots = server->roots, .owner = "your certificate"}};
    SSL *ssl = rg_tls_handshake_make(server->context, &h);
    if (!ssl)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    enum rg_status status = rg_tls_handshake_run(&h, ssl, timeout_ms);
    memset(peer, 0, sizeof *peer);
    if (status == RG_OK) {
        peer->shown = h.shown;
        peer->verified = h.shown && h.verdict == RG_OK;
        peer->certificate = h.certificate;
        memcpy(peer->why, h.verdict_why, sizeof peer->why);
        if (!rg_tls_handshake_take_keys(&h, ssl, keys, peer->exporter))
            status = RG_ERR_PROTOCOL;
    }
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (status == RG_ERR_TIMEOUT)
        rg_explain(why, why_size, "the handshake of TLS was not finished in time");
    else if (status == RG_ERR_CLOSED)
        rg_explain(why, why_size, "the peer went away during the handshake of TLS");
    else if (status != RG_OK)
        rg_explain(why, why_size, "the handshake of TLS failed: %s",
                   h.failed == EMSGSIZE ? "the peer sends too much"
                   : reason             ? reason
                                        : "it is not TLS 1.3");
    rg_tls_handshake_end(&h, ssl);
    return status;
}

static STACK_OF(X509) * read_chain(const struct rg_tls_der *chain, size_t n)
{
    STACK_OF(X509) *out = sk_X509_new_null();
    for (size_t i = 0; out && i < n; i++) {
        const unsigned char *at = chain[i].data;
        X509 *one = chain[i].size <= LONG_MAX ? d2i_X509(NULL, &at, (long)chain[i].size) : NULL;
        if (!one || sk_X509_push(out, one) == 0) {
            X509_free(one);
            sk_X509_pop_free(out, X509_free);
            out = NULL;
        }
    }
    return out;
}

void rg_tls_judge_client(const struct rg_tls_server *server, const struct rg_tls_der *chain, size_t n,
                         struct rg_tls_peer *peer)
{
    const struct rg_tls_judgement judgement = {
        .role = RG_TLS_ROLE_CLIENT, .roots = server->roots, .owner = "your certificate"};
    int error;
    memset(peer, 0, sizeof *peer);
    if (n == 0)
        return;
    peer->shown = true;
    STACK_OF(X509) *read = read_chain(chain, n);
    if (read) {
        rg_tls_describe(sk_X509_value(read, 0), &peer->certificate);
        peer->verified = rg_tls_judge(&judgement, sk_X509_value(read, 0), read, &error, peer->why,
                                      sizeof peer->why) == RG_OK;
    } else {
        rg_explain(peer->why, sizeof peer->why, "your certificate cannot be read");
    }
    sk_X509_pop_free(read, X509_free);
    ERR_clear_error();
}

bool rg_tls_server_is_named(const struct rg_tls_server *server, const char *host)
{
    X509 *own = SSL_CTX_get0_certificate(server->context);
    return own && (X509_check_host(own, host, 0, 0, NULL) == 1 || X509_check_ip_asc(own, host, 0) == 1);
}
