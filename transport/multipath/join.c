/* join.c - see join.h. */
#include "transport/multipath/join.h"
#include "transport/connect/connect.h"

#include "transport/control.h"
#include "transport/operations.h"

enum {
    CONNECT_MS = 5000,
    ANSWER_MS = 30000,
    ADMIT_MS = 5000, /* the same thread takes the session's client back when that has lost its connection */
};

static const char purpose[] = "bulk";

static bool is_move(const struct rg_control *message)
{
    return message->kind == RG_CONTROL_UPGRADE && strcmp(message->upgrade.transport, purpose) == 0;
}

static enum rg_status greet(struct rg_conn *conn, const struct rg_server_hello *hello, char *why,
                            size_t why_size)
{
    struct rg_control message, answer = {0};
    rg_client_hello_init(&message, RG_PURPOSE_BULK);
    message.client_hello.bulk_session = hello->session;
    memcpy(message.client_hello.bulk_token, hello->bulk_token, RG_BULK_TOKEN);
    enum rg_status status = rg_control_ask(conn, &message, ANSWER_MS, &answer);
    if (status == RG_OK && answer.kind == RG_CONTROL_REFUSAL) {
        rg_explain(why, why_size, "%s", answer.refusal.reason);
        status = RG_ERR_REFUSED;
    } else {
        if (status == RG_OK && !is_move(&answer))
            status = RG_ERR_PROTOCOL;
        rg_upgrade_init(&message, purpose);
        if (status == RG_OK)
            status = rg_control_send(conn, &message);
        if (status != RG_OK)
            rg_explain(why, why_size, "%s", rg_status_string(status));
    }
    rg_control_fini(&answer);
    return status;
}

enum rg_status rg_multipath_join(const char *address, const struct rg_tls_client *tls,
                                 const struct rg_server_hello *hello, struct rg_conn **out, char *why,
                                 size_t why_size)
{
    const struct rg_transport_options options = {
        .connect_timeout_ms = CONNECT_MS, .bulk = true, .wait = RG_WAIT_BLOCK, .tls = tls};
    struct rg_conn *conn = NULL;
    enum rg_status status = rg_transport_connect(address, &options, why, why_size, &conn);
    if (status == RG_OK)
        status = greet(conn, hello, why, why_size);
    if (status == RG_OK)
        *out = conn;
    else
        rg_conn_destroy(conn);
    return status;
}

enum rg_status rg_multipath_admit(struct rg_conn *conn, const struct rg_client_hello *hello,
                                  const uint8_t token[RG_BULK_TOKEN], bool full)
{
    unsigned difference = 0; /* in a time that does not tell where they differ */
    for (int i = 0; i < RG_BULK_TOKEN; i++)
        difference |= hello->bulk_token[i] ^ token[i];
    struct rg_control message;
    if (difference) {
        rg_refusal_init(&message, RG_REFUSAL_UNAUTHORISED, "the token is not that of the session");
        (void)!rg_control_send(conn, &message);
        return RG_ERR_REFUSED;
    }
    if (full) {
        rg_refusal_init(&message, RG_REFUSAL_FULL, "the session has as many connections as it may have");
        (void)!rg_control_send(conn, &message);
        return RG_ERR_LIMIT;
    }
    struct rg_control answer = {0};
    rg_upgrade_init(&message, purpose);
    enum rg_status status = rg_control_ask(conn, &message, ADMIT_MS, &answer);
    if (status == RG_OK && !is_move(&answer))
        status = RG_ERR_PROTOCOL;
    rg_control_fini(&answer);
    return status;
}
