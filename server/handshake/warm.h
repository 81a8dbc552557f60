/*
 * warm.h - a worker without a client: started, confined, its driver initialised and contexts made, it waits for a session.
 *
 * It belongs to one identity and one choice of devices, as any worker does: it was started with that identity's user, namespaces
 * and folders, and serves one session at most. It has met no client, so it carries nothing of one.
 *
 * Happy path: the monitor starts it with a socket and the shape that it expects (shape.h); the worker says when it is ready, and
 * gets the session by a packet with descriptors (struct rg_warm_adoption). It leaves instead if the monitor closes the socket, if it
 * gets SIGTERM, or if a session on one of its devices runs out of memory (server/shares/warm_places.h): a packet that is in the
 * socket by then is still answered, one that comes later fails where it is sent.
 */
#ifndef RG_SERVER_HANDSHAKE_WARM_H
#define RG_SERVER_HANDSHAKE_WARM_H

#include "server/handshake/hello.h"
#include "server/handshake/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum { RG_WARM_VERSION = 1 };

/** With what status a warm worker leaves that gives its memory to a session. */
enum { RG_WARM_GAVE_WAY = 64 };

/** From the worker: the driver is initialised. */
struct rg_warm_ready {
    uint32_t version;
    uint64_t contexts; /* those that it has made, a bit each */
};

/** Descriptors that come with an adoption; of a connection by TLS the keys are the last. */
enum {
    RG_WARM_CONNECTION,
    RG_WARM_HELLO,
    RG_WARM_HAND,  /* a socket for further connections (handed.h) */
    RG_WARM_SHARE, /* the session's slot; it has the places that the worker had */
    RG_WARM_KEYS,
    RG_WARM_FDS
};

/** To the worker: its session. */
struct rg_warm_adoption {
    uint32_t version;
    uint32_t n_fds;
    uint64_t session;
    uint32_t rdma; /* 1: it may go on over RDMA */
};

/** "START:SIZE:PART:CAPABILITY:CONTEXTS", as the worker's argument. */
enum { RG_WARM_TEXT = 96 };
/** `contexts` is a mask of devices. Parsing takes what formatting writes and nothing behind it; false: `*shape` may be half filled. */
void rg_warm_format(const struct rg_shape *shape, uint64_t contexts, char out[RG_WARM_TEXT]);
RG_MUST_CHECK bool rg_warm_parse(const char *text, struct rg_shape *shape, uint64_t *contexts);

/** What a worker has of its session. */
struct rg_warm_session {
    int fds[RG_WARM_FDS]; /* -1: no keys */
};

/**
 * The worker's: prepares the driver, says so, and waits. RG_OK: there is a session, and `hello` has what belongs to it. RG_ERR_CLOSED:
 * nobody came, and the worker is to leave with *leave_status. Anything else: it was said why.
 */
RG_MUST_CHECK enum rg_status rg_warm_wait(struct rg_hello *hello, const struct rg_shape *shape,
                                          uint64_t contexts, int socket, int signal_fd,
                                          struct rg_warm_session *out, int *leave_status);

#endif
