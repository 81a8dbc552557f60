/*
 * main.c - program lib/remote-gpu/http: what remote-gpud lets answer HTTP.
 *
 *   http      descriptor 3 is the socket to the monitor, which tells it everything else
 *
 * Like the frontend it first becomes a user without rights in an empty folder, and opens nothing from then on. What it shows it takes
 * from the board, and from processes that the monitor starts. It is started by remote-gpud and ends with it.
 */
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/frontend/management.h"
#include "server/frontend/privileges.h"
#include "server/http/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_MS     1000
#define EXIT_CANNOT 125

struct http {
    struct rg_monitor_link link;
    struct rg_monitor_settings settings;
    struct rg_management management;
    struct rg_gpus gpus;
    struct rg_service *service;
};

static bool begin(struct http *http, struct rg_service_settings *service)
{
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    rg_monitor_link_init(&http->link, RG_MONITOR_FD);
    if (!rg_monitor_link_settings(&http->link, &http->settings, fds, &n_fds) || n_fds != 2) {
        rg_error("http is a part of remote-gpud and is started by it");
        return false;
    }
    rg_management_init(&http->management, &http->link);
    rg_gpus_init(&http->gpus, &http->management);
    *service = (struct rg_service_settings){
        .listener = fds[1],
        .pool = http->settings.pool,
        .loopback = http->settings.listeners[0].reach != RG_REACH_NETWORK,
        .source = {.link = &http->link, .board = rg_board_open(fds[0]), .gpus = &http->gpus}};
    (void)gethostname(service->source.host, sizeof service->source.host - 1);
    close(fds[0]);
    return service->source.board &&
           rg_frontend_drop_privileges(http->settings.drop_uid,
                                       (enum rg_sandbox_mode)http->settings.sandbox) == RG_OK &&
           rg_service_start(service, &http->service) == RG_OK;
}

/* False: the monitor has gone. */
static bool listen_to_monitor(struct http *http)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    enum rg_status status;
    while ((status = rg_monitor_link_receive(&http->link, MSG_DONTWAIT, &word, fds, &n_fds)) == RG_OK) {
        if (word.kind == RG_TELL_BEAT)
            rg_monitor_say(&http->link, RG_ASK_ALIVE);
        rg_packet_close(fds, n_fds);
    }
    return status == RG_ERR_TIMEOUT;
}

int main(int argc, char **argv)
{
    static struct http http;
    struct rg_service_settings service;
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};
    (void)argv;
    rg_log_name("remote-gpud");
    if (argc != 1) {
        rg_error("http is a part of remote-gpud and is started by it");
        return EXIT_CANNOT;
    }
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN); /* those are for the server, which ends this when it is time */
    if (!begin(&http, &service))
        return EXIT_CANNOT;
    rg_monitor_say(&http.link, RG_ASK_READY);
    for (bool there = true; there;) {
        struct pollfd wait = {.fd = RG_MONITOR_FD, .events = POLLIN};
        if (poll(&wait, 1, LOOK_MS) < 0 && errno != EINTR)
            break;
        there = !wait.revents || listen_to_monitor(&http);
        rg_service_expire(http.service);
    }
    _exit(0); /* threads may be anywhere; nothing here needs saving */
}
