/*
 * requests.h - what the operator's commands (server/commands/request.h) and people by way of the status page ask of the running server:
 * that a session is suspended, resumed or ended, that the server is drained, a link to the page.
 *
 * Happy path: rg_requests_open with the state folder; its `fd`, the socket there, is polled; each connection brings one request,
 * for which the session's worker is signalled (server/suspend/command.h), and gets its answer once the worker has counted it in its slot,
 * which is looked at every few milliseconds while there is any. A worker that says nothing in time is said to do so. The monitor's
 * thread, which waits here for nobody but the operator's command, and that a fifth of a second at most.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_REQUESTS_H
#define RG_SERVER_DAEMON_MONITOR_REQUESTS_H

#include "common/base/limits.h"
#include "server/daemon/monitor/monitor.h"
#include "server/suspend/command.h"

struct rg_requests {
    int fd;     /* -1: none */
    int folder; /* a copy: the socket is removed from it */
    uint32_t n;
    struct rg_request_pending {
        int fd;           /* -1: it was asked by way of the page */
        uint64_t number;  /* then: of that question */
        uint64_t session; /* 0: it is about draining */
        bool until_idle;  /* of draining: it is over when no session runs */
        enum rg_suspend_command command;
        uint32_t count; /* of the worker's answers before */
        uint64_t deadline_ns;
    } pending[RG_REQUESTS_MAX];
};

/** The socket, in that folder; of several servers that have it, the first one's. False: it was said why there is none; the server does without. */
bool rg_requests_open(struct rg_requests *requests, const char *folder);
void rg_requests_close(struct rg_requests *requests);
/** Takes what the socket has. */
void rg_requests_take(struct rg_requests *requests, struct rg_monitor *monitor);
/** What somebody wants who may, by way of the page: the process that answers HTTP gets an answer to its question `number`, now or later. */
void rg_requests_act(struct rg_requests *requests, struct rg_monitor *monitor,
                     const struct rg_monitor_page *page, uint64_t number);
/** That process has ended: nobody waits for its answers any more. */
void rg_requests_forget_page(struct rg_requests *requests);
/** Answers what has been done. When to look again; UINT64_MAX: nothing is pending. */
uint64_t rg_requests_look(struct rg_requests *requests, struct rg_monitor *monitor);

#endif
