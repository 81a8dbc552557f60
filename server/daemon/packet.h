/*
 * packet.h - one packet with descriptors over a unix socket.
 *
 * Any thread; nothing waits unless `flags` of receive let it.
 */
#ifndef RG_SERVER_DAEMON_PACKET_H
#define RG_SERVER_DAEMON_PACKET_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { RG_PACKET_FDS_MAX = 17 };

/** Sends without waiting; false: errno tells why not. The caller keeps its descriptors. */
RG_MUST_CHECK bool rg_packet_send(int socket, const void *data, size_t size, const int *fds, unsigned n_fds);

/**
 * Receives one packet of exactly `size` bytes and up to RG_PACKET_FDS_MAX descriptors, which become the caller's.
 * RG_ERR_TIMEOUT: there is none (MSG_DONTWAIT in `flags`); RG_ERR_CLOSED: the other side has gone; RG_ERR_PROTOCOL: it is of
 * another size, or more came with it, and nothing is returned; RG_ERR_LIMIT: this process can have no more descriptors, and
 * none is returned, but the data.
 */
RG_MUST_CHECK enum rg_status rg_packet_receive(int socket, int flags, void *data, size_t size,
                                               int fds[RG_PACKET_FDS_MAX], unsigned *n_fds);

/** Closes those that are not negative. */
void rg_packet_close(const int *fds, unsigned n_fds);

#endif
