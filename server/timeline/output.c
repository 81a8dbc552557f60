/* output.c - the pipe that stands for standard output. See output.h. */
#include "server/timeline/output.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/cuda/kernel_messages.h"
#include "common/sync/scoped_lock.h"
#include "server/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIPE_SIZE  (1 << 20)
#define PART_SIZE  16384
#define LAST_LINES 20
#define LINE_SIZE  4096 /* longer lines of standard error are taken for none of the program's */

struct output {
    pthread_mutex_t lock;
    int out, errors; /* of rg_output_pipes; -1: not redirected */
    pthread_t thread;
    bool thread_runs;
    size_t n; /* bytes of a line of standard error whose end has not come */
    char line[LINE_SIZE];
};

/* For the end of the process, which a signal may bring. */
static int last_errors = -1, last_log = -1;

/* Of a sanitizer's runtime, where there is one. */
extern void __sanitizer_set_report_fd(void *fd) __attribute__((weak));

static bool make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) {
        rg_error("no pipe for the output of kernels: %s", strerror(errno));
        return false;
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return true;
}

enum rg_status rg_output_redirect(struct rg_output_pipes *pipes)
{
    int out[2], errors[2];
    fflush(stdout);
    if (!make_pipe(out) || !make_pipe(errors))
        return RG_ERR_IO;
    (void)fcntl(errors[1], F_SETFL, O_NONBLOCK); /* messages are lost rather than waited for */
    const bool placed = dup2(out[1], STDOUT_FILENO) >= 0;
    close(out[1]);
    const int log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (!placed || log < 0) {
        rg_error("standard output cannot be redirected: %s", strerror(errno));
        return RG_ERR_IO;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    *pipes = (struct rg_output_pipes){.out = out[0], .errors = errors[0], .errors_in = errors[1], .log = log};
    return RG_OK;
}

/* Sends text as what the program's device has printed, to its standard output (1) or error (2). */
static bool send_text(struct rg_worker *worker, unsigned to, const char *text, size_t size)
{
    struct rg_notice notice = {.type = RG_NOTICE_OUTPUT, .arg = {to, size, 0}};
    return rg_worker_notice(worker, &notice, text, size, NULL, 0) == RG_OK;
}

static void drain_out(struct rg_worker *worker, const struct output *output)
{
    char text[PART_SIZE];
    fflush(stdout);
    for (;;) {
        const ssize_t got = read(output->out, text, sizeof text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || !send_text(worker, 1, text, (size_t)got))
            break;
    }
}

static bool has(const char *line, size_t size, const char *part)
{
    return memmem(line, size, part, strlen(part)) != NULL;
}

/* Whether a line of standard error is about the program's own kernels: kernel_messages.h, or as drivers print assertions. */
static bool is_for_program(const char *line, size_t size)
{
    return (has(line, size, ": block: [") && has(line, size, "Assertion `")) ||
           has(line, size, RG_KERNEL_MESSAGE) || has(line, size, RG_KERNEL_SLOW_MESSAGE) ||
           has(line, size, RG_MODULE_MESSAGE);
}

/*
 * Kernels can make any line come here, as an assertion's text may have ends of lines: so it is said whose it is, and it counts towards
 * the limit of what this process says.
 */
static void log_line(const struct rg_worker *worker, const char *line, size_t size)
{
    const size_t text = line[size - 1] == '\n' ? size - 1 : size;
    rg_warn("session %llu: its driver says: %.*s", (unsigned long long)worker->session, (int)text, line);
}

/* Sends a line on its way. */
static void sort_line(struct rg_worker *worker, const char *line, size_t size)
{
    /* what the device cannot do, who runs the server is to know as well */
    if (!is_for_program(line, size) || !send_text(worker, 2, line, size) ||
        has(line, size, RG_KERNEL_MESSAGE) || has(line, size, RG_MODULE_MESSAGE))
        log_line(worker, line, size);
}

static void drain_errors(struct rg_worker *worker, struct output *output)
{
    for (;;) {
        const ssize_t got = read(output->errors, output->line + output->n, LINE_SIZE - output->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return;
        output->n += (size_t)got;
        const char *at = output->line, *const end = output->line + output->n;
        for (const char *next; (next = memchr(at, '\n', (size_t)(end - at))) != NULL; at = next + 1)
            sort_line(worker, at, (size_t)(next + 1 - at));
        output->n = (size_t)(end - at);
        memmove(output->line, at, output->n);
        if (output->n < LINE_SIZE)
            continue;
        log_line(worker, output->line, output->n);
        output->n = 0;
    }
}

void rg_output_drain(struct rg_worker *worker)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    if (output->out < 0)
        return;
    RG_SCOPED_LOCK(&output->lock); /* whoever has read sends before others find the pipes empty */
    drain_out(worker, output);
    drain_errors(worker, output);
}

static void *output_main(void *arg)
{
    struct rg_worker *worker = arg;
    const struct output *output = worker->state[RG_MODULE_OUTPUT];
    struct pollfd fds[2] = {{.fd = output->out, .events = POLLIN}, {.fd = output->errors, .events = POLLIN}};
    while (!rg_worker_over(worker)) {
        if (poll(fds, 2, -1) < 0) {
            if (errno != EINTR)
                break;
            continue;
        }
        if ((fds[0].revents | fds[1].revents) & POLLIN)
            rg_output_drain(worker);
        else if (fds[0].revents)
            break; /* no writer is left */
        else
            fds[1].fd = -1; /* nor of the other: a library has closed standard error */
    }
    return NULL;
}

/* Behind whose words it is; control characters become '?', as in log.c. Async-signal-safe. */
static void say_last_words(const char *text, size_t size)
{
    char line[LINE_SIZE] = "remote-gpud: the last words of a session's worker: ";
    size_t n = strlen(line);
    for (size_t i = 0; i < size && n < sizeof line - 1; i++)
        line[n++] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    line[n++] = '\n';
    (void)!write(last_log, line, n);
}

void rg_output_end(void)
{
    char text[PART_SIZE];
    const ssize_t got = last_errors >= 0 ? read(last_errors, text, sizeof text) : 0;
    const size_t size = got > 0 ? (size_t)got : 0;
    size_t at = 0, next;
    for (int lines = 0; lines < LAST_LINES && at < size; lines++, at = next + 1) {
        for (next = at; next < size && text[next] != '\n'; next++)
            ;
        say_last_words(text + at, next - at);
    }
}

/* The C library has told standard error why it ends the process. */
static void aborted(int signal_number)
{
    (void)signal_number; /* which comes again when this returns, and ends the process */
    rg_output_end();
}

enum rg_status rg_output_start(struct rg_worker *worker, const struct rg_output_pipes *pipes)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    const struct sigaction action = {.sa_handler = aborted, .sa_flags = SA_RESETHAND};
    output->out = pipes->out;
    output->errors = last_errors = pipes->errors;
    last_log = pipes->log;
    rg_log_set_fd(pipes->log);
    if (__sanitizer_set_report_fd) /* which ends the process at once behind its report */
        __sanitizer_set_report_fd((void *)(intptr_t)pipes->log);
    sigaction(SIGABRT, &action, NULL);
    if (dup2(pipes->errors_in, STDERR_FILENO) < 0)
        rg_warn("failed assertions of kernels go to this log: %s", strerror(errno));
    close(pipes->errors_in);
    const enum rg_status status = rg_thread_create(&output->thread, "rg-output", output_main, worker);
    output->thread_runs = status == RG_OK;
    return status;
}

static void init(struct rg_worker *worker)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    output->out = output->errors = -1;
}

static void fini(struct rg_worker *worker)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    /* The thread ends when the pipe's last writer closes it: the owner of the redirection sees to that. */
    if (output->thread_runs)
        pthread_join(output->thread, NULL);
    if (output->out >= 0)
        close(output->out);
    if (output->errors >= 0)
        close(output->errors);
}

const struct rg_server_module rg_output_module = {
    .size = sizeof(struct output), .locked = true, .init = init, .fini = fini};
