/* preemption.c - see preemption.h. */
#include "server/daemon/grant/preemption.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/daemon/sessions/sessions.h"

#include <signal.h>

#define S 1000000000ull

#define ASKED_LOOK_NS (S / 100)
#define AWAY_LOOK_NS  (S / 5)
#define PATIENCE_NS   (12 * S) /* a worker gives up before (server/suspend/suspend.c) */
#define ALONE_NS      (30 * S) /* so long who could not be suspended is let alone */

static enum rg_share_state shown_state(const struct rg_session_entry *entry)
{
    return (enum rg_share_state)atomic_load(&entry->share.slot->usage.state);
}

/* --- one session ------------------------------------------------------------------------------------------ */

static void enter(struct rg_session_entry *entry, enum rg_preemption_state state)
{
    const union sigval look = {.sival_int = (int)RG_SUSPEND_LOOK};
    struct rg_share_grant *grant = &entry->share.grant;
    const bool preempted = state == RG_PREEMPTION_ASKED || state == RG_PREEMPTION_AWAY;
    entry->preemption.state = state;
    entry->preemption.since_ns = rg_now_ns();
    if (grant->preempted == preempted)
        return;
    grant->preempted = preempted;
    rg_share_slot_set(entry->share.slot, grant);
    (void)sigqueue(entry->pid, RG_SUSPEND_SIGNAL, look); /* what is not read yet wakes it as well */
}

static void ask(struct rg_sessions *sessions, struct rg_session_entry *entry)
{
    struct rg_preemption *preemption = &entry->preemption;
    preemption->count = atomic_load(&entry->share.slot->usage.preemptions);
    for (uint32_t i = 0; i < entry->share.grant.n_devices; i++)
        preemption->bytes[i] = rg_shares_owed_to(&sessions->shares, &entry->share.grant.devices[i]);
    rg_info("session %llu is to be suspended for one of higher priority", (unsigned long long)entry->info.id);
    enter(entry, RG_PREEMPTION_ASKED);
}

/* Why it could not be, as its worker says. */
static enum rg_suspend_result result_of(const struct rg_share_usage *usage, bool answered)
{
    const uint32_t result = answered ? atomic_load(&usage->preempted) : RG_SUSPEND_BUSY;
    return result > RG_SUSPEND_DONE && result <= RG_SUSPEND_REFUSED ? (enum rg_suspend_result)result
                                                                    : RG_SUSPEND_BUSY;
}

/* What has come of it. */
static void look_at(struct rg_session_entry *entry)
{
    const struct rg_share_usage *usage = &entry->share.slot->usage;
    struct rg_preemption *preemption = &entry->preemption;
    if (preemption->state == RG_PREEMPTION_ASKED) {
        const bool answered = atomic_load(&usage->preemptions) != preemption->count;
        if (answered && atomic_load(&usage->preempted) == RG_SUSPEND_DONE) {
            enter(entry, RG_PREEMPTION_AWAY);
        } else if (answered || rg_now_ns() - preemption->since_ns > PATIENCE_NS) {
            rg_info("session %llu could not be suspended for one of higher priority, and goes on",
                    (unsigned long long)entry->info.id);
            preemption->result = result_of(usage, answered);
            enter(entry, RG_PREEMPTION_NONE);
        }
    } else if (preemption->state == RG_PREEMPTION_BACK && shown_state(entry) != RG_SHARE_RESUMING &&
               shown_state(entry) != RG_SHARE_SUSPENDED) {
        preemption->state = RG_PREEMPTION_NONE;
        preemption->since_ns = 0;
    }
}

static void look_at_all(struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->share.slot)
            look_at(sessions->entries[i]);
}

/* --- making room ------------------------------------------------------------------------------------------ */

/* What a session has, or had before it was asked, of the device of that number. */
static uint64_t part_of(const struct rg_sessions *sessions, const struct rg_session_entry *entry,
                        uint32_t ordinal)
{
    const struct rg_share_grant *grant = &entry->share.grant;
    for (uint32_t i = 0; i < grant->n_devices; i++)
        if (grant->devices[i].ordinal == ordinal)
            return entry->preemption.state == RG_PREEMPTION_ASKED
                       ? entry->preemption.bytes[i]
                       : rg_shares_owed_to(&sessions->shares, &grant->devices[i]);
    return 0;
}

