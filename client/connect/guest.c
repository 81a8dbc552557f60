/* guest.c - see guest.h. One lock is held while a session begins. */
#include "client/connect/guest.h"

#include "client/connect/begin.h"
#include "client/connect/certificate_renewal.h"
#include "client/connect/keep_alive.h"
#include "client/core/device_list.h"
#include "client/core/probe.h"
#include "client/query/lease.h"
#include "client/query/servers.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "transport/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_NS 5000000000ull /* for looking up names */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool has_failed; /* a session had begun that nobody here could serve */

/* What is known of guests' sessions, by their number. */
struct guest {
    struct rg_guest_place place;
    CUdevice device;
};
static struct guest guests[RG_SERVERS_MAX];

/* --- by which name -------------------------------------------------------------------------------------- */

static uint16_t port_of(const struct rg_guest_place *place)
{
    return ntohs(place->address.any.sa_family == AF_INET ? place->address.v4.sin_port
                                                         : place->address.v6.sin6_port);
}

/* Whether a server is at that place: its name is looked up as it would be to connect. */
static bool is_at(const char *server, const struct rg_guest_place *place)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct rg_address address;
    struct addrinfo *list = NULL;
    bool same = false;
    if (rg_address_parse(server, &address, NULL, 0) != RG_OK || strcmp(address.scheme, "tcp") != 0 ||
        address.port != port_of(place) || getaddrinfo(address.host, NULL, &hints, &list) != 0)
        return false;
    for (const struct addrinfo *at = list; at && !same; at = at->ai_next)
        same = rg_address_is_same_host(at->ai_addr, &place->address.any);
    freeaddrinfo(list);
    return same;
}

struct search {
    const struct rg_guest_place *place;
    char *found;
    size_t size;
    uint64_t until_ns;
};

static bool take_if_there(const char *server, void *user)
{
    struct search *search = user;
    if (is_at(server, search->place))
        snprintf(search->found, search->size, "%s", server);
    return !*search->found && rg_now_ns() < search->until_ns;
}

/* Among the servers that the user has named. */
static bool find_named(struct search *search)
{
    struct rg_servers servers;
    bool on = rg_servers_read(&servers, rg_servers_named());
    for (unsigned i = 0; on && i < servers.n; i++)
        for (char *rest = servers.items[i], *server; on && rest && (server = rg_servers_next(&rest));)
            on = take_if_there(server, search);
    rg_servers_free(&servers);
    return *search->found != 0;
}

static void name_by_number(const struct rg_guest_place *place, char *out, size_t size)
{
    struct rg_address address = {.scheme = "tcp", .port = port_of(place)};
    const bool v4 = place->address.any.sa_family == AF_INET;
    (void)inet_ntop(v4 ? AF_INET : AF_INET6,
                    v4 ? (const void *)&place->address.v4.sin_addr
                       : (const void *)&place->address.v6.sin6_addr,
                    address.host, sizeof address.host);
    rg_address_format(&address, out, size);
}

/* --- the session ---------------------------------------------------------------------------------------- */

/* The first part of the address space that no session has. There are as many as there can be sessions. */
static uint32_t free_part(void)
{
    uint32_t part = 0;
    for (unsigned i = 0; i < rg_n_sessions;) {
        const bool taken = rg_sessions[i].place == part;
        part += taken;
        i = taken ? 0 : i + 1;
    }
    return part;
}

static bool is_same_place(const struct rg_guest_place *one, const struct rg_guest_place *other)
{
    return port_of(one) == port_of(other) &&
           rg_address_is_same_host(&one->address.any, &other->address.any) && one->gpu == other->gpu;
}

/* One that is there already, and lives. */
static struct rg_session *find(const struct rg_guest_place *place)
{
    for (unsigned i = rg_n_own_sessions; i < rg_n_sessions; i++)
        if (is_same_place(&guests[i].place, place) && atomic_load(&rg_sessions[i].ended) == CUDA_SUCCESS)
            return &rg_sessions[i];
    return NULL;
}

/* What one thread asks another, which has room for the handshake. */
struct asking {
    const struct rg_guest_place *place;
    char *why;
    size_t why_size;
    struct rg_session *session;
};

static bool connect_to(struct rg_session *session, const struct asking *asking)
{
    char server[sizeof session->server] = "";
    struct rg_client_hello *wanted = calloc(1, sizeof *wanted);
    if (!wanted) {
        rg_explain(asking->why, asking->why_size, "out of memory");
        return false;
    }
    struct search search = {asking->place, server, sizeof server, rg_now_ns() + NAMES_NS};
    if (find_named(&search))
        wanted->pool_lease = rg_lease_id();
    else
        rg_credentials_each_joined(take_if_there, &search);
    if (!*server)
        name_by_number(asking->place, server, sizeof server);
    if (asking->place->gpu) {
        wanted->n_gpu_indices = 1;
        wanted->gpu_indices[0] = asking->place->gpu - 1;
    } else {
        wanted->gpus = 1;
    }
    wanted->peer_session = asking->place->beside;
    wanted->address_part = session->place = free_part();
    const bool good = rg_begin_connect(session, server, wanted, asking->why, asking->why_size);
    free(wanted);
    return good;
}

/* Known to all from here on. False: this process has no room for it; then it has ended. */
static bool make_known(struct rg_session *session, const struct rg_guest_place *place)
{
    const unsigned number = (unsigned)(session - rg_sessions);
    const CUdevice device = session->hello.n_devices ? rg_device_add_guest(session) : -1;
    if (device < 0) {
        rg_begin_give_up(session, true);
        return false;
    }
    if (rg_begin_session(session) != RG_OK || rg_keep_alive_start(number, 1) != RG_OK ||
        rg_certificate_renewal_start(number, 1) != RG_OK) {
        has_failed = true; /* its entry cannot be used again: threads may know it */
        rg_session_end(session, CUDA_ERROR_OUT_OF_MEMORY,
                       "no thread can be started here for the session on %s", session->server);
        return false;
    }
    guests[number] = (struct guest){*place, device};
    rg_n_sessions++;
    if (RG_PROBED(sessions_begun))
        rg_probe->sessions_begun();
    return true;
}

static void begin(void *user)
{
    struct asking *asking = user;
    struct rg_session *session = &rg_sessions[rg_n_sessions % RG_SERVERS_MAX];
    if (rg_n_sessions == RG_SERVERS_MAX || has_failed) {
        if (has_failed)
            rg_explain(asking->why, asking->why_size,
                       "there were no threads for a session before, and no other begins since");
        else
            rg_explain(asking->why, asking->why_size,
                       "a program has sessions on at most %u servers and, as a guest, GPUs, and this one has "
                       "as many",
                       RG_SERVERS_MAX);
        return;
    }
    session->guest = true;
    if (!connect_to(session, asking))
        return;
    if (make_known(session, asking->place))
        asking->session = session;
    else
        rg_explain(asking->why, asking->why_size, "this program has no room for it");
}

struct rg_session *rg_guest_session(const struct rg_guest_place *place, char *why, size_t why_size)
{
    RG_SCOPED_LOCK(&lock);
    struct asking asking = {.place = place, .why = why, .why_size = why_size, .session = find(place)};
    if (!asking.session)
        rg_thread_with_room(begin, &asking);
    return asking.session;
}

CUdevice rg_guest_device(const struct rg_session *session)
{
    return guests[session->number].device;
}
