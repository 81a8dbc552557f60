/*
 * liveness.h - whether the process at the other end of a connection still lives: not only its machine, which answers for a process that
 * is stopped (SIGSTOP, a debugger, a frozen container) or hangs as well.
 *
 * Who watches looks once a tick, by a thread that neither sends nor receives. What has come since shows that the peer lives,
 * even if nobody has received it; and that nothing has come means something where the peer would have said something:
 * it is to say a word each tick. So does what it takes: whoever is sent much over a slow network has nothing to say
 * until it is there. Ticks are counted, not time: a process that was stopped itself finds one tick, and so
 * does one whose machine slept. Without a connection nothing can come: how long another is waited for is not decided here
 * (resumable/), and with it counting begins anew.
 */
#ifndef RG_TRANSPORT_LIVENESS_H
#define RG_TRANSPORT_LIVENESS_H

#include "transport/state.h"

#define RG_LIVENESS_TICKS 4u /* that a peer may be silent, each a quarter of the time that it is given */

/* So many of a connection's channels are looked at: as many as there can be. */
enum { RG_LIVENESS_CHANNELS = 8 };

struct rg_liveness {
    struct rg_conn_progress last;
    unsigned silent; /* ticks */
    struct rg_liveness_channel {
        struct rg_conn_progress last;
        unsigned stuck; /* ticks */
    } channels[RG_LIVENESS_CHANNELS];
};

/**
 * Looks; returns for how many ticks nothing has come. `always`: the peer is to say something each tick; else only while this side
 * is receiving, or gets nothing sent. Not while the connection is being destroyed.
 */
unsigned rg_liveness_look(struct rg_liveness *liveness, const struct rg_conn *conn, bool always);

/**
 * Looks at the connection's channels; returns for how many ticks this side has been sending on one of them, and the peer has taken nothing of it.
 * A peer whose first connection lives may leave one of the others unread, or have it half open, and so keep what is to be sent there, and who
 * sends it. Who waits to receive on a channel waits for what the first one announced, and is not counted: the sender may
 * be taking its time before it begins. As rg_liveness_look otherwise.
 */
unsigned rg_liveness_look_at_channels(struct rg_liveness *liveness, const struct rg_conn *conn);

/**
 * Gives up those channels of which nothing has been taken for more than `most` ticks, so that their data goes by others. False: one
 * cannot be done without.
 */
bool rg_liveness_give_up(struct rg_liveness *liveness, struct rg_conn *conn, unsigned most);

/**
 * For a connection by TCP that there may be another for: that nothing answers any more is noticed in RG_LIVENESS_CLOSE_MS or a little more,
 * instead of a minute. Any thread.
 */
enum { RG_LIVENESS_CLOSE_MS = 8000 };
void rg_liveness_watch_closely(const struct rg_conn *conn);

/** Whether a small message can be sent without waiting, as far as can be told. */
bool rg_liveness_may_send(const struct rg_liveness *liveness);

#endif
