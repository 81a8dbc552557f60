/*
 * pool_process.c - the life of the pool's agent: what it is given, starting it, another in its place, and its end; see pool_process.h. What
 * it tells is taken in pool_answers.c, and known of leases in pool_leases.c. One that cannot be started, or ends, has a successor after a
 * pause, and is told all again. Main thread.
 */
#include "server/daemon/pool/pool_process.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/path.h"
#include "server/daemon/pool/pool_internal.h"
#include "server/daemon/process/confined.h"
#include "transport/address.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Appends a file to the texts; the agent, which has other rights, does not open it itself. */
static bool add_text(int texts, const char *option, const char *path, uint32_t *size)
{
    RG_CLEANUP_FD int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    *size = 0;
    if (!path)
        return true;
    if (file < 0 || fstat(file, &about) != 0) {
        rg_error("%s %s: %s", option, path, strerror(errno));
        return false;
    }
    RG_CLEANUP_FREE char *text =
        about.st_size > 0 && about.st_size <= RG_TLS_FILE_MAX ? malloc((size_t)about.st_size) : NULL;
    if (!text || !rg_file_read(file, text, (size_t)about.st_size) ||
        !rg_file_write(texts, text, (size_t)about.st_size)) {
        rg_error("%s %s: it is empty, too large, or cannot be read", option, path);
        return false;
    }
    *size = (uint32_t)about.st_size;
    explicit_bzero(text, (size_t)about.st_size);
    return true;
}

/* All texts as a file; -1: it was said why not. */
static int read_texts(const struct rg_daemon_settings *settings, struct rg_agent_texts *sizes)
{
    const int texts = rg_file_in_memory("remote-gpu-etcd", "", 0);
    if (texts < 0) {
        rg_error("no memory for certificates: %s", strerror(errno));
        return -1;
    }
    if (add_text(texts, "--etcd-ca", settings->etcd_ca, &sizes->ca) &&
        add_text(texts, "--etcd-cert", settings->etcd_cert, &sizes->certificate) &&
        add_text(texts, "--etcd-key", settings->etcd_key, &sizes->key) &&
        add_text(texts, "--etcd-password-file", settings->etcd_password_file, &sizes->password))
        return texts;
    close(texts);
    return -1;
}

/* Whether two files have the same in them. */
static bool is_same(int one, int other)
{
    char a[4096], b[sizeof a];
    for (off_t at = 0;; at += (off_t)sizeof a) {
        const ssize_t n = pread(one, a, sizeof a, at), m = pread(other, b, sizeof b, at);
        if (n < 0 || n != m || memcmp(a, b, (size_t)n) != 0)
            return false;
        if (n < (ssize_t)sizeof a)
            return true;
    }
}

void rg_pool_reload(struct rg_pool_process *pool, const struct rg_daemon_settings *settings)
{
    struct rg_agent_word word = {.kind = RG_AGENT_FILES};
    const int texts = pool->wanted ? read_texts(settings, &word.files) : -1;
    if (pool->wanted && texts < 0)
        rg_error("the certificates for etcd stay as they were");
    if (texts < 0)
        return;
    if (memcmp(&word.files, &pool->settings.texts, sizeof word.files) == 0 && is_same(texts, pool->texts)) {
        close(texts);
        return;
    }
    close(pool->texts);
    pool->texts = texts;
    pool->settings.texts = word.files;
    if (pool->socket >= 0 && rg_packet_send(pool->socket, &word, sizeof word, &texts, 1))
        rg_info("etcd is shown the new certificate from now on");
}

/* By which clients reach this server: as its operator says, else the name of this machine where it listens on all addresses. */
static void find_address(struct rg_pool_process *pool, const char *wanted, const char *listens)
{
    struct rg_address address;
    char host[RG_CONTROL_TEXT] = "localhost";
    char *out = pool->settings.address;
    const size_t size = sizeof pool->settings.address;
    const bool parsed =
        rg_address_parse(listens, &address, NULL, 0) == RG_OK && strcmp(address.scheme, "tcp") == 0;
    const char *any[] = {"", "*", "0.0.0.0", "::"};
    (void)gethostname(host, sizeof host - 1);
    snprintf(out, size, "%s", wanted ? wanted : strncmp(listens, "tcp://", 6) == 0 ? listens + 6 : listens);
    if (wanted && parsed && strncmp(wanted, "unix:", 5) != 0 && !strrchr(wanted, ':'))
        snprintf(out, size, "%.100s:%u", wanted, address.port);
    for (size_t i = 0; !wanted && parsed && i < sizeof any / sizeof any[0]; i++)
        if (strcmp(address.host, any[i]) == 0)
            snprintf(out, size, "%.100s:%u", host, address.port);
}

/* --- the process --------------------------------------------------------------------------------------------------- */

static enum rg_status start_process(struct rg_pool_process *pool, int theirs, char *why, size_t why_size)
{
    char path[PATH_MAX];
    if (rg_path_library("pool-agent", path, sizeof path) != RG_OK)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "lib/remote-gpu is not beside bin");
    char *arguments[] = {(char *)"pool-agent", NULL};
    const struct rg_process process = {.path = path, .arguments = arguments, .fds = {theirs}, .n_fds = 1};
    const struct rg_confined confined = {.program = RG_SANDBOX_POOL, .identity = "", .soft = true};
    return rg_confined_start(pool->sandboxes, &confined, &process, &pool->lease, &pool->pid, why, why_size);
}

bool rg_pool_say(const struct rg_pool_process *pool, const struct rg_agent_word *word)
{
    return pool->wanted && pool->socket >= 0 && rg_packet_send(pool->socket, word, sizeof *word, NULL, 0);
}

