/*
 * json.h - a view as JSON: what /api/v1 answers (openapi.json describes it) and the page shows.
 *
 * Names that peers have chosen are made UTF-8 that can be shown before they become strings, which jansson escapes; the page puts them
 * into text alone. Of programs the name is told, not the command line, and of clients not the address: whoever looks has proved
 * nothing (server/frontend/questions.c tells clients the same). Any thread.
 */
#ifndef RG_SERVER_HTTP_JSON_H
#define RG_SERVER_HTTP_JSON_H

#include "server/http/view.h"

#include <jansson.h>

/** Each NULL: no memory. */
json_t *rg_json_server(const struct rg_view *view);
json_t *rg_json_gpus(const struct rg_view *view);
json_t *rg_json_sessions(const struct rg_view *view);

/**
 * The pool's members, as the pool's agent tells somebody who has no lease in it. RG_ERR_NOT_FOUND: the server is in no pool;
 * RG_ERR_TIMEOUT, RG_ERR_NO_MEMORY, RG_ERR_PROTOCOL.
 */
RG_MUST_CHECK enum rg_status rg_json_pool(const struct rg_view_source *source, json_t **out);

/** Text of a peer's as a string that can be shown; "" for NULL. */
json_t *rg_json_text(const char *text);

#endif
