/* adaptive.c - figures stay in their range; trials keep what is faster and rest longer each time it is not. */
#include "common/sync/adaptive.h"

#include <criterion/criterion.h>

static const struct rg_adaptive_range range = {.least = 5, .first = 10, .most = 100};

Test(adaptive, it_doubles_up_to_the_most)
{
    struct rg_adaptive figure = {0};
    cr_assert_eq(rg_adaptive_get(&figure, &range), 10);
    const uint64_t expected[] = {10, 20, 40, 80, 100, 100};
    for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++)
        cr_assert_eq(rg_adaptive_raise(&figure, &range), expected[i]);
    rg_adaptive_reset(&figure);
    cr_assert_eq(rg_adaptive_raise(&figure, &range), 10);
}

Test(adaptive, doubling_does_not_overflow)
{
    const struct rg_adaptive_range all = {1, UINT64_MAX / 2 + 2, UINT64_MAX};
    struct rg_adaptive figure = {0};
    rg_adaptive_raise(&figure, &all);
    cr_assert_eq(rg_adaptive_raise(&figure, &all), UINT64_MAX);
    rg_adaptive_follow(&figure, &all, UINT64_MAX);
    cr_assert_eq(rg_adaptive_get(&figure, &all), UINT64_MAX);
}

Test(adaptive, it_follows_what_is_measured)
{
    struct rg_adaptive figure = {0};
    rg_adaptive_follow(&figure, &range, 15);
    cr_assert_eq(rg_adaptive_get(&figure, &range), 15);
    rg_adaptive_follow(&figure, &range, 1000);
    cr_assert_eq(rg_adaptive_get(&figure, &range), 30);
    rg_adaptive_follow(&figure, &range, 0);
    cr_assert_eq(rg_adaptive_get(&figure, &range), 5);
}

Test(adaptive, means_forget)
{
    double mean = rg_smoothed(0, 8);
    cr_assert_eq(mean, 8);
    mean = rg_smoothed(mean, 4);
    cr_assert_eq(mean, 7);
}

static const struct rg_trial_settings settings = {
    .window_bytes = 100, .window_ns = 100, .pause_bytes = {1000, 1000, 4000}};

/* One window at so many bytes in 100 ns. */
static enum rg_trial_step window(struct rg_trial *trial, uint64_t bytes)
{
    return rg_trial_sent(trial, &settings, bytes, 100, 1.1);
}

Test(trial, a_rate_takes_a_window)
{
    struct rg_trial trial = {0};
    cr_assert_eq(rg_trial_sent(&trial, &settings, 1000, 99, 1.1), RG_TRIAL_GO_ON);
    cr_assert_eq(rg_trial_sent(&trial, &settings, 0, 1, 1.1), RG_TRIAL_READY);
    cr_assert_eq(trial.rate, 1000 * 1e9 / 100);
}

Test(trial, what_is_faster_is_kept)
{
    struct rg_trial trial = {0};
    cr_assert_eq(window(&trial, 200), RG_TRIAL_READY);
    rg_trial_begin(&trial);
    cr_assert_eq(window(&trial, 100), RG_TRIAL_GO_ON); /* settles */
    cr_assert_eq(window(&trial, 230), RG_TRIAL_KEEP);
    cr_assert_eq(window(&trial, 230), RG_TRIAL_READY); /* for one more */
}

Test(trial, what_is_not_is_tried_more_and_more_rarely)
{
    struct rg_trial trial = {0};
    const unsigned pauses[] = {1000, 2000, 4000, 4000};
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(window(&trial, 200), RG_TRIAL_READY);
        rg_trial_begin(&trial);
        cr_assert_eq(window(&trial, 900), RG_TRIAL_GO_ON);
        cr_assert_eq(window(&trial, 210), RG_TRIAL_GIVE_UP);
        for (unsigned bytes = 200; bytes < pauses[i]; bytes += 200)
            cr_assert_eq(window(&trial, 200), RG_TRIAL_GO_ON);
    }
    rg_trial_reset(&trial);
    cr_assert_eq(window(&trial, 200), RG_TRIAL_READY);
}