/* What an effort has to bring together. */
struct lack {
    uint32_t n;
    uint32_t ordinals[RG_DEVICES_MAX];
    uint64_t bytes[RG_DEVICES_MAX]; /* that are still missing of each */
};

static bool is_enough(const struct lack *lack)
{
    bool enough = true;
    for (uint32_t i = 0; i < lack->n; i++)
        enough = enough && lack->bytes[i] == 0;
    return enough;
}

/* Takes what that session gives. False: that is nothing of what is missing. */
static bool take(const struct rg_sessions *sessions, const struct rg_session_entry *entry, struct lack *lack)
{
    bool helps = false;
    for (uint32_t i = 0; i < lack->n; i++) {
        const uint64_t gives = part_of(sessions, entry, lack->ordinals[i]);
        helps = helps || (gives && lack->bytes[i]);
        lack->bytes[i] -= gives < lack->bytes[i] ? gives : lack->bytes[i];
    }
    return helps;
}

static bool may_be_preempted(const struct rg_session_entry *entry, enum rg_share_priority by, uint64_t now)
{
    return entry->share.slot && !entry->kill_ns && entry->share.grant.priority < by &&
           entry->preemption.state == RG_PREEMPTION_NONE &&
           (!entry->preemption.since_ns || now - entry->preemption.since_ns > ALONE_NS) &&
           (shown_state(entry) == RG_SHARE_RUNNING || shown_state(entry) == RG_SHARE_IDLE);
}

/* Whether `a` is to be preempted before `b`. */
static bool comes_before(const struct rg_session_entry *a, const struct rg_session_entry *b)
{
    const bool idle = shown_state(a) == RG_SHARE_IDLE, other = shown_state(b) == RG_SHARE_IDLE;
    if (idle != other)
        return idle;
    if (a->share.grant.priority != b->share.grant.priority)
        return a->share.grant.priority < b->share.grant.priority;
    return a->info.id > b->info.id;
}

/* The next one to ask, which is not in `asked`; NULL: there is none. */
static struct rg_session_entry *next_one(const struct rg_sessions *sessions, enum rg_share_priority by,
                                         const uint64_t *asked, uint32_t n_asked, uint64_t now)
{
    struct rg_session_entry *best = NULL;
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        bool known = !may_be_preempted(entry, by, now);
        for (uint32_t j = 0; j < n_asked && !known; j++)
            known = asked[j] == entry->info.id;
        if (!known && (!best || comes_before(entry, best)))
            best = entry;
    }
    return best;
}

/* Whom to ask, as few as are enough. False: all of them are not. */
static bool choose(const struct rg_sessions *sessions, enum rg_share_priority by, struct lack *lack,
                   struct rg_session_entry **chosen, uint32_t *n)
{
    uint64_t seen[RG_PREEMPTED_MAX];
    uint32_t n_seen = 0;
    const uint64_t now = rg_now_ns();
    *n = 0;
    while (!is_enough(lack) && n_seen < RG_PREEMPTED_MAX) {
        struct rg_session_entry *entry = next_one(sessions, by, seen, n_seen, now);
        if (!entry)
            return false;
        seen[n_seen++] = entry->info.id;
        if (take(sessions, entry, lack))
            chosen[(*n)++] = entry;
    }
    return is_enough(lack);
}

