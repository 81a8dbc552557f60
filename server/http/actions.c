/* actions.c - see actions.h. */
#include "server/http/actions.h"

#include "common/base/cleanup.h"
#include "server/http/json.h"
#include "server/http/reader.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NO_ANSWER "remote-gpud does not answer"
#define ACT_MS    2000 /* that somebody waits for what is to be done; then it goes on without */

/* --- coming and going --------------------------------------------------------------------------------------- */

/* The body's object; NULL: it is none, and the answer says so. No body is an empty one. */
static json_t *read_body(const struct rg_http_request *request, struct rg_http_answer *answer)
{
    json_t *body = request->body_size == 0
                       ? json_object()
                       : json_loadb(request->body, request->body_size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(body))
        return body;
    json_decref(body);
    rg_http_say_error(answer, MHD_HTTP_BAD_REQUEST, "the body has to be an object of JSON, or nothing");
    return NULL;
}

void rg_http_login(const struct rg_paths_source *source, const struct rg_http_request *request,
                   struct rg_http_answer *answer)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer told;
    struct rg_login_grant grant;
    char cookie[RG_HTTP_SECRET_TEXT], guard[RG_HTTP_SECRET_TEXT];
    RG_CLEANUP_FD int file = -1;
    json_t *body = read_body(request, answer);
    if (!body)
        return;
    rg_reader_nobody(request, &question);
    question.kind = RG_ASK_LOGIN;
    const bool good =
        rg_reader_read_secret(json_string_value(json_object_get(body, "token")), question.page.secret);
    json_decref(body);
    if (!good)
        rg_http_say_error(answer, MHD_HTTP_BAD_REQUEST,
                          "the body has to be {\"token\": …}, of a link to the page");
    if (!good || !rg_reader_means_it(request, &question, answer))
        return;
    if (rg_monitor_ask(source->view->link, &question, NULL, 0, ACT_MS, &told, &file) != RG_OK)
        told = (struct rg_monitor_answer){.status = RG_ERR_TIMEOUT, .why = NO_ANSWER};
    if (told.status != RG_OK || file < 0 || pread(file, &grant, sizeof grant, 0) != (ssize_t)sizeof grant) {
        rg_http_say_error(answer, rg_http_status(told.status == RG_OK ? RG_ERR_NO_MEMORY : told.status),
                          told.why);
        return;
    }
    rg_reader_write_secret(grant.cookie, cookie);
    rg_reader_write_secret(grant.guard, guard);
    rg_reader_set_cookie(request, cookie, grant.seconds, answer->cookie, sizeof answer->cookie);
    rg_http_say_json(answer, MHD_HTTP_OK,
                     json_pack("{s:s, s:I}", "guard", guard, "seconds", (json_int_t)grant.seconds));
    explicit_bzero(&grant, sizeof grant);
}

void rg_http_logout(const struct rg_paths_source *source, const struct rg_http_request *request,
                    struct rg_http_answer *answer)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer told;
    if (!rg_reader_read(request, &question, answer) || !rg_reader_means_it(request, &question, answer))
        return;
    question.kind = RG_ASK_LOGOUT;
    if (rg_monitor_ask(source->view->link, &question, NULL, 0, ACT_MS, &told, NULL) != RG_OK) {
        rg_http_say_error(answer, MHD_HTTP_SERVICE_UNAVAILABLE, NO_ANSWER);
        return;
    }
    rg_reader_set_cookie(request, "", 0, answer->cookie, sizeof answer->cookie);
    rg_http_say_json(answer, MHD_HTTP_OK, json_pack("{s:b, s:s}", "done", 1, "what", "you are logged out"));
}

/* --- doing -------------------------------------------------------------------------------------------------- */

void rg_http_act(const struct rg_paths_source *source, const struct rg_http_request *request,
                 enum rg_page_action action, uint64_t session, struct rg_http_answer *answer)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer told;
    json_t *body = read_body(request, answer);
    if (!body)
        return;
    if (action == RG_PAGE_SUSPEND && json_is_true(json_object_get(body, "hold")))
        action = RG_PAGE_HOLD;
    json_decref(body);
    if (!rg_reader_read(request, &question, answer) || !rg_reader_means_it(request, &question, answer))
        return;
    question.kind = RG_ASK_ACT;
    question.page.action = action;
    question.page.session = session;
    const enum rg_status status = rg_monitor_ask(source->view->link, &question, NULL, 0, ACT_MS, &told, NULL);
    if (status == RG_ERR_TIMEOUT)
        rg_http_say_json(answer, MHD_HTTP_ACCEPTED,
                         json_pack("{s:b, s:s}", "done", 0, "what", "is under way, and takes longer"));
    else if (status != RG_OK)
        rg_http_say_error(answer, MHD_HTTP_SERVICE_UNAVAILABLE, NO_ANSWER);
    else if (told.status == RG_OK)
        rg_http_say_json(answer, MHD_HTTP_OK,
                         json_pack("{s:b, s:o}", "done", 1, "what", rg_json_text(told.why)));
    else
        rg_http_say_error(answer,
                          told.status == RG_ERR_TIMEOUT ? MHD_HTTP_CONFLICT : rg_http_status(told.status),
                          told.why);
}
