/* quotas.c - see quotas.h. */
#include "server/daemon/quotas.h"

#include "server/daemon/accounting.h"

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

static bool is_meant(const char *name, const struct rg_account_owner *owner)
{
    return kind_of(name) == owner->kind && strcmp(name, owner->user) == 0;
}

static bool is_member(const json_t *group, const struct rg_account_owner *owner)
{
    size_t i;
    json_t *member;
    json_array_foreach(json_object_get(group, "members"), i, member)
    {
        if (is_meant(json_string_value(member), owner))
            return true;
    }
    return false;
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

static void add(const struct rg_sessions *sessions, enum rg_quota_scope scope, const char *name,
                const json_t *group, const struct rg_account_owner *owner, const struct rg_quota *quota,
                struct rg_quotas *out)
{
    const struct rg_accounts *accounts = sessions->accounts;
    if (out->n == RG_QUOTA_SCOPES_MAX || !rg_quota_is_limited(quota))
        return;
    out->quotas[out->n] = *quota;
    struct rg_quota_case *of = &out->cases[out->n];
    *of = (struct rg_quota_case){.scope = scope, .name = name, .quota = &out->quotas[out->n]};
    out->n++;
    count_sessions(sessions, of, group, owner);
    if (!accounts)
        return;
    of->used_known = rg_accounts_known(accounts);
    of->day_ends = rg_accounts_day(accounts).end * 3600;
    of->month_ends = rg_accounts_month(accounts).end * 3600;
    count_hours(accounts, of, group, owner);
}

/* What the rules say, which was checked when they were read. */
static void overlay(struct rg_quota *quota, const json_t *json)
{
    if (json)
        (void)!rg_quota_parse(json, quota, NULL, 0);
}

static void add_user(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                     struct rg_quotas *out)
{
    const struct rg_share_rules *rules = sessions->shares.rules;
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
    add(sessions, RG_QUOTA_USER, owner->user, NULL, owner, &quota, out);
}

void rg_quotas_of(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                  struct rg_quotas *out)
{
    const struct rg_share_rules *rules = sessions->shares.rules;
    struct rg_quota quota;
    const char *name;
    json_t *group;
    out->n = 0;
    if (!rules)
        return;
    add_user(sessions, owner, out);
    if (owner->project[0]) {
        rg_quota_init(&quota);
        overlay(&quota, rg_share_rules_quota(rules, NULL, owner->project));
        add(sessions, RG_QUOTA_PROJECT, owner->project, NULL, owner, &quota, out);
    }
    json_object_foreach((json_t *)(uintptr_t)rg_share_rules_groups(rules), name, group)
    {
        if (!is_member(group, owner))
            continue;
        rg_quota_init(&quota);
        overlay(&quota, json_object_get(group, "quota"));
        add(sessions, RG_QUOTA_GROUP, name, group, owner, &quota, out);
    }
}

/* --- deciding --------------------------------------------------------------------------------------------------- */

enum rg_status rg_quotas_admit(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                               uint32_t gpus, uint64_t memory, struct rg_monitor_answer *answer)
{
    const uint64_t wanted[RG_QUOTAS] = {
        [RG_QUOTA_SESSIONS] = 1, [RG_QUOTA_GPUS] = gpus, [RG_QUOTA_MEMORY] = memory};
    struct rg_quotas quotas;
    rg_quotas_of(sessions, owner, &quotas);
    for (unsigned i = 0; i < quotas.n; i++)
        if (rg_quota_check(&quotas.cases[i], wanted, answer->why, sizeof answer->why) != RG_OK) {
            answer->code = RG_REFUSAL_QUOTA;
            return RG_ERR_REFUSED;
        }
    return RG_OK;
}

bool rg_quotas_are_exhausted(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                             char *why, size_t why_size)
{
    struct rg_quotas quotas;
    rg_quotas_of(sessions, owner, &quotas);
    for (unsigned i = 0; i < quotas.n; i++)
        if (rg_quota_is_exhausted(&quotas.cases[i], why, why_size))
            return true;
    return false;
}

struct rg_quota_exhausted rg_quotas_exhausted(const struct rg_sessions *sessions)
{
    struct rg_quota_exhausted exhausted = {0};
    const json_t *json = rg_share_rules_used_up(sessions->shares.rules);
    if (json)
        (void)!rg_quota_parse_exhausted(json, &exhausted, NULL, 0);
    return exhausted;
}

void rg_quotas_tell(const struct rg_sessions *sessions, const struct rg_account_owner *owner,
                    struct rg_quota_answer *out)
{
    struct rg_quotas quotas;
    rg_quotas_of(sessions, owner, &quotas);
    memset(out, 0, sizeof *out);
    snprintf(out->user, sizeof out->user, "%s", owner->user);
    out->now = (int64_t)time(NULL);
    for (unsigned i = 0; i < quotas.n; i++) {
        const struct rg_quota_case *of = &quotas.cases[i];
        struct rg_quota_row *row = &out->rows[out->n++];
        row->scope = of->scope;
        snprintf(row->name, sizeof row->name, "%s", of->name);
        memcpy(row->allowed, of->quota->allowed, sizeof row->allowed);
        memcpy(row->used, of->used, sizeof row->used);
        out->used_known = of->used_known;
        out->day_ends = of->day_ends;
        out->month_ends = of->month_ends;
    }
}
