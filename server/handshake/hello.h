/*
 * hello.h - the worker's part of the handshake: it loads the driver and says hello, or refuses with the
 * reason.
 */
#ifndef RG_SERVER_HANDSHAKE_HELLO_H
#define RG_SERVER_HANDSHAKE_HELLO_H

#include "common/base/status.h"
#include "server/handshake/channels.h"
#include "server/handshake/resume.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_hello {
    const char *driver, *driver_kind; /* path; "nvidia", "soft", "other" */
    uint32_t devices[64];             /* ordinals on the server, in the client's order */
    uint32_t n_devices;
    uint64_t session;
    uint32_t max_sessions;
    bool no_rdma;             /* it stays on the connection that it began on */
    int hello_fd;             /* holds the client's hello */
    uint32_t reconnect_s;     /* how long a client that lost its connection is waited for; 0: not */
    bool reconnect_automatic; /* where it is worth it (resume.h) */
    const char *rails;        /* what is told of addresses (rails.h); NULL: nothing */
    uint32_t keep_alive_s;    /* out: how long the client may be silent; 0: for ever */
    bool times;               /* out: the client asks for times (times.h) */
    bool said;                /* out: it takes RG_NOTICE_SAY */
    bool gpu_paths;           /* out: it wants to know how bulk data gets to the GPUs (proto/gpu_path.h) */
};

/**
 * Loads the driver into rg_driver, unless that was done (prepare.h), and answers. RG_OK: the session can begin, with bulk data
 * as `channels` says, and an end of its connection as `resume` does.
 */
RG_MUST_CHECK enum rg_status rg_hello_answer(struct rg_hello *hello, struct rg_conn **connection,
                                             struct rg_conn **control_conn, struct rg_channels *channels,
                                             struct rg_resume *resume);

#endif
