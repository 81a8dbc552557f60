/*
 * nvml.c - see nvml.h.
 *
 * The first nvmlInit asks the servers and keeps one list of the devices of all (inventory.h). Questions about
 * devices are answered from it; those about memory and processes first fetch it anew if it is older than
 * FRESH_NS, or if this process has made calls since.
 */
#include "client/nvml/nvml.h"

#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "client/nvml/inventory.h"
#include "client/prealloc/prealloc.h"
#include "client/query/query.h"
#include "client/query/servers.h"
#include "client/query/share.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRESH_NS 100000000ull /* what changes is asked for again after this */

/* Devices' handles are addresses in here: never dereferenced, the same for as long as the process lives. */
static const char handles[RG_DEVICES_MAX];

static void before_fork(void)
{
    pthread_mutex_lock(&rg_nvml_state.question);
    pthread_mutex_lock(&rg_nvml_state.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&rg_nvml_state.lock);
    pthread_mutex_unlock(&rg_nvml_state.question);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

enum rg_nvml_return rg_nvml_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_bool loaded;
    pthread_once(&once, watch_forks);
    rg_optimisations_read();
    enum rg_nvml_return result = RG_NVML_SUCCESS;
    if (!atomic_load(&loaded))
        rg_servers_load(false);
    atomic_store(&loaded, true);
    pthread_mutex_lock(&rg_nvml_state.question);
    pthread_mutex_lock(&rg_nvml_state.lock);
    bool first = rg_nvml_state.users == 0;
    if (!first)
        rg_nvml_state.users++;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    if (first) {
        result = rg_nvml_inventory_ask();
        pthread_mutex_lock(&rg_nvml_state.lock);
        rg_nvml_state.users += result == RG_NVML_SUCCESS;
        pthread_mutex_unlock(&rg_nvml_state.lock);
    }
    pthread_mutex_unlock(&rg_nvml_state.question);
    return result;
}

