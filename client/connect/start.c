/*
 * start.c - the sessions begin.
 *
 * The happy path: connect to the servers of REMOTE_GPU_SERVER, then each session begins (begin.h). What fails is
 * told once on stderr with the reason and what to do; the application sees a machine without a CUDA device.
 */
#include "client/connect/start.h"

#include "client/connect/begin.h"
#include "client/connect/certificate_renewal.h"
#include "client/connect/keep_alive.h"
#include "client/connect/multipath.h"
#include "client/connect/visible_devices.h"
#include "client/core/device_list.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "client/core/transport_choice.h"
#include "client/nvml/nvml.h"
#include "client/query/lease.h"
#include "client/query/servers.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/cuda/program/capability.h"
#include "common/sync/scoped_lock.h"
#include "transport/upgrade/upgrade.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;
static atomic_bool starting;

/*
 * A child has nothing of its parent's sessions, and none of its own if the parent had begun: as with a
 * driver.
 */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&start_lock, NULL); /* another thread may have held it */
    if (!atomic_load(&starting) && rg_n_sessions == 0)
        return;
    atomic_store(&rg_sessions_ended, CUDA_ERROR_NOT_INITIALIZED);
    tried = true;
    rg_sessions_outcome = CUDA_ERROR_NOT_INITIALIZED;
    /*
     * The connections are the parent's: drop our copies of their descriptors, so that the parent's end still
     * ends them.
     */
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++) {
        atomic_store(&rg_sessions[i].ended, CUDA_ERROR_NOT_INITIALIZED);
        atomic_store(&rg_sessions[i].over, true);
        if (rg_sessions[i].conn)
            rg_conn_abandon(rg_sessions[i].conn);
        if (rg_sessions[i].control_conn)
            rg_conn_abandon(rg_sessions[i].control_conn);
    }
}

/* What fails is told. */
static bool connect_to(struct rg_session *session, const char *server, const struct rg_client_hello *wanted)
{
    char why[1152];
    const bool good = rg_begin_connect(session, server, wanted, why, sizeof why);
    if (!good && *why)
        rg_error("%s", why);
    return good;
}

/* The first of alternatives that takes us. */
static bool connect_to_any(struct rg_session *session, char *alternatives)
{
    char *rest = alternatives, *server;
    while (rest && (server = rg_servers_next(&rest)))
        if (connect_to(session, server, NULL))
            return true;
    return false;
}

/* --- several servers ------------------------------------------------------------------------------------ */

/* The devices that CUDA_VISIBLE_DEVICES leaves of the list, in its order; returns how many. */
static unsigned leave_visible(struct rg_nvml_listed *devices, unsigned n)
{
    static struct rg_nvml_listed all[RG_DEVICES_MAX];
    static uint8_t uuids[RG_DEVICES_MAX][16];
    uint32_t visible[RG_DEVICES_MAX];
    memcpy(all, devices, n * sizeof *devices);
    for (unsigned i = 0; i < n; i++)
        memcpy(uuids[i], devices[i].uuid, sizeof uuids[i]);
    const uint32_t kept = rg_visible_choose((const uint8_t(*)[16])uuids, n, visible);
    for (uint32_t i = 0; i < kept; i++)
        devices[i] = all[visible[i]];
    return kept;
}

/*
 * A session on each server that has one of the devices. Servers are numbered by their place in the user's
 * list, so that their device addresses do not depend on what is visible.
 */
