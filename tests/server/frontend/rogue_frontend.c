/*
 * rogue_frontend.c - what the frontend, or the process that answers HTTP, would be once it has been taken over: it breaks the protocol to
 * the monitor in the way that the file "rogue" beside it names, and says what it was answered.
 *
 *   short, long          a packet of another size
 *   kind                 a question that there is not
 *   descriptors          a session without descriptors, or with too many
 *   purpose, gpus        a session for something else, of more GPUs than there can be
 *   flood                questions without ever reading an answer
 *   texts                texts without an end, in a session that is otherwise in order
 *   impostor             the proof of a certificate that nobody has
 *   expired              the proof of a certificate of which it says that it is still valid
 *   user                 the proof of a local user over a connection that tells of none
 *   monitor              the same by the socket to the monitor, of which the kernel says that the monitor is at both ends
 *   pair                 the same by a pair of its own
 *   listener             the same by the socket that clients connect to, of which the kernel names who listens there
 *   nobody               no proof at all, over a connection that is none of a network's
 *   other                the proof of a local user who may not come
 *   join                 a certificate without a token
 *   stranger             a connection to a session that there is not
 *   certificate          other certificates for the frontend that takes its place
 *   key                  the server's key, in what it is given for TLS
 *   sign                 the server's signature under something that is no hash of a handshake
 *   board                a change of the list of sessions
 */
#include "common/base/packet.h"
#include "server/daemon/shared/board.h"
#include "server/daemon/shared/monitor_protocol.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int board_fd = -1;
static int listener = -1; /* the first of the server's */

static _Noreturn void leave(const char *what)
{
    fprintf(stderr, "rogue: %s\n", what);
    pause();
    exit(1);
}

static void ask(const struct rg_monitor_question *question, size_t size, const int *fds, unsigned n_fds)
{
    if (!rg_packet_send(RG_MONITOR_FD, question, size, fds, n_fds))
        leave("cannot ask");
}

static void hear(void)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    while (rg_packet_receive(RG_MONITOR_FD, 0, &word, sizeof word, fds, RG_PACKET_FDS_MAX, &n_fds) == RG_OK) {
        rg_packet_close(fds, n_fds);
        if (word.kind == RG_TELL_ANSWER) {
            fprintf(stderr, "rogue: answer %d, %s: %s\n", (int)word.answer.status,
                    rg_refusal_name(word.answer.code), word.answer.why);
            return;
        }
    }
    leave("no answer");
}

/* A connection by the server's own socket where that is a unix socket; -1: it is none. */
static int connect_to_server(void)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    if (getsockname(listener, (struct sockaddr *)&name, &size) != 0 || name.sun_family != AF_UNIX)
        return -1;
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (client < 0 || connect(client, (const struct sockaddr *)&name, size) != 0)
        leave("no connection");
    return accept(listener, NULL, NULL);
}

/* A connection that it brings, and the file with a hello, which it need not be. */
static void make_fds(int fds[2])
{
    int ends[2] = {connect_to_server(), -1};
    if (ends[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        leave("no socket");
    fds[0] = ends[0];
    fds[1] = memfd_create("nonsense", 0);
}

static bool can_write(int file)
{
    const long page = sysconf(_SC_PAGESIZE);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const int again = open(path, O_RDWR);
    void *shared =
        again >= 0 ? mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) : MAP_FAILED;
    return shared != MAP_FAILED ||
           (again >= 0 && (pwrite(again, "x", 1, 64) == 1 || ftruncate(again, 0) == 0)) ||
           pwrite(file, "x", 1, 64) == 1 || ftruncate(file, 0) == 0;
}

static void try_to_write(void)
{
    leave(can_write(board_fd) ? "the board is writable" : "the board is not writable");
}

static void try_to_change_certificates(void)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    if (rg_packet_receive(RG_MONITOR_FD, 0, &word, sizeof word, fds, RG_PACKET_FDS_MAX, &n_fds) != RG_OK ||
        word.kind != RG_TELL_TLS || n_fds != 1)
        leave("no certificates");
    leave(can_write(fds[0]) ? "the certificates are writable" : "the certificates are not writable");
}

static void look_for_key(void)
{
    static char text[1 << 20];
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    if (rg_packet_receive(RG_MONITOR_FD, 0, &word, sizeof word, fds, RG_PACKET_FDS_MAX, &n_fds) != RG_OK ||
        word.kind != RG_TELL_TLS || n_fds != 1 || pread(fds[0], text, sizeof text - 1, 0) <= 0 ||
        !strstr(text, "BEGIN CERTIFICATE"))
        leave("no certificates");
    leave(strstr(text, "PRIVATE KEY") ? "it has the server's key" : "the server's key is not there");
}

