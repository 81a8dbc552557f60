/*
 * monitor.c - packets of a frontend that has been taken over, to the real monitor: its checks, admission, who somebody is, certificates, and
 * sessions that run. Processes alone are not started.
 *
 * The input: packets, each u8 descriptors (of the low three bits so many), u8 how much of the question is left out at its end, then the
 * bytes of struct rg_monitor_question, of which the last packet may lack some: zeros.
 */
#include "server/daemon/monitor/monitor.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/process/confined.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzzer.h"

#include <limits.h>
#include <sys/socket.h>

enum { PACKETS_MAX = 8, SESSIONS = 2, SESSIONS_MAX = 3 };

static struct rg_monitor monitor;
static int frontend = -1; /* the frontend's end */
static int ends[2];       /* a connection that it brings */

/* In the place of confined.c: the machine has no more processes. */
enum rg_status rg_confined_start(struct rg_sandboxes *sandboxes, const struct rg_confined *confined,
                                 const struct rg_process *process, struct rg_sandbox_lease **lease,
                                 pid_t *pid, char *why, size_t why_size)
{
    (void)sandboxes, (void)confined, (void)lease, (void)pid;
    for (int i = 0; i < process->n_fds; i++)
        CHECK(process->fds[i] >= 0);
    rg_explain(why, why_size, "there are no more processes");
    return RG_ERR_NO_MEMORY;
}

static struct rg_session_entry *add_session(enum rg_proof proof, const char *name)
{
    struct rg_sessions *sessions = &monitor.sessions;
    struct rg_session_entry *entry = calloc(1, sizeof *entry);
    CHECK(entry);
    entry->info.id = sessions->next_id++;
    entry->who = (struct rg_who){.proof = proof, .encrypted = proof == RG_PROOF_CERTIFICATE};
    snprintf(entry->who.name, sizeof entry->who.name, "%s", name);
    entry->hand = -1;
    entry->pid = INT_MAX;
    sessions->entries[sessions->n++] = entry;
    return entry;
}

/* The names and numbers that seeds know: of a user, and of a token that never ends. */
static void fill_state(void)
{
    static const char user[] = "certificate 2a issued 1700000000 expires 99999999999\n";
    struct rg_identity_settings settings = {.state_dir = fuzz_folder};
    char why[1024] = "";
    CHECK(rg_identity_open(&settings, &monitor.policy.identity, why, sizeof why) == RG_OK);
    char path[256];
    snprintf(path, sizeof path, "%s/users", fuzz_folder);
    CHECK(mkdir(path, 0700) == 0 || access(path, W_OK) == 0);
    fuzz_folder_write("users/alice", user, sizeof user - 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_folder_make();
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    fill_state();
    snprintf(monitor.driver.info.kind, sizeof monitor.driver.info.kind, "soft");
    monitor.driver.n_devices = 2;
    monitor.board = rg_board_create(SESSIONS_MAX, &monitor.board_fd);
    CHECK(monitor.board && rg_sessions_init(&monitor.sessions, monitor.board, "worker") == RG_OK);
    CHECK(rg_shares_open(&monitor.sessions.shares, &monitor.driver, SESSIONS_MAX, NULL, false, NULL) ==
          RG_OK);
    add_session(RG_PROOF_CERTIFICATE, "alice")->who.not_after = INT64_MAX;
    add_session(RG_PROOF_USER, "uid 0 (root)");
    /* with names of the kernel's choice, as if they came by the server's own sockets */
    const sa_family_t name = AF_UNIX;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(bind(ends[i], (const struct sockaddr *)&name, sizeof name) == 0);
        rg_who_listens(&monitor.policy, ends[i]);
    }
    return 0;
}

/* Every text that the frontend gets has an end, and every answer a question. */
static void hear(uint64_t asked)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    while (rg_packet_receive(frontend, MSG_DONTWAIT, &word, sizeof word, fds, RG_PACKET_FDS_MAX, &n_fds) ==
           RG_OK) {
        rg_packet_close(fds, n_fds);
        if (word.kind == RG_TELL_ANSWER)
            CHECK(word.answer.number == asked && word.answer.signature_size <= RG_MONITOR_SIGNATURE &&
                  (word.answer.signature_size || memchr(word.answer.why, 0, sizeof word.answer.why)));
    }
}

