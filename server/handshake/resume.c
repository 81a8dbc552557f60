/* resume.c - see resume.h. */
#include "server/handshake/resume.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/sync/scoped_lock.h"
#include "server/handshake/channels.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/resumable/resumable.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { SHORT_GRACE_S = 5 };

/* Whether what connects to us is on this machine and the client is not. */
static bool is_tunnelled(const struct rg_client_hello *client, const struct rg_conn *conn)
{
    char own[RG_CONTROL_TEXT] = "";
    const char *peer = rg_conn_peer(conn);
    const bool near = strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0 ||
                      strcmp(rg_conn_transport(conn), "unix") == 0;
    return near && gethostname(own, sizeof own - 1) == 0 && strcmp(own, client->identity.host) != 0;
}

void rg_resume_offer(struct rg_resume *resume, uint64_t session, uint32_t grace_s,
                     const struct rg_client_hello *client, const struct rg_conn *conn,
                     struct rg_server_hello *hello)
{
    pthread_condattr_t attributes;
    if (grace_s == 0 || !(client->capabilities & RG_CONTROL_CAP_RESUME) ||
        getrandom(resume->token, sizeof resume->token, 0) != sizeof resume->token ||
        pthread_condattr_init(&attributes) != 0)
        return;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&resume->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&resume->lock, NULL);
    resume->offered = true;
    resume->session = session;
    resume->grace_ns = grace_s * 1000000000ull;
    resume->tunnelled = is_tunnelled(client, conn);
    hello->capabilities |= RG_CONTROL_CAP_RESUME;
    memcpy(hello->resume_token, resume->token, sizeof hello->resume_token);
    hello->resume_seconds = grace_s;
    if (gethostname(hello->host, sizeof hello->host - 1) != 0)
        hello->host[0] = 0;
}

/* The client that has come, or comes by then; NULL: none. */
static struct rg_conn *wait_for_client(struct rg_resume *resume, uint64_t until_ns, uint64_t *received)
{
    const struct timespec until = rg_timespec(until_ns);
    RG_SCOPED_LOCK(&resume->lock);
    while (!resume->come && rg_now_ns() < until_ns)
        (void)pthread_cond_timedwait(&resume->changed, &resume->lock, &until);
    struct rg_conn *come = resume->come;
    resume->come = NULL;
    *received = resume->come_received;
    return come;
}

static enum rg_status renew(void *user, struct rg_resumable_loss *loss, uint64_t received,
                            struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received)
{
    (void)control_conn; /* over TCP there is none */
    struct rg_resume *resume = user;
    const uint64_t soon = loss->since_ns + SHORT_GRACE_S * 1000000000ull;
    if (loss->ended && !resume->tunnelled && soon < loss->until_ns)
        loss->until_ns = soon;
    for (;;) {
        struct rg_conn *conn = wait_for_client(resume, loss->until_ns, peer_received);
        struct rg_control answer;
        if (!conn) {
            snprintf(loss->why, sizeof loss->why, "the client did not come back");
            return RG_ERR_TIMEOUT;
        }
        rg_resumed_init(&answer, received);
        if (rg_control_send(conn, &answer) == RG_OK && rg_channels_wrap(resume->channels, &conn)) {
            *out = conn;
            return RG_OK;
        }
        rg_conn_destroy(conn); /* it has gone again */
    }
}

static void dropped(void *user)
{
    rg_channels_forget(((struct rg_resume *)user)->channels);
}

static void report(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss)
{
    const struct rg_resume *resume = user;
    const double seconds = (double)(rg_now_ns() - loss->since_ns) / 1e9;
    if (event == RG_RESUMABLE_RESUMED)
        rg_info("session %llu goes on after %.1f s without a connection", (unsigned long long)resume->session,
                seconds);
    else if (event == RG_RESUMABLE_GAVE_UP)
        rg_info("session %llu: its connection was lost, and after %.1f s: %s",
                (unsigned long long)resume->session, seconds, loss->why);
}

bool rg_resume_begin(struct rg_resume *resume, struct rg_channels *channels, struct rg_conn **conn,
                     struct rg_conn **control_conn)
{
    if (!resume->offered)
        return true;
    resume->channels = channels;
    const struct rg_resumable_options options = {.user = resume,
                                                 .patience_ns = resume->grace_ns,
                                                 .reads = true,
                                                 .dropped = dropped,
                                                 .renew = renew,
                                                 .report = report};
    struct rg_conn *lasting = rg_resumable_create(*conn, *control_conn, &options);
    if (!lasting)
        return false;
    *conn = lasting;
    *control_conn = NULL;
    return true;
}

/* Whether a hello is that of this session's client. */
static bool is_known(const struct rg_resume *resume, const struct rg_client_hello *hello)
{
    return resume->offered && hello->resume_session == resume->session &&
           rg_token_equal(hello->resume_token, resume->token, sizeof resume->token);
}

static void refuse(const struct rg_resume *resume, struct rg_conn *conn)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    struct rg_control refusal;
    rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN,
                   "session %llu: %s wanted to take it over without its token",
                   (unsigned long long)resume->session, rg_conn_peer(conn));
    rg_refusal_init(&refusal, RG_REFUSAL_NO_SUCH_SESSION, "there is no such session");
    (void)!rg_control_send(conn, &refusal);
    rg_conn_destroy(conn);
}

void rg_resume_take(struct rg_resume *resume, const struct rg_client_hello *hello, int fd,
                    const struct rg_tls_keys *keys, struct rg_conn *session_conn)
{
    const struct rg_transport_options options = {.tls_keys = keys};
    struct rg_conn *conn;
    if (rg_transport_adopt_fd(fd, &options, &conn) != RG_OK) {
        close(fd);
        return;
    }
    if (!is_known(resume, hello)) {
        refuse(resume, conn);
        return;
    }
    rg_info("session %llu: its client comes back, from %s", (unsigned long long)resume->session,
            rg_conn_peer(conn));
    rg_resumable_drop(session_conn); /* first: what comes next may be in use by the time that this returned */
    pthread_mutex_lock(&resume->lock);
    struct rg_conn *earlier = resume->come;
    resume->come = conn;
    resume->come_received = hello->resume_received;
    pthread_cond_signal(&resume->changed);
    pthread_mutex_unlock(&resume->lock);
    rg_conn_destroy(earlier);
}
