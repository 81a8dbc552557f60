/*
 * sessions.h - the sessions that run: which worker, for whom, on what devices; starting and reaping them.
 *
 * The monitor's. What others may know of them is on the board (board.h), which this keeps true. Main thread.
 */
#ifndef RG_SERVER_DAEMON_SESSIONS_SESSIONS_H
#define RG_SERVER_DAEMON_SESSIONS_SESSIONS_H

#include "server/accounts/accounts.h"
#include "server/daemon/driver/driver.h"
#include "server/daemon/grant/preemption.h"
#include "server/daemon/grant/shares.h"
#include "server/daemon/grant/who.h"
#include "server/daemon/page/links.h"
#include "server/daemon/settings/rails.h"
#include "server/daemon/shared/board.h"
#include "server/daemon/workers/warm.h"
#include "server/handshake/end_reason.h"
#include "server/suspend/command.h"

#include <sys/types.h>

#define RG_SESSION_END_NS 700000000ull
/** How long a worker is believed that it gives back what it has: as long as a session may wait for that. */
#define RG_SESSION_LEAVES_NS 15000000000ull
#define RG_SESSION_LOOK_S    10 /* between two looks at the time of day, at most */

/** What was counted so far of what a worker says of itself (gauges.h). */
struct rg_gauge_counted {
    uint64_t bytes_in, bytes_out;
    uint64_t busy_ns[RG_DEVICES_MAX], throttled_ns[RG_DEVICES_MAX], refusals[RG_DEVICES_MAX],
        launches[RG_DEVICES_MAX];
};

struct rg_session_entry {
    struct rg_session_info info;
    struct rg_who who;
    pid_t pid;
    uint64_t started_ns;
    uint64_t kill_ns;               /* it was told to end, and is killed then; 0: it was not */
    enum rg_session_end_reason end; /* why it was told so */
    uint64_t leaves_ns;             /* since when its worker is known to say that it leaves; 0: it does not */
    struct rg_sandbox_lease *lease;
    struct rg_shares_session share;
    struct rg_account_owner owner; /* whose account it goes to */
    struct rg_account *account;    /* NULL: none is kept */
    uint64_t used_up_ns; /* since when it is known that its GPU hours are used up; 0: they are not */
    bool used_up_told;   /* its program was told that */
    int hand;            /* a socket by which its worker gets further connections; -1: it takes none */
    bool warm;           /* its worker was */
    uint64_t pool_lease; /* the lease of the pool by which it was begun; 0: none */
    struct rg_preemption preemption;
    struct rg_gauge_counted counted;
    struct rg_link link; /* its first connection */
};

/** What comes with a question: descriptors of the monitor's. */
struct rg_session_files {
    int connection, hello;
    int tls; /* the connection's keys; -1: it is not by TLS */
};

#define RG_SESSIONS_ENDED 64u

/** A session that is no more; see ended.c. */
struct rg_session_ended {
    uint64_t id; /* 0: none */
    struct rg_who who;
    char why[320];
};

struct rg_sessions {
    struct rg_board *board;
    struct rg_session_entry **entries;
    uint32_t n, max;
    uint64_t next_id;
    uint32_t max_of_one;  /* sessions of one identity; 0: as many as there may be */
    bool rdma;            /* sessions may go on over RDMA */
    bool peers;           /* they may be connected to other servers of their clients */
    bool encrypt_control; /* of an encrypted one what goes over RDMA need not be */
    struct rg_sandboxes *sandboxes;
    struct rg_shares shares;
    struct rg_warm warm;
    struct rg_gauges gauges;
    struct rg_accounts *accounts; /* NULL: none are kept */
    const char *worker;           /* path */
    uint32_t reconnect_s;         /* how long a session waits for a client that lost its connection; 0: not */
    struct rg_daemon_rails rails; /* what workers tell of this server's addresses */
    bool reconnect_automatic;     /* where it is worth it (server/handshake/resume.h) */
    uint64_t device_files[RG_DEVICES_MAX]; /* of each device the bit of its number; 0: it is not known yet */
    struct {
        uint64_t free,
            held; /* when the device was last looked at: its free memory, and what sessions had of it */
    } looked[RG_DEVICES_MAX];
    char netperf[4096]; /* path of the program that answers measurements; "": they are refused */
    struct rg_session_ended ended[RG_SESSIONS_ENDED]; /* the last ones */
    uint32_t n_ended;                                 /* that there were so far */
};

/** `board` and `worker` (the program's path) stay the caller's. RG_ERR_NO_MEMORY; then fini is not needed. */
RG_MUST_CHECK enum rg_status rg_sessions_init(struct rg_sessions *sessions, struct rg_board *board,
                                              const char *worker);
