/* who.c - see who.h. */
#include "server/daemon/grant/who.h"

#include "common/base/log.h"
#include "server/daemon/grant/contained.h"
#include "server/daemon/grant/refusal.h"
#include "transport/address.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Whether only this machine's processes can be at the other end. Those of unix sockets are known, and not meant. */
static bool is_local(int connection)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    return getsockname(connection, (struct sockaddr *)&own, &size) == 0 &&
           rg_address_is_loopback((const struct sockaddr *)&own);
}

/*
 * The name in the machine's own list, for people to read. Other sources of names (LDAP, …) are not asked: they may take as long
 * as they like, and would be loaded into the process that has the authority's key.
 */
static void name_user(uid_t uid, char *out, size_t size)
{
    FILE *list = fopen("/etc/passwd", "re");
    struct passwd *user = NULL;
    while (list && (user = fgetpwent(list)) != NULL && user->pw_uid != uid)
        ;
    if (user)
        snprintf(out, size, "uid %u (%s)", (unsigned)uid, user->pw_name);
    else
        snprintf(out, size, "uid %u", (unsigned)uid);
    if (list)
        fclose(list);
}

void rg_who_user(uid_t uid, struct rg_who *out)
{
    *out = (struct rg_who){.proof = RG_PROOF_USER, .uid = uid};
    name_user(uid, out->name, sizeof out->name);
}

/* Whether the user namespace has every user, as the first one does: a map of 2^32 - 1 numbers. */
static bool has_all_users(void)
{
    unsigned long first, outside, n, all = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    while (map && fscanf(map, "%lu %lu %lu", &first, &outside, &n) == 3)
        all += n;
    if (map)
        fclose(map);
    return !map || all >= UINT32_MAX; /* no map: a kernel without such namespaces */
}

uid_t rg_who_unmapped(void)
{
    unsigned number = 65534;
    if (has_all_users())
        return 0;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file && fscanf(file, "%u", &number) != 1)
        number = 65534;
    if (file)
        fclose(file);
    return number;
}

/* Its own name, which a connection has of the socket that took it. False: it is no unix socket, or has none. */
static bool name_of(int socket, struct rg_who_socket *out)
{
    out->size = sizeof out->name;
    return getsockname(socket, (struct sockaddr *)&out->name, &out->size) == 0 &&
           out->name.sun_family == AF_UNIX && out->size > sizeof out->name.sun_family &&
           out->size <= sizeof out->name;
}

void rg_who_listens(struct rg_who_policy *policy, int socket)
{
    struct rg_who_socket *next = &policy->sockets[policy->n_sockets];
    if (policy->n_sockets < RG_LISTENERS_MAX && name_of(socket, next))
        policy->n_sockets++;
}

/* Whether it takes connections. */
static bool listens(int socket)
{
    int yes = 0;
    socklen_t size = sizeof yes;
    return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &yes, &size) != 0 || yes;
}

/*
 * Whether the connection came by one of our unix sockets. Of others the kernel may name any user: of the pairs that this process has
 * made itself, of which the frontend has one end, this process's own; and of the listening socket itself, which the frontend has and whose
 * name is the same, whoever listens there.
 */
static bool came_by_ours(const struct rg_who_policy *policy, int connection)
{
    struct rg_who_socket own;
    if (listens(connection) || !name_of(connection, &own))
        return false;
    for (unsigned i = 0; i < policy->n_sockets; i++)
        if (own.size == policy->sockets[i].size && memcmp(&own.name, &policy->sockets[i].name, own.size) == 0)
            return true;
    return false;
}

/* Whose process is at the other end of a unix socket. False: that cannot be known. */
static bool find_user(const struct rg_who_policy *policy, int connection, uid_t *uid)
{
    struct ucred peer;
    socklen_t peer_size = sizeof peer;
    if (!came_by_ours(policy, connection) ||
        getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0)
        return false;
    *uid = peer.uid;
    return !policy->unmapped || peer.uid != policy->unmapped;
}

