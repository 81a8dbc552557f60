/*
 * share.h - the worker's end of its session's share: the slot, and its accounts on the devices' pages.
 *
 * One of a process, as the driver is. Attached by main before the driver is loaded; where nothing was attached (tests that run
 * workers of their own), there are no limits and nothing is counted. Devices are numbered as the driver numbers them here.
 */
#ifndef RG_SERVER_SHARES_WORKER_SHARE_H
#define RG_SERVER_SHARES_WORKER_SHARE_H

#include "server/shares/ledger.h"
#include "server/shares/slot.h"

struct rg_share {
    struct rg_share_slot *slot;  /* NULL: nothing was attached */
    struct rg_share_grant grant; /* as the session began; the slot has it as it is now */
    uint64_t session;
    uint32_t n_devices;
    struct rg_share_account accounts[RG_DEVICES_MAX];
    bool
        own_memory; /* each process of this driver has the whole device's memory for itself: the software device */
};

extern struct rg_share rg_share;

/**
 * Maps the slot `fd`, and the pages of its devices, whose descriptors follow it. Closes all of them. RG_ERR_INVALID: they are
 * not what the monitor makes.
 */
RG_MUST_CHECK enum rg_status rg_share_attach(int fd, uint32_t n_devices, uint64_t session, bool own_memory);

/**
 * For a worker that had a slot before it had a session: maps the session's slot `fd`, which is closed. What is charged stays so, as the
 * places are the same. RG_ERR_INVALID: they are not, or it is no slot. While the process has done nothing for its client.
 */
RG_MUST_CHECK enum rg_status rg_share_move(int fd, uint64_t session);

/** What the worker counts of device `device`; NULL: nothing is counted. */
static inline struct rg_share_usage_device *rg_share_usage(uint32_t device)
{
    return rg_share.slot && device < rg_share.n_devices ? &rg_share.slot->usage.devices[device] : NULL;
}

#endif