void rg_sessions_fini(struct rg_sessions *sessions); /* none may be running */

/** Lets clients measure the connection with the program at `path`. Before the first session. */
void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path);

/**
 * Decides on a session and starts its worker, with the connection and the file with its client's hello; the caller keeps its
 * own descriptors. On anything but RG_OK `answer` has what to tell the client. RG_ERR_TIMEOUT: sessions of lower priority are about to
 * give it their memory; to be called again, until the caller has no more patience and tells the client that.
 */
RG_MUST_CHECK enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                               const struct rg_monitor_question *question,
                                               const struct rg_who *who, const struct rg_session_files *files,
                                               struct rg_monitor_answer *answer);
/**
 * Gives a connection, and the file with the hello that came by it, to the worker of its session, which decides on it; the
 * caller keeps its own descriptors. On anything but RG_OK `answer` has what to tell the client; RG_ERR_TIMEOUT: the worker is
 * there, and behind with what it was given before. `who`: NULL for connections between servers, which show the worker a secret.
 */
RG_MUST_CHECK enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions,
                                                   const struct rg_monitor_question *question,
                                                   const struct rg_who *who,
                                                   const struct rg_session_files *files,
                                                   struct rg_monitor_answer *answer);
/** Whether two sessions have a device in common. */
static inline bool rg_sessions_meet(const struct rg_session_info *a, const struct rg_session_info *b)
{
    for (uint32_t i = 0; i < a->n_devices; i++)
        for (uint32_t j = 0; j < b->n_devices; j++)
            if (a->devices[i] == b->devices[j])
                return true;
    return false;
}
/** Whether there is such a session, and it is theirs. */
bool rg_sessions_belongs(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who);
/** The lease by which a session has begun that is theirs, if they have proved who they are; 0: none. */
uint64_t rg_sessions_lease(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who);
/**
 * The session's identity has shown a certificate, for it or with a connection of it: the session lasts as long as that is valid, if that is
 * longer than before. On anything but RG_OK `answer` has what to tell the client.
 */
RG_MUST_CHECK enum rg_status rg_sessions_stay(struct rg_sessions *sessions,
                                              const struct rg_monitor_question *question,
                                              const struct rg_who *who, struct rg_monitor_answer *answer);
/**
 * Measures what sessions have used, and tells or ends those whose GPU hours are used up. To be called every RG_ACCOUNTS_SAMPLE_NS
 * while there are any.
 */
void rg_sessions_measure(struct rg_sessions *sessions);
/** The devices were looked at just now: what the board shows of their free memory counts on from this. */
void rg_sessions_looked(struct rg_sessions *sessions, const struct rg_driver *driver);
/** Takes what workers have counted to the board. */
void rg_sessions_show_usage(struct rg_sessions *sessions);
/** Reaps workers that have ended, and says how. After SIGCHLD. */
void rg_sessions_reap(struct rg_sessions *sessions);
/**
 * Ends the sessions of those who may not stay, each with its sentence, and kills their workers if they take longer than
 * RG_SESSION_END_NS. `policy`: who may.
 */
void rg_sessions_recheck(struct rg_sessions *sessions, const struct rg_who_policy *policy);
/**
 * Ends the sessions whose certificates have expired, as rg_sessions_recheck does, and kills those whose time is over. Returns when to
 * look again; UINT64_MAX: there is no need.
 */
uint64_t rg_sessions_expire(struct rg_sessions *sessions);
/** How many sessions were begun by a lease of the pool, and have not ended yet. */
uint32_t rg_sessions_of_lease(const struct rg_sessions *sessions, uint64_t lease);
/** Ends them, as rg_sessions_recheck does. */
void rg_sessions_end_lease(struct rg_sessions *sessions, uint64_t lease);
/** Ends one, likewise. False: there is none of that number. */
bool rg_sessions_end(struct rg_sessions *sessions, uint64_t id);
/** Ends those that wait for a client which has lost its connection, and can find nobody any more. */
void rg_sessions_end_waiting(struct rg_sessions *sessions);
/** Sends `signal` to all workers. */
void rg_sessions_signal(struct rg_sessions *sessions, int signal);

/** The slot of a session; NULL: there is no such session with devices. */
const struct rg_share_slot *rg_sessions_slot(const struct rg_sessions *sessions, uint64_t id);
/** Has its worker do what the command says; false: it has not begun. */
RG_MUST_CHECK bool rg_sessions_suspend(const struct rg_sessions *sessions, uint64_t id,
                                       enum rg_suspend_command command);

#endif
