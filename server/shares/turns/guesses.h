/* guesses.h - how long submissions of a pacer are guessed to take, by what the like of them has taken (pacer.h). Its lock is held. */
#ifndef RG_SERVER_SHARES_TURNS_GUESSES_H
#define RG_SERVER_SHARES_TURNS_GUESSES_H

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
uint32_t rg_guess_slot(struct rg_pacer *pacer, uint64_t key);
/** One of this kind is in the chunk. */
void rg_guess_note(struct rg_pacer *pacer, uint32_t slot);
/** The chunk has taken so long. */
void rg_guess_learn(struct rg_pacer *pacer, uint64_t took);

#endif
