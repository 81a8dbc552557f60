/*
 * snapshot.h - what the process that answers HTTP gets to show to one reader: a file in memory, made for one question.
 *
 * It holds the server's figures, and the sessions that the reader may see; or all sessions without anything that says whose they are,
 * for figures that count them. What is not in it the process cannot show, whatever it has become. Both sides' header.
 */
#ifndef RG_SERVER_DAEMON_SHARED_SNAPSHOT_H
#define RG_SERVER_DAEMON_SHARED_SNAPSHOT_H

#include "server/daemon/shared/board.h"

/** What somebody may see and do. */
enum rg_reader_scope {
    RG_READER_FIGURES = 1, /* /metrics alone */
    RG_READER_OWN,         /* his own sessions, which he may end, suspend and resume */
    RG_READER_PUBLIC,      /* what remote-gpu list tells everybody here; changes nothing */
    RG_READER_OPERATOR,    /* everything */
};

struct rg_snapshot_reader {
    enum rg_reader_scope scope;
    bool by_cookie;             /* so that actions need the other half */
    char name[RG_CONTROL_TEXT]; /* "": nobody was proved */
    uint32_t seconds;           /* that the cookie lasts from now on */
};

/** Beside each session. */
struct rg_snapshot_session {
    struct rg_session_info info;
    bool is_own;     /* the reader's */
    uint32_t rtt_us; /* of its first connection's round trips, as the kernel smooths them; 0: not known */
};

struct rg_snapshot {
    struct rg_snapshot_reader reader;
    struct rg_gauges gauges;
    struct rg_driver driver;
    struct rg_history history;
    uint32_t max_sessions, running; /* of the server */
    uint32_t n_sessions;            /* in here */
    struct rg_snapshot_session sessions[];
};

#endif
