/*
 * start.c - the sessions begin.
 *
 * The happy path: connect to the servers of REMOTE_GPU_SERVER, say hello, map operation numbers, start the
 * sender threads. What fails is told once on stderr with the reason and what to do; the application sees a
 * machine without a CUDA device.
 */
#include "client/connect/start.h"

#include "client/connect/address_window.h"
#include "client/connect/choose_devices.h"
#include "client/connect/keep_alive.h"
#include "client/connect/multipath.h"
#include "client/connect/reconnect.h"
#include "client/connect/stay.h"
#include "client/connect/visible_devices.h"
#include "client/core/device_list.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "client/core/transport_choice.h"
#include "client/credentials/connect.h"
#include "client/nvml/nvml.h"
#include "client/query/lease.h"
#include "client/query/servers.h"
#include "client/query/share.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/cuda/capability.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"
#include "transport/upgrade/upgrade.h"

#include <stdarg.h>
#include <stdio.h>
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

/* Our number of each operation → the server's. */
static void map_operations(struct rg_session *session)
{
    const struct rg_server_hello *hello = &session->hello;
    if (memcmp(hello->api_digest, rg_api_digest, sizeof rg_api_digest) == 0) {
        for (unsigned op = 1; op < RG_OP_COUNT; op++)
            session->op_numbers[op] = (uint16_t)op;
        return;
    }
    unsigned unknown = 0;
    for (unsigned op = 1; op < RG_OP_COUNT; op++) {
        for (uint32_t number = 1; number < hello->n_opcode_names && !session->op_numbers[op]; number++)
            if (strcmp(hello->opcode_names[number], rg_op_names[op]) == 0)
                session->op_numbers[op] = (uint16_t)number;
        unknown += !session->op_numbers[op];
    }
    rg_info("the server is of another build (%s); %u of %u operations are not known to it", hello->software,
            unknown, RG_OP_COUNT - 1);
}

/* `wanted`: the devices and the part of the address space, where several servers are used. */
static bool say_hello(struct rg_session *session, const struct rg_client_hello *wanted,
                      enum rg_transport_choice choice)
{
    const char *server = session->server;
    struct rg_control hello, answer;
    rg_client_hello_init(&hello, RG_PURPOSE_SESSION);
    hello.client_hello.pool_lease = rg_lease_id();
    memcpy(hello.client_hello.api_digest, rg_api_digest, sizeof rg_api_digest);
    if (wanted) {
        hello.client_hello.n_gpu_indices = wanted->n_gpu_indices;
        memcpy(hello.client_hello.gpu_indices, wanted->gpu_indices, sizeof wanted->gpu_indices);
        hello.client_hello.address_part = wanted->address_part;
    } else {
        if (!rg_choose_devices(server, &hello.client_hello))
            return false;
        rg_hooks.hello(&hello.client_hello);
    }
    if (strstr(rg_conn_transport(session->conn), "unix"))
        choice = RG_TRANSPORT_TCP; /* nothing is nearer than this */
    if (!session->window_size)     /* else another of the alternatives was asked before */
        rg_address_window_keep((unsigned)(session - rg_sessions), hello.client_hello.address_part,
                               &session->window_start, &session->window_size);
    hello.client_hello.window_start = session->window_start;
    hello.client_hello.window_size = session->window_size;
    rg_upgrade_offer(choice, &hello.client_hello.transports);
    hello.client_hello.capability = rg_capability_wanted();
    rg_multipath_ask(strstr(rg_conn_transport(session->conn), "unix") != NULL, &hello.client_hello);
    hello.client_hello.capabilities |= RG_CONTROL_CAP_GPU_PATH | RG_CONTROL_CAP_SAY;
    hello.client_hello.keep_alive = rg_keep_alive_wanted();
    if (!rg_share_wanted(&hello.client_hello.share))
        return false;
    if (rg_probe)
        hello.client_hello.capabilities |= rg_probe->capabilities;
    if (rg_reconnect_wanted())
        hello.client_hello.capabilities |= RG_CONTROL_CAP_RESUME;
    enum rg_status status = rg_control_send(session->conn, &hello);
    if (status == RG_OK)
        status = rg_control_receive(session->conn, 60000, &answer);
    if (status != RG_OK) {
        rg_error("%s did not complete the handshake (%s); is it a remote-gpud?", server,
                 rg_status_string(status));
        return false;
    }
    if (answer.kind == RG_CONTROL_SERVER_HELLO) {
        session->hello_message = answer; /* keeps the memory that hello points to */
        session->hello = answer.server_hello;
        if (strcmp(session->hello.driver.kind, "soft") != 0 && hello.client_hello.address_part == 0)
            rg_address_window_keep_low((unsigned)(session - rg_sessions));
        return true;
    }
    if (answer.kind == RG_CONTROL_REFUSAL)
        rg_error("%s refused: %s", server, answer.refusal.reason);
    else
        rg_error("%s answered the handshake with something else", server);
    rg_control_fini(&answer);
    return false;
}

