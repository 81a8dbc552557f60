/*
 * logins.h - who may use the page without showing a certificate: links that work once, the cookies that they become, and the bearer
 * token of a scraper.
 *
 * Happy path: somebody whom the server knows asks for a link (rg_logins_make_link); the browser gives its secret back once
 * (rg_logins_exchange) and gets two others, a cookie and a guard; with each request rg_logins_find says whose the cookie is. Secrets are
 * random numbers in the monitor's memory alone: a new start of the server ends them all. A login says who somebody is, and not what they
 * may. Each identity has a few; when it makes more its oldest go. Main thread.
 */
#ifndef RG_SERVER_DAEMON_PAGE_LOGINS_H
#define RG_SERVER_DAEMON_PAGE_LOGINS_H

#include "server/daemon/grant/who.h"

#define RG_LOGIN_LINK_S   300u
#define RG_LOGIN_COOKIE_S (8u * 3600)

struct rg_login {
    uint64_t until_ns; /* 0: there is none here */
    bool is_link;
    uint8_t secret[RG_PAGE_SECRET]; /* of the link, or the cookie */
    uint8_t guard[RG_PAGE_SECRET];
    struct rg_who who;
};

struct rg_logins {
    struct rg_login entries[RG_LOGINS_MAX];
    char bearer[RG_CONTROL_TEXT]; /* "": nobody scrapes by one */
};

/**
 * Takes the bearer token from a file that only the server's user can read. False: it was said what is wrong; the token before it stays.
 */
RG_MUST_CHECK bool rg_logins_load_bearer(struct rg_logins *logins, const char *path);
bool rg_logins_bears(const struct rg_logins *logins, const char bearer[RG_CONTROL_TEXT]);

/** RG_ERR_LIMIT: there are too many of others; RG_ERR_NO_MEMORY: no randomness. */
RG_MUST_CHECK enum rg_status rg_logins_make_link(struct rg_logins *logins, const struct rg_who *who,
                                                 uint8_t secret[RG_PAGE_SECRET]);
/** The link is used up. NULL: there is none with this secret. */
const struct rg_login *rg_logins_exchange(struct rg_logins *logins, const uint8_t secret[RG_PAGE_SECRET]);
/** NULL: none, or its time is over. */
const struct rg_login *rg_logins_find(struct rg_logins *logins, const uint8_t cookie[RG_PAGE_SECRET]);
bool rg_logins_guards(const struct rg_login *login, const uint8_t guard[RG_PAGE_SECRET]);
void rg_logins_end(struct rg_logins *logins, const uint8_t cookie[RG_PAGE_SECRET]);

#endif
