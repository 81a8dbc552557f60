/* estimates.h - how long submissions of a pacer are estimated to take, by what the like of them has taken (pacer.h). Its lock is held. */
#ifndef RG_SERVER_SHARES_TURNS_ESTIMATES_H
#define RG_SERVER_SHARES_TURNS_ESTIMATES_H

#include "server/shares/turns/pacer.h"

static inline uint64_t rg_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t rg_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/** The place of a kind; one that collides takes it over. */
uint32_t rg_estimate_slot(struct rg_pacer *pacer, uint64_t key);
/** One of this kind is in the chunk. */
void rg_estimate_note(struct rg_pacer *pacer, uint32_t slot);
/** The chunk has taken that long: at least, at most (UINT64_MAX: not known). */
void rg_estimate_learn(struct rg_pacer *pacer, uint64_t least, uint64_t most);

#endif
