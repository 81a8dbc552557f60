/*
 * peer.h - what two workers that serve sessions of one client say to each other, over a connection of their own.
 *
 * The client has introduced them: it got a secret of one use from each (rgPeerInvite), and one of the servers connected to the
 * other (RG_PURPOSE_INTRODUCE, RG_PURPOSE_PEER; PROTOCOL.md). A copy between them is one record on each side (rgPeerReceive,
 * rgPeerSend) with a transfer's number that the client has chosen. Either side may come first, and both ways may be in use
 * at once:
 *
 *   destination                              source
 *   its stream gets to the copy
 *   ASK transfer, offset, size  ───────────► its stream has waited for that, reads so much
 *   data goes to the device     ◄─────────── DATA transfer, offset, size, and the bytes as bulk data
 *
 * The destination asks for chunks in their order, only while it has a buffer for each, so who receives never waits for a
 * stream. Both cut at RG_PEER_CHUNK; DATA may come in several parts, between which others have theirs and ask. FAIL: the sender's side will not do its part; the other one goes on with an error.
 *
 * A wait is a record on each side, too (rgPeerWait, rgPeerSignal): SIGNAL transfer says that the one stream has got there, and the
 * other one goes on.
 *
 * Where the client has offered RDMA and both have it, the connection moves to it before all this (PROTOCOL.md).
 */
#ifndef RG_PROTO_PEER_H
#define RG_PROTO_PEER_H

#include <assert.h>
#include <stdint.h>

#define RG_PEER_CHUNK (2u << 20)
#define RG_PEER_RDMA  "rdma" /* the transport that a connection may move to */

/** What rgPeerAwait tells: bits; none: there is no connection. */
enum { RG_PEER_IS_OPEN = 1, RG_PEER_BY_RDMA = 2 };

enum rg_peer_message_type { RG_PEER_ASK = 1, RG_PEER_DATA, RG_PEER_FAIL, RG_PEER_SIGNAL };

struct rg_peer_message {
    uint32_t type;
    uint32_t reserved;
    uint64_t transfer;
    uint64_t offset, size; /* bytes of the copy, packed */
};
static_assert(sizeof(struct rg_peer_message) == 32, "wire layout");

#endif
