/*
 * simulation.h - a GPU and sessions in simulated time, which use a page of turns as workers do: the arithmetic of shares without
 * clocks, threads or a driver. Deterministic.
 *
 * The device works on the first submission of every session at the same time, each at its part of the speed, as a driver does
 * that knows nothing of turns.
 */
#ifndef TESTS_SERVER_SHARES_TURNS_SIMULATION_H
#define TESTS_SERVER_SHARES_TURNS_SIMULATION_H

#include "server/shares/turns/pacer.h"

enum { SIM_SESSIONS = 16, SIM_QUEUE = 4096, SIM_TICK_NS = 10000 };

#define SIM_FOREVER UINT64_MAX

struct sim_session {
    bool used, dead;
    struct rg_pacer pacer;
    uint64_t lengths[4]; /* of its submissions, in turn; kinds of their own */
    uint32_t n_lengths, next_length;
    uint64_t pause;    /* between the end of one submission and the next; 0: as many as the queue takes */
    uint64_t ready_at; /* the next submission is there */
    bool stuck;        /* its first submission ends when `releases` more are there */
    uint32_t releases;
    uint32_t most; /* submissions in all; 0: no end */
    uint64_t queue[SIM_QUEUE];
    uint64_t first, end; /* indices */
    uint64_t step_at;
    uint32_t bell;
    /* what came of it */
    uint64_t work_ns, submitted, finished, waited_max_ns, pending_since;
};

struct sim {
    struct rg_turns turns;
    struct sim_session sessions[SIM_SESSIONS];
    uint64_t now;
    uint64_t idle_ns; /* the device had nothing to do */
    uint64_t rests;   /* how often that began */
    uint64_t looks;   /* how often a session looked whether its work is done */
    bool idle;
};

struct sim *sim_create(void);
/** A session whose submissions all take `length`. */
struct sim_session *sim_add(struct sim *sim, uint64_t length, uint32_t weight, uint32_t cap_millionths,
                            enum rg_turn_priority priority);
void sim_run(struct sim *sim, uint64_t ns);

#endif
