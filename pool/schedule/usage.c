/* usage.c - use that is forgotten by halves, and the policy unless the operator says otherwise. */
#include "common/base/limits.h"
#include "pool/schedule.h"

#include <math.h>
#include <string.h>

#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)

void rg_pool_policy_default(struct rg_pool_policy *policy)
{
    *policy = (struct rg_pool_policy){
        .strategy = RG_POOL_PACK,
        .half_life = 7 * 24 * HOUR,
        .charge_ahead = HOUR,
        .patience = 24 * HOUR,
        .reservations = 8,
        .servers_max = RG_SERVERS_MAX,
        .preempt = false,
        .preempt_after = 60 * SECOND,
    };
}

uint64_t rg_pool_usage_decayed(uint64_t usage, uint64_t elapsed, uint64_t half_life)
{
    if (!half_life)
        return usage;
    const uint64_t halves = elapsed / half_life;
    if (halves >= 64)
        return 0;
    const double rest = (double)(elapsed % half_life) / (double)half_life;
    return (uint64_t)((double)(usage >> halves) * exp2(-rest));
}

void rg_pool_account_charge(struct rg_pool_account *account, uint64_t gpu_millionths, uint64_t held,
                            uint64_t now, uint64_t half_life)
{
    if (now > account->as_of) {
        account->usage = rg_pool_usage_decayed(account->usage, now - account->as_of, half_life);
        account->as_of = now;
    }
    const unsigned __int128 used = (unsigned __int128)gpu_millionths * held / 1000000 / 1000000;
    const unsigned __int128 sum = used + account->usage;
    account->usage = sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
}
