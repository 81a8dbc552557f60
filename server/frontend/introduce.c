/* introduce.c - see introduce.h. */
#include "server/frontend/introduce.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "proto/peer.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/tls/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct introduction {
    struct rg_frontend *frontend;
    struct rg_monitor_question *question;
    const struct rg_client_hello *hello;
    uint64_t deadline_ns;
    struct rg_control *refusal;
};

static int left_ms(const struct introduction *at)
{
    const uint64_t now = rg_now_ns();
    return now < at->deadline_ns ? (int)((at->deadline_ns - now) / 1000000u) + 1 : 0;
}

/* The server tried to reach the other one, and this became of it. */
static enum rg_status fail(const struct introduction *at, const char *why)
{
    const char *address = at->hello->target_address;
    if (address[0])
        return rg_refusal_init(at->refusal, RG_REFUSAL_UNSUPPORTED, "the server could not connect to %s: %s",
                               address, why);
    return rg_refusal_init(at->refusal, RG_REFUSAL_UNSUPPORTED,
                           "the server could not connect two of its sessions: %s", why);
}

static bool parse(const struct rg_client_hello *hello, struct rg_monitor_connect *out)
{
    struct rg_address address;
    memset(out, 0, sizeof *out);
    if (rg_address_parse(hello->target_address, &address, NULL, 0) != RG_OK ||
        strcmp(address.scheme, "tcp") != 0)
        return false;
    out->session = hello->peer_session;
    out->port = address.port;
    out->is_ipv6 = strchr(address.host, ':') != NULL;
    return address.port && inet_pton(out->is_ipv6 ? AF_INET6 : AF_INET, address.host, out->address) == 1;
}

