/*
 * main.c - program lib/remote-gpu/worker: serves one session, started by remote-gpud.
 *
 *   worker --fd N --hello-fd N [--hand-fd N] [--share-fd N] --driver LIBRARY --driver-kind KIND --devices 0,1 --session ID [--max-sessions N]
 *          [--reconnect-grace SECONDS|auto] [--rails LIST] [--stack-limit BYTES] [--tls-fd N] [--rdma 0] [--sandbox POLICY]
 *   worker --warm-fd N --warm SHAPE --share-fd N --driver LIBRARY --driver-kind KIND --devices 0,1 [--session NUMBER] [--max-sessions N]
 *          [--reconnect-grace SECONDS|auto] [--rails LIST] [--stack-limit BYTES] [--sandbox POLICY]
 *
 * `share-fd` is the session's slot, and behind it come the pages of its devices (shares/worker/share.h).
 * `fd` is the client's connection, `tls-fd` holds its keys if it is by TLS, `hello-fd` the hello that the frontend has read
 * from it. By the second form there is no client yet: the session comes by `warm-fd` (handshake/warm.h). The worker
 * loads the driver, answers the hello, serves until the client closes the connection, breaks the protocol, or
 * the daemon sends SIGTERM (as the kernel does when the daemon dies). Then it exits at once: what the client
 * left in the driver goes with the process, also if its kernels never end.
 *
 * The main thread only waits for signals and the end; the session runs on threads of its own
 * (leader_followers.h).
 */
#include "common/base/log_limit.h"
#include "server/api/context.h"
#include "server/arguments.h"
#include "server/core/worker.h"
#include "server/export/export.h"
#include "server/handshake/address_space.h"
#include "server/handshake/end_reason.h"
#include "server/handshake/handed.h"
#include "server/handshake/hello.h"
#include "server/handshake/host_memory.h"
#include "server/handshake/keep_alive.h"
#include "server/handshake/prepare.h"
#include "server/handshake/warm.h"
#include "server/images/image.h"
#include "server/modules.h"
#include "server/nccl/library.h"
#include "server/peers/peers.h"
#include "server/sandbox/sandbox.h"
#include "server/shares/gate/attach.h"
#include "server/shares/worker/share.h"
#include "server/suspend/suspend.h"
#include "server/timeline/output.h"
#include "server/timeline/times.h"
#include "server/transfer/bulk_log.h"
#include "server/transfer/gpudirect.h"
#include "transport/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { CONTROL_GRACE_MS = 2000, LAST_WORDS_S = 5 };

/* What the network's device moved by itself, where the transport counts it. */
static void tell_statistics(struct rg_worker *worker)
{
    struct rg_conn_statistics bulk;
    rg_conn_get_statistics(worker->conn, &bulk);
    rg_bulk_log(worker->session, &bulk, "");
    if (bulk.bulk_kept)
        rg_info("session %llu: %llu bytes were copied to be there if they had to be sent again",
                (unsigned long long)worker->session, (unsigned long long)bulk.bulk_kept);
    uint64_t in, out;
    rg_gpudirect_statistics(worker, &in, &out);
    if (in || out)
        rg_info("session %llu: of these, %llu bytes went straight to GPUs' memory and %llu bytes straight "
                "from it",
                (unsigned long long)worker->session, (unsigned long long)in, (unsigned long long)out);
}

/* Says on the program's stderr that its user's GPU hours are used up, and when the session will end. */
static void tell_used_up(struct rg_worker *worker, int seconds)
{
    char text[256], end[80] = "this session may go on";
    if (seconds > 0 && seconds <= 120)
        snprintf(end, sizeof end, "this session ends in %d s", seconds);
    else if (seconds > 120)
        snprintf(end, sizeof end, "this session ends in %d minutes", seconds / 60);
    snprintf(
        text, sizeof text,
        "remote-gpu: your GPU hours on the server are used up: no new session can begin, and %s; 'remote-gpu "
        "quota' shows more\n",
        end);
    struct rg_notice notice = {.type = RG_NOTICE_OUTPUT, .arg = {2, strlen(text), 0}};
    (void)rg_worker_notice(worker, &notice, text, strlen(text), NULL, 0);
}

/* What the monitor wants of the session, if that is no end. */
static void take_command(struct rg_worker *worker, const struct signalfd_siginfo *info)
{
    const int command = info->ssi_code == SI_QUEUE ? info->ssi_int : RG_SUSPEND_UNTIL_USED;
    if (command > RG_SUSPEND_NOTHING && command <= RG_SUSPEND_LOOK)
        rg_suspend_command(worker, (enum rg_suspend_command)command);
}

