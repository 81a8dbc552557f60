/*
 * accountant_process.h - the accountant, the process that has the accounts' file (server/accounts/): starting it, again when it has
 * ended, and the end.
 *
 * Happy path: rg_accountant_start once, then rg_accountant_revive now and then and rg_accountant_reap after SIGCHLD;
 * rg_accountant_stop. It has no rights but to the accounts' folder, and outlives the monitor for as long as it takes to save what
 * that has told it. Main thread.
 */
#ifndef RG_SERVER_DAEMON_PROCESS_ACCOUNTANT_PROCESS_H
#define RG_SERVER_DAEMON_PROCESS_ACCOUNTANT_PROCESS_H

#include "common/base/status.h"
#include "server/accounts/accounts.h"
#include "server/sandbox/identities.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RG_ACCOUNTANT_PAUSE_NS 1000000000ull
#define RG_ACCOUNTANT_LATER_NS 60000000000ull /* after one that has said why it cannot work */
#define RG_ACCOUNTANT_LAST_MS  5000u

struct rg_accountant {
    struct rg_accounts *accounts; /* NULL: none are kept */
    struct rg_sandboxes *sandboxes;
    struct rg_sandbox_lease *lease;
    char folder[PATH_MAX];
    uint64_t run, keep_s;
    pid_t pid; /* 0: there is none */
    uint64_t not_before_ns;
};

/**
 * Keeps accounts in the folder `accounts` of the state folder, which must be there, and waits a moment until it is known what was used
 * before. RG_ERR_NO_MEMORY, RG_ERR_NOT_FOUND, RG_ERR_IO: it was said. A file that cannot be used is no failure here.
 */
RG_MUST_CHECK enum rg_status rg_accountant_start(struct rg_accountant *accountant,
                                                 struct rg_sandboxes *sandboxes, const char *state_folder,
                                                 uint64_t keep_s);
/** Starts another where there is none, if it is time. Returns when it will be; UINT64_MAX: there is one, or none is wanted. */
uint64_t rg_accountant_revive(struct rg_accountant *accountant);
/** After SIGCHLD. */
void rg_accountant_reap(struct rg_accountant *accountant);
/** After its socket has polled readable. */
void rg_accountant_receive(struct rg_accountant *accountant);
/** Waits a moment until all is saved, and says what is not. */
void rg_accountant_stop(struct rg_accountant *accountant);

/** ns since 1970. */
uint64_t rg_accountant_wall_ns(void);

#endif
