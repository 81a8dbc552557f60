/* quotas.c - see quotas.h. */
#include "server/daemon/grant/quotas.h"

#include "server/daemon/grant/accounting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCAL "uid:"

/* --- checking the rules --------------------------------------------------------------------------------------- */

static bool has_accounts;

static bool check_quota(const json_t *json, char *why, size_t why_size)
{
    struct rg_quota quota;
    rg_quota_init(&quota);
    if (rg_quota_parse(json, &quota, why, why_size) != RG_OK)
        return false;
    if (has_accounts || !rg_quota_limits_hours(&quota))
        return true;
    rg_explain(why, why_size,
               "GPU hours can only be limited where accounts are kept: --accounts=on keeps them");
    return false;
}

static bool check_exhausted(const json_t *json, char *why, size_t why_size)
{
    struct rg_quota_exhausted exhausted;
    return rg_quota_parse_exhausted(json, &exhausted, why, why_size) == RG_OK;
}

void rg_quotas_init(bool accounts)
{
    has_accounts = accounts;
    rg_share_rules_check_quota(check_quota);
    rg_share_rules_check_used_up(check_exhausted);
}

/* --- who it is about ------------------------------------------------------------------------------------------ */

/* The kind of user that a name in the rules means. */
static enum rg_usage_kind kind_of(const char *name)
{
    return strncmp(name, LOCAL, strlen(LOCAL)) == 0      ? RG_USAGE_LOCAL
           : strcmp(name, RG_USAGE_UNAUTHENTICATED) == 0 ? RG_USAGE_NOBODY
                                                         : RG_USAGE_CERTIFICATE;
}

/* A name in the rules means a user of one kind alone: another of the same name is somebody else. */
static bool is_member(const json_t *group, const struct rg_account_owner *owner)
{
    return kind_of(owner->user) == owner->kind && rg_share_rules_has_member(group, owner->user);
}

static bool is_same_user(const struct rg_account_owner *a, const struct rg_account_owner *b)
{
    return a->kind == b->kind && strcmp(a->user, b->user) == 0 && strcmp(a->address, b->address) == 0;
}

/* --- what is used --------------------------------------------------------------------------------------------- */

/* Whether a session counts for a quota. */
static bool counts(const struct rg_session_entry *entry, enum rg_quota_scope scope, const json_t *group,
                   const struct rg_account_owner *owner)
{
    if (entry->info.n_devices == 0) /* a measurement of the connection */
        return false;
    switch (scope) {
    case RG_QUOTA_USER:
        return is_same_user(&entry->owner, owner);
    case RG_QUOTA_GROUP:
        return is_member(group, &entry->owner);
    case RG_QUOTA_PROJECT:
        return strcmp(entry->owner.project, owner->project) == 0;
    }
    return false;
}

static void count_sessions(const struct rg_sessions *sessions, struct rg_quota_case *of, const json_t *group,
                           const struct rg_account_owner *owner)
{
    for (uint32_t i = 0; i < sessions->n; i++) {
        const struct rg_session_entry *entry = sessions->entries[i];
        if (!counts(entry, of->scope, group, owner))
            continue;
        const uint64_t memory = rg_accounting_memory(&sessions->shares, &entry->share);
        uint64_t *used = of->used;
        used[RG_QUOTA_SESSIONS]++;
        used[RG_QUOTA_GPUS] += entry->info.n_devices;
        used[RG_QUOTA_MEMORY] =
            memory > UINT64_MAX - used[RG_QUOTA_MEMORY] ? UINT64_MAX : used[RG_QUOTA_MEMORY] + memory;
    }
}

static void count_leases(struct rg_quota_case *of, const struct rg_agent_judge *judge)
{
    const bool user = of->scope == RG_QUOTA_USER;
    of->of_pool = true;
    of->used[RG_QUOTA_GPUS] = user ? judge->held_gpus : judge->project_gpus;
    of->used[RG_QUOTA_MEMORY] = user ? judge->held_memory : judge->project_memory;
}

