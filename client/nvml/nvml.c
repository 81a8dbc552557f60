/*
 * nvml.c - see nvml.h.
 *
 * The happy path: the first nvmlInit asks the servers and keeps one list of the devices of all; questions about devices are answered from it; those about memory and processes first fetch it anew if it is
 * older than FRESH_NS. Two locks: `question` is held while a server is asked, `lock` only while the state is read
 * or changed, so a server that does not answer holds up nobody who asks for a name.
 */
#include "client/nvml/nvml.h"

#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "client/query/query.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRESH_NS   100000000ull   /* what changes is asked for again after this */
#define TIMEOUT_NS 10000000000ull /* for one question */

static pthread_mutex_t question = PTHREAD_MUTEX_INITIALIZER; /* before lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    unsigned users; /* nvmlInit less nvmlShutdown */
    unsigned n_servers;
    struct {
        char name[256];
        struct rg_driver_info driver;
        bool lost; /* the newest question failed */
    } servers[RG_SERVERS_MAX];
    unsigned n_devices;
    struct rg_device_info devices[RG_DEVICES_MAX];
    unsigned server_of[RG_DEVICES_MAX];
    bool chosen;               /* they are not all that the servers have */
    bool gone[RG_DEVICES_MAX]; /* not in the newest inventory */
    struct {
        unsigned pid, server;
        uint32_t devices[RG_DEVICES_MAX]; /* ordinals */
        uint32_t n_devices;
    } processes[RG_NVML_PROCESSES_MAX]; /* of this machine, with their sessions */
    unsigned n_processes;
    bool asked; /* for what changes, since nvmlInit */
    uint64_t asked_ns;
} state;

/* Devices' handles are addresses in here: never dereferenced, the same for as long as the process lives. */
static const char handles[RG_DEVICES_MAX];

static void before_fork(void)
{
    pthread_mutex_lock(&question);
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&question);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

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
    if (rg_query(server, purpose, TIMEOUT_NS, answer, why, why_size) != RG_OK)
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
    state.devices[at] = *candidate->device;
    rg_servers_place(candidate->server, state.devices[at].pci, sizeof state.devices[at].pci);
    state.server_of[at] = candidate->server;
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
    state.n_devices = 0;
    for (unsigned i = 0; i < count; i++)
        if (picked[i])
            show(state.n_devices++, &candidates[i]);
}

static const struct candidate *with_ordinal(const struct candidate *candidates, unsigned count,
                                            unsigned server, uint32_t ordinal)
{
    for (unsigned i = 0; i < count; i++)
        if (candidates[i].server == server && candidates[i].device->ordinal == ordinal)
            return &candidates[i];
    return NULL;
}

/* The devices of the session, or those shown before; false: there are none, or the servers have others now. */
static bool take_again(const struct candidate *candidates, unsigned count,
                       const struct rg_device_info *devices, const unsigned *servers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!with_ordinal(candidates, count, servers[i], devices[i].ordinal))
            return false;
    for (unsigned i = 0; i < n; i++)
        show(i, with_ordinal(candidates, count, servers[i], devices[i].ordinal));
    state.n_devices = n;
    return n > 0;
}

/* Under lock: whether these are the servers of which devices were shown before. */
static bool known_servers(const struct found *found, unsigned n)
{
    bool same = n == state.n_servers;
    for (unsigned i = 0; i < n && same; i++)
        same = strcmp(state.servers[i].name, found[i].server) == 0;
    return same;
}

static void keep(const struct found *found, unsigned n)
{
    static const unsigned first[RG_DEVICES_MAX];
    struct candidate candidates[RG_DEVICES_MAX];
    unsigned wanted = rg_servers_gpus();
    const unsigned count = list_candidates(found, n, candidates);
    const bool session = atomic_load(&rg_initialised) && n == 1;
    pthread_mutex_lock(&lock);
    bool before = known_servers(found, n) && state.n_devices == wanted;
    if (!wanted)
        wanted = count;
    if (!(session && take_again(candidates, count, rg_sessions[0].hello.devices, first,
                                rg_sessions[0].hello.n_devices)) &&
        !(before && take_again(candidates, count, state.devices, state.server_of, wanted)))
        pick(candidates, count, wanted);
    for (unsigned i = 0; i < n; i++) {
        snprintf(state.servers[i].name, sizeof state.servers[i].name, "%s", found[i].server);
        state.servers[i].driver = found[i].answer.inventory.driver;
        state.servers[i].lost = false;
    }
    state.n_servers = n;
    memset(state.gone, 0, sizeof state.gone);
    state.chosen = state.n_devices < count;
    state.asked = false;
    pthread_mutex_unlock(&lock);
}