/* What the user's policy leaves of the choice. False: RDMA was asked for, and it allows none. */
static bool allow_choice(const struct rg_session *session, enum rg_transport_choice *choice, char *why,
                         size_t why_size)
{
    if (rg_credentials_allow_rdma(&session->credentials, why, why_size))
        return true;
    const bool contrary = *choice == RG_TRANSPORT_RDMA;
    *choice = RG_TRANSPORT_TCP;
    return !contrary;
}

/*
 * Ends a session that this side does not begin. Where the worker has (`begun`) and lets it outlive its
 * connections, it is told.
 */
static void give_up(struct rg_session *session, bool begun)
{
    if (begun && (session->hello.capabilities & RG_CONTROL_CAP_RESUME))
        rg_resumable_renounce(session->control_conn ? session->control_conn : session->conn);
    rg_conn_destroy(session->conn);
    rg_conn_destroy(session->control_conn);
    session->conn = session->control_conn = NULL;
}

/* Connects to one server and says hello; what fails is told. */
static bool connect_to(struct rg_session *session, const char *server, const struct rg_client_hello *wanted)
{
    snprintf(session->server, sizeof session->server, "%s", server);
    char why[768] = "";
    enum rg_transport_choice choice = rg_transport_choice_wanted();
    const enum rg_status status =
        rg_client_connect(server, NULL, &session->credentials, why, sizeof why, &session->conn);
    if (status != RG_OK) {
        char sentence[1152];
        rg_servers_unreached(server, status, why,
                             "check the address (-s or REMOTE_GPU_SERVER), and that remote-gpud runs there",
                             sentence, sizeof sentence);
        rg_error("%s", sentence);
        return false;
    }
    if (!allow_choice(session, &choice, why, sizeof why)) {
        rg_error("no RDMA to %s: %s", server, why);
        give_up(session, false);
        return false;
    }
    if (say_hello(session, wanted, choice)) {
        if (rg_upgrade_follow(choice, &session->hello, &session->conn, &session->control_conn, why,
                              sizeof why) == RG_OK &&
            (session->control_conn || rg_multipath_begin(session, &session->conn)))
            return true;
        rg_error("no RDMA to %s: %s; use --transport auto to go on over TCP, `remote-gpu doctor` to see what "
                 "is missing",
                 server, why);
        give_up(session, session->hello.n_addresses == 0); /* else the worker still waits for our choice */
        rg_control_fini(&session->hello_message);
        return false;
    }
    rg_conn_destroy(session->conn);
    session->conn = NULL;
    return false;
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
        for (unsigned i = 0; i < n; i++)
            if (devices[i].server == server) {
                rg_device_list(i, &rg_sessions[rg_n_sessions], (CUdevice)wanted->n_gpu_indices);
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
        give_up(&rg_sessions[--rg_n_sessions], true);
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
            rg_device_list(i, &rg_sessions[0], (CUdevice)i);
    }
    rg_servers_free(&servers);
    *(bool *)out = good;
}

/* ", shares GPUs by MPS, at most 25 % of each"; "": the server does not tell. */
static const char *sharing_text(const struct rg_server_hello *hello, char *out, size_t size)
{
    static const char *const ways[RG_SHARINGS] = {[RG_SHARING_TURNS] = ", shares GPUs by turns",
                                                  [RG_SHARING_MPS] = ", shares GPUs by MPS",
                                                  [RG_SHARING_EXCLUSIVE] = ", alone on its GPUs"};
    char part[48] = "";
    if (hello->compute_millionths)
        snprintf(part, sizeof part, ", at most %g %% of each", hello->compute_millionths / 1e4);
    snprintf(out, size, "%s%s", ways[hello->sharing] ? ways[hello->sharing] : "", part);
    return out;
}

static enum rg_status begin(struct rg_session *session)
{
    session->number = (unsigned)(session - rg_sessions);
    pthread_mutex_init(&session->ending, NULL);
    map_operations(session);
    if (!rg_reconnect_begin(session))
        return RG_ERR_NO_MEMORY;
    rg_receiver_init(session);
    char sharing[96];
    rg_info("session %llu on %s (%s): %u device(s), driver %u.%u%s",
            (unsigned long long)session->hello.session, session->server, rg_conn_transport(session->conn),
            session->hello.n_devices, session->hello.driver.version / 1000,
            session->hello.driver.version % 1000 / 10,
            sharing_text(&session->hello, sharing, sizeof sharing));
    return rg_queue_start(session);
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
        begun = begin(&rg_sessions[i]) == RG_OK;
    if (!begun || rg_keep_alive_start() != RG_OK || rg_stay_start() != RG_OK) {
        rg_error("no thread can be started here, or there is no memory: raise the limits of this process "
                 "(ulimit -u, -v) or of its container");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (RG_PROBED(sessions_begun))
        rg_probe->sessions_begun();
    return CUDA_SUCCESS;
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
    pthread_mutex_lock(&start_lock);
    if (!tried) {
        atomic_store(&starting, true);
        rg_sessions_outcome = start();
        tried = true;
        atomic_store(&starting, false);
    }
    pthread_mutex_unlock(&start_lock);
    return rg_sessions_outcome;
}
