/* output.c - the pipe that stands for standard output. See output.h. */
#include "server/timeline/output.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIPE_SIZE (1 << 20)
#define PART_SIZE 16384

struct output {
    pthread_mutex_t lock;
    int fd; /* read end of what the driver prints; -1: not redirected */
    pthread_t thread;
    bool thread_runs;
};

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
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    if (output->fd < 0)
        return;
    fflush(stdout);
    char text[PART_SIZE];
    RG_SCOPED_LOCK(&output->lock); /* whoever has read sends before others find the pipe empty */
    for (;;) {
        const ssize_t got = read(output->fd, text, sizeof text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        struct rg_notice notice = {.type = RG_NOTICE_OUTPUT, .arg = {1, (uint64_t)got, 0}};
        if (rg_worker_notice(worker, &notice, text, (size_t)got, NULL, 0) != RG_OK)
            break;
    }
}

static void *output_main(void *arg)
{
    struct rg_worker *worker = arg;
    const struct output *output = worker->state[RG_MODULE_OUTPUT];
    while (!rg_worker_over(worker)) {
        struct pollfd poll_fd = {.fd = output->fd, .events = POLLIN};
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
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    output->fd = fd;
    const enum rg_status status = rg_thread_create(&output->thread, "rg-output", output_main, worker);
    output->thread_runs = status == RG_OK;
    return status;
}

static void init(struct rg_worker *worker)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    output->fd = -1;
}

static void fini(struct rg_worker *worker)
{
    struct output *output = worker->state[RG_MODULE_OUTPUT];
    /* The thread ends when the pipe's last writer closes it: the owner of the redirection sees to that. */
    if (output->thread_runs)
        pthread_join(output->thread, NULL);
    if (output->fd >= 0)
        close(output->fd);
}

const struct rg_server_module rg_output_module = {
    .size = sizeof(struct output), .locked = true, .init = init, .fini = fini};
