/*
 * pool_agent.c - the pool's agent between an etcd that says anything, clients that ask anything, and a monitor that is well-behaved: the
 * copy of the pool's state, the schedule made of it, leases, and what clients are told, which must be JSON.
 *
 * The input is steps, each a byte that says what it is (modulo STEPS) and its fields; `text` is u16 size, little-endian, and bytes:
 *
 *   LINE      text: a line of the watch
 *   PUT       u8 kind, u8 id, u8 GPU, u8 removed, text: a key of the pool's, whose value is the text
 *   CLOSED    u8 which: a client's connection is lost, and its lease left to its sessions
 *   NARROW    u8 narrow: of the pool this server is told what concerns it alone, or all
 *   RANGE     text: the JSON array of pairs of a range
 *   ASK       u8 flags (OPERATOR, UNPROVED, NAMED, KNOWN, CERTIFIED, EXPIRED), text: what a client asks
 *   REPLY     u8 which, u8 flags (FAILS, SUCCEEDED), text: etcd's answer to one of the calls under way; SUCCEEDED: a good one instead
 *   LEAVE     u8 which: a client goes
 *   SESSIONS  u8 id, u8 n: so many sessions (n % 3) run by a lease, and what has come of suspending them (n / 3 % 6)
 *   CHECK     u8 id: whether there is a lease
 *   JUDGED    u8 number, u8 flags (GOOD; OF_CLIENT: whether it may stay; RECHECK: others may be revoked; COUNTS)
 *   LOOK      nothing: what is due is done
 */
#include "common/base/file.h"
#include "common/base/log.h"
#include "pool/etcd/events.h"
#include "server/pool/agent.h"
#include "tests/fuzz/steps.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE, PUT, RANGE, ASK, REPLY, LEAVE, SESSIONS, CHECK_LEASE, JUDGED, LOOK, CLOSED, NARROW, STEPS };
enum { OPERATOR = 1, UNPROVED = 2, NAMED = 4, KNOWN = 8, CERTIFIED = 16, EXPIRED = 32 };
enum { GOOD = 1, OF_CLIENT = 2, RECHECK = 4, COUNTS = 8 };
enum { FAILS = 1, SUCCEEDED = 2 };
enum { CALLS_MAX = 64, CLIENTS_MAX = 8 };

#define SERVER 0x1111222233334444ull

/* --- etcd ----------------------------------------------------------------------------------------------------- */

static struct call {
    char path[64];
    rg_etcd_done *done;
    void *data;
} calls[CALLS_MAX];
static unsigned n_calls;

void rg_etcd_call(struct rg_etcd *etcd, const char *path, json_t *body, rg_etcd_done *done, void *data)
{
    (void)etcd;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    CHECK(!body || text);
    free(text);
    json_decref(body);
    if (n_calls == CALLS_MAX) {
        done(data, RG_ERR_NO_MEMORY, NULL, "no memory");
        return;
    }
    struct call *call = &calls[n_calls++];
    *call = (struct call){.done = done, .data = data};
    snprintf(call->path, sizeof call->path, "%s", path);
}

bool rg_etcd_watch_ranges(struct rg_etcd *etcd, const struct rg_etcd_range *ranges, uint32_t n)
{
    (void)etcd;
    for (uint32_t i = 0; i < n; i++)
        CHECK(ranges[i].first && strlen(ranges[i].first) < RG_SCOPE_KEY);
    return n <= RG_ETCD_RANGES_MAX;
}

const char *rg_etcd_watch_why(const struct rg_etcd *etcd)
{
    (void)etcd;
    return n_calls % 2 ? "etcd at http://etcd:2379: no" : "";
}

struct rg_etcd_seen rg_etcd_get_seen(const struct rg_etcd *etcd)
{
    (void)etcd;
    return (struct rg_etcd_seen){0};
}

const char *rg_etcd_endpoint(const struct rg_etcd *etcd)
{
    (void)etcd;
    return "http://etcd:2379";
}

