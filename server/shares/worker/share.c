/* share.c - see share.h. */
#include "server/shares/worker/share.h"

#include "server/modules.h"

#include <fcntl.h>
#include <unistd.h>

struct rg_share rg_share;

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
    atomic_store(&slot->usage.state, RG_SHARE_RUNNING);
    return RG_OK;
}

const struct rg_server_module rg_share_module = {.size = 0};
