/* requests.c - see requests.h. */
#include "server/daemon/monitor/requests.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/packet.h"
#include "server/commands/request.h"
#include "server/daemon/monitor/readers.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/shared/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LOOK_NS     20000000ull
#define DEADLINE_NS 20000000000ull /* a worker gives up before (server/suspend/suspend.c) */

/* Whether a server listens there; what one that was killed has left refuses. */
static bool is_served(const struct sockaddr_un *address)
{
    RG_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 &&
           (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN);
}

bool rg_requests_open(struct rg_requests *requests, const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *requests = (struct rg_requests){.fd = -1, .folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    RG_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", requests->folder,
             RG_REQUEST_SOCKET);
    if (requests->folder >= 0 && is_served(&address)) {
        rg_warn("remote-gpud suspend and resume reach another server, which runs with %s as well", folder);
        rg_requests_close(requests);
        return false;
    }
    if (requests->folder >= 0)
        (void)unlinkat(requests->folder, RG_REQUEST_SOCKET, 0); /* of a server that was killed */
    if (requests->folder < 0 || fd < 0 || fchmod(fd, 0600) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, RG_REQUESTS_MAX) != 0) {
        rg_warn("remote-gpud suspend and resume cannot reach this server: %s/%s: %s", folder,
                RG_REQUEST_SOCKET, strerror(errno));
        rg_requests_close(requests);
        return false;
    }
    requests->fd = fd;
    fd = -1;
    return true;
}

void rg_requests_close(struct rg_requests *requests)
{
    while (requests->n > 0)
        if (requests->pending[--requests->n].fd >= 0)
            close(requests->pending[requests->n].fd);
    if (requests->fd >= 0) {
        (void)unlinkat(requests->folder, RG_REQUEST_SOCKET, 0);
        close(requests->fd);
    }
    if (requests->folder >= 0)
        close(requests->folder);
    *requests = (struct rg_requests){.fd = -1, .folder = -1};
}

/* To the command, or to the page. */
static void answer(struct rg_monitor *monitor, const struct rg_request_pending *asked, bool done,
                   bool unknown, const char *why)
{
    struct rg_server_reply reply = {.done = done, .unknown = unknown};
    struct rg_monitor_answer answered = {.number = asked->number,
                                         .status = done      ? RG_OK
                                                   : unknown ? RG_ERR_NOT_FOUND
                                                             : RG_ERR_TIMEOUT};
    if (asked->fd < 0) {
        snprintf(answered.why, sizeof answered.why, "%s", why);
        rg_reply(&monitor->http.process, &answered, NULL, 0);
        return;
    }
    snprintf(reply.why, sizeof reply.why, "%s", why);
    (void)!rg_packet_send(asked->fd, &reply, sizeof reply, NULL, 0); /* who has gone meanwhile needs none */
    explicit_bzero(&reply, sizeof reply);
    close(asked->fd);
}

/* The server's user, or root. */
static bool may_ask(int fd, struct rg_who *who)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid()))
        return false;
    rg_who_user(peer.uid, who);
    return true;
}

/* The worker answers one after the other, and only how many it has done. */
static bool is_pending(const struct rg_requests *requests, uint64_t session)
{
    for (uint32_t i = 0; i < requests->n; i++)
        if (requests->pending[i].session == session)
            return true;
    return false;
}

/* Suspends or resumes a session; `asked` is answered when its worker has done so. */
static void begin(struct rg_requests *requests, struct rg_monitor *monitor, struct rg_request_pending asked,
                  enum rg_suspend_command command)
{
    static struct rg_log_limit said =
        RG_LOG_LIMIT_INIT; /* users may do it by the page as often as they like */
    const struct rg_sessions *sessions = &monitor->sessions;
    const struct rg_share_slot *slot = rg_sessions_slot(sessions, asked.session);
    if (!slot) {
        answer(monitor, &asked, false, true,
               "there is no such session; remote-gpu list shows those that there are");
        return;
    }
    if (is_pending(requests, asked.session)) {
        answer(monitor, &asked, false, false,
               "another command is under way for it; try again when that is done");
        return;
    }
    asked.command = command;
    asked.count = atomic_load(&slot->usage.suspensions);
    asked.deadline_ns = rg_now_ns() + DEADLINE_NS;
    if (!rg_sessions_suspend(sessions, asked.session, command)) {
        answer(monitor, &asked, false, false, "it has not begun yet; try again");
        return;
    }
    rg_log_limited(&said, rg_now_ns(), RG_LOG_INFO, "session %llu: is to be %s",
                   (unsigned long long)asked.session, command == RG_SUSPEND_RESUME ? "resumed" : "suspended");
    requests->pending[requests->n++] = asked;
}

