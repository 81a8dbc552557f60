/*
 * local_server.c - the private server of `remote-gpu run --local`, and the command as our child.
 *
 * The server's socket is an abstract one with an unguessable name: nothing is left in the file system however
 * we end, and the server checks that who connects is the same user. It is in a process group of its own, so
 * that Ctrl-C at the terminal reaches the command alone and the command may handle it.
 */
#include "client/cli/base/local_server.h"

#include "client/cli/base/cli.h"
#include "common/base/log.h"
#include "common/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void become_server(const char *program, const char *address, const char *driver, int ready,
                                    pid_t parent)
{
    char ready_text[16];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(RG_EXIT_FAILURE);
    setpgid(0, 0);
    fcntl(ready, F_SETFD, 0);
    snprintf(ready_text, sizeof ready_text, "%d", ready);
    unsetenv("CUDA_VISIBLE_DEVICES"); /* it is about the devices that the command sees */
    const char *level = getenv("REMOTE_GPU_LOG");
    execl(program, program, "--listen", address, "--driver", driver, "--ready-fd", ready_text, "--grace", "1",
          "--log", level && *level ? level : "warn", "--config", "/dev/null", "--accounts", "off",
          "--no-grants", (char *)NULL);
    rg_error("cannot start %s: %s", program, strerror(errno));
    _exit(RG_EXIT_FAILURE);
}

/* Whether the server wrote its address before it closed the pipe. */
static bool wait_ready(int fd)
{
    char text[256];
    size_t all = 0;
    for (;;) {
        ssize_t got = read(fd, text, sizeof text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return all > 0;
        all += (size_t)got;
    }
}

enum rg_status rg_local_server_start(struct rg_local_server *server, const char *driver)
{
    char program[PATH_MAX];
    uint64_t secret[2];
    int ready[2];
    if (rg_path_program("remote-gpud", program, sizeof program) != RG_OK || access(program, X_OK) != 0) {
        rg_error("--local needs remote-gpud beside remote-gpu, and it is not there: install the server and "
                 "the software device too (packages remote-gpu-server and remote-gpu-soft; by pip, "
                 "remote-gpu[soft])");
        return RG_ERR_NOT_FOUND;
    }
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret || pipe2(ready, O_CLOEXEC) != 0) {
        rg_error("cannot start a server: %s", strerror(errno));
        return RG_ERR_IO;
    }
    snprintf(server->address, sizeof server->address, "unix:@remote-gpu-%d-%016llx%016llx", (int)getpid(),
             (unsigned long long)secret[0], (unsigned long long)secret[1]);
    pid_t parent = getpid();
    server->pid = fork();
    if (server->pid == 0)
        become_server(program, server->address, driver, ready[1], parent);
    close(ready[1]);
    if (server->pid < 0) {
        close(ready[0]);
        rg_error("cannot start a server: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    bool listens = wait_ready(ready[0]);
    close(ready[0]);
    if (listens)
        return RG_OK;
    kill(server->pid, SIGTERM);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    rg_error("the private server did not start (its message is above)");
    return RG_ERR_UNREACHABLE;
}

void rg_local_server_stop(struct rg_local_server *server)
{
    kill(server->pid, SIGTERM);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* --- the command ------------------------------------------------------------------------------------------ */

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
#define N_FORWARDED (sizeof forwarded / sizeof forwarded[0])

static volatile sig_atomic_t command_pid;

static void forward(int number, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno;
    /* What the terminal sends, it sends to the command as well: both are in its foreground group. */
    if (info->si_code != SI_KERNEL && command_pid > 0)
        kill((pid_t)command_pid, number);
    errno = saved;
}

static _Noreturn void become_command(char **argv, const sigset_t *mask, const struct sigaction *before,
                                     const struct sigaction *children)
{
    for (size_t i = 0; i < N_FORWARDED; i++)
        sigaction(forwarded[i], &before[i], NULL);
    sigaction(SIGCHLD, children, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    int error = errno;
    rg_error("cannot run %s: %s", argv[0], strerror(error));
    _exit(error == ENOENT || error == ENOTDIR ? RG_EXIT_NOT_FOUND : RG_EXIT_NOT_EXECUTABLE);
}

int rg_local_server_run(char **argv)
{
    struct sigaction before[N_FORWARDED],
        action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
    /* Where it is ignored nobody learns how a child ended; that may be inherited. */
    struct sigaction children, standard = {.sa_handler = SIG_DFL};
    sigset_t all, mask;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask); /* until command_pid is known */
    sigaction(SIGCHLD, &standard, &children);
    for (size_t i = 0; i < N_FORWARDED; i++) {
        sigaction(forwarded[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* nohup and the like stay in force for both */
            sigaction(forwarded[i], &action, NULL);
    }
    pid_t child = fork();
    if (child == 0)
        become_command(argv, &mask, before, &children);
    command_pid = (sig_atomic_t)child;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (child < 0) {
        rg_error("cannot run %s: %s", argv[0], strerror(errno));
        return RG_EXIT_FAILURE;
    }
    /* Its number stays its own until it is reaped: what is forwarded until then cannot reach another
     * process. */
    siginfo_t ended;
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    command_pid = 0;
    int end = 0;
    while (waitpid(child, &end, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(end) ? 128 + WTERMSIG(end) : WEXITSTATUS(end);
}
