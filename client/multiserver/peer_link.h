/*
 * peer_link.h - connections between the workers of this program's sessions, by which copies need not come through here.
 *
 * The first copy between two servers has them connected: each worker gives a secret of one use, and one server is asked to
 * connect to the other (RG_PURPOSE_INTRODUCE). Where that fails (an operator does not allow it, the servers do not reach each
 * other, one does not know of it) copies between the two go through this machine, for good, and one line says why. When a
 * connection is lost, copies under way on it end with an error, and later ones go through this machine. Whether it goes over RDMA is
 * the workers' affair, if the user allows that (rg_peer_offer_rdma).
 *
 * Waits of one server's streams for another's use the same connections: rg_peer_link, then records that name the peer by
 * the number of its session.
 */
#ifndef RG_CLIENT_MULTISERVER_PEER_LINK_H
#define RG_CLIENT_MULTISERVER_PEER_LINK_H

#include "client/core/hooks.h"
#include "client/core/session.h"

#include <stdbool.h>

/**
 * Whether the workers of two sessions are connected; the first time it has them connect, which takes a few round trips, and
 * seconds if the one does not reach the other, or not by RDMA. Any thread of the application, no locks held.
 */
bool rg_peer_link(struct rg_session *one, struct rg_session *other);
/** Whether that is so, and the connection goes over RDMA. Any thread. */
bool rg_peer_link_is_rdma(const struct rg_session *one, const struct rg_session *other);
/** A number for what two workers do together, which both are told; in a range of its own among those of transfers. */
uint64_t rg_peer_transfer_number(void);
/** Asks the session's server for what the message says, an RG_PURPOSE_INTRODUCE; `why` is a sentence if that was not done. */
RG_MUST_CHECK enum rg_status rg_peer_introduce(const struct rg_session *session,
                                               const struct rg_control *message, char *why, size_t why_size);
/** Puts into `hello` how the server is known to which `credentials` belong. False: `why` is a sentence. */
bool rg_peer_name_target(struct rg_client_hello *hello, const struct rg_credentials *credentials, char *why,
                         size_t why_size);
/**
 * Lets the two servers move the connection to RDMA, if the user allows RDMA to both: by its credentials, and `run --transport`, by which
 * there is no other way then, either.
 */
void rg_peer_offer_rdma(struct rg_client_hello *hello, const struct rg_credentials *one,
                        const struct rg_credentials *other);
/** Of a worker that has lost its connection to another one. The reader. */
rg_notice_handler rg_peer_link_notice;

#endif
