/* usage.c - see usage.h. */
#include "server/frontend/usage.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "transport/control.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 8000 /* the accountant gives up before */

/* The packed answer comes by a socket. Returns its size; 0: it does not. */
static size_t receive(int socket, void *data)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    if (poll(&wait, 1, ANSWER_TIMEOUT_MS) <= 0)
        return 0;
    const ssize_t got = recv(socket, data, RG_ANSWER_SIZE_MAX, MSG_DONTWAIT);
    return got > 0 ? (size_t)got : 0;
}

/* The monitor's answer lies in a file. */
static size_t read_quotas(int file, void *data)
{
    RG_CLEANUP_FREE struct rg_quota_answer *quotas = calloc(1, sizeof *quotas);
    if (!quotas || pread(file, quotas, sizeof *quotas, 0) != (ssize_t)sizeof *quotas)
        return 0;
    return rg_quota_pack_answer(quotas, data);
}

enum rg_status rg_answer_accounts(struct rg_frontend *frontend, struct rg_conn *conn,
                                  const struct rg_client_hello *hello, struct rg_monitor_question *question,
                                  struct rg_control *refusal)
{
    const bool usage = hello->purpose == RG_PURPOSE_USAGE;
    const int connection = rg_conn_fd(conn);
    struct rg_monitor_answer answer;
    RG_CLEANUP_FD int fd = -1;
    RG_CLEANUP_FREE void *data = malloc(RG_ANSWER_SIZE_MAX);
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    question->kind = usage ? RG_ASK_USAGE : RG_ASK_QUOTA;
    if ((usage || hello->question_size) &&
        rg_usage_unpack_question(hello->question, hello->question_size, &question->usage) != RG_OK)
        return rg_refusal_init(refusal, RG_REFUSAL_MALFORMED, "the question about usage is malformed");
    if (!data || !message ||
        rg_monitor_ask(&frontend->link, question, &connection, 1, ANSWER_TIMEOUT_MS, &answer, &fd) != RG_OK)
        return rg_refusal_init(refusal, RG_REFUSAL_INTERNAL, "the server cannot answer now; try again later");
    if (answer.status != RG_OK)
        return rg_refusal_init(refusal, answer.code, "%s", answer.why);
    const size_t size = usage ? receive(fd, data) : read_quotas(fd, data);
    if (size == 0)
        return rg_refusal_init(
            refusal, RG_REFUSAL_INTERNAL,
            "the server did not find the answer in time; ask about a shorter time, or try again later");
    message->kind = RG_CONTROL_ANSWER;
    message->answer = (struct rg_management_answer){.data = data, .size = (uint32_t)size};
    if (rg_control_send(conn, message) != RG_OK)
        rg_debug("%s: left before its question was answered", rg_conn_peer(conn));
    return RG_OK;
}

enum rg_status rg_answer_page(struct rg_frontend *frontend, struct rg_conn *conn,
                              const struct rg_client_hello *hello, struct rg_monitor_question *question,
                              struct rg_control *refusal)
{
    const int connection = rg_conn_fd(conn);
    struct rg_monitor_answer answer;
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    (void)hello;
    question->kind = RG_ASK_LINK;
    if (!message ||
        rg_monitor_ask(&frontend->link, question, &connection, 1, ANSWER_TIMEOUT_MS, &answer, NULL) != RG_OK)
        return rg_refusal_init(refusal, RG_REFUSAL_INTERNAL, "the server cannot answer now; try again later");
    if (answer.status != RG_OK)
        return rg_refusal_init(refusal, answer.code, "%s", answer.why);
    message->kind = RG_CONTROL_ANSWER;
    message->answer = (struct rg_management_answer){.data = answer.why, .size = (uint32_t)strlen(answer.why)};
    if (rg_control_send(conn, message) != RG_OK)
        rg_debug("%s: left before its question was answered", rg_conn_peer(conn));
    explicit_bzero(&answer, sizeof answer);
    return RG_OK;
}
