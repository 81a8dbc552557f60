/* event_time_cache.c - the time between two events is known for the very records that it was asked of, and no others. */
#include "client/timeline/event_time_cache.h"

#include <criterion/criterion.h>

Test(event_time_cache, is_wanted_once_it_was_asked_for)
{
    struct rg_event_timeline end = {0};
    cr_assert_eq(rg_event_time_wanted(&end).since, 0);
    rg_event_time_learn(&end, 7, 2);
    const struct rg_event_time_hint hint = rg_event_time_wanted(&end);
    cr_assert_eq(hint.since, 7);
    cr_assert_eq(hint.version, 2);
}

Test(event_time_cache, holds_for_both_records)
{
    struct rg_event_timeline end = {0};
    const struct rg_event_time_hint time = {.since = 7, .version = 2, .from = 10, .to = 20};
    float ms = 0;
    rg_event_time_arrived(&end, &time, 1.5f); /* it was not asked for */
    cr_assert(!rg_event_time_find(&end, &time, &ms));
    rg_event_time_learn(&end, 7, 2);
    rg_event_time_arrived(&end, &time, -1); /* the worker does not know */
    cr_assert(!rg_event_time_find(&end, &time, &ms));
    rg_event_time_arrived(&end, &time, 1.5f);
    cr_assert(rg_event_time_find(&end, &time, &ms));
    cr_assert_eq(ms, 1.5f);
    struct rg_event_time_hint other = time;
    other.from = 11; /* the start was recorded again */
    cr_assert(!rg_event_time_find(&end, &other, &ms));
    other = time;
    other.to = 21;
    cr_assert(!rg_event_time_find(&end, &other, &ms));
    other = time;
    other.version = 1;
    cr_assert(!rg_event_time_find(&end, &other, &ms));
}

Test(event_time_cache, forgets_when_another_start_is_asked_for)
{
    struct rg_event_timeline end = {0};
    const struct rg_event_time_hint time = {.since = 7, .version = 2, .from = 10, .to = 20};
    float ms;
    rg_event_time_learn(&end, 7, 2);
    rg_event_time_arrived(&end, &time, 1.5f);
    rg_event_time_learn(&end, 8, 2);
    cr_assert(!rg_event_time_find(&end, &time, &ms));
    rg_event_time_arrived(&end, &time, 1.5f); /* a late answer */
    cr_assert(!rg_event_time_find(&end, &time, &ms));
}
