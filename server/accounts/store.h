/*
 * store.h - the accounts' file: SQLite, in the state folder (accounts/accounts.db), a writer a server and any number of readers.
 *
 * Happy path: rg_store_open, then for each batch rg_store_begin, _session and _part as often as wanted, rg_store_commit. All of a batch
 * is in the file or nothing. The file is in WAL mode: a process that is killed at any point leaves the last batch that was
 * committed; of a machine that loses power the last seconds may be missing, and the file is whole.
 *
 * Several servers may have one state folder. Each has a number of its own (its run), and holds a lock on that number as long as
 * its accountant lives; sessions of runs that hold none are closed at their last measurement.
 *
 * Failures come with one sentence: what is wrong with which file, and what to do. RG_ERR_INVALID: it is damaged, is no such file, or
 * was written by a newer version; RG_ERR_IO: full, read-only, …; RG_ERR_TIMEOUT: others have it for too long. A failure ends the batch,
 * which is then not in the file. The file of a newer version and a damaged one are not touched. One thread.
 */
#ifndef RG_SERVER_ACCOUNTS_STORE_H
#define RG_SERVER_ACCOUNTS_STORE_H

#include "common/base/status.h"
#include "proto/accounts/usage.h"
#include "server/accounts/protocol.h"

#include <stdbool.h>
#include <stddef.h>

#define RG_STORE_VERSION 2

struct rg_store;

/**
 * Opens the file in `folder`, and makes it if it is not there. `run`: this server's number, not 0. For readers 0: nothing is made, and
 * RG_ERR_NOT_FOUND says that there are no accounts yet.
 */
RG_MUST_CHECK enum rg_status rg_store_open(struct rg_store **store, const char *folder, uint64_t run,
                                           char *why, size_t why_size);
/** Closes; what is not committed is dropped. NULL is fine. */
void rg_store_close(struct rg_store *store);

/**
 * A batch: what is kept between begin and commit is in the file as a whole or not at all. A session comes before its parts; what is
 * there of the same number is replaced. What fails drops the batch, and `why` says what SQLite says. RG_ERR_INVALID: a part of a session
 * that the file does not know.
 */
RG_MUST_CHECK enum rg_status rg_store_begin(struct rg_store *store, char *why, size_t why_size);
RG_MUST_CHECK enum rg_status rg_store_session(struct rg_store *store,
                                              const struct rg_accountant_session *session, char *why,
                                              size_t why_size);
RG_MUST_CHECK enum rg_status rg_store_part(struct rg_store *store, const struct rg_accountant_part *part,
                                           char *why, size_t why_size);
RG_MUST_CHECK enum rg_status rg_store_commit(struct rg_store *store, char *why, size_t why_size);
/** Drops what was not committed. */
void rg_store_rollback(struct rg_store *store);

/** Closes sessions that have no server any more at their last measurement; `own`: this server's as well. */
RG_MUST_CHECK enum rg_status rg_store_close_sessions(struct rg_store *store, bool own, char *why,
                                                     size_t why_size);
/**
 * Removes what is older than `keep_s` (0: nothing is), as far as the clock, which says `now`, can be believed. *removed: how many
 * sessions.
 */
RG_MUST_CHECK enum rg_status rg_store_expire(struct rg_store *store, uint64_t keep_s, int64_t now,
                                             uint64_t *removed, char *why, size_t why_size);

/** Calls `each` for every owner with usage in the periods. */
typedef void rg_store_total(void *data, const struct rg_account_owner *owner, uint64_t day_ns,
                            uint64_t month_ns);
/** Ended early by an error, `each` may have been called for some. */
RG_MUST_CHECK enum rg_status rg_store_totals(struct rg_store *store, const struct rg_accountant_load *load,
                                             rg_store_total *each, void *data, char *why, size_t why_size);

/** Called now and then while a question is answered, and may do nothing with the store. True: the question is put off (RG_ERR_TIMEOUT). */
typedef bool rg_store_yields(void *data);
void rg_store_yield_when(struct rg_store *store, rg_store_yields *yields, void *data);

/** Answers a question: a page of rows. RG_ERR_TIMEOUT: it takes too long; RG_ERR_NO_MEMORY: more than RG_USAGE_MEMORY_MAX. */
RG_MUST_CHECK enum rg_status rg_store_query(struct rg_store *store, const struct rg_accountant_query *query,
                                            struct rg_usage_answer *answer, char *why, size_t why_size);

#endif
