/* perftest.c - see perftest.h. */
#include "client/cli/netperf/perftest.h"

#include "client/cli/base/perf_link.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/netperf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FIGURES = 12,
    OUTPUT = 16384,
    RUN_MS = 60000,       /* one run of a program */
    LISTENING_MS = 15000, /* for the server's end to be there */
    PAUSE_MS = 100,
    MIB = 1 << 20, /* perftest's MB */
    RG_NETPERF_WHY = 256,
};

/* Columns of the figures: size, iterations, and then */
enum {
    LAT_LEAST = 2,
    LAT_TYPICAL = 4,
    LAT_P99 = 7,
    LAT_P999 = 8,
    LAT_COLUMNS = 9,
    BW_AVERAGE = 3,
    BW_COLUMNS = 4
};

/*
 * Reads the last row of figures from what a program of perftest printed: numbers alone. Returns how many it
 * has, at most `max`.
 */
static unsigned read_row(const char *output, double *out, unsigned max)
{
    unsigned found = 0;
    for (const char *line = output; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        double values[FIGURES];
        unsigned n = 0;
        const char *at = line;
        for (;;) {
            char *end;
            at += strspn(at, " \t\r");
            if (*at == '\n' || *at == '\0')
                break;
            double value = strtod(at, &end);
            if (end == at || !isdigit((unsigned char)*at) || (*end && !isspace((unsigned char)*end))) {
                n = 0;
                break;
            }
            if (n < FIGURES)
                values[n++] = value;
            at = end;
        }
        if (n >= BW_COLUMNS) {
            found = n < max ? n : max;
            memcpy(out, values, found * sizeof *out);
        }
    }
    return found;
}

/* Reads all that comes until the end or the deadline; false: the deadline. */
static bool read_output(int fd, char *output, uint64_t deadline)
{
    size_t size = 0;
    for (;;) {
        uint64_t now = rg_now_ns();
        if (now >= deadline)
            return false;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((deadline - now) / 1000000u) + 1) <= 0)
            continue;
        char rest[512];
        const bool full = size >= OUTPUT - 1;
        ssize_t n = read(fd, full ? rest : output + size, full ? sizeof rest : OUTPUT - 1 - size);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        size += n > 0 && !full ? (size_t)n : 0;
        output[size] = '\0';
    }
    return true;
}

