/*
 * handshake.c - see handshake.h and tls.h: TLS 1.3 alone, without tickets and early data.
 *
 * OpenSSL reads and writes the socket through functions of ours, which raise no signal, never wait, and count what the
 * peer sends. It reads record by record, so nothing behind the handshake is taken. The secrets come by the callback
 * that is meant for logs of keys: TLS 1.3 has no other way to them.
 *
 * The client believes a server or ends the handshake with an alert. The server judges a certificate as well, but lets
 * the handshake end either way (tls.h says why); that the peer has the certificate's key is OpenSSL's to prove.
 *
 * Threads: one for each handshake.
 */
#include "transport/tls/handshake.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "transport/tls/certificate.h"
#include "transport/tls/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define EXPORTER_LABEL "EXPORTER-remote-gpu-join"

/* Of one handshake; OpenSSL's objects point to it. */
struct handshake {
    int fd;
    size_t received; /* bytes */
    bool is_server, ended;
    int failed; /* errno of the socket */
    struct rg_tls_judgement judgement;
    enum rg_status verdict;
    bool shown;
    struct rg_tls_certificate certificate;
    char verdict_why[512];
    uint8_t client_secret[RG_TLS_SECRET_SIZE], server_secret[RG_TLS_SECRET_SIZE];
    size_t client_secret_size, server_secret_size;
};

struct rg_tls_server {
    atomic_uint references;
    SSL_CTX *context;
    STACK_OF(X509) * roots;
};

/* --- the socket, for OpenSSL --- */

/* What a call that failed means: to be tried again, or the end. */
static bool is_for_later(struct handshake *h)
{
    if (errno == EAGAIN || errno == EINTR)
        return true;
    h->failed = errno;
    return false;
}

static int bio_read(BIO *bio, char *data, int size)
{
    struct handshake *h = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (h->received + (size_t)size > RG_TLS_HANDSHAKE_MAX) {
        h->failed = EMSGSIZE;
        return -1;
    }
    const ssize_t n = recv(h->fd, data, (size_t)size, MSG_DONTWAIT);
    if (n > 0)
        h->received += (size_t)n;
    else if (n == 0)
        h->ended = true;
    else if (is_for_later(h))
        BIO_set_retry_read(bio);
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct handshake *h = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t n = send(h->fd, data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && is_for_later(h))
        BIO_set_retry_write(bio);
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;
static int handshake_index = -1; /* where an SSL has its struct handshake */

static void make_shared(void)
{
    rg_tls_start();
    handshake_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "remote-gpu");
    if (bio_method) {
        BIO_meth_set_read(bio_method, bio_read);
        BIO_meth_set_write(bio_method, bio_write);
        BIO_meth_set_ctrl(bio_method, bio_control);
    }
}

static bool have_shared(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_shared);
    return bio_method && handshake_index >= 0;
}

/* --- secrets --- */

static int from_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "SERVER_TRAFFIC_SECRET_0 RANDOM SECRET", both in hexadecimal. */
static void take_secret(const SSL *ssl, const char *line)
{
    struct handshake *h = SSL_get_ex_data(ssl, handshake_index);
    const bool client = strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0;
    const char *cur = strrchr(line, ' ');
    if (!h || !cur || (!client && strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) != 0))
        return;
    uint8_t *out = client ? h->client_secret : h->server_secret;
    size_t n = 0;
    for (cur++; n < RG_TLS_SECRET_SIZE && from_hex(cur[0]) >= 0 && from_hex(cur[1]) >= 0; cur += 2)
        out[n++] = (uint8_t)(from_hex(cur[0]) << 4 | from_hex(cur[1]));
    *(client ? &h->client_secret_size : &h->server_secret_size) = n;
}

