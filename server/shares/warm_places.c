/* warm_places.c - see warm_places.h. */
#include "server/shares/warm_places.h"

#include "server/shares/ledger.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t rg_warm_held(const struct rg_share_device *device)
{
    uint64_t held = 0;
    const uint32_t used = atomic_load(&device->page->n_used);
    for (uint32_t i = 0; i < used && i < device->n_places; i++) {
        const struct rg_share_place *place = &device->page->places[i];
        const uint64_t bytes = atomic_load(&place->session) >= RG_WARM_NUMBER ? atomic_load(&place->held) : 0;
        held = held > UINT64_MAX - bytes ? UINT64_MAX : held + bytes;
    }
    return held;
}

void rg_warm_press(struct rg_share_device *device)
{
    atomic_fetch_add(&device->page->pressure, 1);
    (void)syscall(SYS_futex, &device->page->pressure, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void rg_warm_await_pressure(const struct rg_share_device *device)
{
    const uint32_t seen = atomic_load(&device->page->pressure);
    while (atomic_load(&device->page->pressure) == seen)
        (void)syscall(SYS_futex, &device->page->pressure, FUTEX_WAIT, seen, NULL, NULL, 0);
}

bool rg_warm_place_adopt(struct rg_share_device *device, uint32_t place, uint64_t number, uint64_t session,
                         uint64_t guaranteed)
{
    if (place >= device->n_places || device->owners[place] != number ||
        !rg_share_guarantee(device, place, guaranteed))
        return false;
    device->owners[place] = session;
    atomic_store(&device->page->places[place].session, session);
    return true;
}