unsigned rg_nvml_shown(const char *server, uint32_t *ordinals)
{
    unsigned n = 0;
    pthread_mutex_lock(&lock);
    if (state.chosen && state.n_servers == 1 && strcmp(state.servers[0].name, server) == 0)
        for (; n < state.n_devices; n++)
            ordinals[n] = state.devices[n].ordinal;
    pthread_mutex_unlock(&lock);
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

/* Asks all servers of the list. What is wrong is said the first time only: programs that look for GPUs try again and
 * again. The question lock is held. */
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

/* Asks the servers that were chosen before, or those the user names; with one session its server is the one whose
 * devices the application uses. The question lock is held. */
static enum rg_nvml_return ask(void)
{
    char list[RG_SERVERS_MAX * (sizeof state.servers[0].name + 1)] = "";
    size_t used = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < state.n_servers && rg_n_sessions > 1; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s,", state.servers[i].name);
    pthread_mutex_unlock(&lock);
    return ask_servers(used                           ? list
                       : atomic_load(&rg_initialised) ? rg_sessions[0].server
                                                      : rg_servers_named());
}

bool rg_nvml_list(struct rg_nvml_listed *out, unsigned *n)
{
    pthread_mutex_lock(&question);
    pthread_mutex_lock(&lock);
    bool known = state.n_servers > 1;
    pthread_mutex_unlock(&lock);
    if (!known)
        known = ask_servers(rg_servers_named()) == RG_NVML_SUCCESS;
    pthread_mutex_unlock(&question);
    pthread_mutex_lock(&lock);
    *n = known ? state.n_devices : 0;
    for (unsigned i = 0; i < *n; i++) {
        out[i].server = state.server_of[i];
        snprintf(out[i].name, sizeof out[i].name, "%s", state.servers[state.server_of[i]].name);
        out[i].ordinal = state.devices[i].ordinal;
    }
    pthread_mutex_unlock(&lock);
    return known;
}

enum rg_nvml_return rg_nvml_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    rg_optimisations_read();
    enum rg_nvml_return result = RG_NVML_SUCCESS;
    pthread_mutex_lock(&question);
    pthread_mutex_lock(&lock);
    bool first = state.users == 0;
    if (!first)
        state.users++;
    pthread_mutex_unlock(&lock);
    if (first) {
        result = ask();
        pthread_mutex_lock(&lock);
        state.users += result == RG_NVML_SUCCESS;
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&question);
    return result;
}

