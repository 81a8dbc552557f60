/*
 * over_tls.c - the process that answers measurements, over a connection by TLS: it answers what is asked in messages, and
 * refuses to exchange anything in the clear on the socket.
 *
 * usage: netperf_over_tls PATH_OF_NETPERF
 *
 * The program is the real one; the keys are made up, as if a handshake had left them.
 */
#include "proto/netperf.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/operations.h"
#include "transport/tls/tls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *what, int line)
{
    printf("FAILED: line %d: %s\n", line, what);
    exit(1);
}

static int file_of(const void *data, size_t size)
{
    const int fd = memfd_create("netperf_over_tls", 0);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

/* The program, which has said hello; its process, and our end of the connection. */
static pid_t begin(const char *path, struct rg_conn **conn)
{
    static const unsigned char hello[] = {0x0a, 4, 8, 1, 0x28, 4}; /* protocol 1, purpose NETPERF */
    const struct rg_message_header header = {
        .kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    unsigned char message[sizeof header + sizeof hello];
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, hello, sizeof hello);
    struct rg_tls_keys server = {.cipher = 0x1301, .is_server = 1, .secret_size = 32}, client = server;
    memset(server.send, 's', 32);
    memset(server.receive, 'c', 32);
    client.is_server = 0;
    memcpy(client.send, server.receive, 32);
    memcpy(client.receive, server.send, 32);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
    const int hello_fd = file_of(message, sizeof message), keys_fd = file_of(&server, sizeof server);
    char words[3][16];
    snprintf(words[0], sizeof words[0], "%d", ends[1]);
    snprintf(words[1], sizeof words[1], "%d", hello_fd);
    snprintf(words[2], sizeof words[2], "%d", keys_fd);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(path, path, "--fd", words[0], "--hello-fd", words[1], "--tls-fd", words[2], "--session", "1",
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    close(hello_fd);
    close(keys_fd);
    const struct rg_transport_options options = {.filters = "", .tls_keys = &client};
    static struct rg_control answer;
    CHECK(rg_transport_adopt_fd(ends[0], &options, conn) == RG_OK);
    CHECK(rg_control_receive(*conn, 20000, &answer) == RG_OK && answer.kind == RG_CONTROL_SERVER_HELLO);
    rg_control_fini(&answer);
    return pid;
}

static void ask(struct rg_conn *conn, const struct rg_netperf_request *request)
{
    struct iovec part = {(void *)(uintptr_t)request, sizeof *request};
    CHECK(rg_conn_send(conn, &(struct rg_send){.msg = &part, .n_msg = 1}) == RG_OK);
}

static void end(pid_t pid, struct rg_conn *conn)
{
    int status;
    rg_conn_destroy(conn);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    rg_transport_register(&rg_transport_tls_ops);
    const struct rg_netperf_request framed = {
        .header = {.kind = RG_MESSAGE_NETPERF, .version = RG_PROTOCOL_MAJOR, .count = 1},
        .replies = 1,
        .reply_size = 100};
    const struct rg_netperf_request raw[] = {
        {.header = framed.header, .raw_rounds = 1, .raw_send = 100},
        {.header = framed.header, .raw_rounds = 1, .raw_receive = 100},
        {.header = framed.header, .raw_rounds = 1, .raw_receive = 100, .raw_send = 100},
    };
    struct rg_conn *conn;
    struct rg_message message;
    pid_t pid = begin(argv[1], &conn);
    ask(conn, &framed);
    CHECK(rg_conn_recv(conn, 20000, &message) == RG_OK && message.size == 100);
    end(pid, conn);
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++) {
        pid = begin(argv[1], &conn);
        ask(conn, &raw[i]);
        /* it ends the connection as TLS does: what is in the clear would be no record */
        CHECK(rg_conn_recv(conn, 20000, &message) == RG_ERR_CLOSED);
        end(pid, conn);
    }
    return 0;
}
