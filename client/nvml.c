/*
 * nvml.c - see nvml.h.
 *
 * The happy path: the first nvmlInit asks the servers in turn and keeps the inventory of the first that will do;
 * questions about devices are answered from it; those about memory and processes first fetch it anew if it is
 * older than FRESH_NS. Two locks: `question` is held while a server is asked, `lock` only while the state is read
 * or changed, so a server that does not answer holds up nobody who asks for a name.
 */
#include "client/nvml.h"

#include "client/query.h"
#include "client/session.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"

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
    char server[256];
    struct rg_driver_info driver;
    unsigned n_devices;
    struct rg_device_info devices[RG_DEVICES_MAX];
    bool chosen;               /* they are not all that the server has */
    bool gone[RG_DEVICES_MAX]; /* not in the newest inventory */
    struct {
        unsigned pid;
        uint32_t devices[RG_DEVICES_MAX]; /* ordinals */
        uint32_t n_devices;
    } processes[RG_NVML_PROCESSES_MAX]; /* of this machine, with their sessions */
    unsigned n_processes;
    bool asked; /* for what changes, since nvmlInit */
    uint64_t asked_ns;
    bool lost; /* the newest question failed */
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

/* How many devices the user wants to see; 0: all. */
static unsigned devices_wanted(void)
{
    const char *text = getenv("REMOTE_GPU_GPUS");
    return text && *text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

static bool will_do(const char *server, struct rg_control *answer, char *why, size_t why_size)
{
    unsigned wanted = devices_wanted();
    /* who uses what is only of interest for a choice */
    enum rg_purpose purpose = wanted ? RG_PURPOSE_STATUS : RG_PURPOSE_INVENTORY;
    if (rg_query(server, purpose, TIMEOUT_NS, answer, why, why_size) != RG_OK)
        return false;
    unsigned there = answer->inventory.n_devices;
    if (wanted <= there)
        return true;
    rg_explain(
        why, why_size,
        "the server %s has %u GPU%s, and REMOTE_GPU_GPUS asks for %u; ask for fewer, or another server",
        server, there, there == 1 ? "" : "s", wanted);
    rg_control_fini(answer);
    return false;
}

static const struct rg_device_info *with_ordinal(const struct rg_inventory *inventory, uint32_t ordinal)
{
    for (uint32_t i = 0; i < inventory->n_devices; i++)
        if (inventory->devices[i].ordinal == ordinal)
            return &inventory->devices[i];
    return NULL;
}

/* Those that the fewest sessions use, in their order, which is what a server gives a session. */
static void pick(const struct rg_inventory *inventory, unsigned wanted)
{
    unsigned users[RG_DEVICES_MAX] = {0};
    bool picked[RG_DEVICES_MAX] = {false};
    for (uint32_t i = 0; i < inventory->n_sessions; i++)
        for (uint32_t j = 0; j < inventory->sessions[i].n_devices; j++)
            for (uint32_t k = 0; k < inventory->n_devices; k++)
                users[k] += inventory->devices[k].ordinal == inventory->sessions[i].devices[j];
    for (unsigned n = 0; n < wanted; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < inventory->n_devices; i++)
            if (!picked[i] && (best == UINT32_MAX || users[i] < users[best]))
                best = i;
        picked[best] = true;
    }
    state.n_devices = 0;
    for (uint32_t i = 0; i < inventory->n_devices; i++)
        if (picked[i])
            state.devices[state.n_devices++] = inventory->devices[i];
}

/* The devices of the session, or those shown before; false: there are none, or the server has others now. */
static bool take_again(const struct rg_inventory *inventory, const struct rg_device_info *devices, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!with_ordinal(inventory, devices[i].ordinal))
            return false;
    for (unsigned i = 0; i < n; i++)
        state.devices[i] = *with_ordinal(inventory, devices[i].ordinal);
    state.n_devices = n;
    return n > 0;
}

static void keep(const char *server, const struct rg_inventory *inventory)
{
    unsigned wanted = devices_wanted();
    bool session = atomic_load(&rg_initialised);
    pthread_mutex_lock(&lock);
    bool before = strcmp(state.server, server) == 0 && state.n_devices == wanted;
    if (!wanted)
        wanted = inventory->n_devices;
    if (!(session && take_again(inventory, rg_sessions[0].hello.devices, rg_sessions[0].hello.n_devices)) &&
        !(before && take_again(inventory, state.devices, wanted)))
        pick(inventory, wanted);
    snprintf(state.server, sizeof state.server, "%s", server);
    state.driver = inventory->driver;
    memset(state.gone, 0, sizeof state.gone);
    state.chosen = state.n_devices < inventory->n_devices;
    state.asked = state.lost = false;
    state.users = 1;
    pthread_mutex_unlock(&lock);
}