static void misbehave(const char *mode)
{
    struct rg_monitor_question question;
    int fds[RG_PACKET_FDS_MAX];
    make_fds(fds);
    for (int i = 2; i < RG_PACKET_FDS_MAX; i++)
        fds[i] = fds[1];
    memset(&question, 0, sizeof question);
    question.kind = RG_ASK_START;
    question.number = 7;
    question.peer.proof = RG_PROOF_USER;
    question.start.purpose = RG_PURPOSE_SESSION;
    if (strcmp(mode, "short") == 0) {
        ask(&question, sizeof question - 1, fds, 2);
    } else if (strcmp(mode, "long") == 0) {
        static char much[sizeof question + 100];
        memcpy(much, &question, sizeof question);
        ask((const struct rg_monitor_question *)(const void *)much, sizeof much, fds, 2);
    } else if (strcmp(mode, "kind") == 0) {
        question.kind = 4711;
        ask(&question, sizeof question, NULL, 0);
    } else if (strcmp(mode, "descriptors") == 0) {
        ask(&question, sizeof question, fds, RG_PACKET_FDS_MAX);
    } else if (strcmp(mode, "none") == 0) {
        ask(&question, sizeof question, NULL, 0);
    } else if (strcmp(mode, "purpose") == 0) {
        question.start.purpose = RG_PURPOSE_JOIN;
        ask(&question, sizeof question, fds, 2);
    } else if (strcmp(mode, "gpus") == 0) {
        question.start.n_gpu_indices = UINT32_MAX;
        ask(&question, sizeof question, fds, 2);
    } else if (strcmp(mode, "flood") == 0) {
        question.kind = RG_ASK_HAND_OVER;
        question.hand_over.purpose = RG_PURPOSE_BULK;
        while (rg_packet_send(RG_MONITOR_FD, &question, sizeof question, fds, 2))
            usleep(100);
        leave("it took no more");
    } else if (strcmp(mode, "board") == 0) {
        try_to_write();
    } else if (strcmp(mode, "certificate") == 0) {
        try_to_change_certificates();
    } else if (strcmp(mode, "key") == 0) {
        look_for_key();
    } else if (strcmp(mode, "sign") == 0) {
        question.kind = RG_ASK_SIGN;
        question.sign.hash_size = 40;
        ask(&question, sizeof question, NULL, 0);
    } else {
        if (strcmp(mode, "texts") == 0) {
            memset(question.peer.address, 'a', sizeof question.peer.address);
            memset(question.peer.name, 'n', sizeof question.peer.name);
            memset(&question.start.claimed, 'c', sizeof question.start.claimed);
        } else if (strcmp(mode, "impostor") == 0) {
            question.peer.proof = RG_PROOF_CERTIFICATE;
            question.peer.encrypted = 1;
            question.peer.serial_size = 4;
            strcpy(question.peer.name, "alice");
        } else if (strcmp(mode, "expired") == 0) {
            question.kind = RG_ASK_CHECK;
            question.peer.proof = RG_PROOF_CERTIFICATE;
            question.peer.encrypted = 1;
            question.peer.serial[0] = 0x2a;
            question.peer.serial_size = 1;
            question.peer.not_after = INT64_MAX;
            strcpy(question.peer.name, "alice");
        } else if (strcmp(mode, "user") == 0) {
            fds[0] = socket(AF_INET, SOCK_STREAM, 0);
        } else if (strcmp(mode, "monitor") == 0) {
            fds[0] = RG_MONITOR_FD;
        } else if (strcmp(mode, "listener") == 0) {
            fds[0] = listener;
        } else if (strcmp(mode, "pair") == 0) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
                leave("no socket");
            fds[0] = ends[0];
        } else if (strcmp(mode, "nobody") == 0) {
            question.peer.proof = RG_PROOF_NONE;
        } else if (strcmp(mode, "other") == 0) {
            rg_packet_close(fds, 1);
            if (setresuid(65534, 65534, 65534) != 0)
                leave("not root");
            make_fds(fds);
        } else if (strcmp(mode, "join") == 0) {
            question.kind = RG_ASK_JOIN;
            question.peer.encrypted = 1;
            memset(&question.join, 7, sizeof question.join);
        } else if (strcmp(mode, "stranger") == 0) {
            question.kind = RG_ASK_HAND_OVER;
            question.hand_over.purpose = RG_PURPOSE_BULK;
            question.hand_over.session = 99;
        }
        ask(&question, sizeof question, fds,
            question.kind == RG_ASK_JOIN || question.kind == RG_ASK_CHECK ? 0
            : question.peer.encrypted                                     ? 3
                                                                          : 2);
        hear();
    }
    leave("it is done");
}

int main(void)
{
    struct rg_monitor_settings settings;
    struct rg_monitor_question ready;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    char path[PATH_MAX], mode[32] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 16);
    if (size <= 0 || rg_packet_receive(RG_MONITOR_FD, 0, &settings, sizeof settings, fds, RG_PACKET_FDS_MAX,
                                       &n_fds) != RG_OK)
        leave("not started by the server");
    path[size] = 0;
    strcpy(strrchr(path, '/') + 1, "rogue");
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%31s", mode) != 1)
        leave("no mode");
    fclose(file);
    board_fd = fds[0];
    listener = n_fds > 1 ? fds[1] : -1;
    memset(&ready, 0, sizeof ready);
    ready.kind = RG_ASK_READY;
    ask(&ready, sizeof ready, NULL, 0);
    misbehave(mode);
}
