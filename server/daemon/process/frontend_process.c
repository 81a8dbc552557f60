/* frontend_process.c - see frontend_process.h. */
#include "server/daemon/process/frontend_process.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/path.h"
#include "server/daemon/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS    30000
#define READY_BEATS (unsigned)(READY_MS * 1000000ull / RG_FRONTEND_BEAT_NS)

_Static_assert((int)RG_MONITOR_FDS_MAX <= (int)RG_PACKET_FDS_MAX, "a packet holds them");

/* What it may know of the server's environment: how to log, and the loader's and sanitizers' settings. */
static const char *const kept[] = {
    "REMOTE_GPU_LOG=", "REMOTE_GPU_LIBDIR=", "JOURNAL_STREAM=", "LD_LIBRARY_PATH=", "TZ=",
    "ASAN_OPTIONS=",   "LSAN_OPTIONS=",      "UBSAN_OPTIONS=",  "TSAN_OPTIONS="};

enum { N_KEPT = sizeof kept / sizeof *kept };

const struct rg_frontend_program rg_frontend_program = {"frontend", "the frontend", "talks to clients",
                                                        "sessions go on"};
const struct rg_frontend_program rg_http_program = {"http", "the process that answers HTTP", "answers HTTP",
                                                    "sessions know nothing of it"};

void rg_frontend_init(struct rg_frontend_process *frontend, const struct rg_frontend_program *program,
                      const struct rg_monitor_settings *settings, int board, const int *listeners)
{
    *frontend =
        (struct rg_frontend_process){.program = program, .settings = settings, .tls_file = -1, .socket = -1};
    if (board >= 0)
        frontend->fds[frontend->n_fds++] = board;
    memcpy(frontend->fds + frontend->n_fds, listeners, settings->n_listeners * sizeof *listeners);
    frontend->n_fds += settings->n_listeners;
}

static void tell_tls(struct rg_frontend_process *frontend)
{
    const struct rg_monitor_word word = {.kind = RG_TELL_TLS, .tls = frontend->tls};
    rg_frontend_tell(frontend, &word, &frontend->tls_file, 1);
}

enum rg_status rg_frontend_set_tls(struct rg_frontend_process *frontend,
                                   const struct rg_identity_material *material)
{
    const int file = rg_file_in_memory("remote-gpu-tls", NULL, 0);
    if (file < 0 || !rg_file_write(file, material->authority, material->authority_size) ||
        !rg_file_write(file, material->certificate, material->certificate_size) ||
        /* each frontend gets the same file: none that was taken over is to say whom the next one trusts */
        fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        rg_error("no memory for the server's certificate: %s", strerror(errno));
        if (file >= 0)
            close(file);
        return RG_ERR_NO_MEMORY;
    }
    if (frontend->tls_file >= 0)
        close(frontend->tls_file);
    frontend->tls_file = file;
    frontend->tls = (struct rg_monitor_tls){.authority_size = (uint32_t)material->authority_size,
                                            .certificate_size = (uint32_t)material->certificate_size,
                                            .generation = material->generation};
    tell_tls(frontend);
    return RG_OK;
}