/* What the monitor wants: NULL: the session goes on; else why it is to end. */
static const char *take_signal(struct rg_worker *worker, int signal_fd)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return "the server is shutting down";
    if ((int)info.ssi_signo == RG_SESSION_USED_UP_SIGNAL) {
        if (info.ssi_code == SI_QUEUE)
            tell_used_up(worker, info.ssi_int);
        return NULL;
    }
    if ((int)info.ssi_signo == RG_SUSPEND_SIGNAL) {
        take_command(worker, &info);
        return NULL;
    }
    if (info.ssi_code != SI_QUEUE)
        return "the server is shutting down";
    return rg_session_end_why((enum rg_session_end_reason)info.ssi_int);
}

/* Waits for the end of the session; a signal ends it, and the end of the connection that it began on. */
static int wait_for_end(struct rg_worker *worker, int over_fd, int signal_fd, int control_fd)
{
    for (;;) {
        struct pollfd fds[3] = {{.fd = over_fd, .events = POLLIN},
                                {.fd = signal_fd, .events = POLLIN},
                                {.fd = control_fd, .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return 1;
        if (fds[2].revents && !fds[0].revents) {
            /* The client's last words come by the connection that the session moved to. */
            control_fd = -1;
            if (poll(fds, 1, CONTROL_GRACE_MS) == 0)
                rg_worker_end(worker, 0, "the client has gone");
            continue;
        }
        if (fds[0].revents) {
            rg_share_leave();
            int code = rg_worker_wait(worker);
            rg_image_cache_settle(worker);
            tell_statistics(worker);
            return code;
        }
        const char *reason = fds[1].revents ? take_signal(worker, signal_fd) : NULL;
        if (reason) {
            /*
             * Whatever becomes of the last words to a client that may take nothing: the server may be gone
             * already.
             */
            (void)alarm(LAST_WORDS_S);
            rg_worker_end(worker, 0, "%s", reason);
            signal_fd = -1;
        }
    }
}

/* A warm worker's: returns when it has a session, as if it had been started with it; leaves if it gets none. */
static void wait_for_session(struct rg_worker_arguments *arguments, int signal_fd)
{
    struct rg_warm_session session;
    int leave_status = 1;
    const enum rg_status status = rg_warm_wait(&arguments->hello, &arguments->shape, arguments->contexts,
                                               arguments->warm_fd, signal_fd, &session, &leave_status);
    if (status == RG_ERR_CLOSED)
        _exit(leave_status);
    if (status != RG_OK) {
        rg_error("a warm worker cannot begin its session: %s", rg_status_string(status));
        _exit(1);
    }
    close(arguments->warm_fd);
    arguments->fd = session.fds[RG_WARM_CONNECTION];
    arguments->hand_fd = session.fds[RG_WARM_HAND];
    arguments->tls_fd = session.fds[RG_WARM_KEYS];
}

/* Before anything of a client's is looked at: what this process may, and what others may do to it. False: it was said why not. */
static bool confine(const struct rg_worker_arguments *arguments)
{
    static struct rg_sandbox_policy policy;
    if (!rg_sandbox_begin(arguments->sandbox, &policy))
        return false;
    rg_export_set_folder(policy.runtime);
    rg_nccl_set_driver(arguments->hello.driver);
    if (arguments->stack_limit)
        rg_address_space_limit_stack(arguments->stack_limit);
    const int inherited[] = {arguments->fd, arguments->hello.hello_fd, arguments->hand_fd,
                             arguments->warm_fd};
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
        if (inherited[i] >= 0)
            (void)fcntl(inherited[i], F_SETFD, FD_CLOEXEC);
    return true;
}

/* Signals come by a descriptor, which is returned, and from the monitor as soon as there is a share. -1: it was said why not. */
static int take_signals(const struct rg_worker_arguments *arguments)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, RG_SUSPEND_SIGNAL);
    sigaddset(&signals, RG_SESSION_USED_UP_SIGNAL);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (arguments->share_fd >= 0 && /* from here on the monitor may signal */
        rg_share_attach(arguments->share_fd, arguments->hello.n_devices, arguments->hello.session,
                        strcmp(arguments->hello.driver_kind, "soft") == 0) != RG_OK) {
        rg_error("session %llu: its share of the devices is unusable",
                 (unsigned long long)arguments->hello.session);
        return -1;
    }
    signal(SIGINT, SIG_IGN); /* of the daemon's terminal; it says what to do by SIGTERM */
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like others */
    const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (signal_fd < 0)
        rg_error("session %llu: no descriptors: %s", (unsigned long long)arguments->hello.session,
                 strerror(errno));
    return signal_fd;
}

