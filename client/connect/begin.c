/* begin.c - see begin.h. */
#include "client/connect/begin.h"

#include "client/connect/address_window.h"
#include "client/connect/choose_devices.h"
#include "client/connect/keep_alive.h"
#include "client/connect/multipath.h"
#include "client/connect/reconnect.h"
#include "client/core/hooks.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/transport_choice.h"
#include "client/credentials/connect.h"
#include "client/query/lease.h"
#include "client/query/servers.h"
#include "client/query/share.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/cuda/program/capability.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"
#include "transport/upgrade/upgrade.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_NS 1000000000ull /* until a session is asked for again that may begin later */

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

/* A guest (guest.h) needs no part of a GPU but what it opens there. */
static void wish_little(struct rg_share_wish *share)
{
    struct rg_share_wish little = {0};
    memcpy(little.project, share->project, sizeof little.project);
    *share = little;
}

/* What the session is to have; `wanted`: the devices, the part of the address space and the lease, unless it is the only server's. */
static bool ask_for(const struct rg_session *session, const struct rg_client_hello *wanted,
                    struct rg_client_hello *hello)
{
    if (wanted) {
        hello->gpus = wanted->gpus;
        hello->n_gpu_indices = wanted->n_gpu_indices;
        memcpy(hello->gpu_indices, wanted->gpu_indices, sizeof wanted->gpu_indices);
        hello->address_part = wanted->address_part;
        hello->peer_session = wanted->peer_session;
        hello->pool_lease = session->credentials.found ? rg_lease_id() : wanted->pool_lease;
    } else {
        if (!rg_choose_devices(session->server, hello))
            return false;
        hello->pool_lease = rg_lease_id();
        rg_hooks.hello(hello);
    }
    if (!rg_share_wanted(&hello->share))
        return false;
    if (session->guest)
        wish_little(&hello->share);
    return true;
}

/* *later: it is refused now, and is to be asked for again. */
static bool say_hello(struct rg_session *session, const struct rg_client_hello *wanted,
                      enum rg_transport_choice choice, bool *later, char *why, size_t why_size)
{
    const char *server = session->server;
    struct rg_control hello, answer;
    rg_client_hello_init(&hello, RG_PURPOSE_SESSION);
    memcpy(hello.client_hello.api_digest, rg_api_digest, sizeof rg_api_digest);
    if (!ask_for(session, wanted, &hello.client_hello))
        return false;
    if (strstr(rg_conn_transport(session->conn), "unix"))
        choice = RG_TRANSPORT_TCP; /* nothing is nearer than this */
    if (!session->window_size)     /* else another of the alternatives was asked before */
        rg_address_window_keep((unsigned)(session - rg_sessions), hello.client_hello.address_part, !wanted,
                               &session->window_start, &session->window_size);
    hello.client_hello.window_start = session->window_start;
    hello.client_hello.window_size = session->window_size;
    rg_upgrade_offer(choice, &hello.client_hello.transports);
    hello.client_hello.capability = rg_capability_wanted();
    rg_multipath_ask(strstr(rg_conn_transport(session->conn), "unix") != NULL, &hello.client_hello);
    hello.client_hello.capabilities |= RG_CONTROL_CAP_GPU_PATH | RG_CONTROL_CAP_SAY;
    hello.client_hello.keep_alive = rg_keep_alive_wanted();
    if (rg_probe)
        hello.client_hello.capabilities |= rg_probe->capabilities;
    if (rg_reconnect_wanted())
        hello.client_hello.capabilities |= RG_CONTROL_CAP_RESUME;
    const enum rg_status status = rg_control_ask(session->conn, &hello, 60000, &answer);
    if (status != RG_OK)
        return RG_FAILED(false, why, why_size, "%s did not complete the handshake (%s); is it a remote-gpud?",
                         server, rg_status_string(status));
    if (answer.kind == RG_CONTROL_SERVER_HELLO) {
        session->hello_message = answer; /* keeps the memory that hello points to */
        session->hello = answer.server_hello;
        if (strcmp(session->hello.driver.kind, "soft") != 0 && hello.client_hello.address_part == 0)
            rg_address_window_keep_low((unsigned)(session - rg_sessions));
        return true;
    }
    *later = answer.kind == RG_CONTROL_REFUSAL && answer.refusal.code == RG_REFUSAL_SUSPENDED;
    if (*later)
        rg_explain(why, why_size, "%s: %s", server, answer.refusal.reason);
    else if (answer.kind == RG_CONTROL_REFUSAL)
        rg_explain(why, why_size, "%s refused: %s", server, answer.refusal.reason);
    else
        rg_explain(why, why_size, "%s answered the handshake with something else", server);
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

void rg_begin_give_up(struct rg_session *session, bool begun)
{
    if (begun && (session->hello.capabilities & RG_CONTROL_CAP_RESUME))
        rg_resumable_renounce(session->control_conn ? session->control_conn : session->conn);
    rg_conn_destroy(session->conn);
    rg_conn_destroy(session->control_conn);
    session->conn = session->control_conn = NULL;
}

static bool connect_once(struct rg_session *session, const char *server, const struct rg_client_hello *wanted,
                         bool *later, char *why, size_t why_size)
{
    snprintf(session->server, sizeof session->server, "%s", server);
    char reason[768] = "";
    enum rg_transport_choice choice = rg_transport_choice_wanted();
    *why = '\0';
    const enum rg_status status =
        rg_client_connect(server, NULL, &session->credentials, reason, sizeof reason, &session->conn);
    if (status != RG_OK) {
        rg_servers_unreached(server, status, reason,
                             session->guest
                                 ? "check that it can be reached from here by this address"
                                 : "check the address (-s or REMOTE_GPU_SERVER), and that remote-gpud runs "
                                   "there",
                             why, why_size);
        return false;
    }
    if (!allow_choice(session, &choice, reason, sizeof reason)) {
        rg_explain(why, why_size, "no RDMA to %s: %s", server, reason);
        rg_begin_give_up(session, false);
        return false;
    }
    if (!say_hello(session, wanted, choice, later, why, why_size)) {
        rg_begin_give_up(session, false);
        return false;
    }
    if (rg_upgrade_follow(choice, &session->hello, &session->conn, &session->control_conn, reason,
                          sizeof reason) == RG_OK &&
        (session->control_conn || rg_multipath_begin(session, &session->conn)))
        return true;
    rg_explain(why, why_size,
               "no RDMA to %s: %s; use --transport auto to go on over TCP, `remote-gpu doctor` to see what "
               "is missing",
               server, reason);
    rg_begin_give_up(session,
                     session->hello.n_addresses == 0); /* else the worker still waits for our choice */
    rg_control_fini(&session->hello_message);
    return false;
}

bool rg_begin_connect(struct rg_session *session, const char *server, const struct rg_client_hello *wanted,
                      char *why, size_t why_size)
{
    bool later = false;
    for (bool said = false; !connect_once(session, server, wanted, &later, why, why_size); said = true) {
        if (!later)
            return false;
        if (!said)
            rg_warn("waiting: %s", why);
        later = false;
        rg_pause(AGAIN_NS);
    }
    return true;
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

enum rg_status rg_begin_session(struct rg_session *session)
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
