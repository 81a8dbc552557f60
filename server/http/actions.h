/*
 * actions.h - what requests change: who is logged in, a session, the server. Any thread.
 *
 * The monitor is asked, which decides; what came of it is the answer.
 */
#ifndef RG_SERVER_HTTP_ACTIONS_H
#define RG_SERVER_HTTP_ACTIONS_H

#include "server/http/paths.h"

/** A link's token for a cookie. */
void rg_http_login(const struct rg_paths_source *source, const struct rg_http_request *request,
                   struct rg_http_answer *answer);
void rg_http_logout(const struct rg_paths_source *source, const struct rg_http_request *request,
                    struct rg_http_answer *answer);
/** `session`: 0 where the action is the server's. */
void rg_http_act(const struct rg_paths_source *source, const struct rg_http_request *request,
                 enum rg_page_action action, uint64_t session, struct rg_http_answer *answer);

#endif
