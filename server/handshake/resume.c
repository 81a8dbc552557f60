/*
 * resume.c - a lost client is waited for, and taken in when it comes (resume.h).
 *
 * Happy path: rg_resume_offer, rg_resume_begin. When the connection is lost, the reconnector (transport/resumable/) calls `renew`, which
 * waits until the thread that takes connections has brought one that shows the token (rg_resume_take), or until what is known of the
 * client says that it is given up (waits_until). An upgrade has a thread of its own, one at a time; if it fails, nothing has changed.
 */
#include "server/handshake/resume.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/handshake/channels.h"
#include "server/shares/worker/share.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/liveness.h"
#include "transport/resumable/resumable.h"
#include "transport/upgrade/upgrade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    GONE_GRACE_S = 1,
    SHORT_GRACE_S = 5,
    YOUNG_S = 3,   /* no longer than this after its beginning a client may have no control connection yet */
    LOOK_MS = 100, /* how often it is looked whether a client that is waited for has gone */
    SWITCH_MS = 10000, /* for the client to resume by a connection that it has just made */
};

/* Whether what connects to us is on this machine and the client is not. */
static bool is_tunnelled(const struct rg_client_hello *client, const struct rg_conn *conn)
{
    char own[RG_CONTROL_TEXT] = "";
    return rg_address_is_within_host(rg_conn_fd(conn)) && gethostname(own, sizeof own - 1) == 0 &&
           strcmp(own, client->identity.host) != 0;
}

bool rg_resume_is_worth_it(const struct rg_conn *conn, bool may_move)
{
    return !may_move && !rg_address_is_within_host(rg_conn_fd(conn));
}

void rg_resume_offer(struct rg_resume *resume, uint64_t session, uint32_t grace_s,
                     const struct rg_client_hello *client, const struct rg_conn *conn,
                     struct rg_server_hello *hello)
{
    if (grace_s == 0 || !(client->capabilities & RG_CONTROL_CAP_RESUME) ||
        getrandom(resume->token, sizeof resume->token, 0) != sizeof resume->token)
        return;
    rg_cond_init(&resume->changed);
    pthread_mutex_init(&resume->lock, NULL);
    resume->offered = true;
    resume->session = session;
    resume->grace_ns = grace_s * 1000000000ull;
    resume->began_ns = rg_now_ns();
    resume->tunnelled = is_tunnelled(client, conn);
    hello->capabilities |= RG_CONTROL_CAP_CONTROL;
    hello->capabilities |= RG_CONTROL_CAP_RESUME;
    memcpy(hello->resume_token, resume->token, sizeof hello->resume_token);
    hello->resume_seconds = grace_s;
    if (gethostname(hello->host, sizeof hello->host - 1) != 0)
        hello->host[0] = 0;
}

void rg_resume_offer_upgrade(struct rg_resume *resume, struct rg_server_hello *hello)
{
    if (!resume->offered)
        return;
    resume->upgrades = true;
    resume->devices = hello->devices;
    resume->n_devices = hello->n_devices;
    hello->capabilities |= RG_CONTROL_CAP_UPGRADE;
}

static bool is_young(const struct rg_resume *resume, const struct rg_resumable_loss *loss)
{
    return loss->since_ns < resume->began_ns + YOUNG_S * 1000000000ull;
}

/* When the client is given up, by what is known of it now; never later than was said before. */
static uint64_t waits_until(const struct rg_resume *resume, const struct rg_resumable_loss *loss)
{
    uint64_t until = loss->until_ns;
    if (resume->tunnelled)
        return until;
    if (loss->peer == RG_PEER_GONE)
        until = rg_now_ns() + GONE_GRACE_S * 1000000000ull;
    else if (loss->peer == RG_PEER_UNKNOWN && loss->ended)
        until = loss->since_ns + (is_young(resume, loss) ? GONE_GRACE_S : SHORT_GRACE_S) * 1000000000ull;
    return until < loss->until_ns ? until : loss->until_ns;
}

/* The client that has come, or comes in time; NULL: none. *control_conn: its control connection, or NULL. */
static struct rg_conn *wait_for_client(struct rg_resume *resume, struct rg_resumable_loss *loss,
                                       struct rg_conn **control_conn, uint64_t *received)
{
    RG_SCOPED_LOCK(&resume->lock);
    while (!resume->come && rg_now_ns() < loss->until_ns) {
        if (loss->control_fd >= 0)
            loss->peer = rg_resumable_peer(loss->control_fd);
        loss->until_ns = waits_until(resume, loss);
        const uint64_t soon = rg_now_ns() + LOOK_MS * 1000000ull;
        const bool looks = loss->control_fd >= 0 && soon < loss->until_ns;
        const struct timespec until = rg_timespec(looks ? soon : loss->until_ns);
        (void)pthread_cond_timedwait(&resume->changed, &resume->lock, &until);
    }
    struct rg_conn *come = resume->come;
    *control_conn = resume->come_control;
    resume->come = resume->come_control = NULL;
    *received = resume->come_received;
    return come;
}

/* So that people see it, and who stops the server need not wait as well. */
static void show_waiting(bool waits)
{
    if (rg_share.slot)
        atomic_store(&rg_share.slot->usage.waits, waits);
}