static bool take_keys(struct handshake *h, SSL *ssl, struct rg_tls_keys *keys, uint8_t *exporter)
{
    const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
    const struct rg_tls_suite *suite = cipher ? rg_tls_suite_find(SSL_CIPHER_get_protocol_id(cipher)) : NULL;
    if (!suite || h->client_secret_size != suite->secret_size ||
        h->server_secret_size != suite->secret_size || SSL_pending(ssl) != 0)
        return false;
    memset(keys, 0, sizeof *keys);
    keys->cipher = suite->number;
    keys->is_server = h->is_server;
    keys->secret_size = suite->secret_size;
    memcpy(keys->send, h->is_server ? h->server_secret : h->client_secret, suite->secret_size);
    memcpy(keys->receive, h->is_server ? h->client_secret : h->server_secret, suite->secret_size);
    return SSL_export_keying_material(ssl, exporter, RG_TLS_EXPORTER_SIZE, EXPORTER_LABEL,
                                      strlen(EXPORTER_LABEL), NULL, 0, 0) == 1;
}

/* --- judging the peer --- */

static int judge(X509_STORE_CTX *given, void *user)
{
    (void)user;
    SSL *ssl = X509_STORE_CTX_get_ex_data(given, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct handshake *h = ssl ? SSL_get_ex_data(ssl, handshake_index) : NULL;
    X509 *leaf = X509_STORE_CTX_get0_cert(given);
    int error = X509_V_ERR_UNSPECIFIED;
    if (!h || !leaf)
        return 0;
    h->shown = true;
    rg_tls_describe(leaf, &h->certificate);
    h->verdict = rg_tls_judge(&h->judgement, leaf, X509_STORE_CTX_get0_untrusted(given), &error,
                              h->verdict_why, sizeof h->verdict_why);
    const bool go_on = h->is_server || h->verdict == RG_OK;
    X509_STORE_CTX_set_error(given, go_on ? X509_V_OK : error);
    return go_on;
}

/* --- both sides --- */

/* Whether this processor encrypts AES by itself. */
static bool has_aes(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes");
#else
    return true;
#endif
}

static SSL_CTX *make_context(bool is_server)
{
    SSL_CTX *context =
        have_shared() ? SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()) : NULL;
    if (!context)
        return NULL;
    const char *suites = has_aes()
                             ? "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                             : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_security_level(context, 2);
    SSL_CTX_set_max_cert_list(context, RG_TLS_HANDSHAKE_MAX / 2);
    SSL_CTX_set_keylog_callback(context, take_secret);
    SSL_CTX_set_cert_verify_callback(context, judge, NULL);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL); /* of a client: asked for, not demanded */
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_ciphersuites(context, suites) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

/* Our own certificate with those that follow it, and its key. `from`: where they are from, for the sentence. */
static enum rg_status set_certificate(SSL_CTX *context, STACK_OF(X509) * chain, EVP_PKEY *key,
                                      enum rg_tls_role role, const char *from, char *why, size_t why_size)
{
    enum rg_status status = RG_ERR_INVALID;
    X509 *leaf = chain ? sk_X509_value(chain, 0) : NULL;
    if (!leaf) {
        rg_explain(why, why_size, "the certificate%s is not PEM: restore it, or have a new one made", from);
    } else if (!key) {
        rg_explain(why, why_size, "the key%s is not PEM, or has a pass phrase, which it must not", from);
    } else if (X509_check_private_key(leaf, key) != 1) {
        rg_explain(why, why_size,
                   "the key%s does not fit the certificate: both must come from the same request", from);
    } else if (!rg_tls_serves_as(leaf, role)) {
        rg_explain(why, why_size, "the certificate%s is not for %s: its extended key usage lacks %s", from,
                   role == RG_TLS_ROLE_SERVER ? "servers" : "clients",
                   role == RG_TLS_ROLE_SERVER ? "serverAuth" : "clientAuth");
    } else if (SSL_CTX_use_certificate(context, leaf) != 1 || SSL_CTX_use_PrivateKey(context, key) != 1) {
        rg_explain(why, why_size, "the certificate%s is not accepted: %s", from,
                   ERR_reason_error_string(ERR_get_error()));
    } else {
        status = RG_OK;
    }
    for (int i = 1; status == RG_OK && i < sk_X509_num(chain); i++)
        if (SSL_CTX_add1_chain_cert(context, sk_X509_value(chain, i)) != 1)
            status = RG_ERR_NO_MEMORY;
    ERR_clear_error();
    return status;
}