enum rg_nvml_return rg_nvml_stop(void)
{
    pthread_mutex_lock(&lock);
    bool was = state.users > 0;
    state.users -= was;
    pthread_mutex_unlock(&lock);
    return was ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_started(void)
{
    unsigned count;
    return rg_nvml_count(&count);
}

enum rg_nvml_return rg_nvml_driver(struct rg_driver_info *out)
{
    pthread_mutex_lock(&lock);
    bool started = state.users > 0;
    if (started)
        *out = state.servers[0].driver;
    pthread_mutex_unlock(&lock);
    return started ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_count(unsigned *out)
{
    pthread_mutex_lock(&lock);
    bool started = state.users > 0;
    if (started)
        *out = state.n_devices;
    pthread_mutex_unlock(&lock);
    return started ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_handle(unsigned index, rg_nvml_device *out)
{
    unsigned count;
    enum rg_nvml_return result = rg_nvml_count(&count);
    if (result != RG_NVML_SUCCESS)
        return result;
    if (index >= count)
        return RG_NVML_INVALID_ARGUMENT;
    *out = (rg_nvml_device)(uintptr_t)&handles[index];
    return RG_NVML_SUCCESS;
}

/* Under lock. */
static enum rg_nvml_return look(rg_nvml_device device, unsigned *index)
{
    if (state.users == 0)
        return RG_NVML_UNINITIALIZED;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= state.n_devices)
        return RG_NVML_INVALID_ARGUMENT;
    *index = (unsigned)offset;
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_look(rg_nvml_device device, struct rg_device_info *out, unsigned *index)
{
    unsigned at;
    pthread_mutex_lock(&lock);
    enum rg_nvml_return result = look(device, &at);
    if (result == RG_NVML_SUCCESS)
        *out = state.devices[at];
    if (result == RG_NVML_SUCCESS && index)
        *index = at;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Under lock: the free memory of a server's devices from a new inventory, in which one may be elsewhere or missing. */
static void take_memory(unsigned server, const struct rg_inventory *inventory)
{
    for (unsigned i = 0; i < state.n_devices; i++) {
        struct rg_device_info *device = &state.devices[i];
        if (state.server_of[i] != server)
            continue;
        state.gone[i] = true;
        for (unsigned j = 0; j < inventory->n_devices && state.gone[i]; j++) {
            const struct rg_device_info *now = &inventory->devices[j];
            if (memcmp(now->uuid, device->uuid, sizeof now->uuid) != 0 || now->ordinal != device->ordinal)
                continue;
            device->memory_free = now->memory_free;
            device->memory_free_known = now->memory_free_known;
            state.gone[i] = false;
        }
    }
}

/* Under lock: the sessions that came from this machine. */
static void take_processes(unsigned server, const struct rg_inventory *inventory)
{
    char host[RG_CONTROL_TEXT] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    for (uint32_t i = 0; i < inventory->n_sessions && state.n_processes < RG_NVML_PROCESSES_MAX; i++) {
        const struct rg_session_info *session = &inventory->sessions[i];
        if (strcmp(session->identity.host, host) != 0)
            continue;
        state.processes[state.n_processes].pid = session->identity.pid;
        state.processes[state.n_processes].server = server;
        state.processes[state.n_processes].n_devices = session->n_devices;
        memcpy(state.processes[state.n_processes++].devices, session->devices, sizeof session->devices);
    }
}

/* Under question: asks one server what has changed. */
static void refresh_one(unsigned server, struct rg_control *answer)
{
    char name[sizeof state.servers[0].name], why[1024];
    pthread_mutex_lock(&lock);
    memcpy(name, state.servers[server].name, sizeof name);
    pthread_mutex_unlock(&lock);
    bool answered = rg_query(name, RG_PURPOSE_STATUS, TIMEOUT_NS, answer, why, sizeof why) == RG_OK;
    pthread_mutex_lock(&lock);
    if (answered) {
        take_memory(server, &answer->inventory);
        take_processes(server, &answer->inventory);
    }
    bool news = !answered && !state.servers[server].lost;
    state.servers[server].lost = !answered;
    pthread_mutex_unlock(&lock);
    if (answered)
        rg_control_fini(answer);
    if (news)
        rg_warn("%s", why);
}

/* Under question: new inventories, unless those there are fresh. */
static void refresh(void)
{
    pthread_mutex_lock(&lock);
    bool fresh = state.users == 0 || (state.asked && rg_now_ns() - state.asked_ns < FRESH_NS);
    const unsigned n = state.n_servers;
    pthread_mutex_unlock(&lock);
    RG_CLEANUP_FREE struct rg_control *answer = fresh ? NULL : malloc(sizeof *answer);
    if (!answer)
        return;
    pthread_mutex_lock(&lock);
    state.n_processes =
        0; /* who is in here holds `question`: nobody sees it half done but a look at a lost device */
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < n; i++)
        refresh_one(i, answer);
    pthread_mutex_lock(&lock);
    state.asked = true;
    state.asked_ns = rg_now_ns();
    pthread_mutex_unlock(&lock);
}

/* Makes what is known of a device new, and returns with the lock held. */
static enum rg_nvml_return look_again(rg_nvml_device device, unsigned *index)
{
    pthread_mutex_lock(&lock);
    enum rg_nvml_return result = look(device, index);
    if (result != RG_NVML_SUCCESS)
        return result;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&question); /* who waits here takes the answer of who asks */
    refresh();
    pthread_mutex_unlock(&question);
    pthread_mutex_lock(&lock);
    result = look(device, index);
    if (result == RG_NVML_SUCCESS && (state.servers[state.server_of[*index]].lost || state.gone[*index]))
        result = RG_NVML_GPU_IS_LOST;
    return result;
}

enum rg_nvml_return rg_nvml_where(rg_nvml_device device, char server[256], uint8_t uuid[16])
{
    unsigned at;
    pthread_mutex_lock(&lock);
    enum rg_nvml_return result = look(device, &at);
    if (result == RG_NVML_SUCCESS && server)
        memcpy(server, state.servers[state.server_of[at]].name, sizeof state.servers[0].name);
    if (result == RG_NVML_SUCCESS && uuid)
        memcpy(uuid, state.devices[at].uuid, sizeof state.devices[at].uuid);
    pthread_mutex_unlock(&lock);
    return result;
}

enum rg_nvml_return rg_nvml_look_now(rg_nvml_device device, struct rg_device_info *out)
{
    unsigned index;
    enum rg_nvml_return result = look_again(device, &index);
    if (result == RG_NVML_SUCCESS)
        *out = state.devices[index];
    pthread_mutex_unlock(&lock);
    return result;
}

enum rg_nvml_return rg_nvml_processes(rg_nvml_device device, unsigned *pids, unsigned capacity,
                                      unsigned *count)
{
    unsigned index, found = 0;
    enum rg_nvml_return result = look_again(device, &index);
    for (unsigned i = 0; result == RG_NVML_SUCCESS && i < state.n_processes; i++) {
        bool uses = false;
        for (uint32_t j = 0; j < state.processes[i].n_devices; j++)
            uses |= state.processes[i].devices[j] == state.devices[index].ordinal &&
                    state.processes[i].server == state.server_of[index];
        if (uses && found < capacity)
            pids[found] = state.processes[i].pid;
        found += uses;
    }
    pthread_mutex_unlock(&lock);
    if (result == RG_NVML_SUCCESS)
        *count = found;
    return result;
}
