/*
 * netperf.c - program lib/remote-gpu/netperf: answers one client's measurements, started by remote-gpud.
 *
 *   netperf --fd N --hello-fd N --session ID [--tls-fd N] [--rdma 0] [--rails LIST] [--sandbox POLICY]
 *
 * It says hello as a worker does, moves to the transport that the client chooses, and then is an echo, a sink
 * and a source (proto/netperf.h), over the same connections and with the same kind of registered memory as a
 * session's. It loads no driver and ends by itself: when the client leaves, after RG_NETPERF_SECONDS, or
 * after RG_NETPERF_BYTES. One thread.
 */
#include "proto/netperf.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/handshake/handed.h"
#include "server/handshake/rails.h"
#include "server/perf/perftest.h"
#include "server/sandbox/sandbox.h"
#include "transport/control.h"
#include "transport/memory.h"
#include "transport/state.h"
#include "transport/upgrade/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IDLE_MS = 10000, ADVERTISED_PIECE = 512 << 10, BULK_MOST = RG_BULK_MAX * (1 + RG_MULTIRAIL_MAX) };

struct service {
    struct rg_conn *conn;
    bool moved, reading_ahead;
    bool no_rdma;   /* the operator allows none: nor programs that go by it */
    uint64_t bytes; /* so far, both directions */
    unsigned char *message, *bulk;
    size_t bulk_size; /* in use: the largest message, and as much again for each rail */
    pid_t perftest;   /* our end of one of its programs; 0: none */
};

static void out_of_time(int signal)
{
    (void)signal;
    _exit(0);
}

static enum rg_status read_hello(int fd, struct rg_control *out)
{
    static unsigned char data[RG_NETPERF_HELLO_MAX];
    size_t size = 0;
    ssize_t got;
    while (size < sizeof data && (got = read(fd, data + size, sizeof data - size)) > 0)
        size += (size_t)got;
    enum rg_status status = rg_control_unpack(data, size, out);
    if (status == RG_OK && out->kind != RG_CONTROL_CLIENT_HELLO) {
        rg_control_fini(out);
        status = RG_ERR_PROTOCOL;
    }
    return status;
}

struct arguments {
    int fd, hello_fd, tls_fd;
    bool no_rdma;
    uint64_t session;
    const char *rails;   /* as server/handshake/rails.h has it; NULL: none */
    const char *sandbox; /* NULL: none */
};

static enum rg_status say_hello(struct service *service, const struct arguments *arguments)
{
    static struct rg_control client, answer;
    struct rg_conn *control_conn = NULL; /* stays open until the process ends */
    RG_TRY(read_hello(arguments->hello_fd, &client));
    rg_server_hello_init(&answer);
    answer.server_hello.limits = (struct rg_limits_info){RG_MESSAGE_MAX, RG_BULK_MAX, 1};
    answer.server_hello.session = arguments->session;
    (void)rg_rails_tell(arguments->rails, service->conn, &answer.server_hello);
    struct rg_upgrade *upgrade =
        arguments->no_rdma ? NULL : rg_upgrade_open(&client.client_hello.transports, &answer.server_hello);
    rg_control_fini(&client);
    enum rg_status status = rg_control_send(service->conn, &answer);
    if (status == RG_OK && upgrade)
        status = rg_upgrade_finish(upgrade, &service->conn, &control_conn);
    else
        rg_upgrade_abandon(upgrade);
    service->moved = control_conn != NULL;
    return status;
}

static bool spend(struct service *service, uint64_t bytes)
{
    service->bytes += bytes;
    return service->bytes <= RG_NETPERF_BYTES;
}

/* All of `size` bytes to or from the socket, which does not block by itself. */
static bool raw_all(int fd, unsigned char *data, size_t size, bool sending)
{
    while (size > 0) {
        ssize_t n = sending ? send(fd, data, size, MSG_NOSIGNAL) : recv(fd, data, size, 0);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd wait = {.fd = fd, .events = sending ? POLLOUT : POLLIN};
            if (poll(&wait, 1, IDLE_MS) == 0)
                return false;
        } else {
            return false;
        }
    }
    return true;
}

