/*
 * main.c - program lib/remote-gpu/http: what remote-gpud lets answer HTTP.
 *
 *   http      descriptor 3 is the socket to the monitor, which tells it everything else
 *
 * Like the frontend it first becomes a user without rights in an empty folder, and opens nothing from then on. What it shows it takes
 * from the monitor, and from processes that that starts. It is started by remote-gpud and ends with it.
 */
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/frontend/management.h"
#include "server/frontend/privileges.h"
#include "server/http/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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

/* Uses what TLS needs, for the first time (`*out` is NULL) or instead of what was before. */
static bool use_certificate(struct rg_monitor_link *link, const struct rg_service_settings *settings,
                            int file, const struct rg_monitor_tls *tls, struct rg_service **out)
{
    const struct rg_tls_signer signer = {
        .sign = rg_monitor_sign, .data = link, .generation = tls->generation};
    struct rg_tls_pem parts;
    RG_CLEANUP_FREE char *pem = rg_monitor_link_read_pem(file, tls, &parts);
    if (!pem)
        return false;
    parts.signer = &signer;
    if (!*out)
        return rg_service_start(settings, &parts, out) == RG_OK;
    rg_service_set_tls(*out, &parts);
    return true;
}

/* The certificate comes second. */
static bool start_service(struct http *http, const struct rg_service_settings *settings)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    if (!http->settings.has_tls)
        return rg_service_start(settings, NULL, &http->service) == RG_OK;
    if (rg_monitor_link_receive(&http->link, 0, &word, fds, &n_fds) != RG_OK)
        return false;
    const bool good = word.kind == RG_TELL_TLS && n_fds == 1 &&
                      use_certificate(&http->link, settings, fds[0], &word.tls, &http->service);
    rg_packet_close(fds, n_fds);
    return good;
}

static bool begin(struct http *http, struct rg_service_settings *service)
{
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    rg_monitor_link_init(&http->link, RG_MONITOR_FD);
    if (!rg_monitor_link_settings(&http->link, &http->settings, fds, &n_fds) || n_fds != 1) {
        rg_error("http is a part of remote-gpud and is started by it");
        return false;
    }
    rg_management_init(&http->management, &http->link);
    rg_gpus_init(&http->gpus, &http->management);
    *service = (struct rg_service_settings){.listener = fds[0],
                                            .pool = http->settings.pool,
                                            .loopback = http->settings.listeners[0].reach != RG_REACH_NETWORK,
                                            .source = {.link = &http->link, .gpus = &http->gpus}};
    (void)gethostname(service->source.host, sizeof service->source.host - 1);
    return rg_frontend_drop_privileges(http->settings.drop_uid,
                                       (enum rg_sandbox_mode)http->settings.sandbox) == RG_OK &&
           start_service(http, service);
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
        else if (word.kind == RG_TELL_TLS && n_fds == 1)
            (void)use_certificate(&http->link, NULL, fds[0], &word.tls,
                                  &http->service); /* what goes wrong was said */
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
