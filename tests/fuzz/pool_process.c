/*
 * pool_process.c - what the pool's agent, which reads what etcd, other servers and clients say, tells the monitor although it may have been
 * taken over: its place in the pool, leases, questions of quotas. Nobody begins a session but by a lease that is theirs, with what that has.
 *
 * The input is steps, each a byte that says what it is (modulo STEPS) and its fields (steps.h):
 *
 *   SAY     u8 how much is left out at its end, text: the bytes of a struct rg_agent_answer, of which the last may be missing: zeros
 *   CHECK   u8 lease: a session is to begin by it
 *   ADMIT   u8 lease, u8 who (PROVED, BOB, BESIDE), u8 index: it begins; index below RG_DEVICES_MAX: with that GPU alone;
 *           BESIDE: then u8, the lease of another session
 *   COUNT   nothing: sessions are counted
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/printable.h"
#include "server/daemon/monitor/inquiries.h"
#include "server/daemon/monitor/monitor.h"
#include "tests/fuzz/steps.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SAY, CHECK_LEASE, ADMIT, COUNT, STEPS };
enum { PROVED = 1, BOB = 2, BESIDE = 4 };

static struct rg_monitor monitor;
static int agent = -1; /* its end */

static bool has_end(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}
#define HAS_END(text) has_end(text, sizeof(text))

static void checked(void *data, uint64_t question, bool there, const char *why)
{
    (void)data, (void)there;
    CHECK(question && strlen(why) < RG_CONTROL_REASON / 2);
}

static void gone(void *data, uint64_t lease)
{
    (void)data, (void)lease;
}

/* What the monitor says is as it is to be. */
static void hear(void)
{
    struct rg_agent_word word;
    unsigned n_fds;
    while (rg_packet_receive(agent, MSG_DONTWAIT, &word, sizeof word, NULL, 0, &n_fds) == RG_OK)
        CHECK(word.kind == RG_AGENT_CHECK || (word.kind == RG_AGENT_STAYS && HAS_END(word.stays.why)) ||
              (word.kind == RG_AGENT_JUDGED && HAS_END(word.judged.why)) ||
              (word.kind == RG_AGENT_SESSIONS && HAS_END(word.sessions.lease.job)));
}

static void look(void)
{
    const struct rg_pool_process *pool = &monitor.pool;
    CHECK(pool->n_leases <= RG_POOL_SHARES_MAX * RG_DEVICES_MAX && HAS_END(pool->why));
    for (uint32_t i = 0; i < pool->n_leases; i++) {
        const struct rg_agent_lease *lease = &pool->leases[i].lease;
        char job[sizeof lease->job];
        CHECK(HAS_END(lease->key) && HAS_END(lease->name) && HAS_END(lease->job));
        memcpy(job, lease->job, sizeof job);
        rg_printable_clean(job);
        CHECK(strcmp(job, rg_pool_job(pool, lease->lease)) == 0);
    }
}

static void say(void)
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_STANDING};
    const unsigned left_out = fuzz_u8();
    size_t size;
    const char *text = fuzz_text(&size);
    memcpy(&answer, text, size < sizeof answer ? size : sizeof answer);
    if (monitor.pool.socket >= 0)
        CHECK(rg_packet_send(agent, &answer, sizeof answer - left_out, NULL, 0));
    rg_pool_receive(&monitor.pool);
}

static void check_lease(void)
{
    char why[RG_CONTROL_REASON] = "";
    static uint64_t question;
    const enum rg_status status = rg_pool_check(&monitor.pool, fuzz_u8(), ++question, why, sizeof why);
    CHECK(status == RG_OK || status == RG_ERR_TIMEOUT || (status == RG_ERR_REFUSED && *why));
}

static const struct rg_agent_lease *lease_of(uint64_t number)
{
    for (uint32_t i = 0; i < monitor.pool.n_leases; i++)
        if (monitor.pool.leases[i].lease.lease == number && !monitor.pool.leases[i].gone)
            return &monitor.pool.leases[i].lease;
    return NULL;
}

