/* figures.c - measuring: what is added, who is believed how far, and what a clock that jumps does (nothing). */
#include "server/accounts/figures.h"

#include <criterion/criterion.h>

#include <string.h>

#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)
#define WALL   (490000 * HOUR) /* a full hour in 2025 */

static struct rg_figures_slice slices[RG_SLICES_MAX];

static const struct rg_figures_sample two_gpus = {.n_devices = 2, .capacity_bytes = 1000};

static bool are_zero(const struct rg_figures *figures)
{
    static const struct rg_figures none;
    return memcmp(figures, &none, sizeof none) == 0;
}

Test(figures, held_is_time_times_gpus)
{
    struct rg_usage_meter meter = RG_METER_INIT(5 * SECOND);
    cr_assert_eq(rg_meter_sample(&meter, &two_gpus, 8 * SECOND, WALL + 10 * SECOND, slices), 1);
    cr_expect_eq(slices[0].hour, 490000);
    cr_expect_eq(slices[0].figures.held_ns, 6 * SECOND);
    cr_assert_eq(rg_meter_sample(&meter, &two_gpus, 8 * SECOND, WALL + 10 * SECOND, slices), 1);
    cr_expect(are_zero(&slices[0].figures));
    cr_expect_eq(meter.total.held_ns, 6 * SECOND);
}

Test(figures, what_a_worker_says_is_bounded)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    struct rg_figures_sample sample = two_gpus;
    sample.busy_ns = UINT64_MAX;
    sample.bytes_in = sample.bytes_out = sample.launches = UINT64_MAX;
    sample.used_bytes = sample.peak_bytes = UINT64_MAX;
    rg_meter_sample(&meter, &sample, SECOND, WALL + SECOND, slices);
    cr_expect_eq(meter.total.busy_ns, 2 * SECOND);
    cr_expect_eq(meter.total.bytes_in, 2 * RG_FIGURES_BYTES_PER_S);
    cr_expect_eq(meter.total.launches, 2 * RG_FIGURES_LAUNCHES_PER_S);
    cr_expect_eq(meter.total.peak_bytes, 1000);
    cr_expect_eq(meter.total.byte_seconds, 1000);
    /* counters that go back take nothing away */
    rg_meter_sample(&meter, &two_gpus, 2 * SECOND, WALL + 2 * SECOND, slices);
    cr_expect_eq(meter.total.busy_ns, 2 * SECOND);
    cr_expect_eq(meter.total.bytes_in, 2 * RG_FIGURES_BYTES_PER_S);
}

Test(figures, counters_are_exact)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    struct rg_figures_sample sample = two_gpus;
    sample.bytes_in = 12345;
    sample.launches = 7;
    rg_meter_sample(&meter, &sample, 0, WALL, slices); /* at once */
    sample.bytes_in += 55;
    sample.launches += 1;
    rg_meter_sample(&meter, &sample, SECOND, WALL + 2 * SECOND, slices);
    cr_expect_eq(meter.total.bytes_in, 12400);
    cr_expect_eq(meter.total.launches, 8);
    cr_expect_eq(slices[0].figures.launches, 1);
}

Test(figures, granted_memory_counts_rather_than_used)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    struct rg_figures_sample sample = two_gpus;
    sample.granted_bytes = 600;
    sample.used_bytes = 10;
    rg_meter_sample(&meter, &sample, 2 * SECOND, WALL, slices);
    cr_expect_eq(meter.total.byte_seconds, 1200);
}

Test(figures, byte_seconds_lose_nothing_to_rounding)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    struct rg_figures_sample sample = two_gpus;
    sample.granted_bytes = 3;
    for (int i = 1; i <= 1000; i++)
        rg_meter_sample(&meter, &sample, i * (SECOND / 10), WALL, slices);
    cr_expect_eq(meter.total.byte_seconds, 300);
}

Test(figures, an_hour_ends)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    struct rg_figures_sample sample = two_gpus;
    sample.busy_ns = 8 * SECOND;
    sample.launches = 9;
    cr_assert_eq(rg_meter_sample(&meter, &sample, 4 * SECOND, WALL + SECOND, slices), 2);
    cr_expect_eq(slices[0].hour, 489999);
    cr_expect_eq(slices[0].figures.held_ns, 6 * SECOND);
    cr_expect_eq(slices[0].figures.busy_ns, 6 * SECOND);
    cr_expect_eq(slices[0].figures.launches, 0);
    cr_expect_eq(slices[1].hour, 490000);
    cr_expect_eq(slices[1].figures.held_ns, 2 * SECOND);
    cr_expect_eq(slices[1].figures.launches, 9);
    /* exactly at the full hour */
    meter = RG_METER_INIT(0);
    cr_assert_eq(rg_meter_sample(&meter, &two_gpus, SECOND, WALL, slices), 2);
    cr_expect_eq(slices[0].figures.held_ns, 2 * SECOND);
    cr_expect_eq(slices[1].figures.held_ns, 0);
}

Test(figures, a_monitor_that_was_stopped_for_days)
{
    struct rg_usage_meter meter = RG_METER_INIT(0);
    uint64_t sum = 0;
    const unsigned n = rg_meter_sample(&meter, &two_gpus, 100 * HOUR, WALL + HOUR / 2, slices);
    cr_assert_eq(n, RG_SLICES_MAX);
    for (unsigned i = 0; i < n; i++) {
        sum += slices[i].figures.held_ns;
        cr_expect(i == 0 || slices[i].figures.held_ns <= 2 * HOUR);
    }
    cr_expect_eq(sum, 200 * HOUR);
}

/* Whatever the clocks say, sums are the time that has passed. */
Test(figures, clocks_that_jump)
{
    static const uint64_t walls[] = {WALL, 0, UINT64_MAX, 1, WALL + 1, UINT64_MAX - 1, WALL - 100 * HOUR,
                                     WALL};
    struct rg_usage_meter meter = RG_METER_INIT(0);
    uint64_t sum = 0;
    for (unsigned i = 0; i < sizeof walls / sizeof *walls; i++) {
        const unsigned n = rg_meter_sample(&meter, &two_gpus, (i + 1) * SECOND, walls[i], slices);
        cr_assert(n >= 1 && n <= RG_SLICES_MAX);
        for (unsigned j = 0; j < n; j++)
            sum += slices[j].figures.held_ns;
    }
    cr_expect_eq(sum, 2 * SECOND * (sizeof walls / sizeof *walls));
    /* the monotonic one does not go back; if it did, nothing would be added */
    rg_meter_sample(&meter, &two_gpus, SECOND, WALL, slices);
    cr_expect(are_zero(&slices[0].figures));
}

Test(figures, sums_do_not_begin_anew)
{
    struct rg_figures a = {.held_ns = UINT64_MAX - 1, .peak_bytes = 5};
    const struct rg_figures b = {.held_ns = 5, .peak_bytes = 3};
    rg_figures_add(&a, &b);
    cr_expect_eq(a.held_ns, UINT64_MAX);
    cr_expect_eq(a.peak_bytes, 5);
}
