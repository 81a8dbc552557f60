/* meter.c - what is charged, by whom it is held, and freeing it; see meter.h. What only a change tells is in meter_change.c, pools in meter_pools.c. */
#include "server/shares/worker/meter.h"

#include "common/sync/scoped_lock.h"
#include "server/shares/worker/meter_internal.h"

#include <stdlib.h>

/* NVIDIA's driver takes memory from the device in blocks of 2 MiB, of which small allocations share one. */
#define BLOCK (2ull << 20)
#define SMALL (1ull << 20)
#define UNIT  512ull
#define PAGE  4096ull /* of the software device */

struct rg_driver_table rg_share_direct;
struct rg_meter_all rg_meter_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct rg_share_account *rg_meter_account_of(CUdevice device)
{
    return rg_share.slot && device >= 0 && (uint32_t)device < rg_share.n_devices ? &rg_share.accounts[device]
                                                                                 : NULL;
}

bool rg_meter_current(CUdevice *device)
{
    return rg_share_direct.cuCtxGetDevice(device) == CUDA_SUCCESS;
}

uint64_t rg_meter_round(uint64_t bytes)
{
    const uint64_t unit = rg_share.own_memory ? PAGE : bytes >= SMALL ? BLOCK : UNIT;
    return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) & ~(unit - 1);
}

/* What is shown of the session. */
void rg_meter_tell(struct rg_share_account *account)
{
    struct rg_share_usage_device *usage = rg_share_usage((uint32_t)(account - rg_share.accounts));
    const uint64_t held = rg_share_held(account);
    atomic_store_explicit(&usage->memory, held, memory_order_relaxed);
    rg_share_note_left((uint32_t)(account - rg_share.accounts));
    if (held > atomic_load_explicit(&usage->memory_peak, memory_order_relaxed))
        atomic_store_explicit(&usage->memory_peak, held, memory_order_relaxed);
}

/* --- what the driver says. The lock is held ---------------------------------------------------------------- */

static uint64_t reserved_of(CUmemoryPool pool)
{
    uint64_t reserved = 0;
    if (rg_share_direct.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
        CUDA_SUCCESS)
        return 0;
    return reserved;
}

/* Makes what is charged for something what it is now. */
static void correct(struct rg_share_account *account, uint64_t before, uint64_t now)
{
    if (now > before)
        rg_share_charge_anyway(account, now - before);
    else
        rg_share_refund(account, before - now);
}

/* The driver's own count, which holds for the device of the calling thread's context. */
static bool used_of(CUdevice device, uint64_t *used)
{
    size_t available, total;
    CUdevice current;
    if (!rg_meter_current(&current) || current != device ||
        rg_share_direct.cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS)
        return false;
    *used = total - available;
    return true;
}

void rg_meter_look_locked(CUdevice device)
{
    struct rg_share_account *account = rg_meter_account_of(device);
    uint64_t used;
    if (!account)
        return;
    if (rg_share.own_memory) {
        if (used_of(device, &used))
            correct(account, rg_share_held(account),
                    used + rg_meter_all.pending[device] + rg_meter_all.imported[device]);
    } else {
        for (struct rg_meter_pool *at = rg_meter_all.pools; at; at = at->next) {
            if (at->device != device)
                continue;
            const uint64_t now = reserved_of(at->pool);
            correct(account, at->charged, now);
            at->charged = now;
        }
    }
    rg_meter_tell(account);
}

void rg_meter_look(CUdevice device)
{
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    rg_meter_look_locked(device);
}

/* --- charging ---------------------------------------------------------------------------------------------- */

/* Pools keep nothing that is not in use. */
static void trim(CUdevice device)
{
    CUmemoryPool standard = NULL;
    if (rg_share_direct.cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS)
        (void)rg_share_direct.cuMemPoolTrimTo(standard, 0);
    for (const struct rg_meter_pool *at = rg_meter_all.pools; at; at = at->next)
        if (at->device == device && at->pool != standard)
            (void)rg_share_direct.cuMemPoolTrimTo(at->pool, 0);
}

/* The lock is held. */
bool rg_meter_charge_locked(struct rg_share_account *account, CUdevice device, uint64_t bytes)
{
    if (rg_share_charge(account, bytes))
        return true;
    rg_meter_look_locked(device);
    if (rg_share_charge(account, bytes))
        return true;
    trim(device);
    rg_meter_look_locked(device);
    if (rg_share_charge(account, bytes))
        return true;
    struct rg_share_usage_device *usage = rg_share_usage((uint32_t)device);
    atomic_fetch_add_explicit(&usage->refusals, 1, memory_order_relaxed);
    return false;
}

