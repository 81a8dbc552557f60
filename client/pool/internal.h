/* internal.h - a question to a pool and its answer, for the files of this folder. */
#ifndef RG_CLIENT_POOL_INTERNAL_H
#define RG_CLIENT_POOL_INTERNAL_H

#include "client/pool/pool.h"

/**
 * Asks, and hears the answer; the question becomes the function's (NULL: no memory). `wish` (NULL is fine) is told of waiting. The
 * conversation is the caller's to end. NULL: `failure`, and there is no conversation.
 */
json_t *rg_pool_converse(struct rg_pool_talk *talk, const char *server, json_t *question, uint64_t timeout_ns,
                         const struct rg_pool_wish *wish, struct rg_pool_failure *failure);

/** The same of a question with one answer: there is no conversation afterwards. */
json_t *rg_pool_ask(const char *server, json_t *question, uint64_t timeout_ns,
                    struct rg_pool_failure *failure);

/* address.c */
/**
 * Whether an address that the server `asked` has told is one of a server, and not of this machine unless that is `asked`, too.
 */
bool rg_pool_may_lead(const char *asked, const char *address);

#endif
