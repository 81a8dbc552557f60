/*
 * frontend_process.h - the monitor's side of a process that talks to strangers: the frontend, and the one that answers HTTP. The process,
 * and the socket between the two.
 *
 * Happy path: rg_frontend_start; READY comes; questions are received and answered until the server stops. A frontend that
 * ends, breaks the protocol, does not read what it is told or hangs is killed, and rg_frontend_revive starts another, at once the
 * first time and then not more often than each RG_FRONTEND_PAUSE_NS; sessions know nothing of it. Main thread.
 */
#ifndef RG_SERVER_DAEMON_PROCESS_FRONTEND_PROCESS_H
#define RG_SERVER_DAEMON_PROCESS_FRONTEND_PROCESS_H

#include "server/daemon/shared/monitor_protocol.h"
#include "server/identity/identity.h"

#include <sys/types.h>

#define RG_FRONTEND_PAUSE_NS 1000000000ull
#define RG_FRONTEND_BEAT_NS  3000000000ull /* between two words that it has to answer */
#define RG_FRONTEND_BEATS    4u            /* without an answer: it hangs */

/** Which of them: "frontend", "http". */
struct rg_frontend_program {
    const char *name;   /* of the program */
    const char *called; /* in the log */
    const char *role;   /* what it does, for people: "talks to clients" */
    const char *lost;   /* what goes on without it */
};
extern const struct rg_frontend_program rg_frontend_program, rg_http_program;

struct rg_frontend_process {
    const struct rg_frontend_program *program; /* NULL: none is wanted */
    const struct rg_monitor_settings *settings;
    int fds
        [RG_MONITOR_FDS_MAX]; /* that it gets: the board, if it gets one, then the listeners; the caller's */
    unsigned n_fds;
    int tls_file; /* what TLS needs; -1: there is no TLS */
    struct rg_monitor_tls tls;
    pid_t pid; /* 0: there is none */
    int socket;
    bool ready, killed;
    uint64_t not_before_ns; /* when another may be started */
    uint64_t beat_ns;       /* when the next word is due */
    unsigned unanswered;    /* words, since it last gave a sign of life: RG_ASK_READY, RG_ASK_ALIVE */
};

/** `board`: -1: it gets none. */
void rg_frontend_init(struct rg_frontend_process *frontend, const struct rg_frontend_program *program,
                      const struct rg_monitor_settings *settings, int board, const int *listeners);
/** What TLS needs from now on, for this frontend and those that take its place. RG_ERR_NO_MEMORY was said. */
RG_MUST_CHECK enum rg_status rg_frontend_set_tls(struct rg_frontend_process *frontend,
                                                 const struct rg_identity_material *material);
/** Starts it. Whatever fails was said. */
RG_MUST_CHECK enum rg_status rg_frontend_start(struct rg_frontend_process *frontend);
/** After the start of the server: waits until it serves, or half a minute is over, or it has ended, which is said. */
RG_MUST_CHECK bool rg_frontend_wait_ready(struct rg_frontend_process *frontend);
/** Receives a question and its descriptors, as rg_packet_receive with MSG_DONTWAIT. */
RG_MUST_CHECK enum rg_status rg_frontend_receive(struct rg_frontend_process *frontend,
                                                 struct rg_monitor_question *question, int *fds,
                                                 unsigned *n_fds);
/** Sends; one that does not take it is killed. */
void rg_frontend_tell(struct rg_frontend_process *frontend, const struct rg_monitor_word *word,
                      const int *fds, unsigned n_fds);
/** Kills it, saying why unless that is NULL. */
void rg_frontend_kill(struct rg_frontend_process *frontend, const char *why);
/** Whether it has just been found to have ended; then that was said, and everything of it is released. */
bool rg_frontend_reap(struct rg_frontend_process *frontend);
/** Starts another where there is none, if it is time, and ends one that gives no sign of life. Returns when to come again. */
uint64_t rg_frontend_revive(struct rg_frontend_process *frontend);
/** Ends it, and forgets what TLS needs. */
void rg_frontend_stop(struct rg_frontend_process *frontend);

#endif
