/*
 * stream.c - see stream.h.
 *
 * What fails is the connection's end, and told once; an interrupt of ours is RG_ERR_CLOSED instead.
 */
#include "transport/tcp/stream.h"

#include "common/base/clock.h"
#include "common/base/log_limit.h"
#include "common/base/poll.h"
#include "transport/frame.h"
#include "transport/tcp/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SCRATCH_SIZE = 4096,     /* for what no one wants */
    SPINS_PER_CHECK = 64,    /* polls between looks at the clock */
    DRAIN_READS = 512,       /* at a close */
    FIRST_LOOK_MS = 2000,    /* at the peer's health; then as rg_tcp_health_ms says */
    GATHER_FROM = 256 << 10, /* bytes outstanding from which on they are gathered in the kernel */
    GATHER = 128 << 10,      /* so many wake their reader: with more, it and the sender overlap less */
    REST_MS = 1000, /* how long a guest sleeps before it looks whether what it waits for has been received */
};

/* --- whose descriptor it is --- */

void rg_tcp_stream_init(struct rg_tcp_stream *s, int fd, const struct rg_transport_options *options,
                        const char *peer)
{
    s->fd = fd;
    s->peer = peer;
    s->threshold = 1;
    rg_adaptive_wait_init(&s->wait, options->wait);
    s->is_tcp = rg_tcp_tune(fd);
    atomic_init(&s->health_ms, FIRST_LOOK_MS);
    if (options->bulk && s->is_tcp)
        rg_tcp_tune_bulk(fd);
}

void rg_tcp_stream_become_guest(struct rg_tcp_stream *s)
{
    struct stat st;
    if (fstat(s->fd, &st) != 0)
        return;
    s->device = st.st_dev;
    s->inode = st.st_ino;
    s->guest = true;
}

bool rg_tcp_stream_is_ours(struct rg_tcp_stream *s)
{
    struct stat st;
    if (!s->guest)
        return true;
    if (!atomic_load_explicit(&s->taken, memory_order_relaxed) && fstat(s->fd, &st) == 0 &&
        st.st_ino == s->inode && st.st_dev == s->device)
        return true;
    if (!atomic_exchange(&s->taken, true))
        rg_error("this program has closed descriptor %d, which is the connection to %s", s->fd, s->peer);
    return false;
}

enum rg_status rg_tcp_stream_check(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    struct sockaddr_storage peer;
    socklen_t peer_size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
        getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0)
        return RG_OK;
    int reset = 0;
    size = sizeof reset;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reset, &size) == 0 && reset)
        return RG_ERR_CLOSED; /* it was connected; whoever connects to a server may do that as often as they like */
    rg_error("descriptor %d is not a connected stream socket", fd);
    return RG_ERR_INVALID;
}

/* --- waiting --- */

/* Milliseconds until `deadline` for poll, rounded up, at most the time to the next look at the peer's health.
 */
static int poll_time(const struct rg_tcp_stream *s, uint64_t deadline)
{
    const int health_ms = atomic_load_explicit(&s->health_ms, memory_order_relaxed);
    if (deadline == UINT64_MAX)
        return health_ms;
    uint64_t now = rg_now_ns();
    uint64_t left = now >= deadline ? 0 : (deadline - now + 999999u) / 1000000u;
    return left < (uint64_t)health_ms ? (int)left : health_ms;
}

/* A look at the peer's health, which others may have asked for more often meanwhile (transport/liveness.h). */
static bool is_alive(struct rg_tcp_stream *s)
{
    atomic_store_explicit(&s->health_ms, rg_tcp_health_ms(s->fd), memory_order_relaxed);
    return rg_tcp_peer_alive(s->fd);
}

enum rg_status rg_tcp_stream_lost(struct rg_tcp_stream *s, int error, const char *doing)
{
    if (rg_tcp_stream_is_interrupted(s))
        return RG_ERR_CLOSED;
    if (error)
        rg_debug("%s: %s: %s", s->peer, doing, strerror(error));
    return RG_ERR_LOST;
}

enum rg_status rg_tcp_stream_wait_writable(struct rg_tcp_stream *s)
{
    if (rg_tcp_stream_is_interrupted(s))
        return RG_ERR_CLOSED;
    if (!is_alive(s))
        return rg_tcp_stream_lost(s, ETIMEDOUT, "send");
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    if (rg_poll(&p, 1, poll_time(s, UINT64_MAX)) < 0 && rg_poll_is_refused())
        return rg_tcp_stream_lost(s, errno, "send");
    return RG_OK;
}

