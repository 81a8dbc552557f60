/* store_internal.h - the inside of struct rg_store, for store_open.c, store.c and store_query.c. */
#ifndef RG_SERVER_ACCOUNTS_STORE_INTERNAL_H
#define RG_SERVER_ACCOUNTS_STORE_INTERNAL_H

#include "common/base/clock.h"
#include "server/accounts/store.h"

#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>

enum { RG_STORE_SESSION, RG_STORE_PART, RG_STORE_CLOSE, RG_STORE_STATEMENTS };

struct rg_store {
    sqlite3 *db;
    sqlite3_stmt *statements[RG_STORE_STATEMENTS]; /* of writers */
    uint64_t run;                                  /* 0: reads only */
    int lock;                                      /* the lock file; -1: none */
    bool in_batch;
    bool asks;               /* a question is being answered, within RG_USAGE_MEMORY_MAX */
    uint64_t deadline_ns;    /* statements that take longer are interrupted; 0: none is */
    rg_store_yields *yields; /* NULL: no question is put off */
    void *yields_data;
    char path[PATH_MAX];
};

/** The sentence and the status of a failure of SQLite. */
RG_MUST_CHECK enum rg_status rg_store_explain(struct rg_store *store, int code, char *why, size_t why_size);
/** Runs statements without parameters: SQLite's code. */
int rg_store_run(struct rg_store *store, const char *sql);
/** One number, or -1. */
sqlite3_int64 rg_store_ask(struct rg_store *store, const char *sql, int *code);
/** The statements of writers: SQLite's code. */
int rg_store_prepare(struct rg_store *store);
/** The byte of the lock file that belongs to a run. */
struct flock rg_store_lock_of(uint64_t run);
/** What questions use beyond SQLite's own functions: SQLite's code. */
int rg_store_add_functions(struct rg_store *store);
/** What follows is interrupted after so long; 0: never. */
void rg_store_allow(struct rg_store *store, uint64_t ns);

#endif
