/* http_process.c - see http_process.h. */
#include "server/daemon/http_process.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/gauges.h"
#include "server/daemon/monitor.h"
#include "server/daemon/question.h"
#include "server/daemon/reply.h"
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
    if (local)
        return true;
    if (settings->allow_unauthenticated) {
        rg_warn("--http %s will be open to everybody who can reach it, and is not encrypted "
                "(--allow-unauthenticated)",
                settings->http);
        return true;
    }
    rg_error(
        "--http %s: other machines could reach it, and HTTP is not encrypted here: name an address of this "
        "machine alone, like 127.0.0.1:9401, or say that everybody may look (--allow-unauthenticated)",
        settings->http);
    return false;
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
    rg_info("status page at http://%s/, metrics at /metrics", http->told.listeners[0].address);
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
    rg_frontend_init(&http->process, &rg_http_program, &http->told, monitor->board_fd, &listener);
    return rg_frontend_start(&http->process) == RG_OK && rg_frontend_wait_ready(&http->process);
}

uint64_t rg_http_revive(struct rg_http_process *http)
{
    const uint64_t revive = rg_frontend_revive(&http->process), beat = rg_frontend_beat(&http->process);
    return revive < beat ? revive : beat;
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

static void look(struct rg_monitor *monitor, const struct rg_monitor_answer *answered)
{
    rg_gauges_look(monitor);
    rg_sessions_show_usage(&monitor->sessions);
    rg_reply(&monitor->http.process, answered, NULL, 0);
}

static void check(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                  struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    rg_reply(&monitor->http.process, answered, NULL, 0);
}

/* As somebody who has proved nothing and has nothing: of leases only that there are some is told. */
static void list(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                 struct rg_monitor_answer *answered)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    char text[64];
    int ends[2];
    word.ask.size = (uint32_t)snprintf(text, sizeof text, "{\"ask\":\"list\",\"from\":%u}",
                                       (unsigned)(question->pool.lease & UINT16_MAX));
    snprintf(word.ask.key, sizeof word.ask.key, "the status page");
    const int file = rg_file_in_memory("pool-question", text, word.ask.size);
    if (file < 0) {
        answered->status = RG_ERR_NO_MEMORY;
        rg_reply(&monitor->http.process, answered, NULL, 0);
        return;
    }
    if (rg_reply_open(&monitor->http.process, answered, ends))
        rg_reply_by(&monitor->http.process, answered, ends, rg_pool_ask(&monitor->pool, &word, ends[1], file),
                    "the server cannot ask its pool now");
    close(file);
}

static void start_manager(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    int socket = -1;
    answered->status =
        rg_manager_start(&monitor->http.manager, monitor->sandboxes, &monitor->driver, &socket);
    rg_reply(&monitor->http.process, answered, &socket, answered->status == RG_OK ? 1 : 0);
    if (socket >= 0)
        close(socket);
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
    case RG_ASK_LOOK:
        look(monitor, &answered);
        return true;
    case RG_ASK_LIST:
        list(monitor, question, &answered);
        return true;
    case RG_ASK_CHECK:
        check(monitor, question, &answered);
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
        const bool good = status == RG_OK && rg_question_check(&question, n_fds) && n_fds == 0;
        if (status == RG_OK)
            rg_packet_close(fds, n_fds);
        if (!good || !serve_one(monitor, &question)) {
            rg_frontend_kill(http, "it asked for something that there is not");
            return;
        }
    }
}
