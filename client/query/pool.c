/* pool.c - see pool.h. */
#include "client/query/pool.h"

#include "client/credentials/connect.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "transport/control.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum rg_status rg_pool_talk_begin(struct rg_pool_talk *talk, const char *server, const char *question,
                                  uint64_t timeout_ns, char *why, size_t why_size)
{
    const uint64_t milliseconds = timeout_ns / 1000000u;
    const struct rg_transport_options options = {
        .filters = "", .connect_timeout_ms = milliseconds > INT_MAX ? INT_MAX : (int)milliseconds};
    char reason[768] = "";
    struct rg_credentials credentials;
    RG_CLEANUP_FREE struct rg_control *hello = calloc(1, sizeof *hello);
    memset(talk, 0, sizeof *talk);
    if (!hello || strlen(question) > RG_QUESTION_SIZE_MAX)
        return RG_FAILED(RG_ERR_LIMIT, why, why_size, "what is asked for is too long to be asked for");
    rg_client_hello_init(hello, RG_PURPOSE_POOL);
    memcpy(hello->client_hello.question, question, strlen(question));
    hello->client_hello.question_size = (uint32_t)strlen(question);
    enum rg_status status =
        rg_client_connect(server, &options, &credentials, reason, sizeof reason, &talk->conn);
    if (status != RG_OK) {
        talk->conn = NULL;
        rg_servers_unreached(server, status, reason, "check the address, and that remote-gpud runs there",
                             why, why_size);
        return status;
    }
    status = rg_control_send(talk->conn, hello);
    return status == RG_ERR_CLOSED || status == RG_ERR_LOST ? RG_OK
                                                            : status; /* it may have refused already */
}

enum rg_status rg_pool_talk_next(struct rg_pool_talk *talk, int timeout_ms, const char **text, size_t *size,
                                 char *why, size_t why_size)
{
    rg_control_fini(&talk->message);
    memset(&talk->message, 0, sizeof talk->message);
    RG_TRY(rg_control_receive(talk->conn, timeout_ms, &talk->message));
    if (talk->message.kind == RG_CONTROL_REFUSAL)
        return RG_FAILED(RG_ERR_REFUSED, why, why_size, "%s", talk->message.refusal.reason);
    if (talk->message.kind != RG_CONTROL_ANSWER)
        return RG_ERR_PROTOCOL;
    *text = talk->message.answer.data;
    *size = talk->message.answer.size;
    return RG_OK;
}

void rg_pool_talk_end(struct rg_pool_talk *talk)
{
    rg_control_fini(&talk->message);
    if (talk->conn)
        rg_conn_destroy(talk->conn);
    memset(talk, 0, sizeof *talk);
}
