/*
 * handshake.h - what the two sides of a handshake by OpenSSL share: after it OpenSSL's objects are gone, and keys are
 * left. Internal to transport/tls/; server.c and client.c are the sides.
 *
 * Threads: one for each handshake.
 */
#ifndef RG_TRANSPORT_TLS_HANDSHAKE_H
#define RG_TRANSPORT_TLS_HANDSHAKE_H

#include "transport/tls/certificate.h"
#include "transport/tls/tls.h"

/** Of one handshake; OpenSSL's objects point to it. */
struct rg_tls_handshake {
    int fd;
    size_t received; /* bytes */
    bool is_server, ended;
    int failed; /* errno of the socket */
    struct rg_tls_judgement judgement;
    enum rg_status verdict; /* RG_ERR_REFUSED until the peer's certificate was found good */
    bool shown;
    struct rg_tls_certificate certificate;
    char verdict_why[512];
    uint8_t client_secret[RG_TLS_SECRET_SIZE], server_secret[RG_TLS_SECRET_SIZE];
    size_t client_secret_size, server_secret_size;
};

/** What all handshakes of a side are made from; NULL: out of memory. */
SSL_CTX *rg_tls_handshake_context(bool is_server);
/**
 * Our own certificate with those that follow it, and its key. `from`, `key_from`: where they are from, for the sentence.
 * RG_ERR_INVALID, RG_ERR_NO_MEMORY.
 */
RG_MUST_CHECK enum rg_status rg_tls_handshake_set_certificate(SSL_CTX *context, STACK_OF(X509) * chain,
                                                              EVP_PKEY *key, enum rg_tls_role role,
                                                              const char *from, const char *key_from,
                                                              char *why, size_t why_size);
/** The object of one handshake, which ends with rg_tls_handshake_end; NULL: out of memory. */
SSL *rg_tls_handshake_make(SSL_CTX *context, struct rg_tls_handshake *h);
/** Runs it to its end. RG_ERR_TIMEOUT, RG_ERR_CLOSED, RG_ERR_PROTOCOL. */
RG_MUST_CHECK enum rg_status rg_tls_handshake_run(struct rg_tls_handshake *h, SSL *ssl, int timeout_ms);
/** What it has left. False: not what was asked for; nothing is left in *keys then. */
RG_MUST_CHECK bool rg_tls_handshake_take_keys(struct rg_tls_handshake *h, SSL *ssl, struct rg_tls_keys *keys,
                                              uint8_t exporter[RG_TLS_EXPORTER_SIZE]);
/** Frees and wipes; NULL for `ssl` is fine. */
void rg_tls_handshake_end(struct rg_tls_handshake *h, SSL *ssl);

#endif
