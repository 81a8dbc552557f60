/* period.c - see period.h. */
#include "server/accounts/period.h"

#include <time.h>

struct rg_period rg_period_day(rg_hour hour)
{
    const rg_hour begin = hour - hour % 24;
    return (struct rg_period){begin, begin + 24};
}

/* The first hour of a month, counted from January 1900, which is in range for any clock of the kernel's. */
static rg_hour first_of(int months)
{
    struct tm begin = {.tm_year = months / 12, .tm_mon = months % 12, .tm_mday = 1};
    return (rg_hour)(timegm(&begin) / 3600);
}

struct rg_period rg_period_month(rg_hour hour)
{
    const time_t at = (time_t)hour * 3600;
    struct tm date;
    if (!gmtime_r(&at, &date))
        return rg_period_day(hour);
    const int months = date.tm_year * 12 + date.tm_mon;
    return (struct rg_period){first_of(months), first_of(months + 1)};
}

bool rg_clock_is_believed(struct rg_clock_history *history, int64_t now)
{
    const bool jumped =
        history->seen && (now - history->seen > RG_CLOCK_JUMP_S || history->seen - now > RG_CLOCK_JUMP_S);
    history->seen = now;
    if (jumped)
        history->jumped = now;
    if (history->jumped && now - history->jumped < RG_CLOCK_DOUBT_S)
        return false;
    history->jumped = 0;
    return true;
}
