/*
 * sessions.h - the sessions that run: which worker, for whom, on what devices; starting and reaping them.
 *
 * The main thread starts, reaps and ends sessions; handshake threads copy the list for those who ask. One
 * lock, held for copying and linking only.
 */
#ifndef RG_SERVER_DAEMON_SESSIONS_H
#define RG_SERVER_DAEMON_SESSIONS_H

#include "proto/control/control.h"
#include "server/daemon/driver.h"

#include <pthread.h>
#include <sys/types.h>

struct rg_session_entry {
    struct rg_session_info info;
    pid_t pid;
    uint64_t started_ns;
    int hand; /* a socket by which its worker gets further connections; -1: it takes none */
};

struct rg_sessions {
    pthread_mutex_t lock;
    struct rg_session_entry **entries;
    uint32_t n, max;
    uint64_t next_id;
    const char *worker;   /* path */
    uint32_t reconnect_s; /* how long a session waits for a client that lost its connection; 0: not */
    char netperf[4096];   /* path of the program that answers measurements; "": they are refused */
};

RG_MUST_CHECK enum rg_status rg_sessions_init(struct rg_sessions *sessions, uint32_t max, const char *worker);
void rg_sessions_fini(struct rg_sessions *sessions); /* none may be running */

/** Lets clients measure the connection with the program at `path`. Before the first session. */
void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path);

/**
 * Decides on a session and starts its worker with `fd` as its connection; the caller keeps its own copy of
 * fd. On anything but RG_OK `refusal` is what to tell the client. Main thread.
 */
RG_MUST_CHECK enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                               const struct rg_control *hello, const char *peer, int fd,
                                               struct rg_control *refusal);
/**
 * Gives a connection, and the hello that came by it, to the worker of session `id`, which decides on it; the
 * caller keeps its own copy of fd. On anything but RG_OK `refusal` is what to tell the client;
 * RG_ERR_TIMEOUT: the worker is there, and behind with what it was given before. Main thread.
 */
RG_MUST_CHECK enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions, uint64_t id,
                                                   const struct rg_control *hello, int fd,
                                                   struct rg_control *refusal);
/** Reaps workers that have ended, and says how. Main thread, after SIGCHLD. */
void rg_sessions_reap(struct rg_sessions *sessions);
/** Sends `signal` to all workers. Main thread. */
void rg_sessions_signal(struct rg_sessions *sessions, int signal);
uint32_t rg_sessions_running(struct rg_sessions *sessions);
/** Copies up to `max` of them; returns how many. Any thread. */
uint32_t rg_sessions_list(struct rg_sessions *sessions, struct rg_session_info *out, uint32_t max);

#endif
