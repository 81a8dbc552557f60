/* accounts_internal.h - the inside of struct rg_accounts, for accounts.c and account.c. Main thread. */
#ifndef RG_SERVER_ACCOUNTS_ACCOUNTS_INTERNAL_H
#define RG_SERVER_ACCOUNTS_ACCOUNTS_INTERNAL_H

#include "server/accounts/accounts.h"
#include "server/accounts/totals.h"

/* What was counted of a session in one hour. */
struct rg_account_part {
    struct rg_account_part *next;
    struct rg_accountant_part told;
    bool dirty;    /* it has changed since it was told */
    uint64_t sent; /* the word by which it was told last; 0: it was not */
};

struct rg_account {
    struct rg_accounts *accounts;
    struct rg_account *next;
    struct rg_accountant_session facts;
    bool dirty; /* the facts */
    uint64_t sent;
    bool over;
    struct rg_usage_meter meter;
    struct rg_account_part *parts, *last; /* the last one is of this hour */
    uint32_t next_part;
    struct rg_total *user, *project;
};

struct rg_accounts {
    int socket;
    struct rg_account *first;
    unsigned n_parts, n_over;
    uint64_t number, saved; /* words told; saved up to */
    uint64_t load;          /* the word that asked for totals, and is not answered; 0: none */
    bool wants_load;
    bool known;
    uint64_t not_before_ns; /* after a failure */
    bool failed;
    char why[RG_ACCOUNTS_WHY]; /* what was said of the failure */
    struct rg_totals totals;
};

/** It is out of the list. */
void rg_account_free(struct rg_account *account);
/** Figures that are not in the file are at least in the log. */
void rg_account_say_lost(const struct rg_account *account);

#endif
