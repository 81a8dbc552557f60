/*
 * packet.h - data with descriptors from process to process, over a unix socket: all that passes descriptors does so here, since
 * what comes with too many of them, or cut, must neither be written behind an end nor stay open.
 *
 * Over a stream socket, one packet at a time: what is sent is small, and is received as a whole or in an error. Any thread;
 * nothing waits unless `flags` of receive let it.
 */
#ifndef RG_COMMON_BASE_PACKET_H
#define RG_COMMON_BASE_PACKET_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { RG_PACKET_FDS_MAX = 17 };

/** Sends without waiting; false: errno tells why not. The caller keeps its descriptors. */
RG_MUST_CHECK bool rg_packet_send(int socket, const void *data, size_t size, const int *fds, unsigned n_fds);

/**
 * Receives one packet of exactly `size` bytes and up to `max` descriptors (RG_PACKET_FDS_MAX at most), which become the caller's.
 * RG_ERR_TIMEOUT: there is none (MSG_DONTWAIT in `flags`); RG_ERR_CLOSED: the other side has gone; RG_ERR_PROTOCOL: it is of
 * another size, or more came with it, and nothing is returned; RG_ERR_LIMIT: this process can have no more descriptors, and
 * none is returned, but the data.
 */
RG_MUST_CHECK enum rg_status rg_packet_receive(int socket, int flags, void *data, size_t size, int *fds,
                                               unsigned max, unsigned *n_fds);
/** The same of one byte and one descriptor, as an answer to who asked for it; -1: there was none. */
RG_MUST_CHECK int rg_packet_receive_fd(int socket);

/** Closes those that are not negative. */
void rg_packet_close(const int *fds, unsigned n_fds);

#endif
