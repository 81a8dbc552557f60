/*
 * board.h - what the monitor shows the processes that talk to strangers: the sessions that run, the devices and their free memory,
 * and counts of what has happened (gauges.h).
 *
 * Shared memory that the monitor alone can write (a sealed memfd), so that the frontend need not ask, a frontend that was
 * started anew knows all at once, and a frontend that was taken over can spoil nothing. A number that is odd while the monitor
 * writes tells readers to read again; they copy what they need and never look at it in place.
 */
#ifndef RG_SERVER_DAEMON_SHARED_BOARD_H
#define RG_SERVER_DAEMON_SHARED_BOARD_H

#include "server/daemon/driver/driver.h"
#include "server/daemon/shared/history.h"

#include <stdatomic.h>

enum rg_gauge_end { RG_GAUGE_ENDED, RG_GAUGE_FAILED, RG_GAUGE_KILLED, RG_GAUGE_ENDS };

enum rg_gauge_accounts { RG_GAUGE_NO_ACCOUNTS, RG_GAUGE_ACCOUNTS, RG_GAUGE_ACCOUNTS_FAIL };

/** Of a device: counters since the server began, over all sessions that it has had, and how its memory is given out now. */
struct rg_gauge_device {
    uint64_t busy_ns, throttled_ns, memory_refusals;
    uint64_t held, promised, owed; /* bytes */
};

/** Counts since the server began, and how it is now. */
struct rg_gauges {
    uint64_t began_unix;
    uint64_t granted, ended[RG_GAUGE_ENDS]; /* sessions */
    uint64_t refused[RG_REFUSALS];          /* clients, by rg_refusal_place */
    uint64_t bytes_in, bytes_out, launches;
    uint32_t waiting; /* sessions that wait for others to give them memory */
    enum rg_gauge_accounts accounts;
    bool stopping, drained, frontend_ready;
    bool in_pool;
    uint64_t pool_until_ns; /* rg_now_ns() until which this server's place in its pool lasts */
    uint32_t pool_leases;   /* of GPUs here */
    uint32_t pool_waiting,
        pool_waiting_gpus;   /* requests of the whole pool that wait, and the GPUs that they wait for */
    uint64_t pool_longest_s; /* for how long one of them has waited at most */
    char pool[64], pool_why[RG_CONTROL_REASON / 2]; /* its name; why there is no place in it */
    struct rg_gauge_device devices[RG_DEVICES_MAX];
};

struct rg_board {
    _Atomic uint32_t sequence;
    uint32_t max_sessions, n_sessions;
    uint64_t looked_ns; /* rg_now_ns() when the devices' free memory was this */
    struct rg_driver driver;
    struct rg_history history;
    struct rg_gauges gauges;           /* as they were when somebody last asked for a look */
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
