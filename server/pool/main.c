/*
 * main.c - program pool-agent: see agent.h. Started by the monitor with the socket to it as descriptor RG_AGENT_FD:
 *
 *   pool-agent --sandbox POLICY
 *
 * It has a user of its own, no file but libraries and what names of machines are looked up with, and the network. It ends when
 * the monitor has closed the socket: then it leaves the pool first, so that nobody waits for a server that has stopped.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/packet.h"
#include "server/daemon/shared/monitor_protocol.h"
#include "server/pool/agent.h"
#include "server/sandbox/sandbox.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEAVE_NS    1500000000ull /* the monitor waits for no longer */
#define EXIT_CANNOT 125
#define TEXTS       4 /* of struct rg_agent_texts */

/* --- texts by which etcd is talked to -------------------------------------------------------------------------------- */

static bool read_texts(const struct rg_agent_texts *sizes, int file, char *texts[TEXTS])
{
    const uint32_t of[TEXTS] = {sizes->ca, sizes->certificate, sizes->key, sizes->password};
    off_t at = 0;
    for (int i = 0; i < TEXTS; at += of[i++]) {
        if (!of[i])
            continue;
        if (of[i] > RG_TLS_FILE_MAX || !(texts[i] = calloc(1, of[i] + 1)) ||
            pread(file, texts[i], of[i], at) != (ssize_t)of[i])
            return false;
    }
    return true;
}

static void free_texts(char *texts[TEXTS])
{
    for (int i = 0; i < TEXTS; i++) {
        if (texts[i])
            explicit_bzero(texts[i], strlen(texts[i]));
        free(texts[i]);
    }
}

/* Who this is to etcd; the texts are the caller's. */
static void identify(const struct rg_agent *agent, char *texts[TEXTS], struct rg_etcd_settings *out)
{
    if (texts[3])
        texts[3][strcspn(texts[3], "\r\n")] = '\0'; /* of a file with one line */
    out->ca = texts[0];
    out->certificate = texts[1];
    out->key = texts[2];
    out->user = agent->settings.etcd_user;
    out->password = texts[3];
}

static void take_files(struct rg_agent *agent, const struct rg_agent_texts *sizes, int file)
{
    struct rg_etcd_settings wanted = {.n_endpoints = 0};
    char *texts[TEXTS] = {NULL};
    const bool good = read_texts(sizes, file, texts);
    identify(agent, texts, &wanted);
    if (!good || !rg_etcd_identify(agent->etcd, &wanted))
        rg_error("new certificates for etcd could not be read: those before them stay");
    free_texts(texts);
}

/* --- the monitor's words ------------------------------------------------------------------------------------------ */

static void take_word(struct rg_agent *agent, const struct rg_agent_word *word, int *fds, unsigned n_fds)
{
    switch (word->kind) {
    case RG_AGENT_ASK:
        if (n_fds == 2) {
            rg_asks_take(agent, word, fds[0], fds[1]);
            fds[0] = -1;
        }
        break;
    case RG_AGENT_CHECK:
        rg_checks_take(agent, word);
        break;
    case RG_AGENT_SESSIONS:
        rg_own_sessions(agent, &word->sessions.lease, word->sessions.n, word->sessions.suspension);
        break;
    case RG_AGENT_JUDGED:
        rg_quotas_judged(agent, word);
        break;
    case RG_AGENT_DRAIN:
        rg_membership_drain(agent, word->drain.on != 0);
        break;
    case RG_AGENT_FILES:
        if (n_fds == 1)
            take_files(agent, &word->files, fds[0]);
        break;
    case RG_AGENT_RECHECK:
        rg_stays_recheck(agent);
        break;
    case RG_AGENT_STAYS:
        rg_stays_told(agent, word);
        break;
    }
}

