/* liveness.c - see liveness.h. */
#include "transport/liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

/* So much that has come and that nobody has received tells nothing: perhaps no more can come. */
#define MUCH_UNREAD (64u << 10)

/*
 * Whether the peer has taken some of what was on its way to it. A word of ours, which its machine takes for it, is gone
 * long before the next look; much more than the buffers of both machines is taken by the peer alone.
 */
static bool has_taken(const struct rg_conn_progress *last, const struct rg_conn_progress *now, bool knows)
{
    if (last->sending && now->sent != last->sent)
        return true;
    return knows && last->unsent && now->unsent != last->unsent &&
           (last->sending || now->unsent < last->unsent);
}

unsigned rg_liveness_look(struct rg_liveness *liveness, const struct rg_conn *conn, bool always)
{
    const struct rg_conn_progress last = liveness->last;
    struct rg_conn_progress *now = &liveness->last;
    rg_conn_progress(conn, now);
    if (now->lost) {
        *liveness = (struct rg_liveness){.last = *now};
        return 0;
    }
    const bool knows = now->has_backlog && last.has_backlog;
    const bool stuck = now->sending && last.sending && now->sent == last.sent;
    const bool would_see = now->receiving || stuck || (always && knows && now->unread < MUCH_UNREAD);
    if (now->received != last.received || (knows && now->unread != last.unread) ||
        has_taken(&last, now, knows))
        liveness->silent = 0;
    else if (would_see)
        liveness->silent++;
    else if (!always)
        liveness->silent = 0;
    return liveness->silent;
}

static void look_at_channel(struct rg_liveness_channel *channel, const struct rg_conn_progress *now)
{
    const struct rg_conn_progress *last = &channel->last;
    const bool knows = now->has_backlog && last->has_backlog;
    const bool stuck =
        now->sending && last->sending && now->sent == last->sent && !(knows && now->unsent != last->unsent);
    channel->stuck = stuck ? channel->stuck + 1 : 0;
    channel->last = *now;
}

unsigned rg_liveness_look_at_channels(struct rg_liveness *liveness, const struct rg_conn *conn)
{
    unsigned most = 0;
    for (unsigned i = 0; i < RG_LIVENESS_CHANNELS; i++) {
        struct rg_conn_progress now;
        if (!rg_conn_channel_progress(conn, i, &now))
            break;
        look_at_channel(&liveness->channels[i], &now);
        most = liveness->channels[i].stuck > most ? liveness->channels[i].stuck : most;
    }
    return most;
}

bool rg_liveness_give_up(struct rg_liveness *liveness, struct rg_conn *conn, unsigned most)
{
    bool all = true;
    for (unsigned i = 0; i < RG_LIVENESS_CHANNELS; i++) {
        if (liveness->channels[i].stuck <= most)
            continue;
        all = rg_conn_give_up_channel(conn, i) && all;
        liveness->channels[i] = (struct rg_liveness_channel){.stuck = 0};
    }
    return all;
}

bool rg_liveness_may_send(const struct rg_liveness *liveness)
{
    return !liveness->last.lost && !liveness->last.sending &&
           (!liveness->last.has_backlog || liveness->last.unsent == 0);
}

/* How often a waiting call of the socket looks is what says after how much silence the peer is gone (tcp/socket.c). */
void rg_liveness_watch_closely(const struct rg_conn *conn)
{
    const int fd = rg_conn_fd(conn);
    const struct timeval wait = {.tv_sec = RG_LIVENESS_CLOSE_MS / 4000};
    const struct {
        int name, value;
    } options[] = {{TCP_KEEPIDLE, 4}, {TCP_KEEPINTVL, 2}, {TCP_KEEPCNT, 2}};
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, options[0].name, &options[0].value, sizeof(int)) != 0)
        return;
    for (unsigned i = 1; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, IPPROTO_TCP, options[i].name, &options[i].value, sizeof(int));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}
