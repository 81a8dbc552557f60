/*
 * gate.h - the worker's side of shared device time: each record that gives a device work waits for the session's turn.
 *
 * The dispatcher asks before such a record (traits `accesses` and `kernels`, proto/api/traits.txt: launches of every sort,
 * graphs, copies, sets; what is new in the specification is covered by its traits). How much may be submitted at once, and
 * what is charged, is the pacer's affair (turns/pacer.h). Whether the device has done all is asked of the streams that work
 * was given to (streams.h); nothing is put into them.
 *
 * Who tends a device: the dispatcher while it waits for its turn, else a thread of the device's, the keeper. One lock a
 * device; it is held while the driver is asked whether streams are done, never while something waits.
 */
#ifndef RG_SERVER_SHARES_GATE_GATE_H
#define RG_SERVER_SHARES_GATE_GATE_H

#include "server/core/worker.h"
#include "server/shares/turns/pacer.h"

/** What a session may have of a device's time, as it is now. */
struct rg_gate_share {
    uint32_t cap_millionths; /* 0: no cap */
    uint32_t weight;
    enum rg_turn_priority priority;
};

/** What was measured of a device. */
struct rg_gate_counts {
    uint64_t busy_ns, throttled_ns, admitted;
    uint64_t last_use_ns; /* when something was admitted last; 0: never */
};

/** From the page of a device: the session's place on it. */
struct rg_gate_attachment {
    struct rg_turns *turns;
    uint32_t place;
};

/**
 * Devices 0 to n - 1 of the session are shared. `share` tells what the session may have; it is called by any thread, often, and
 * says by *changed (a number) whether it has to be looked at. `counted` is told what was measured of a device, by the threads that
 * measure. Before the worker starts.
 */
RG_MUST_CHECK enum rg_status
rg_gate_start(struct rg_worker *worker, const struct rg_gate_attachment *attachments, uint32_t n,
              void (*share)(struct rg_gate_share *out, uint32_t *changed),
              void (*counted)(uint32_t device, const struct rg_gate_counts *counts));

#endif