unsigned rg_nvml_shown(const char *server, uint32_t *ordinals)
{
    unsigned n = 0;
    pthread_mutex_lock(&lock);
    if (state.chosen && strcmp(state.server, server) == 0)
        for (; n < state.n_devices; n++)
            ordinals[n] = state.devices[n].ordinal;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Asks each server of the list until one will do. What is wrong is said the first time only: programs that look for
 * GPUs try again and again. */
static enum rg_nvml_return ask_servers(const char *servers)
{
    static bool said; /* question */
    RG_CLEANUP_FREE char *list = strdup(servers);
    RG_CLEANUP_FREE struct rg_control *answer = malloc(sizeof *answer);
    if (!list || !answer)
        return RG_NVML_MEMORY;
    char why[1024] = "REMOTE_GPU_SERVER names no server";
    char *rest = list, *server;
    while ((server = strsep(&rest, ","))) {
        if (!*server)
            continue;
        if (will_do(server, answer, why, sizeof why)) {
            keep(server, &answer->inventory);
            rg_control_fini(answer);
            return RG_NVML_SUCCESS;
        }
        if (rest && !said)
            rg_warn("%s", why);
    }
    if (!said)
        rg_error("%s", why);
    said = true;
    return RG_NVML_DRIVER_NOT_LOADED;
}

enum rg_nvml_return rg_nvml_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    enum rg_nvml_return result = RG_NVML_SUCCESS;
    pthread_mutex_lock(&question);
    pthread_mutex_lock(&lock);
    bool first = state.users == 0;
    if (!first)
        state.users++;
    pthread_mutex_unlock(&lock);
    if (first) {
        /* with a session, its server is the one whose devices the application uses */
        const char *servers = atomic_load(&rg_initialised) ? rg_sessions[0].server : getenv("REMOTE_GPU_SERVER");
        result = ask_servers(servers && *servers ? servers : RG_DEFAULT_SERVER);
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
        *out = state.driver;
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

/* Under lock: the free memory of our devices from a new inventory, in which a device may be elsewhere or missing. */
static void take_memory(const struct rg_inventory *inventory)
{
    for (unsigned i = 0; i < state.n_devices; i++) {
        struct rg_device_info *device = &state.devices[i];
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
static void take_processes(const struct rg_inventory *inventory)
{
    char host[RG_CONTROL_TEXT] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    state.n_processes = 0;
    for (uint32_t i = 0; i < inventory->n_sessions && state.n_processes < RG_NVML_PROCESSES_MAX; i++) {
        const struct rg_session_info *session = &inventory->sessions[i];
        if (strcmp(session->identity.host, host) != 0)
            continue;
        state.processes[state.n_processes].pid = session->identity.pid;
        state.processes[state.n_processes].n_devices = session->n_devices;
        memcpy(state.processes[state.n_processes++].devices, session->devices, sizeof session->devices);
    }
}

/* Under question: a new inventory, unless the one there is fresh. */
static void refresh(void)
{
    char server[sizeof state.server], why[1024];
    pthread_mutex_lock(&lock);
    bool fresh = state.users == 0 || (state.asked && rg_now_ns() - state.asked_ns < FRESH_NS);
    memcpy(server, state.server, sizeof server);
    pthread_mutex_unlock(&lock);
    RG_CLEANUP_FREE struct rg_control *answer = fresh ? NULL : malloc(sizeof *answer);
    if (!answer)
        return;
    bool answered = rg_query(server, RG_PURPOSE_STATUS, TIMEOUT_NS, answer, why, sizeof why) == RG_OK;
    pthread_mutex_lock(&lock);
    if (answered) {
        take_memory(&answer->inventory);
        take_processes(&answer->inventory);
    }
    bool news = !answered && !state.lost;
    state.lost = !answered;
    state.asked = true;
    state.asked_ns = rg_now_ns();
    pthread_mutex_unlock(&lock);
    if (answered)
        rg_control_fini(answer);
    if (news)
        rg_warn("%s", why);
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
    if (result == RG_NVML_SUCCESS && (state.lost || state.gone[*index]))
        result = RG_NVML_GPU_IS_LOST;
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
            uses |= state.processes[i].devices[j] == state.devices[index].ordinal;
        if (uses && found < capacity)
            pids[found] = state.processes[i].pid;
        found += uses;
    }
    pthread_mutex_unlock(&lock);
    if (result == RG_NVML_SUCCESS)
        *count = found;
    return result;
}
