/* cap.c - see cap.h. */
#include "server/shares/turns/cap.h"

#include "server/shares/turns/turns.h"

#define MILLION 1000000ll

static int64_t burst(const struct rg_cap *cap)
{
    return (int64_t)(RG_CAP_BURST_NS * cap->millionths / MILLION);
}

void rg_cap_set(struct rg_cap *cap, uint32_t millionths, uint64_t now)
{
    if (millionths == cap->millionths)
        return;
    cap->millionths = millionths;
    cap->filled_at = now;
    cap->bucket = burst(cap) / 4;
}

void rg_cap_fill(struct rg_cap *cap, uint64_t now)
{
    if (!cap->millionths || now <= cap->filled_at)
        return;
    const uint64_t most = (uint64_t)RG_TURN_DEBT_MAX_NS * MILLION / cap->millionths;
    const uint64_t passed = now - cap->filled_at < most ? now - cap->filled_at : most;
    const int64_t gain = (int64_t)((unsigned __int128)passed * cap->millionths / MILLION);
    if (gain == 0)
        return;
    cap->filled_at = now;
    cap->bucket = cap->bucket + gain < burst(cap) ? cap->bucket + gain : burst(cap);
}

void rg_cap_charge(struct rg_cap *cap, uint64_t used)
{
    if (!cap->millionths)
        return;
    const int64_t most = RG_TURN_DEBT_MAX_NS;
    cap->bucket -= used < (uint64_t)most ? (int64_t)used : most;
    if (cap->bucket < -most)
        cap->bucket = -most;
}

bool rg_cap_is_spent(const struct rg_cap *cap)
{
    return cap->millionths && cap->bucket <= burst(cap) / 16;
}

uint64_t rg_cap_pays(const struct rg_cap *cap)
{
    if (!cap->millionths || cap->millionths >= MILLION)
        return UINT64_MAX;
    return cap->bucket > 0 ? (uint64_t)cap->bucket * MILLION / (uint64_t)(MILLION - cap->millionths) : 0;
}

uint64_t rg_cap_until(struct rg_cap *cap, uint64_t now)
{
    rg_cap_fill(cap, now);
    if (!cap->millionths)
        return 0;
    if (rg_cap_is_spent(cap)) {
        const int64_t missing = burst(cap) / 2 + 1 - cap->bucket;
        cap->resume_at = now + (uint64_t)missing * MILLION / cap->millionths;
    }
    return cap->resume_at > now ? cap->resume_at : 0;
}
