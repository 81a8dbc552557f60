/* totals.c - see totals.h. */
#include "server/accounts/totals.h"

#include "common/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whose GPU time goes together where there are too many. */
#define OTHERS "(others)"

static unsigned chain_of(bool is_project, const char *name)
{
    uint64_t hash = is_project ? 14695981039346656037ull : 1099511628211ull; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211ull;
    return (unsigned)((hash ^ hash >> 32) % RG_TOTALS_CHAINS);
}

/* Names that whoever likes makes up, as many as wanted: projects where no rules say which there are, addresses of nobody's. */
static bool is_made_up(bool is_project, enum rg_usage_kind kind)
{
    return is_project || kind == RG_USAGE_NOBODY;
}

/* A user of this machine is never called as the others are. */
static enum rg_usage_kind kind_of_others(bool is_project, enum rg_usage_kind kind)
{
    return is_made_up(is_project, kind) ? RG_USAGE_NOBODY : RG_USAGE_LOCAL;
}

static void add(struct rg_spent *to, const struct rg_spent *more)
{
    to->day_ns = to->day_ns > UINT64_MAX - more->day_ns ? UINT64_MAX : to->day_ns + more->day_ns;
    to->month_ns = to->month_ns > UINT64_MAX - more->month_ns ? UINT64_MAX : to->month_ns + more->month_ns;
}

void rg_totals_fini(struct rg_totals *totals)
{
    for (unsigned i = 0; i < RG_TOTALS_CHAINS; i++)
        for (struct rg_total *at = totals->chains[i], *next; at; at = next) {
            next = at->next;
            free(at);
        }
    memset(totals, 0, sizeof *totals);
}

static void begin_period(struct rg_total *total, bool month)
{
    total->spent.day_ns = total->since.day_ns = total->loaded.day_ns = 0;
    if (month)
        total->spent.month_ns = total->since.month_ns = total->loaded.month_ns = 0;
}

bool rg_totals_set_hour(struct rg_totals *totals, rg_hour hour)
{
    if (hour >= totals->day.begin && hour < totals->day.end)
        return false;
    const bool month = hour < totals->month.begin || hour >= totals->month.end;
    totals->day = rg_period_day(hour);
    totals->month = rg_period_month(hour);
    for (unsigned i = 0; i < RG_TOTALS_CHAINS; i++)
        for (struct rg_total **link = &totals->chains[i]; *link;) {
            struct rg_total *total = *link;
            begin_period(total, month);
            if (month && total->uses == 0) {
                *link = total->next;
                totals->n[is_made_up(total->is_project, total->kind)]--;
                free(total);
            } else {
                link = &total->next;
            }
        }
    return true;
}

static struct rg_total *find(const struct rg_totals *totals, bool is_project, enum rg_usage_kind kind,
                             const char *name, const char *address)
{
    for (struct rg_total *at = totals->chains[chain_of(is_project, name)]; at; at = at->next)
        if (at->is_project == is_project && at->kind == kind && strcmp(at->name, name) == 0 &&
            strcmp(at->address, address) == 0)
            return at;
    return NULL;
}

static struct rg_total *get(struct rg_totals *totals, bool is_project, enum rg_usage_kind kind,
                            const char *name, const char *address)
{
    struct rg_total *total = find(totals, is_project, kind, name, address);
    unsigned *n = &totals->n[is_made_up(is_project, kind)];
    if (!total && *n >= RG_ACCOUNTS_OWNERS_MAX && strcmp(name, OTHERS) != 0)
        return get(totals, is_project, kind_of_others(is_project, kind), OTHERS, "");
    if (total || !(total = calloc(1, sizeof *total)))
        return total;
    struct rg_total **chain = &totals->chains[chain_of(is_project, name)];
    total->is_project = is_project;
    total->kind = kind;
    snprintf(total->name, sizeof total->name, "%s", name);
    snprintf(total->address, sizeof total->address, "%s", address);
    total->next = *chain;
    *chain = total;
    ++*n;
    return total;
}

struct rg_total *rg_totals_user(struct rg_totals *totals, const struct rg_account_owner *owner)
{
    return get(totals, false, owner->kind, owner->user, owner->address);
}

struct rg_total *rg_totals_project(struct rg_totals *totals, const struct rg_account_owner *owner)
{
    return owner->project[0] ? get(totals, true, 0, owner->project, "") : NULL;
}

void rg_totals_add(const struct rg_totals *totals, struct rg_total *total, rg_hour hour, uint64_t held_ns)
{
    const struct rg_spent more = {.day_ns = hour >= totals->day.begin && hour < totals->day.end ? held_ns : 0,
                                  .month_ns =
                                      hour >= totals->month.begin && hour < totals->month.end ? held_ns : 0};
    if (!total)
        return;
    add(&total->spent, &more);
    add(&total->since, &more);
}

void rg_totals_begin_load(struct rg_totals *totals)
{
    totals->loading = true;
    for (unsigned i = 0; i < RG_TOTALS_CHAINS; i++)
        for (struct rg_total *at = totals->chains[i]; at; at = at->next)
            at->since = at->loaded = (struct rg_spent){0};
}

void rg_totals_loaded(struct rg_totals *totals, const struct rg_account_owner *owner, uint64_t day_ns,
                      uint64_t month_ns)
{
    struct rg_total *const of[] = {rg_totals_user(totals, owner), rg_totals_project(totals, owner)};
    const struct rg_spent more = {day_ns, month_ns};
    for (int i = 0; i < 2 && totals->loading; i++)
        if (of[i])
            add(&of[i]->loaded, &more);
}

void rg_totals_end_load(struct rg_totals *totals, bool good)
{
    for (unsigned i = 0; i < RG_TOTALS_CHAINS && totals->loading && good; i++)
        for (struct rg_total *at = totals->chains[i]; at; at = at->next) {
            at->spent = at->loaded;
            add(&at->spent, &at->since);
        }
    totals->loading = false;
}

struct rg_spent rg_totals_spent(const struct rg_totals *totals, bool is_project, enum rg_usage_kind kind,
                                const char *name, const char *address)
{
    struct rg_spent sum = {0};
    bool found = false;
    for (const struct rg_total *at = totals->chains[chain_of(is_project, name)]; at; at = at->next)
        if (at->is_project == is_project && (!kind || at->kind == kind) && strcmp(at->name, name) == 0 &&
            (!address || strcmp(at->address, address) == 0)) {
            add(&sum, &at->spent);
            found = true;
        }
    const struct rg_total *others =
        found ? NULL : find(totals, is_project, kind_of_others(is_project, kind), OTHERS, "");
    return others ? others->spent : sum;
}
