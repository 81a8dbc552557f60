/*
 * process.c - fork and exec, with a pipe that carries the reason if exec fails (it closes by itself if not).
 *
 * Other threads may be running, so the child calls nothing between fork and exec that is not
 * async-signal-safe.
 */
#include "server/daemon/process/process.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLED_NS 300000000ull /* for one that was killed: it is over as soon as it leaves the kernel */

/* Closes every descriptor from `first` on. Old kernels have no close_range: then up to the limit, one by one. */
static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd < (limit > 0 && limit < 65536 ? limit : 65536); fd++)
        close((int)fd);
}

/* In the child. Moves the descriptors to their places by way of numbers that are out of the way of all of them. */
static int place_descriptors(const struct rg_process *process, int *failure)
{
    enum { ASIDE = 3 + RG_PROCESS_FDS + 1 };
    int aside[RG_PROCESS_FDS];
    for (int i = 0; i < process->n_fds; i++)
        if ((aside[i] = fcntl(process->fds[i], F_DUPFD_CLOEXEC, ASIDE)) < 0)
            return -1;
    int failure_aside = fcntl(*failure, F_DUPFD_CLOEXEC, ASIDE);
    if (failure_aside < 0)
        return -1;
    for (int i = 0; i < process->n_fds; i++)
        if (dup2(aside[i], 3 + i) < 0)
            return -1;
    if (dup3(failure_aside, 3 + process->n_fds, O_CLOEXEC) < 0)
        return -1;
    *failure = 3 + process->n_fds;
    close_from(*failure + 1);
    return 0;
}

/* Why the child did not become the program; as one write, so whole or not at all. */
struct failure {
    int error;
    char step[64]; /* of the sandbox; "": of exec */
};

static _Noreturn void fail(int fd, int error, const char *step)
{
    struct failure failure = {.error = error};
    strncpy(failure.step, step, sizeof failure.step - 1);
    while (write(fd, &failure, sizeof failure) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* In the child: never returns. */
static _Noreturn void become(const struct rg_process *process, pid_t parent, int failure)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    const char *step = "";
    if (process->sandbox && rg_sandbox_enter(process->sandbox, &step) != 0)
        fail(failure, errno, step);
    /* not before: a change of the user makes the kernel forget it */
    if (process->death_signal) {
        prctl(PR_SET_PDEATHSIG, process->death_signal);
        if (getppid() != parent)
            _exit(125); /* it died before the line above */
    }
    struct rlimit stack;
    if (process->stack_limit && getrlimit(RLIMIT_STACK, &stack) == 0) {
        stack.rlim_cur = process->stack_limit < stack.rlim_max ? process->stack_limit : stack.rlim_max;
        (void)setrlimit(RLIMIT_STACK, &stack);
    }
    if (place_descriptors(process, &failure) != 0) /* a number that is not allowed is an invalid one */
        fail(failure, errno == EINVAL ? EMFILE : errno, "the limit of descriptors (ulimit -n)");
    execve(process->path, process->arguments, process->environment);
    fail(failure, errno, "");
}

/* Whether it has ended within that time. */
static bool has_ended(pid_t pid, uint64_t patience_ns, int *end)
{
    const uint64_t until = rg_now_ns() + patience_ns;
    for (;;) {
        const pid_t got = waitpid(pid, end, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (rg_now_ns() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

bool rg_process_has_ended(pid_t pid, const char *who, const char *lost, int *end)
{
    *end = 0;
    if (!has_ended(pid, 0, end))
        return false;
    if (WIFSIGNALED(*end))
        rg_warn("%s was ended by signal %d (%s); another takes its place, %s", who, WTERMSIG(*end),
                strsignal(WTERMSIG(*end)), lost);
    else
        rg_warn("%s ended with status %d; another takes its place, %s", who, WEXITSTATUS(*end), lost);
    return true;
}

bool rg_process_end(pid_t pid, unsigned grace_ms, int *end)
{
    *end = 0;
    if (grace_ms && has_ended(pid, grace_ms * 1000000ull, end))
        return true;
    kill(pid, SIGKILL);
    return has_ended(pid, KILLED_NS, end);
}

enum rg_status rg_process_start(const struct rg_process *process, pid_t *pid, char *why, size_t why_size)
{
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no pipe: %s", strerror(errno));
    /* No signal may find the child with this process's handlers. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0)
        become(process, parent, failure[1]);
    int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(failure[1]);
    if (child < 0) {
        close(failure[0]);
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no new process: %s%s", strerror(fork_error),
                         fork_error == EAGAIN ? " (ulimit -u, TasksMax=)" : "");
    }
    struct failure told;
    ssize_t got;
    while ((got = read(failure[0], &told, sizeof told)) < 0 && errno == EINTR)
        ;
    close(failure[0]);
    if (got == (ssize_t)sizeof told) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        rg_explain(why, why_size, "%s: %s%s%s", process->path, told.step, told.step[0] ? ": " : "",
                   strerror(told.error));
        return told.error == ENOENT && !told.step[0] ? RG_ERR_NOT_FOUND : RG_ERR_IO;
    }
    *pid = child;
    return RG_OK;
}
