/* exported.c - see exported.h. */
#include "client/api/exported.h"

#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/multiserver/context_scope.h"
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
    uint8_t zeros[12];
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

CUresult rg_exported_enter(struct rg_exported *exported, const void *handle)
{
    struct mark mark;
    const struct rg_session *owner = NULL;
    uint64_t context;
    *exported = (struct rg_exported){.entered = false};
    memcpy(exported->token, handle, TOKEN);
    memcpy(&mark, (const char *)handle + TOKEN, sizeof mark);
    if (mark.family == UNMARKED || is_place_of(&mark, rg_session_current()))
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < rg_n_sessions && !owner; i++)
        if (is_place_of(&mark, &rg_sessions[i]))
            owner = &rg_sessions[i];
    if (!owner) { /* or another program knows a server of this one's by another address: it is tried */
        exported->foreign = true;
        name_server(&mark, exported->server, sizeof exported->server);
        return CUDA_SUCCESS;
    }
    RG_TRY(context_on(owner, mark.device, &context));
    const CUresult status = rg_context_scope_enter(context);
    exported->entered = status == CUDA_SUCCESS;
    return status;
}

CUresult rg_exported_leave(const struct rg_exported *exported, CUresult status)
{
    if (exported->entered)
        rg_context_scope_leave();
    if (exported->foreign && status == CUDA_ERROR_INVALID_VALUE)
        rg_error("another process's handle is of memory or an event on a server that this program does not "
                 "use (%s): "
                 "name both servers for both programs ('remote-gpu run -s A,B'), or give them one lease",
                 exported->server);
    return status;
}
