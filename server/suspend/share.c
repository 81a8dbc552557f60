/* share.c - see share.h. */
#include "server/suspend/share.h"

void rg_suspend_show(enum rg_share_state state)
{
    if (rg_share.slot)
        atomic_store(&rg_share.slot->usage.state, (uint32_t)state);
}

void rg_suspend_answer(enum rg_suspend_result result)
{
    if (!rg_share.slot)
        return;
    atomic_store(&rg_share.slot->usage.suspended, (uint32_t)result);
    atomic_fetch_add(&rg_share.slot->usage.suspensions, 1);
}

bool rg_suspend_is_preempted(void)
{
    struct rg_share_grant grant = {0};
    if (rg_share.slot)
        rg_share_slot_get(rg_share.slot, &grant, NULL);
    return grant.preempted;
}

void rg_suspend_answer_preemption(enum rg_suspend_result result)
{
    if (!rg_share.slot)
        return;
    atomic_store(&rg_share.slot->usage.preempted, (uint32_t)result);
    atomic_fetch_add(&rg_share.slot->usage.preemptions, 1);
}

uint64_t rg_suspend_granted_ns(void)
{
    struct rg_share_grant grant = {0};
    if (rg_share.slot)
        rg_share_slot_get(rg_share.slot, &grant, NULL);
    return grant.idle_timeout_ns;
}

void rg_suspend_give(struct rg_suspend_charges *charges)
{
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        struct rg_share_account *account = &rg_share.accounts[i];
        const uint64_t guaranteed = atomic_load(&account->device.page->places[account->place].guaranteed);
        if (guaranteed) /* else it has not got it back since the last time */
            charges->guaranteed[i] = guaranteed;
        charges->held[i] = rg_share_held(account);
        rg_share_refund(account, charges->held[i]);
        if (!rg_share_guarantee(&account->device, account->place, 0)) /* less is always possible */
            charges->guaranteed[i] = 0;
    }
}

/* What it had was within its limit, or was the driver's own beyond that: only the device counts. */
static bool take_one(const struct rg_share_account *account, uint64_t bytes)
{
    struct rg_share_account whole = *account;
    whole.limit = 0;
    if (rg_share_charge(&whole, bytes))
        return true;
    if (rg_share_owed(&account->device) > 0)
        return false;
    rg_share_charge_anyway(&whole, bytes); /* nobody has anything, and the driver says what there is */
    return true;
}

bool rg_suspend_take(const struct rg_suspend_charges *charges)
{
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        if (!charges->held[i] || take_one(&rg_share.accounts[i], charges->held[i]))
            continue;
        while (i-- > 0)
            rg_share_refund(&rg_share.accounts[i], charges->held[i]);
        return false;
    }
    return true;
}

void rg_suspend_ask_guarantees(struct rg_suspend_charges *charges)
{
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        struct rg_share_account *account = &rg_share.accounts[i];
        if (charges->guaranteed[i] &&
            rg_share_guarantee(&account->device, account->place, charges->guaranteed[i]))
            charges->guaranteed[i] = 0;
    }
}
