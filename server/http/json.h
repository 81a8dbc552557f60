/*
 * json.h - a view as JSON: what /api/v1 answers (openapi.json describes it) and the page shows.
 *
 * Names that peers have chosen are made UTF-8 that can be shown before they become strings, which jansson escapes; the page puts them
 * into text alone. Of programs the name is told, not the command line, and addresses of clients to operators and of one's own sessions
 * alone (server/frontend/questions.c tells clients the same). Any thread.
 */
#ifndef RG_SERVER_HTTP_JSON_H
#define RG_SERVER_HTTP_JSON_H

#include "server/http/view.h"

#include <jansson.h>

/** Each NULL: no memory. */
json_t *rg_json_server(const struct rg_view *view);
json_t *rg_json_reader(const struct rg_view *view);
json_t *rg_json_gpus(const struct rg_view *view);
json_t *rg_json_sessions(const struct rg_view *view);

/** Text of a peer's as a string that can be shown; "" for NULL. */
json_t *rg_json_text(const char *text);

#endif
