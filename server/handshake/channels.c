/*
 * channels.c - connections that come while the session runs, and who gets them (channels.h).
 *
 * One thread sleeps until the monitor hands over a connection with its client's hello, and gives it on by the hello's purpose: to resume.h, to
 * the peers, or to the session's own multipath, if it shows the session's token and there are not enough yet. What cannot be
 * understood is closed; who shows the wrong token is refused, and the log says so within its limit.
 */
#include "server/handshake/channels.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/packet.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/handshake/handed.h"
#include "server/handshake/resume.h"
#include "server/peers/peers.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/liveness.h"
#include "transport/multipath/join.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct taker {
    struct rg_channels *channels;
    struct rg_resume *resume;
    struct rg_worker *worker;
    int hand_fd;
    uint64_t session;
};

void rg_channels_agree(const struct rg_client_hello *client, struct rg_server_hello *server,
                       struct rg_channels *out)
{
    *out = (struct rg_channels){0};
    pthread_mutex_init(&out->lock, NULL);
    if (!client->bulk_connections || getrandom(out->token, sizeof out->token, 0) != sizeof out->token)
        return;
    const unsigned wanted = client->bulk_connections;
    out->options.channels = wanted < RG_MULTIPATH_CHANNELS ? wanted : RG_MULTIPATH_CHANNELS;
    out->options.adaptive = client->bulk_adaptive;
    rg_codecs_agree(client->bulk_compression, client->bulk_codecs, &out->options);
    server->bulk_connections = out->options.channels;
    memcpy(server->bulk_token, out->token, sizeof out->token);
    server->bulk_codecs = client->bulk_codecs || client->bulk_compression ? rg_codecs_here() : 0;
}

/*
 * Receives a packet and the descriptors with it: the connection, the file with its hello, that with its keys. False: the
 * monitor has gone. All are -1 if one is missing, as where this process may have no more of them: a connection without its
 * keys would be taken for one that is not encrypted.
 */
static bool receive_handed(int socket, struct rg_handed *packet, int fds[RG_HANDED_FDS])
{
    unsigned n;
    enum rg_status status = rg_packet_receive(socket, 0, packet, sizeof *packet, fds, RG_HANDED_FDS, &n);
    if (status == RG_OK && n != packet->n_fds) {
        rg_packet_close(fds, n);
        n = 0;
        status = RG_ERR_LIMIT;
    }
    if (status == RG_ERR_LIMIT)
        rg_warn("a connection of the client is given up: its descriptors did not all arrive here");
    for (unsigned i = n; i < RG_HANDED_FDS; i++)
        fds[i] = -1;
    return (status == RG_OK || status == RG_ERR_LIMIT) && packet->version == RG_HANDED_VERSION;
}

/* How many there are; as many as there may be where none is taken. */
static unsigned count(struct rg_channels *channels)
{
    RG_SCOPED_LOCK(&channels->lock);
    return channels->multipath ? rg_multipath_channels(channels->multipath) : channels->options.channels;
}

static bool takes_none(struct rg_channels *channels)
{
    RG_SCOPED_LOCK(&channels->lock);
    return channels->multipath == NULL;
}

static enum rg_status add(struct rg_channels *channels, struct rg_conn *conn)
{
    RG_SCOPED_LOCK(&channels->lock);
    return channels->multipath ? rg_multipath_add(channels->multipath, conn) : RG_ERR_CLOSED;
}

