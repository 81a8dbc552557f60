/*
 * request.h - what remote-gpud suspend, resume, end, drain and page ask of a running server, by a socket in its state folder, which is for the server's
 * user and root alone: one request of fixed size on each connection, and one answer.
 */
#ifndef RG_SERVER_COMMANDS_REQUEST_H
#define RG_SERVER_COMMANDS_REQUEST_H

#include <stdint.h>

#define RG_REQUEST_SOCKET "requests"
#define RG_REQUEST_WHY    256

enum { RG_REQUEST_VERSION = 1 };

enum rg_request_kind {
    RG_REQUEST_SUSPEND = 1,
    RG_REQUEST_HOLD,
    RG_REQUEST_RESUME,
    RG_REQUEST_DRAIN,
    RG_REQUEST_UNDRAIN,
    RG_REQUEST_END,
    RG_REQUEST_PAGE /* `why` is the address, with a secret that works once */
};

struct rg_server_request {
    uint32_t version;
    uint32_t kind;    /* enum rg_request_kind */
    uint64_t session; /* RG_REQUEST_DRAIN: 1: the answer comes when nothing runs any more */
};

struct rg_server_reply {
    uint32_t done;    /* 0: not, and `why` says why */
    uint32_t unknown; /* there is no such session */
    char why[RG_REQUEST_WHY];
};

#endif