/* A connected socket, from the monitor. */
static enum rg_status open_socket(const struct introduction *at, int client, int *out)
{
    struct rg_monitor_answer answer;
    struct rg_monitor_question *question = at->question;
    int error = 0;
    socklen_t size = sizeof error;
    question->kind = RG_ASK_CONNECT;
    if (!parse(at->hello, &question->connect))
        return fail(at, "that is no numeric address of TCP");
    if (rg_monitor_ask(&at->frontend->link, question, &client, 1, left_ms(at), &answer, out) != RG_OK)
        return fail(at, "the server is busy");
    if (answer.status != RG_OK || *out < 0)
        return fail(at, answer.why);
    struct pollfd wait = {.fd = *out, .events = POLLOUT};
    if (poll(&wait, 1, left_ms(at)) <= 0)
        return fail(at, "nothing answers there");
    if (getsockopt(*out, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)
        return fail(at, strerror(error ? error : errno));
    const int flags = fcntl(*out, F_GETFL);
    if (flags < 0 || fcntl(*out, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return fail(at, strerror(errno));
    return RG_OK;
}

/* Encrypted exactly where the client's own connection is. Takes the socket over. */
static enum rg_status secure(const struct introduction *at, int fd, struct rg_conn **out)
{
    const struct rg_client_hello *hello = at->hello;
    const struct rg_tls_client tls = {.ca_hash = hello->target_authority, .server_name = hello->target_name};
    struct rg_tls_session session;
    char why[512] = "";
    const bool encrypted = at->question->peer.encrypted;
    if (encrypted != hello->has_target_authority) {
        close(fd);
        return fail(at, "the client uses TLS with one of the servers only");
    }
    const struct rg_transport_options options = {.filters = "", .tls_keys = encrypted ? &session.keys : NULL};
    enum rg_status status =
        encrypted ? rg_tls_connect(fd, &tls, hello->target_name, left_ms(at), &session, why, sizeof why)
                  : RG_OK;
    if (status == RG_OK)
        status = rg_transport_adopt_fd(fd, &options, out);
    rg_tls_wipe(&session, sizeof session);
    if (status == RG_OK)
        return RG_OK;
    close(fd);
    return fail(at, why[0] ? why : rg_status_string(status));
}

/* Whether the other session's worker takes the connection; *upgrades: and would have it move to RDMA. */
static enum rg_status hear_answer(const struct introduction *at, struct rg_conn *conn, bool *upgrades)
{
    static const char rdma[] = RG_PEER_RDMA;
    struct rg_control answer = {0};
    enum rg_status status = rg_control_receive(conn, left_ms(at), &answer);
    if (status != RG_OK)
        status = fail(at, rg_status_string(status));
    else if (answer.kind == RG_CONTROL_REFUSAL)
        status = fail(at, answer.refusal.reason);
    else if (answer.kind != RG_CONTROL_ANSWER)
        status = fail(at, "it is no server that knows such connections");
    else
        *upgrades =
            answer.answer.size == sizeof rdma - 1 && memcmp(answer.answer.data, rdma, sizeof rdma - 1) == 0;
    rg_control_fini(&answer);
    return status;
}

/* Shows the other server the secret, and offers it what the client does. */
static enum rg_status greet(const struct introduction *at, struct rg_conn *conn, bool *upgrades)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    if (!message)
        return fail(at, "the server is out of memory");
    rg_client_hello_init(message, RG_PURPOSE_PEER);
    message->client_hello.peer_session = at->hello->target_session;
    memcpy(message->client_hello.peer_secret, at->hello->target_secret, RG_PEER_SECRET);
    message->client_hello.transports = at->hello->transports;
    enum rg_status status = rg_control_send(conn, message);
    rg_tls_wipe(message, sizeof *message);
    return status == RG_OK ? hear_answer(at, conn, upgrades) : fail(at, rg_status_string(status));
}

/*
 * What a worker is to see: its own secret, and not the other session's; who connects, also which session that is, and on which server, as
 * no other end can say of itself; and whether that one's worker would move to RDMA.
 */
static int worker_hello(const struct rg_client_hello *hello, enum rg_purpose purpose, bool upgrades)
{
    const bool connects = purpose == RG_PURPOSE_INTRODUCE;
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    void *data = NULL;
    size_t size = 0;
    int file = -1;
    if (!message)
        return -1;
    rg_client_hello_init(message, purpose);
    struct rg_client_hello *told = &message->client_hello;
    told->peer_session = connects ? hello->peer_session : hello->target_session;
    memcpy(told->peer_secret, connects ? hello->peer_secret : hello->target_secret, RG_PEER_SECRET);
    if (connects) {
        told->target_session = hello->target_session;
        strcpy(told->target_address, hello->target_address);
    }
    told->transports.n = upgrades;
    strcpy(told->transports.names[0], upgrades ? RG_PEER_RDMA : "");
    if (rg_control_pack(message, &data, &size) == RG_OK)
        file = rg_file_in_memory("peer-hello", data, size);
    free(data);
    rg_tls_wipe(message, sizeof *message);
    return file;
}

static enum rg_status hand_over(const struct introduction *at, struct rg_conn *conn, bool upgrades)
{
    struct rg_monitor_answer answer;
    struct rg_tls_keys keys;
    struct rg_monitor_question *question = at->question;
    const bool encrypted = question->peer.encrypted;
    RG_CLEANUP_FD int file = worker_hello(at->hello, RG_PURPOSE_INTRODUCE, upgrades);
    RG_CLEANUP_FD int key_file = -1;
    if (encrypted && rg_conn_tls_export(conn, &keys) == RG_OK) {
        key_file = rg_file_in_memory("tls-keys", &keys, sizeof keys);
        rg_tls_wipe(&keys, sizeof keys);
    }
    const int fds[] = {rg_conn_fd(conn), file, key_file};
    question->kind = RG_ASK_HAND_OVER;
    memset(&question->connect, 0, sizeof question->connect);
    question->hand_over.purpose = RG_PURPOSE_INTRODUCE;
    question->hand_over.session = at->hello->peer_session;
    if (file < 0 || (encrypted && key_file < 0) ||
        rg_monitor_ask(&at->frontend->link, question, fds, encrypted ? 3 : 2, -1, &answer, NULL) != RG_OK)
        return fail(at, "the server is out of memory");
    return answer.status == RG_OK ? RG_OK : fail(at, answer.why);
}

/* --- two sessions of this server -------------------------------------------------------------------------- */

/* Gives one end of a pair of sockets to the worker of one of the sessions. */
static enum rg_status give_end(const struct introduction *at, int fd, enum rg_purpose purpose)
{
    const struct rg_client_hello *hello = at->hello;
    struct rg_monitor_answer answer;
    struct rg_monitor_question question = {.kind = RG_ASK_HAND_OVER, .peer.proof = RG_PROOF_NONE};
    RG_CLEANUP_FD int file = worker_hello(hello, purpose, false);
    question.hand_over.purpose = purpose;
    question.hand_over.session = purpose == RG_PURPOSE_PEER ? hello->target_session : hello->peer_session;
    const int fds[] = {fd, file};
    if (file < 0 || rg_monitor_ask(&at->frontend->link, &question, fds, 2, -1, &answer, NULL) != RG_OK)
        return fail(at, "the server is out of memory");
    return answer.status == RG_OK ? RG_OK : fail(at, answer.why);
}

/* The worker of the other session says whether it takes the connection; then this one gets its end. */
static enum rg_status introduce_here(const struct introduction *at)
{
    const struct rg_transport_options options = {.filters = ""};
    struct rg_conn *conn = NULL;
    bool upgrades = false; /* nothing was offered */
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(at, strerror(errno));
    enum rg_status status = rg_transport_adopt_fd(ends[0], &options, &conn);
    if (status != RG_OK) {
        close(ends[0]);
        close(ends[1]);
        return fail(at, rg_status_string(status));
    }
    status = give_end(at, ends[1], RG_PURPOSE_PEER);
    close(ends[1]);
    if (status == RG_OK)
        status = hear_answer(at, conn, &upgrades);
    if (status == RG_OK)
        status = give_end(at, rg_conn_fd(conn), RG_PURPOSE_INTRODUCE);
    rg_conn_destroy(conn);
    return status;
}

enum rg_status rg_introduce(struct rg_frontend *frontend, int client, struct rg_monitor_question *question,
                            const struct rg_client_hello *hello, int timeout_ms, struct rg_control *refusal)
{
    const struct introduction at = {.frontend = frontend,
                                    .question = question,
                                    .hello = hello,
                                    .deadline_ns = rg_now_ns() + (uint64_t)timeout_ms * 1000000u,
                                    .refusal = refusal};
    struct rg_conn *conn = NULL;
    bool upgrades = false;
    int fd = -1;
    if (!hello->target_address[0])
        return introduce_here(&at);
    enum rg_status status = open_socket(&at, client, &fd);
    if (status == RG_OK)
        status = secure(&at, fd, &conn);
    else if (fd >= 0)
        close(fd);
    if (status != RG_OK)
        return status;
    status = greet(&at, conn, &upgrades);
    if (status == RG_OK)
        status = hand_over(&at, conn, upgrades);
    rg_conn_destroy(conn);
    return status;
}
