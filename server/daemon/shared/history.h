/*
 * history.h - how busy each GPU was in the last hour, a point a minute, kept by the server on the board.
 *
 * A ring of fixed size a GPU, so nothing grows. A server that was started less than an hour ago has fewer points.
 */
#ifndef RG_SERVER_DAEMON_SHARED_HISTORY_H
#define RG_SERVER_DAEMON_SHARED_HISTORY_H

#include "common/base/limits.h"

#include <stdint.h>

enum { RG_HISTORY_POINTS = 60, RG_HISTORY_PERIOD_S = 60 };

/** Percent of a GPU. */
struct rg_history_point {
    uint8_t busy;   /* of the time, it worked for sessions: all of it where they overlap for longer */
    uint8_t memory; /* of its memory, sessions held it when the point was made */
};

struct rg_history {
    uint32_t n;    /* points that there are */
    uint32_t next; /* where the next one goes */
    struct rg_history_point devices[RG_DEVICES_MAX][RG_HISTORY_POINTS];
};

/** The points of a device in their order, oldest first; returns how many. */
static inline uint32_t rg_history_read(const struct rg_history *history, uint32_t device,
                                       struct rg_history_point out[RG_HISTORY_POINTS])
{
    const uint32_t n = history->n < RG_HISTORY_POINTS ? history->n : RG_HISTORY_POINTS;
    for (uint32_t i = 0; i < n; i++)
        out[i] = history->devices[device][(history->next + RG_HISTORY_POINTS - n + i) % RG_HISTORY_POINTS];
    return n;
}

#endif
