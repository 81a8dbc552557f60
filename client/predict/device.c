/* device.c - see device.h. */
#include "client/predict/device.h"

#include <stdlib.h>

#define LEGACY 1u /* its handle */

static uint32_t *find(const struct rg_device_table *table, uint64_t handle)
{
    size_t at = (size_t)(handle * 0x9e3779b97f4a7c15ull >> 32) & (table->capacity - 1);
    while (table->numbers[at] && table->handles[at] != handle)
        at = (at + 1) & (table->capacity - 1);
    table->handles[at] = handle;
    return &table->numbers[at];
}

static bool grow(struct rg_device_table *table)
{
    const size_t capacity = table->capacity ? table->capacity * 2 : 64;
    struct rg_device_table larger = {.handles = calloc(capacity, sizeof *larger.handles),
                                     .numbers = calloc(capacity, sizeof *larger.numbers),
                                     .n = table->n,
                                     .capacity = capacity};
    if (!larger.handles || !larger.numbers) {
        free(larger.handles);
        free(larger.numbers);
        return false;
    }
    for (size_t i = 0; i < table->capacity; i++)
        if (table->numbers[i])
            *find(&larger, table->handles[i]) = table->numbers[i];
    free(table->handles);
    free(table->numbers);
    *table = larger;
    return true;
}

static uint32_t number_of(struct rg_device_table *table, uint64_t handle)
{
    if (table->n * 2 >= table->capacity && !grow(table))
        return UINT32_MAX;
    uint32_t *number = find(table, handle);
    if (!*number)
        *number = (uint32_t)++table->n;
    return *number - 1;
}

bool rg_device_names_init(struct rg_device_names *names)
{
    *names = (struct rg_device_names){0};
    return rg_device_stream(names, LEGACY, false) == 0 && rg_device_event(names, 0) == 0;
}

static void free_table(struct rg_device_table *table)
{
    free(table->handles);
    free(table->numbers);
}

void rg_device_names_free(struct rg_device_names *names)
{
    free_table(&names->streams);
    free_table(&names->events);
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
