/* answers.c - what requests are answered with. See request.h. */
#include "server/http/json.h"
#include "server/http/request.h"

#include <stdlib.h>
#include <string.h>

#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json"

void rg_http_say(struct rg_http_answer *answer, unsigned status, const char *text)
{
    *answer = (struct rg_http_answer){
        .status = status, .type = TEXT, .text = strdup(text), .size = strlen(text), .allow = answer->allow};
}

void rg_http_say_json(struct rg_http_answer *answer, unsigned status, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    answer->status = status;
    answer->type = JSON;
    answer->text = text;
    answer->size = text ? strlen(text) : 0;
}

void rg_http_say_error(struct rg_http_answer *answer, unsigned status, const char *why)
{
    rg_http_say_json(answer, status, json_pack("{s:o}", "error", rg_json_text(why)));
}

/* Of a question that the monitor has not answered as it was to. */
unsigned rg_http_status(enum rg_status status)
{
    switch (status) {
    case RG_OK:
        return MHD_HTTP_OK;
    case RG_ERR_REFUSED:
        return MHD_HTTP_UNAUTHORIZED;
    case RG_ERR_UNSUPPORTED:
        return MHD_HTTP_FORBIDDEN;
    case RG_ERR_NOT_FOUND:
        return MHD_HTTP_NOT_FOUND;
    default:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}