static void take_words(struct rg_agent *agent)
{
    for (int i = 0; i < 64; i++) {
        struct rg_agent_word word;
        int fds[2] = {-1, -1};
        unsigned n_fds = 0;
        const enum rg_status status =
            rg_packet_receive(RG_AGENT_FD, MSG_DONTWAIT, &word, sizeof word, fds, 2, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status != RG_OK) {
            agent->ended = agent->ended || status != RG_ERR_LIMIT;
            return;
        }
        take_word(agent, &word, fds, n_fds);
        rg_packet_close(fds, n_fds);
    }
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static bool open_etcd(struct rg_agent *agent, int file)
{
    const char *endpoints[RG_AGENT_URLS_MAX];
    char *texts[TEXTS] = {NULL}, why[RG_ETCD_WHY] = "";
    const struct rg_etcd_watcher watcher = {.reset = rg_scope_reset,
                                            .put = rg_scope_put,
                                            .removed = rg_scope_removed,
                                            .whole = rg_scope_told,
                                            .rewound = rg_scope_rewound,
                                            .data = agent};
    struct rg_etcd_settings wanted = {.endpoints = endpoints, .n_endpoints = agent->settings.n_endpoints};
    for (uint32_t i = 0; i < agent->settings.n_endpoints && i < RG_AGENT_URLS_MAX; i++)
        endpoints[i] = agent->settings.endpoints[i];
    if (read_texts(&agent->settings.texts, file, texts)) {
        identify(agent, texts, &wanted);
        agent->etcd = rg_etcd_create(&wanted, why, sizeof why);
    }
    free_texts(texts);
    if (agent->etcd)
        rg_etcd_set_seen(agent->etcd, &agent->settings.seen);
    if (agent->etcd && rg_etcd_watch(agent->etcd, agent->prefix, &watcher))
        return true;
    rg_error("the pool's agent cannot begin: %s", *why ? why : "no memory, or no certificates");
    return false;
}

/* The first packet, and what it says. */
static bool begin(struct rg_agent *agent)
{
    int fds[2] = {-1, -1};
    unsigned n_fds = 0;
    bool good = rg_packet_receive(RG_AGENT_FD, 0, &agent->settings, sizeof agent->settings, fds, 2, &n_fds) ==
                    RG_OK &&
                n_fds == 2 && agent->settings.n_endpoints <= RG_AGENT_URLS_MAX &&
                agent->settings.n_labels <= RG_AGENT_LABELS_MAX &&
                agent->settings.n_taints <= RG_AGENT_LABELS_MAX && agent->settings.n_dead <= RG_AGENT_DEAD &&
                (agent->board = rg_board_open(fds[0])) != NULL && rg_pool_make_id(agent->run);
    /* others than an agent before this one has told */
    agent->preemption.number = (uint32_t)strtoull(agent->run, NULL, 16);
    snprintf(agent->id, sizeof agent->id, "%016" PRIx64, agent->settings.server);
    snprintf(agent->prefix, sizeof agent->prefix, "/remote-gpu/pools/%s/", agent->settings.pool);
    agent->membership.draining = agent->settings.draining != 0;
    good = good && open_etcd(agent, fds[1]);
    rg_packet_close(fds, n_fds);
    return good;
}

/* Does what is due. Returns milliseconds until more is. */
static int look(struct rg_agent *agent)
{
    uint64_t (*const steps[])(struct rg_agent *) = {
        rg_scope_look,       rg_membership_look, rg_own_look,        rg_preemption_look,
        rg_agent_usage_look, rg_stays_look,      rg_asks_look,       rg_decider_look,
        rg_handing_look,     rg_grants_look,     rg_agent_undo_look, rg_agent_history_look};
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const uint64_t next = steps[i](agent);
        due = next < due ? next : due;
    }
    rg_checks_look(agent);
    const uint64_t now = rg_now_ns();
    const uint64_t left = due == UINT64_MAX ? 10000 : due > now ? (due - now) / 1000000u + 1 : 0;
    return left < 10000 ? (int)left : 10000;
}

/* It says nothing more: what is readable is its end. */
static void end_ask(struct rg_agent_ask *ask)
{
    char word[sizeof RG_POOL_CLOSED];
    if (recv(ask->socket, word, sizeof word, MSG_DONTWAIT) <= 0 && ask->state == RG_ASK_HOLDING)
        rg_hold_entrust(ask, RG_HOLD_LOST);
    else
        rg_ask_leave(ask);
}

static void serve_once(struct rg_agent *agent)
{
    const int timeout = look(agent);
    RG_CLEANUP_FREE struct pollfd *fds = calloc(agent->n_asks + 1, sizeof *fds);
    RG_CLEANUP_FREE struct rg_agent_ask **asks = calloc(agent->n_asks + 1, sizeof *asks);
    uint32_t n = 1;
    if (!fds || !asks)
        return;
    fds[0] = (struct pollfd){.fd = RG_AGENT_FD, .events = POLLIN};
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i]->socket >= 0) {
            asks[n] = agent->asks[i];
            fds[n++] = (struct pollfd){.fd = agent->asks[i]->socket, .events = POLLIN};
        }
    rg_etcd_poll(agent->etcd, fds, n, timeout);
    for (uint32_t i = 1; i < n; i++) {
        bool there = false; /* etcd's answers may have ended it meanwhile */
        for (uint32_t j = 0; j < agent->n_asks && !there; j++)
            there = agent->asks[j] == asks[i];
        if (fds[i].revents && there && asks[i]->socket == fds[i].fd)
            end_ask(asks[i]);
    }
    if (fds[0].revents)
        take_words(agent);
}

/* Leaves, as far as that takes no time to speak of. */
static void leave(struct rg_agent *agent)
{
    const uint64_t end = rg_now_ns() + LEAVE_NS;
    rg_membership_leave(agent);
    while (agent->membership.leaving && rg_now_ns() < end)
        rg_etcd_poll(agent->etcd, NULL, 0, 50);
}

/* Etcd's key and password are to be in no core dump, nor open to other processes of the same user: but to one that is to learn (learn.c). */
static bool close_memory(const struct rg_sandbox_policy *policy)
{
    return policy->mode == RG_SANDBOX_LOG || prctl(PR_SET_DUMPABLE, 0) == 0;
}

int main(int argc, char **argv)
{
    static struct rg_agent agent;
    struct rg_sandbox_policy policy;
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    rg_log_name("remote-gpud");
    if (!secure_getenv("REMOTE_GPU_LOG"))
        rg_log_set_level(RG_LOG_INFO); /* as the server's own */
    rg_log_limit_process(
        RG_LOG_ALL_LINES); /* whoever renews a lease again and again causes a line each time */
    if (argc != 3 || strcmp(argv[1], "--sandbox") != 0) {
        rg_error("pool-agent is a part of remote-gpud; usage: pool-agent --sandbox POLICY");
        return EXIT_CANNOT;
    }
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN); /* those are for the server, which tells when to end */
    if (!rg_sandbox_begin(argv[2], &policy) || !close_memory(&policy) || !begin(&agent))
        return EXIT_CANNOT;
    while (!agent.ended)
        serve_once(&agent);
    leave(&agent);
    while (agent.n_asks)
        rg_ask_end(agent.asks[agent.n_asks - 1]);
    rg_etcd_destroy(agent.etcd);
    rg_own_fini(&agent.own);
    rg_agent_usage_fini(&agent.usage);
    rg_pool_mirror_fini(&agent.mirror);
    return 0;
}
