/* rendezvous.c - see rendezvous.h. */
#include "client/nccl/rendezvous.h"

#include "client/core/home.h"
#include "client/credentials/connect.h"
#include "client/multiserver/peer_link.h"
#include "client/nccl/place.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "generated/client/operations.h"
#include "proto/peer.h"
#include "transport/address.h"
#include "transport/control.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 5000, ANSWER_MS = 12000 };

/* --- places --------------------------------------------------------------------------------------------- */

static bool place_of(const struct rg_session *session, struct rg_nccl_place *place)
{
    struct rg_address address;
    *place = (struct rg_nccl_place){.session = session->hello.session};
    if (rg_address_parse(session->peer, &address, NULL, 0) != RG_OK)
        return false;
    const bool is_unix = strcmp(address.scheme, "unix") == 0;
    const char *name = is_unix ? address.name : session->server;
    if ((size_t)snprintf(place->server, sizeof place->server, "%s", name) >= sizeof place->server)
        return false;
    place->port = address.port;
    if (is_unix)
        place->family = RG_NCCL_PLACE_UNIX;
    else if (inet_pton(AF_INET, address.host, place->address) == 1)
        place->family = RG_NCCL_PLACE_IPV4;
    else if (inet_pton(AF_INET6, address.host, place->address) == 1)
        place->family = RG_NCCL_PLACE_IPV6;
    return place->family != RG_NCCL_PLACE_UNKNOWN;
}

void rg_nccl_tell_place(const struct rg_session *session)
{
    static atomic_bool told[RG_SERVERS_MAX];
    struct rg_nccl_place place;
    if (!session->op_numbers[RG_OP_rgNcclPlace] || atomic_exchange(&told[session->number], true))
        return;
    if (!place_of(session, &place)) {
        rg_info(
            "NCCL: ranks of other processes cannot be told where the server %s is: its name is too long, or "
            "its address no number",
            session->server);
        return;
    }
    (void)rg_op_rgNcclPlace((const unsigned char *)&place, rg_home_of_session(session));
}

/* --- connecting ----------------------------------------------------------------------------------------- */

/* The other session's secret, for which its server is asked. */
static bool get_invitation(struct rg_conn *conn, const struct rg_nccl_place *place, const char *server,
                           uint8_t secret[RG_PEER_SECRET], char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    if (!message)
        return false;
    rg_client_hello_init(message, RG_PURPOSE_INVITE);
    message->client_hello.peer_session = place->session;
    const enum rg_status status = rg_control_ask(conn, message, ANSWER_MS, message);
    const bool refused = status == RG_OK && message->kind == RG_CONTROL_REFUSAL,
               good = status == RG_OK && message->kind == RG_CONTROL_ANSWER &&
                      message->answer.size == RG_PEER_SECRET;
    if (good)
        memcpy(secret, message->answer.data, RG_PEER_SECRET);
    else if (refused && message->refusal.code == RG_REFUSAL_UNAUTHORISED)
        rg_explain(why, why_size, "%s says: %s: all ranks of a communicator must be of one user", server,
                   message->refusal.reason);
    else if (refused)
        rg_explain(why, why_size, "%s says: %s", server, message->refusal.reason);
    else
        rg_explain(why, why_size, "%s gave no answer: %s", server, rg_status_string(status));
    if (status == RG_OK)
        rg_control_fini(message);
    return good;
}

