/*
 * pool.h - asking a server something of the pool that it is in. A question and its answers are JSON texts (docs/pool.md); the
 * server closes behind the last one, except where the client holds what it was given by staying connected. One thread each.
 */
#ifndef RG_CLIENT_QUERY_POOL_H
#define RG_CLIENT_QUERY_POOL_H

#include "proto/control/control.h"

struct rg_conn;

/** A conversation; zeroed where there is none. */
struct rg_pool_talk {
    struct rg_conn *conn;
    struct rg_control message; /* the last answer */
};

/** Connects and asks. `why` is a sentence for the user. */
RG_MUST_CHECK enum rg_status rg_pool_talk_begin(struct rg_pool_talk *talk, const char *server,
                                                const char *question, uint64_t timeout_ns, char *why,
                                                size_t why_size);
/**
 * Waits for the next answer (negative: for ever), which is `size` bytes at *text until the next call. RG_ERR_TIMEOUT: there is none
 * yet. RG_ERR_REFUSED: the server refused, and `why` is a sentence. Else the server has closed or gone.
 */
RG_MUST_CHECK enum rg_status rg_pool_talk_next(struct rg_pool_talk *talk, int timeout_ms, const char **text,
                                               size_t *size, char *why, size_t why_size);
void rg_pool_talk_end(struct rg_pool_talk *talk);

#endif