static void count_hours(const struct rg_accounts *accounts, struct rg_quota_case *of, const json_t *group,
                        const struct rg_account_owner *owner)
{
    uint64_t *day = &of->used[RG_QUOTA_HOURS_DAY], *month = &of->used[RG_QUOTA_HOURS_MONTH], more_day,
             more_month;
    size_t i;
    json_t *member;
    switch (of->scope) {
    case RG_QUOTA_USER:
        rg_accounts_of_user(accounts, owner, day, month);
        break;
    case RG_QUOTA_GROUP:
        json_array_foreach(json_object_get(group, "members"), i, member)
        {
            const char *name = json_string_value(member);
            rg_accounts_of_name(accounts, kind_of(name), name, &more_day, &more_month);
            *day += more_day;
            *month += more_month;
        }
        break;
    case RG_QUOTA_PROJECT:
        rg_accounts_of_project(accounts, owner->project, day, month);
        break;
    }
}

/* --- which hold ------------------------------------------------------------------------------------------------ */

/* A search for the quotas that hold for somebody. */
struct search {
    const struct rg_sessions *sessions;
    const struct rg_account_owner *owner;
    const struct rg_agent_judge *judge; /* of a lease: what is held in the pool; NULL: it is a session */
    bool hours_alone;                   /* those of GPU hours, and nothing else is counted */
    bool (*meet)(void *data, const struct rg_quota_case *of); /* each of them; false: no more */
    void *data;
};

/* What the rules say, which was checked when they were read. */
static void overlay(struct rg_quota *quota, const json_t *json)
{
    if (json)
        (void)!rg_quota_parse(json, quota, NULL, 0);
}

static bool is_wanted(const struct search *search, const struct rg_quota *quota)
{
    return search->hours_alone ? rg_quota_limits_hours(quota) : rg_quota_is_limited(quota);
}

/* False: no more. */
static bool meet(const struct search *search, enum rg_quota_scope scope, const char *name,
                 const json_t *group, const struct rg_quota *quota)
{
    const struct rg_accounts *accounts = search->sessions->accounts;
    struct rg_quota_case of = {.scope = scope, .name = name, .quota = quota};
    if (search->judge && scope != RG_QUOTA_GROUP)
        count_leases(&of, search->judge);
    else if (!search->hours_alone)
        count_sessions(search->sessions, &of, group, search->owner);
    if (accounts) {
        of.used_known = rg_accounts_known(accounts);
        of.day_ends = rg_accounts_day(accounts).end * 3600;
        of.month_ends = rg_accounts_month(accounts).end * 3600;
        count_hours(accounts, &of, group, search->owner);
    }
    return search->meet(search->data, &of);
}

static bool meet_user(const struct search *search)
{
    const struct rg_share_rules *rules = search->sessions->shares.rules;
    const struct rg_account_owner *owner = search->owner;
    struct rg_share_user user = {.kind = RG_SHARE_NOBODY, .name = owner->user};
    struct rg_quota quota;
    if (owner->kind == RG_USAGE_CERTIFICATE)
        user.kind = RG_SHARE_NAME;
    if (owner->kind == RG_USAGE_LOCAL) {
        user.kind = RG_SHARE_UID;
        user.uid = (uint32_t)strtoul(owner->user + strlen(LOCAL), NULL, 10);
    }
    rg_quota_init(&quota);
    overlay(&quota, rg_share_rules_quota(rules, NULL, NULL));
    overlay(&quota, rg_share_rules_quota(rules, &user, NULL));
    return !is_wanted(search, &quota) || meet(search, RG_QUOTA_USER, owner->user, NULL, &quota);
}

static bool meet_project(const struct search *search)
{
    const char *project = search->owner->project;
    struct rg_quota quota;
    if (!project[0])
        return true;
    rg_quota_init(&quota);
    overlay(&quota, rg_share_rules_quota(search->sessions->shares.rules, NULL, project));
    return !is_wanted(search, &quota) || meet(search, RG_QUOTA_PROJECT, project, NULL, &quota);
}

static void search_all(const struct search *search)
{
    const struct rg_share_rules *rules = search->sessions->shares.rules;
    struct rg_quota quota;
    const char *name;
    json_t *group;
    if (!rules || !meet_user(search) || !meet_project(search))
        return;
    json_object_foreach((json_t *)(uintptr_t)rg_share_rules_groups(rules), name, group)
    {
        rg_quota_init(&quota);
        overlay(&quota, json_object_get(group, "quota"));
        if (is_wanted(search, &quota) && is_member(group, search->owner) &&
            !meet(search, RG_QUOTA_GROUP, name, group, &quota))
            return;
    }
}