enum rg_status rg_frontend_start(struct rg_frontend_process *frontend)
{
    char path[PATH_MAX], why[512] = "";
    char *environment[N_KEPT + 1] = {NULL};
    int ends[2], n = 0;
    for (char **at = environ; *at; at++)
        for (int i = 0; i < N_KEPT && n < N_KEPT; i++)
            if (strncmp(*at, kept[i], strlen(kept[i])) == 0)
                environment[n++] = *at;
    frontend->not_before_ns = rg_now_ns() + RG_FRONTEND_PAUSE_NS;
    if (rg_path_library(frontend->program->name, path, sizeof path) != RG_OK) {
        rg_error("remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
        return RG_ERR_NOT_FOUND;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        rg_error("no socket for the process that %s: %s", frontend->program->role, strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    char *arguments[] = {(char *)(uintptr_t)frontend->program->name, NULL};
    const struct rg_process process = {.path = path,
                                       .arguments = arguments,
                                       .environment = environment,
                                       .fds = {ends[1]},
                                       .n_fds = 1,
                                       .death_signal = SIGKILL};
    const enum rg_status status = rg_process_start(&process, &frontend->pid, why, sizeof why);
    close(ends[1]);
    if (status != RG_OK) {
        close(ends[0]);
        frontend->pid = 0;
        rg_error("%s, the process that %s, cannot be started: %s; the installation is incomplete",
                 frontend->program->name, frontend->program->role, why);
        return status;
    }
    frontend->socket = ends[0];
    frontend->ready = frontend->killed = false;
    frontend->unanswered = 0;
    frontend->beat_ns = rg_now_ns() + RG_FRONTEND_BEAT_NS;
    if (!rg_packet_send(frontend->socket, frontend->settings, sizeof *frontend->settings, frontend->fds,
                        frontend->n_fds))
        rg_frontend_kill(frontend, strerror(errno));
    if (frontend->tls_file >= 0)
        tell_tls(frontend);
    return RG_OK;
}

bool rg_frontend_wait_ready(struct rg_frontend_process *frontend)
{
    struct pollfd wait = {.fd = frontend->socket, .events = POLLIN};
    struct rg_monitor_question question;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    if (poll(&wait, 1, READY_MS) > 0 && rg_frontend_receive(frontend, &question, fds, &n_fds) == RG_OK) {
        rg_packet_close(fds, n_fds);
        if (question.kind == RG_ASK_READY)
            return frontend->ready = true;
    }
    rg_error("%s, the process that %s, did not start; what it said is above", frontend->program->name,
             frontend->program->role);
    return false;
}

enum rg_status rg_frontend_receive(struct rg_frontend_process *frontend, struct rg_monitor_question *question,
                                   int *fds, unsigned *n_fds)
{
    return rg_packet_receive(frontend->socket, MSG_DONTWAIT, question, sizeof *question, fds,
                             RG_PACKET_FDS_MAX, n_fds);
}

void rg_frontend_tell(struct rg_frontend_process *frontend, const struct rg_monitor_word *word,
                      const int *fds, unsigned n_fds)
{
    if (frontend->pid && !frontend->killed &&
        !rg_packet_send(frontend->socket, word, sizeof *word, fds, n_fds) && errno != EPIPE &&
        errno != ECONNRESET)
        rg_frontend_kill(frontend, "it does not read what it is told");
}

void rg_frontend_kill(struct rg_frontend_process *frontend, const char *why)
{
    if (frontend->pid == 0 || frontend->killed)
        return;
    if (why)
        rg_error("%s is killed: %s", frontend->program->called, why);
    kill(frontend->pid, SIGKILL);
    frontend->killed = true;
}

bool rg_frontend_reap(struct rg_frontend_process *frontend)
{
    int end;
    if (frontend->pid == 0 ||
        !rg_process_has_ended(frontend->pid, frontend->program->called, frontend->program->lost, &end))
        return false;
    close(frontend->socket);
    frontend->socket = -1;
    frontend->pid = 0;
    return true;
}

/*
 * Asks it for a sign of life, if it is time, and kills it if it has given none for long. Words are counted, not time: a monitor that was
 * stopped itself accuses nobody. Returns when it will be time.
 */
static uint64_t beat(struct rg_frontend_process *frontend)
{
    const struct rg_monitor_word word = {.kind = RG_TELL_BEAT};
    if (frontend->pid == 0 || frontend->killed)
        return UINT64_MAX;
    if (rg_now_ns() < frontend->beat_ns)
        return frontend->beat_ns;
    if (frontend->unanswered >= (frontend->ready ? RG_FRONTEND_BEATS : READY_BEATS)) {
        rg_frontend_kill(frontend, "it hangs");
        return UINT64_MAX;
    }
    frontend->unanswered++;
    frontend->beat_ns = rg_now_ns() + RG_FRONTEND_BEAT_NS;
    rg_frontend_tell(frontend, &word, NULL, 0);
    return frontend->beat_ns;
}

uint64_t rg_frontend_revive(struct rg_frontend_process *frontend)
{
    if (!frontend->program)
        return UINT64_MAX;
    if (frontend->pid == 0 && (rg_now_ns() < frontend->not_before_ns || rg_frontend_start(frontend) != RG_OK))
        return frontend->not_before_ns;
    return beat(frontend);
}

void rg_frontend_stop(struct rg_frontend_process *frontend)
{
    if (frontend->n_fds && frontend->tls_file >= 0)
        close(frontend->tls_file);
    frontend->tls_file = -1;
    if (frontend->pid == 0)
        return;
    kill(frontend->pid, SIGKILL);
    while (waitpid(frontend->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(frontend->socket);
    frontend->pid = 0;
    frontend->socket = -1;
}
