/* adaptive.c - see adaptive.h. */
#include "common/sync/adaptive.h"

#include <stdbool.h>

static uint64_t within(uint64_t value, const struct rg_adaptive_range *range)
{
    return value < range->least ? range->least : value > range->most ? range->most : value;
}

static void set(struct rg_adaptive *adaptive, uint64_t value)
{
    atomic_store_explicit(&adaptive->value, value, memory_order_relaxed);
}

uint64_t rg_adaptive_raise(struct rg_adaptive *adaptive, const struct rg_adaptive_range *range)
{
    const uint64_t now = atomic_load_explicit(&adaptive->value, memory_order_relaxed);
    const uint64_t next = !now ? range->first : within(now > range->most / 2 ? range->most : 2 * now, range);
    set(adaptive, next);
    return next;
}

void rg_adaptive_follow(struct rg_adaptive *adaptive, const struct rg_adaptive_range *range,
                        uint64_t measured)
{
    const uint64_t now = rg_adaptive_get(adaptive, range);
    const uint64_t next = within(measured / 2 < now ? measured : 2 * now, range);
    if (next != now)
        set(adaptive, next);
}

/* A trial is over; returns what to do now. */
static enum rg_trial_step judge(struct rg_trial *trial, const struct rg_trial_settings *settings,
                                double worth_it)
{
    const bool faster = trial->rate > trial->before * worth_it;
    trial->state = RG_TRIAL_MEASURING;
    if (faster)
        rg_adaptive_reset(&trial->pause);
    trial->rest = faster ? 0 : rg_adaptive_raise(&trial->pause, &settings->pause_bytes);
    return faster ? RG_TRIAL_KEEP : RG_TRIAL_GIVE_UP;
}

enum rg_trial_step rg_trial_sent(struct rg_trial *trial, const struct rg_trial_settings *settings,
                                 uint64_t size, uint64_t ns, double worth_it)
{
    trial->bytes += size;
    trial->ns += ns;
    trial->rest -= trial->rest < size ? trial->rest : size;
    if (trial->bytes < settings->window_bytes || trial->ns < settings->window_ns)
        return RG_TRIAL_GO_ON;
    trial->rate = (double)trial->bytes * 1e9 / (double)trial->ns;
    trial->bytes = trial->ns = 0;
    switch (trial->state) {
    case RG_TRIAL_SETTLING:
        trial->state = RG_TRIAL_TRYING;
        return RG_TRIAL_GO_ON;
    case RG_TRIAL_TRYING:
        return judge(trial, settings, worth_it);
    default:
        return trial->rest ? RG_TRIAL_GO_ON : RG_TRIAL_READY;
    }
}

void rg_trial_begin(struct rg_trial *trial)
{
    trial->before = trial->rate;
    trial->state = RG_TRIAL_SETTLING;
}

void rg_trial_reset(struct rg_trial *trial)
{
    *trial = (struct rg_trial){0};
}