int64_t rg_etcd_clock_ahead(const struct rg_etcd *etcd)
{
    (void)etcd;
    return 0;
}

static void answer_call(unsigned which, enum rg_status status, const json_t *reply)
{
    const struct call call = calls[which];
    memmove(&calls[which], &calls[which + 1], (--n_calls - which) * sizeof calls[0]);
    call.done(call.data, status, status == RG_OK ? reply : NULL,
              status == RG_OK ? "" : "etcd at http://etcd:2379: no");
}

/* --- the agent ---------------------------------------------------------------------------------------------------- */

static struct rg_agent agent;
static int monitor = -1;         /* the monitor's end */
static int clients[CLIENTS_MAX]; /* -1: it was left */
static bool was_told[CLIENTS_MAX], some_left;
static unsigned n_clients;
static int64_t revision;

static const struct rg_etcd_watcher watcher = {.reset = rg_scope_reset,
                                               .put = rg_scope_put,
                                               .removed = rg_scope_removed,
                                               .whole = rg_scope_told,
                                               .data = &agent};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int ends[2], board;
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    monitor = fcntl(ends[0], F_DUPFD_CLOEXEC, 100);
    CHECK(monitor >= 0 && (ends[1] == RG_AGENT_FD || dup2(ends[1], RG_AGENT_FD) == RG_AGENT_FD));
    struct rg_board *shown = rg_board_create(2, &board);
    CHECK(shown);
    rg_board_begin(shown);
    shown->driver.n_devices = 2;
    for (uint32_t i = 0; i < 2; i++) {
        shown->driver.devices[i].ordinal = i;
        shown->driver.devices[i].memory_total = 16ull << 30;
        shown->driver.devices[i].uuid[0] = (uint8_t)(i + 1);
        snprintf(shown->driver.devices[i].name, sizeof shown->driver.devices[i].name, "soft %u", i);
    }
    snprintf(shown->driver.info.kind, sizeof shown->driver.info.kind, "soft");
    rg_board_end(shown);
    agent.board = shown;
    snprintf(agent.settings.pool, sizeof agent.settings.pool, "blue");
    snprintf(agent.settings.address, sizeof agent.settings.address, "gpu1:7600");
    snprintf(agent.prefix, sizeof agent.prefix, "/remote-gpu/pools/blue/");
    snprintf(agent.id, sizeof agent.id, "%016" PRIx64, (uint64_t)SERVER);
    snprintf(agent.run, sizeof agent.run, "%016" PRIx64, (uint64_t)7);
    return 0;
}

/* What the monitor was told is thrown away. */
static void hear_agent(void)
{
    struct rg_agent_answer told;
    while (recv(monitor, &told, sizeof told, MSG_DONTWAIT) > 0)
        ;
}

/* What clients were told is JSON, an object each; and who has not gone is told something before it is left. */
static void hear_clients(void)
{
    static char text[RG_ANSWER_SIZE_MAX];
    ssize_t n = 0;
    for (unsigned i = 0; i < n_clients; i++) {
        while (clients[i] >= 0 && (n = recv(clients[i], text, sizeof text, MSG_DONTWAIT)) > 0) {
            json_t *said = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
            CHECK(json_is_object(said));
            json_decref(said);
            was_told[i] = true;
        }
        if (clients[i] >= 0 && n == 0) {
            CHECK(was_told[i] || some_left);
            close(clients[i]);
            clients[i] = -1;
        }
    }
}

static void look(void)
{
    (void)rg_scope_look(&agent);
    (void)rg_membership_look(&agent);
    (void)rg_own_look(&agent);
    (void)rg_preemption_look(&agent);
    (void)rg_agent_usage_look(&agent);
    (void)rg_stays_look(&agent);
    (void)rg_asks_look(&agent);
    (void)rg_decider_look(&agent);
    (void)rg_handing_look(&agent);
    (void)rg_grants_look(&agent);
    (void)rg_agent_undo_look(&agent);
    (void)rg_agent_history_look(&agent);
    rg_checks_look(&agent);
}

/* --- steps ---------------------------------------------------------------------------------------------------------- */

