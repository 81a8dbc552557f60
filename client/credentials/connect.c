/* connect.c - see connect.h. */
#include "client/credentials/connect.h"

#include "client/credentials/enrol.h"
#include "transport/connect/connect.h"

enum { RENEWAL_MS = 5000 };

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
