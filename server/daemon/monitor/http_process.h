/*
 * http_process.h - the monitor's side of the process that answers HTTP (server/http/), and what that may ask.
 *
 * It is a frontend of its own, with a user of its own, and may ask less than the other: for what one reader may see of sessions and pool,
 * that something is done for a reader who may (readers.h), and for a process that asks the GPUs' management library. It has no board. Taken over, it can do
 * so for those whose cookie or certificate it sees, and could say that it has seen a certificate that it has not, of one that is known.
 *
 * Happy path: rg_http_check_settings, rg_http_listen, rg_http_start once; rg_http_serve when the socket polls readable, rg_frontend_revive now
 * and then; rg_http_stop. Zeroed: no HTTP is wanted. Main thread.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_HTTP_PROCESS_H
#define RG_SERVER_DAEMON_MONITOR_HTTP_PROCESS_H

#include "server/daemon/driver/manager_process.h"
#include "server/daemon/process/frontend_process.h"
#include "server/daemon/settings/settings.h"

struct rg_monitor;
struct rg_listener; /* transport/transport.h */

struct rg_http_process {
    struct rg_frontend_process process;
    struct rg_manager_process manager; /* on its behalf */
    struct rg_monitor_settings told;
    struct rg_listener *listener; /* NULL: none is wanted */
    char name[RG_CONTROL_TEXT];   /* HOST:PORT by which people reach it */
};

/** Whether the settings make sense; false: it was said what is wrong. */
RG_MUST_CHECK bool rg_http_check_settings(const struct rg_daemon_settings *settings);
/** Listens, where that is wanted. False: it was said why not. */
RG_MUST_CHECK bool rg_http_listen(struct rg_http_process *http, const struct rg_daemon_settings *settings);
/** Starts the process. `told`: what the frontend was told; `named`: its user is one that the operator has named. False: it was said why not. */
RG_MUST_CHECK bool rg_http_start(struct rg_monitor *monitor, const struct rg_monitor_settings *told,
                                 bool named);
/** Whether it is to be by TLS: where other machines reach it. */
bool rg_http_wants_tls(const struct rg_daemon_settings *settings);
/** After the server's certificate has been read anew: gives it to the process. False: there is no memory, which was said. */
RG_MUST_CHECK bool rg_http_set_tls(struct rg_monitor *monitor);
/** Whether this machine's processes alone reach it: then it is not by TLS. */
bool rg_http_is_local(const struct rg_http_process *http);
/** Where the page is: "https://gpu1.example:9401/". Returns its length. */
size_t rg_http_address(const struct rg_http_process *http, char *out, size_t size);
/** Answers all that has been asked, or a part of it. */
void rg_http_serve(struct rg_monitor *monitor);
/** -1: there is none. */
int rg_http_socket(const struct rg_http_process *http);
void rg_http_stop(struct rg_http_process *http);

#endif
