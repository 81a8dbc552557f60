/*
 * board.h - what the monitor shows the frontend: the sessions that run, the devices and their free memory.
 *
 * Shared memory that the monitor alone can write (a sealed memfd), so that the frontend need not ask, a frontend that was
 * started anew knows all at once, and a frontend that was taken over can spoil nothing. A number that is odd while the monitor
 * writes tells readers to read again; they copy what they need and never look at it in place.
 */
#ifndef RG_SERVER_DAEMON_BOARD_H
#define RG_SERVER_DAEMON_BOARD_H

#include "server/daemon/driver.h"

#include <stdatomic.h>

struct rg_board {
    _Atomic uint32_t sequence;
    uint32_t max_sessions, n_sessions;
    uint64_t looked_ns; /* rg_now_ns() when the devices' free memory was this */
    struct rg_driver driver;
    struct rg_session_info sessions[]; /* max_sessions */
};

/** Makes one; `fd` is to be given to the frontend. NULL: no memory, which was said. */
struct rg_board *rg_board_create(uint32_t max_sessions, int *fd);
/** Around each change, by the monitor. */
void rg_board_begin(struct rg_board *board);
void rg_board_end(struct rg_board *board);

/** Maps one that was received; the descriptor stays the caller's. NULL: it is none. */
const struct rg_board *rg_board_open(int fd);
uint32_t rg_board_running(const struct rg_board *board);
/** Copies up to `max` sessions; returns how many. */
uint32_t rg_board_sessions(const struct rg_board *board, struct rg_session_info *out, uint32_t max);
/** Copies the driver and its devices; returns when they were looked at. */
uint64_t rg_board_driver(const struct rg_board *board, struct rg_driver *out);

#endif
