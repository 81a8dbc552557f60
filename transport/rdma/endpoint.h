/*
 * endpoint.h - what connecting (connect.c) and listening (listen.c) have in common: a connection on its way.
 */
#ifndef RG_TRANSPORT_RDMA_ENDPOINT_H
#define RG_TRANSPORT_RDMA_ENDPOINT_H

#include "transport/rdma/internal.h"

#include <netdb.h>

/** Whether `word` is one of those of REMOTE_GPU_RDMA (two-sided, polled, ask); says once what is none. */
bool rg_rdma_restricted(const char *word);
/** An id for connections, whose events go to `events`. RG_ERR_UNREACHABLE with the reason in `why`. */
enum rg_status rg_rdma_make_id(struct rdma_event_channel *events, struct rdma_cm_id **out, char *why,
                               size_t why_size);
/**
 * A connection without an id and without resources; NULL: errno says why. rg_rdma_conn_free takes it apart.
 */
struct rg_rdma_conn *rg_rdma_conn_create(enum rg_wait_mode wait, bool two_sided);
/** Has a connection on its way fail soon with RG_ERR_CLOSED; from any thread. */
void rg_rdma_conn_call_off(struct rg_rdma_conn *c);
/** How long and how often what is sent is tried again, before a connection counts as lost. */
void rg_rdma_set_patience(struct rdma_cm_id *id);
/** Protection domain, queues, buffers and queue pair for c->id, with all receives posted. */
enum rg_status rg_rdma_make_resources(struct rg_rdma_conn *c, char *why, size_t why_size);
/** What this end says of itself; `token` (RG_TRANSPORT_TOKEN bytes): NULL for none. */
struct rg_rdma_private rg_rdma_make_private(const struct rg_rdma_conn *c, const uint8_t *token);
/** For rdma_connect and rdma_accept; points to `private`. */
struct rdma_conn_param rg_rdma_parameters(const struct rg_rdma_private *private);
/** Whether the other end speaks this protocol in this version. */
bool rg_rdma_is_ours(const struct rg_rdma_private *private);
/**
 * Waits for the connection manager's next event, which must be of one type; *private, if not NULL, gets its
 * private data. RG_ERR_UNREACHABLE with the reason in `why`; RG_ERR_CLOSED: called off.
 */
enum rg_status rg_rdma_expect_event(struct rg_rdma_conn *c, enum rdma_cm_event_type type, int timeout_ms,
                                    struct rg_rdma_private *private, char *why, size_t why_size);
/** The private data of an event; zeros if there is none, or not as much. */
struct rg_rdma_private rg_rdma_private_of(const struct rdma_cm_event *event);
/** Once established: the self-test, and what the connection is called. */
enum rg_status rg_rdma_complete(struct rg_rdma_conn *c, char *why, size_t why_size);

/** RG_ERR_UNREACHABLE, with the reason in `why`: `what` cannot be had, `error` (errno) says why. */
enum rg_status rg_rdma_no_resource(const char *what, int error, char *why, size_t why_size);
/** The addresses of a name, for freeaddrinfo; `passive`: to listen at. RG_ERR_UNREACHABLE with the reason in `why`. */
enum rg_status rg_rdma_resolve_name(const struct rg_address *address, bool passive, struct addrinfo **out,
                                    char *why, size_t why_size);
/** HOST:PORT. */
void rg_rdma_name(const struct sockaddr *address, char *out, size_t size);
void rg_rdma_set_nonblocking(int fd);

#endif
