/* output.c - the pipe that stands for standard output. See output.h. */
#include "server/timeline/output.h"

#include "common/base/log.h"
#include "common/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIPE_SIZE (1 << 20)
#define PART_SIZE 16384

enum rg_status rg_output_redirect(int *out)
{
    int ends[2];
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        rg_error("no pipe for the output of kernels: %s", strerror(errno));
        return RG_ERR_IO;
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const bool placed = dup2(ends[1], STDOUT_FILENO) >= 0;
    close(ends[1]);
    if (!placed) {
        rg_error("standard output cannot be redirected: %s", strerror(errno));
        close(ends[0]);
        return RG_ERR_IO;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    *out = ends[0];
    return RG_OK;
}

void rg_output_drain(struct rg_worker *worker)
{
    if (worker->output_fd < 0)
        return;
    fflush(stdout);
    char text[PART_SIZE];
    pthread_mutex_lock(&worker->output_lock); /* whoever has read sends before others find the pipe empty */
    for (;;) {
        const ssize_t got = read(worker->output_fd, text, sizeof text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        struct rg_notice notice = {.type = RG_NOTICE_OUTPUT, .arg = {1, (uint64_t)got, 0}};
        if (rg_worker_notice(worker, &notice, text, (size_t)got, NULL, 0) != RG_OK)
            break;
    }
    pthread_mutex_unlock(&worker->output_lock);
}

static void *output_main(void *arg)
{
    struct rg_worker *worker = arg;
    while (!rg_worker_over(worker)) {
        struct pollfd poll_fd = {.fd = worker->output_fd, .events = POLLIN};
        if (poll(&poll_fd, 1, -1) < 0 && errno != EINTR)
            break;
        if (poll_fd.revents & POLLIN)
            rg_output_drain(worker);
        else if (poll_fd.revents)
            break; /* no writer is left */
    }
    return NULL;
}

enum rg_status rg_output_start(struct rg_worker *worker, int fd)
{
    worker->output_fd = fd;
    const enum rg_status status = rg_thread_create(&worker->output_thread, "rg-output", output_main, worker);
    worker->output_thread_runs = status == RG_OK;
    return status;
}

void rg_output_fini(struct rg_worker *worker)
{
    /* The thread ends when the last writer closes its end of the pipe: the owner of the redirection sees to that. */
    if (worker->output_thread_runs)
        pthread_join(worker->output_thread, NULL);
    if (worker->output_fd >= 0)
        close(worker->output_fd);
}
