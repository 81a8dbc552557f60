/*
 * handed.h - how a worker gets connections that its client opens later: a packet of the monitor's with descriptors.
 *
 * The descriptors are the connection and a file with the hello that came by it. The packet's size is fixed; what the client
 * sent is in the file alone.
 */
#ifndef RG_SERVER_HANDSHAKE_HANDED_H
#define RG_SERVER_HANDSHAKE_HANDED_H

#include <stdint.h>

enum { RG_HANDED_VERSION = 1, RG_HANDED_FDS = 2 };

struct rg_handed {
    uint32_t version;
    uint32_t n_fds;
};

#endif
