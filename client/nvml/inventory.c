/*
 * inventory.c - asks the servers, and chooses what is shown of their devices (inventory.h).
 *
 * Shown are the devices of the session, if there is one; else those that were shown before, if the servers still have them; else, of as
 * many as the user wants, those with the fewest users, as a server would choose. What is wrong with a server is said once, since programs
 * that look for GPUs ask again and again.
 */
#include "client/nvml/inventory.h"

#include "client/core/session.h"
#include "client/query/query.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rg_nvml_state rg_nvml_state = {.question = PTHREAD_MUTEX_INITIALIZER,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

/* What one server answered. */
struct found {
    const char *server;
    struct rg_control answer;
};

/* One of several servers need not have all that is wanted. */
static bool will_do(const char *server, bool alone, struct rg_control *answer, char *why, size_t why_size)
{
    unsigned wanted = rg_servers_gpus();
    /* who uses what is only of interest for a choice */
    enum rg_purpose purpose = wanted ? RG_PURPOSE_STATUS : RG_PURPOSE_INVENTORY;
    if (rg_query(server, purpose, RG_NVML_TIMEOUT_NS, answer, why, why_size) != RG_OK)
        return false;
    unsigned there = answer->inventory.n_devices;
    if (wanted <= there || !alone)
        return true;
    rg_explain(
        why, why_size,
        "the server %s has %u GPU%s, and REMOTE_GPU_GPUS asks for %u; ask for fewer, or another server",
        server, there, there == 1 ? "" : "s", wanted);
    rg_control_fini(answer);
    return false;
}

/* A device that may be shown. */
struct candidate {
    const struct rg_device_info *device;
    unsigned server, users;
};

/* All devices of all servers, in the order in which the user named those; returns how many. */
static unsigned list_candidates(const struct found *found, unsigned n, struct candidate *out)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct rg_inventory *inventory = &found[i].answer.inventory;
        for (uint32_t k = 0; k < inventory->n_devices && count < RG_DEVICES_MAX; k++) {
            struct candidate *candidate = &out[count++];
            *candidate = (struct candidate){&inventory->devices[k], i, 0};
            for (uint32_t s = 0; s < inventory->n_sessions; s++)
                for (uint32_t j = 0; j < inventory->sessions[s].n_devices; j++)
                    candidate->users += candidate->device->ordinal == inventory->sessions[s].devices[j];
        }
    }
    return count;
}

static void show(unsigned at, const struct candidate *candidate)
{
    rg_nvml_state.devices[at] = *candidate->device;
    rg_servers_place(candidate->server, rg_nvml_state.devices[at].pci, sizeof rg_nvml_state.devices[at].pci);
    rg_nvml_state.server_of[at] = candidate->server;
}

/* Those that the fewest sessions use, in their order, which is what a server gives a session. */
static void pick(const struct candidate *candidates, unsigned count, unsigned wanted)
{
    bool picked[RG_DEVICES_MAX] = {false};
    for (unsigned n = 0; n < wanted && n < count; n++) {
        unsigned best = count;
        for (unsigned i = 0; i < count; i++)
            if (!picked[i] && (best == count || candidates[i].users < candidates[best].users))
                best = i;
        picked[best] = true;
    }
    rg_nvml_state.n_devices = 0;
    for (unsigned i = 0; i < count; i++)
        if (picked[i])
            show(rg_nvml_state.n_devices++, &candidates[i]);
}

static const struct candidate *with_ordinal(const struct candidate *candidates, unsigned count,
                                            unsigned server, uint32_t ordinal)
{
    for (unsigned i = 0; i < count; i++)
        if (candidates[i].server == server && candidates[i].device->ordinal == ordinal)
            return &candidates[i];
    return NULL;
}

/* The devices of the session, or those shown before; false: there are none, or the servers have others
 * now. */
static bool take_again(const struct candidate *candidates, unsigned count,
                       const struct rg_device_info *devices, const unsigned *servers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!with_ordinal(candidates, count, servers[i], devices[i].ordinal))
            return false;
    for (unsigned i = 0; i < n; i++)
        show(i, with_ordinal(candidates, count, servers[i], devices[i].ordinal));
    rg_nvml_state.n_devices = n;
    return n > 0;
}

/* Under lock: whether these are the servers of which devices were shown before. */
static bool known_servers(const struct found *found, unsigned n)
{
    bool same = n == rg_nvml_state.n_servers;
    for (unsigned i = 0; i < n && same; i++)
        same = strcmp(rg_nvml_state.servers[i].name, found[i].server) == 0;
    return same;
}

