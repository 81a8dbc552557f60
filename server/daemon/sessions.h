/*
 * sessions.h - the sessions that run: which worker, for whom, on what devices; starting and reaping them.
 *
 * The monitor's. What others may know of them is on the board (board.h), which this keeps true. Main thread.
 */
#ifndef RG_SERVER_DAEMON_SESSIONS_H
#define RG_SERVER_DAEMON_SESSIONS_H

#include "server/daemon/board.h"
#include "server/daemon/driver.h"
#include "server/daemon/monitor_protocol.h"

#include <sys/types.h>

struct rg_session_entry {
    struct rg_session_info info;
    pid_t pid;
    uint64_t started_ns;
    int hand; /* a socket by which its worker gets further connections; -1: it takes none */
};

struct rg_sessions {
    struct rg_board *board;
    struct rg_session_entry **entries;
    uint32_t n, max;
    uint64_t next_id;
    const char *worker;   /* path */
    uint32_t reconnect_s; /* how long a session waits for a client that lost its connection; 0: not */
    char netperf[4096];   /* path of the program that answers measurements; "": they are refused */
};

RG_MUST_CHECK enum rg_status rg_sessions_init(struct rg_sessions *sessions, struct rg_board *board,
                                              const char *worker);
void rg_sessions_fini(struct rg_sessions *sessions); /* none may be running */

/** Lets clients measure the connection with the program at `path`. Before the first session. */
void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path);

/**
 * Decides on a session and starts its worker, with the connection and the file with its client's hello; the caller keeps its
 * own descriptors. On anything but RG_OK `answer` has what to tell the client.
 */
RG_MUST_CHECK enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                               const struct rg_monitor_question *question, int connection,
                                               int hello, struct rg_monitor_answer *answer);
/**
 * Gives a connection, and the file with the hello that came by it, to the worker of its session, which decides on it; the
 * caller keeps its own descriptors. On anything but RG_OK `answer` has what to tell the client; RG_ERR_TIMEOUT: the worker is
 * there, and behind with what it was given before.
 */
RG_MUST_CHECK enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions,
                                                   const struct rg_monitor_question *question, int connection,
                                                   int hello, struct rg_monitor_answer *answer);
/** Reaps workers that have ended, and says how. After SIGCHLD. */
void rg_sessions_reap(struct rg_sessions *sessions);
/** Sends `signal` to all workers. */
void rg_sessions_signal(struct rg_sessions *sessions, int signal);

#endif
