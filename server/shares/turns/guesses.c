/* guesses.c - see guesses.h. */
#include "server/shares/turns/guesses.h"

uint32_t rg_guess_slot(struct rg_pacer *pacer, uint64_t key)
{
    const uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 40) % RG_PACER_KEYS;
    if (pacer->guesses[slot].key != key)
        pacer->guesses[slot] = (struct rg_pacer_guess){.key = key};
    return slot;
}

void rg_guess_note(struct rg_pacer *pacer, uint32_t slot)
{
    for (uint32_t i = 0; i < pacer->n_kinds; i++)
        if (pacer->kinds[i].slot == slot) {
            pacer->kinds[i].n++;
            return;
        }
    if (pacer->n_kinds < RG_PACER_CHUNK_KINDS) {
        pacer->kinds[pacer->n_kinds].slot = slot;
        pacer->kinds[pacer->n_kinds++].n = 1;
    }
}

/*
 * A chunk has taken so long: who took much more than was guessed is believed at once, else step by step, as the machine makes any chunk
 * a little longer or shorter. Of several kinds nobody knows which took how much, so all change by the same factor.
 */
void rg_guess_learn(struct rg_pacer *pacer, uint64_t took)
{
    for (uint32_t i = 0; i < pacer->n_kinds; i++) {
        struct rg_pacer_guess *guess = &pacer->guesses[pacer->kinds[i].slot];
        uint64_t now = took;
        if (guess->ns)
            now = (uint64_t)((unsigned __int128)guess->ns * took / pacer->planned_all);
        else if (pacer->n_kinds == 1)
            now = took / pacer->kinds[i].n;
        if (now > 100 * (guess->ns ? guess->ns : now))
            now = 100 * guess->ns; /* the rest of the chunk may have done it */
        if (now <= guess->ns)
            now = guess->ns - (guess->ns - now) / 4;
        else if (now <= guess->ns + guess->ns / 4)
            now = guess->ns + (now - guess->ns) / 4;
        guess->ns = rg_most(1, now);
    }
}
