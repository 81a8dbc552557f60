/*
 * paths.h - which paths there are, by which methods, and what each answers.
 *
 * GET (and HEAD) shows, POST changes something. A path that is not listed is not found, a method that a path has not is refused. Any thread.
 */
#ifndef RG_SERVER_HTTP_PATHS_H
#define RG_SERVER_HTTP_PATHS_H

#include "server/http/request.h"

/** What there is to be answered from. */
struct rg_paths_source {
    const struct rg_view_source *view;
    const char *pool; /* that the server is in; "": none */
};

/** Whether a request of this path and method may have a body. */
bool rg_paths_take_body(const char *url, const char *method);
/** Fills in the answer. */
void rg_paths_answer(const struct rg_paths_source *source, const struct rg_http_request *request,
                     const char *method, struct rg_http_answer *answer);

#endif
