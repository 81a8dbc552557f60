/*
 * server.h - a server of gRPC for the kubelet: calls with one message each way, and one stream of what is published, over unix
 * sockets.
 *
 * One thread (rg_grpc_serve) speaks HTTP/2, by nghttp2, and never waits for a call: each is answered on a thread of its own, of
 * which there are at most RG_KUBE_CALLS_MAX. A call whose client has gone is answered to nobody. A stream is told what was
 * published last, at once and whenever that changes; what came between while its client was slow is left out.
 */
#ifndef RG_PLACES_KUBERNETES_GRPC_SERVER_H
#define RG_PLACES_KUBERNETES_GRPC_SERVER_H

#include "common/base/status.h"
#include "places/kubernetes/grpc/frame.h"

/** What a call is answered. */
struct rg_grpc_answer {
    uint8_t *message; /* by malloc, becomes the server's */
    size_t size;
    char why[256]; /* of a failure */
};

/** One method: "/package.Service/Method". `serve` is called on a thread of its own; NULL: it is the stream. */
struct rg_grpc_method {
    const char *path;
    enum rg_grpc_status (*serve)(void *context, const uint8_t *message, size_t size,
                                 struct rg_grpc_answer *answer);
};

struct rg_grpc_server;

/** `methods` and `context` must remain. NULL: no memory. */
struct rg_grpc_server *rg_grpc_create(const struct rg_grpc_method *methods, size_t n, void *context);
/** Listens on a socket of that path, in the place of one that is there. Before rg_grpc_serve. */
RG_MUST_CHECK enum rg_status rg_grpc_listen(struct rg_grpc_server *server, const char *path, char *why,
                                            size_t why_size);
/** Serves until rg_grpc_stop. */
RG_MUST_CHECK enum rg_status rg_grpc_serve(struct rg_grpc_server *server);
/** Has streams told this message (copied). Any thread. False: no memory. */
RG_MUST_CHECK bool rg_grpc_publish(struct rg_grpc_server *server, const uint8_t *message, size_t size);
/** Ends rg_grpc_serve; any thread, also a signal handler. */
void rg_grpc_stop(struct rg_grpc_server *server);
/** Waits for the calls under way; removes the sockets. */
void rg_grpc_destroy(struct rg_grpc_server *server);

#endif