static void end(struct rg_monitor *monitor, const struct rg_request_pending *asked)
{
    if (rg_sessions_end(&monitor->sessions, asked->session))
        answer(monitor, asked, true, false, "is ended; its program is told why");
    else
        answer(monitor, asked, false, true,
               "there is no such session; remote-gpu list shows those that there are");
}

/* The pool is told, and answers when it knows. */
static void begin_drain(struct rg_requests *requests, struct rg_monitor *monitor,
                        struct rg_request_pending asked, bool on)
{
    rg_info("%s", on ? "drained: no new sessions" : "takes new sessions again");
    monitor->drained = on;
    rg_pool_drain(&monitor->pool, on);
    asked.session = 0;
    asked.deadline_ns = rg_now_ns() + DEADLINE_NS;
    requests->pending[requests->n++] = asked;
}

/* Commands that change something stand in the audit log, as what is done by way of the page does. */
static void note(const struct rg_who *who, const struct rg_server_request *request)
{
    static const enum rg_audit_event events[] = {
        [RG_REQUEST_SUSPEND] = RG_AUDIT_SUSPEND, [RG_REQUEST_HOLD] = RG_AUDIT_SUSPEND,
        [RG_REQUEST_RESUME] = RG_AUDIT_RESUME,   [RG_REQUEST_DRAIN] = RG_AUDIT_DRAIN,
        [RG_REQUEST_UNDRAIN] = RG_AUDIT_UNDRAIN, [RG_REQUEST_END] = RG_AUDIT_END};
    rg_audit(&(struct rg_audit){.event = events[request->kind],
                                .user = who->name,
                                .from = "remote-gpud",
                                .session = request->kind == RG_REQUEST_DRAIN ? 0 : request->session});
}

static void begin_command(struct rg_requests *requests, struct rg_monitor *monitor,
                          const struct rg_request_pending *asked, const struct rg_server_request *request)
{
    static const enum rg_suspend_command commands[] = {[RG_REQUEST_SUSPEND] = RG_SUSPEND_UNTIL_USED,
                                                       [RG_REQUEST_HOLD] = RG_SUSPEND_HOLD,
                                                       [RG_REQUEST_RESUME] = RG_SUSPEND_RESUME};
    switch (request->kind) {
    case RG_REQUEST_DRAIN:
    case RG_REQUEST_UNDRAIN:
        begin_drain(requests, monitor, *asked, request->kind == RG_REQUEST_DRAIN);
        break;
    case RG_REQUEST_END:
        end(monitor, asked);
        break;
    default:
        begin(requests, monitor, *asked, commands[request->kind]);
    }
}

static void make_link(struct rg_monitor *monitor, const struct rg_request_pending *asked,
                      const struct rg_who *who)
{
    char link[RG_REQUEST_WHY] = "";
    const bool made = rg_reader_make_link(monitor, who, "remote-gpud", link, sizeof link);
    answer(monitor, asked, made, false, link);
    explicit_bzero(link, sizeof link);
}

/* Connections that bring nothing at once are closed: the command sends with the connection. */
static void take_one(struct rg_requests *requests, struct rg_monitor *monitor, int fd)
{
    struct rg_server_request request;
    struct rg_who who;
    unsigned n_fds = 0;
    const struct timeval patience = {.tv_usec = 200000};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!may_ask(fd, &who) || rg_packet_receive(fd, 0, &request, sizeof request, NULL, 0, &n_fds) != RG_OK) {
        close(fd);
        return;
    }
    const struct rg_request_pending asked = {.fd = fd,
                                             .session = request.session,
                                             .until_idle =
                                                 request.kind == RG_REQUEST_DRAIN && request.session != 0};
    if (request.version != RG_REQUEST_VERSION || request.kind < RG_REQUEST_SUSPEND ||
        request.kind > RG_REQUEST_PAGE) {
        answer(monitor, &asked, false, false, "this server is of another version than the command");
    } else if (requests->n == RG_REQUESTS_MAX) {
        answer(monitor, &asked, false, false, "too many such commands are waiting already; try again later");
    } else if (request.kind == RG_REQUEST_PAGE) {
        make_link(monitor, &asked, &who);
    } else {
        note(&who, &request);
        begin_command(requests, monitor, &asked, &request);
    }
}

/* So that the page leaves room for commands. */
enum { OF_THE_PAGE_MAX = RG_REQUESTS_MAX / 2 };

static uint32_t count_of_page(const struct rg_requests *requests)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < requests->n; i++)
        n += requests->pending[i].fd < 0;
    return n;
}

