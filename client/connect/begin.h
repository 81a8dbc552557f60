/*
 * begin.h - one session begins: connecting, the hellos, the move to the best transport; then its threads. Which sessions there are is
 * start.c's affair, and guest.c's.
 *
 * One thread at a time.
 */
#ifndef RG_CLIENT_CONNECT_BEGIN_H
#define RG_CLIENT_CONNECT_BEGIN_H

#include "client/core/session.h"

/**
 * Connects a session, an entry of rg_sessions, to a server and says hello. `wanted`: the devices, the part of the address space and the
 * lease; NULL: it is the program's only server, and they are as the user wishes. False: it is as before, and `why` says why in a
 * sentence, or is "" where that has been told.
 */
RG_MUST_CHECK bool rg_begin_connect(struct rg_session *session, const char *server,
                                    const struct rg_client_hello *wanted, char *why, size_t why_size);
/**
 * Ends a session that this side does not begin. Where the worker has (`begun`) and lets it outlive its
 * connections, it is told.
 */
void rg_begin_give_up(struct rg_session *session, bool begun);
/** What follows once it is known that it will be: from then on calls can be made. */
RG_MUST_CHECK enum rg_status rg_begin_session(struct rg_session *session);

#endif
