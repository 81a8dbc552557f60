/*
 * turns.h - whose turn it is on a GPU: the part of a device's page by which sessions order what they submit.
 *
 * A GPU has one turn. The session that has it gives the device work; the others wait. Whoever gives the turn away says how
 * much of the device's time it took, and chooses who is next: deficit round robin. Each session has a balance of time. Work
 * is charged to it; when nobody who waits has any left, all get credit by their weights, as many rounds at once as it takes.
 * Among those with credit, the higher priority comes first, then the order of the places. So a priority decides who is first
 * and a weight how much one gets. What an idle session does not use goes to others; it keeps one round of credit at most,
 * and its debts, unless nobody waited when its turn ended. Credit below RG_TURN_LEAST_NS is none yet: it is kept for the next round, as a turn that short would cost
 * more than it brings.
 *
 * There is no arbiter: the word `turn` says who has it, and only that session gives credit. The monitor ends what a dead
 * worker had (rg_turns_leave). A waiter takes the turn away from a session that does not move for RG_TURN_HELD_MAX_NS.
 *
 * All workers of the device can write to all of this, so nothing here is believed: places are below RG_TURN_PLACES, numbers
 * are clamped when they are read, and every loop ends. With made-up numbers a worker can be unfair to the others of its GPU,
 * and nothing else. Times are in nanoseconds of the monotonic clock, which the caller gives.
 */
#ifndef RG_SERVER_SHARES_TURNS_TURNS_H
#define RG_SERVER_SHARES_TURNS_TURNS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_TURN_PLACES      1000u
#define RG_TURN_WEIGHTS     1000u
#define RG_TURN_NS          10000000ll    /* credit of a round for the session with the greatest weight */
#define RG_TURN_LEAST_NS    250000ll      /* less is not worth a turn */
#define RG_TURN_DEBT_MAX_NS 10000000000ll /* what exceeds it is forgiven */
#define RG_TURN_HELD_MAX_NS 5000000000ull /* a turn that does not move for so long is taken away */

enum rg_turn_state {
    RG_TURN_NONE,    /* no session, or one that has given the device nothing yet */
    RG_TURN_IDLE,    /* has nothing to submit */
    RG_TURN_WAITING, /* has, or is about to go on */
};

enum rg_turn_priority { RG_TURN_LOW, RG_TURN_NORMAL, RG_TURN_HIGH };

struct rg_turn_place {
    alignas(64) _Atomic uint32_t state; /* enum rg_turn_state */
    _Atomic uint32_t bell;              /* a futex, counted up for whoever should look again */
    _Atomic uint32_t weight, priority;
    _Atomic uint64_t not_before; /* a cap keeps it from going on until then */
    _Atomic int64_t balance;     /* changed by who has the turn, and by its session */
    _Atomic uint64_t charged;    /* in all, of this session */
};

struct rg_turns {
    alignas(64) _Atomic uint64_t turn; /* number of the turn << 16 | place + 1; 0 in the low bits: nobody's */
    _Atomic uint64_t clear_at;         /* who had it before was expected to leave the device done by then */
    _Atomic uint32_t changes;          /* counted up when sessions come, go or change */
    _Atomic uint32_t n_used;           /* places from here on are empty */
    struct rg_turn_place places[RG_TURN_PLACES];
};

/** What there is beside a session. */
struct rg_turn_others {
    uint32_t changes;
    bool any, high; /* sessions that use the device; of high priority */
};

/** A session begins to use the device, or has got another weight or priority. Its worker, or the monitor. */
void rg_turns_join(struct rg_turns *turns, uint32_t place, uint32_t weight, enum rg_turn_priority priority);
/** It no longer does, or its process has gone: its turn goes to the next at once. Its worker, or the monitor. */
void rg_turns_leave(struct rg_turns *turns, uint32_t place, uint64_t now);

/** Looks who else is there, if that may have changed since `*others` was filled (all zero: never). */
void rg_turns_look(struct rg_turns *turns, uint32_t place, struct rg_turn_others *others);

/** Whether the turn is this session's. */
bool rg_turns_mine(struct rg_turns *turns, uint32_t place);
/** Whether another session has it. */
bool rg_turns_taken(struct rg_turns *turns, uint32_t place);
/** Whether another session could go on now. */
bool rg_turns_wanted(struct rg_turns *turns, uint32_t place, uint64_t now);
/** Whether one of them has a higher priority, and credit left. */
bool rg_turns_preempted(struct rg_turns *turns, uint32_t place, uint64_t now);

/** A wait for the turn: in the waiter's own memory. */
struct rg_turn_wait {
    uint64_t seen, since; /* the turn that is in the way, and since when; zeros at first */
};
/**
 * Asks for the turn, from `not_before` on. True: it is the session's. False: it will be rung for; to be asked again then, at
 * `not_before`, and now and then, as who has the turn may be dead.
 */
bool rg_turns_ask(struct rg_turns *turns, uint32_t place, uint64_t not_before, struct rg_turn_wait *wait,
                  uint64_t now);
/** No longer wants the turn that it does not have. */
void rg_turns_unask(struct rg_turns *turns, uint32_t place);

/**
 * Gives the turn away, of which `used` nanoseconds were taken. `again`: the session has more to do (from `not_before` on).
 * True: it is the next one itself.
 */
bool rg_turns_pass(struct rg_turns *turns, uint32_t place, uint64_t used, bool again, uint64_t not_before,
                   uint64_t now);
/** The turn is about to pass, and what was done in it takes until `at`. Its holder. */
void rg_turns_clear_later(struct rg_turns *turns, uint64_t at);
/** Until when the device was to be busy with the turn before this one, as far as that is later than `now` by `most` or less. */
uint64_t rg_turns_clear(struct rg_turns *turns, uint64_t now, uint64_t most);
/** Charges what was used outside of a turn. */
void rg_turns_charge(struct rg_turns *turns, uint32_t place, uint64_t used);
/** Time that the session may have in this turn before others who wait are served. Its holder. */
uint64_t rg_turns_credit(struct rg_turns *turns, uint32_t place);

/** Wakes the session at a place: to look again. */
void rg_turns_ring(struct rg_turns *turns, uint32_t place);
/** Sleeps until the session's bell is not `seen` any more, for `ns` at most. */
void rg_turns_sleep(struct rg_turns *turns, uint32_t place, uint32_t seen, uint64_t ns);
uint32_t rg_turns_bell(struct rg_turns *turns, uint32_t place);

#endif