static enum rg_status check_certificate(const struct rg_who_policy *policy, struct rg_who *who,
                                        struct rg_monitor_answer *answer)
{
    char why[512] = "";
    int64_t expires = 0;
    if (!policy->identity)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                          "this server accepts no certificates");
    const enum rg_status status = rg_identity_check(
        policy->identity, who->name, who->serial, who->serial_size, &who->limits, &expires, why, sizeof why);
    if (status == RG_OK && expires)
        who->not_after = expires; /* what we keep ourselves need not be believed of anybody */
    if (status == RG_OK && rg_who_has_expired(who))
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                          "your certificate has expired; join again with a new token, or see to its renewal");
    if (status == RG_OK)
        return RG_OK;
    if (status == RG_ERR_REFUSED)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED, "%s", why);
    rg_error("%s: whether the certificate is accepted could not be found out: %s", who->name, why);
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_INTERNAL,
                      "the server could not find out whether the certificate is accepted; its log says why");
}

enum rg_status rg_who_is(const struct rg_who_policy *policy, const struct rg_monitor_peer *peer,
                         int connection, struct rg_who *out, struct rg_monitor_answer *answer)
{
    *out = (struct rg_who){.proof = peer->proof, .encrypted = peer->encrypted == 1};
    switch (peer->proof) {
    case RG_PROOF_USER:
        if (!find_user(policy, connection, &out->uid) ||
            (!policy->allow_unauthenticated && out->uid != 0 && out->uid != policy->uid))
            break;
        name_user(out->uid, out->name, sizeof out->name);
        out->contained = (out->uid == 0 || out->uid == policy->uid) && rg_is_contained(connection);
        return RG_OK;
    case RG_PROOF_CERTIFICATE:
        memcpy(out->name, peer->name, sizeof out->name);
        memcpy(out->serial, peer->serial, sizeof out->serial);
        out->serial_size = peer->serial_size;
        out->not_after = peer->not_after;
        return check_certificate(policy, out, answer);
    case RG_PROOF_NONE:
        if (policy->allow_unauthenticated || is_local(connection))
            return RG_OK;
        break;
    }
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED, "nothing is known of who this is");
}

bool rg_who_may_stay(const struct rg_who_policy *policy, const struct rg_who *who, char *why, size_t why_size)
{
    struct rg_identity_limits limits;
    return who->proof != RG_PROOF_CERTIFICATE || !policy->identity ||
           rg_identity_check(policy->identity, who->name, who->serial, who->serial_size, &limits, NULL, why,
                             why_size) != RG_ERR_REFUSED;
}

bool rg_who_has_expired(const struct rg_who *who)
{
    return who->proof == RG_PROOF_CERTIFICATE && (int64_t)time(NULL) > who->not_after;
}

bool rg_who_owns(const struct rg_who *who, uid_t owner)
{
    return who->proof == RG_PROOF_USER && !who->contained && (who->uid == 0 || who->uid == owner);
}

bool rg_who_is_same(const struct rg_who *session, const struct rg_who *connection)
{
    if (session->proof != connection->proof || connection->encrypted < session->encrypted)
        return false;
    return session->proof == RG_PROOF_USER ? session->uid == connection->uid
                                           : strcmp(session->name, connection->name) == 0;
}

void rg_who_key(const struct rg_who *who, const char *address, char *out, size_t size)
{
    const char *port = strrchr(address, ':');
    if (who->proof == RG_PROOF_USER)
        snprintf(out, size, "%d %u", (int)who->proof, (unsigned)who->uid);
    else if (who->name[0])
        snprintf(out, size, "%d %s", (int)who->proof, who->name);
    else
        snprintf(out, size, "unauthenticated %.*s", port ? (int)(port - address) : (int)strlen(address),
                 address);
}

const char *rg_who_text(const struct rg_who *who)
{
    return who->name[0] ? who->name : "unauthenticated";
}
