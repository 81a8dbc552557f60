/*
 * handed.h - how a worker gets connections that its client opens later: a packet of the monitor's with descriptors.
 *
 * The descriptors are the connection, a file with the hello that came by it and, of a connection by TLS, one with its keys
 * (struct rg_tls_keys). The packet's size is fixed; what the client sent is in the file alone.
 */
#ifndef RG_SERVER_HANDSHAKE_HANDED_H
#define RG_SERVER_HANDSHAKE_HANDED_H

#include "transport/tls/tls.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

enum { RG_HANDED_VERSION = 1, RG_HANDED_FDS = 3 };

struct rg_handed {
    uint32_t version;
    uint32_t n_fds;
};

/** Takes the keys of a connection out of their file, which is closed. False: there are none in it. */
RG_MUST_CHECK bool rg_handed_keys(int file, struct rg_tls_keys *keys);
/**
 * Makes a connection of the socket that a process was started with and, by TLS, of the file with its keys (-1: none), which is
 * closed. Fails as rg_transport_adopt_fd does; RG_ERR_INVALID: there are no keys in the file.
 */
RG_MUST_CHECK enum rg_status rg_handed_adopt(int fd, int key_file, struct rg_conn **conn);

#endif
