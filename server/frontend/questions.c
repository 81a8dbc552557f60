/* questions.c - see questions.h. */
#include "server/frontend/questions.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/sandbox/sandbox.h"
#include "transport/control.h"
#include "transport/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRESH_NS        1000000000ull /* devices are looked at no more often */
#define LOOK_TIMEOUT_MS 2000

/*
 * Has the board show what sessions have now, which the monitor need only read: who has just allocated memory, and asks, sees it.
 */
static void look_at_sessions(struct rg_frontend *frontend)
{
    struct rg_monitor_question question = {.kind = RG_ASK_LOOK};
    struct rg_monitor_answer answer;
    if (rg_monitor_ask(&frontend->link, &question, NULL, 0, LOOK_TIMEOUT_MS, &answer, NULL) != RG_OK)
        rg_debug("what sessions have is not known now");
}

/* Has the devices looked at, or waits for who does. */
static void look_again(struct rg_frontend *frontend)
{
    struct rg_monitor_question question = {.kind = RG_ASK_PROBE};
    struct rg_monitor_answer answer;
    const struct timespec until = rg_timespec(rg_now_ns() + LOOK_TIMEOUT_MS * 1000000ull);
    pthread_mutex_lock(&frontend->look_lock);
    const bool ours = !frontend->looking;
    while (!ours && frontend->looking &&
           pthread_cond_timedwait(&frontend->looked, &frontend->look_lock, &until) != ETIMEDOUT)
        ;
    if (ours)
        frontend->looking = true;
    pthread_mutex_unlock(&frontend->look_lock);
    if (!ours)
        return;
    if (rg_monitor_ask(&frontend->link, &question, NULL, 0, LOOK_TIMEOUT_MS, &answer, NULL) != RG_OK)
        rg_debug("the devices are still being looked at");
    RG_SCOPED_LOCK(&frontend->look_lock);
    frontend->looking = false;
    pthread_cond_broadcast(&frontend->looked);
}

/* Whether a session is the viewer's own; a user of this machine is "uid 1000 (alice)" there. */
static bool is_own(const struct rg_session_info *session, const struct rg_viewer *viewer)
{
    char user[32];
    const int size = snprintf(user, sizeof user, "uid %u", (unsigned)viewer->uid);
    /* a certificate may have a name that reads as that of a user of this machine, who comes by no TLS */
    if (viewer->proof == RG_PROOF_CERTIFICATE)
        return session->encrypted && strcmp(session->identity_name, viewer->name) == 0;
    return viewer->proof == RG_PROOF_USER && !session->encrypted &&
           strncmp(session->identity_name, user, (size_t)size) == 0 &&
           (session->identity_name[size] == 0 || session->identity_name[size] == ' ');
}

/* Leaves the name of the program: no folder, no arguments. */
static void hide(struct rg_session_info *session)
{
    char *command = session->identity.command;
    command[strcspn(command, " ")] = 0;
    const char *slash = strrchr(command, '/');
    if (slash)
        memmove(command, slash + 1, strlen(slash + 1) + 1);
    session->peer[0] = 0;
}

/* Root and the server's user, unless they are a container's, which the monitor finds out. */
static bool sees_all(struct rg_frontend *frontend, struct rg_conn *conn, const struct rg_viewer *viewer)
{
    struct rg_monitor_question question = {.kind = RG_ASK_OWNS,
                                           .peer = {.proof = RG_PROOF_USER, .encrypted = 0}};
    struct rg_monitor_answer answer;
    const int fd = rg_conn_fd(conn);
    return viewer->proof == RG_PROOF_USER && (viewer->uid == 0 || viewer->uid == frontend->settings.uid) &&
           rg_monitor_ask(&frontend->link, &question, &fd, 1, LOOK_TIMEOUT_MS, &answer, NULL) == RG_OK &&
           answer.status == RG_OK;
}

static void hide_others(struct rg_frontend *frontend, struct rg_conn *conn, struct rg_session_info *sessions,
                        uint32_t n, const struct rg_viewer *viewer)
{
    if (n == 0 || sees_all(frontend, conn, viewer))
        return;
    for (uint32_t i = 0; i < n; i++)
        if (!is_own(&sessions[i], viewer))
            hide(&sessions[i]);
}

