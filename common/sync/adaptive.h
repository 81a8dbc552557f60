/*
 * adaptive.h - figures that a program finds out while it runs: how long to pause, how much to send at once, whether the other
 * of two ways is faster.
 *
 * struct rg_adaptive is one figure within a range. It doubles (after a failure, if it is a pause; after a success, if it is an
 * amount), starts over, or follows what is measured, to at most twice as much at a time.
 *
 * struct rg_trial compares two ways of sending. It measures the rate of the one in use over windows; its owner, who knows
 * whether there is another, changes over and says so (rg_trial_begin). The first window after that shows both and does not
 * count. The next decides: the other way is kept, or given up, and then it is tried again after a pause, each longer than the
 * last. Pauses are amounts of data, so what sends little tries little.
 *
 *   MEASURING --begin--> SETTLING --window--> TRYING --window--> MEASURING   (rg_trial_sent returns KEEP or GIVE_UP)
 *
 * Threads: a figure is read and changed by any; a trial has a lock of its owner's.
 */
#ifndef RG_COMMON_SYNC_ADAPTIVE_H
#define RG_COMMON_SYNC_ADAPTIVE_H

#include <stdatomic.h>
#include <stdint.h>

/** What a figure may be: where it starts, and how small and large it gets. */
struct rg_adaptive_range {
    uint64_t least, first, most;
};

/** Zeroed: it has yet to start. */
struct rg_adaptive {
    _Atomic uint64_t value;
};

/** The figure, `first` before it has started. */
static inline uint64_t rg_adaptive_get(const struct rg_adaptive *adaptive,
                                       const struct rg_adaptive_range *range)
{
    const uint64_t value = atomic_load_explicit(&adaptive->value, memory_order_relaxed);
    return value ? value : range->first;
}
/** The first time starts it, each further one doubles it; returns what it is now. */
uint64_t rg_adaptive_raise(struct rg_adaptive *adaptive, const struct rg_adaptive_range *range);
/** It has been measured: takes that on, within its range and up to twice of what it was. */
void rg_adaptive_follow(struct rg_adaptive *adaptive, const struct rg_adaptive_range *range,
                        uint64_t measured);
/** It starts over. */
static inline void rg_adaptive_reset(struct rg_adaptive *adaptive)
{
    atomic_store_explicit(&adaptive->value, 0, memory_order_relaxed);
}

/** A mean of what was measured that forgets: a quarter of what is new. 0: nothing was measured. */
static inline double rg_smoothed(double mean, double next)
{
    return mean > 0 ? mean + (next - mean) / 4 : next;
}

enum rg_trial_state { RG_TRIAL_MEASURING, RG_TRIAL_SETTLING, RG_TRIAL_TRYING };

struct rg_trial_settings {
    uint64_t window_bytes, window_ns;     /* a rate is measured over as much, and as long */
    struct rg_adaptive_range pause_bytes; /* of trials that were given up */
};

/** Zeroed: MEASURING. */
struct rg_trial {
    enum rg_trial_state state;
    uint64_t bytes, ns, rest; /* of this window; `rest`: bytes until the next trial */
    double rate, before;      /* bytes a second: of the last window; of the last before the trial */
    struct rg_adaptive pause;
};

enum rg_trial_step {
    RG_TRIAL_GO_ON,
    RG_TRIAL_READY,   /* a rate is known and the pause is over: the other way may be tried, if there is one */
    RG_TRIAL_KEEP,    /* it is faster */
    RG_TRIAL_GIVE_UP, /* it is not */
};

/** `size` bytes took so long. `worth_it`: how many times as fast the other way must be. */
enum rg_trial_step rg_trial_sent(struct rg_trial *trial, const struct rg_trial_settings *settings,
                                 uint64_t size, uint64_t ns, double worth_it);
/** The other way is taken from now on. */
void rg_trial_begin(struct rg_trial *trial);
/** What was measured means nothing any more, as the ways have changed. */
void rg_trial_reset(struct rg_trial *trial);

#endif