/* The session's connections. */
struct connections {
    struct rg_conn *conn,
        *control; /* `control`: by which it began, where it has moved to another since; NULL: it has not */
    struct rg_channels channels;
    struct rg_resume resume;
};

/* Shakes hands with the client; leaves if there is no session. */
static void begin_session(struct rg_worker_arguments *arguments, struct connections *out)
{
    const unsigned long long session = arguments->hello.session;
    const enum rg_status status = rg_handed_adopt(arguments->fd, arguments->tls_fd, &out->conn);
    if (status == RG_ERR_CLOSED) {
        rg_info("session %llu: the client had gone before it began", session);
        exit(0);
    }
    if (status != RG_OK) {
        rg_error("session %llu: its connection is unusable: %s", session, rg_status_string(status));
        exit(1);
    }
    if (rg_hello_answer(&arguments->hello, &out->conn, &out->control, &out->channels, &out->resume) !=
        RG_OK) {
        rg_conn_destroy(out->conn);
        _exit(1);
    }
    if (!rg_channels_wrap(&out->channels, &out->conn) ||
        !rg_resume_begin(&out->resume, &out->channels, &out->conn, &out->control)) {
        rg_error("session %llu: no memory or threads for its connections (ulimit -v, -u)", session);
        _exit(1);
    }
    rg_conn_set_read_ahead(out->conn);
}

/* What the client and the server have agreed on. */
static void apply_hello(const struct rg_worker_arguments *arguments, struct rg_worker *worker)
{
    rg_primary_set_ready(worker, rg_prepared_contexts());
    if (arguments->hello.gpu_paths)
        rg_gpudirect_tell(worker);
    if (arguments->hello.times)
        rg_times_start(worker);
    rg_suspend_set_policy(
        worker, &(struct rg_suspend_policy){.tells = arguments->hello.said, .end_ns = rg_suspend_end_ns()});
}

/* The worker, which executes from here on; leaves if there is no memory for one. */
static struct rg_worker *start_worker(const struct rg_worker_arguments *arguments,
                                      struct connections *connections, int over_fd,
                                      struct rg_output_pipes *pipes)
{
    const unsigned long long session = arguments->hello.session;
    struct rg_worker *worker =
        rg_worker_create(connections->conn, arguments->hello.session, over_fd, rg_server_modules);
    if (worker && !arguments->hello.no_rdma)
        rg_peers_allow_rdma(worker);
    if (worker && !rg_channels_start(&connections->channels, &connections->resume, arguments->hand_fd,
                                     arguments->hello.session, worker)) {
        rg_error("session %llu: no memory or threads for its connections (ulimit -v, -u)", session);
        _exit(1);
    }
    if (worker)
        apply_hello(arguments, worker);
    if (!worker || rg_keep_alive_start(worker, arguments->hello.keep_alive_s) != RG_OK ||
        rg_output_start(worker, pipes) != RG_OK || rg_gate_attach(worker) != RG_OK ||
        rg_worker_start(worker) != RG_OK) {
        rg_error("session %llu: no memory or threads for it (ulimit -v, -u)", session);
        _exit(1);
    }
    return worker;
}

int main(int argc, char **argv)
{
    static struct connections connections;
    struct rg_worker_arguments arguments;
    struct rg_output_pipes pipes;
    rg_log_name("remote-gpud");
    rg_host_memory_yield();
    rg_log_limit_process(
        RG_LOG_PROCESS_LINES); /* the client can cause any line of this process, and of its driver */
    (void)setenv("SOFTGPU_LOG_LIMIT", "1", 1);
    /* As many queues as NVIDIA's driver can have: a stream that waits for the client holds up those that share its own. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!rg_worker_arguments_parse(argc, argv, &arguments)) {
        rg_error("worker is a part of remote-gpud and is started by it");
        return 125;
    }
    if (!confine(&arguments))
        return 1;
    const int signal_fd = take_signals(&arguments), over_fd = eventfd(0, EFD_CLOEXEC);
    if (signal_fd < 0)
        return 1;
    if (over_fd < 0 || rg_output_redirect(&pipes) != RG_OK) {
        rg_error("session %llu: no descriptors: %s", (unsigned long long)arguments.hello.session,
                 strerror(errno));
        return 1;
    }
    if (arguments.warm_fd >= 0)
        wait_for_session(&arguments, signal_fd);
    begin_session(&arguments, &connections);
    struct rg_worker *worker = start_worker(&arguments, &connections, over_fd, &pipes);
    /* No destructors: a driver's may wait for kernels that never end, and nothing here needs saving. */
    const int status =
        wait_for_end(worker, over_fd, signal_fd, connections.control ? rg_conn_fd(connections.control) : -1);
    rg_export_leave();
    rg_output_end();
    _exit(status);
}
