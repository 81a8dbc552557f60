/* estimates.c - see estimates.h. */
#include "server/shares/turns/estimates.h"

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

/*
 * A chunk has taken so long: who took much more than was estimated is believed at once, else step by step, as the machine makes any chunk
 * a little longer or shorter. Of several kinds nobody knows which took how much, so all change by the same factor.
 */
void rg_estimate_learn(struct rg_pacer *pacer, uint64_t took)
{
    for (uint32_t i = 0; i < pacer->n_kinds; i++) {
        struct rg_pacer_estimate *estimate = &pacer->estimates[pacer->kinds[i].slot];
        uint64_t now = took;
        if (estimate->ns)
            now = (uint64_t)((unsigned __int128)estimate->ns * took / pacer->planned_all);
        else if (pacer->n_kinds == 1)
            now = took / pacer->kinds[i].n;
        if (now > 100 * (estimate->ns ? estimate->ns : now))
            now = 100 * estimate->ns; /* the rest of the chunk may have done it */
        if (now <= estimate->ns)
            now = estimate->ns - (estimate->ns - now) / 4;
        else if (now <= estimate->ns + estimate->ns / 4)
            now = estimate->ns + (now - estimate->ns) / 4;
        estimate->ns = rg_most(1, now);
    }
}
