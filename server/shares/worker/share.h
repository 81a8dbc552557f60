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
    /* how much more the session could take, of each device and of the one with least: levels (proto/memory_level.h) */
    _Atomic uint8_t left_of[RG_DEVICES_MAX], left;
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

/** The session is over: what it has is free as soon as this process has ended. */
void rg_share_leave(void);

/** Looks how much is left of a device, for what the client is told. After each change of what the session holds. */
void rg_share_note_left(uint32_t device);
/** What the session holds of all its devices. */
uint64_t rg_share_held_in_all(void);
/** For code that has been loaded: the level (proto/memory_level.h) of what that took, since so much was held. */
unsigned rg_share_taken_since(uint64_t held);

/** What the worker counts of device `device`; NULL: nothing is counted. */
static inline struct rg_share_usage_device *rg_share_usage(uint32_t device)
{
    return rg_share.slot && device < rg_share.n_devices ? &rg_share.slot->usage.devices[device] : NULL;
}

#endif
