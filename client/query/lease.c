/* lease.c - see lease.h. */
#include "client/query/lease.h"

#include "client/query/servers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *lease_text(void)
{
    const char *text = secure_getenv("REMOTE_GPU_LEASE");
    return text && *text ? text : NULL;
}

uint64_t rg_lease_id(void)
{
    const char *text = lease_text();
    return text ? strtoull(text, NULL, 16) : 0;
}

/* The place of the server in the list; -1: it is not in it. */
static int place_of(const char *server)
{
    const char *at = rg_servers_named();
    for (int place = 0; *at; place++) {
        const size_t size = strcspn(at, ",");
        if (size == strlen(server) && strncmp(at, server, size) == 0)
            return place;
        at += size + (at[size] == ',');
    }
    return -1;
}

uint32_t rg_lease_gpus(const char *server, uint32_t *out)
{
    const char *at = lease_text();
    const int place = at ? place_of(server) : -1;
    uint32_t n = 0;
    for (int i = 0; place >= 0 && at && i <= place; i++) {
        at = strchr(at, '/');
        at = at ? at + 1 : NULL;
    }
    while (place >= 0 && at && *at >= '0' && *at <= '9' && n < RG_DEVICES_MAX) {
        char *end;
        out[n++] = (uint32_t)strtoul(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    return n;
}

static bool has(const uint32_t *gpus, uint32_t n, uint32_t ordinal)
{
    for (uint32_t i = 0; i < n; i++)
        if (gpus[i] == ordinal)
            return true;
    return false;
}

void rg_lease_narrow(const char *server, struct rg_inventory *inventory)
{
    uint32_t gpus[RG_DEVICES_MAX], left = 0;
    const uint32_t n = rg_lease_gpus(server, gpus);
    for (uint32_t i = 0; n && i < inventory->n_devices; i++)
        if (has(gpus, n, inventory->devices[i].ordinal))
            inventory->devices[left++] = inventory->devices[i];
    if (n)
        inventory->n_devices = left;
}
