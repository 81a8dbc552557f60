/* persistence.c - see persistence.h. */
#include "server/daemon/persistence.h"

#include "common/base/log.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether there is an authority already. */
static bool has_authority(const struct rg_daemon_settings *settings)
{
    char folder[PATH_MAX], path[PATH_MAX], why[256];
    if (settings->state_dir)
        snprintf(folder, sizeof folder, "%s", settings->state_dir);
    else if (rg_identity_state_dir(folder, sizeof folder, why, sizeof why) != RG_OK)
        return false;
    return snprintf(path, sizeof path, "%s/ca.crt", folder) < (int)sizeof path && access(path, F_OK) == 0;
}

/* TLS is there where it is needed, where it was asked for, and where it was set up before. */
static bool wants_identity(const struct rg_daemon_settings *settings, bool open)
{
    return (open && !settings->allow_unauthenticated) || rg_http_wants_tls(settings) || settings->state_dir ||
           settings->tls_ca || settings->tls_cert || settings->tls_key || has_authority(settings);
}

bool rg_persistence_open_identity(struct rg_monitor *monitor, const struct rg_daemon_settings *settings,
                                  bool open)
{
    char why[RG_CONTROL_REASON] = "";
    if (!wants_identity(settings, open))
        return true;
    const struct rg_identity_settings wanted = rg_daemon_settings_identity(settings);
    if (rg_identity_open(&wanted, &monitor->policy.identity, why, sizeof why) == RG_OK)
        return true;
    rg_error("%s", why);
    return false;
}

bool rg_persistence_wants_accounts(const struct rg_monitor *monitor,
                                   const struct rg_daemon_settings *settings)
{
    const char *accounts = settings->accounts;
    return strcmp(accounts, "on") == 0 || (strcmp(accounts, "auto") == 0 && monitor->policy.identity);
}

bool rg_persistence_start_accounts(struct rg_monitor *monitor, const struct rg_daemon_settings *settings)
{
    char folder[PATH_MAX] = "", why[512] = "";
    struct rg_state state;
    if (!rg_persistence_wants_accounts(monitor, settings))
        return true;
    enum rg_status status = RG_OK;
    if (settings->state_dir)
        snprintf(folder, sizeof folder, "%s", settings->state_dir);
    else
        status = rg_identity_state_dir(folder, sizeof folder, why, sizeof why);
    if (status == RG_OK)
        status = rg_state_open(&state, folder, true, why, sizeof why);
    if (status != RG_OK) {
        rg_error("there is no folder for accounts: %s", why);
        return false;
    }
    snprintf(folder, sizeof folder, "%s", state.path);
    rg_state_close(&state);
    status = rg_accountant_start(&monitor->accountant, monitor->sandboxes, folder,
                                 (uint64_t)settings->accounts_days * 86400u);
    monitor->sessions.accounts = monitor->accountant.accounts;
    return status == RG_OK;
}
