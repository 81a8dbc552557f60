/* pool_process.c - see pool_process.h. */
#include "server/daemon/pool_process.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/path.h"
#include "common/base/printable.h"
#include "server/daemon/confined.h"
#include "server/daemon/refusal.h"
#include "transport/address.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- settings --------------------------------------------------------------------------------------------------- */

static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *text && strlen(text) < sizeof((struct rg_agent_settings *)0)->pool &&
           strspn(text, letters) == strlen(text);
}

static bool is_url(const char *text)
{
    const char *host = strncmp(text, "https://", 8) == 0  ? text + 8
                       : strncmp(text, "http://", 7) == 0 ? text + 7
                                                          : "";
    return *host && strlen(text) < RG_AGENT_URL && !strpbrk(host, "/?#@ ");
}

static bool check_operators(const struct rg_text_list *operators)
{
    for (size_t i = 0; i < operators->n; i++)
        if (!*operators->items[i] || strlen(operators->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-operators '%s': that is no name of a certificate; remote-gpud users shows those "
                     "that there are",
                     operators->items[i]);
            return false;
        }
    return true;
}

static bool check_labels(const struct rg_text_list *labels, const struct rg_text_list *taints)
{
    if (labels->n > RG_AGENT_LABELS_MAX) {
        rg_error("--pool-label: more than %d labels", RG_AGENT_LABELS_MAX);
        return false;
    }
    for (size_t i = 0; i < taints->n; i++)
        if (taints->n > RG_AGENT_LABELS_MAX || !*taints->items[i] || *taints->items[i] == '=' ||
            strlen(taints->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-taint %s: a taint is NAME or NAME=VALUE, and there are %d at most",
                     taints->items[i], RG_AGENT_LABELS_MAX);
            return false;
        }
    for (size_t i = 0; i < labels->n; i++) {
        const char *equals = strchr(labels->items[i], '=');
        if (!equals || equals == labels->items[i] || strlen(labels->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-label %s: a label is NAME=VALUE", labels->items[i]);
            return false;
        }
    }
    return true;
}

bool rg_pool_check_settings(const struct rg_daemon_settings *settings, bool *wanted)
{
    *wanted = settings->pool != NULL;
    if (!settings->pool && !settings->http && settings->pool_operators.n) {
        rg_error(
            "--pool-operators is of a pool's servers (--pool and --etcd), and of a status page (--http)");
        return false;
    }
    if (!settings->pool && !settings->etcd.n)
        return check_operators(&settings->pool_operators);
    if (!settings->pool || !settings->etcd.n) {
        rg_error("--pool and --etcd go together: the pool's name, and where its etcd is");
        return false;
    }
    if (!is_name(settings->pool)) {
        rg_error("--pool %s: a pool's name has letters, digits and -_. and at most 63 of them",
                 settings->pool);
        return false;
    }
    if (settings->etcd.n > RG_AGENT_URLS_MAX) {
        rg_error("--etcd: more than %d members are named", RG_AGENT_URLS_MAX);
        return false;
    }
    for (size_t i = 0; i < settings->etcd.n; i++)
        if (!is_url(settings->etcd.items[i])) {
            rg_error("--etcd %s: that is no address of an etcd member (like https://etcd1.example:2379)",
                     settings->etcd.items[i]);
            return false;
        }
    if (!settings->etcd_cert != !settings->etcd_key) {
        rg_error("--etcd-cert and --etcd-key go together");
        return false;
    }
    return check_labels(&settings->pool_labels, &settings->pool_taints) &&
           check_operators(&settings->pool_operators);
}

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

static bool add_texts(struct rg_pool_process *pool, const struct rg_daemon_settings *settings)
{
    pool->texts = rg_file_in_memory("remote-gpu-etcd", "", 0);
    if (pool->texts < 0) {
        rg_error("no memory for certificates: %s", strerror(errno));
        return false;
    }
    return add_text(pool->texts, "--etcd-ca", settings->etcd_ca, &pool->settings.ca_size) &&
           add_text(pool->texts, "--etcd-cert", settings->etcd_cert, &pool->settings.certificate_size) &&
           add_text(pool->texts, "--etcd-key", settings->etcd_key, &pool->settings.key_size);
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

static bool say(const struct rg_pool_process *pool, const struct rg_agent_word *word)
{
    return pool->wanted && pool->socket >= 0 && rg_packet_send(pool->socket, word, sizeof *word, NULL, 0);
}

static void say_sessions(const struct rg_pool_process *pool, const struct rg_pool_known *known)
{
    struct rg_agent_word word = {.kind = RG_AGENT_SESSIONS};
    word.sessions.lease = known->lease;
    word.sessions.n = known->sessions;
    if (!say(pool, &word))
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
            if (pool->leases[i].sessions)
                say_sessions(pool, &pool->leases[i]);
        return true;
    }
    close(ends[0]);
    rg_error("no process can speak for this server in the pool: %s", *why ? why : strerror(errno));
    return false;
}

bool rg_pool_start(struct rg_pool_process *pool, struct rg_sandboxes *sandboxes,
                   const struct rg_daemon_settings *settings, const char *address, int board, bool rdma)
{
    struct rg_agent_settings *out = &pool->settings;
    pool->wanted = true;
    pool->sandboxes = sandboxes;
    pool->operators = &settings->pool_operators;
    pool->board = board;
    pool->socket = -1;
    snprintf(out->pool, sizeof out->pool, "%s", settings->pool);
    for (size_t i = 0; i < settings->etcd.n; i++)
        snprintf(out->endpoints[out->n_endpoints++], RG_AGENT_URL, "%s", settings->etcd.items[i]);
    for (size_t i = 0; i < settings->pool_labels.n; i++)
        snprintf(out->labels[out->n_labels++], RG_CONTROL_TEXT, "%s", settings->pool_labels.items[i]);
    for (size_t i = 0; i < settings->pool_taints.n; i++)
        snprintf(out->taints[out->n_taints++], RG_CONTROL_TEXT, "%s", settings->pool_taints.items[i]);
    out->rdma = rdma;
    find_address(pool, settings->advertise, address);
    snprintf(pool->why, sizeof pool->why, "it has just started");
    if (getrandom(&out->server, sizeof out->server, 0) != (ssize_t)sizeof out->server) {
        rg_error("no randomness for this server's place in the pool: %s", strerror(errno));
        return false;
    }
    return add_texts(pool, settings) && start(pool);
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
    int end = 0;
    if (pool->pid == 0)
        return;
    const pid_t got = waitpid(pool->pid, &end, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return;
    if (WIFSIGNALED(end))
        rg_warn("the process that speaks for this server in the pool was ended by signal %d (%s); another "
                "takes its place, sessions go on",
                WTERMSIG(end), strsignal(WTERMSIG(end)));
    else
        rg_warn("the process that speaks for this server in the pool ended with status %d; another takes its "
                "place, sessions go on",
                WEXITSTATUS(end));
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
    free(pool->leases);
    *pool = (struct rg_pool_process){0};
}

/* --- what the agent tells ------------------------------------------------------------------------------------------------ */

static struct rg_pool_known *find(const struct rg_pool_process *pool, uint64_t lease)
{
    for (uint32_t i = 0; i < pool->n_leases; i++)
        if (pool->leases[i].lease.lease == lease)
            return &pool->leases[i];
    return NULL;
}

static void take_lease(struct rg_pool_process *pool, const struct rg_agent_lease *lease)
{
    struct rg_pool_known *known = find(pool, lease->lease);
    if (!known) {
        struct rg_pool_known *grown = pool->n_leases < RG_POOL_SHARES_MAX * RG_DEVICES_MAX
                                          ? realloc(pool->leases, (pool->n_leases + 1) * sizeof *grown)
                                          : NULL;
        if (!grown)
            return;
        pool->leases = grown;
        known = &grown[pool->n_leases++];
        *known = (struct rg_pool_known){0};
    }
    known->lease = *lease;
    known->lease.key[sizeof known->lease.key - 1] = 0;
    known->lease.name[sizeof known->lease.name - 1] = 0;
    known->lease.job[sizeof known->lease.job - 1] = 0;
    rg_printable_clean(known->lease.job);
    known->gone = false;
}

static void take_checked(struct rg_pool_process *pool, uint64_t number, bool there, const char *why)
{
    for (uint32_t i = 0; i < RG_POOL_CHECKS; i++) {
        const uint64_t question = pool->checks[i].question;
        if (!question || pool->checks[i].number != number)
            continue;
        pool->checks[i].question = 0;
        pool->checked(pool->data, question, there, why);
    }
}

static void take_judge(struct rg_pool_process *pool, struct rg_agent_judge *judge)
{
    struct rg_agent_word word = {.kind = RG_AGENT_JUDGED};
    judge->key[sizeof judge->key - 1] = 0;
    judge->project[sizeof judge->project - 1] = 0;
    judge->name[sizeof judge->name - 1] = 0;
    judge->by[sizeof judge->by - 1] = 0;
    word.judged.number = judge->number;
    word.judged.good = pool->judge(pool->data, judge, word.judged.why, sizeof word.judged.why);
    if (!say(pool, &word))
        rg_debug("the pool's agent takes no words"); /* its clients end with it */
}

static void take(struct rg_pool_process *pool, struct rg_agent_answer *answer)
{
    struct rg_pool_known *known;
    switch (answer->kind) {
    case RG_AGENT_STANDING:
        pool->valid_until_ns = answer->standing.valid_until_ns;
        memcpy(pool->why, answer->standing.why, sizeof pool->why);
        pool->why[sizeof pool->why - 1] = 0;
        pool->queue = answer->standing.queue;
        break;
    case RG_AGENT_LEASE:
        take_lease(pool, &answer->lease);
        break;
    case RG_AGENT_GONE:
        known = find(pool, answer->gone.lease);
        if (known)
            known->gone = true;
        pool->gone(pool->data, answer->gone.lease);
        break;
    case RG_AGENT_CHECKED:
        answer->checked.why[sizeof answer->checked.why - 1] = 0;
        take_checked(pool, answer->checked.number, answer->checked.there != 0, answer->checked.why);
        break;
    case RG_AGENT_JUDGE:
        take_judge(pool, &answer->judge);
        break;
    case RG_AGENT_DRAINED:
        pool->drained = answer->drained.on != 0;
        break;
    }
}

void rg_pool_receive(struct rg_pool_process *pool)
{
    for (int i = 0; i < 64 && pool->socket >= 0; i++) {
        struct rg_agent_answer answer;
        unsigned n_fds = 0;
        const enum rg_status status =
            rg_packet_receive(pool->socket, MSG_DONTWAIT, &answer, sizeof answer, NULL, 0, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status != RG_OK) { /* it has ended, or is about to */
            if (status == RG_ERR_PROTOCOL)
                rg_error("the pool's agent says what there is not; it is ended");
            kill(pool->pid, SIGKILL);
            close(pool->socket);
            pool->socket = -1;
            return;
        }
        take(pool, &answer);
    }
}

/* --- sessions ----------------------------------------------------------------------------------------------------------------- */

void rg_pool_count(struct rg_pool_process *pool, const struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < pool->n_leases;) {
        struct rg_pool_known *known = &pool->leases[i];
        const uint32_t n = rg_sessions_of_lease(sessions, known->lease.lease);
        if (n != known->sessions) {
            known->sessions = n;
            say_sessions(pool, known);
        }
        if (known->gone && n == 0)
            *known = pool->leases[--pool->n_leases];
        else
            i++;
    }
}

void rg_pool_drain(struct rg_pool_process *pool, bool on)
{
    struct rg_agent_word word = {.kind = RG_AGENT_DRAIN};
    word.drain.on = on;
    pool->draining = on;
    (void)say(pool, &word);
}

bool rg_pool_ask(struct rg_pool_process *pool, const struct rg_agent_word *word, int socket, int question)
{
    const int fds[] = {socket, question};
    return pool->wanted && pool->socket >= 0 && rg_packet_send(pool->socket, word, sizeof *word, fds, 2);
}

enum rg_status rg_pool_check(struct rg_pool_process *pool, uint64_t lease, uint64_t question, char *why,
                             size_t why_size)
{
    const struct rg_pool_known *known = find(pool, lease);
    struct rg_agent_word word = {.kind = RG_AGENT_CHECK};
    if (known && !known->gone)
        return RG_OK;
    for (uint32_t i = 0; i < RG_POOL_CHECKS; i++) {
        if (pool->checks[i].question)
            continue;
        word.check.lease = lease;
        word.check.number = ++pool->next_number;
        if (!say(pool, &word))
            break;
        pool->checks[i].question = question;
        pool->checks[i].number = word.check.number;
        return RG_ERR_TIMEOUT;
    }
    return RG_FAILED(
        RG_ERR_REFUSED, why, why_size,
        "the server's place in the pool is being taken anew, or too many sessions begin; try again");
}

const char *rg_pool_job(const struct rg_pool_process *pool, uint64_t lease)
{
    for (uint32_t i = 0; i < pool->n_leases; i++)
        if (pool->leases[i].lease.lease == lease)
            return pool->leases[i].lease.job;
    return "";
}

bool rg_pool_names_operator(const struct rg_pool_process *pool, const char *name)
{
    for (size_t i = 0; pool->operators && i < pool->operators->n; i++)
        if (strcmp(pool->operators->items[i], name) == 0)
            return true;
    return false;
}

void rg_pool_forget(struct rg_pool_process *pool)
{
    memset(pool->checks, 0, sizeof pool->checks);
}

/* The session's GPUs: those of the lease, or those of them that the client names. False: it names others. */
static bool choose(uint64_t gpus, struct rg_monitor_start *start)
{
    for (uint32_t i = 0; i < start->n_gpu_indices; i++)
        if (start->gpu_indices[i] >= RG_DEVICES_MAX || !(gpus >> start->gpu_indices[i] & 1))
            return false;
    const bool named = start->n_gpu_indices > 0;
    for (uint32_t i = 0; i < RG_DEVICES_MAX && !named && (!start->gpus || start->n_gpu_indices < start->gpus);
         i++)
        if (gpus >> i & 1)
            start->gpu_indices[start->n_gpu_indices++] = i;
    start->gpus = 0;
    return start->n_gpu_indices > 0;
}

enum rg_status rg_pool_admit(const struct rg_pool_process *pool, const struct rg_who *who, const char *key,
                             struct rg_monitor_start *start, struct rg_monitor_answer *answer)
{
    const struct rg_pool_known *known = find(pool, start->pool_lease);
    if (!start->pool_lease)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_LIMIT,
            "this server's GPUs are given out by the pool %s: run the program by remote-gpu run, "
            "or get a lease by remote-gpu request",
            pool->settings.pool);
    if (rg_now_ns() + RG_POOL_SPARE_NS >= pool->valid_until_ns)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_SHUTTING_DOWN,
            "this server cannot begin sessions while it is cut off from its pool (%s); sessions "
            "that run go on",
            pool->why[0] ? pool->why : "its agent has ended");
    if (!known || known->gone)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
            "the lease has no GPU of this server, has been given back, or its time is over; ask "
            "for GPUs anew");
    /* whoever has proved nothing shows that it is theirs by knowing it, unless it is of somebody who can prove it */
    const bool by_knowing = who->proof == RG_PROOF_NONE && (!known->lease.name[0] || known->lease.bearer);
    if (!by_knowing && strcmp(known->lease.key, key) != 0)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED, "the lease is %s's, and you are %s here",
            known->lease.name[0] ? known->lease.name : "an unauthenticated client", rg_who_text(who));
    if (!choose(known->lease.gpus, start))
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                          "the lease does not have the GPUs of this server that were asked for");
    if (known->lease.memory) {
        struct rg_share_wish *share = &start->share;
        share->memory_millionths = 0;
        if (!share->memory_bytes || share->memory_bytes > known->lease.memory)
            share->memory_bytes = known->lease.memory;
    }
    return RG_OK;
}