static enum rg_status renew(void *user, struct rg_resumable_loss *loss, uint64_t received,
                            struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received)
{
    struct rg_resume *resume = user;
    for (;;) {
        show_waiting(true);
        struct rg_conn *conn = wait_for_client(resume, loss, control_conn, peer_received);
        show_waiting(false);
        struct rg_control answer;
        if (!conn) {
            snprintf(loss->why, sizeof loss->why, "%s",
                     loss->peer == RG_PEER_GONE ? "the client's process has ended"
                                                : "the client did not come back");
            return RG_ERR_TIMEOUT;
        }
        rg_resumed_init(&answer, received);
        if (rg_control_send(conn, &answer) == RG_OK &&
            (*control_conn || rg_channels_wrap(resume->channels, &conn))) {
            *out = conn;
            return RG_OK;
        }
        rg_conn_destroy(conn); /* it has gone again */
        rg_conn_destroy(*control_conn);
        *control_conn = NULL;
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
    struct rg_conn *resumable = rg_resumable_create(*conn, *control_conn, &options);
    if (!resumable)
        return false;
    resume->resumable = resumable;
    *conn = resumable;
    *control_conn = NULL;
    return true;
}

/* Whether a hello is that of this session's client. */
static bool is_known(const struct rg_resume *resume, const struct rg_client_hello *hello)
{
    return resume->offered && hello->resume_session == resume->session &&
           rg_token_equal(hello->resume_token, resume->token, sizeof resume->token);
}

/* A client goes on by this connection; both are taken. */
static void arrive(struct rg_resume *resume, struct rg_conn *conn, struct rg_conn *control_conn,
                   uint64_t received)
{
    rg_info("session %llu: its client comes back, from %s (%s)", (unsigned long long)resume->session,
            rg_conn_peer(conn), rg_conn_transport(conn));
    rg_liveness_watch_closely(conn);
    rg_resumable_drop(
        resume->resumable); /* first: what comes next may be in use by the time that this returned */
    pthread_mutex_lock(&resume->lock);
    struct rg_conn *earlier = resume->come, *earlier_control = resume->come_control;
    resume->come = conn;
    resume->come_control = control_conn;
    resume->come_received = received;
    pthread_cond_signal(&resume->changed);
    pthread_mutex_unlock(&resume->lock);
    rg_conn_destroy(earlier);
    rg_conn_destroy(earlier_control);
}

/* --- upgrades of a session that goes on over TCP --------------------------------------------------------- */

struct upgrading {
    struct rg_resume *resume;
    struct rg_conn *conn; /* that the client has come by */
    struct rg_transport_list offered;
};

/* The client says that it resumes by what it has been upgraded to, or it changes its mind. */
static void take_upgraded(struct rg_resume *resume, struct rg_conn *conn, struct rg_conn *control_conn)
{
    struct rg_control hello = {0};
    const bool good =
        rg_control_receive(conn, SWITCH_MS, &hello) == RG_OK && hello.kind == RG_CONTROL_CLIENT_HELLO &&
        hello.client_hello.purpose == RG_PURPOSE_RESUME && is_known(resume, &hello.client_hello);
    const uint64_t received = good ? hello.client_hello.resume_received : 0;
    rg_control_fini(&hello);
    if (good) {
        arrive(resume, conn, control_conn, received);
        return;
    }
    rg_conn_destroy(conn);
    rg_conn_destroy(control_conn);
}

static void upgrade_again(struct upgrading *upgrading)
{
    struct rg_resume *resume = upgrading->resume;
    struct rg_conn *conn = upgrading->conn, *control_conn = NULL;
    struct rg_control answer;
    rg_server_hello_init(&answer);
    answer.server_hello.session = resume->session;
    answer.server_hello.devices = (struct rg_device_info *)(uintptr_t)resume->devices;
    answer.server_hello.n_devices = resume->n_devices;
    struct rg_upgrade *upgrade = rg_upgrade_open(&upgrading->offered, &answer.server_hello);
    if (!upgrade)
        rg_refusal_init(&answer, RG_REFUSAL_UNSUPPORTED, "RDMA cannot be used on the server just now");
    enum rg_status status = rg_control_send(conn, &answer);
    if (status == RG_OK && upgrade)
        status = rg_upgrade_finish(upgrade, &conn, &control_conn);
    else
        rg_upgrade_abandon(upgrade);
    if (status == RG_OK && control_conn)
        take_upgraded(resume, conn, control_conn);
    else
        rg_conn_destroy(conn);
}

static void *upgrading_main(void *argument)
{
    struct upgrading *upgrading = argument;
    struct rg_resume *resume = upgrading->resume;
    upgrade_again(upgrading);
    free(upgrading);
    RG_SCOPED_LOCK(&resume->lock);
    resume->upgrading = false;
    return NULL;
}

/* One at a time: a client that asks again and again has one thread here. False: `conn` stays. */
static bool begin_upgrading(struct rg_resume *resume, struct rg_conn *conn,
                            const struct rg_transport_list *offered)
{
    struct upgrading *upgrading = malloc(sizeof *upgrading);
    if (!upgrading)
        return false;
    *upgrading = (struct upgrading){.resume = resume, .conn = conn, .offered = *offered};
    RG_SCOPED_LOCK(&resume->lock);
    const bool begun =
        !resume->upgrading && rg_thread_create_detached("rg-upgrade", upgrading_main, upgrading) == RG_OK;
    if (begun)
        resume->upgrading = true; /* its thread needs the lock to end */
    else
        free(upgrading);
    return begun;
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
                    const struct rg_tls_keys *keys)
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
    if (hello->capabilities & RG_CONTROL_CAP_CONTROL) { /* nothing may be sent by it */
        rg_resumable_set_control(resume->resumable, conn);
        rg_debug("session %llu has a control connection", (unsigned long long)resume->session);
        return;
    }
    if (resume->upgrades && rg_upgrade_is_offered(&hello->transports)) {
        if (!begin_upgrading(resume, conn, &hello->transports))
            rg_conn_destroy(conn);
        return;
    }
    arrive(resume, conn, NULL, hello->resume_received);
}
