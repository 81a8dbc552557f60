/* exported.c - see exported.h. */
#include "client/api/exported.h"

#include "client/api/context.h"
#include "client/connect/guest.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "common/base/hash_table.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "transport/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN = 32 };

enum family { UNMARKED, IPV4, IPV6, UNIX };

/* The second half of a handle. */
struct mark {
    uint8_t family, device; /* device: as the server counts */
    uint16_t port;
    uint8_t address[16]; /* UNIX: a digest of the socket's name */
    uint8_t gpu;         /* 1 more than the server's number of it; 0: not told */
    uint8_t session[8];  /* the exporter's, on the server */
    uint8_t zeros[3];
};
_Static_assert(sizeof(struct mark) == RG_EXPORTED_HANDLE - TOKEN, "a handle is a token and a mark");

/* Tells names apart that nobody chooses to be alike. */
static void digest(const char *name, uint8_t out[16])
{
    const uint64_t once = rg_hash_bytes(RG_HASH_EMPTY, name, strlen(name));
    const uint64_t halves[2] = {once, rg_hash_bytes(once, name, strlen(name))};
    memcpy(out, halves, sizeof halves);
}

/* Where the session's server is, but for the device; UNMARKED: that cannot be told. */
static struct mark place_of(const struct rg_session *session)
{
    struct rg_address address;
    struct mark mark = {0};
    if (rg_address_parse(session->peer, &address, NULL, 0) != RG_OK)
        return mark;
    if (strcmp(address.scheme, "unix") == 0) {
        mark.family = UNIX;
        digest(address.name, mark.address);
    } else if (inet_pton(AF_INET, address.host, mark.address) == 1) {
        mark.family = IPV4;
    } else if (inet_pton(AF_INET6, address.host, mark.address) == 1) {
        mark.family = IPV6;
    }
    mark.port = address.port;
    return mark;
}

/* Whether a client has noted anything; else the bytes are zeros, or of no handle. */
static bool is_mark(const struct mark *mark)
{
    static const uint8_t zeros[sizeof mark->zeros];
    return mark->family != UNMARKED && mark->family <= UNIX && memcmp(mark->zeros, zeros, sizeof zeros) == 0;
}

static bool is_place_of(const struct mark *mark, const struct rg_session *session)
{
    const struct mark own = place_of(session);
    return own.family == mark->family && own.port == mark->port &&
           memcmp(own.address, mark->address, sizeof own.address) == 0;
}

CUdevice rg_exported_device(enum rg_kind kind, uint64_t handle)
{
    const struct rg_session *session = rg_home_session(rg_home_of(kind, handle));
    for (CUdevice i = 0; rg_device(i); i++)
        if (rg_device_session(i) == session)
            return i;
    return 0;
}

void rg_exported_mark(void *handle, CUdevice device)
{
    const struct rg_session *session = rg_device_session(device);
    if (!session)
        return;
    struct mark mark = place_of(session);
    mark.device = (uint8_t)rg_device_there(session, device);
    mark.gpu = (uint8_t)(session->hello.devices[mark.device].ordinal + 1);
    memcpy(mark.session, &session->hello.session, sizeof mark.session);
    memcpy((char *)handle + TOKEN, &mark, sizeof mark);
}

/*
 * A context on the device that exports, or on another one of that server: the one that the program has used there, or the primary
 * context, which is kept from then on.
 */
static CUresult context_on(const struct rg_session *session, CUdevice there, uint64_t *context)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CUcontext kept[RG_SERVERS_MAX];
    *context = rg_home_context(rg_home_of_session(session));
    if (*context)
        return CUDA_SUCCESS;
    RG_SCOPED_LOCK(&lock);
    CUcontext *primary = &kept[session->number];
    if (session->guest) {
        if (!*primary)
            RG_TRY(rg_context_of_guest(primary, rg_guest_device(session)));
        *context = (uint64_t)*primary;
        return CUDA_SUCCESS;
    }
    CUdevice device = rg_device_here(session, there);
    for (CUdevice other = 0; device < 0 && rg_device(other); other++)
        if (rg_device_session(other) == session)
            device = other;
    if (!*primary)
        RG_TRY(cuDevicePrimaryCtxRetain(primary, device));
    *context = (uint64_t)*primary;
    return CUDA_SUCCESS;
}

