/* handshakes.c - handshakes as the main thread has them: counted by origin, cut off at their deadlines, ended. See handshake_internal.h. */
#include "server/frontend/handshake_internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum rg_status rg_handshakes_init(struct rg_handshakes *handshakes, struct rg_frontend *frontend)
{
    *handshakes = (struct rg_handshakes){.frontend = frontend, .refusals = RG_LOG_LIMIT_INIT};
    pthread_mutex_init(&handshakes->lock, NULL);
    rg_cond_init(&handshakes->room);
    handshakes->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (handshakes->wake < 0) {
        rg_error("eventfd: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    return RG_OK;
}

static struct rg_origin origin_of(int fd, uid_t *uid)
{
    struct rg_origin origin = {0};
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    struct ucred peer;
    *uid = (uid_t)-1;
    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0)
        return origin;
    origin.family = address.ss_family;
    size = sizeof peer;
    if (address.ss_family == AF_INET) {
        memcpy(origin.bytes, &((const struct sockaddr_in *)&address)->sin_addr, 4);
    } else if (address.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&address)->sin6_addr;
        memcpy(origin.bytes, IN6_IS_ADDR_V4MAPPED(v6) ? v6->s6_addr + 8 : v6->s6_addr, 8);
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
        memcpy(origin.bytes, &peer.uid, sizeof peer.uid);
        *uid = peer.uid;
    }
    return origin;
}

bool rg_origin_is(const struct rg_origin *a, const struct rg_origin *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void cut(struct rg_handshake *handshake)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    handshake->cut = true;
    pthread_cond_broadcast(&handshake->owner->room);
    if (handshake->handed)
        return;
    if (handshake->conn)
        rg_conn_interrupt(handshake->conn);
    else
        (void)shutdown(handshake->fd, SHUT_RDWR);
}

/* Those of one origin of which it is not known what they want, and not cut off already; *oldest: the last of the list. */
static uint32_t count_of(struct rg_handshakes *handshakes, const struct rg_origin *origin,
                         struct rg_handshake **oldest)
{
    uint32_t n = 0;
    RG_SCOPED_LOCK(&handshakes->lock);
    for (struct rg_handshake *at = handshakes->running; at; at = at->next)
        if (!at->cut && !at->asking && !at->waiting && !at->handed && rg_origin_is(&at->origin, origin)) {
            *oldest = at;
            n++;
        }
    return n;
}

/* The oldest of the origin that has most of them. */
static struct rg_handshake *find_greediest(struct rg_handshakes *handshakes)
{
    struct rg_handshake *found = NULL, *oldest = NULL;
    uint32_t most = 0;
    for (const struct rg_handshake *at = handshakes->running; at; at = at->next) {
        const uint32_t n = count_of(handshakes, &at->origin, &oldest);
        if (n > most) {
            most = n;
            found = oldest;
        }
    }
    return found;
}

const char *rg_handshake_begin_waiting(struct rg_handshake *handshake)
{
    struct rg_handshakes *handshakes = handshake->owner;
    uint32_t n = 0;
    RG_SCOPED_LOCK(&handshakes->lock);
    for (const struct rg_handshake *at = handshakes->running; at; at = at->next)
        n += at->waiting && rg_origin_is(&at->origin, &handshake->origin);
    if (handshakes->n_waiting >= RG_POOL_CLIENTS_MAX)
        return "this server has too many clients of the pool; ask another of its servers";
    if (n >= RG_POOL_CLIENTS_OF_ONE_MAX)
        return "this server has as many clients of the pool from your address as it takes from one; ask "
               "another of its servers";
    handshake->waiting = true;
    handshakes->n_waiting++;
    return NULL;
}

/* Those that hold up others. */
static uint32_t unfinished(struct rg_handshakes *handshakes)
{
    RG_SCOPED_LOCK(&handshakes->lock);
    return handshakes->n - handshakes->n_asking - handshakes->n_waiting;
}

