/*
 * ledger.h - who holds how much of a device's memory: never more than there is, and what is guaranteed stays free.
 *
 * A place of the device's page is one session's. What the device owes a session is what it is guaranteed or what it holds,
 * whichever is more; the sum over all places never exceeds the device's capacity. So a session whose charge stays within its
 * guarantee takes from nobody and looks at nobody. Any other charge is written first and then checked against the sum of all,
 * and withdrawn if that is too much; so is a guarantee. As each writes before it reads, in one order for all (sequential
 * consistency), of two that do not fit together at least one sees the other: nothing is ever promised twice. That both see each
 * other, and both give way although one would have fitted, is kept from happening by taking turns (`charging`); a turn is waited
 * for only so long, as a process that was stopped, or taken over, may keep it: then it is the rule above alone.
 *
 * Deaths: a process that dies at any point leaves its place with what it held, and perhaps with a charge that was not granted
 * yet; rg_share_device_drop, by the monitor after it has been reaped, frees all of it, and its turn.
 *
 * A charge is there before the driver is asked and is given back after the driver has freed: the ledger is never behind.
 */
#ifndef RG_SERVER_SHARES_LEDGER_H
#define RG_SERVER_SHARES_LEDGER_H

#include "server/shares/device_page.h"

/** A session's account on one device. Of a worker; several threads may use it. */
struct rg_share_account {
    struct rg_share_device device;
    uint32_t place;
    uint64_t session;
    uint64_t limit; /* bytes; 0: what the device has */
};

/** Charges `bytes` more, or nothing. False: the limit or the device's memory is exhausted. */
RG_MUST_CHECK bool rg_share_charge(struct rg_share_account *account, uint64_t bytes);
/** Charges what the driver has already taken, however much that is. */
void rg_share_charge_anyway(struct rg_share_account *account, uint64_t bytes);
void rg_share_refund(struct rg_share_account *account, uint64_t bytes);
/** What it holds. */
uint64_t rg_share_held(const struct rg_share_account *account);
/** How much more it could charge now. */
uint64_t rg_share_left(const struct rg_share_account *account);

/**
 * Guarantees a place so much. False: there is not enough; it has the guarantee that it had before. The monitor, when the session
 * begins; then its worker, which gives it up while the session is suspended.
 */
RG_MUST_CHECK bool rg_share_guarantee(struct rg_share_device *device, uint32_t place, uint64_t bytes);
/** What all sessions hold. */
uint64_t rg_share_held_by_all(const struct rg_share_device *device);
/** What the device owes all sessions: guarantees, and what is held beyond them. */
uint64_t rg_share_owed(const struct rg_share_device *device);

#endif