/* Waits until there may be something to read. */
static enum rg_status wait_readable(struct rg_tcp_stream *s, uint64_t deadline, unsigned *spins)
{
    if (rg_tcp_stream_is_interrupted(s))
        return RG_ERR_CLOSED;
    if (s->wait.mode == RG_WAIT_SPIN) {
        (void)rg_adaptive_wait_look(&s->wait);
        if (++*spins % SPINS_PER_CHECK == 0 && deadline != UINT64_MAX && rg_now_ns() >= deadline)
            return RG_ERR_TIMEOUT;
        if (*spins % (1u << 24) == 0 && !rg_tcp_peer_alive(s->fd))
            return rg_tcp_stream_lost(s, ETIMEDOUT, "receive");
        return RG_OK;
    }
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    const int n = rg_poll(&p, 1, poll_time(s, deadline));
    if (n < 0 && rg_poll_is_refused())
        return rg_tcp_stream_lost(s, errno, "receive");
    if (n != 0)
        return RG_OK;
    if (deadline != UINT64_MAX && rg_now_ns() >= deadline)
        return RG_ERR_TIMEOUT;
    return is_alive(s) ? RG_OK : rg_tcp_stream_lost(s, ETIMEDOUT, "receive");
}

/*
 * A guest waits for a message: looks, then sleeps, in poll alone, so that nothing is received here while a signal handler of the
 * program's may receive (rg_conn_rests).
 */
static enum rg_status rest(struct rg_tcp_stream *s, bool *look)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    const uint32_t before = s->pieces;
    const bool rested = s->rests; /* this is such a handler */
    int n;
    if (rg_tcp_stream_is_interrupted(s))
        return RG_ERR_CLOSED;
    s->rests = true;
    atomic_signal_fence(memory_order_seq_cst);
    while ((n = rg_poll(&p, 1, *look ? 0 : REST_MS)) == 0 && *look)
        *look = rg_adaptive_wait_look(&s->wait);
    const int error = n < 0 && rg_poll_is_refused() ? errno : 0;
    atomic_signal_fence(memory_order_seq_cst);
    s->rests = rested;
    atomic_signal_fence(memory_order_seq_cst);
    if (s->pieces != before)
        return RG_ERR_TIMEOUT;
    if (error)
        return rg_tcp_stream_lost(s, error, "receive");
    return n != 0 || rg_tcp_peer_alive(s->fd) ? RG_OK : rg_tcp_stream_lost(s, ETIMEDOUT, "receive");
}

/* --- bytes --- */

enum rg_status rg_tcp_stream_send(struct rg_tcp_stream *s, const void *data, size_t size, bool more)
{
    const char *cur = data;
    while (size > 0) {
        if (!rg_tcp_stream_is_ours(s))
            return RG_ERR_LOST;
        ssize_t sent = send(s->fd, cur, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent >= 0) {
            cur += sent;
            size -= (size_t)sent;
            continue;
        }
        RG_TRY(errno == EINTR    ? RG_OK
               : errno == EAGAIN ? rg_tcp_stream_wait_writable(s)
                                 : rg_tcp_stream_lost(s, errno, "send"));
    }
    return RG_OK;
}

uint64_t rg_tcp_stream_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : timeout_ms == 0 ? 0 : rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

enum rg_status rg_tcp_stream_receive(struct rg_tcp_stream *s, void *to, size_t size, bool all, bool message,
                                     uint64_t deadline, size_t *got)
{
    unsigned spins = 0;
    const bool may_sleep = deadline == UINT64_MAX && s->wait.mode != RG_WAIT_SPIN;
    const bool rests = message && may_sleep && s->guest;
    bool look = message && may_sleep;
    for (;;) {
        look = look && rg_adaptive_wait_look(&s->wait);
        if (!rg_tcp_stream_is_ours(s))
            return RG_ERR_LOST;
        const int flags = look || rests || !may_sleep ? MSG_DONTWAIT : all ? MSG_WAITALL : 0;
        ssize_t n = recv(s->fd, to, size, flags);
        if (n > 0) {
            s->pieces++;
            if (message)
                rg_adaptive_wait_end(&s->wait);
            *got = (size_t)n;
            return RG_OK;
        }
        if (n == 0)
            return RG_ERR_CLOSED;
        if (errno == EINTR)
            continue;
        if (errno == EFAULT)
            return RG_ERR_FAULT;
        if (errno != EAGAIN)
            return rg_tcp_stream_lost(s, errno, "receive");
        if (deadline == 0)
            return RG_ERR_TIMEOUT;
        RG_TRY(rests ? rest(s, &look) : look ? RG_OK : wait_readable(s, deadline, &spins));
    }
}