void rg_pool_say_sessions(const struct rg_pool_process *pool, const struct rg_pool_known *known)
{
    struct rg_agent_word word = {.kind = RG_AGENT_SESSIONS};
    word.sessions.lease = known->lease;
    word.sessions.n = known->sessions;
    word.sessions.suspension = known->suspension;
    if (!rg_pool_say(pool, &word))
        rg_debug("the pool's agent takes no words"); /* it ends, and the next one is told all */
}

static bool start(struct rg_pool_process *pool)
{
    char why[512] = "";
    int ends[2];
    const int fds[] = {pool->board, pool->texts};
    pool->not_before_ns = rg_now_ns() + RG_POOL_PAUSE_NS;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        rg_error("no socket for the pool: %s", strerror(errno));
        return false;
    }
    pool->settings.draining = pool->draining;
    enum rg_status status = start_process(pool, ends[1], why, sizeof why);
    close(ends[1]);
    if (status == RG_OK && rg_packet_send(ends[0], &pool->settings, sizeof pool->settings, fds, 2)) {
        pool->socket = ends[0];
        for (uint32_t i = 0; i < pool->n_leases; i++)
            if (pool->leases[i].sessions || pool->leases[i].suspension)
                rg_pool_say_sessions(pool, &pool->leases[i]);
        return true;
    }
    close(ends[0]);
    rg_error("no process can speak for this server in the pool: %s", *why ? why : strerror(errno));
    return false;
}

bool rg_pool_start(struct rg_pool_process *pool, struct rg_sandboxes *sandboxes,
                   const struct rg_daemon_settings *settings, const char *address, const char *state,
                   int board, bool rdma)
{
    struct rg_agent_settings *out = &pool->settings;
    pool->wanted = true;
    pool->sandboxes = sandboxes;
    pool->operators = &settings->pool_operators;
    pool->board = board;
    pool->socket = -1;
    snprintf(out->pool, sizeof out->pool, "%s", settings->pool);
    snprintf(out->etcd_user, sizeof out->etcd_user, "%s", settings->etcd_user ? settings->etcd_user : "");
    for (size_t i = 0; i < settings->etcd.n; i++)
        snprintf(out->endpoints[out->n_endpoints++], RG_AGENT_URL, "%s", settings->etcd.items[i]);
    for (size_t i = 0; i < settings->pool_labels.n; i++)
        snprintf(out->labels[out->n_labels++], RG_CONTROL_TEXT, "%s", settings->pool_labels.items[i]);
    for (size_t i = 0; i < settings->pool_taints.n; i++)
        snprintf(out->taints[out->n_taints++], RG_CONTROL_TEXT, "%s", settings->pool_taints.items[i]);
    out->rdma = rdma;
    out->rules = settings->rules != NULL;
    out->suspends = rg_pool_preempts(settings, &out->rest_s);
    find_address(pool, settings->advertise, address);
    snprintf(pool->why, sizeof pool->why, "it has just started");
    if (getrandom(&out->server, sizeof out->server, 0) != (ssize_t)sizeof out->server) {
        rg_error("no randomness for this server's place in the pool: %s", strerror(errno));
        return false;
    }
    out->n_dead = rg_runs_begin(&pool->runs, state, out->server, out->dead, RG_AGENT_DEAD);
    pool->texts = read_texts(settings, &out->texts);
    return pool->texts >= 0 && start(pool);
}

static void release(struct rg_pool_process *pool)
{
    if (pool->socket >= 0)
        close(pool->socket);
    rg_sandbox_release(pool->lease);
    pool->lease = NULL;
    pool->socket = -1;
    pool->pid = 0;
    for (uint32_t i = 0; i < RG_POOL_CHECKS; i++) {
        const uint64_t question = pool->checks[i].question;
        pool->checks[i].question = 0;
        if (question)
            pool->checked(pool->data, question, false,
                          "the server's place in the pool is being taken anew; try again");
    }
}

uint64_t rg_pool_revive(struct rg_pool_process *pool)
{
    if (!pool->wanted || pool->pid)
        return UINT64_MAX;
    if (rg_now_ns() >= pool->not_before_ns && start(pool))
        return UINT64_MAX;
    return pool->not_before_ns;
}

void rg_pool_reap(struct rg_pool_process *pool)
{
    int end;
    if (pool->pid && rg_process_has_ended(pool->pid, "the process that speaks for this server in the pool",
                                          "sessions go on", &end))
        release(pool);
}

void rg_pool_stop(struct rg_pool_process *pool)
{
    int end;
    if (!pool->wanted)
        return;
    if (pool->socket >= 0)
        close(pool->socket); /* which is how it learns of the end */
    pool->socket = -1;
    if (pool->pid && !rg_process_end(pool->pid, RG_POOL_LAST_MS, &end))
        rg_warn("process %d, which speaks for this server in the pool, hangs in the kernel", (int)pool->pid);
    rg_sandbox_release(pool->lease);
    if (pool->texts >= 0)
        close(pool->texts);
    rg_runs_end(&pool->runs);
    free(pool->leases);
    *pool = (struct rg_pool_process){0};
}

void rg_pool_drain(struct rg_pool_process *pool, bool on)
{
    struct rg_agent_word word = {.kind = RG_AGENT_DRAIN};
    word.drain.on = on;
    pool->draining = on;
    (void)rg_pool_say(pool, &word);
}

bool rg_pool_ask(struct rg_pool_process *pool, const struct rg_agent_word *word, int socket, int question)
{
    const int fds[] = {socket, question};
    return pool->wanted && pool->socket >= 0 && rg_packet_send(pool->socket, word, sizeof *word, fds, 2);
}
