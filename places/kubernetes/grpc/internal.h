/*
 * internal.h - what the files of the gRPC server share: server.c (the loop), connection.c (HTTP/2 by nghttp2), call.c (calls, and the
 * threads that answer them), stream.c (calls whose answer has no end).
 *
 * A call belongs to its stream until that closes, and to the thread that answers it until that is done; who lets go of it last frees it.
 * What both look at is under the server's lock: `attached`, `running`, the list of calls that are done.
 */
#ifndef RG_PLACES_KUBERNETES_GRPC_INTERNAL_H
#define RG_PLACES_KUBERNETES_GRPC_INTERNAL_H

#include "common/base/limits.h"
#include "places/kubernetes/grpc/server.h"

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>

#define RG_GRPC_LISTENERS 2

struct rg_grpc_connection {
    struct rg_grpc_server *server;
    int fd;
    nghttp2_session *session;
    struct rg_grpc_call *calls; /* that are attached */
};

struct rg_grpc_call {
    struct rg_grpc_connection *connection; /* where attached */
    int32_t stream;
    const struct rg_grpc_method *method; /* NULL: there is none of that path */
    uint8_t *data;                       /* what has come of the request */
    size_t size;
    bool too_large, is_post, is_grpc;
    enum rg_grpc_status status;
    struct rg_grpc_answer answer;
    uint8_t head[RG_GRPC_FRAME];
    size_t sent;      /* of head and message */
    uint64_t edition; /* of a stream: what is published, as it was sent last; 0: nothing was */
    bool is_idle;     /* a stream with nothing to send */
    char code[8], why[512];
    bool attached, running;
    struct rg_grpc_call *next;    /* in the list of those that are done */
    struct rg_grpc_call *sibling; /* in its connection's list */
};

struct rg_grpc_server {
    const struct rg_grpc_method *methods;
    size_t n_methods;
    void *context;
    int listeners[RG_GRPC_LISTENERS], wake;
    char *paths[RG_GRPC_LISTENERS];
    unsigned n_listeners, n_connections;
    struct rg_grpc_connection *connections[RG_KUBE_CONNECTIONS_MAX];
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned n_running; /* under the lock, as is all that follows */
    struct rg_grpc_call *done;
    uint8_t *published;
    size_t published_size;
    uint64_t edition; /* of it, from 1 on */
};

/* server.c */
/** Makes the loop look at what is done; of any thread. */
void rg_grpc_wake(const struct rg_grpc_server *server);

/* connection.c; the loop's thread */
/** Takes the descriptor over where it succeeds. NULL: no memory. */
struct rg_grpc_connection *rg_grpc_connection_open(struct rg_grpc_server *server, int fd);
/** Lets go of its calls first: deleting a session does not tell of its streams. */
void rg_grpc_connection_close(struct rg_grpc_connection *connection);
/** False: it has ended. */
bool rg_grpc_connection_read(const struct rg_grpc_connection *connection);

/* call.c; the loop's thread */
/** The request is whole: it is answered, or refused. False: the connection is of no further use. */
bool rg_grpc_call_begin(struct rg_grpc_server *server, struct rg_grpc_call *call);
/** The stream has closed, or its connection. */
void rg_grpc_call_detach(struct rg_grpc_server *server, struct rg_grpc_call *call);
/** Submits the answers of the calls that are done. */
void rg_grpc_calls_submit(struct rg_grpc_server *server);
/** As much as fits of a call's head and message; returns how much. */
size_t rg_grpc_call_put(struct rg_grpc_call *call, uint8_t *out, size_t room);
/** Whether head and message are sent. */
bool rg_grpc_call_is_sent(const struct rg_grpc_call *call);

/* stream.c; the loop's thread */
/** Begins the answer that has no end. False: the connection is of no further use. */
bool rg_grpc_stream_begin(struct rg_grpc_call *call);
/** Streams that have not sent what is published go on. */
void rg_grpc_streams_resume(struct rg_grpc_server *server);

#endif
