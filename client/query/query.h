/*
 * query.h - asking a server what it has, without a session: for the command and for the client core.
 */
#ifndef RG_CLIENT_QUERY_QUERY_H
#define RG_CLIENT_QUERY_QUERY_H

#include "common/base/uuid_text.h"
#include "proto/control/control.h"

/* Where nobody named a server and none was joined: this machine. */
#define RG_DEFAULT_SERVER "127.0.0.1"

/**
 * Connects to `server`, asks (RG_PURPOSE_INVENTORY or RG_PURPOSE_STATUS), and closes. On RG_OK `out` holds an
 * inventory, to be released by rg_control_fini; else `why` is a sentence for the user, with what to do.
 */
RG_MUST_CHECK enum rg_status rg_query(const char *server, enum rg_purpose purpose, uint64_t timeout_ns,
                                      struct rg_control *out, char *why, size_t why_size);

/**
 * Asks the server's management library one question (proto/management/management.h): `out` is an answer, to
 * be released by rg_control_fini. RG_ERR_REFUSED: a server that does not answer questions; else as above.
 */
RG_MUST_CHECK enum rg_status rg_query_management(const char *server, const void *question, size_t size,
                                                 uint64_t timeout_ns, struct rg_control *out, char *why,
                                                 size_t why_size);

/**
 * Asks for usage or quotas (RG_PURPOSE_USAGE, RG_PURPOSE_QUOTA): `out` is an answer of proto/accounts/usage.h, as above.
 */
RG_MUST_CHECK enum rg_status rg_query_accounts(const char *server, enum rg_purpose purpose,
                                               const void *question, size_t size, uint64_t timeout_ns,
                                               struct rg_control *out, char *why, size_t why_size);

#endif