static uint64_t id_of(unsigned which)
{
    return which == 0 ? SERVER : UINT64_C(0x00000000000000a0) + which % 8;
}

static void put(void)
{
    static const char *const folders[] = {"servers/", "requests/", "leases/", "usage/",
                                          "servers/", "links/",    "decider", "summary"};
    const unsigned kind = fuzz_u8() % 8, id = fuzz_u8(), gpu = fuzz_u8(), gone = fuzz_u8() & 1;
    char key[160];
    size_t size;
    const char *value = fuzz_text(&size);
    int used = kind < 6 ? snprintf(key, sizeof key, "%s%s%016" PRIx64, agent.prefix, folders[kind], id_of(id))
                        : snprintf(key, sizeof key, "%s%s", agent.prefix, folders[kind]);
    if (kind == 4)
        snprintf(key + used, sizeof key - (size_t)used, "/gpus/%u", gpu % 4);
    const struct rg_etcd_pair pair = {.key = key, .value = value, .created = revision, .changed = ++revision};
    if (gone)
        watcher.removed(&agent, key);
    else
        watcher.put(&agent, &pair);
    watcher.whole(&agent, revision);
    agent.scope.reading = agent.scope.behind = false; /* and that was all of it */
}

static void ask(void)
{
    const unsigned flags = fuzz_u8();
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    int ends[2];
    size_t size;
    const char *text = fuzz_text(&size);
    if (n_clients == CLIENTS_MAX)
        return;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    was_told[n_clients] = false;
    clients[n_clients++] = ends[0];
    word.ask.is_operator = flags & OPERATOR;
    word.ask.unproved = flags & UNPROVED;
    snprintf(word.ask.key, sizeof word.ask.key, flags & NAMED ? "2 alice" : "0 10.0.0.%u", flags & 7);
    snprintf(word.ask.name, sizeof word.ask.name, "%s", flags & NAMED ? "alice" : "");
    word.ask.max_gpus = flags & KNOWN ? 2 : 0;
    word.ask.certificate.serial_size = flags & CERTIFIED ? 1 : 0;
    word.ask.certificate.not_after = flags & EXPIRED ? 1 : INT64_MAX;
    word.ask.size = (uint32_t)size;
    const int file = rg_file_in_memory("question", text, size);
    CHECK(file >= 0);
    rg_asks_take(&agent, &word, ends[1], file);
    close(file);
}

/* An answer as etcd would give it, which lets the agent go on. */
static json_t *good_reply(void)
{
    return json_pack("{s:b, s:{s:s}, s:s, s:s, s:{s:s}, s:s}", "succeeded", 1, "header", "revision", "5",
                     "ID", "77", "deleted", "1", "result", "TTL", "10", "etcdserver", "3.5.0");
}

static void reply(void)
{
    const unsigned which = fuzz_u8(), flags = fuzz_u8();
    size_t size;
    const char *text = fuzz_text(&size);
    json_t *answer = flags & SUCCEEDED ? good_reply() : json_loadb(text, size, 0, NULL);
    if (n_calls)
        answer_call(which % n_calls, flags & FAILS || !answer ? RG_ERR_UNREACHABLE : RG_OK, answer);
    json_decref(answer);
}

static void leave(unsigned which)
{
    some_left = true;
    for (uint32_t i = 0; i < agent.n_asks; i++)
        if (agent.asks[i]->socket >= 0 && which-- == 0) {
            rg_ask_leave(agent.asks[i]);
            return;
        }
}

static void close_holding(unsigned which)
{
    for (uint32_t i = 0; i < agent.n_asks; i++)
        if (agent.asks[i]->socket >= 0 && agent.asks[i]->state == RG_ASK_HOLDING && which-- == 0) {
            some_left = true;
            rg_hold_entrust(agent.asks[i], RG_HOLD_LOST);
            return;
        }
}

