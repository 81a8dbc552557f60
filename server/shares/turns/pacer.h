/*
 * pacer.h - how one session gives a GPU work in its turns: how much at once, and what it was charged.
 *
 * A submission is *admitted* or has to wait. What is admitted together is a *chunk*: as much as the GPU is expected to take for
 * what is left of the turn. When the chunk is done, its time is measured and charged, and the turn goes on or passes. So the
 * device is one session's at a time, but for a moment as turns pass, and nobody waits for more than what one has submitted: at most
 * one kernel of unknown length, as that is the only one of its chunk. What a submission will take is estimated from what the like of it
 * has taken (`key`): a wrong estimate makes a chunk longer or shorter, but what is charged is always measured.
 *
 * Three ways, by who else is there:
 *   alone   nobody else uses the device, and there is no cap: everything is admitted; how busy the device is, is sampled
 *   taking turns, and nobody waits: chunks are long, as only a newcomer would have to wait for their end
 *   taking turns, with others that wait
 *
 * The turn of a full chunk whose length is known passes RG_PACER_EARLY_NS before its end: so long it takes the next worker to wake up
 * and to give the device work, which waits there until this chunk is done, or runs beside the rest of it. The chunk is charged what it
 * was expected to take, and what it takes beyond that and RG_PACER_EARLY_NS; the next one from when this one was to be done. Not where
 * there are sessions of high priority, which would wait for both.
 *
 * A chunk that does not end: work may wait for something that only comes later. A kernel may wait for what a later submission
 * of the same session writes, for another session, or for the program. So the session may submit more after a while
 * (RG_PACER_GO_ON_NS, doubled each time), and a turn passes after RG_PACER_PATIENCE_NS although there is work left; the session
 * is *behind* then: its time goes on being charged, and until everything is done its turns end by the clock.
 *
 * A guest: to pass the turn on for each of many short submissions that their program waits for would cost more than they take. A session
 * that had nothing left to submit when its last work was done, and has credit, may give the device what is estimated to take
 * RG_PACER_GUEST_NS at most, beside who has the turn; it is charged all the time until that is done, so a wrong estimate gains nothing. Not
 * beside sessions of higher priority, and not with a cap.
 *
 * With a hard cap whose bucket is empty (cap.h) there is no turn.
 *
 * No threads and no clock: who calls has a lock, and says what time it is and whether the device has done all (gate.c).
 */
#ifndef RG_SERVER_SHARES_TURNS_PACER_H
#define RG_SERVER_SHARES_TURNS_PACER_H

#include "server/shares/turns/cap.h"
#include "server/shares/turns/turns.h"

#define RG_PACER_LONG_NS         24000000ull /* of a chunk if nobody waits */
#define RG_PACER_SHORT_NS        500000ull   /* of one if there are sessions of high priority */
#define RG_PACER_LEAST_NS        100000ull   /* of one in any case */
#define RG_PACER_EARLY_NS        150000ull   /* so long before its chunk's end a turn passes */
#define RG_PACER_GUEST_NS        2000000ull  /* of what goes beside another session's turn */
#define RG_PACER_AWAITED_NS      200000ull /* between two looks at work that its program seems to wait for … */
#define RG_PACER_GUEST_LOOK_NS   1000000ull   /* … and if it is a guest's, for which nobody else waits */
#define RG_PACER_LOOK_MIN_NS     10000ull     /* between two looks whether a chunk is done: at least … */
#define RG_PACER_LOOK_MAX_NS     500000ull    /* … and at most, where it is not known when … */
#define RG_PACER_LOOK_END_NS     2000000ull   /* … and where it is */
#define RG_PACER_GO_ON_NS        20000000ull  /* work that has not come to its end may need more to do so */
#define RG_PACER_PATIENCE_NS     250000000ull /* so long others wait for work whose length is not known … */
#define RG_PACER_PATIENCE_MAX_NS 1000000000ull /* … and for the longest known */
#define RG_PACER_BLOCKED_NS      2000000ull    /* the same if it waits for an answer of the client's */
#define RG_PACER_SAMPLE_NS       1000000ull /* between two looks at a device that one session has alone … */
#define RG_PACER_ACTIVE_NS       100000000ull /* … as long as something was submitted in so much time */
#define RG_PACER_KEYS            512u         /* submissions of so many kinds are remembered */
#define RG_PACER_CHUNK_KINDS     16u          /* kinds in a chunk */

struct rg_pacer_estimate {
    uint64_t key; /* 0: none */
    uint64_t ns;
};

struct rg_pacer {
    struct rg_turns *turns;
    uint32_t place;
    struct rg_cap cap;
    bool high;

    /* what there is beside it */
    struct rg_turn_others others;
    struct rg_turn_wait wait;
    /* the turn */
    bool holding;
    uint64_t turn_at, turn_used;
    /* the chunk; began 0: there is none */
    uint64_t began, planned, budget;
    uint64_t chunk_at, planned_all; /* the same, whatever has been charged and let go since */
    uint64_t submitted_at;          /* its first; before chunk_at, where the turn before was passed early */
    bool closed;                    /* it is full: nothing more before it is done */
    bool behind;                    /* work of an earlier turn, or of a guest, is left */
    bool calm; /* when all was done last, nothing was pending: its program waits for what it submits */
    uint64_t go_on, go_on_at; /* after so long, at that time, one more may go */
    uint64_t not_done_at;     /* it was last seen to be under way */
    bool as_expected;         /* the last one took what was estimated */
    struct {
        uint32_t slot, n;
    } kinds[RG_PACER_CHUNK_KINDS];
    uint32_t n_kinds;
    bool unknown; /* it has one whose length nobody knows */
    /* alone: the last look at the device, and what was seen */
    uint64_t sampled_at, active_at;
    bool sampled_busy;
    bool sampling; /* it is looked at again and again since; else it had nothing to do, or was not alone */
    uint64_t random;
    /* since when a submission has had to wait; 0: none does */
    uint64_t waits_since;

    uint64_t busy_ns, throttled_ns, admitted; /* in all */
    struct rg_pacer_estimate estimates[RG_PACER_KEYS];
};

/** Zeroed before. The session joins with its first submission. */
void rg_pacer_init(struct rg_pacer *pacer, struct rg_turns *turns, uint32_t place);
/** What the session may have; also while it runs. cap_millionths: 0: no cap. */
void rg_pacer_set(struct rg_pacer *pacer, uint32_t cap_millionths, uint32_t weight,
                  enum rg_turn_priority priority, uint64_t now);

/** A submission of a kind (not 0): true: it may be given to the device now. False: to be asked again later. */
bool rg_pacer_admit(struct rg_pacer *pacer, uint64_t key, uint64_t now);

/** A submission was given to the device without having been admitted: it is charged all the same. */
void rg_pacer_note(struct rg_pacer *pacer, uint64_t now);

/** What the caller has seen. */
struct rg_pacer_seen {
    uint64_t now;
    bool done;    /* the device has done all that was admitted */
    bool pending; /* a submission waits to be admitted */
    bool blocked; /* what is left waits for the client */
};
/** Goes on as far as it can. Returns when to call again, UINT64_MAX: when the bell has rung, or work is admitted. */
uint64_t rg_pacer_step(struct rg_pacer *pacer, const struct rg_pacer_seen *seen);

/** Whether submissions are admitted without asking anybody. */
bool rg_pacer_alone(const struct rg_pacer *pacer);
/** The session ends: others need not wait for it. */
void rg_pacer_leave(struct rg_pacer *pacer, uint64_t now);

#endif