static void keep(const struct found *found, unsigned n)
{
    static const unsigned first[RG_DEVICES_MAX];
    struct candidate candidates[RG_DEVICES_MAX];
    unsigned wanted = rg_servers_gpus();
    const unsigned count = list_candidates(found, n, candidates);
    const bool session = atomic_load(&rg_initialised) && n == 1;
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    bool before = known_servers(found, n) && rg_nvml_state.n_devices == wanted;
    if (!wanted)
        wanted = count;
    if (!(session && take_again(candidates, count, rg_sessions[0].hello.devices, first,
                                rg_sessions[0].hello.n_devices)) &&
        !(before && take_again(candidates, count, rg_nvml_state.devices, rg_nvml_state.server_of, wanted)))
        pick(candidates, count, wanted);
    for (unsigned i = 0; i < n; i++) {
        snprintf(rg_nvml_state.servers[i].name, sizeof rg_nvml_state.servers[i].name, "%s", found[i].server);
        rg_nvml_state.servers[i].driver = found[i].answer.inventory.driver;
        rg_nvml_state.servers[i].lost = false;
    }
    rg_nvml_state.n_servers = n;
    memset(rg_nvml_state.gone, 0, sizeof rg_nvml_state.gone);
    rg_nvml_state.chosen = rg_nvml_state.n_devices < count;
    rg_nvml_state.asked = false;
}

unsigned rg_nvml_shown(const char *server, uint32_t *ordinals)
{
    unsigned n = 0;
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    if (rg_nvml_state.chosen && rg_nvml_state.n_servers == 1 &&
        strcmp(rg_nvml_state.servers[0].name, server) == 0)
        for (; n < rg_nvml_state.n_devices; n++)
            ordinals[n] = rg_nvml_state.devices[n].ordinal;
    return n;
}

/* Asks one server, or alternatives until one will do. */
static bool ask_item(char *item, bool alone, bool say, struct found *found, char *why, size_t why_size)
{
    char *rest = item;
    while (rest && (found->server = rg_servers_next(&rest))) {
        if (will_do(found->server, alone, &found->answer, why, why_size))
            return true;
        if (rest && say)
            rg_warn("%s", why);
    }
    return false;
}

/* Asks all servers of the list. What is wrong is said the first time only: programs that look for GPUs try
 * again and again. The question lock is held. */
static enum rg_nvml_return ask_servers(const char *list)
{
    static bool said;
    struct rg_servers servers;
    char why[1024];
    if (!rg_servers_read(&servers, list))
        return RG_NVML_DRIVER_NOT_LOADED;
    RG_CLEANUP_FREE struct found *found = calloc(servers.n, sizeof *found);
    unsigned n = 0, there = 0;
    while (found && n < servers.n &&
           ask_item(servers.items[n], servers.n == 1, !said, &found[n], why, sizeof why))
        there += found[n++].answer.inventory.n_devices;
    bool good = n == servers.n;
    if (good && there < rg_servers_gpus()) {
        rg_explain(why, sizeof why,
                   "the servers %s have %u GPUs together, and REMOTE_GPU_GPUS asks for %u; ask for fewer",
                   list, there, rg_servers_gpus());
        good = false;
    } else if (found && n && !good) {
        const size_t used = strlen(why);
        snprintf(why + used, sizeof why - used, " (all servers of the list %s are needed)", list);
    }
    if (good)
        keep(found, n);
    else if (found && !said)
        rg_error("%s", why);
    said |= !good;
    while (n)
        rg_control_fini(&found[--n].answer);
    rg_servers_free(&servers);
    return good ? RG_NVML_SUCCESS : found ? RG_NVML_DRIVER_NOT_LOADED : RG_NVML_MEMORY;
}

enum rg_nvml_return rg_nvml_inventory_ask(void)
{
    char list[RG_SERVERS_MAX * (sizeof rg_nvml_state.servers[0].name + 1)] = "";
    size_t used = 0;
    pthread_mutex_lock(&rg_nvml_state.lock);
    for (unsigned i = 0; i < rg_nvml_state.n_servers && rg_n_own_sessions > 1; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s,", rg_nvml_state.servers[i].name);
    pthread_mutex_unlock(&rg_nvml_state.lock);
    return ask_servers(used                           ? list
                       : atomic_load(&rg_initialised) ? rg_sessions[0].server
                                                      : rg_servers_named());
}

bool rg_nvml_list(struct rg_nvml_listed *out, unsigned *n)
{
    pthread_mutex_lock(&rg_nvml_state.question);
    pthread_mutex_lock(&rg_nvml_state.lock);
    bool known = rg_nvml_state.n_servers > 1;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    if (!known)
        known = ask_servers(rg_servers_named()) == RG_NVML_SUCCESS;
    pthread_mutex_unlock(&rg_nvml_state.question);
    pthread_mutex_lock(&rg_nvml_state.lock);
    *n = known ? rg_nvml_state.n_devices : 0;
    for (unsigned i = 0; i < *n; i++) {
        out[i].server = rg_nvml_state.server_of[i];
        snprintf(out[i].name, sizeof out[i].name, "%s",
                 rg_nvml_state.servers[rg_nvml_state.server_of[i]].name);
        out[i].ordinal = rg_nvml_state.devices[i].ordinal;
        memcpy(out[i].uuid, rg_nvml_state.devices[i].uuid, sizeof out[i].uuid);
    }
    pthread_mutex_unlock(&rg_nvml_state.lock);
    return known;
}
