/*
 * chunk.h - how much of a large copy one message carries (common/sync/chunk_size.h): the calls of other
 * threads stand behind no more than one of them, on the wire and where the worker takes them in.
 */
#ifndef RG_CLIENT_TRANSFER_CHUNK_H
#define RG_CLIENT_TRANSFER_CHUNK_H

#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "common/sync/chunk_size.h"

/** Bytes of bulk data that the next message to `session` should carry at most. */
static inline size_t rg_chunk(const struct rg_session *session)
{
    return rg_optimise[RG_OPT_CHUNKS] ? rg_conn_piece(session->conn, rg_chunk_size_get(&session->chunk))
                                      : RG_BULK_MAX;
}

#endif
