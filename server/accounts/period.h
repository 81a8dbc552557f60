/*
 * period.h - days and months, in UTC, as spans of hours; and whether the wall clock can be believed so far that old figures may be
 * removed by it. Pure functions; any thread.
 */
#ifndef RG_SERVER_ACCOUNTS_PERIOD_H
#define RG_SERVER_ACCOUNTS_PERIOD_H

#include "server/accounts/figures.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** [begin, end) */
struct rg_period {
    rg_hour begin, end;
};

/** The day or the month that an hour lies in. */
struct rg_period rg_period_day(rg_hour hour);
struct rg_period rg_period_month(rg_hour hour);

/* A clock that has jumped by more is believed again after RG_CLOCK_DOUBT_S. */
#define RG_CLOCK_JUMP_S  (7 * 86400)
#define RG_CLOCK_DOUBT_S (7 * 86400)

/**
 * What is known of the clock: kept in the accounts. `seen`: what it said last; `jumped`: what it said after it had jumped, 0: it has
 * not. Seconds since 1970.
 */
struct rg_clock_history {
    int64_t seen, jumped;
};
/** Notes what the clock says now. True: by this clock, what is old may be removed. */
bool rg_clock_is_believed(struct rg_clock_history *history, int64_t now);

#endif