/* Runs the handshake to its end. RG_ERR_TIMEOUT, RG_ERR_CLOSED, RG_ERR_PROTOCOL. */
static enum rg_status run(struct handshake *h, SSL *ssl, int timeout_ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        ERR_clear_error();
        const int n = h->is_server ? SSL_accept(ssl) : SSL_connect(ssl);
        if (n == 1)
            return RG_OK;
        const int error = SSL_get_error(ssl, n);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            return h->ended || (h->failed && h->failed != EMSGSIZE) ? RG_ERR_CLOSED : RG_ERR_PROTOCOL;
        const uint64_t now = rg_now_ns();
        if (now >= until)
            return RG_ERR_TIMEOUT;
        struct pollfd p = {.fd = h->fd, .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
        (void)poll(&p, 1, (int)((until - now + 999999u) / 1000000u));
    }
}

static SSL *make_ssl(SSL_CTX *context, struct handshake *h)
{
    SSL *ssl = context ? SSL_new(context) : NULL;
    BIO *bio = ssl ? BIO_new(bio_method) : NULL;
    if (bio && SSL_set_ex_data(ssl, handshake_index, h) == 1) {
        BIO_set_data(bio, h);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl, bio, bio);
        return ssl;
    }
    BIO_free(bio);
    SSL_free(ssl);
    return NULL;
}

static void end(struct handshake *h, SSL *ssl)
{
    SSL_free(ssl);
    ERR_clear_error();
    OPENSSL_cleanse(h->client_secret, sizeof h->client_secret);
    OPENSSL_cleanse(h->server_secret, sizeof h->server_secret);
}

/* --- the server --- */

