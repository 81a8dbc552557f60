/*
 * rails.h - a session's ways to its server over TCP: the address that it began at, and others that the server has told of.
 *
 * A way is a rail if it leads over a link of its own at both ends: by another interface of this machine, into another network that this
 * machine is directly on, to another link of the server's. Where the user names rails (transport/topology/rails.h), that decides. Rails are
 * used by TLS alone, for the server's name as at the beginning, and by sessions that outlive their connections: a rail that is lost is a
 * loss of the connection, which is then made anew by what is left (reconnect.h). The port is always that of the session's address.
 *
 * Connections for bulk data are spread over the rails (multipath.h). One that cannot be had is tried again: after a second, and twice as long
 * after each attempt in vain, up to a minute. Once the address that the session began at takes one again, calls return to it as well.
 * Nothing of this is done before bulk data travels.
 *
 * Threads: any; there is a lock.
 */
#ifndef RG_CLIENT_CONNECT_RAILS_H
#define RG_CLIENT_CONNECT_RAILS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct rg_conn;
struct rg_session;

/** How long until rails that could not be had are asked for again, at the earliest. */
#define RG_RAILS_AGAIN_NS 1000000000ull

/** Whether the session may have rails: then its connections are to be watched closely (transport/liveness.h). */
bool rg_rails_possible(const struct rg_session *session);
/**
 * Connects channel `index` of the session's multipath, by the rail that has the fewest; `one_each`: by one that has none. NULL: none can
 * be had now; it was said.
 */
struct rg_conn *rg_rails_open(struct rg_session *session, unsigned index, bool one_each);
/** The rail of the connection at `place`: 0 the first, then the channels. */
unsigned rg_rails_of(void *session, unsigned place);
/** The channel is lost: its rail is left alone for a while. */
void rg_rails_lost(void *session, unsigned index);
/**
 * Connects to the server again after a loss, for a new first connection: by the way that was used last, then by the others, each
 * for a moment only. As rg_client_connect_again. *way: which one it was, to be given to rg_rails_use once the session goes on by it.
 */
RG_MUST_CHECK enum rg_status rg_rails_renew(struct rg_session *session, int timeout_ms, char *why,
                                            size_t why_size, unsigned *way, struct rg_conn **out);
void rg_rails_use(struct rg_session *session, unsigned way);
/** Whether what the session goes on after was no loss, but its return to the address that it began at. Once. */
bool rg_rails_returned(struct rg_session *session);
/** The address by which further connections that carry no bulk data go now. */
const char *rg_rails_address(const struct rg_session *session);

#endif
