/* network.c - see network.h; the operations by which a client connects sessions for NCCL. */
#include "server/nccl/network.h"

#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "proto/nccl/call.h"
#include "server/peers/peers.h"
#include "server/shares/worker/count.h"
#include "transport/address.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the session's own place; a leaf */
static struct rg_nccl_place own_place;

/* --- what the library is given ---------------------------------------------------------------------------- */

static bool send_message(void *link, const void *message, size_t size, const void *data, size_t data_size)
{
    rg_count_out(data_size);
    return rg_peer_send_bytes(link, message, size, data, data_size) == RG_OK;
}

static bool receive_data(void *link, void *memory, size_t size)
{
    struct rg_peer *peer = link;
    rg_count_in(size);
    return rg_conn_recv_bulk(peer->conn, memory, size) == RG_OK;
}

static bool read_message(void *link)
{
    return rg_peer_read(link);
}

static void interrupt(void *link)
{
    rg_conn_interrupt(((struct rg_peer *)link)->conn);
}

/* Where a connection leads that this side has opened, as its server knows. False: nobody can tell. */
static bool read_target(const struct rg_peer *peer, struct rg_nccl_place *target)
{
    struct rg_address address;
    if (!peer->target_address[0]) {
        RG_SCOPED_LOCK(&lock);
        *target = own_place;
        return target->family != RG_NCCL_PLACE_UNKNOWN;
    }
    if (rg_address_parse(peer->target_address, &address, NULL, 0) != RG_OK)
        return false;
    const bool is_ipv6 = strchr(address.host, ':') != NULL;
    *target = (struct rg_nccl_place){.port = address.port,
                                     .family = is_ipv6 ? RG_NCCL_PLACE_IPV6 : RG_NCCL_PLACE_IPV4};
    return inet_pton(is_ipv6 ? AF_INET6 : AF_INET, address.host, target->address) == 1;
}

static bool leads_to(void *link, const unsigned char place[RG_NCCL_PLACE_BYTES])
{
    const struct rg_peer *peer = link;
    struct rg_nccl_place target, wanted;
    memcpy(&wanted, place, sizeof wanted);
    return peer->connects && peer->target_session == wanted.session && read_target(peer, &target) &&
           rg_nccl_place_is_same(&target, &wanted);
}

/* --- what connections are given to ------------------------------------------------------------------------ */

static void *opened(struct rg_peer *peer)
{
    return rg_nccl_library_extension()->opened(peer);
}

static bool message_came(struct rg_peer *peer, const void *data, size_t size, size_t bulk_size)
{
    return rg_nccl_library_extension()->message(peer->user, data, size, bulk_size);
}

static void lost(struct rg_peer *peer)
{
    rg_nccl_library_extension()->lost(peer->user);
}

static void start(void)
{
    static const struct rg_nccl_network network = {.send = send_message,
                                                   .receive = receive_data,
                                                   .read = read_message,
                                                   .interrupt = interrupt,
                                                   .leads_to = leads_to};
    static const struct rg_peer_service service = {.opened = opened, .message = message_came, .lost = lost};
    if (!rg_nccl_library_extension())
        return;
    rg_nccl_library_extension()->use(&network);
    rg_peers_serve(&service);
}

void rg_nccl_network_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* --- operations ------------------------------------------------------------------------------------------- */

CUresult rg_execute_rgNcclPlace(struct rg_request *request, const unsigned char *place)
{
    (void)request;
    rg_nccl_network_start();
    {
        RG_SCOPED_LOCK(&lock);
        memcpy(&own_place, place, sizeof own_place);
    }
    if (rg_nccl_library_extension())
        rg_nccl_library_extension()->set_place(place);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgNcclInvite(struct rg_request *request, unsigned int *peer, unsigned char *secret)
{
    return rg_nccl_library_extension() && rg_peers_invite(request->worker, peer, secret)
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_PERMITTED;
}
