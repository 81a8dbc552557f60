/*
 * client.h - the client's side of a handshake, for transport/tls/ and for who has a connected socket already.
 *
 * Threads: any.
 */
#ifndef RG_TRANSPORT_TLS_CLIENT_H
#define RG_TRANSPORT_TLS_CLIENT_H

#include "transport/tls/tls.h"
#include "transport/transport.h"

/** What a client has after a handshake. */
struct rg_tls_session {
    struct rg_tls_keys keys;
    uint8_t exporter[RG_TLS_EXPORTER_SIZE];
    char peer[RG_TLS_NAME_SIZE];
};

/**
 * The client's side over a connected socket, within timeout_ms. RG_ERR_INVALID: its own files are not good;
 * RG_ERR_UNREACHABLE, RG_ERR_REFUSED: the server cannot be talked to, or is not to be believed. The sentence is in
 * `why`. `host` is the name of the address.
 */
RG_MUST_CHECK enum rg_status rg_tls_connect(int fd, const struct rg_tls_client *client, const char *host,
                                            int timeout_ms, struct rg_tls_session *out, char *why,
                                            size_t why_size);

#endif