/* Whether the session has the device for itself: no other has, or was promised, any of its memory. */
static bool is_alone(const struct rg_share_account *account)
{
    const struct rg_share_place *place = &account->device.page->places[account->place];
    return rg_share_owed(&account->device) == atomic_load(&place->held) && !atomic_load(&place->guaranteed);
}

/*
 * Whether the driver itself keeps the session within what it has: then it alone knows what an allocation takes, and nothing that
 * it would grant is refused before.
 */
static bool is_kept_by_driver(const struct rg_share_account *account, CUdevice device)
{
    if (!rg_share.own_memory || rg_meter_all.imported[device])
        return false;
    return account->limit ? !rg_share.grant.overcommitted : is_alone(account);
}

static bool begin(struct rg_meter *meter, CUdevice device, uint64_t bytes, bool kept_by_driver)
{
    if (kept_by_driver) {
        const uint64_t left = rg_share_left(meter->account);
        meter->charged = bytes < left ? bytes : left;
        rg_share_charge_anyway(meter->account, meter->charged);
    } else if (!rg_meter_charge_locked(meter->account, device, bytes)) {
        return false;
    }
    rg_meter_all.pending[device] += meter->charged;
    return true;
}

bool rg_meter_begin(struct rg_meter *meter, CUdevice device, uint64_t bytes)
{
    *meter = (struct rg_meter){.account = rg_meter_account_of(device), .device = device, .charged = bytes};
    if (!meter->account)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    return begin(meter, device, bytes, is_kept_by_driver(meter->account, device));
}

bool rg_meter_begin_current(struct rg_meter *meter, uint64_t bytes)
{
    CUdevice device;
    return rg_meter_begin(meter, rg_meter_current(&device) ? device : -1, bytes);
}

bool rg_meter_begin_import(struct rg_meter *meter, CUdevice device, uint64_t bytes)
{
    *meter = (struct rg_meter){.account = rg_meter_account_of(device), .device = device, .charged = bytes};
    if (!meter->account)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    return begin(meter, device, bytes, false);
}

void rg_meter_add_entry(enum rg_meter_kind kind, uint64_t key, CUdevice device, uint64_t bytes)
{
    struct rg_meter_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return; /* what it holds stays charged: too much rather than too little */
    entry->kind = kind;
    entry->key = key;
    entry->bytes = bytes;
    entry->device = device;
    entry->uses = 1;
    if (kind == RG_METER_CONTEXT)
        entry->context = (CUcontext)(uintptr_t)key;
    else if (kind != RG_METER_PHYSICAL && kind != RG_METER_IMPORT && kind != RG_METER_LIBRARY)
        (void)rg_share_direct.cuCtxGetCurrent(&entry->context);
    rg_hash_table_add(&rg_meter_all.table, &entry->link, key);
}

static struct rg_meter_entry *find(enum rg_meter_kind kind, uint64_t key)
{
    for (struct rg_hash_link *at = rg_hash_table_first(&rg_meter_all.table, key); at;
         at = rg_hash_table_next(at)) {
        struct rg_meter_entry *entry = (struct rg_meter_entry *)at;
        if (entry->kind == kind && entry->key == key)
            return entry;
    }
    return NULL;
}

/*
 * Whether what is held is more than may be: a charge that was made anyway. What was promised may be held whatever others hold, or
 * try to.
 */
bool rg_meter_is_over(const struct rg_share_account *account)
{
    const uint64_t held = rg_share_held(account);
    if (account->limit && held > account->limit)
        return true;
    if (held <= atomic_load(&account->device.page->places[account->place].guaranteed))
        return false;
    return rg_share_owed(&account->device) > atomic_load(&account->device.page->capacity);
}

/* Of memory of another session, which the driver does not count as this one's. */
static bool is_import(enum rg_meter_kind kind)
{
    return kind == RG_METER_IMPORT || kind == RG_METER_OPENED;
}

/* Of what the driver counts itself. */
static bool end_own(struct rg_meter *meter, CUresult result, enum rg_meter_kind kind, uint64_t key,
                    uint64_t bytes)
{
    const CUdevice device = meter->device;
    uint64_t used;
    if (result == CUDA_SUCCESS && is_import(kind)) {
        rg_meter_all.imported[device] += bytes;
        correct(meter->account, meter->charged, bytes);
        rg_meter_add_entry(kind, key, device, bytes);
        rg_meter_tell(meter->account);
        return true;
    }
    if (result != CUDA_SUCCESS)
        rg_share_refund(meter->account, meter->charged);
    rg_meter_look_locked(device);
    const bool fits = result != CUDA_SUCCESS || !used_of(device, &used) || !rg_meter_is_over(meter->account);
    return fits;
}

