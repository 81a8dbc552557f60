/*
 * accounts.h - the monitor's side of the accounts: what sessions have used, told to the accountant (protocol.h) and kept until that
 * has saved it; and the GPU time of users and projects in this day and month, for quotas.
 *
 * Happy path: rg_accounts_create, rg_accounts_attach with a socket to an accountant, rg_accounts_begin for a session, every
 * second rg_accounts_tick and rg_account_sample for each, rg_account_end when it is over, then rg_accounts_flush; rg_accounts_receive
 * when the socket polls readable. An accountant that dies is replaced: rg_accounts_detach, and attach again. Nothing here waits.
 *
 * Failures of the accountant are said once each; what it could not save is kept, and said again every RG_ACCOUNTS_RETRY_NS. GPU time
 * that was used before this server began is not known until the accountant could read it (rg_accounts_known). Main thread.
 */
#ifndef RG_SERVER_ACCOUNTS_ACCOUNTS_H
#define RG_SERVER_ACCOUNTS_ACCOUNTS_H

#include "common/base/status.h"
#include "server/accounts/figures.h"
#include "server/accounts/protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define RG_ACCOUNTS_SAMPLE_NS 1000000000ull
#define RG_ACCOUNTS_RETRY_NS  5000000000ull

struct rg_accounts;
struct rg_account; /* of a session */

/** NULL: no memory. */
struct rg_accounts *rg_accounts_create(void);
/** What is not saved by now is said, a line for each session. NULL is fine. */
void rg_accounts_destroy(struct rg_accounts *accounts);

/** The accountant's socket, which belongs to `accounts` from now on; all that is not saved will be told to it. */
void rg_accounts_attach(struct rg_accounts *accounts, int socket);
/** It is gone: closes the socket. */
void rg_accounts_detach(struct rg_accounts *accounts);
/** -1: none. */
int rg_accounts_socket(const struct rg_accounts *accounts);
/** Takes what the accountant has answered. False: it has gone. */
RG_MUST_CHECK bool rg_accounts_receive(struct rg_accounts *accounts);

/** The wall clock says so many ns since 1970: a new day or month may begin. Before the samples of a round. */
void rg_accounts_tick(struct rg_accounts *accounts, uint64_t wall_ns);
/** Tells what has changed, as far as the socket takes it. Returns when it is to be called again; UINT64_MAX: when something changes. */
uint64_t rg_accounts_flush(struct rg_accounts *accounts, uint64_t now_ns);
/** Whether all is saved. */
bool rg_accounts_are_saved(const struct rg_accounts *accounts);

/** A session begins, of which `facts` has all but its times. NULL: no memory; it goes on unaccounted, which was said. */
struct rg_account *rg_accounts_begin(struct rg_accounts *accounts, const struct rg_accountant_session *facts,
                                     uint64_t now_ns, uint64_t wall_ns);
/** NULL accounts are fine in all of these. */
void rg_account_sample(struct rg_account *account, const struct rg_figures_sample *sample, uint64_t now_ns,
                       uint64_t wall_ns);
/** The last sample; `how` it ended, for people. The account is not the caller's any more. */
void rg_account_end(struct rg_account *account, const struct rg_figures_sample *sample, uint64_t now_ns,
                    uint64_t wall_ns, const char *how);

/** Asks for usage: the answer, packed, goes to `socket`, which stays the caller's. False: not now. */
RG_MUST_CHECK bool rg_accounts_ask(struct rg_accounts *accounts, const struct rg_accountant_query *query,
                                   int socket);

/** Whether the last attempt to save failed. */
bool rg_accounts_are_failing(const struct rg_accounts *accounts);
/** Whether it has been asked what was used before, and no answer has come. */
bool rg_accounts_is_loading(const struct rg_accounts *accounts);
/** Whether GPU time of this day and month from before this server began is known. */
bool rg_accounts_known(const struct rg_accounts *accounts);
/** GPU time held in this day and month by a user, whatever the project. Of those without a proof, of the address. */
void rg_accounts_of_user(const struct rg_accounts *accounts, const struct rg_account_owner *owner,
                         uint64_t *day_ns, uint64_t *month_ns);
/** The same of all addresses of users of a kind that are called so: for groups. */
void rg_accounts_of_name(const struct rg_accounts *accounts, enum rg_usage_kind kind, const char *user,
                         uint64_t *day_ns, uint64_t *month_ns);
void rg_accounts_of_project(const struct rg_accounts *accounts, const char *project, uint64_t *day_ns,
                            uint64_t *month_ns);
struct rg_period rg_accounts_day(const struct rg_accounts *accounts);
struct rg_period rg_accounts_month(const struct rg_accounts *accounts);

#endif
