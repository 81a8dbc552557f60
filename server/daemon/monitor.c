/* monitor.c - see monitor.h. */
#include "server/daemon/monitor.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "server/daemon/packet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { QUESTIONS_AT_ONCE = 64 };

static void end_text(char *text, size_t size)
{
    text[size - 1] = 0;
    rg_printable_clean(text);
}

/* How many descriptors a question comes with; -1: it is none. */
static int fds_of(const struct rg_monitor_question *question)
{
    switch (question->kind) {
    case RG_ASK_START:
    case RG_ASK_HAND_OVER:
        return 2;
    case RG_ASK_READY:
    case RG_ASK_PROBE:
    case RG_ASK_MANAGER:
    case RG_ASK_STOP_MANAGER:
        return 0;
    }
    return -1;
}

/* All that there is to parse. */
static bool check(struct rg_monitor_question *question, unsigned n_fds)
{
    if (fds_of(question) != (int)n_fds)
        return false;
    end_text(question->peer.address, sizeof question->peer.address);
    if (question->kind == RG_ASK_START) {
        struct rg_monitor_start *start = &question->start;
        end_text(start->claimed.host, sizeof start->claimed.host);
        end_text(start->claimed.user, sizeof start->claimed.user);
        end_text(start->claimed.command, sizeof start->claimed.command);
        return start->n_gpu_indices <= RG_DEVICES_MAX &&
               (start->purpose == RG_PURPOSE_SESSION || start->purpose == RG_PURPOSE_NETPERF);
    }
    if (question->kind == RG_ASK_HAND_OVER)
        return question->hand_over.purpose == RG_PURPOSE_BULK ||
               question->hand_over.purpose == RG_PURPOSE_RESUME;
    return true;
}

static void answer(struct rg_monitor *monitor, const struct rg_monitor_answer *answered, const int *fds,
                   unsigned n_fds)
{
    struct rg_monitor_word word = {.kind = RG_TELL_ANSWER, .answer = *answered};
    rg_frontend_tell(&monitor->frontend, &word, fds, n_fds);
}

static void refuse(struct rg_monitor *monitor, struct rg_monitor_answer *answered, enum rg_refusal_code code,
                   const char *why)
{
    answered->status = RG_ERR_REFUSED;
    answered->code = code;
    snprintf(answered->why, sizeof answered->why, "%s", why);
    answer(monitor, answered, NULL, 0);
}

static void start_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                          const int *fds, struct rg_monitor_answer *answered)
{
    if (monitor->draining) {
        refuse(monitor, answered, RG_REFUSAL_SHUTTING_DOWN,
               "the server is shutting down; use another, or try later");
        return;
    }
    answered->status =
        rg_sessions_start(&monitor->sessions, &monitor->driver, question, fds[0], fds[1], answered);
    answer(monitor, answered, NULL, 0);
}

static void hand_over(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds,
                      struct rg_monitor_answer *answered)
{
    answered->status = rg_sessions_hand_over(&monitor->sessions, question, fds[0], fds[1], answered);
    answer(monitor, answered, NULL, 0);
}

static void begin_probe(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    if (monitor->n_probers == RG_MONITOR_PROBERS_MAX ||
        (monitor->probe.pid == 0 && !rg_probe_begin(&monitor->probe, &monitor->driver))) {
        refuse(monitor, answered, RG_REFUSAL_INTERNAL, "the devices cannot be looked at now");
        return;
    }
    monitor->probers[monitor->n_probers++] = answered->number;
}

void rg_monitor_probe(struct rg_monitor *monitor)
{
    struct rg_driver *driver = &monitor->driver;
    if (monitor->probe.pid == 0)
        return;
    const enum rg_status status = rg_probe_continue(&monitor->probe, driver);
    if (status == RG_ERR_TIMEOUT)
        return;
    rg_board_begin(monitor->board);
    monitor->board->driver = *driver;
    monitor->board->looked_ns = rg_now_ns();
    rg_board_end(monitor->board);
    for (unsigned i = 0; i < monitor->n_probers; i++) {
        const struct rg_monitor_answer answered = {.number = monitor->probers[i], .status = status};
        answer(monitor, &answered, NULL, 0);
    }
    monitor->n_probers = 0;
}

static void start_manager(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    int socket = -1;
    answered->status = rg_manager_start(&monitor->manager, monitor->driver.info.path, &socket);
    answer(monitor, answered, &socket, answered->status == RG_OK ? 1 : 0);
    if (socket >= 0)
        close(socket);
}

static void serve_one(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds)
{
    struct rg_monitor_answer answered = {.number = question->number};
    switch (question->kind) {
    case RG_ASK_READY:
        monitor->frontend.ready = true;
        break;
    case RG_ASK_START:
        start_session(monitor, question, fds, &answered);
        break;
    case RG_ASK_HAND_OVER:
        hand_over(monitor, question, fds, &answered);
        break;
    case RG_ASK_PROBE:
        begin_probe(monitor, &answered);
        break;
    case RG_ASK_MANAGER:
        start_manager(monitor, &answered);
        break;
    case RG_ASK_STOP_MANAGER:
        rg_manager_stop(&monitor->manager);
        break;
    }
}

void rg_monitor_serve(struct rg_monitor *monitor)
{
    struct rg_monitor_question question;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    for (int i = 0; i < QUESTIONS_AT_ONCE && monitor->frontend.pid && !monitor->frontend.killed; i++) {
        const enum rg_status status = rg_frontend_receive(&monitor->frontend, &question, fds, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status == RG_ERR_CLOSED) { /* it has ended, or is about to */
            rg_frontend_kill(&monitor->frontend, NULL);
            return;
        }
        if (status != RG_OK || !check(&question, n_fds)) {
            rg_packet_close(fds, n_fds);
            rg_frontend_kill(&monitor->frontend, "it asked for something that there is not");
            return;
        }
        serve_one(monitor, &question, fds);
        rg_packet_close(fds, n_fds);
    }
}

void rg_monitor_forget(struct rg_monitor *monitor)
{
    monitor->n_probers = 0;
}

void rg_monitor_drain(struct rg_monitor *monitor)
{
    const struct rg_monitor_word word = {.kind = RG_TELL_DRAIN};
    monitor->draining = true;
    rg_frontend_tell(&monitor->frontend, &word, NULL, 0);
}

void rg_monitor_fini(struct rg_monitor *monitor)
{
    rg_frontend_stop(&monitor->frontend);
    rg_probe_cancel(&monitor->probe);
    rg_manager_stop(&monitor->manager);
    if (monitor->sessions.entries)
        rg_sessions_fini(&monitor->sessions);
    if (monitor->board)
        close(monitor->board_fd);
}
