/*
 * monitor.h - answers what the frontend asks (monitor_protocol.h).
 *
 * Whatever the frontend has become, it can have a worker started within the limits, give a connection to a worker that decides
 * on it, have the devices looked at, get a process for questions about them, and a certificate for who has a token's secret;
 * nothing else. It could say that it has proof of a certificate that it never saw, of one that is known and not revoked.
 * Main thread.
 */
#ifndef RG_SERVER_DAEMON_MONITOR_MONITOR_H
#define RG_SERVER_DAEMON_MONITOR_MONITOR_H

#include "server/daemon/driver/manager_process.h"
#include "server/daemon/monitor/http_process.h"
#include "server/daemon/page/logins.h"
#include "server/daemon/pool/pool_process.h"
#include "server/daemon/process/accountant_process.h"
#include "server/daemon/process/frontend_process.h"
#include "server/daemon/sessions/sessions.h"

enum { RG_MONITOR_PROBERS_MAX = 8 };

struct rg_requests; /* requests.h */

struct rg_monitor {
    struct rg_frontend_process frontend;
    struct rg_sessions sessions;
    struct rg_board *board; /* NULL until there is one */
    int board_fd;
    struct rg_sandboxes *sandboxes;
    struct rg_driver driver; /* as it was found; the board has it as it is now */
    struct rg_driver_probe probe;
    uint64_t probers[RG_MONITOR_PROBERS_MAX]; /* numbers of the questions that wait for it */
    unsigned n_probers;
    struct rg_manager_process manager;
    struct rg_http_process http;
    struct rg_logins logins;
    struct rg_requests *requests; /* of operators, by commands and by the page */
    struct rg_sampled {
        uint64_t at_ns, busy_ns[RG_DEVICES_MAX];
    } sampled; /* when the last point of the history was made, and what was counted then */
    struct rg_accountant accountant;
    struct rg_pool_process pool;
    struct rg_who_policy policy; /* its store is the monitor's */
    bool draining;               /* no new sessions: the server is about to stop */
    bool drained;                /* likewise: its operator wants it so, for a while */
    struct rg_admission {
        struct rg_monitor_question question;
        struct rg_who who;
        struct rg_session_files files; /* copies */
        uint64_t deadline_ns;
    } * admissions[RG_ADMISSIONS_MAX]; /* sessions that wait for room (preemption.h) */
    unsigned n_admissions;
};

/** Answers all that has been asked, or a part of it, so that other things get their turn. */
void rg_monitor_serve(struct rg_monitor *monitor);
/** After monitor->probe.fd polls readable, or its deadline. */
void rg_monitor_probe(struct rg_monitor *monitor);
/** Something changed in the state folder: who may not stay any more goes. */
void rg_monitor_recheck(struct rg_monitor *monitor);
/** Reads the certificates again, and gives new ones to the frontend. */
void rg_monitor_reload(struct rg_monitor *monitor);
/** Answers a process that wants a handshake signed by the server's key. */
void rg_monitor_prove(const struct rg_monitor *monitor, struct rg_frontend_process *process,
                      const struct rg_monitor_question *question, struct rg_monitor_answer *answered);
/** Reads the rules of shares again. */
void rg_monitor_reload_rules(struct rg_monitor *monitor);
/** Begins the sessions that have room by now, and goes on with those that are preempted. Returns when to come again; UINT64_MAX: there are none. */
uint64_t rg_monitor_admit(struct rg_monitor *monitor);
/** Sees to the workers that are to be warm. Returns when to come again; UINT64_MAX: there is no need. */
uint64_t rg_monitor_keep_warm(struct rg_monitor *monitor);
/** The frontend that asked has ended: nobody waits for answers any more. */
void rg_monitor_forget(struct rg_monitor *monitor);
/** No new sessions from now on. */
void rg_monitor_drain(struct rg_monitor *monitor);
/** What the pool's agent calls back. Before rg_pool_start. */
void rg_monitor_open_pool(struct rg_monitor *monitor);
void rg_monitor_fini(struct rg_monitor *monitor);

#endif