/* Sets how many bytes have to be there before the kernel wakes a reader; the end of the stream always does. */
static void set_threshold(struct rg_tcp_stream *s, int size)
{
    if (size != s->threshold && setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof size) == 0)
        s->threshold = size;
}

/*
 * Otherwise each segment wakes the reader, who takes it and sleeps again: over loopback, where the sender's processor
 * does the waking, that was a third of a copy's time. What is taken is what is there, never more than one waits for:
 * a threshold above what is still to come is never reached.
 */
enum rg_status rg_tcp_stream_receive_bulk(struct rg_tcp_stream *s, void *to, size_t size, size_t *got)
{
    unsigned spins = 0;
    enum rg_status status;
    if (!s->is_tcp || s->wait.mode == RG_WAIT_SPIN || (s->threshold == 1 && size < GATHER_FROM))
        return rg_tcp_stream_receive(s, to, size, true, false, UINT64_MAX, got);
    do {
        if (!rg_tcp_stream_is_ours(s))
            return RG_ERR_LOST;
        set_threshold(s, size < GATHER ? (int)size : GATHER);
        status = wait_readable(s, UINT64_MAX, &spins);
        if (status == RG_OK)
            status = rg_tcp_stream_receive(s, to, size, false, false, 0, got);
    } while (status == RG_ERR_TIMEOUT);
    if (status != RG_OK || *got == size)
        set_threshold(s, 1);
    return status;
}

/* --- ends --- */

enum rg_status rg_tcp_stream_frame(const struct rg_tcp_stream *s, const void *header, size_t *msg_size,
                                   size_t *bulk_size)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT; /* whoever reaches a server's port can send it */
    struct rg_frame frame;
    memcpy(&frame, header, sizeof frame);
    const enum rg_status status = rg_frame_decode(&frame, msg_size, bulk_size);
    if (status != RG_OK)
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_ERROR, "%s sent %s", s->peer,
                       status == RG_ERR_LIMIT ? "a message beyond the limits"
                                              : "something that is not remote-gpu's");
    return status;
}

void rg_tcp_stream_interrupt(struct rg_tcp_stream *s)
{
    atomic_store_explicit(&s->interrupted, true, memory_order_release);
    if (rg_tcp_stream_is_ours(s))
        shutdown(s->fd, SHUT_RDWR);
}

/*
 * To connect to nothing is how a socket resets its connection and stays a socket: what was received stays
 * readable in our buffer. A unix socket's peer is woken by the interrupt already.
 */
void rg_tcp_stream_reset(struct rg_tcp_stream *s)
{
    const struct sockaddr nothing = {.sa_family = AF_UNSPEC};
    if (s->is_tcp && rg_tcp_stream_is_ours(s) && connect(s->fd, &nothing, sizeof nothing) != 0)
        rg_debug("%s: cannot reset the connection: %s", s->peer, strerror(errno));
}

void rg_tcp_stream_end_sending(struct rg_tcp_stream *s)
{
    if (rg_tcp_stream_is_ours(s))
        shutdown(s->fd, SHUT_WR);
}

/*
 * Closing a socket with unread data resets the connection, and the peer may lose our last words with it. Where
 * another process may have the socket now, neither its data nor its end is ours.
 */
void rg_tcp_stream_close(struct rg_tcp_stream *s, bool with_care)
{
    if (s->fd < 0 || !rg_tcp_stream_is_ours(s))
        return;
    if (with_care) {
        shutdown(s->fd, SHUT_WR);
        char scratch[SCRATCH_SIZE];
        for (int i = 0; i < DRAIN_READS && recv(s->fd, scratch, sizeof scratch, MSG_DONTWAIT) > 0; i++)
            ;
    }
    close(s->fd);
}

void rg_tcp_stream_abandon(struct rg_tcp_stream *s)
{
    if (rg_tcp_stream_is_ours(s))
        close(s->fd);
    atomic_store(&s->taken, true); /* the number is the application's from now on */
}