static void sessions(void)
{
    struct rg_agent_lease told = {.lease = id_of(fuzz_u8()), .gpus = 3, .key = "2 alice", .name = "alice"};
    char id[RG_POOL_ID];
    const unsigned figures = fuzz_u8();
    snprintf(id, sizeof id, "%016llx", (unsigned long long)told.lease);
    const struct rg_own_lease *lease = rg_own_find(&agent.own, id);
    told.preempted = lease ? lease->preempted : 0;
    rg_own_sessions(&agent, &told, figures % 3, (enum rg_agent_suspension)(figures / 3 % 6));
}

static void check_lease(void)
{
    struct rg_agent_word word = {.kind = RG_AGENT_CHECK};
    word.check.lease = id_of(fuzz_u8());
    word.check.number = 1;
    rg_checks_take(&agent, &word);
}

static void judged(void)
{
    struct rg_agent_word word = {.kind = RG_AGENT_JUDGED};
    word.judged.number = fuzz_u8();
    const unsigned flags = fuzz_u8();
    word.judged.good = flags & GOOD;
    word.judged.counts = flags & COUNTS;
    snprintf(word.judged.why, sizeof word.judged.why, "it is too much [quota-gpus]");
    if (flags & RECHECK)
        rg_stays_recheck(&agent);
    if (flags & OF_CLIENT) /* the number is of the same place in both */
        rg_stays_told(&agent, &word);
    else
        rg_quotas_judged(&agent, &word);
}

static void line(void)
{
    size_t size;
    const char *text = fuzz_text(&size);
    (void)rg_etcd_tell_line(text, size, agent.prefix, &watcher, &revision);
}

static void range(void)
{
    size_t size;
    const char *text = fuzz_text(&size);
    json_t *pairs = json_loadb(text, size, 0, NULL);
    watcher.reset(&agent);
    rg_etcd_tell_pairs(pairs, agent.prefix, &watcher);
    watcher.whole(&agent, revision);
    json_decref(pairs);
}

static void step(void)
{
    switch (fuzz_u8() % STEPS) {
    case LINE:
        line();
        break;
    case PUT:
        put();
        break;
    case RANGE:
        range();
        break;
    case ASK:
        ask();
        break;
    case REPLY:
        reply();
        break;
    case LEAVE:
        leave(fuzz_u8());
        break;
    case SESSIONS:
        sessions();
        break;
    case CHECK_LEASE:
        check_lease();
        break;
    case JUDGED:
        judged();
        break;
    case CLOSED:
        close_holding(fuzz_u8());
        break;
    case NARROW:
        agent.scope.narrow = fuzz_u8() & 1;
        break;
    default:
        look();
    }
}

/* Requests get ids that an input can name, in the place of random ones. */
static void name_asks(void)
{
    for (uint32_t i = 0; i < agent.n_asks; i++) {
        struct rg_agent_ask *ask = agent.asks[i];
        if (!*ask->id || ask->chosen || strncmp(ask->id, "00000000000000a", 15) == 0)
            continue;
        const bool has_lease = *ask->lease;
        snprintf(ask->id, sizeof ask->id, "%016" PRIx64, id_of(2 + i % 6));
        if (has_lease)
            memcpy(ask->lease, ask->id, sizeof ask->lease);
    }
}

/* --- one input ------------------------------------------------------------------------------------------------------ */

static void begin(void)
{
    memset(&agent.membership, 0, sizeof agent.membership);
    memset(&agent.scope, 0, sizeof agent.scope);
    memset(&agent.history, 0, sizeof agent.history);
    memset(&agent.stays, 0, sizeof agent.stays);
    memset(&agent.decider, 0, sizeof agent.decider);
    memset(&agent.preemption, 0, sizeof agent.preemption);
    agent.membership.state = RG_MEMBER_IN;
    agent.membership.etcd_lease = 1;
    agent.membership.valid_until_ns = agent.membership.next_ns = UINT64_MAX;
    agent.changes = agent.decided = agent.look_ns = agent.undo_ns = agent.judgements = agent.settles_ns = 0;
    agent.own_changes = 0;
    agent.granted = 0;
    agent.granting = agent.undoing = agent.ended = false;
    revision = 1;
}

