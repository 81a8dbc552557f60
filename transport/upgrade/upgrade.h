/*
 * upgrade.h - a session begins on TCP and goes on over the best transport that both sides have.
 *
 * The client names in its hello what it could move to. A worker that can too listens there and answers with
 * addresses and a token. The client connects to one of them and shows the token, and then says on the first
 * connection which transport the session goes on with. The first connection stays open behind the new one,
 * without traffic: its end is the session's end (the control connection), so that a peer that vanishes is
 * noticed whatever the new transport notices.
 *
 * Threads: one at a time. Both sides log what they decide.
 */
#ifndef RG_TRANSPORT_UPGRADE_UPGRADE_H
#define RG_TRANSPORT_UPGRADE_UPGRADE_H

#include "proto/control/control.h"
#include "transport/transport.h"

/** What the user asked for (REMOTE_GPU_TRANSPORT). */
enum rg_transport_choice {
    RG_TRANSPORT_AUTO, /* the best that works */
    RG_TRANSPORT_TCP,  /* stay where the session begins */
    RG_TRANSPORT_RDMA, /* nothing but RDMA will do */
};

/** Understands "", "auto", "tcp", "rdma". RG_ERR_INVALID: none of these. */
RG_MUST_CHECK enum rg_status rg_transport_choice_parse(const char *text, enum rg_transport_choice *out);

/** Fills in what this machine could move to, for a client's hello. */
void rg_upgrade_offer(enum rg_transport_choice choice, struct rg_transport_list *out);
/** Whether a hello's transports name one to be upgraded to. */
bool rg_upgrade_is_offered(const struct rg_transport_list *offered);

/* --- the server --- */

struct rg_upgrade;
/**
 * Opens listeners for what the client offered and this machine has, and completes the hello that will be
 * sent. NULL: there is nothing to move to; the session stays where it is.
 */
struct rg_upgrade *rg_upgrade_open(const struct rg_transport_list *offered, struct rg_server_hello *hello);
/**
 * After the hello: waits for the client's choice. If the session moves, *conn becomes the new connection and
 * *control_conn the first. Frees `upgrade`. On failure (the client went, or said something else) *conn is still
 * the caller's.
 */
RG_MUST_CHECK enum rg_status rg_upgrade_finish(struct rg_upgrade *upgrade, struct rg_conn **conn,
                                               struct rg_conn **control_conn);
/** Without a client to serve. NULL is fine. */
void rg_upgrade_abandon(struct rg_upgrade *upgrade);

/* --- the client --- */

/**
 * Whether one of the addresses in a server's hello is reached by an active port of this machine, as far as it knows without
 * sending anything.
 */
bool rg_upgrade_has_port(const struct rg_server_hello *hello);

/**
 * After the server's hello: moves if the server offers it. *conn and *control_conn as above.
 * RG_ERR_UNREACHABLE with the reason in `why`: nothing but RDMA will do and it cannot be had; the session is
 * not to be used.
 */
RG_MUST_CHECK enum rg_status rg_upgrade_follow(enum rg_transport_choice choice,
                                               const struct rg_server_hello *hello, struct rg_conn **conn,
                                               struct rg_conn **control_conn, char *why, size_t why_size);

#endif
