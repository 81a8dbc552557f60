/* http_process.c - see http_process.h. */
#include "server/daemon/monitor/http_process.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/monitor/monitor.h"
#include "server/daemon/monitor/question.h"
#include "server/daemon/monitor/readers.h"
#include "server/daemon/monitor/reply.h"
#include "transport/address.h"
#include "transport/connect/connect.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HTTP_UID 61181u /* nobody's, as the frontend's */

enum { QUESTIONS_AT_ONCE = 8, ADDRESS_SIZE = 256 };

/* --- settings --------------------------------------------------------------------------------------------- */

/* A port alone is of this machine's own address. False: it was said what is wrong. */
static bool find_address(const char *wanted, char *out, size_t size, bool *local)
{
    char why[256] = "";
    const bool port_alone = *wanted && strspn(wanted, "0123456789") == strlen(wanted);
    snprintf(out, size, "%s%s", port_alone ? "127.0.0.1:" : "", wanted);
    const char *colon = strrchr(out, ':');
    if (strncmp(out, "unix:", 5) == 0 || !colon || !isdigit((unsigned char)colon[1])) {
        rg_error("--http %s: an address and a port are needed, like 127.0.0.1:9401, or a port alone", wanted);
        return false;
    }
    if (rg_daemon_address_is_local(out, local, why, sizeof why) == RG_OK)
        return true;
    rg_error("--http %s: %s", wanted, why);
    return false;
}

bool rg_http_check_settings(const struct rg_daemon_settings *settings)
{
    char address[ADDRESS_SIZE];
    bool local = true;
    if (!settings->http)
        return true;
    if (!find_address(settings->http, address, sizeof address, &local))
        return false;
    if (!local && settings->allow_unauthenticated)
        rg_warn("--http %s will show everybody who can reach it who uses what (--allow-unauthenticated)",
                settings->http);
    return true;
}

bool rg_http_wants_tls(const struct rg_daemon_settings *settings)
{
    char address[ADDRESS_SIZE], why[256];
    bool local = true;
    snprintf(address, sizeof address, "%s", settings->http ? settings->http : "");
    return strchr(address, ':') && rg_daemon_address_is_local(address, &local, why, sizeof why) == RG_OK &&
           !local;
}

/* By which people reach it: as it was named, or this machine's name where it is on all addresses. */
static void find_name(struct rg_http_process *http, const struct rg_daemon_settings *settings)
{
    struct rg_address address;
    char host[RG_CONTROL_TEXT / 2] = "";
    const char *bound = http->told.listeners[0].address;
    const bool known = settings->advertise ? rg_address_parse(settings->advertise, &address, NULL, 0) == RG_OK
                                           : rg_address_parse(bound, &address, NULL, 0) == RG_OK;
    const char *port = strrchr(bound, ':');
    const bool any = !known || strcmp(address.host, "*") == 0 || strcmp(address.host, "0.0.0.0") == 0 ||
                     strcmp(address.host, "::") == 0 || !address.host[0];
    if (rg_http_is_local(http)) { /* nobody's name but its own */
        snprintf(http->name, sizeof http->name, "%s", bound);
        return;
    }
    if (any)
        (void)gethostname(host, sizeof host - 1);
    else
        snprintf(host, sizeof host, strchr(address.host, ':') ? "[%s]" : "%s", address.host);
    snprintf(http->name, sizeof http->name, "%s%s", host, port ? port : "");
}

bool rg_http_is_local(const struct rg_http_process *http)
{
    return http->told.listeners[0].reach != RG_REACH_NETWORK;
}

size_t rg_http_address(const struct rg_http_process *http, char *out, size_t size)
{
    const int used = snprintf(out, size, "%s://%s/", rg_http_is_local(http) ? "http" : "https", http->name);
    return used > 0 && (size_t)used < size ? (size_t)used : size - 1;
}

bool rg_http_listen(struct rg_http_process *http, const struct rg_daemon_settings *settings)
{
    char address[ADDRESS_SIZE], why[256] = "";
    bool local = true;
    const struct rg_transport_options options = {.filters = ""};
    if (!settings->http)
        return true;
    if (!find_address(settings->http, address, sizeof address, &local))
        return false;
    if (rg_transport_listen(address, &options, why, sizeof why, &http->listener) != RG_OK) {
        rg_error("cannot listen on %s: %s; --http ADDRESS:PORT chooses another", address, why);
        return false;
    }
    const char *bound = rg_listener_address(http->listener);
    http->told.n_listeners = 1;
    http->told.listeners[0].reach = local ? RG_REACH_LOOPBACK : RG_REACH_NETWORK;
    snprintf(http->told.listeners[0].address, RG_CONTROL_TEXT, "%s",
             strncmp(bound, "tcp://", 6) == 0 ? bound + 6 : bound);
    find_name(http, settings);
    char shown[ADDRESS_SIZE + RG_CONTROL_TEXT];
    (void)rg_http_address(http, shown, sizeof shown);
    rg_info("status page at %s, metrics at /metrics", shown);
    return true;
}