static void name_server(const struct mark *mark, char *name, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    const bool is_number = mark->family == IPV4 || mark->family == IPV6;
    if (is_number && inet_ntop(mark->family == IPV4 ? AF_INET : AF_INET6, mark->address, host, sizeof host))
        snprintf(name, size, "%s, port %u", host, mark->port);
    else
        snprintf(name, size, "one behind a unix socket");
}

/* A handle that is being opened. */
struct opening {
    const char *call;
    unsigned char token[RG_EXPORTED_HANDLE]; /* what its worker knows it by */
    rg_exported_opener *open;
    void *user;
};

/* The program's own session on the server that has the handle; NULL: none. */
static const struct rg_session *find_owner(const struct mark *mark)
{
    for (unsigned i = 0; i < rg_n_own_sessions; i++)
        if (is_place_of(mark, &rg_sessions[i]))
            return &rg_sessions[i];
    return NULL;
}

static CUresult open_on(const struct rg_session *owner, CUdevice there, const struct opening *opening)
{
    uint64_t context;
    RG_TRY(context_on(owner, there, &context));
    RG_TRY(rg_context_scope_enter(context));
    const CUresult status = opening->open(opening->token, opening->user);
    rg_context_scope_leave();
    return status;
}

/* Where its server is to be connected to. False: that cannot be, or is not known. */
static bool guest_place(const struct mark *mark, struct rg_guest_place *place)
{
    *place = (struct rg_guest_place){.gpu = mark->gpu};
    memcpy(&place->beside, mark->session, sizeof place->beside);
    if (mark->family == IPV4) {
        place->address.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(mark->port)};
        memcpy(&place->address.v4.sin_addr, mark->address, sizeof place->address.v4.sin_addr);
    } else if (mark->family == IPV6) {
        place->address.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(mark->port)};
        memcpy(&place->address.v6.sin6_addr, mark->address, sizeof place->address.v6.sin6_addr);
    }
    return mark->family == IPV4 || mark->family == IPV6;
}

/* Whether the worker, or its driver, says that it knows no such handle. */
static bool is_unknown(CUresult status)
{
    return status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_INVALID_HANDLE;
}

/* The server is none that this program uses: in a session as a guest there. */
static CUresult open_as_guest(const struct mark *mark, const struct opening *opening)
{
    char name[64], why[1152] = "the other program uses it by a unix socket, which is found on that machine "
                               "alone; let it name the "
                               "server by its address of TCP";
    struct rg_guest_place place;
    const struct rg_session *session =
        guest_place(mark, &place) ? rg_guest_session(&place, why, sizeof why) : NULL;
    const CUresult status = session ? open_on(session, 0, opening) : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        return status;
    if (session && is_unknown(status))
        rg_explain(why, sizeof why,
                   "it does not know the handle: what it was of is gone, or another user's there");
    else if (session)
        rg_explain(why, sizeof why, "its driver gave error %d", (int)status);
    name_server(mark, name, sizeof name);
    rg_error(
        "%s: another process's memory or event cannot be opened on the server %s, which this program does "
        "not use: %s. If both programs name both servers ('remote-gpu run -s A,B'), or have one lease, it "
        "needs no session of its own there",
        opening->call, name, why);
    return status;
}

CUresult rg_exported_open(const char *call, const void *handle, rg_exported_opener *open, void *user)
{
    struct opening opening = {.call = call, .open = open, .user = user};
    struct mark mark;
    memcpy(opening.token, handle, TOKEN);
    memcpy(&mark, (const char *)handle + TOKEN, sizeof mark);
    if (!is_mark(&mark) || is_place_of(&mark, rg_session_current()))
        return open(opening.token, user);
    const struct rg_session *owner = find_owner(&mark);
    if (owner)
        return open_on(owner, mark.device, &opening);
    /* or another program knows a server of this one's by another address: it is tried */
    const CUresult status = open(opening.token, user);
    return is_unknown(status) ? open_as_guest(&mark, &opening) : status;
}
