/*
 * pool.h - what the pool's agent tells of the pool, for one reader, as JSON (openapi.json describes it).
 *
 * The monitor is asked for a socket by which the agent answers, as a client of the pool is answered; what comes by it was written by other
 * servers and their users, and is cleaned as all that is shown. RG_ERR_REFUSED: the reader sees nothing, and `refused` says why;
 * RG_ERR_TIMEOUT: nothing that is understood has come in time; RG_ERR_NO_MEMORY. `reader` is changed by the way. Any thread.
 */
#ifndef RG_SERVER_HTTP_POOL_H
#define RG_SERVER_HTTP_POOL_H

#include "server/http/view.h"

#include <jansson.h>

/** The pool's servers, and its requests that the reader may see. */
RG_MUST_CHECK enum rg_status rg_json_pool(const struct rg_view_source *source,
                                          struct rg_monitor_question *reader, json_t **out, char *refused,
                                          size_t refused_size);
/** What was measured between machines and servers: by the reader, for operators by all. */
RG_MUST_CHECK enum rg_status rg_json_links(const struct rg_view_source *source,
                                           struct rg_monitor_question *reader, json_t **out, char *refused,
                                           size_t refused_size);

#endif
