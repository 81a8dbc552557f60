/* connect.c - see connect.h. */
#include "client/credentials/connect.h"

#include "client/credentials/enrol.h"
#include "common/base/cleanup.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <stdlib.h>

enum { RENEWAL_MS = 5000, CONNECT_MS = 5000 };

enum rg_status rg_client_connect_again(const char *server, const struct rg_transport_options *options,
                                       const struct rg_credentials *credentials, char *why, size_t why_size,
                                       struct rg_conn **out)
{
    struct rg_transport_options own = options ? *options : (struct rg_transport_options){0};
    struct rg_tls_client tls;
    own.tls = rg_credentials_tls(credentials, &tls);
    const enum rg_status status = rg_transport_connect(server, &own, why, why_size, out);
    return status == RG_ERR_INVALID && own.tls ? RG_ERR_REFUSED
                                               : status; /* the files; the address was looked at */
}

enum rg_status rg_client_connect(const char *server, const struct rg_transport_options *options,
                                 struct rg_credentials *credentials, char *why, size_t why_size,
                                 struct rg_conn **out)
{
    RG_TRY(rg_credentials_find(server, credentials, why, why_size));
    rg_enrol_renew(server, credentials, RENEWAL_MS);
    return rg_client_connect_again(server, options, credentials, why, why_size, out);
}

enum rg_status rg_client_ask(const char *address, const char *name, const struct rg_credentials *credentials,
                             const struct rg_control *hello, int timeout_ms, char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *answer = calloc(1, sizeof *answer);
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = CONNECT_MS};
    struct rg_conn *conn = NULL;
    if (!answer)
        return RG_ERR_NO_MEMORY;
    RG_TRY(rg_client_connect_again(address, &options, credentials, why, why_size, &conn));
    enum rg_status status = rg_control_ask(conn, hello, timeout_ms, answer);
    rg_conn_destroy(conn);
    if (status != RG_OK)
        return RG_FAILED(status, why, why_size, "%s gave no answer: %s", name, rg_status_string(status));
    if (answer->kind == RG_CONTROL_REFUSAL)
        rg_explain(why, why_size, "%s says: %s", name, answer->refusal.reason);
    status = answer->kind == RG_CONTROL_ANSWER ? RG_OK : RG_ERR_REFUSED;
    rg_control_fini(answer);
    return status;
}