bool rg_preemption_make_room(struct rg_sessions *sessions, const struct rg_share_grant *grant)
{
    struct rg_session_entry *chosen[RG_PREEMPTED_MAX];
    struct lack lack = {.n = grant->n_devices};
    uint32_t n = 0;
    if (!grant->preempts || grant->overcommitted)
        return false;
    look_at_all(sessions);
    for (uint32_t i = 0; i < lack.n; i++) {
        lack.ordinals[i] = grant->devices[i].ordinal;
        lack.bytes[i] = rg_shares_lacks(&sessions->shares, &grant->devices[i]);
    }
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->preemption.state == RG_PREEMPTION_ASKED)
            (void)take(sessions, sessions->entries[i], &lack);
    if (!choose(sessions, grant->priority, &lack, chosen, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ask(sessions, chosen[i]);
    return true;
}

/* --- coming back ------------------------------------------------------------------------------------------ */

/* Whether `a` comes back before `b`. */
static bool returns_before(const struct rg_session_entry *a, const struct rg_session_entry *b)
{
    if (a->share.grant.priority != b->share.grant.priority)
        return a->share.grant.priority > b->share.grant.priority;
    return a->preemption.since_ns < b->preemption.since_ns;
}

static bool has_room(const struct rg_sessions *sessions, const struct rg_session_entry *entry)
{
    bool room = true;
    for (uint32_t i = 0; i < entry->share.grant.n_devices && room; i++)
        room = rg_shares_have_room(&sessions->shares, &entry->share.grant.devices[i],
                                   entry->preemption.bytes[i]);
    return room;
}

static void bring_one_back(struct rg_sessions *sessions)
{
    struct rg_session_entry *first = NULL;
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (entry->preemption.state == RG_PREEMPTION_BACK && shown_state(entry) == RG_SHARE_RESUMING)
            return; /* which has not got its memory yet */
        if (rg_preemption_is_away(entry))
            continue; /* the pool says when */
        if (entry->preemption.state == RG_PREEMPTION_AWAY && (!first || returns_before(entry, first)))
            first = entry;
    }
    if (!first || !has_room(sessions, first))
        return;
    rg_info("session %llu may have its GPU memory again", (unsigned long long)first->info.id);
    enter(first, RG_PREEMPTION_BACK);
}

/* --- for others of the pool ------------------------------------------------------------------------------- */

bool rg_preemption_is_away(const struct rg_session_entry *entry)
{
    return entry->preemption.of_lease && entry->preemption.state == RG_PREEMPTION_AWAY;
}

/* Goes on with suspending one for the pool; what has come of it, or 0. */
static enum rg_suspend_result suspend_one(struct rg_sessions *sessions, struct rg_session_entry *entry,
                                          uint32_t number)
{
    struct rg_preemption *preemption = &entry->preemption;
    const enum rg_share_state state = shown_state(entry);
    const bool new = preemption->of_lease != number;
    preemption->of_lease = number;
    if (new)
        preemption->result = 0;
    look_at(entry);
    if (preemption->state == RG_PREEMPTION_AWAY)
        return RG_SUSPEND_DONE;
    if (preemption->result)
        return preemption->result;
    /* one that begins, comes back or ends is waited for; a worker that has not begun would be ended by the signal */
    const bool ready = state == RG_SHARE_RUNNING || state == RG_SHARE_IDLE || state == RG_SHARE_SUSPENDED;
    if (preemption->state != RG_PREEMPTION_ASKED && ready && !entry->kill_ns)
        ask(sessions, entry);
    return 0;
}

enum rg_suspend_result rg_preemption_of_lease(struct rg_sessions *sessions, uint64_t lease, uint32_t number)
{
    enum rg_suspend_result worst = RG_SUSPEND_DONE;
    bool pending = false;
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (entry->pool_lease != lease || !entry->share.slot)
            continue;
        if (!number) {
            entry->preemption.of_lease = 0;
            continue;
        }
        const enum rg_suspend_result result = suspend_one(sessions, entry, number);
        pending = pending || !result;
        worst = result > worst ? result : worst;
    }
    if (!number)
        return 0;
    return worst > RG_SUSPEND_DONE || !pending ? worst : 0;
}

uint64_t rg_preemption_continue(struct rg_sessions *sessions, bool wanted)
{
    bool asked = false, away = false;
    look_at_all(sessions);
    if (!wanted)
        bring_one_back(sessions);
    for (uint32_t i = 0; i < sessions->n; i++) {
        const enum rg_preemption_state state = sessions->entries[i]->preemption.state;
        const struct rg_preemption *preemption = &sessions->entries[i]->preemption;
        asked = asked || state == RG_PREEMPTION_ASKED ||
                (preemption->of_lease && state != RG_PREEMPTION_AWAY && !preemption->result);
        away = away || state == RG_PREEMPTION_AWAY || state == RG_PREEMPTION_BACK;
    }
    return asked ? rg_now_ns() + ASKED_LOOK_NS : away ? rg_now_ns() + AWAY_LOOK_NS : UINT64_MAX;
}