static bool connect_to_all(void)
{
    static struct rg_nvml_listed devices[RG_DEVICES_MAX];
    struct rg_client_hello *wanted = calloc(1, sizeof *wanted);
    unsigned n;
    bool good = wanted && rg_nvml_list(devices, &n);
    if (good)
        n = leave_visible(devices, n);
    for (unsigned server = 0; server < RG_SERVERS_MAX && good; server++) {
        const char *name = NULL;
        wanted->n_gpu_indices = 0;
        wanted->address_part = server;
        wanted->pool_lease = rg_lease_id();
        for (unsigned i = 0; i < n; i++)
            if (devices[i].server == server) {
                rg_device_set(i, &rg_sessions[rg_n_sessions], (CUdevice)wanted->n_gpu_indices);
                wanted->gpu_indices[wanted->n_gpu_indices++] = devices[i].ordinal;
                name = devices[i].name;
            }
        if (!name)
            continue;
        good = connect_to(&rg_sessions[rg_n_sessions], name, wanted);
        if (!good)
            break;
        struct rg_session *session = &rg_sessions[rg_n_sessions++];
        session->place = server;
        for (uint32_t i = 0; i < session->hello.n_devices; i++)
            rg_servers_place(server, session->hello.devices[i].pci, sizeof session->hello.devices[i].pci);
    }
    free(wanted);
    if (good && rg_n_sessions)
        return true;
    if (good)
        rg_info("CUDA_VISIBLE_DEVICES leaves no device");
    while (rg_n_sessions)
        rg_begin_give_up(&rg_sessions[--rg_n_sessions], true);
    return false;
}

/* --- start and end -------------------------------------------------------------------------------------- */

/* Sessions on the servers that the user names. `out`: bool, whether they are there. */
static void connect_sessions(void *out)
{
    struct rg_servers servers;
    if (!rg_servers_read(&servers, rg_servers_named()))
        return;
    bool good;
    if (servers.n > 1) {
        good = connect_to_all();
    } else {
        good = connect_to_any(&rg_sessions[0], servers.items[0]);
        rg_n_sessions = good;
        for (uint32_t i = 0; good && i < rg_sessions[0].hello.n_devices; i++)
            rg_device_set(i, &rg_sessions[0], (CUdevice)i);
    }
    rg_servers_free(&servers);
    rg_n_own_sessions = rg_n_sessions;
    *(bool *)out = good;
}

static CUresult start(void)
{
    rg_optimisations_read();
    uint32_t visible[RG_DEVICES_MAX];
    if (rg_visible_kind() == RG_VISIBLE_NUMBERS && rg_visible_choose(NULL, RG_DEVICES_MAX, visible) == 0) {
        rg_info("CUDA_VISIBLE_DEVICES leaves no device");
        return CUDA_ERROR_NO_DEVICE;
    }
    const uint64_t since = rg_probe_wait();
    bool connected = false;
    rg_thread_with_room(connect_sessions, &connected);
    rg_probe_waited(since, 0);
    if (!connected)
        return CUDA_ERROR_NO_DEVICE;
    rg_stats_start();
    bool begun = true;
    for (unsigned i = 0; i < rg_n_sessions && begun; i++)
        begun = rg_begin_session(&rg_sessions[i]) == RG_OK;
    if (!begun || rg_keep_alive_start(0, rg_n_sessions) != RG_OK ||
        rg_certificate_renewal_start(0, rg_n_sessions) != RG_OK) {
        rg_error("no thread can be started here, or there is no memory: raise the limits of this process "
                 "(ulimit -u, -v) or of its container");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (RG_PROBED(sessions_begun))
        rg_probe->sessions_begun();
    return CUDA_SUCCESS;
}

/*
 * What beginning a session has the loader do, before the lock is taken, behind which it does nothing (rg_servers_load): the transports,
 * which compiler the program has, libraries that compress, and what looking up names takes.
 */
static void load(void *unused)
{
    struct rg_transport_list offered;
    struct rg_client_hello asked;
    (void)unused;
    rg_upgrade_offer(rg_transport_choice_wanted(), &offered);
    rg_servers_load(rg_upgrade_is_offered(&offered));
    (void)rg_capability_wanted();
    rg_multipath_ask(false, &asked);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

CUresult rg_connect_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (tried)
        return rg_sessions_outcome;
    pthread_once(&once, watch_forks); /* before anything that a fork could find half done */
    rg_thread_with_room(load, NULL);
    RG_SCOPED_LOCK(&start_lock);
    if (!tried) {
        atomic_store(&starting, true);
        rg_sessions_outcome = start();
        tried = true;
        atomic_store(&starting, false);
    }
    return rg_sessions_outcome;
}