/* --- deciding --------------------------------------------------------------------------------------------------- */

struct admission {
    uint64_t wanted[RG_QUOTAS];
    bool *counts; /* what is held already was not counted; NULL: it was */
    struct rg_monitor_answer *answer;
    enum rg_status status;
};

static bool admit_by(void *data, const struct rg_quota_case *of)
{
    struct admission *admission = data;
    struct rg_monitor_answer *answer = admission->answer;
    const uint64_t *allowed = of->quota->allowed;
    if (admission->counts && of->of_pool &&
        (allowed[RG_QUOTA_GPUS] != RG_QUOTA_UNLIMITED || allowed[RG_QUOTA_MEMORY] != RG_QUOTA_UNLIMITED)) {
        *admission->counts = true;
        admission->status = RG_ERR_REFUSED;
        return false;
    }
    admission->status = rg_quota_check(of, admission->wanted, answer->why, sizeof answer->why);
    return admission->status == RG_OK;
}

enum rg_status rg_quotas_admit(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                               uint32_t gpus, uint64_t memory, struct rg_monitor_answer *answer)
{
    struct admission admission = {
        .wanted = {[RG_QUOTA_SESSIONS] = 1, [RG_QUOTA_GPUS] = gpus, [RG_QUOTA_MEMORY] = memory},
        .answer = answer};
    const struct search search = {.sessions = sessions, .owner = owner, .meet = admit_by, .data = &admission};
    search_all(&search);
    if (admission.status != RG_OK)
        answer->code = RG_REFUSAL_QUOTA;
    return admission.status;
}

enum rg_status rg_quotas_admit_lease(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                                     const struct rg_agent_judge *judge, bool *counts, char *why,
                                     size_t why_size)
{
    struct rg_monitor_answer answer = {.why = ""};
    struct admission admission = {
        .wanted = {[RG_QUOTA_GPUS] = judge->gpus, [RG_QUOTA_MEMORY] = judge->memory},
        .counts = judge->uncounted ? counts : NULL,
        .answer = &answer};
    const struct search search = {
        .sessions = sessions, .owner = owner, .judge = judge, .meet = admit_by, .data = &admission};
    search_all(&search);
    if (admission.status != RG_OK)
        rg_explain(why, why_size, "%s", answer.why);
    return admission.status;
}

struct exhaustion {
    bool found;
    char *why;
    size_t why_size;
};

static bool is_left(void *data, const struct rg_quota_case *of)
{
    struct exhaustion *exhaustion = data;
    exhaustion->found = rg_quota_is_exhausted(of, exhaustion->why, exhaustion->why_size);
    return !exhaustion->found;
}

bool rg_quotas_are_exhausted(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                             char *why, size_t why_size)
{
    struct exhaustion exhaustion = {.why = why, .why_size = why_size};
    const struct search search = {
        .sessions = sessions, .owner = owner, .hours_alone = true, .meet = is_left, .data = &exhaustion};
    search_all(&search);
    return exhaustion.found;
}

struct rg_quota_exhausted rg_quotas_exhausted(const struct rg_sessions *sessions)
{
    struct rg_quota_exhausted exhausted = {0};
    const json_t *json = rg_share_rules_used_up(sessions->shares.rules);
    if (json)
        (void)!rg_quota_parse_exhausted(json, &exhausted, NULL, 0);
    return exhausted;
}

static bool tell_one(void *data, const struct rg_quota_case *of)
{
    struct rg_quota_answer *out = data;
    struct rg_quota_row *row = &out->rows[out->n++];
    row->scope = of->scope;
    snprintf(row->name, sizeof row->name, "%s", of->name);
    memcpy(row->allowed, of->quota->allowed, sizeof row->allowed);
    memcpy(row->used, of->used, sizeof row->used);
    out->used_known = of->used_known;
    out->day_ends = of->day_ends;
    out->month_ends = of->month_ends;
    return out->n < RG_QUOTA_SCOPES_MAX;
}

void rg_quotas_tell(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                    struct rg_quota_answer *out)
{
    const struct search search = {.sessions = sessions, .owner = owner, .meet = tell_one, .data = out};
    memset(out, 0, sizeof *out);
    snprintf(out->user, sizeof out->user, "%s", owner->user);
    out->now = (int64_t)time(NULL);
    search_all(&search);
}
