/*
 * cap.h - the hard cap of a session's time on a GPU: a bucket of time that fills at the capped rate and is emptied by what was measured.
 *
 * Once it is nearly empty the session goes on when the bucket is half full, and not for every moment that comes in. No threads and no clock: who
 * calls has a lock, and says what time it is. Nothing fails.
 */
#ifndef RG_SERVER_SHARES_TURNS_CAP_H
#define RG_SERVER_SHARES_TURNS_CAP_H

#include <stdbool.h>
#include <stdint.h>

#define RG_CAP_BURST_NS 20000000ull /* a bucket holds what comes in so much time */

/** Zeroed: no cap. */
struct rg_cap {
    uint32_t millionths; /* 0: none */
    int64_t bucket;      /* below 0: what is owed */
    uint64_t filled_at;
    uint64_t resume_at; /* it was spent: the session goes on from then on */
};

/** Sets the rate, in millionths; 0: no cap. */
void rg_cap_set(struct rg_cap *cap, uint32_t millionths, uint64_t now);
/** Lets what has come meanwhile into the bucket. */
void rg_cap_fill(struct rg_cap *cap, uint64_t now);
/** Takes out what was used; more than RG_TURN_DEBT_MAX_NS is never owed. */
void rg_cap_charge(struct rg_cap *cap, uint64_t used);
/** Whether there is a cap, and in its bucket, as it was filled last, too little for work of its own: less than a sixteenth. */
bool rg_cap_is_spent(const struct rg_cap *cap);
/** How long work may take that the bucket, as it was filled last, pays for, with what comes in meanwhile; without a cap without end. */
uint64_t rg_cap_pays(const struct rg_cap *cap);
/** The time from which on it lets the session go on; 0: it does now. */
uint64_t rg_cap_until(struct rg_cap *cap, uint64_t now);

#endif