static void describe_sandbox(const struct rg_monitor_settings *settings, struct rg_sandbox_info *out)
{
    snprintf(out->mode, sizeof out->mode, "%s",
             rg_sandbox_mode_name((enum rg_sandbox_mode)settings->sandbox));
    rg_sandbox_describe(settings->measures, out->holds, sizeof out->holds);
    rg_sandbox_describe(RG_SANDBOX_ALL & ~settings->measures, out->missing, sizeof out->missing);
}

static void describe_machine(const struct rg_conn *conn, const struct rg_driver *driver,
                             struct rg_machine_info *out)
{
    struct rg_conn_security security;
    struct timespec now;
    *out = driver->machine;
    rg_conn_security(conn, &security);
    if (!security.encrypted)
        out->tcp_rails[0] = 0; /* other networks of this machine: nothing is told of them in the clear */
    if (clock_gettime(CLOCK_REALTIME, &now) == 0)
        out->clock_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rg_answer_inventory(struct rg_frontend *frontend, struct rg_conn *conn, bool status,
                         const struct rg_viewer *viewer)
{
    RG_CLEANUP_FREE struct rg_driver *driver = calloc(1, sizeof *driver);
    RG_CLEANUP_FREE struct rg_session_info *sessions = calloc(RG_CONTROL_SESSIONS, sizeof *sessions);
    RG_CLEANUP_FREE struct rg_control *answer = calloc(1, sizeof *answer);
    if (!driver || !sessions || !answer)
        return;
    const uint64_t looked = rg_board_driver(frontend->board, driver);
    if (status) {
        if (looked + FRESH_NS < rg_now_ns())
            look_again(frontend);
        else
            look_at_sessions(frontend);
        (void)rg_board_driver(frontend->board, driver);
    }
    answer->kind = RG_CONTROL_INVENTORY;
    struct rg_inventory *inventory = &answer->inventory;
    snprintf(inventory->software, sizeof inventory->software, "remote-gpu %s", RG_VERSION);
    if (gethostname(inventory->host, sizeof inventory->host - 1) != 0)
        inventory->host[0] = 0;
    inventory->protocol_major = RG_PROTOCOL_MAJOR;
    inventory->protocol_minor = RG_PROTOCOL_MINOR;
    inventory->driver = driver->info;
    inventory->n_devices = driver->n_devices;
    inventory->devices = driver->devices;
    describe_machine(conn, driver, &inventory->machine);
    inventory->sessions_running = rg_board_running(frontend->board);
    inventory->sessions = sessions;
    if (status)
        inventory->n_sessions = rg_board_sessions(frontend->board, sessions, RG_CONTROL_SESSIONS);
    hide_others(frontend, conn, sessions, inventory->n_sessions, viewer);
    inventory->unauthenticated = frontend->settings.allow_unauthenticated;
    snprintf(inventory->pool, sizeof inventory->pool, "%s", frontend->settings.pool);
    describe_sandbox(&frontend->settings, &inventory->sandbox);
    inventory->limits = (struct rg_limits_info){.message_bytes = RG_MESSAGE_MAX,
                                                .bulk_bytes = RG_BULK_MAX,
                                                .sessions = frontend->board->max_sessions};
    enum rg_status sent;
    /* what does not fit into a message is left out; the count stays true */
    while ((sent = rg_control_send(conn, answer)) == RG_ERR_LIMIT && inventory->n_sessions > 0)
        inventory->n_sessions /= 2;
    if (sent != RG_OK)
        rg_debug("%s: inventory not sent: %s", rg_conn_peer(conn), rg_status_string(sent));
}

void rg_answer_management(struct rg_frontend *frontend, struct rg_conn *conn,
                          const struct rg_client_hello *hello)
{
    RG_CLEANUP_FREE void *data = malloc(RG_ANSWER_SIZE_MAX);
    RG_CLEANUP_FREE struct rg_control *answer = calloc(1, sizeof *answer);
    size_t size = 0;
    if (!data || !answer)
        return;
    rg_management_ask(&frontend->management, hello->question, hello->question_size, data, &size);
    answer->kind = RG_CONTROL_ANSWER;
    answer->answer.data = data;
    answer->answer.size = (uint32_t)size;
    if (rg_control_send(conn, answer) != RG_OK)
        rg_debug("%s: left before its question was answered", rg_conn_peer(conn));
}
