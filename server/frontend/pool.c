/* pool.c - see pool.h. */
#include "server/frontend/pool.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "transport/address.h"
#include "transport/control.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MONITOR_TIMEOUT_MS 8000

/* One answer of the agent's to the client. False: there are no more, or the client has gone. */
static bool pass_on(struct rg_conn *conn, int socket, void *data)
{
    struct rg_control message = {.kind = RG_CONTROL_ANSWER};
    const ssize_t got = recv(socket, data, RG_ANSWER_SIZE_MAX, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    message.answer = (struct rg_management_answer){.data = data, .size = (uint32_t)got};
    return rg_control_send(conn, &message) == RG_OK;
}

/*
 * Until either side closes. The client says nothing more: what comes from it is its end. That its kernel has closed the connection is told;
 * where it was lost, or this process has ended, the client's process may live, and its sessions go on. A kernel that closes a connection
 * in which something is unread resets it, as what lies between two machines may do by itself.
 */
static void relay(struct rg_conn *conn, int socket, void *data)
{
    /* then nothing between the two can end it but the process that has it */
    const bool near = rg_address_is_within_host(rg_conn_fd(conn));
    for (;;) {
        struct pollfd fds[2] = {{.fd = socket, .events = POLLIN},
                                {.fd = rg_conn_fd(conn), .events = POLLIN | POLLRDHUP}};
        if (poll(fds, 2, -1) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (fds[0].revents && !pass_on(conn, socket, data))
            return;
        if (fds[1].revents && (near || !(fds[1].revents & POLLERR)))
            (void)!send(socket, RG_POOL_CLOSED, sizeof RG_POOL_CLOSED - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (fds[1].revents)
            return;
    }
}

enum rg_status rg_answer_pool(struct rg_frontend *frontend, struct rg_conn *conn,
                              const struct rg_client_hello *hello, struct rg_monitor_question *question,
                              struct rg_control *refusal)
{
    struct rg_monitor_answer answer;
    RG_CLEANUP_FD int socket = -1;
    RG_CLEANUP_FD int file = rg_file_in_memory("pool-question", hello->question, hello->question_size);
    RG_CLEANUP_FREE void *data = malloc(RG_ANSWER_SIZE_MAX);
    const int fds[] = {rg_conn_fd(conn), file};
    question->kind = RG_ASK_POOL;
    question->pool = (struct rg_monitor_pool){.size = hello->question_size};
    if (!frontend->settings.pool[0])
        return rg_refusal_init(
            refusal, RG_REFUSAL_UNSUPPORTED,
            "this server is in no pool; name a server that is (its operator runs it with --pool)");
    if (file < 0 || !data ||
        rg_monitor_ask(&frontend->link, question, fds, 2, MONITOR_TIMEOUT_MS, &answer, &socket) != RG_OK)
        return rg_refusal_init(refusal, RG_REFUSAL_INTERNAL, "the server cannot answer now; try again later");
    if (answer.status != RG_OK)
        return rg_refusal_init(refusal, answer.code, "%s", answer.why);
    relay(conn, socket, data);
    return RG_OK;
}
