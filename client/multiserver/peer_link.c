/*
 * peer_link.c - see peer_link.h. One lock is held while two servers are being connected, so that who needs the connection as
 * well waits for it; the states are read without.
 */
#include "client/multiserver/peer_link.h"

#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/transport_choice.h"
#include "client/credentials/connect.h"
#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"
#include "proto/peer.h"
#include "transport/connect/connect.h"
#include "transport/tls/tls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER_MS = 12000 };

enum link_state { LINK_UNTRIED, LINK_NONE, LINK_OPEN, LINK_OPEN_RDMA };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned char links[RG_SERVERS_MAX]
                                  [RG_SERVERS_MAX]; /* enum link_state; the lower number first */

static _Atomic unsigned char *link_of(unsigned one, unsigned other)
{
    return one < other ? &links[one][other] : &links[other][one];
}

uint64_t rg_peer_transfer_number(void)
{
    static atomic_uint_fast64_t last;
    return UINT64_C(1) << 63 | (atomic_fetch_add(&last, 1) + 1);
}

static bool knows(const struct rg_session *session)
{
    return session->op_numbers[RG_OP_rgPeerInvite] && session->op_numbers[RG_OP_rgPeerSend];
}

/* What names the authority of that server's certificate. */
static bool hash_authority(const char *path, uint8_t hash[RG_PEER_AUTHORITY], char *why, size_t why_size)
{
    char pem[RG_CONTROL_PEM];
    struct stat info;
    RG_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    const struct rg_tls_tools *tools = rg_transport_tls_tools(why, why_size);
    if (!tools)
        return false;
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size > (off_t)sizeof pem ||
        !rg_file_read(fd, pem, (size_t)info.st_size) ||
        tools->key_hash(pem, (size_t)info.st_size, hash) != RG_OK) {
        rg_explain(why, why_size, "%s cannot be read as a certificate", path);
        return false;
    }
    return true;
}

bool rg_peer_name_target(struct rg_client_hello *hello, const struct rg_credentials *credentials, char *why,
                         size_t why_size)
{
    snprintf(hello->target_name, sizeof hello->target_name, "%s", credentials->server_name);
    hello->has_target_authority = credentials->found;
    return !credentials->found ||
           hash_authority(credentials->authority, hello->target_authority, why, why_size);
}

enum rg_status rg_peer_introduce(const struct rg_session *from, const struct rg_control *hello, char *why,
                                 size_t why_size)
{
    return rg_client_ask(from->peer, from->server, &from->credentials, hello, ANSWER_MS, why, why_size);
}

static bool invite(const struct rg_session *session, const struct rg_session *peer,
                   uint8_t secret[RG_PEER_SECRET])
{
    return rg_op_rgPeerInvite(peer->number, secret, rg_home_of_session(session)) == CUDA_SUCCESS;
}

/* What the worker has of the connection: RG_PEER_IS_OPEN and so on; 0: nothing. */
static unsigned await(const struct rg_session *session, const struct rg_session *peer)
{
    unsigned open = 0;
    const CUresult result = rg_op_rgPeerAwait(peer->number, &open, rg_home_of_session(session));
    return result == CUDA_SUCCESS ? open : 0;
}

void rg_peer_offer_rdma(struct rg_client_hello *hello, const struct rg_credentials *one,
                        const struct rg_credentials *other)
{
    char why[256];
    if (rg_transport_choice_wanted() != RG_TRANSPORT_TCP && rg_credentials_allow_rdma(one, why, sizeof why) &&
        rg_credentials_allow_rdma(other, why, sizeof why))
        rg_upgrade_offer(RG_TRANSPORT_RDMA, &hello->transports);
}

static enum link_state connect_servers(const struct rg_session *from, const struct rg_session *to, char *why,
                                       size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    unsigned open = 0;
    if (!message)
        return LINK_NONE;
    rg_client_hello_init(message, RG_PURPOSE_INTRODUCE);
    struct rg_client_hello *hello = &message->client_hello;
    if (strstr(to->peer, "unix:") || strstr(from->peer, "unix:")) {
        rg_explain(why, why_size, "a unix socket leads to one of them");
        return LINK_NONE;
    }
    hello->peer_session = from->hello.session;
    hello->target_session = to->hello.session;
    snprintf(hello->target_address, sizeof hello->target_address, "%s", to->peer);
    if (!rg_peer_name_target(hello, &to->credentials, why, why_size))
        return LINK_NONE;
    rg_peer_offer_rdma(hello, &from->credentials, &to->credentials);
    rg_explain(why, why_size, "a worker takes no connection");
    if (invite(to, from, hello->target_secret) && invite(from, to, hello->peer_secret) &&
        rg_peer_introduce(from, message, why, why_size) == RG_OK && await(from, to))
        open = await(to, from); /* one may have it before the other */
    explicit_bzero(message, sizeof *message);
    return !open ? LINK_NONE : open & RG_PEER_BY_RDMA ? LINK_OPEN_RDMA : LINK_OPEN;
}

bool rg_peer_link(struct rg_session *one, struct rg_session *other)
{
    _Atomic unsigned char *state = link_of(one->number, other->number);
    if (!rg_optimise[RG_OPT_PEERS] || *state == LINK_NONE)
        return false;
    if (*state >= LINK_OPEN)
        return true;
    RG_SCOPED_LOCK(&lock);
    char why[RG_CONTROL_REASON] = "one of them does not know how";
    if (*state == LINK_UNTRIED) {
        const enum link_state now =
            knows(one) && knows(other) ? connect_servers(one, other, why, sizeof why) : LINK_NONE;
        *state = (unsigned char)now;
        rg_info("copies and waits between %s and %s go %s%s", one->server, other->server,
                now == LINK_NONE ? "through this machine: " : "from one to the other, by ",
                now == LINK_NONE   ? why
                : now == LINK_OPEN ? "TCP"
                                   : "RDMA");
    }
    return *state >= LINK_OPEN;
}

bool rg_peer_link_is_rdma(const struct rg_session *one, const struct rg_session *other)
{
    return *link_of(one->number, other->number) == LINK_OPEN_RDMA;
}

bool rg_peer_link_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                         size_t bulk_size)
{
    (void)in;
    if (bulk_size || notice->id >= rg_n_sessions || notice->id == session->number)
        return false;
    *link_of(session->number, (unsigned)notice->id) = LINK_NONE;
    rg_info(
        "%s has lost its connection to %s: copies and waits between them go through this machine from now on",
        session->server, rg_sessions[notice->id].server);
    return true;
}
