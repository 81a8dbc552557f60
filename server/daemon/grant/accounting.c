/* accounting.c - see accounting.h. */
#include "server/daemon/grant/accounting.h"

#include <stdio.h>
#include <string.h>

void rg_accounting_owner(const struct rg_who *who, const char *address, const char *project,
                         struct rg_account_owner *out)
{
    *out = (struct rg_account_owner){.kind = RG_USAGE_NOBODY};
    snprintf(out->project, sizeof out->project, "%s", project);
    switch (who->proof) {
    case RG_PROOF_CERTIFICATE:
        out->kind = RG_USAGE_CERTIFICATE;
        snprintf(out->user, sizeof out->user, "%s", who->name);
        return;
    case RG_PROOF_USER:
        out->kind = RG_USAGE_LOCAL;
        snprintf(out->user, sizeof out->user, "uid:%u", (unsigned)who->uid);
        return;
    case RG_PROOF_NONE:
        break;
    }
    const char *port = strrchr(address, ':');
    snprintf(out->user, sizeof out->user, "%s", RG_USAGE_UNAUTHENTICATED);
    snprintf(out->address, sizeof out->address, "%.*s", port ? (int)(port - address) : (int)strlen(address),
             address);
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t rg_accounting_memory(const struct rg_shares *shares, const struct rg_shares_session *session)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < session->grant.n_devices; i++) {
        const struct rg_share_grant_device *device = &session->grant.devices[i];
        bytes =
            sum(bytes, device->memory_limit ? device->memory_limit : shares->devices[device->ordinal].total);
    }
    return bytes;
}

/* The worker can write to the slot at any time: each number is read once. */
static uint64_t read_number(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

void rg_accounting_sample(const struct rg_shares *shares, const struct rg_shares_session *session,
                          struct rg_figures_sample *out)
{
    const struct rg_share_grant *grant = &session->grant;
    bool limited = true;
    *out = (struct rg_figures_sample){.n_devices = grant->n_devices};
    if (!session->slot)
        return;
    const struct rg_share_usage *usage = &session->slot->usage;
    out->bytes_in = read_number(&usage->bytes_in);
    out->bytes_out = read_number(&usage->bytes_out);
    for (uint32_t i = 0; i < grant->n_devices; i++) {
        const struct rg_share_usage_device *device = &usage->devices[i];
        out->busy_ns = sum(out->busy_ns, read_number(&device->busy_ns));
        out->launches = sum(out->launches, read_number(&device->launches));
        out->used_bytes = sum(out->used_bytes, read_number(&device->memory));
        out->peak_bytes = sum(out->peak_bytes, read_number(&device->memory_peak));
        out->capacity_bytes = sum(out->capacity_bytes, shares->devices[grant->devices[i].ordinal].total);
        out->granted_bytes = sum(out->granted_bytes, grant->devices[i].memory_limit);
        limited = limited && grant->devices[i].memory_limit;
    }
    if (!limited)
        out->granted_bytes = 0;
}
