/*
 * striping.c - whether rails carry the large bulk data that this side sends, or the first connection does it
 * alone.
 *
 * Where the owner leaves that open (adaptive), the first connection begins; what it carries is measured, and
 * then what all rails together carry: a tenth more is what they must bring. If they do not, that is tried
 * again after 1 GiB, then 2, and so on. One rail is never used instead of the first connection, which goes by
 * the best adapter anyway.
 */
#include "transport/multirail/internal.h"

#include "common/sync/scoped_lock.h"

static const struct rg_trial_settings settings = {
    .window_bytes = 16 << 20,
    .window_ns = 5000000,
    .pause_bytes = {.least = 1ull << 30, .first = 1ull << 30, .most = 1ull << 36},
};
static const double worth_it = 1.1;

void rg_striping_reset(struct multirail *m)
{
    const unsigned living = rg_rails_living(m);
    if (!m->options.adaptive)
        atomic_store(&m->striping, living > 0);
    else if (living < 2)
        atomic_store(&m->striping, false);
    rg_trial_reset(&m->rails_trial); /* what was measured was with others */
}

void rg_striping_sent(struct multirail *m, size_t size, uint64_t ns, bool striped)
{
    struct rg_trial *trial = &m->rails_trial;
    if (!m->options.adaptive)
        return;
    RG_SCOPED_LOCK(&m->f.lock);
    const bool on = atomic_load(&m->striping);
    /* else it is from before */
    const enum rg_trial_step step =
        striped == on ? rg_trial_sent(trial, &settings, size, ns, worth_it) : RG_TRIAL_GO_ON;
    if (step == RG_TRIAL_KEEP || step == RG_TRIAL_GIVE_UP) {
        rg_info("%s: large transfers by %u rails: %.0f MB/s, by one adapter alone %.0f MB/s", m->f.head.peer,
                rg_rails_living(m), trial->rate / 1e6, trial->before / 1e6);
        atomic_store(&m->striping, step == RG_TRIAL_KEEP);
    } else if (step == RG_TRIAL_READY && !on && rg_rails_living(m) > 1) {
        rg_trial_begin(trial);
        atomic_store(&m->striping, true);
    }
}
