/* share.c - see share.h. */
#include "server/shares/worker/share.h"

#include "proto/memory_level.h"
#include "server/core/module.h"
#include "server/core/worker.h"
#include "server/shares/warm_places.h"
#include "server/shares/worker/meter.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

struct rg_share rg_share;

/* --- what the client is told ------------------------------------------------------------------------------ */

void rg_share_note_left(uint32_t device)
{
    unsigned least = RG_MEMORY_LEVEL_MASK;
    atomic_store(&rg_share.left_of[device],
                 (uint8_t)rg_memory_level_within(rg_share_left(&rg_share.accounts[device])));
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        const unsigned left = atomic_load(&rg_share.left_of[i]);
        least = left < least ? left : least;
    }
    atomic_store(&rg_share.left, (uint8_t)least);
}

static void note_all_left(void)
{
    for (uint32_t i = 0; i < rg_share.n_devices; i++)
        rg_share_note_left(i);
}

uint64_t rg_share_held_in_all(void)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < rg_share.n_devices; i++)
        held += rg_share_held(&rg_share.accounts[i]);
    return held;
}

unsigned rg_share_taken_since(uint64_t before)
{
    const uint64_t held = rg_share_held_in_all();
    return rg_share.slot ? rg_memory_level_of(held > before ? held - before : 0) : 0;
}

/* --- the slot --------------------------------------------------------------------------------------------- */

static bool attach_device(uint32_t i, int fd)
{
    struct rg_share_account *account = &rg_share.accounts[i];
    const bool good = rg_share_device_open(fd, &account->device) == RG_OK;
    close(fd);
    account->place = rg_share.grant.devices[i].place;
    account->session = rg_share.session;
    account->limit = rg_share.grant.devices[i].memory_limit;
    return good && account->place < account->device.n_places;
}

enum rg_status rg_share_attach(int fd, uint32_t n_devices, uint64_t session, bool own_memory)
{
    struct rg_share_slot *slot = rg_share_slot_open(fd);
    close(fd);
    if (!slot || n_devices > RG_DEVICES_MAX)
        return RG_ERR_INVALID;
    rg_share_slot_get(slot, &rg_share.grant, NULL);
    rg_share.session = session;
    rg_share.own_memory = own_memory;
    bool good = rg_share.grant.n_devices == n_devices;
    for (uint32_t i = 0; good && i < n_devices; i++)
        good = attach_device(i, fd + 1 + (int)i);
    if (!good)
        return RG_ERR_INVALID;
    rg_share.n_devices = n_devices;
    rg_share.slot = slot;
    note_all_left();
    atomic_store(&slot->usage.state, RG_SHARE_RUNNING);
    return RG_OK;
}

static bool move_device(struct rg_share_slot *slot, uint32_t i)
{
    struct rg_share_account *account = &rg_share.accounts[i];
    const struct rg_share_usage_device *before = &rg_share.slot->usage.devices[i];
    if (rg_share.grant.devices[i].place != account->place)
        return false;
    account->session = rg_share.session;
    account->limit = rg_share.grant.devices[i].memory_limit;
    atomic_store(&slot->usage.devices[i].memory, atomic_load(&before->memory));
    atomic_store(&slot->usage.devices[i].memory_peak, atomic_load(&before->memory_peak));
    return true;
}

enum rg_status rg_share_move(int fd, uint64_t session)
{
    struct rg_share_slot *slot = rg_share_slot_open(fd);
    close(fd);
    if (!slot)
        return RG_ERR_INVALID;
    rg_share_slot_get(slot, &rg_share.grant, NULL);
    rg_share.session = session;
    bool good = rg_share.slot && rg_share.grant.n_devices == rg_share.n_devices;
    for (uint32_t i = 0; good && i < rg_share.n_devices; i++)
        good = move_device(slot, i);
    if (!good)
        return RG_ERR_INVALID;
    rg_share_slot_close(rg_share.slot);
    rg_share.slot = slot;
    note_all_left();
    atomic_store(&slot->usage.state, RG_SHARE_RUNNING);
    return RG_OK;
}

void rg_share_leave(void)
{
    if (rg_share.slot)
        atomic_store(&rg_share.slot->usage.leaves, 1);
}

/* --- memory that warm workers hold ------------------------------------------------------------------------- */

/* How long a record waits for their processes to end, and how often it looks. */
enum { LEAVE_MS = 2000, LOOK_MS = 2 };

/* The device has no more memory: what workers without sessions have is this session's. */
static bool take_from_warm(struct rg_request *request)
{
    CUdevice device;
    (void)request;
    if (!rg_share.slot || !rg_meter_current(&device) || device < 0 || (uint32_t)device >= rg_share.n_devices)
        return false;
    struct rg_share_device *of = &rg_share.accounts[device].device;
    if (rg_warm_held(of) == 0)
        return false;
    rg_warm_press(of);
    for (int waited = 0; waited < LEAVE_MS && rg_warm_held(of) > 0; waited += LOOK_MS)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000l}, NULL);
    return rg_warm_held(of) == 0;
}

static void init(struct rg_worker *worker)
{
    worker->memory_left = &rg_share.left;
}

const struct rg_server_module rg_share_module = {.size = 0, .init = init, .reclaim = take_from_warm};
