/*
 * registry.h - which transports and filters there are. Internal to transport/connect/.
 */
#ifndef RG_TRANSPORT_CONNECT_REGISTRY_H
#define RG_TRANSPORT_CONNECT_REGISTRY_H

#include "transport/operations.h"

/** The transport of that name, which is loaded if need be; NULL with the reason in `why`. Any thread. */
const struct rg_transport_ops *rg_transport_find(const char *name, char *why, size_t why_size);
/** The filter of that name; NULL: there is none. Any thread. */
const struct rg_filter *rg_filter_find(const char *name, size_t length);

/** Parses and checks `text`; NULL or "" is an empty chain. RG_ERR_INVALID with the reason in `why`. */
RG_MUST_CHECK enum rg_status rg_filter_chain_parse(const char *text, struct rg_filter_chain *out, char *why,
                                                   size_t why_size);
/** Wraps *conn into the chain, replacing it. On failure the connection is destroyed and *conn is NULL. */
RG_MUST_CHECK enum rg_status rg_filter_chain_apply(const struct rg_filter_chain *chain,
                                                   struct rg_conn **conn);

#endif