static bool end_counted(struct rg_meter *meter, CUresult result, enum rg_meter_kind kind, uint64_t key,
                        uint64_t bytes)
{
    struct rg_share_account *account = meter->account;
    bool fits = true;
    if (result != CUDA_SUCCESS) {
        rg_share_refund(account, meter->charged);
    } else if (bytes > meter->charged &&
               !rg_meter_charge_locked(account, meter->device, bytes - meter->charged)) {
        rg_share_refund(account, meter->charged);
        fits = false;
    } else {
        if (bytes < meter->charged)
            rg_share_refund(account, meter->charged - bytes);
        rg_meter_add_entry(kind, key, meter->device, bytes);
    }
    rg_meter_tell(account);
    return fits;
}

bool rg_meter_end(struct rg_meter *meter, CUresult result, enum rg_meter_kind kind, uint64_t key,
                  uint64_t bytes)
{
    if (!meter->account)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    rg_meter_all.pending[meter->device] -= meter->charged;
    return rg_share.own_memory ? end_own(meter, result, kind, key, bytes)
                               : end_counted(meter, result, kind, key, bytes);
}

bool rg_meter_pool_end(struct rg_meter *meter, CUresult result)
{
    struct rg_share_account *account = meter->account;
    if (!account)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    rg_meter_all.pending[meter->device] -= meter->charged;
    rg_share_refund(account, meter->charged);
    rg_meter_look_locked(meter->device);
    return result != CUDA_SUCCESS || !rg_meter_is_over(account);
}

bool rg_meter_has_here(enum rg_meter_kind kind, uint64_t key)
{
    CUcontext here = NULL;
    (void)rg_share_direct.cuCtxGetCurrent(&here);
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    struct rg_hash_link *at = rg_hash_table_first(&rg_meter_all.table, key);
    while (at &&
           (((struct rg_meter_entry *)at)->kind != kind || ((struct rg_meter_entry *)at)->context != here))
        at = rg_hash_table_next(at);
    return at != NULL;
}

bool rg_meter_again(enum rg_meter_kind kind, uint64_t key)
{
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    struct rg_meter_entry *entry = find(kind, key);
    if (entry)
        entry->uses++;
    return entry != NULL;
}

/* --- freeing ----------------------------------------------------------------------------------------------- */

struct rg_meter_freed rg_meter_free_begin(enum rg_meter_kind kind, uint64_t key)
{
    struct rg_meter_freed freed = {NULL};
    if (!rg_share.slot)
        return freed;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    freed.entry = find(kind, key);
    if (freed.entry)
        rg_hash_table_remove(&rg_meter_all.table, &freed.entry->link);
    return freed;
}

/* It is out of the table, and the driver has freed what it stands for. */
static void end_entry(struct rg_meter_entry *entry)
{
    struct rg_share_account *account = rg_meter_account_of(entry->device);
    if (is_import(entry->kind) && rg_share.own_memory)
        rg_meter_all.imported[entry->device] -= entry->bytes;
    rg_share_refund(account, entry->bytes);
    rg_meter_tell(account);
    free(entry);
}

void rg_meter_free_end(struct rg_meter_freed *freed, CUresult result)
{
    struct rg_meter_entry *entry = freed->entry;
    CUdevice device;
    if (!rg_share.slot)
        return;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    if (entry && (result != CUDA_SUCCESS || --entry->uses))
        rg_hash_table_add(&rg_meter_all.table, &entry->link, entry->key);
    else if (entry)
        end_entry(entry);
    if (rg_share.own_memory && rg_meter_current(&device))
        rg_meter_look_locked(device);
}

void rg_meter_context_gone(CUcontext context)
{
    if (!rg_share.slot)
        return;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    struct rg_hash_link *next = rg_hash_table_after(&rg_meter_all.table, NULL);
    while (next) {
        struct rg_meter_entry *entry = (struct rg_meter_entry *)next;
        next = rg_hash_table_after(&rg_meter_all.table, next);
        if (entry->context != context)
            continue;
        rg_hash_table_remove(&rg_meter_all.table, &entry->link);
        end_entry(entry);
    }
}
