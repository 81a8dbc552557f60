/*
 * frontend.c - the main thread of the frontend.
 *
 * Start: the monitor's settings, then rights are given up, then READY. From then on one poll(2) over the monitor, the listeners
 * and finished handshakes, without a timeout while nothing is pending. It ends when the monitor has gone; the monitor kills it
 * when the server stops.
 */
#include "server/frontend/frontend.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/shared/audit.h"
#include "server/frontend/handshake.h"
#include "server/frontend/privileges.h"
#include "server/frontend/security.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_PAUSE_NS 200000000ull

struct loop {
    struct rg_frontend frontend;
    struct rg_handshakes handshakes;
    uint64_t accept_again_ns; /* out of descriptors or memory: no accepting until then */
};

static bool take_settings(struct rg_frontend *frontend)
{
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    if (!rg_monitor_link_settings(&frontend->link, &frontend->settings, fds, &n_fds) ||
        n_fds != 1 + frontend->settings.n_listeners)
        return false;
    frontend->board = rg_board_open(fds[0]);
    close(fds[0]);
    memcpy(frontend->listeners, fds + 1, (n_fds - 1) * sizeof *fds);
    return frontend->board != NULL;
}

/* The server's certificate, which comes second. */
static bool take_certificate(struct rg_frontend *frontend)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    if (!frontend->settings.has_tls)
        return true;
    if (rg_monitor_link_receive(&frontend->link, 0, &word, fds, &n_fds) != RG_OK)
        return false;
    const bool taken =
        word.kind == RG_TELL_TLS && n_fds == 1 && rg_frontend_take_tls(frontend, fds[0], &word.tls);
    rg_packet_close(fds, n_fds);
    return taken;
}

static void close_listeners(struct rg_frontend *frontend)
{
    for (uint32_t i = 0; i < frontend->settings.n_listeners; i++)
        close(frontend->listeners[i]);
    frontend->settings.n_listeners = 0;
}

static void accept_all(struct loop *loop, uint32_t listener)
{
    const struct rg_monitor_settings *settings = &loop->frontend.settings;
    for (;;) {
        const int fd = accept4(loop->frontend.listeners[listener], NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            rg_handshakes_start(&loop->handshakes, fd, settings->listeners[listener].reach);
            if (rg_handshakes_full(&loop->handshakes))
                return; /* those cut off finish first */
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* the listener stays readable: without a pause this would be a busy loop */
            rg_warn("cannot accept a connection now: %s", strerror(errno));
            loop->accept_again_ns = rg_now_ns() + ACCEPT_PAUSE_NS;
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return; /* nobody is there, or the listener was shut because the server is about to stop */
        }
    }
}

/* False: the monitor has gone. */
static bool listen_to_monitor(struct rg_frontend *frontend)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    enum rg_status status;
    while ((status = rg_monitor_link_receive(&frontend->link, MSG_DONTWAIT, &word, fds, &n_fds)) == RG_OK) {
        if (word.kind == RG_TELL_DRAIN) {
            close_listeners(frontend);
        } else if (word.kind == RG_TELL_BEAT) {
            rg_monitor_say(&frontend->link, RG_ASK_ALIVE);
        } else if (word.kind == RG_TELL_TLS &&
                   (n_fds != 1 || !rg_frontend_take_tls(frontend, fds[0], &word.tls))) {
            rg_warn("the certificate before it stays in use");
        }
        rg_packet_close(fds, n_fds);
    }
    return status == RG_ERR_TIMEOUT;
}

/* Milliseconds until something is due without any event, or -1. */
static int next_timeout(struct loop *loop, bool accepting)
{
    const int timeout = rg_handshakes_expire(&loop->handshakes);
    const uint64_t now = rg_now_ns();
    if (accepting || loop->accept_again_ns <= now)
        return timeout;
    const int left = (int)((loop->accept_again_ns - now) / 1000000u) + 1;
    return timeout < 0 || left < timeout ? left : timeout;
}

/* One round: wait, then handle everything that is due. */
static bool serve_once(struct loop *loop)
{
    struct rg_frontend *frontend = &loop->frontend;
    struct pollfd fds[2 + RG_LISTENERS_MAX] = {
        {.fd = frontend->link.socket, .events = POLLIN},
        {.fd = loop->handshakes.wake, .events = POLLIN},
    };
    const bool accepting = !rg_handshakes_full(&loop->handshakes) && rg_now_ns() >= loop->accept_again_ns;
    uint32_t n = 0;
    for (; accepting && n < frontend->settings.n_listeners; n++)
        fds[2 + n] = (struct pollfd){.fd = frontend->listeners[n], .events = POLLIN};
    if (poll(fds, 2 + n, next_timeout(loop, accepting)) < 0 && errno != EINTR) {
        rg_error("poll: %s", strerror(errno));
        return false;
    }
    if (fds[1].revents)
        rg_handshakes_finish(&loop->handshakes);
    for (uint32_t i = 0; i < n; i++)
        if (fds[2 + i].revents)
            accept_all(loop, i);
    return !fds[0].revents || listen_to_monitor(frontend);
}

int rg_frontend_run(int socket)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return 1;
    struct rg_frontend *frontend = &loop->frontend;
    rg_monitor_link_init(&frontend->link, socket);
    pthread_mutex_init(&frontend->look_lock, NULL);
    pthread_mutex_init(&frontend->tls_lock, NULL);
    rg_cond_init(&frontend->looked);
    if (!take_settings(frontend)) {
        rg_error("frontend is a part of remote-gpud and is started by it");
        return 125;
    }
    rg_audit_open(NULL);
    rg_management_init(&frontend->management, &frontend->link);
    if (rg_frontend_drop_privileges(frontend->settings.drop_uid,
                                    (enum rg_sandbox_mode)frontend->settings.sandbox) != RG_OK ||
        rg_handshakes_init(&loop->handshakes, frontend) != RG_OK || !take_certificate(frontend))
        return 1;
    rg_monitor_say(&frontend->link, RG_ASK_READY);
    while (serve_once(loop))
        ;
    _exit(0); /* threads of handshakes may be anywhere; nothing here needs saving */
}