void rg_requests_act(struct rg_requests *requests, struct rg_monitor *monitor,
                     const struct rg_monitor_page *page, uint64_t number)
{
    static const uint32_t kinds[] = {
        [RG_PAGE_DRAIN] = RG_REQUEST_DRAIN,     [RG_PAGE_UNDRAIN] = RG_REQUEST_UNDRAIN,
        [RG_PAGE_SUSPEND] = RG_REQUEST_SUSPEND, [RG_PAGE_HOLD] = RG_REQUEST_HOLD,
        [RG_PAGE_RESUME] = RG_REQUEST_RESUME,   [RG_PAGE_END] = RG_REQUEST_END};
    const struct rg_request_pending asked = {.fd = -1, .number = number, .session = page->session};
    const struct rg_server_request request = {.kind = kinds[page->action], .session = page->session};
    if (count_of_page(requests) >= OF_THE_PAGE_MAX || requests->n == RG_REQUESTS_MAX)
        answer(monitor, &asked, false, false, "too many such requests are waiting already; try again later");
    else
        begin_command(requests, monitor, &asked, &request);
}

void rg_requests_forget_page(struct rg_requests *requests)
{
    for (uint32_t i = 0; i < requests->n;)
        if (requests->pending[i].fd < 0)
            requests->pending[i] = requests->pending[--requests->n];
        else
            i++;
}

void rg_requests_take(struct rg_requests *requests, struct rg_monitor *monitor)
{
    int fd;
    while ((fd = accept4(requests->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        take_one(requests, monitor, fd);
}

/* What the worker says, in words. */
static const char *words_of(enum rg_suspend_result result, enum rg_suspend_command command)
{
    switch (result) {
    case RG_SUSPEND_DONE:
        return command == RG_SUSPEND_RESUME ? "is running"
               : command == RG_SUSPEND_HOLD ? "is suspended until it is resumed"
                                            : "is suspended until its next call";
    case RG_SUSPEND_BUSY:
        return "was given no turn for 10 seconds, but what the GPU had to do for it, or a call that waits, "
               "has not come to its end; try again later";
    case RG_SUSPEND_SHARED:
        return "cannot be suspended: it shares memory or events with other sessions, or a network adapter "
               "reads and writes its GPU memory";
    case RG_SUSPEND_IMPOSSIBLE:
        return "cannot be suspended: that takes NVIDIA's driver 570 or later, or the software device";
    case RG_SUSPEND_PREEMPTED:
        return "is suspended for a session of higher priority, and comes back when the GPU has memory for it "
               "again";
    default:
        return "cannot be suspended: the driver refuses; the server's log says why";
    }
}

/* Whether somebody who waits has gone. */
static bool has_left(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static bool look_at_drain(const struct rg_request_pending *pending, struct rg_monitor *monitor)
{
    const struct rg_pool_process *pool = &monitor->pool;
    const bool known = !pool->wanted || pool->drained == monitor->drained;
    const bool idle = monitor->sessions.n == 0 && pool->n_leases == 0;
    if (known && (!pending->until_idle || idle)) {
        answer(monitor, pending, true, false,
               !monitor->drained ? "takes new sessions"
               : idle            ? "takes nothing new, and nothing runs"
                                 : "takes nothing new; what was begun goes on");
        return true;
    }
    if (!known && rg_now_ns() > pending->deadline_ns) {
        answer(monitor, pending, false, false,
               "does as it is told, but its pool cannot be told of it now: etcd does not answer; its log "
               "says more");
        return true;
    }
    if (pending->fd < 0 || !has_left(pending->fd))
        return false;
    close(pending->fd);
    return true;
}

/* Whether it is over. */
static bool look_at(const struct rg_request_pending *pending, struct rg_monitor *monitor)
{
    struct rg_sessions *sessions = &monitor->sessions;
    if (!pending->session)
        return look_at_drain(pending, monitor);
    const struct rg_share_slot *slot = rg_sessions_slot(sessions, pending->session);
    if (!slot) {
        answer(monitor, pending, false, true, "has ended meanwhile");
    } else if (atomic_load(&slot->usage.suspensions) != pending->count) {
        const enum rg_suspend_result result = (enum rg_suspend_result)atomic_load(&slot->usage.suspended);
        rg_sessions_show_usage(sessions); /* first: who asked may look */
        answer(monitor, pending, result == RG_SUSPEND_DONE, false, words_of(result, pending->command));
    } else if (rg_now_ns() > pending->deadline_ns) {
        answer(monitor, pending, false, false,
               "its worker does not answer: it waits for the GPU's memory, or hangs");
    } else {
        return false;
    }
    return true;
}

uint64_t rg_requests_look(struct rg_requests *requests, struct rg_monitor *monitor)
{
    for (uint32_t i = 0; i < requests->n;)
        if (look_at(&requests->pending[i], monitor))
            requests->pending[i] = requests->pending[--requests->n];
        else
            i++;
    return requests->n > 0 ? rg_now_ns() + LOOK_NS : UINT64_MAX;
}
