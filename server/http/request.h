/*
 * request.h - one request by HTTP and what is answered: what the parts of this folder that serve it share.
 *
 * A request is made when its headers have come, and lasts until the answer has gone; one thread at a time has it.
 */
#ifndef RG_SERVER_HTTP_REQUEST_H
#define RG_SERVER_HTTP_REQUEST_H

#include "common/base/limits.h"
#include "server/http/view.h"
#include "transport/tls/tls.h"

#include <jansson.h>
#include <microhttpd.h>

struct rg_http_request {
    struct MHD_Connection *connection;
    const char *url;
    struct rg_tls_server *tls; /* NULL: it is not by TLS */
    bool local;                /* only this machine's processes reach the port */
    uint16_t port;             /* our own */
    size_t body_size;
    bool body_too_large;
    char body[RG_HTTP_BODY_MAX + 1]; /* ends with NUL */
};

/** What is answered. */
struct rg_http_answer {
    unsigned status;
    const char *type;
    char *text; /* from malloc, unless it is a part of this program; NULL: there is no memory */
    size_t size;
    bool is_part;
    const char *allow; /* of 405: which methods there are */
    char cookie[256];  /* Set-Cookie; "": none */
};

/** A line of text. */
void rg_http_say(struct rg_http_answer *answer, unsigned status, const char *text);
/** The value becomes the answer's; NULL: no memory. */
void rg_http_say_json(struct rg_http_answer *answer, unsigned status, json_t *value);
/** The status that tells of what the monitor said. */
unsigned rg_http_status(enum rg_status status);
/** {"error": why}. */
void rg_http_say_error(struct rg_http_answer *answer, unsigned status, const char *why);

#endif
