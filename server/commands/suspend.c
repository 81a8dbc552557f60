/* suspend.c - remote-gpud suspend, resume, end, drain and page: asks the running server, and waits for what came of it. */
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/parse.h"
#include "server/commands/commands.h"
#include "server/commands/request.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_MS 60000 /* the server answers long before */

/* By the folder's descriptor, as paths of sockets must be short. */
static int connect_to(const struct rg_state *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    RG_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", state->folder,
             RG_REQUEST_SOCKET);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    const int connected = fd;
    fd = -1;
    return connected;
}

/* False: what is wrong was said. */
static bool ask(const struct rg_state *state, const struct rg_server_request *request, int patience_ms,
                struct rg_server_reply *reply)
{
    RG_CLEANUP_FD int fd = connect_to(state);
    if (fd < 0) {
        rg_error("no server runs with the state folder %s (%s); --state-dir names another one", state->path,
                 strerror(errno));
        return false;
    }
    unsigned n_fds = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (!rg_packet_send(fd, request, sizeof *request, NULL, 0) || poll(&wait, 1, patience_ms) <= 0 ||
        rg_packet_receive(fd, MSG_DONTWAIT, reply, sizeof *reply, NULL, 0, &n_fds) != RG_OK) {
        rg_error("the server does not answer: it is stopping, hangs, or is of another version");
        return false;
    }
    reply->why[sizeof reply->why - 1] = 0;
    return true;
}

static int run(const struct rg_command *command, const struct rg_command_server *server,
               enum rg_request_kind kind)
{
    struct rg_state state;
    struct rg_server_reply reply = {0};
    int64_t session;
    char why[160];
    if (rg_parse_integer(command->argv[0], 1, INT64_MAX, &session, why, sizeof why) != RG_OK) {
        rg_error("'%s' is no number of a session: remote-gpu list shows them", command->argv[0]);
        return RG_COMMAND_FAILED;
    }
    if (!rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    const struct rg_server_request request = {RG_REQUEST_VERSION, (uint32_t)kind, (uint64_t)session};
    const bool answered = ask(&state, &request, PATIENCE_MS, &reply);
    rg_state_close(&state);
    if (!answered)
        return RG_COMMAND_FAILED;
    if (reply.done)
        printf("session %lld: %s\n", (long long)session, reply.why);
    else
        rg_error("session %lld: %s", (long long)session, reply.why);
    return reply.done ? RG_COMMAND_DONE : reply.unknown ? RG_COMMAND_UNKNOWN : RG_COMMAND_FAILED;
}

int rg_command_suspend(const struct rg_command *command, const struct rg_command_server *server)
{
    return run(command, server, command->hold ? RG_REQUEST_HOLD : RG_REQUEST_SUSPEND);
}

int rg_command_resume(const struct rg_command *command, const struct rg_command_server *server)
{
    return run(command, server, RG_REQUEST_RESUME);
}

int rg_command_end(const struct rg_command *command, const struct rg_command_server *server)
{
    return run(command, server, RG_REQUEST_END);
}

int rg_command_page(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_state state;
    struct rg_server_reply reply = {0};
    const struct rg_server_request request = {RG_REQUEST_VERSION, RG_REQUEST_PAGE, 0};
    if (!rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    const bool answered = ask(&state, &request, PATIENCE_MS, &reply);
    rg_state_close(&state);
    if (answered && reply.done)
        puts(reply.why);
    else if (answered)
        rg_error("%s", reply.why);
    const bool done = answered && reply.done;
    explicit_bzero(&reply, sizeof reply);
    return done ? RG_COMMAND_DONE : RG_COMMAND_FAILED;
}

int rg_command_drain(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_state state;
    struct rg_server_reply reply = {0};
    const struct rg_server_request request = {
        RG_REQUEST_VERSION, command->undo ? RG_REQUEST_UNDRAIN : RG_REQUEST_DRAIN, command->wait};
    if (command->wait && command->undo) {
        rg_error("--wait and --undo exclude each other");
        return RG_COMMAND_FAILED;
    }
    if (!rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    const bool answered = ask(&state, &request, command->wait ? -1 : PATIENCE_MS, &reply);
    rg_state_close(&state);
    if (!answered)
        return RG_COMMAND_FAILED;
    if (reply.done)
        printf("the server %s\n", reply.why);
    else
        rg_error("the server %s", reply.why);
    return reply.done ? RG_COMMAND_DONE : RG_COMMAND_FAILED;
}
