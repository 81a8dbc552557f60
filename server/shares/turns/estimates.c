/* estimates.c - see estimates.h. */
#include "server/shares/turns/estimates.h"

#define WEIGHTY_NS 2000000ull /* a chunk of this length, or a longer one, counts fully */

uint32_t rg_estimate_slot(struct rg_pacer *pacer, uint64_t key)
{
    const uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 40) % RG_PACER_KEYS;
    if (pacer->estimates[slot].key != key)
        pacer->estimates[slot] = (struct rg_pacer_estimate){.key = key};
    return slot;
}

void rg_estimate_note(struct rg_pacer *pacer, uint32_t slot)
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

/* Of a difference, as much as a chunk of that size is believed. */
static uint64_t part(uint64_t of, uint64_t size)
{
    return (uint64_t)((unsigned __int128)of * size / WEIGHTY_NS);
}

/* How long a submission took of which `n` were in the chunk, by what was estimated (0: nothing). */
static uint64_t measured(const struct rg_pacer *pacer, uint64_t estimate, uint32_t n, uint64_t took)
{
    if (!estimate)
        return pacer->n_kinds == 1 ? took / n : took;
    const uint64_t now = (uint64_t)((unsigned __int128)estimate * took / pacer->planned_all);
    return rg_least(now, 100 * estimate); /* the rest of the chunk may have done it */
}

/*
 * Of several kinds nobody knows which took how much, so all change by the same factor. What is estimated too high makes chunks that end
 * early, with nothing to do until that is seen, so it goes down quickly; who took much longer, and more than is worth a turn, is
 * believed at once; else it goes step by step, as the machine makes any chunk a little longer or shorter. A short chunk says little:
 * waking up takes as long as its work.
 */
void rg_estimate_learn(struct rg_pacer *pacer, uint64_t least, uint64_t most)
{
    const uint64_t planned = pacer->planned_all;
    const bool shorter = most < planned;
    const bool longer = least > planned;
    const uint64_t took = shorter ? most : least, size = rg_least(rg_most(took, planned), WEIGHTY_NS);
    const bool at_once = longer && took > planned + planned / 4 + RG_TURN_LEAST_NS;
    for (uint32_t i = 0; i < pacer->n_kinds; i++) {
        struct rg_pacer_estimate *estimate = &pacer->estimates[pacer->kinds[i].slot];
        const uint64_t old = estimate->ns, n = pacer->kinds[i].n;
        if (!old)
            estimate->ns = measured(pacer, 0, (uint32_t)n, most < UINT64_MAX ? most : least);
        else if (shorter)
            estimate->ns = old - part(old - measured(pacer, old, (uint32_t)n, took), size) / 2;
        else if (longer) {
            const uint64_t more = measured(pacer, old, (uint32_t)n, took) - old;
            estimate->ns = old + (at_once ? more : part(more, size) / 4);
        }
        estimate->ns = rg_most(1, estimate->ns);
    }
}
