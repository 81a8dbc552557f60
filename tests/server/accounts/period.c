/* period.c - days, months, and whether a clock is believed. */
#include "server/accounts/period.h"

#include <criterion/criterion.h>

/* hours since 1970, by date -u -d DATE +%s / 3600 */
#define JAN_1_2026  490896
#define FEB_28_2028 509808
#define MAR_1_2028  509856

Test(period, day)
{
    const struct rg_period day = rg_period_day(JAN_1_2026 + 23);
    cr_expect_eq(day.begin, JAN_1_2026);
    cr_expect_eq(day.end, JAN_1_2026 + 24);
}

Test(period, month)
{
    struct rg_period month = rg_period_month(JAN_1_2026 + 24 * 30);
    cr_expect_eq(month.begin, JAN_1_2026);
    cr_expect_eq(month.end, JAN_1_2026 + 24 * 31);
    month = rg_period_month(JAN_1_2026 - 1); /* December: the next one is of another year */
    cr_expect_eq(month.begin, JAN_1_2026 - 24 * 31);
    cr_expect_eq(month.end, JAN_1_2026);
    month = rg_period_month(FEB_28_2028);
    cr_expect_eq(month.end, MAR_1_2028); /* a leap year */
    month = rg_period_month(0);
    cr_expect_eq(month.begin, 0);
    cr_expect_eq(month.end, 24 * 31);
}

#define DAY 86400
#define NOW 1790000000

Test(period, a_clock_is_believed)
{
    struct rg_clock_history clock = {0};
    cr_expect(rg_clock_is_believed(&clock, NOW)); /* the first time there is nothing that could be lost */
    cr_expect(rg_clock_is_believed(&clock, NOW + DAY));
    cr_expect(rg_clock_is_believed(&clock, NOW + DAY - 2));
}

Test(period, one_that_has_jumped_is_not)
{
    struct rg_clock_history clock = {.seen = NOW};
    cr_expect_not(rg_clock_is_believed(&clock, NOW + 3650ll * DAY));
    cr_expect_not(rg_clock_is_believed(&clock, NOW + 3651ll * DAY));
    cr_expect_not(rg_clock_is_believed(&clock, NOW)); /* and back */
    cr_expect_not(rg_clock_is_believed(&clock, NOW + 6 * DAY));
    cr_expect(rg_clock_is_believed(&clock, NOW + 8 * DAY));
    cr_expect(rg_clock_is_believed(&clock, NOW + 9 * DAY));
}
