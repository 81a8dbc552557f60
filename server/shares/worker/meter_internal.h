/* meter_internal.h - the inside of the meter (meter.h), for its files. */
#ifndef RG_SERVER_SHARES_WORKER_METER_INTERNAL_H
#define RG_SERVER_SHARES_WORKER_METER_INTERNAL_H

#include "common/base/hash_table.h"
#include "server/shares/worker/meter.h"

#include <pthread.h>

struct rg_meter_entry {
    struct rg_hash_link link;
    enum rg_meter_kind kind;
    uint64_t key, bytes;
    CUdevice device;
    CUcontext context; /* with which it goes; NULL: it outlives contexts */
    unsigned uses;     /* of what can be opened several times */
};

struct rg_meter_pool {
    struct rg_meter_pool *next;
    CUmemoryPool pool;
    CUdevice device;
    uint64_t charged;
};

extern struct rg_meter_all {
    pthread_mutex_t lock;
    struct rg_hash_table table;
    struct rg_meter_pool *pools;
    /* own_memory: charges under way, and what other sessions have that this one holds on to, which the driver does not count */
    uint64_t pending[RG_DEVICES_MAX], imported[RG_DEVICES_MAX];
} rg_meter_all;

/** NULL: of this device nothing is counted. */
struct rg_share_account *rg_meter_account_of(CUdevice device);

/* What follows is called with the lock. */

/** What is shown of the session. */
void rg_meter_tell(struct rg_share_account *account);
/** Makes what is charged what the driver says. */
void rg_meter_look_locked(CUdevice device);
/** Charges, after a look and what pools give back where it is too little. False: there are not so many left. */
RG_MUST_CHECK bool rg_meter_charge_locked(struct rg_share_account *account, CUdevice device, uint64_t bytes);
void rg_meter_add_entry(enum rg_meter_kind kind, uint64_t key, CUdevice device, uint64_t bytes);
/**
 * Whether what is held is more than may be: a charge that was made anyway. What was promised may be held whatever others hold, or
 * try to.
 */
bool rg_meter_is_over(const struct rg_share_account *account);

#endif
