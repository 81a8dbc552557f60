/*
 * connect.h - how this user's programs connect to a server: with the credentials that belong to it.
 *
 * Everything of the client that makes a connection to a server comes through here, so that none goes out in the clear
 * by mistake. Any thread.
 */
#ifndef RG_CLIENT_CREDENTIALS_CONNECT_H
#define RG_CLIENT_CREDENTIALS_CONNECT_H

#include "client/credentials/credentials.h"
#include "proto/control/control.h"

/**
 * Finds the credentials for `server` (kept in *credentials), renews them if they are due, and connects; `options`
 * without TLS, NULL as for rg_transport_connect. RG_ERR_REFUSED: the credentials are not as they should be, there are
 * none, or the server is not who it should be; RG_ERR_INVALID, RG_ERR_UNREACHABLE: as rg_transport_connect. `why` is
 * what that would say, or a sentence.
 */
RG_MUST_CHECK enum rg_status rg_client_connect(const char *server, const struct rg_transport_options *options,
                                               struct rg_credentials *credentials, char *why, size_t why_size,
                                               struct rg_conn **out);
/** A further connection to the server that `credentials` were found for. */
RG_MUST_CHECK enum rg_status rg_client_connect_again(const char *server,
                                                     const struct rg_transport_options *options,
                                                     const struct rg_credentials *credentials, char *why,
                                                     size_t why_size, struct rg_conn **out);
/**
 * Has the server at `address` do what `hello` says, by a connection of its own. RG_OK: it has answered that it is done
 * (RG_CONTROL_ANSWER). Else `why` is a sentence, in which the server is called `name`.
 */
RG_MUST_CHECK enum rg_status rg_client_ask(const char *address, const char *name,
                                           const struct rg_credentials *credentials,
                                           const struct rg_control *hello, int timeout_ms, char *why,
                                           size_t why_size);

#endif