/* Runs a program; 0 or the errno of why it cannot be. *output: what it wrote; *good: it ended well. */
static int run(const char *const *words, char *output, bool *good)
{
    int ends[2];
    output[0] = '\0';
    *good = false;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
        error = posix_spawnp(&pid, words[0], &actions, NULL, (char **)(uintptr_t)words, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (error == 0) {
        int status = 0;
        if (!read_output(ends[0], output, rg_now_ns() + RUN_MS * 1000000ull))
            kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        *good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    close(ends[0]);
    return error;
}

/* One program, both ends; the number of figures, 0 with a sentence. */
static unsigned measure(struct rg_perf_link *link, const struct rg_netperf_perftest *request,
                        const char *host, double *figures, char *why, size_t why_size)
{
    uint32_t port;
    char text[3][RG_NETPERF_WORD];
    const char *words[RG_NETPERF_WORDS];
    rg_netperf_command(request, 0, text, words);
    const char *name = words[0];
    int error = rg_perf_link_perftest(link, request, &port);
    if (error) {
        rg_explain(why, why_size, "%s on the server: %s", name,
                   error == ENOENT   ? "not installed there (package perftest)"
                   : error == EPERM  ? "its operator allows no RDMA here (--rdma, --encrypt of remote-gpud)"
                   : error == EPROTO ? "no answer: the server has ended the measurement (after 2 minutes), "
                                       "or its release cannot start it"
                                     : strerror(error));
        return 0;
    }
    rg_netperf_command(request, port, text, words);
    unsigned n_words = 0;
    while (words[n_words])
        n_words++;
    words[n_words] = host; /* there is room for it (RG_NETPERF_WORDS) */
    words[n_words + 1] = NULL;
    char *output = malloc(OUTPUT);
    if (!output) {
        rg_explain(why, why_size, "out of memory");
        return 0;
    }
    const uint64_t until = rg_now_ns() + LISTENING_MS * 1000000ull;
    unsigned n = 0;
    bool good = false;
    bool reached;
    do {
        poll(NULL, 0, PAUSE_MS);
        error = run(words, output, &good);
        n = good ? read_row(output, figures, FIGURES) : 0;
        reached =
            strstr(output, "#bytes") != NULL; /* the server's end serves one that reaches it, and ends */
    } while (error == 0 && n == 0 && !reached && rg_now_ns() < until);
    if (error)
        rg_explain(why, why_size, "%s: %s", name,
                   error == ENOENT ? "not installed here (package perftest)" : strerror(error));
    else if (n == 0)
        rg_explain(why, why_size, "%s ended without figures (REMOTE_GPU_LOG=debug shows what it said)", name);
    if (!error && n == 0)
        rg_debug("%s", output);
    free(output);
    return n;
}

/*
 * Bytes a second, 0 with a sentence. The programs keep many messages under way; a device that loses some of
 * them (Soft-RoCE, of large ones) has them end without figures: then it is one at a time.
 */
static double measure_bandwidth(struct rg_perf_link *link, struct rg_netperf_perftest *request,
                                const char *host, char *why, size_t why_size)
{
    char own[RG_NETPERF_WHY] = "";
    double figures[FIGURES];
    for (request->single = 0; request->single <= 1; request->single++)
        if (measure(link, request, host, figures, own, sizeof own) >= BW_COLUMNS && figures[BW_AVERAGE] > 0)
            return figures[BW_AVERAGE] * MIB;
    rg_explain(why, why_size, "messages of %u bytes: %s", (unsigned)request->size,
               *own ? own : "perftest's figures are not as they were expected");
    return 0;
}

/* One size; false: nothing of it. A bandwidth that could not be had is 0, with a sentence. */
static bool measure_size(struct rg_perf_link *link, struct rg_netperf_point *point, const char *host,
                         bool quick, char *why, size_t why_size)
{
    struct rg_netperf_perftest request = {.program = RG_NETPERF_SEND_LAT,
                                          .size = (uint32_t)point->size,
                                          .iterations = point->size > 65536 ? 20
                                                        : quick             ? 100
                                                                            : 2000};
    double figures[FIGURES];
    if (measure(link, &request, host, figures, why, why_size) < LAT_COLUMNS)
        return false;
    point->latency = (struct rg_latency){.samples = request.iterations,
                                         .min_us = 2 * figures[LAT_LEAST],
                                         .p50_us = 2 * figures[LAT_TYPICAL],
                                         .p99_us = 2 * figures[LAT_P99],
                                         .p999_us = 2 * figures[LAT_P999]};
    request.iterations = point->size > 65536 ? 20 : quick ? 200 : 2000;
    request.program = RG_NETPERF_WRITE_BW;
    point->bandwidth.to_server = measure_bandwidth(link, &request, host, why, why_size);
    request.program = RG_NETPERF_READ_BW;
    point->bandwidth.from_server = measure_bandwidth(link, &request, host, why, why_size);
    return true;
}

void rg_netperf_perftest(struct rg_netperf_link *out, const char *server, const char *host,
                         const size_t *sizes, unsigned n, bool quick, uint64_t timeout_ns)
{
    struct rg_perf_link link;
    out->kind = RG_PERF_LINK_PERFTEST;
    snprintf(out->name, sizeof out->name, "perftest %.60s", host);
    if (rg_perf_link_open(&link, server, RG_PERF_LINK_TCP, 0, timeout_ns, out->failed, sizeof out->failed) !=
        RG_OK)
        return;
    for (unsigned i = 0; i < n && !out->failed[0]; i++) {
        struct rg_netperf_point *point = &out->points[out->n];
        point->size = sizes[i];
        if (measure_size(&link, point, host, quick, out->failed, sizeof out->failed))
            out->n++;
        else if (!out->failed[0])
            rg_explain(out->failed, sizeof out->failed, "perftest's figures are not as they were expected");
    }
    rg_perf_link_close(&link);
}