static void send_packet(const uint8_t *data, size_t size, unsigned n_fds, unsigned left_out)
{
    struct rg_monitor_question question;
    int fds[RG_PACKET_FDS_MAX];
    memset(&question, 0, sizeof question);
    memcpy(&question, data, size);
    for (unsigned i = 0; i < RG_PACKET_FDS_MAX; i++)
        fds[i] = ends[i % 2];
    CHECK(rg_packet_send(frontend, &question, sizeof question - left_out, fds, n_fds));
    rg_monitor_serve(&monitor);
    hear(question.number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    monitor.frontend =
        (struct rg_frontend_process){.program = &rg_frontend_program,
                                     .pid = INT_MAX,
                                     .socket = sockets[0],
                                     .tls_file = -1}; /* nobody has that number, whoever is killed */
    frontend = sockets[1];
    for (int i = 0; i < PACKETS_MAX && size > 2 && !monitor.frontend.killed; i++) {
        const size_t rest = size - 2, most = sizeof(struct rg_monitor_question);
        const size_t bytes = rest < most ? rest : most;
        send_packet(data + 2, bytes, data[0] & 7, data[1]);
        data += 2 + bytes;
        size -= 2 + bytes;
    }
    close(sockets[0]);
    close(sockets[1]);
    CHECK(monitor.sessions.n == SESSIONS && monitor.n_probers <= RG_MONITOR_PROBERS_MAX);
    monitor.n_probers = 0;
    return 0;
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name;
        enum rg_monitor_question_kind kind;
        enum rg_proof proof;
        unsigned fds;
    } seeds[] = {
        {"ready", RG_ASK_READY, 0, 0},
        {"alive", RG_ASK_ALIVE, 0, 0},
        {"start-certificate", RG_ASK_START, RG_PROOF_CERTIFICATE, 3},
        {"start-user", RG_ASK_START, RG_PROOF_USER, 2},
        {"start-nobody", RG_ASK_START, RG_PROOF_NONE, 2},
        {"hand-over", RG_ASK_HAND_OVER, RG_PROOF_CERTIFICATE, 3},
        {"check", RG_ASK_CHECK, RG_PROOF_CERTIFICATE, 0},
        {"stay", RG_ASK_STAY, RG_PROOF_CERTIFICATE, 0},
        {"join", RG_ASK_JOIN, RG_PROOF_NONE, 0},
        {"renew", RG_ASK_RENEW, RG_PROOF_CERTIFICATE, 0},
        {"sign", RG_ASK_SIGN, 0, 0},
        {"probe", RG_ASK_PROBE, 0, 0},
        {"manager", RG_ASK_MANAGER, 0, 0},
        {"stop-manager", RG_ASK_STOP_MANAGER, 0, 0},
        {"owns", RG_ASK_OWNS, RG_PROOF_USER, 1},
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct {
            uint8_t fds, left_out;
            uint8_t bytes[sizeof(struct rg_monitor_question)];
        } packet = {.fds = (uint8_t)seeds[i].fds};
        struct rg_monitor_question question;
        memset(&question, 0, sizeof question);
        question.kind = seeds[i].kind;
        question.number = i;
        question.peer.proof = seeds[i].proof;
        question.peer.encrypted = seeds[i].proof == RG_PROOF_CERTIFICATE || question.kind == RG_ASK_JOIN;
        question.peer.serial[0] = 0x2a;
        question.peer.serial_size = 1;
        question.peer.not_after = INT64_MAX;
        strcpy(question.peer.name, "alice");
        if (question.kind == RG_ASK_START) {
            question.start.purpose = RG_PURPOSE_SESSION;
            question.start.gpus = 1;
        } else if (question.kind == RG_ASK_HAND_OVER) {
            question.hand_over.purpose = RG_PURPOSE_BULK;
            question.hand_over.session = 1;
        } else if (question.kind == RG_ASK_SIGN) {
            question.sign.digest = RG_IDENTITY_SHA256;
            question.sign.hash_size = 32;
        } else if (question.kind == RG_ASK_STAY) {
            question.stay.session = 1;
        }
        memcpy(packet.bytes, &question, sizeof question);
        fuzz_seed(seeds[i].name, &packet, sizeof packet);
    }
}
