/* device_list.c - the devices of all servers as one list. See device_list.h. */
#include "client/core/device_list.h"

#include "client/core/session.h"
#include "client/core/thread.h"

#include <stdatomic.h>

/*
 * A device of the application's list: whose it is, and its number there. Constant once the sessions have
 * begun. Those of guests stand behind them, and are none of the application's.
 */
struct entry {
    struct rg_session *session;
    CUdevice number;
};
static struct entry devices[RG_DEVICES_MAX];
static unsigned n_devices;
static _Atomic unsigned n_guests;

const struct rg_device_info *rg_device(CUdevice device)
{
    if (device < 0 || (unsigned)device >= n_devices)
        return NULL;
    const struct entry *entry = &devices[device];
    return &entry->session->hello.devices[entry->number];
}

unsigned rg_device_count(void)
{
    return n_devices;
}

struct rg_session *rg_device_session(CUdevice device)
{
    return device >= 0 && (unsigned)device < n_devices + n_guests ? devices[device].session : NULL;
}

CUdevice rg_device_there(const struct rg_session *session, CUdevice device)
{
    return rg_device_session(device) == session ? devices[device].number : -1;
}

CUdevice rg_device_here(const struct rg_session *session, CUdevice number)
{
    for (unsigned i = 0; i < n_devices; i++)
        if (devices[i].session == session && devices[i].number == number)
            return (CUdevice)i;
    return -1;
}

CUdevice rg_device_add_guest(struct rg_session *session)
{
    const unsigned device = n_devices + n_guests;
    if (device >= RG_DEVICES_MAX)
        return -1;
    devices[device] = (struct entry){session, 0};
    n_guests++;
    return (CUdevice)device;
}

void rg_device_set(unsigned device, struct rg_session *session, CUdevice number)
{
    devices[device] = (struct entry){session, number};
    if (n_devices <= device)
        n_devices = device + 1;
}

CUdevice rg_device_current(void)
{
    struct rg_thread *thread = rg_thread_if_any();
    struct rg_shadow *shadow = thread ? rg_handle_shadow(RG_KIND_CONTEXT, rg_thread_context(thread)) : NULL;
    return shadow ? shadow->context.device : -1;
}

CUdevice rg_device_current_or_first(void)
{
    const CUdevice current = rg_device_current();
    return current < 0 ? 0 : current;
}