static void admit(void)
{
    struct rg_monitor_start start = {.pool_lease = fuzz_u8(), .share.memory_bytes = 1u << 30};
    struct rg_monitor_answer answer = {.why = ""};
    const unsigned flags = fuzz_u8(), index = fuzz_u8();
    struct rg_who who = {.proof = flags & PROVED ? RG_PROOF_CERTIFICATE : RG_PROOF_NONE};
    char key[RG_AGENT_WHO];
    if (flags & PROVED)
        snprintf(who.name, sizeof who.name, "%s", flags & BOB ? "bob" : "alice");
    rg_who_key(&who, "10.0.0.7:1", key, sizeof key);
    const uint64_t beside = flags & PROVED && flags & BESIDE ? fuzz_u8() : 0;
    start.n_gpu_indices = index < RG_DEVICES_MAX;
    start.gpu_indices[0] = index;
    if (rg_pool_admit(&monitor.pool, &who, key, beside, &start, &answer) != RG_OK) {
        CHECK(*answer.why && HAS_END(answer.why));
        return;
    }
    const struct rg_agent_lease *lease = lease_of(start.pool_lease);
    CHECK(lease && !lease->preempted && rg_now_ns() < monitor.pool.valid_until_ns &&
          start.n_gpu_indices > 0 && start.n_gpu_indices <= RG_DEVICES_MAX);
    CHECK(strcmp(lease->key, key) == 0 || (!(flags & PROVED) && (lease->bearer || !lease->name[0])));
    CHECK(!lease->memory || start.share.memory_bytes <= lease->memory);
    for (uint32_t i = 0; i < start.n_gpu_indices; i++)
        CHECK(start.gpu_indices[i] < RG_DEVICES_MAX && lease->gpus >> start.gpu_indices[i] & 1);
}

static void step(void)
{
    switch (fuzz_u8() % STEPS) {
    case SAY:
        say();
        break;
    case CHECK_LEASE:
        check_lease();
        break;
    case ADMIT:
        admit();
        break;
    default:
        rg_pool_count(&monitor.pool, &monitor.sessions);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    agent = ends[1];
    monitor.pool = (struct rg_pool_process){.wanted = true,
                                            .pid = INT_MAX, /* nobody has that number */
                                            .socket = ends[0],
                                            .checked = checked,
                                            .judge = rg_inquiry_judge,
                                            .gone = gone,
                                            .stays = rg_inquiry_stays,
                                            .data = &monitor};
    fuzz_in = rg_reader_of(data, size);
    while (fuzz_more()) {
        step();
        look();
        hear();
    }
    free(monitor.pool.leases);
    if (monitor.pool.socket >= 0)
        close(monitor.pool.socket);
    close(agent);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------------------ */

static void add_answer(const struct rg_agent_answer *answer)
{
    FUZZ_STEP(NULL, SAY, 0);
    fuzz_add_text(answer, sizeof *answer);
}

void fuzz_seeds(void)
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_STANDING, .standing = {.valid_until_ns = UINT64_MAX}};
    add_answer(&answer);
    answer = (struct rg_agent_answer){
        .kind = RG_AGENT_LEASE,
        .lease = {.lease = 7, .gpus = 5, .memory = 4096, .key = "3 alice", .name = "alice", .job = "job 7"}};
    add_answer(&answer);
    FUZZ_STEP(NULL, ADMIT, 7, PROVED, 255);
    FUZZ_STEP(NULL, ADMIT, 7, PROVED, 2);
    FUZZ_STEP(NULL, ADMIT, 7, PROVED | BOB, 255);
    FUZZ_STEP(NULL, ADMIT, 8, PROVED | BESIDE, 255, 7);
    FUZZ_STEP(NULL, ADMIT, 8, PROVED | BOB | BESIDE, 255, 7);
    FUZZ_STEP(NULL, COUNT);
    fuzz_finish("lease");
    FUZZ_STEP(NULL, CHECK_LEASE, 7);
    answer = (struct rg_agent_answer){.kind = RG_AGENT_CHECKED, .checked = {.number = 1, .there = 1}};
    add_answer(&answer);
    answer = (struct rg_agent_answer){.kind = RG_AGENT_GONE, .gone.lease = 7};
    add_answer(&answer);
    fuzz_finish("checked");
    answer = (struct rg_agent_answer){
        .kind = RG_AGENT_JUDGE,
        .judge = {.number = 1, .key = "3 alice", .name = "alice", .by = "bob", .project = "ml", .gpus = 2}};
    add_answer(&answer);
    answer.judge.renews = 1;
    snprintf(answer.judge.key, sizeof answer.judge.key, "2 1000");
    add_answer(&answer);
    answer = (struct rg_agent_answer){
        .kind = RG_AGENT_CLIENT,
        .client = {.number = 1, .name = "alice", .certificate = {.serial = {1, 2}, .serial_size = 2}}};
    add_answer(&answer);
    answer = (struct rg_agent_answer){.kind = RG_AGENT_DRAINED, .drained.on = 1};
    add_answer(&answer);
    fuzz_finish("judge");
}