/* A connection that the client opened: it becomes a channel if it shows the session's token. */
static void take(const struct taker *taker, const struct rg_client_hello *hello, int fd,
                 const struct rg_tls_keys *keys)
{
    const struct rg_transport_options options = {
        .filters = "", .bulk = true, .wait = RG_WAIT_BLOCK, .tls_keys = keys};
    const unsigned long long session = taker->session;
    struct rg_conn *conn = NULL;
    if (hello->purpose != RG_PURPOSE_BULK || rg_transport_adopt_fd(fd, &options, &conn) != RG_OK) {
        close(fd);
        return;
    }
    if (!taker->channels->options.channels) { /* none were agreed on, so there is no token either */
        struct rg_control refusal;
        rg_refusal_init(&refusal, RG_REFUSAL_NO_SUCH_SESSION,
                        "there is no session %llu that accepts another connection", session);
        (void)!rg_control_send(conn, &refusal);
        rg_conn_destroy(conn);
        return;
    }
    const bool full = count(taker->channels) >= taker->channels->options.channels;
    enum rg_status status = rg_multipath_admit(conn, hello, taker->channels->token, full);
    if (taker->channels->rails)
        rg_liveness_watch_closely(conn);
    if (status == RG_OK)
        status = add(taker->channels, conn);
    if (status == RG_OK) {
        rg_debug("session %llu: connection %u for bulk data", session, count(taker->channels));
        return;
    }
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    if (takes_none(taker->channels)) /* it came when the session was about to end */
        rg_debug("session %llu: %s came too late to carry bulk data for it", session, rg_conn_peer(conn));
    else
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN,
                       "session %llu: %s wanted to carry bulk data for it and may not: %s", session,
                       rg_conn_peer(conn), rg_status_string(status));
    rg_conn_destroy(conn);
}

/* What the client said on the connection; from a file, since nobody between it and here reads it. False: it is no hello. */
static bool read_hello(int file, unsigned char *data, struct rg_control *hello)
{
    const ssize_t size = pread(file, data, RG_MESSAGE_MAX, 0);
    return size > 0 && rg_control_unpack(data, (size_t)size, hello) == RG_OK &&
           hello->kind == RG_CONTROL_CLIENT_HELLO;
}

/* A connection that came with its hello; all descriptors are used up. */
static void take_handed(const struct taker *taker, const int fds[RG_HANDED_FDS], unsigned char *data)
{
    const int fd = fds[0], file = fds[1], key_file = fds[2];
    struct rg_control hello = {0};
    const struct rg_client_hello *client = &hello.client_hello;
    struct rg_tls_keys keys;
    const bool known = file >= 0 && read_hello(file, data, &hello);
    const bool good = key_file < 0 || rg_handed_keys(key_file, &keys);
    const struct rg_tls_keys *secret = key_file < 0 ? NULL : &keys;
    if (file >= 0)
        close(file);
    if (fd >= 0 && (!known || !good))
        close(fd);
    else if (fd >= 0 && client->purpose == RG_PURPOSE_RESUME)
        rg_resume_take(taker->resume, client, fd, secret);
    else if (fd >= 0 && (client->purpose == RG_PURPOSE_PEER || client->purpose == RG_PURPOSE_INTRODUCE))
        rg_peers_take(taker->worker, client, fd, secret);
    else if (fd >= 0 && client->purpose == RG_PURPOSE_INVITE)
        rg_peers_answer_invite(taker->worker, fd, secret);
    else if (fd >= 0)
        take(taker, client, fd, secret);
    explicit_bzero(&keys, sizeof keys);
    rg_control_fini(&hello);
}

static void *taker_main(void *arg)
{
    const struct taker *taker = arg;
    unsigned char *data = malloc(RG_MESSAGE_MAX);
    struct rg_handed packet;
    int fds[RG_HANDED_FDS];
    while (data && receive_handed(taker->hand_fd, &packet, fds))
        take_handed(taker, fds, data);
    free(data);
    return NULL;
}

bool rg_channels_wrap(struct rg_channels *channels, struct rg_conn **conn)
{
    if (!channels->options.channels)
        return true;
    if (rg_multipath_wrap(*conn, &channels->options, conn) != RG_OK)
        return false;
    RG_SCOPED_LOCK(&channels->lock);
    channels->multipath = *conn;
    return true;
}

void rg_channels_forget(struct rg_channels *channels)
{
    RG_SCOPED_LOCK(&channels->lock);
    channels->multipath = NULL;
}

bool rg_channels_start(struct rg_channels *channels, struct rg_resume *resume, int hand_fd, uint64_t session,
                       struct rg_worker *worker)
{
    if (hand_fd < 0)
        return true; /* nobody gives it any */
    struct taker *taker = calloc(1, sizeof *taker);
    pthread_t thread;
    if (!taker)
        return false;
    *taker = (struct taker){
        .channels = channels, .resume = resume, .worker = worker, .hand_fd = hand_fd, .session = session};
    if (rg_thread_create(&thread, "rg-channels", taker_main, taker) != RG_OK) {
        free(taker);
        return false;
    }
    pthread_detach(thread);
    return true;
}
