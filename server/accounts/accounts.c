/*
 * accounts.c - what is told to the accountant and what it answers, and the sums that quotas go by; see accounts.h. What is counted of each
 * session is in account.c.
 */
#include "server/accounts/accounts.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/accounts/accounts_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_saved(const struct rg_accounts *accounts, bool dirty, uint64_t sent)
{
    return !dirty && sent && sent <= accounts->saved;
}

/* --- life ------------------------------------------------------------------------------------------------------- */

struct rg_accounts *rg_accounts_create(void)
{
    struct rg_accounts *accounts = calloc(1, sizeof *accounts);
    if (accounts) {
        accounts->socket = -1;
        accounts->wants_load = true;
    }
    return accounts;
}

static bool is_all_saved(const struct rg_account *account)
{
    bool saved = is_saved(account->accounts, account->dirty, account->sent);
    for (const struct rg_account_part *part = account->parts; part && saved; part = part->next)
        saved = is_saved(account->accounts, part->dirty, part->sent);
    return saved;
}

void rg_accounts_destroy(struct rg_accounts *accounts)
{
    if (!accounts)
        return;
    for (struct rg_account *account = accounts->first, *next; account; account = next) {
        next = account->next;
        if (!is_all_saved(account))
            rg_account_say_lost(account);
        rg_account_free(account);
    }
    rg_accounts_detach(accounts);
    rg_totals_fini(&accounts->totals);
    free(accounts);
}

/* What is not saved is to be told again. The file may be another one by now, which does not know the session. */
static void tell_again(struct rg_accounts *accounts)
{
    for (struct rg_account *account = accounts->first; account; account = account->next) {
        account->dirty = true;
        for (struct rg_account_part *part = account->parts; part; part = part->next)
            part->dirty = part->dirty || part->sent > accounts->saved;
    }
    if (accounts->load) {
        accounts->load = 0;
        accounts->wants_load = true;
        rg_totals_end_load(&accounts->totals, false);
    }
}

void rg_accounts_attach(struct rg_accounts *accounts, int socket)
{
    rg_accounts_detach(accounts);
    accounts->socket = socket;
    tell_again(accounts);
    if (!accounts->known)
        accounts->wants_load = true;
}

void rg_accounts_detach(struct rg_accounts *accounts)
{
    if (accounts->socket >= 0)
        close(accounts->socket);
    accounts->socket = -1;
}