static enum rg_status serve_raw(struct service *service, const struct rg_netperf_request *request)
{
    int fd = rg_conn_fd(service->conn);
    struct rg_conn_security security;
    rg_conn_security(service->conn, &security);
    if (security.encrypted) /* nothing goes over its socket but TLS */
        return RG_ERR_PROTOCOL;
    if (service->moved || service->reading_ahead || fd < 0 || request->raw_rounds > RG_NETPERF_REPLIES_MAX ||
        request->raw_receive > RG_NETPERF_RAW_MAX || request->raw_send > RG_NETPERF_RAW_MAX)
        return RG_ERR_PROTOCOL;
    for (uint32_t i = 0; i < request->raw_rounds; i++)
        if (!spend(service, (uint64_t)request->raw_receive + request->raw_send) ||
            !raw_all(fd, service->bulk, request->raw_receive, false) ||
            !raw_all(fd, service->bulk, request->raw_send, true))
            return RG_ERR_CLOSED;
    return request->raw_send || raw_all(fd, service->bulk, 1, true) ? RG_OK : RG_ERR_CLOSED;
}

/* Advertises the memory that bulk data is received into, in pieces, as a worker does. */
static void advertise_all(struct service *service)
{
    for (size_t offset = 0; offset < service->bulk_size; offset += ADVERTISED_PIECE)
        (void)rg_conn_advertise(service->conn, 0, 0, service->bulk + offset,
                                ADVERTISED_PIECE); /* where that helps */
}

static enum rg_status take_bulk(struct service *service, size_t left)
{
    while (left > 0) {
        void *memory;
        size_t size;
        RG_TRY(rg_conn_take_advertised(service->conn, left, &memory, &size));
        if (size == 0)
            return rg_conn_recv_bulk(service->conn, service->bulk, left);
        (void)rg_conn_advertise(service->conn, 0, 0, memory, ADVERTISED_PIECE);
        left -= size;
    }
    return RG_OK;
}

static enum rg_status serve_framed(struct service *service, const struct rg_netperf_request *request,
                                   size_t bulk)
{
    if (!service->reading_ahead) {
        rg_conn_set_read_ahead(service->conn);
        service->reading_ahead = true;
    }
    if (request->replies > RG_NETPERF_REPLIES_MAX || request->reply_size < sizeof(struct rg_message_header) ||
        request->reply_size > RG_MESSAGE_MAX || request->reply_bulk > RG_BULK_MAX)
        return RG_ERR_LIMIT;
    const uint32_t replies = request->replies, reply_size = request->reply_size,
                   reply_bulk = request->reply_bulk;
    enum rg_status status = take_bulk(service, bulk);
    for (uint32_t i = 0; i < replies && status == RG_OK; i++) {
        struct iovec message = {.iov_base = service->message, .iov_len = reply_size};
        struct iovec data = {.iov_base = service->bulk, .iov_len = reply_bulk};
        status = spend(service, (uint64_t)reply_size + reply_bulk)
                     ? rg_conn_send(service->conn, &(struct rg_send){.msg = &message,
                                                                     .n_msg = 1,
                                                                     .bulk = &data,
                                                                     .n_bulk = reply_bulk ? 1 : 0,
                                                                     .tag = RG_NETPERF_TAG})
                     : RG_ERR_LIMIT;
    }
    return status;
}

static enum rg_status serve_perftest(struct service *service, const struct rg_message *message)
{
    struct rg_netperf_perftest request;
    struct rg_netperf_started started;
    if (message->size != sizeof request || message->bulk_size)
        return RG_ERR_PROTOCOL;
    memcpy(&request, message->data, sizeof request);
    started = (struct rg_netperf_started){
        .header = {.kind = RG_MESSAGE_PERFTEST, .version = RG_PROTOCOL_MAJOR, .count = 1}, .error = EPERM};
    enum rg_status status =
        service->no_rdma ? RG_OK : rg_perftest_start(&service->perftest, &request, &started);
    struct iovec answer = {.iov_base = &started, .iov_len = sizeof started};
    return status == RG_OK ? rg_conn_send(service->conn, &(struct rg_send){.msg = &answer, .n_msg = 1})
                           : status;
}