static void end(void)
{
    for (unsigned i = 0; i < n_clients; i++)
        if (clients[i] >= 0)
            close(clients[i]);
    n_clients = 0;
    some_left = false;
    while (n_calls)
        answer_call(0, RG_ERR_UNREACHABLE, NULL);
    while (agent.n_asks) {
        rg_ask_end(agent.asks[agent.n_asks - 1]);
        while (n_calls)
            answer_call(0, RG_ERR_UNREACHABLE, NULL);
    }
    free(agent.asks);
    agent.asks = NULL;
    while (agent.checks) {
        struct rg_agent_check *check = agent.checks;
        agent.checks = check->next;
        free(check);
    }
    while (agent.n_undo)
        json_decref(agent.undo[--agent.n_undo]);
    free(agent.undo);
    agent.undo = NULL;
    rg_own_fini(&agent.own);
    rg_agent_usage_fini(&agent.usage);
    rg_pool_mirror_fini(&agent.mirror);
    hear_agent();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    fuzz_in = rg_reader_of(data, size);
    while (fuzz_more()) {
        step();
        name_asks();
        hear_clients();
        hear_agent();
    }
    end();
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------------------ */

/* Two servers with GPUs, one of them the agent's. */
static void add_pool(void)
{
    FUZZ_STEP("{\"version\":1,\"address\":\"gpu1:7600\",\"host\":\"gpu1\",\"cuda\":\"12.4\",\"driver\":"
              "\"550\",\"rdma\":true,"
              "\"draining\":false,\"etcd_lease\":\"1\",\"agent\":\"0000000000000007\",\"labels\":{\"rack\":"
              "\"a\"},\"taints\":{\"old\":\"\"}}",
              PUT, 0, 0, 0, 0);
    FUZZ_STEP("{\"index\":0,\"uuid\":\"GPU-01\",\"name\":\"soft\",\"memory\":17179869184,\"numa\":0,"
              "\"nvlink\":1,\"pcie\":0,\"granted\":"
              "[{\"lease\":\"00000000000000a1\",\"memory\":1048576}]}",
              PUT, 4, 0, 0, 0);
    FUZZ_STEP("{\"index\":1,\"uuid\":\"GPU-02\",\"name\":\"soft\",\"memory\":17179869184,\"granted\":[]}",
              PUT, 4, 0, 1, 0);
    FUZZ_STEP("{\"user\":\"2 "
              "alice\",\"name\":\"alice\",\"project\":\"ml\",\"gpus\":[{\"server\":\"1111222233334444\","
              "\"index\":0,\"uuid\":"
              "\"GPU-01\",\"memory\":1048576}],\"memory\":1048576,\"kept\":true,\"since\":1700000000,"
              "\"seconds\":3600,\"etcd_lease\":\"9\","
              "\"holder\":\"0000000000000007\"}",
              PUT, 2, 1, 0, 0);
    FUZZ_STEP("{\"as_of\":1700000000,\"users\":{\"2 alice\":5000},\"projects\":{\"ml\":5000}}", PUT, 3, 0, 0,
              0);
}

void fuzz_seeds(void)
{
    static const char another[] = "{\"version\":1,\"address\":\"gpu3:7600\",\"host\":\"gpu3\",\"etcd_lease\":"
                                  "\"3\",\"agent\":\"00000000000000b3\"}";
    add_pool();
    FUZZ_STEP("{\"ask\":\"list\"}", ASK, 0);
    FUZZ_STEP("{\"ask\":\"leases\",\"after\":\"\"}", ASK, OPERATOR);
    FUZZ_STEP("{\"ask\":\"usage\",\"project\":\"ml\"}", ASK, NAMED);
    FUZZ_STEP("{\"ask\":\"measured\",\"machine\":\"m\",\"servers\":{\"gpu1:7600\":[45000,1000000]}}", ASK,
              NAMED);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("listing");
    FUZZ_STEP("{\"ask\":\"request\",\"devices\":[\"GPU-"
              "0123456789012345678901234567890123456789012345678901234\xc3\xa9\"]}",
              ASK, NAMED);
    fuzz_finish("cut-within-a-character");
    add_pool();
    FUZZ_STEP("{\"ask\":\"request\",\"gpus\":1,\"wait\":60,\"filters\":[\"device.memory>=1G\"],\"tolerate\":["
              "\"old\"]}",
              ASK, NAMED);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP("{\"user\":\"2 "
              "alice\",\"name\":\"alice\",\"project\":\"\",\"agent\":\"0000000000000007\",\"gpus\":1,"
              "\"filters\":[],"
              "\"devices\":[],\"spread\":false,\"kept\":false,\"seconds\":0,\"since\":1700000000}",
              PUT, 1, 2, 0, 0);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, LEAVE, 0);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("request");
    add_pool();
    FUZZ_STEP(another, PUT, 0, 3, 0, 0);
    FUZZ_STEP("{\"server\":\"00000000000000a3\",\"agent\":\"00000000000000b3\"}", PUT, 6, 0, 0, 0);
    FUZZ_STEP(NULL, NARROW, 1);
    FUZZ_STEP("{\"ask\":\"request\",\"gpus\":1}", ASK, NAMED);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("{\"user\":\"2 alice\",\"name\":\"alice\",\"holder\":\"0000000000000007\",\"holder_server\":"
              "\"1111222233334444\",\"hold\":\"00000000000000c1\",\"gpus\":[{\"server\":\"1111222233334444\","
              "\"address\":\"gpu1:7600\",\"index\":1,\"uuid\":\"GPU-02\",\"memory\":17179869184}]}",
              PUT, 2, 2, 0, 0);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP(NULL, CLOSED, 0);
    FUZZ_STEP("{\"kvs\":[{\"key\":\"a\",\"value\":\"eyJ1c2VyIjoiMiBhbGljZSJ9\",\"mod_revision\":\"4\"}]}",
              REPLY, 0, 0);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    fuzz_finish("handed");
    add_pool();
    FUZZ_STEP(another, PUT, 0, 3, 0, 0);
    FUZZ_STEP("{\"server\":\"1111222233334444\",\"agent\":\"0000000000000007\"}", PUT, 6, 0, 0, 0);
    FUZZ_STEP(
        "{\"user\":\"2 bob\",\"name\":\"bob\",\"agent\":\"00000000000000b3\",\"holder_server\":"
        "\"00000000000000a3\",\"hold\":\"00000000000000c2\",\"gpus\":1,\"kept\":false,\"since\":1700000000}",
        PUT, 1, 4, 0, 0);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("decides");
    add_pool();
    FUZZ_STEP("{\"ask\":\"hold\",\"lease\":\"00000000000000a1\",\"hold\":\"\"}", ASK, NAMED);
    FUZZ_STEP("{\"kvs\":[{\"key\":\"a\",\"value\":\"eyJ1c2VyIjoiMiBhbGljZSJ9\",\"mod_revision\":\"4\"}]}",
              REPLY, 0, 0);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, LEAVE, 0);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    fuzz_finish("held-again");
    add_pool();
    FUZZ_STEP("{\"ask\":\"request\",\"gpus\":1,\"kept\":true,\"seconds\":600,\"user\":\"bob\",\"id\":"
              "\"00000000000000a3\",\"job\":\"7\","
              "\"devices\":[\"GPU-02\"]}",
              ASK, OPERATOR | NAMED);
    FUZZ_STEP(NULL, JUDGED, 1, 1);
    FUZZ_STEP("{\"succeeded\":true,\"header\":{\"revision\":\"2\"}}", REPLY, 0, 0);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("", REPLY, 0, FAILS);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("kept");
    add_pool();
    FUZZ_STEP("{\"ask\":\"request\",\"gpus\":1}", ASK, NAMED | CERTIFIED);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, JUDGED, 0, RECHECK);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP(NULL, JUDGED, 1, OF_CLIENT);
    FUZZ_STEP("{\"ask\":\"request\",\"gpus\":1}", ASK, NAMED | CERTIFIED | EXPIRED);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("", REPLY, 0, SUCCEEDED);
    fuzz_finish("revoked");
    add_pool();
    for (int i = 0; i < 3; i++) {
        static const char *const verbs[] = {"find", "renew", "release"};
        char text[160];
        snprintf(text, sizeof text, "{\"ask\":\"%s\",\"lease\":\"00000000000000a1\",\"seconds\":60}",
                 verbs[i]);
        FUZZ_STEP(text, ASK, NAMED);
        FUZZ_STEP("{\"kvs\":[{\"key\":\"a\",\"value\":\"eyJ1c2VyIjoiMiBhbGljZSIsImtlcHQiOnRydWV9\",\"mod_"
                  "revision\":\"4\"}]}",
                  REPLY, 0, 0);
        FUZZ_STEP(NULL, JUDGED, 1, 1);
        FUZZ_STEP("", REPLY, 0, SUCCEEDED);
        FUZZ_STEP("{\"succeeded\":false,\"responses\":[{\"response_range\":{\"kvs\":[]}}]}", REPLY, 0, 0);
    }
    fuzz_finish("leases");
    add_pool();
    FUZZ_STEP(NULL, SESSIONS, 1, 1);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP("{}", PUT, 2, 1, 0, 1);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP(NULL, SESSIONS, 1, 0);
    FUZZ_STEP(NULL, LOOK);
    FUZZ_STEP(NULL, CHECK_LEASE, 2);
    FUZZ_STEP("{\"kvs\":[]}", REPLY, 0, 0);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("sessions");
    for (unsigned i = 0; i < 2; i++) {
        add_pool();
        FUZZ_STEP(NULL, LOOK);
        FUZZ_STEP(
            "{\"index\":0,\"uuid\":\"GPU-01\",\"name\":\"soft\",\"memory\":17179869184,\"granted\":"
            "[{\"lease\":\"00000000000000a1\",\"memory\":1048576,\"state\":\"suspending\",\"since\":1}]}",
            PUT, 4, 0, 0, 0);
        FUZZ_STEP(NULL, LOOK);
        FUZZ_STEP(NULL, SESSIONS, 1, 1 + 3 * (unsigned char)(i ? RG_AGENT_SHARED : RG_AGENT_SUSPENDED));
        FUZZ_STEP(NULL, LOOK);
        FUZZ_STEP("", REPLY, 0, SUCCEEDED);
        FUZZ_STEP(
            "{\"index\":0,\"uuid\":\"GPU-01\",\"name\":\"soft\",\"memory\":17179869184,\"granted\":"
            "[{\"lease\":\"00000000000000a1\",\"memory\":1048576,\"state\":\"suspended\",\"since\":1}]}",
            PUT, 4, 0, 0, 0);
        FUZZ_STEP(NULL, LOOK);
        FUZZ_STEP("", REPLY, 0, SUCCEEDED);
        FUZZ_STEP(NULL, LOOK);
        fuzz_finish(i ? "not-suspended" : "suspended");
    }
    FUZZ_STEP(
        "{\"result\":{\"header\":{\"revision\":\"5\"},\"events\":[{\"type\":\"PUT\",\"kv\":{\"key\":"
        "\"L3JlbW90ZS1ncHUvcG9vbHMvYmx1ZS9sZWFzZXMvMDAwMDAwMDAwMDAwMDBhMQ==\",\"create_revision\":\"4\","
        "\"mod_revision\":\"5\","
        "\"value\":\"e30=\"}},{\"type\":\"DELETE\",\"kv\":{\"key\":\"L3g=\",\"mod_revision\":\"6\"}}]}}\n",
        LINE);
    FUZZ_STEP("[{\"key\":\"\",\"value\":\"\"},{\"key\":\"L3JlbW90ZS1ncHUv\",\"value\":\"e30=\"}]", RANGE);
    FUZZ_STEP(NULL, LOOK);
    fuzz_finish("watch");
}