enum rg_status rg_tls_server_create(const struct rg_tls_pem *pem, struct rg_tls_server **out, char *why,
                                    size_t why_size)
{
    rg_tls_start();
    struct rg_tls_server *server = calloc(1, sizeof *server);
    STACK_OF(X509) *chain = rg_tls_read_certificates(pem->certificate, pem->certificate_size);
    EVP_PKEY *key = rg_tls_read_key(pem->key, pem->key_size);
    enum rg_status status = RG_ERR_NO_MEMORY;
    if (server) {
        atomic_init(&server->references, 1);
        server->context = make_context(true);
        server->roots = rg_tls_read_certificates(pem->ca, pem->ca_size);
    }
    if (server && server->context) {
        status =
            set_certificate(server->context, chain, key, RG_TLS_ROLE_SERVER, " of the server", why, why_size);
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
    struct handshake h = {
        .fd = fd,
        .is_server = true,
        .verdict = RG_ERR_REFUSED,
        .judgement = {.role = RG_TLS_ROLE_CLIENT, .roots = server->roots, .owner = "your certificate"}};
    SSL *ssl = make_ssl(server->context, &h);
    if (!ssl) {
        rg_explain(why, why_size, "out of memory");
        return RG_ERR_NO_MEMORY;
    }
    enum rg_status status = run(&h, ssl, timeout_ms);
    memset(peer, 0, sizeof *peer);
    if (status == RG_OK) {
        peer->shown = h.shown;
        peer->verified = h.shown && h.verdict == RG_OK;
        peer->certificate = h.certificate;
        memcpy(peer->why, h.verdict_why, sizeof peer->why);
        if (!take_keys(&h, ssl, keys, peer->exporter))
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
    end(&h, ssl);
    return status;
}

/* --- the client --- */

/* A file of certificates; the sentence names it. */
static enum rg_status read_certificates(const char *path, const char *what, STACK_OF(X509) * *out, char *why,
                                        size_t why_size)
{
    char *data = NULL;
    size_t size = 0;
    enum rg_status status = rg_tls_read_file(path, what, false, &data, &size, why, why_size);
    if (status != RG_OK)
        return status;
    *out = rg_tls_read_certificates(data, size);
    rg_tls_free_file(data, size);
    if (*out)
        return RG_OK;
    rg_explain(why, why_size, "%s %s holds no certificates in PEM: restore it, or join the server again",
               what, path);
    return RG_ERR_INVALID;
}

static enum rg_status use_client_files(SSL_CTX *context, const struct rg_tls_client *client, char *why,
                                       size_t why_size)
{
    if (!client->certificate_file || !client->key_file)
        return RG_OK;
    STACK_OF(X509) *chain = NULL;
    char *data = NULL, from[300];
    size_t size = 0;
    enum rg_status status =
        read_certificates(client->certificate_file, "the certificate", &chain, why, why_size);
    if (status == RG_OK)
        status = rg_tls_read_file(client->key_file, "the key", true, &data, &size, why, why_size);
    if (status == RG_OK) {
        EVP_PKEY *key = rg_tls_read_key(data, size);
        snprintf(from, sizeof from, " (%s)", key ? client->certificate_file : client->key_file);
        status = set_certificate(context, chain, key, RG_TLS_ROLE_CLIENT, from, why, why_size);
        EVP_PKEY_free(key);
    }
    rg_tls_free_file(data, size);
    sk_X509_pop_free(chain, X509_free);
    return status == RG_OK ? RG_OK : RG_ERR_INVALID;
}

static void explain_failure(const struct handshake *h, enum rg_status status, char *why, size_t why_size)
{
    const unsigned long error = ERR_peek_error();
    const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (h->shown && h->verdict != RG_OK)
        rg_explain(why, why_size, "%s", h->verdict_why);
    else if (status == RG_ERR_TIMEOUT)
        rg_explain(why, why_size, "no answer to the handshake of TLS in time");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || (status == RG_ERR_CLOSED && h->received == 0))
        rg_explain(why, why_size,
                   "the server does not speak TLS on this port: it is not remote-gpud, an older one, or one "
                   "without certificates");
    else if (status == RG_ERR_CLOSED)
        rg_explain(why, why_size, "the server ended the connection during the handshake of TLS");
    else
        rg_explain(why, why_size, "the handshake of TLS failed: %s",
                   error ? ERR_reason_error_string(error) : "unknown");
}

enum rg_status rg_tls_connect(int fd, const struct rg_tls_client *client, const char *host, int timeout_ms,
                              struct rg_tls_session *out, char *why, size_t why_size)
{
    const char *name = client->server_name ? client->server_name : host;
    struct handshake h = {.fd = fd,
                          .verdict = RG_ERR_REFUSED,
                          .judgement = {.role = RG_TLS_ROLE_SERVER,
                                        .root_hash = client->ca_hash,
                                        .name = name,
                                        .owner = "the server's certificate"}};
    SSL_CTX *context = make_context(false);
    STACK_OF(X509) *roots = NULL;
    SSL *ssl = NULL;
    enum rg_status status = context ? RG_OK : RG_ERR_NO_MEMORY;
    if (status != RG_OK)
        rg_explain(why, why_size, "out of memory");
    else if (!client->ca_hash && !client->ca_file) {
        rg_explain(why, why_size, "no authority is known whose servers are believed");
        status = RG_ERR_INVALID;
    } else if (!client->ca_hash)
        status =
            read_certificates(client->ca_file, "the authority's certificate", &roots, why, why_size) == RG_OK
                ? RG_OK
                : RG_ERR_INVALID;
    h.judgement.roots = roots;
    if (status == RG_OK)
        status = use_client_files(context, client, why, why_size);
    if (status == RG_OK) {
        ssl = make_ssl(context, &h);
        status = ssl ? RG_OK : RG_ERR_NO_MEMORY;
    }
    if (status == RG_OK) {
        unsigned char address[16];
        if (inet_pton(AF_INET, name, address) != 1 && inet_pton(AF_INET6, name, address) != 1 &&
            strncmp(name, "spiffe://", 9) != 0)
            (void)SSL_set_tlsext_host_name(ssl, name);
        status = run(&h, ssl, timeout_ms);
        if (status == RG_OK && !take_keys(&h, ssl, &out->keys, out->exporter))
            status = RG_ERR_PROTOCOL;
        if (status == RG_OK)
            memcpy(out->peer, h.certificate.name, sizeof out->peer);
        else
            explain_failure(&h, status, why, why_size);
        if (status != RG_OK)
            status = h.shown && h.verdict != RG_OK ? RG_ERR_REFUSED : RG_ERR_UNREACHABLE;
    }
    end(&h, ssl);
    SSL_CTX_free(context);
    sk_X509_pop_free(roots, X509_free);
    return status;
}
