/*
 * totals.h - GPU time of users and projects in this day and month: what the accounts' file has, and what was added since.
 *
 * Sums that are kept here go on while the file is being read: what is added in that time is counted beside it, and when the file's
 * sums are there both are put together. Main thread.
 */
#ifndef RG_SERVER_ACCOUNTS_TOTALS_H
#define RG_SERVER_ACCOUNTS_TOTALS_H

#include "server/accounts/period.h"
#include "server/accounts/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_spent {
    uint64_t day_ns, month_ns;
};

/** Of one user, or of one project. */
struct rg_total {
    struct rg_total *next; /* in its chain */
    bool is_project;
    enum rg_usage_kind kind;
    char name[RG_ACCOUNTS_NAME], address[RG_ACCOUNTS_NAME];
    struct rg_spent spent;
    struct rg_spent since, loaded; /* while the file is read: added since it was asked for; what it has */
    unsigned uses;                 /* sessions that run */
};

enum { RG_TOTALS_CHAINS = 1024 };

struct rg_totals {
    struct rg_total *chains[RG_TOTALS_CHAINS];
    /* Of users whom somebody has let in; of what anybody names: projects, and addresses of nobody's. RG_ACCOUNTS_OWNERS_MAX of each. */
    unsigned n[2];
    bool loading;
    struct rg_period day, month;
};

/** Forgets all; it is as if zeroed then. */
void rg_totals_fini(struct rg_totals *totals);
/** The hour that it is. True: another day or month than before has begun, whose sums begin at 0. */
bool rg_totals_set_hour(struct rg_totals *totals, rg_hour hour);
/** Those of an owner, made if they are not there. NULL: no memory, or (project) there is none. Where there are too many, one for all others. */
struct rg_total *rg_totals_user(struct rg_totals *totals, const struct rg_account_owner *owner);
struct rg_total *rg_totals_project(struct rg_totals *totals, const struct rg_account_owner *owner);
/** Adds GPU time that was held in an hour. NULL is fine. */
void rg_totals_add(const struct rg_totals *totals, struct rg_total *total, rg_hour hour, uint64_t held_ns);

/** The file is asked for its sums; what was added before is in it by then. */
void rg_totals_begin_load(struct rg_totals *totals);
void rg_totals_loaded(struct rg_totals *totals, const struct rg_account_owner *owner, uint64_t day_ns,
                      uint64_t month_ns);
/** All have come; `good`: they hold. */
void rg_totals_end_load(struct rg_totals *totals, bool good);

/**
 * Sums of what is there, without making anything. `kind` 0 and `address` NULL: of any. Of whom nothing is known while there are too
 * many to be told apart (RG_ACCOUNTS_OWNERS_MAX): what all those together spent, which may be too much and is never too little.
 */
struct rg_spent rg_totals_spent(const struct rg_totals *totals, bool is_project, enum rg_usage_kind kind,
                                const char *name, const char *address);

#endif