bool rg_handshakes_full(struct rg_handshakes *handshakes)
{
    return unfinished(handshakes) > RG_HANDSHAKES_MAX;
}

static void make_room(struct rg_handshakes *handshakes, const struct rg_origin *origin)
{
    struct rg_handshake *oldest = NULL;
    if (count_of(handshakes, origin, &oldest) >= RG_HANDSHAKES_PER_ADDRESS)
        cut(oldest);
    else if (unfinished(handshakes) >= RG_HANDSHAKES_MAX && (oldest = find_greediest(handshakes)) != NULL)
        cut(oldest);
}

static bool start_thread(struct rg_handshake *handshake)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, 512 * 1024);
    const int error = pthread_create(&handshake->thread, &attributes, rg_handshake_main, handshake);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        rg_error("no thread for a handshake: %s%s", strerror(error),
                 error == EAGAIN ? "; raise the limit of processes (ulimit -u, TasksMax=)" : "");
    return error == 0;
}

void rg_handshakes_start(struct rg_handshakes *handshakes, int fd, enum rg_listener_reach reach)
{
    struct rg_handshake *handshake = calloc(1, sizeof *handshake);
    if (!handshake) {
        close(fd);
        return;
    }
    handshake->owner = handshakes;
    handshake->fd = fd;
    handshake->reach = reach;
    handshake->origin = origin_of(fd, &handshake->uid);
    handshake->deadline_ns = rg_now_ns() + RG_HELLO_TIMEOUT_MS * 1000000ull;
    make_room(handshakes, &handshake->origin);
    if (!start_thread(handshake)) {
        close(fd);
        free(handshake);
        return;
    }
    RG_SCOPED_LOCK(&handshakes->lock);
    handshake->next = handshakes->running;
    handshakes->running = handshake;
    handshakes->n++;
}

static void destroy(struct rg_handshakes *handshakes, struct rg_handshake *handshake)
{
    struct rg_handshake **link = &handshakes->running;
    pthread_mutex_lock(&handshakes->lock);
    while (*link != handshake)
        link = &(*link)->next;
    *link = handshake->next;
    handshakes->n--;
    handshakes->n_asking -= handshake->asking;
    if (handshake->asking)
        pthread_cond_broadcast(&handshakes->room);
    handshakes->n_waiting -= handshake->waiting;
    pthread_mutex_unlock(&handshakes->lock);
    if (handshake->conn)
        rg_conn_destroy(handshake->conn);
    else
        close(handshake->fd);
    rg_control_fini(&handshake->hello);
    rg_tls_wipe(handshake, sizeof *handshake); /* it may have the secret of a token */
    free(handshake);
}

void rg_handshakes_finish(struct rg_handshakes *handshakes)
{
    uint64_t count;
    if (read(handshakes->wake, &count, sizeof count) < 0)
        return; /* nobody is done */
    pthread_mutex_lock(&handshakes->lock);
    struct rg_handshake *done = handshakes->done;
    handshakes->done = NULL;
    pthread_mutex_unlock(&handshakes->lock);
    while (done) {
        struct rg_handshake *handshake = done;
        done = handshake->next_done;
        pthread_join(handshake->thread, NULL);
        destroy(handshakes, handshake);
    }
}

static bool is_waiting(struct rg_handshake *handshake)
{
    RG_SCOPED_LOCK(&handshake->owner->lock);
    return handshake->waiting;
}

int rg_handshakes_expire(struct rg_handshakes *handshakes)
{
    const uint64_t now = rg_now_ns();
    uint64_t next = UINT64_MAX;
    for (struct rg_handshake *at = handshakes->running; at; at = at->next) {
        if (at->cut || is_waiting(at))
            continue;
        if (at->deadline_ns <= now)
            cut(at);
        else if (at->deadline_ns < next)
            next = at->deadline_ns;
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000u) + 1;
}