int rg_accounts_socket(const struct rg_accounts *accounts)
{
    return accounts->socket;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* Parts that are saved and change no more, and sessions of which all is. */
static void forget_saved(struct rg_accounts *accounts)
{
    for (struct rg_account **link = &accounts->first; *link;) {
        struct rg_account *account = *link;
        for (struct rg_account_part **at = &account->parts; *at && *at != account->last;) {
            struct rg_account_part *part = *at;
            if (!is_saved(accounts, part->dirty, part->sent)) {
                at = &part->next;
                continue;
            }
            *at = part->next;
            accounts->n_parts--;
            free(part);
        }
        if (account->over && is_all_saved(account)) {
            *link = account->next;
            rg_account_free(account);
        } else {
            link = &account->next;
        }
    }
}

/* Each failure is said once, however often it is tried again. */
static void say_failure(struct rg_accounts *accounts, const char *why)
{
    if (strcmp(accounts->why, why) != 0)
        rg_error(
            "the accounts are not saved: %s; sessions go on, and what they use is kept in memory until then",
            why);
    snprintf(accounts->why, sizeof accounts->why, "%s", why);
    accounts->failed = true;
}

static void take(struct rg_accounts *accounts, const struct rg_accountant_answer *answer)
{
    switch (answer->kind) {
    case RG_ACCOUNTANT_SAVED:
        if (answer->number > accounts->saved && answer->number <= accounts->number)
            accounts->saved = answer->number;
        if (accounts->failed)
            rg_info("the accounts are saved again; nothing is lost");
        accounts->failed = false;
        accounts->why[0] = 0;
        forget_saved(accounts);
        break;
    case RG_ACCOUNTANT_FAILED:
        say_failure(accounts, answer->why);
        tell_again(accounts);
        break;
    case RG_ACCOUNTANT_TOTAL:
        if (answer->number == accounts->load)
            rg_totals_loaded(&accounts->totals, &answer->owner, answer->day_ns, answer->month_ns);
        break;
    case RG_ACCOUNTANT_LOADED:
        if (answer->number != accounts->load)
            break;
        accounts->load = 0;
        rg_totals_end_load(&accounts->totals, answer->why[0] == 0);
        accounts->known = accounts->known || answer->why[0] == 0;
        accounts->wants_load = answer->why[0] != 0;
        if (answer->why[0])
            say_failure(accounts, answer->why);
        break;
    }
}

bool rg_accounts_receive(struct rg_accounts *accounts)
{
    struct rg_accountant_answer answer;
    unsigned n_fds;
    const uint64_t saved_before = accounts->saved;
    for (int i = 0; i < 1024 && accounts->socket >= 0; i++) {
        const enum rg_status status =
            rg_packet_receive(accounts->socket, MSG_DONTWAIT, &answer, sizeof answer, NULL, 0, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            break;
        if (status != RG_OK)
            return false;
        answer.why[sizeof answer.why - 1] = 0;
        answer.owner.user[sizeof answer.owner.user - 1] = 0;
        answer.owner.address[sizeof answer.owner.address - 1] = 0;
        answer.owner.project[sizeof answer.owner.project - 1] = 0;
        take(accounts, &answer);
    }
    if (accounts->saved > saved_before)
        accounts->not_before_ns = 0;
    return true;
}

/* --- telling ---------------------------------------------------------------------------------------------------- */

/* False: not now. *sent: the word's number. */
static bool tell(struct rg_accounts *accounts, struct rg_accountant_word *word, uint64_t *sent)
{
    word->number = accounts->number + 1;
    if (!rg_packet_send(accounts->socket, word, sizeof *word, NULL, 0))
        return false; /* full, or gone: then it will be noticed when it is read */
    *sent = ++accounts->number;
    return true;
}

static bool tell_account(struct rg_account *account, struct rg_accountant_word *word)
{
    if (account->dirty) {
        word->kind = RG_ACCOUNTANT_SESSION;
        word->session = account->facts;
        if (!tell(account->accounts, word, &account->sent))
            return false;
        account->dirty = false;
    }
    for (struct rg_account_part *part = account->parts; part; part = part->next) {
        if (!part->dirty)
            continue;
        word->kind = RG_ACCOUNTANT_PART;
        word->part = part->told;
        if (!tell(account->accounts, word, &part->sent))
            return false;
        part->dirty = false;
    }
    return true;
}

uint64_t rg_accounts_flush(struct rg_accounts *accounts, uint64_t now_ns)
{
    struct rg_accountant_word word;
    bool all = true;
    if (accounts->socket < 0)
        return UINT64_MAX;
    if (accounts->failed && now_ns < accounts->not_before_ns)
        return accounts->not_before_ns;
    accounts->not_before_ns = now_ns + RG_ACCOUNTS_RETRY_NS;
    memset(&word, 0, sizeof word);
    for (struct rg_account *account = accounts->first; account && all; account = account->next)
        all = tell_account(account, &word);
    if (all && accounts->wants_load && !accounts->load) {
        word.kind = RG_ACCOUNTANT_LOAD;
        word.load = (struct rg_accountant_load){accounts->totals.day, accounts->totals.month};
        all = tell(accounts, &word, &accounts->load);
        if (all) {
            accounts->wants_load = false;
            rg_totals_begin_load(&accounts->totals);
        }
    }
    if (accounts->failed)
        return accounts->not_before_ns;
    return all ? UINT64_MAX : now_ns + RG_ACCOUNTS_SAMPLE_NS / 10;
}

bool rg_accounts_are_saved(const struct rg_accounts *accounts)
{
    for (const struct rg_account *account = accounts->first; account; account = account->next)
        if (!is_all_saved(account))
            return false;
    return true;
}

bool rg_accounts_ask(struct rg_accounts *accounts, const struct rg_accountant_query *query, int socket)
{
    struct rg_accountant_word word;
    memset(&word, 0, sizeof word);
    word.kind = RG_ACCOUNTANT_QUERY;
    word.number = accounts->number + 1;
    word.query = *query;
    if (accounts->socket < 0 || !rg_packet_send(accounts->socket, &word, sizeof word, &socket, 1))
        return false;
    accounts->number++;
    return true;
}

/* --- for quotas ------------------------------------------------------------------------------------------------- */

void rg_accounts_tick(struct rg_accounts *accounts, uint64_t wall_ns)
{
    if (!rg_totals_set_hour(&accounts->totals, (rg_hour)(wall_ns / 3600000000000ull)))
        return;
    if (accounts->load)
        rg_totals_end_load(&accounts->totals, false);
    accounts->load = 0;
    accounts->wants_load = true;
}

bool rg_accounts_are_failing(const struct rg_accounts *accounts)
{
    return accounts->failed;
}

bool rg_accounts_is_loading(const struct rg_accounts *accounts)
{
    return accounts->load != 0;
}

bool rg_accounts_known(const struct rg_accounts *accounts)
{
    return accounts->known;
}

static void give(struct rg_spent spent, uint64_t *day_ns, uint64_t *month_ns)
{
    *day_ns = spent.day_ns;
    *month_ns = spent.month_ns;
}

void rg_accounts_of_user(const struct rg_accounts *accounts, const struct rg_account_owner *owner,
                         uint64_t *day_ns, uint64_t *month_ns)
{
    give(rg_totals_spent(&accounts->totals, false, owner->kind, owner->user, owner->address), day_ns,
         month_ns);
}

void rg_accounts_of_name(const struct rg_accounts *accounts, enum rg_usage_kind kind, const char *user,
                         uint64_t *day_ns, uint64_t *month_ns)
{
    give(rg_totals_spent(&accounts->totals, false, kind, user, NULL), day_ns, month_ns);
}

void rg_accounts_of_project(const struct rg_accounts *accounts, const char *project, uint64_t *day_ns,
                            uint64_t *month_ns)
{
    give(rg_totals_spent(&accounts->totals, true, 0, project, NULL), day_ns, month_ns);
}

struct rg_period rg_accounts_day(const struct rg_accounts *accounts)
{
    return accounts->totals.day;
}

struct rg_period rg_accounts_month(const struct rg_accounts *accounts)
{
    return accounts->totals.month;
}
