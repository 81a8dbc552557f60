/*
 * share.h - descriptors of the driver's that other sessions on this machine may ask for.
 *
 * The worker that exported one keeps it, and a thread of its own hands copies to whoever names its token: 16 bytes that name
 * the socket of that worker (in the abstract namespace), 16 random bytes that name the descriptor, zeros. A worker of
 * another user gets none.
 */
#ifndef RG_SERVER_SHARE_H
#define RG_SERVER_SHARE_H

#include <stdbool.h>

#define RG_SHARE_TOKEN 64

/** Keeps `fd` and fills in its token; false: the system refused (logged), and the descriptor is closed. Any thread. */
bool rg_share_offer(int fd, unsigned char token[RG_SHARE_TOKEN]);
/** Closes what the token names. */
void rg_share_end(const unsigned char token[RG_SHARE_TOKEN]);
/** A copy of what the token names, of this worker or another; -1: there is no such thing. */
int rg_share_take(const unsigned char token[RG_SHARE_TOKEN]);

#endif
