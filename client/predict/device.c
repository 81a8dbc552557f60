/* device.c - see device.h. */
#include "client/predict/device.h"

#include <stdlib.h>

#define LEGACY 1u /* its handle */

struct numbered {
    struct rg_hash_link link; /* by handle */
    uint32_t number;
};

static uint32_t number_of(struct rg_hash_table *table, uint64_t handle)
{
    struct numbered *at = (struct numbered *)rg_hash_table_first(table, handle);
    if (!at && (at = malloc(sizeof *at))) {
        at->number = (uint32_t)table->n;
        rg_hash_table_add(table, &at->link, handle);
    }
    return at ? at->number : UINT32_MAX;
}

bool rg_device_names_init(struct rg_device_names *names)
{
    *names = (struct rg_device_names){0};
    return rg_device_stream(names, LEGACY, false) == 0 && rg_device_event(names, 0) == 0;
}

static void drop(struct rg_hash_link *numbered)
{
    free(numbered);
}

void rg_device_names_free(struct rg_device_names *names)
{
    rg_hash_table_clear(&names->streams, drop);
    rg_hash_table_clear(&names->events, drop);
    free(names->non_blocking);
    *names = (struct rg_device_names){0};
}

uint32_t rg_device_stream(struct rg_device_names *names, uint64_t handle, bool non_blocking)
{
    const size_t before = names->streams.n;
    const uint32_t number = number_of(&names->streams, handle ? handle : LEGACY);
    if (number == UINT32_MAX)
        return number;
    if (names->streams.n != before) {
        bool *grown = realloc(names->non_blocking, names->streams.n * sizeof *grown);
        if (!grown)
            return UINT32_MAX;
        names->non_blocking = grown;
        grown[number] = false;
    }
    names->non_blocking[number] |= non_blocking;
    return number;
}

uint32_t rg_device_event(struct rg_device_names *names, uint64_t handle)
{
    return number_of(&names->events, handle);
}

bool rg_device_init(struct rg_device *device, const struct rg_device_names *names)
{
    *device = (struct rg_device){.names = names};
    device->streams = calloc(names->streams.n, sizeof *device->streams);
    device->events = calloc(names->events.n, sizeof *device->events);
    return device->streams && device->events;
}

void rg_device_free(struct rg_device *device)
{
    free(device->streams);
    free(device->events);
    *device = (struct rg_device){0};
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t rg_device_start(const struct rg_device *device, uint32_t stream, uint64_t now)
{
    uint64_t start = later(now, device->streams[stream]);
    if (stream == 0)
        start = later(start, device->blocking);
    else if (!device->names->non_blocking[stream])
        start = later(start, device->streams[0]);
    return start;
}

void rg_device_end(struct rg_device *device, uint32_t stream, uint64_t end)
{
    device->streams[stream] = later(device->streams[stream], end);
    if (!device->names->non_blocking[stream])
        device->blocking = later(device->blocking, end);
    device->all = later(device->all, end);
}

void rg_device_order(struct rg_device *device, const struct rg_device_use *use, uint64_t now)
{
    if (use->act == RG_DEVICE_RECORD)
        device->events[use->event] = rg_device_start(device, use->stream, now);
    else if (use->act == RG_DEVICE_WAIT_EVENT && device->events[use->event] > device->streams[use->stream])
        device->streams[use->stream] = device->events[use->event];
}

uint64_t rg_device_done(const struct rg_device *device, const struct rg_device_use *use)
{
    switch (use->act) {
    case RG_DEVICE_SYNC_STREAM:
        return rg_device_start(device, use->stream, 0);
    case RG_DEVICE_SYNC_EVENT:
        return device->events[use->event];
    case RG_DEVICE_SYNC_ALL:
        return device->all;
    default:
        return 0;
    }
}
