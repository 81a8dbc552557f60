/* server.c - the gRPC server's loop over listeners and connections: see server.h and internal.h. */
#include "places/kubernetes/grpc/internal.h"

#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void rg_grpc_wake(const struct rg_grpc_server *server)
{
    const uint64_t one = 1;
    if (write(server->wake, &one, sizeof one) < 0) {
        /* it is full: the loop wakes up anyway */
    }
}

/* --- connections ------------------------------------------------------------------------------------------------- */

static void accept_one(struct rg_grpc_server *server, int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct rg_grpc_connection *connection = fd >= 0 && server->n_connections < RG_KUBE_CONNECTIONS_MAX
                                                ? rg_grpc_connection_open(server, fd)
                                                : NULL;
    if (connection)
        server->connections[server->n_connections++] = connection;
    else if (fd >= 0)
        close(fd);
}

static void close_connection(struct rg_grpc_server *server, unsigned i)
{
    rg_grpc_connection_close(server->connections[i]);
    server->connections[i] = server->connections[--server->n_connections];
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

static unsigned what_to_poll(const struct rg_grpc_server *server, struct pollfd *polled)
{
    unsigned n = 0;
    polled[n++] = (struct pollfd){.fd = server->wake, .events = POLLIN};
    for (unsigned i = 0; i < server->n_listeners; i++)
        polled[n++] = (struct pollfd){.fd = server->listeners[i], .events = POLLIN};
    for (unsigned i = 0; i < server->n_connections; i++) {
        const bool writes = nghttp2_session_want_write(server->connections[i]->session);
        polled[n++] = (struct pollfd){.fd = server->connections[i]->fd,
                                      .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
    }
    return n;
}

static void serve_connections(struct rg_grpc_server *server, const struct pollfd *polled)
{
    for (unsigned i = server->n_connections; i-- > 0;) {
        const struct rg_grpc_connection *connection = server->connections[i];
        nghttp2_session *session = connection->session;
        bool good =
            !(polled[i].revents & (POLLIN | POLLHUP | POLLERR)) || rg_grpc_connection_read(connection);
        good = good && nghttp2_session_send(session) == 0 &&
               (nghttp2_session_want_read(session) || nghttp2_session_want_write(session));
        if (!good)
            close_connection(server, i);
    }
}

enum rg_status rg_grpc_serve(struct rg_grpc_server *server)
{
    struct pollfd polled[1 + RG_GRPC_LISTENERS + RG_KUBE_CONNECTIONS_MAX];
    while (!atomic_load(&server->stopping)) {
        const unsigned n = what_to_poll(server, polled), first = 1 + server->n_listeners;
        uint64_t count;
        if (poll(polled, n, -1) < 0) {
            if (errno == EINTR)
                continue;
            rg_error("cannot wait for the kubelet: %s", strerror(errno));
            return RG_ERR_IO;
        }
        if (polled[0].revents && read(server->wake, &count, sizeof count) < 0)
            continue;
        rg_grpc_calls_submit(server);
        rg_grpc_streams_resume(server);
        serve_connections(server, polled + first);
        for (unsigned i = 0; i < server->n_listeners; i++)
            if (polled[1 + i].revents)
                accept_one(server, server->listeners[i]);
    }
    return RG_OK;
}

/* --- the server -------------------------------------------------------------------------------------------------------- */

struct rg_grpc_server *rg_grpc_create(const struct rg_grpc_method *methods, size_t n, void *context)
{
    struct rg_grpc_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->methods = methods;
    server->n_methods = n;
    server->context = context;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->idle, NULL);
    if (server->wake >= 0)
        return server;
    rg_grpc_destroy(server);
    return NULL;
}

enum rg_status rg_grpc_listen(struct rg_grpc_server *server, const char *path, char *why, size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (server->n_listeners == RG_GRPC_LISTENERS || strlen(path) >= sizeof address.sun_path)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s: a socket's path has at most %zu bytes", path,
                         sizeof address.sun_path - 1);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    (void)unlink(path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0177);
    const bool good =
        fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0;
    const int error = errno;
    umask(mask);
    char *copy = good ? strdup(path) : NULL;
    if (!copy) {
        if (fd >= 0)
            close(fd);
        return RG_FAILED(RG_ERR_IO, why, why_size, "cannot listen on %s: %s", path,
                         strerror(good ? ENOMEM : error));
    }
    server->paths[server->n_listeners] = copy;
    server->listeners[server->n_listeners++] = fd;
    return RG_OK;
}

void rg_grpc_stop(struct rg_grpc_server *server)
{
    atomic_store(&server->stopping, true);
    rg_grpc_wake(server);
}

void rg_grpc_destroy(struct rg_grpc_server *server)
{
    if (!server)
        return;
    for (unsigned i = 0; i < server->n_listeners; i++) {
        (void)unlink(server->paths[i]);
        free(server->paths[i]);
        close(server->listeners[i]);
    }
    while (server->n_connections)
        close_connection(server, 0);
    pthread_mutex_lock(&server->lock);
    while (server->n_running)
        pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
    if (server->wake >= 0)
        close(server->wake);
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    free(server->published);
    free(server);
}
