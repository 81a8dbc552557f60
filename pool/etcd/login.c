/*
 * login.c - etcd with authentication (etcdctl auth enable): a name and a password are exchanged for a token, which each request shows.
 *
 * Calls that are begun without a token wait for it. etcd forgets tokens, as when it starts anew: a call that is refused for that gets another
 * one, once. An etcd that wants no names says so when it is asked, and nothing is shown to it until it does.
 */
#include "pool/etcd/internal.h"

#include <stdlib.h>
#include <string.h>

#define NOT_ENABLED     "authentication is not enabled"
#define UNAUTHENTICATED 16 /* gRPC's code */

bool rg_etcd_login_is_missing(const struct rg_etcd *etcd)
{
    return etcd->login.user && !etcd->login.token;
}

static void answered(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_etcd *etcd = data;
    const char *token = json_string_value(json_object_get(reply, "token"));
    const bool none = status != RG_OK && strstr(why, NOT_ENABLED);
    etcd->login.under_way = false;
    etcd->login.token = status == RG_OK || none ? strdup(token ? token : "") : NULL;
    if (etcd->login.token)
        rg_etcd_calls_go_on(etcd, RG_OK, "");
    else
        rg_etcd_calls_go_on(etcd, status == RG_OK ? RG_ERR_NO_MEMORY : status, *why ? why : "no memory");
}

void rg_etcd_login_begin(struct rg_etcd *etcd)
{
    if (etcd->login.under_way)
        return;
    etcd->login.under_way = true;
    rg_etcd_call(etcd, RG_ETCD_LOGIN,
                 json_pack("{s:s, s:s}", "name", etcd->login.user, "password", etcd->login.password),
                 answered, etcd);
}

bool rg_etcd_login_is_refused(struct rg_etcd *etcd, json_int_t code, const char *said)
{
    /* it has forgotten the token, has other users than when it was given, or wants names now */
    const bool refused =
        etcd->login.user && said &&
        (code == UNAUTHENTICATED || strstr(said, "invalid auth token") ||
         strstr(said, "user name is empty") || strstr(said, "revision of auth store is old"));
    if (!refused)
        return false;
    free(etcd->login.token);
    etcd->login.token = NULL;
    return true;
}

static void forget(struct rg_etcd_login *login)
{
    if (login->password)
        explicit_bzero(login->password, strlen(login->password));
    free(login->user);
    free(login->password);
    free(login->token);
    login->user = login->password = login->token = NULL;
}

bool rg_etcd_login_set(struct rg_etcd *etcd, const char *user, const char *password)
{
    char *name = user && *user ? strdup(user) : NULL,
         *secret = name ? strdup(password ? password : "") : NULL;
    if (user && *user && !secret) {
        free(name);
        return false;
    }
    forget(&etcd->login);
    etcd->login.user = name;
    etcd->login.password = secret;
    return true;
}

void rg_etcd_login_fini(struct rg_etcd *etcd)
{
    forget(&etcd->login);
}