bool rg_http_start(struct rg_monitor *monitor, const struct rg_monitor_settings *told, bool named)
{
    struct rg_http_process *http = &monitor->http;
    if (!http->listener)
        return true;
    const int listener = rg_listener_fd(http->listener);
    http->told.allow_unauthenticated = told->allow_unauthenticated;
    http->told.sandbox = told->sandbox;
    http->told.uid = told->uid;
    memcpy(http->told.pool, told->pool, sizeof http->told.pool);
    http->told.drop_uid = told->drop_uid && !named ? HTTP_UID : told->drop_uid;
    rg_frontend_init(&http->process, &rg_http_program, &http->told, -1, &listener);
    http->told.has_tls = !rg_http_is_local(http);
    if (http->told.has_tls && !rg_http_set_tls(monitor))
        return false;
    return rg_frontend_start(&http->process) == RG_OK && rg_frontend_wait_ready(&http->process);
}

bool rg_http_set_tls(struct rg_monitor *monitor)
{
    struct rg_identity_material material;
    if (!monitor->http.told.has_tls)
        return true;
    rg_identity_material(monitor->policy.identity, &material);
    return rg_frontend_set_tls(&monitor->http.process, &material) == RG_OK;
}

int rg_http_socket(const struct rg_http_process *http)
{
    return http->process.pid && !http->process.killed ? http->process.socket : -1;
}

void rg_http_stop(struct rg_http_process *http)
{
    rg_frontend_stop(&http->process);
    rg_manager_stop(&http->manager);
    rg_listener_destroy(http->listener);
    http->listener = NULL;
}

/* --- questions -------------------------------------------------------------------------------------------- */

static void start_manager(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    int socket = -1;
    answered->status =
        rg_manager_start(&monitor->http.manager, monitor->sandboxes, &monitor->driver, &socket);
    rg_reply_with(&monitor->http.process, answered, socket);
}

/* False: it may not ask that. */
static bool serve_one(struct rg_monitor *monitor, const struct rg_monitor_question *question)
{
    struct rg_monitor_answer answered = {.number = question->number};
    switch (question->kind) {
    case RG_ASK_READY:
        monitor->http.process.ready = true;
        monitor->http.process.unanswered = 0;
        return true;
    case RG_ASK_ALIVE:
        monitor->http.process.unanswered = 0;
        return true;
    case RG_ASK_SIGN:
        rg_monitor_prove(monitor, &monitor->http.process, question, &answered);
        return true;
    case RG_ASK_LOOK:
        rg_reader_look(monitor, question, &answered);
        return true;
    case RG_ASK_LIST:
    case RG_ASK_LINKS:
        rg_reader_list(monitor, question, &answered);
        return true;
    case RG_ASK_LOGIN:
        rg_reader_login(monitor, question, &answered);
        return true;
    case RG_ASK_LOGOUT:
        rg_reader_logout(monitor, question, &answered);
        return true;
    case RG_ASK_ACT:
        rg_reader_act(monitor, question, &answered);
        return true;
    case RG_ASK_MANAGER:
        start_manager(monitor, &answered);
        return true;
    case RG_ASK_STOP_MANAGER:
        rg_manager_stop(&monitor->http.manager);
        return true;
    default:
        return false;
    }
}

/* Which has to say whose it is. */
static bool is_of_reader(enum rg_monitor_question_kind kind)
{
    return kind == RG_ASK_LOOK || kind == RG_ASK_LIST || kind == RG_ASK_LINKS || kind == RG_ASK_LOGIN ||
           kind == RG_ASK_LOGOUT || kind == RG_ASK_ACT;
}

void rg_http_serve(struct rg_monitor *monitor)
{
    struct rg_monitor_question question;
    struct rg_frontend_process *http = &monitor->http.process;
    int fds[RG_PACKET_FDS_MAX] = {-1};
    unsigned n_fds;
    for (int i = 0; i < QUESTIONS_AT_ONCE && http->pid && !http->killed; i++) {
        const enum rg_status status = rg_frontend_receive(http, &question, fds, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status == RG_ERR_CLOSED) { /* it has ended, or is about to */
            rg_frontend_kill(http, NULL);
            return;
        }
        const bool good = status == RG_OK && rg_question_check(&question, n_fds) && n_fds == 0 &&
                          (question.peer.proof || !is_of_reader(question.kind));
        if (status == RG_OK)
            rg_packet_close(fds, n_fds);
        if (!good || !serve_one(monitor, &question)) {
            rg_frontend_kill(http, "it asked for something that there is not");
            return;
        }
    }
}