/* Asks the server of that place for the invitation; `hello` gets what the own server needs to reach it. */
static bool be_invited(const struct rg_session *session, const struct rg_nccl_place *place,
                       struct rg_client_hello *hello, char *why, size_t why_size)
{
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = CONNECT_MS};
    RG_CLEANUP_FREE struct rg_credentials *credentials = calloc(1, sizeof *credentials);
    struct rg_conn *conn = NULL;
    enum rg_status status = RG_ERR_NO_MEMORY;
    struct rg_nccl_place own;
    struct rg_nccl_way way;
    if (!rg_nccl_place_read(place, &way, why, why_size))
        return false;
    const bool here = place_of(session, &own) && rg_nccl_place_is_same(&own, place);
    if (!here && (place->family == RG_NCCL_PLACE_UNIX || own.family == RG_NCCL_PLACE_UNIX)) {
        rg_explain(
            why, why_size,
            "the server %s is used by %s, where the id is of %s: ranks on several servers need addresses of "
            "TCP",
            session->server, session->peer, way.address);
        return false;
    }
    if (here)
        status =
            rg_client_connect_again(session->peer, &options, &session->credentials, why, why_size, &conn);
    else if (credentials)
        status = rg_client_connect(way.server, &options, credentials, why, why_size, &conn);
    if (status != RG_OK)
        return false;
    const bool invited =
        get_invitation(conn, place, here ? session->server : way.server, hello->target_secret, why, why_size);
    rg_conn_destroy(conn);
    hello->target_session = place->session;
    if (!invited || here)
        return invited;
    rg_peer_offer_rdma(hello, &session->credentials, credentials);
    snprintf(hello->target_address, sizeof hello->target_address, "%s", way.address);
    return rg_peer_name_target(hello, credentials, why, why_size);
}

/* Connects the session to the one at that place. */
static bool link_to(const struct rg_session *session, const struct rg_nccl_place *place, char *why,
                    size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    unsigned peer = 0, open = 0;
    if (!message)
        return false;
    rg_client_hello_init(message, RG_PURPOSE_INTRODUCE);
    struct rg_client_hello *hello = &message->client_hello;
    hello->peer_session = session->hello.session;
    if (place->family == RG_NCCL_PLACE_UNKNOWN) {
        rg_explain(why, why_size, "the client that made the id could not tell where its server is");
        return false;
    }
    bool done = be_invited(session, place, hello, why, why_size);
    if (done) {
        rg_explain(why, why_size, "the own worker takes no connection");
        done = rg_op_rgNcclInvite(&peer, hello->peer_secret, rg_home_of_session(session)) == CUDA_SUCCESS &&
               rg_peer_introduce(session, message, why, why_size) == RG_OK &&
               rg_op_rgPeerAwait(peer, &open, rg_home_of_session(session)) == CUDA_SUCCESS && open;
    }
    if (done)
        rg_info("a rank on %s is connected to one on %s, by %s", session->server,
                *hello->target_address ? hello->target_address : "the same server",
                open & RG_PEER_BY_RDMA   ? "RDMA"
                : *hello->target_address ? "TCP"
                                         : "a pair of sockets");
    explicit_bzero(message, sizeof *message);
    return done;
}

ncclResult_t rg_nccl_rendezvous(ncclComm_t comm, bool waits)
{
    const struct rg_session *session = comm->session;
    for (;;) {
        struct rg_nccl_place places[RG_NCCL_PLACES];
        unsigned n = 0;
        int result = ncclSystemError;
        _Static_assert(sizeof places == 832, "as the operation says");
        const CUresult status = rg_op_rgNcclAwait(comm->number, waits, &n, (unsigned char *)places, &result,
                                                  rg_home_of_session(session));
        const ncclResult_t told =
            rg_nccl_answered(session, "the beginning of a communicator", status, result);
        if (told != ncclInProgress || (!n && !waits))
            return told;
        /* that of the id, and those of its other ranks, each once: a server has the client go nowhere else */
        if (n > RG_NCCL_PLACES || atomic_fetch_add(&comm->places, n) + n > (unsigned)comm->ranks)
            return rg_nccl_fail(ncclInternalError, "%s names more processes than the communicator has ranks",
                                session->server);
        for (unsigned i = 0; i < n; i++) {
            char why[RG_CONTROL_REASON] = "out of memory";
            if (!link_to(session, &places[i], why, sizeof why))
                (void)rg_op_rgNcclUnreachable(comm->number, why, rg_home_of_session(session));
        }
    }
}