static enum rg_status serve(struct service *service)
{
    for (;;) {
        struct rg_message message;
        struct rg_netperf_request request;
        enum rg_status status =
            rg_conn_recv(service->conn, service->perftest ? RG_NETPERF_SECONDS * 1000 : IDLE_MS, &message);
        if (status != RG_OK)
            return status == RG_ERR_CLOSED ? RG_OK : status;
        struct rg_message_header header = {0};
        if (message.size >= sizeof header)
            memcpy(&header, message.data, sizeof header);
        if (header.kind == RG_MESSAGE_PERFTEST) {
            status = serve_perftest(service, &message);
            if (status != RG_OK)
                return status == RG_ERR_CLOSED ? RG_OK : status;
            continue;
        }
        if (message.size < sizeof request || !spend(service, message.size + message.bulk_size))
            return RG_ERR_PROTOCOL;
        memcpy(&request, message.data, sizeof request);
        if (request.header.kind != RG_MESSAGE_NETPERF || (request.raw_rounds && message.bulk_size))
            return RG_ERR_PROTOCOL;
        status = request.raw_rounds ? serve_raw(service, &request)
                                    : serve_framed(service, &request, message.bulk_size);
        if (status != RG_OK)
            return status == RG_ERR_CLOSED ? RG_OK : status;
    }
}

static bool parse(int argc, char **argv, struct arguments *out)
{
    *out = (struct arguments){.fd = -1, .hello_fd = -1, .tls_fd = -1};
    for (int i = 1; i + 1 < argc; i += 2) {
        char *end;
        if (strcmp(argv[i], "--sandbox") == 0) {
            out->sandbox = argv[i + 1];
            continue;
        }
        if (strcmp(argv[i], "--rails") == 0) {
            out->rails = argv[i + 1];
            continue;
        }
        errno = 0;
        unsigned long long n = strtoull(argv[i + 1], &end, 10);
        if (*end || errno || argv[i + 1][0] < '0' || argv[i + 1][0] > '9')
            return false;
        if (strcmp(argv[i], "--fd") == 0 && n < 65536)
            out->fd = (int)n;
        else if (strcmp(argv[i], "--hello-fd") == 0 && n < 65536)
            out->hello_fd = (int)n;
        else if (strcmp(argv[i], "--tls-fd") == 0 && n < 65536)
            out->tls_fd = (int)n;
        else if (strcmp(argv[i], "--rdma") == 0)
            out->no_rdma = n == 0;
        else if (strcmp(argv[i], "--session") == 0)
            out->session = n;
        else
            return false;
    }
    return argc % 2 == 1 && out->fd >= 0 && out->hello_fd >= 0;
}

int main(int argc, char **argv)
{
    struct service service = {0};
    struct arguments arguments;
    rg_log_name("remote-gpud");
    if (!parse(argc, argv, &arguments)) {
        rg_error("netperf is a part of remote-gpud and is started by it");
        return 125;
    }
    static struct rg_sandbox_policy policy;
    if (!rg_sandbox_begin(arguments.sandbox, &policy))
        return 1;
    const uint64_t session = arguments.session;
    service.no_rdma = arguments.no_rdma;
    (void)fcntl(arguments.fd, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* of the daemon's terminal; it says what to do by SIGTERM */
    signal(SIGHUP, SIG_IGN);
    signal(SIGALRM, out_of_time);
    alarm(RG_NETPERF_SECONDS);
    service.message = calloc(1, RG_MESSAGE_MAX);
    /* Memory as the worker's staging buffers: whole pages of its own, registered once. */
    service.bulk = mmap(NULL, BULK_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!service.message || service.bulk == MAP_FAILED) {
        rg_error("session %llu: no memory for it", (unsigned long long)session);
        return 1;
    }
    memset(service.bulk, 0, RG_BULK_MAX); /* the pages are there when time is taken */
    struct rg_message_header header = {.kind = RG_MESSAGE_NETPERF, .version = RG_PROTOCOL_MAJOR, .count = 1};
    memcpy(service.message, &header, sizeof header);
    enum rg_status status = rg_handed_adopt(arguments.fd, arguments.tls_fd, &service.conn);
    if (status == RG_OK)
        status = say_hello(&service, &arguments);
    if (status == RG_OK) {
        service.bulk_size = RG_BULK_MAX * (1 + (size_t)rg_conn_rails(service.conn));
        status = rg_conn_register(service.conn, service.bulk, service.bulk_size);
        if (status != RG_OK && status != RG_ERR_UNSUPPORTED)
            rg_info("session %llu: its memory cannot be registered: %s", (unsigned long long)session,
                    rg_status_string(status));
        advertise_all(&service);
        status = serve(&service);
    }
    if (status != RG_OK)
        rg_info("session %llu: the measurement ended early: %s", (unsigned long long)session,
                rg_status_string(status));
    rg_perftest_stop(&service.perftest);
    rg_conn_destroy(service.conn);
    free(service.message);
    return 0;
}