enum rg_nvml_return rg_nvml_stop(void)
{
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    bool was = rg_nvml_state.users > 0;
    rg_nvml_state.users -= was;
    return was ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_started(void)
{
    unsigned count;
    return rg_nvml_count(&count);
}

enum rg_nvml_return rg_nvml_driver(struct rg_driver_info *out)
{
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    bool started = rg_nvml_state.users > 0;
    if (started)
        *out = rg_nvml_state.servers[0].driver;
    return started ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_count(unsigned *out)
{
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    bool started = rg_nvml_state.users > 0;
    if (started)
        *out = rg_nvml_state.n_devices;
    return started ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_handle(unsigned index, rg_nvml_device *out)
{
    unsigned count;
    RG_TRY(rg_nvml_count(&count));
    if (index >= count)
        return RG_NVML_INVALID_ARGUMENT;
    *out = (rg_nvml_device)(uintptr_t)&handles[index];
    return RG_NVML_SUCCESS;
}

/* Under lock. */
static enum rg_nvml_return look(rg_nvml_device device, unsigned *index)
{
    if (rg_nvml_state.users == 0)
        return RG_NVML_UNINITIALIZED;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= rg_nvml_state.n_devices)
        return RG_NVML_INVALID_ARGUMENT;
    *index = (unsigned)offset;
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_look(rg_nvml_device device, struct rg_device_info *out, unsigned *index)
{
    unsigned at;
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    RG_TRY(look(device, &at));
    *out = rg_nvml_state.devices[at];
    if (index)
        *index = at;
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_instance(rg_nvml_device device, unsigned index, rg_nvml_device *out)
{
    (void)index;
    (void)out;
    RG_TRY(rg_nvml_where(device, NULL, NULL));
    return RG_NVML_NOT_SUPPORTED;
}

enum rg_nvml_return rg_nvml_whole(rg_nvml_device instance, rg_nvml_device *out)
{
    (void)out;
    RG_TRY(rg_nvml_where(instance, NULL, NULL));
    return RG_NVML_NOT_SUPPORTED;
}

/* Under lock: the free memory of a server's devices from a new inventory, in which one may be elsewhere or
 * missing. */
static void take_memory(unsigned server, const struct rg_inventory *inventory)
{
    for (unsigned i = 0; i < rg_nvml_state.n_devices; i++) {
        struct rg_device_info *device = &rg_nvml_state.devices[i];
        if (rg_nvml_state.server_of[i] != server)
            continue;
        rg_nvml_state.gone[i] = true;
        for (unsigned j = 0; j < inventory->n_devices && rg_nvml_state.gone[i]; j++) {
            const struct rg_device_info *now = &inventory->devices[j];
            if (memcmp(now->uuid, device->uuid, sizeof now->uuid) != 0 || now->ordinal != device->ordinal)
                continue;
            device->memory_free = now->memory_free;
            device->memory_free_known = now->memory_free_known;
            rg_nvml_state.gone[i] = false;
        }
    }
}

/* Under lock: the sessions that came from this machine. */
static void take_processes(unsigned server, const struct rg_inventory *inventory)
{
    char host[RG_CONTROL_TEXT] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    for (uint32_t i = 0; i < inventory->n_sessions && rg_nvml_state.n_processes < RG_NVML_PROCESSES_MAX;
         i++) {
        const struct rg_session_info *session = &inventory->sessions[i];
        if (strcmp(session->identity.host, host) != 0)
            continue;
        rg_nvml_state.processes[rg_nvml_state.n_processes].pid = session->identity.pid;
        rg_nvml_state.processes[rg_nvml_state.n_processes].server = server;
        rg_nvml_state.processes[rg_nvml_state.n_processes].n_devices = session->n_devices;
        rg_nvml_state.processes[rg_nvml_state.n_processes].knows_shares =
            session->n_shares != 0 && session->state != RG_SHARE_UNKNOWN;
        memcpy(rg_nvml_state.processes[rg_nvml_state.n_processes].shares, session->shares,
               sizeof session->shares);
        memcpy(rg_nvml_state.processes[rg_nvml_state.n_processes++].devices, session->devices,
               sizeof session->devices);
    }
}

/* Under question: asks one server what has changed. */
static void refresh_one(unsigned server, struct rg_control *answer)
{
    char name[sizeof rg_nvml_state.servers[0].name], why[1024];
    pthread_mutex_lock(&rg_nvml_state.lock);
    memcpy(name, rg_nvml_state.servers[server].name, sizeof name);
    pthread_mutex_unlock(&rg_nvml_state.lock);
    bool answered = rg_query(name, RG_PURPOSE_STATUS, RG_NVML_TIMEOUT_NS, answer, why, sizeof why) == RG_OK;
    pthread_mutex_lock(&rg_nvml_state.lock);
    if (answered) {
        take_memory(server, &answer->inventory);
        take_processes(server, &answer->inventory);
    }
    bool news = !answered && !rg_nvml_state.servers[server].lost;
    rg_nvml_state.servers[server].lost = !answered;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    if (answered)
        rg_control_fini(answer);
    if (news)
        rg_warn("%s", why);
}

/* Records of calls that this process has made in its sessions. */
static uint64_t own_calls(void)
{
    uint64_t calls = 0;
    for (unsigned i = 0; i < rg_n_own_sessions; i++)
        calls += atomic_load_explicit(&rg_sessions[i].timeline.submitted, memory_order_relaxed);
    return calls;
}

/*
 * Under question: whether this process has made calls since it last asked, which may have taken or freed memory. If so, waits
 * until its servers have executed them, so that their answers have what the program has done before.
 */
static bool own_calls_settled(void)
{
    struct rg_session *settled = NULL;
    if (!atomic_load(&rg_initialised) || rg_call_allowed(0) != CUDA_SUCCESS ||
        own_calls() == rg_nvml_state.own_calls)
        return false;
    for (CUdevice device = 0; device < (CUdevice)rg_device_count(); device++) {
        int value;
        unsigned result;
        if (rg_device_session(device) == settled) /* a server's devices follow each other */
            continue;
        settled = rg_device_session(device);
        (void)rg_prealloc_give_back(settled); /* what is only ready for the program is not in its use */
        (void)rg_op_rgDeviceAttributes(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1, &value, &result);
    }
    rg_nvml_state.own_calls = own_calls();
    return true;
}

/* Under question: new inventories, unless those there are fresh. */
static void refresh(void)
{
    const bool changed = own_calls_settled();
    pthread_mutex_lock(&rg_nvml_state.lock);
    bool fresh = rg_nvml_state.users == 0 ||
                 (!changed && rg_nvml_state.asked && rg_now_ns() - rg_nvml_state.asked_ns < FRESH_NS);
    const unsigned n = rg_nvml_state.n_servers;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    RG_CLEANUP_FREE struct rg_control *answer = fresh ? NULL : malloc(sizeof *answer);
    if (!answer)
        return;
    pthread_mutex_lock(&rg_nvml_state.lock);
    /* who is in here holds `question`: nobody sees it half done but a look at a lost device */
    rg_nvml_state.n_processes = 0;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    for (unsigned i = 0; i < n; i++)
        refresh_one(i, answer);
    pthread_mutex_lock(&rg_nvml_state.lock);
    rg_nvml_state.asked = true;
    rg_nvml_state.asked_ns = rg_now_ns();
    pthread_mutex_unlock(&rg_nvml_state.lock);
}

/* Makes what is known of a device new, and returns with the lock held. */
static enum rg_nvml_return look_again(rg_nvml_device device, unsigned *index)
{
    pthread_mutex_lock(&rg_nvml_state.lock);
    enum rg_nvml_return result = look(device, index);
    if (result != RG_NVML_SUCCESS)
        return result;
    pthread_mutex_unlock(&rg_nvml_state.lock);
    pthread_mutex_lock(&rg_nvml_state.question); /* who waits here takes the answer of who asks */
    refresh();
    pthread_mutex_unlock(&rg_nvml_state.question);
    pthread_mutex_lock(&rg_nvml_state.lock);
    result = look(device, index);
    if (result == RG_NVML_SUCCESS &&
        (rg_nvml_state.servers[rg_nvml_state.server_of[*index]].lost || rg_nvml_state.gone[*index]))
        result = RG_NVML_GPU_IS_LOST;
    return result;
}

enum rg_nvml_return rg_nvml_where(rg_nvml_device device, char server[256], uint8_t uuid[16])
{
    unsigned at;
    RG_SCOPED_LOCK(&rg_nvml_state.lock);
    RG_TRY(look(device, &at));
    if (server)
        memcpy(server, rg_nvml_state.servers[rg_nvml_state.server_of[at]].name,
               sizeof rg_nvml_state.servers[0].name);
    if (uuid)
        memcpy(uuid, rg_nvml_state.devices[at].uuid, sizeof rg_nvml_state.devices[at].uuid);
    return RG_NVML_SUCCESS;
}

/* What a process has of a device; NULL: it has no session there, or its server does not say. Under lock. */
static const struct rg_share_info *share_of(unsigned process, unsigned index, bool *uses)
{
    *uses = false;
    if (rg_nvml_state.processes[process].server != rg_nvml_state.server_of[index])
        return NULL;
    for (uint32_t j = 0; j < rg_nvml_state.processes[process].n_devices; j++) {
        if (rg_nvml_state.processes[process].devices[j] != rg_nvml_state.devices[index].ordinal)
            continue;
        *uses = true;
        return rg_nvml_state.processes[process].knows_shares ? &rg_nvml_state.processes[process].shares[j]
                                                             : NULL;
    }
    return NULL;
}

/* What this process may have of a device: as its session has it or, where there is none yet, as it will ask for it. Under lock. */
static void limit_memory(unsigned index, struct rg_device_info *info)
{
    struct rg_share_wish wish;
    uint64_t limit = 0, used = 0;
    bool uses = false;
    for (unsigned i = 0; i < rg_nvml_state.n_processes && !uses; i++) {
        if (rg_nvml_state.processes[i].pid != (unsigned)getpid())
            continue;
        const struct rg_share_info *share = share_of(i, index, &uses);
        limit = share ? share->memory_limit : 0;
        used = share ? share->memory_used : 0;
    }
    if (!uses && rg_share_wanted(&wish))
        limit = wish.memory_bytes ? wish.memory_bytes
                                  : info->memory_total / 1000000u * wish.memory_millionths +
                                        info->memory_total % 1000000u * wish.memory_millionths / 1000000u;
    if (!limit || limit > info->memory_total)
        return;
    const uint64_t left = limit > used ? limit - used : 0;
    info->memory_total = limit;
    info->memory_free = uses || left < info->memory_free ? left : info->memory_free;
}

enum rg_nvml_return rg_nvml_look_now(rg_nvml_device device, struct rg_device_info *out)
{
    unsigned index;
    enum rg_nvml_return result = look_again(device, &index);
    if (result == RG_NVML_SUCCESS) {
        *out = rg_nvml_state.devices[index];
        limit_memory(index, out);
    }
    pthread_mutex_unlock(&rg_nvml_state.lock);
    return result;
}

enum rg_nvml_return rg_nvml_processes(rg_nvml_device device, struct rg_nvml_user *users, unsigned capacity,
                                      unsigned *count)
{
    unsigned index, found = 0;
    enum rg_nvml_return result = look_again(device, &index);
    for (unsigned i = 0; result == RG_NVML_SUCCESS && i < rg_nvml_state.n_processes; i++) {
        bool uses;
        const struct rg_share_info *share = share_of(i, index, &uses);
        if (uses && found < capacity)
            users[found] =
                (struct rg_nvml_user){.pid = rg_nvml_state.processes[i].pid,
                                      .memory = share ? share->memory_used : RG_NVML_VALUE_UNKNOWN};
        found += uses;
    }
    pthread_mutex_unlock(&rg_nvml_state.lock);
    if (result == RG_NVML_SUCCESS)
        *count = found;
    return result;
}
