/*
 * board.h - what remote-gpu verify-limits and the programs that it runs share: a file that all map.
 *
 * A program counts units of work that the device has finished, some at a time, and says when; all that is compared are these counts.
 * Each program writes its own place, verify-limits writes `go` and `stop`.
 */
#ifndef RG_CLIENT_CLI_VERIFY_BOARD_H
#define RG_CLIENT_CLI_VERIFY_BOARD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

enum { RG_VERIFY_SESSIONS = 8, RG_VERIFY_TIMES = 1024 };

enum rg_verify_state { RG_VERIFY_STARTING, RG_VERIFY_READY, RG_VERIFY_FAILED };

struct rg_verify_board {
    _Atomic uint32_t go, stop;
    struct {
        alignas(64) _Atomic uint32_t state; /* enum rg_verify_state */
        _Atomic uint64_t units;             /* done */
        _Atomic uint64_t begun_ns;          /* when the first was submitted; of the monotonic clock */
        _Atomic uint64_t at_once;           /* units that are counted together */
    } sessions[RG_VERIFY_SESSIONS];
    /* When units were counted: the first of each session at place 0, the next at 1, and so on in a circle. */
    _Atomic uint64_t counted_ns[RG_VERIFY_SESSIONS][RG_VERIFY_TIMES];
};

#endif
