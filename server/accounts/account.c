/*
 * account.c - one session's account: it begins, is sampled, hour by hour, and ends; see accounts.h. Without memory a session goes on
 * unaccounted, which is said; of sessions that are over and cannot be saved only so many are kept, the others are said in the log. Main
 * thread.
 */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/accounts/accounts_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void rg_account_free(struct rg_account *account)
{
    for (struct rg_account_part *part = account->parts, *next; part; part = next) {
        next = part->next;
        account->accounts->n_parts--;
        free(part);
    }
    account->accounts->n_over -= account->over;
    free(account);
}

void rg_account_say_lost(const struct rg_account *account)
{
    const struct rg_figures *total = &account->meter.total;
    const struct rg_account_owner *owner = &account->facts.owner;
    rg_error("session %" PRIu64
             " of %s%s%s%s%s is not in the accounts: sharing %s%s, held %.3f GPU s, busy %.3f GPU s, %" PRIu64
             " byte s, %" PRIu64 " bytes in, %" PRIu64 " bytes out, %" PRIu64 " launches, peak %" PRIu64
             " bytes",
             account->facts.number, owner->user, owner->address[0] ? " at " : "", owner->address,
             owner->project[0] ? ", project " : "", owner->project, rg_sharing_name(account->facts.sharing),
             account->facts.mig ? " on MIG" : "", (double)total->held_ns / 1e9, (double)total->busy_ns / 1e9,
             total->byte_seconds, total->bytes_in, total->bytes_out, total->launches, total->peak_bytes);
}

/* Of sessions that are over and wait to be saved there are only so many: the oldest is said, and forgotten. */
static void keep_few(struct rg_accounts *accounts)
{
    struct rg_account **link = &accounts->first, **oldest = NULL;
    if (accounts->n_over <= RG_ACCOUNTS_PENDING_MAX)
        return;
    for (; *link; link = &(*link)->next)
        if ((*link)->over)
            oldest = link;
    struct rg_account *account = *oldest;
    *oldest = account->next;
    rg_account_say_lost(account);
    rg_account_free(account);
}

struct rg_account *rg_accounts_begin(struct rg_accounts *accounts, const struct rg_accountant_session *facts,
                                     uint64_t now_ns, uint64_t wall_ns)
{
    struct rg_account *account = calloc(1, sizeof *account);
    if (!account) {
        rg_error("no memory for the account of session %" PRIu64 ", which goes on without one",
                 facts->number);
        return NULL;
    }
    account->accounts = accounts;
    account->facts = *facts;
    account->facts.started = (int64_t)(wall_ns / 1000000000u);
    account->dirty = true;
    account->meter = RG_METER_INIT(now_ns);
    account->user = rg_totals_user(&accounts->totals, &facts->owner);
    account->project = rg_totals_project(&accounts->totals, &facts->owner);
    if (account->user)
        account->user->uses++;
    if (account->project)
        account->project->uses++;
    account->next = accounts->first;
    accounts->first = account;
    return account;
}

/* The part of an hour; a clock that goes back begins another. */
static struct rg_account_part *part_of(struct rg_account *account, rg_hour hour)
{
    struct rg_account_part *last = account->last;
    if (last && (last->told.slice.hour == hour || account->accounts->n_parts >= RG_ACCOUNTS_PENDING_MAX))
        return last;
    struct rg_account_part *part = calloc(1, sizeof *part);
    if (!part)
        return last; /* in the wrong hour rather than nowhere */
    part->told.session = account->facts.number;
    part->told.part = account->next_part++;
    part->told.slice.hour = hour;
    if (last)
        last->next = part;
    else
        account->parts = part;
    account->last = part;
    account->accounts->n_parts++;
    return part;
}

void rg_account_sample(struct rg_account *account, const struct rg_figures_sample *sample, uint64_t now_ns,
                       uint64_t wall_ns)
{
    struct rg_figures_slice slices[RG_SLICES_MAX];
    if (!account)
        return;
    const unsigned n = rg_meter_sample(&account->meter, sample, now_ns, wall_ns, slices);
    for (unsigned i = 0; i < n; i++) {
        struct rg_account_part *part = part_of(account, slices[i].hour);
        const uint64_t held = slices[i].figures.held_ns;
        rg_totals_add(&account->accounts->totals, account->user, slices[i].hour, held);
        rg_totals_add(&account->accounts->totals, account->project, slices[i].hour, held);
        if (!part)
            continue; /* no memory; the meter's total has it, which is said at the end */
        rg_figures_add(&part->told.slice.figures, &slices[i].figures);
        part->told.until = (int64_t)(wall_ns / 1000000000u);
        part->dirty = true;
    }
}

void rg_account_end(struct rg_account *account, const struct rg_figures_sample *sample, uint64_t now_ns,
                    uint64_t wall_ns, const char *how)
{
    if (!account)
        return;
    rg_account_sample(account, sample, now_ns, wall_ns);
    const int64_t ended = (int64_t)(wall_ns / 1000000000u);
    account->facts.ended = ended > account->facts.started ? ended : account->facts.started;
    snprintf(account->facts.end, sizeof account->facts.end, "%s", how);
    account->dirty = account->over = true;
    if (account->user)
        account->user->uses--;
    if (account->project)
        account->project->uses--;
    account->accounts->n_over++;
    keep_few(account->accounts);
}
