/*
 * share.h - descriptors and handles of the driver's that other sessions on this machine may ask for.
 *
 * The worker that exported one keeps it, and a thread of its own hands copies to whoever names its token: 16 bytes that name
 * the socket of that worker (in the abstract namespace), 16 random bytes that name what it keeps, zeros. A worker of
 * another user gets none. Clients see only tokens: of a handle that a driver's library believes as it is, no byte is theirs.
 */
#ifndef RG_SERVER_SHARE_H
#define RG_SERVER_SHARE_H

#include <stdbool.h>

#define RG_SHARE_TOKEN   64
#define RG_SHARE_HANDLES 65536u

/** What a token can stand for; told between workers. */
enum rg_share_kind {
    RG_SHARE_DESCRIPTOR = 1,
    /* handles of RG_SHARE_TOKEN bytes */
    RG_SHARE_MEMORY,
    RG_SHARE_EVENT,
    RG_SHARE_POINTER,
    RG_SHARE_FABRIC,
};

/** Keeps `fd` and fills in its token; false: the system refused (logged), and the descriptor is closed. Any thread. */
bool rg_share_offer(int fd, unsigned char token[RG_SHARE_TOKEN]);
/** Closes what the token names. */
void rg_share_end(const unsigned char token[RG_SHARE_TOKEN]);
/** A copy of the descriptor that the token names, of this worker or another; -1: there is no such thing. */
int rg_share_take(const unsigned char token[RG_SHARE_TOKEN]);

/**
 * Puts a token in the place of the driver's handle, for the same handle the same one; false: the system refused (logged).
 * RG_SHARE_HANDLES are kept, of more the oldest are forgotten. Any thread.
 */
bool rg_share_offer_handle(enum rg_share_kind kind, unsigned char handle[RG_SHARE_TOKEN]);
/** Puts the driver's handle in the place of its token; false: it is none that a worker here has given out. */
bool rg_share_take_handle(enum rg_share_kind kind, unsigned char token[RG_SHARE_TOKEN]);

#endif
