/* device_page.c - see device_page.h. */
#include "server/shares/device_page.h"

#include "common/base/clock.h"
#include "server/shares/shared_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

static size_t size_of(uint32_t n_places)
{
    return sizeof(struct rg_share_device_page) + (size_t)n_places * sizeof(struct rg_share_place);
}

enum rg_status rg_share_device_create(uint32_t n_places, uint64_t capacity, struct rg_share_device *out,
                                      int *fd)
{
    if (n_places > RG_TURN_PLACES)
        n_places = RG_TURN_PLACES; /* a session without a turn would not be one among others */
    const size_t size = size_of(n_places);
    uint64_t *owners = calloc(n_places, sizeof *owners);
    struct rg_share_device_page *page =
        owners && size <= UINT32_MAX ? rg_shared_memory_create("remote-gpu-device", size, fd) : NULL;
    if (!page) {
        free(owners);
        return RG_ERR_NO_MEMORY;
    }
    page->size = (uint32_t)size;
    page->n_places = n_places;
    atomic_store(&page->capacity, capacity);
    *out = (struct rg_share_device){.page = page, .n_places = n_places, .owners = owners};
    return RG_OK;
}

enum rg_status rg_share_device_open(int fd, struct rg_share_device *out)
{
    size_t size = 0;
    struct rg_share_device_page *page = rg_shared_memory_open(fd, sizeof *page, &size);
    if (!page)
        return RG_ERR_INVALID;
    /* copied once: what is on the page may change at any time */
    const uint32_t n_places = *(const volatile uint32_t *)&page->n_places;
    if (size != size_of(n_places)) {
        (void)munmap(page, size);
        return RG_ERR_INVALID;
    }
    *out = (struct rg_share_device){.page = page, .n_places = n_places};
    return RG_OK;
}

void rg_share_device_close(struct rg_share_device *device)
{
    if (device->page)
        (void)munmap(device->page, size_of(device->n_places));
    free(device->owners);
    *device = (struct rg_share_device){0};
}

/* Places behind it are empty. */
static void set_used(struct rg_share_device *device)
{
    uint32_t n = device->n_places;
    while (n && device->owners[n - 1] == 0)
        n--;
    atomic_store(&device->page->n_used, n);
}

uint32_t rg_share_device_take(struct rg_share_device *device, uint64_t session)
{
    for (uint32_t i = 0; i < device->n_places; i++) {
        struct rg_share_place *place = &device->page->places[i];
        if (device->owners[i])
            continue;
        device->owners[i] = session;
        atomic_store(&place->guaranteed, 0);
        atomic_store(&place->held, 0);
        rg_turns_leave(&device->page->turns, i, rg_now_ns());
        atomic_store(&place->session, session);
        set_used(device);
        return i;
    }
    return UINT32_MAX;
}

void rg_share_device_drop(struct rg_share_device *device, uint32_t place, uint64_t session)
{
    if (place >= device->n_places || device->owners[place] != session)
        return;
    struct rg_share_place *at = &device->page->places[place];
    atomic_store(&at->held, 0);
    atomic_store(&at->guaranteed, 0);
    uint64_t charging = session; /* it has died while it asked for memory */
    (void)atomic_compare_exchange_strong(&device->page->charging, &charging, 0);
    atomic_store(&at->session, 0);
    rg_turns_leave(&device->page->turns, place, rg_now_ns());
    device->owners[place] = 0;
    set_used(device);
}
