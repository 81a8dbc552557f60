/*
 * compare.c - remote-gpu compare: the same command over each transport in turn, and what that meant for it.
 * Where this machine has several RDMA devices, the command runs over RDMA as a session would choose, and over
 * each of them alone.
 *
 * The command runs as `remote-gpu run` would run it; its counters come from the statistics that the client
 * core writes (client/core/stats.c), its CPU time from the kernel. What it prints goes to stderr, so that
 * stdout holds the table alone.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/environment.h"
#include "client/cli/base/output.h"
#include "client/cli/base/perf_link.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "transport/topology/devices.h"
#include "transport/topology/rails.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS_MAX = 3 + RG_RAILS_MAX, STATISTICS_ROOM = 65536 };

struct run {
    double seconds, waited, cpu;
    double round_trips, sent, received, calls;
    char transport[64]; /* as the command's processes had it; "": none used CUDA */
};

struct row {
    char name[160];
    const char *transport; /* of `run --transport` */
    const char *link;      /* a filter to describe another network, or NULL */
    char device[64];       /* the RDMA device that is used alone; "": as a session chooses */
    char skipped[512];     /* why it was not run; "": it was */
    struct run typical;    /* the one of median time */
    double fastest, slowest;
};

static void add_up(const char *line, struct run *out)
{
    json_t *one = json_loads(line, 0, NULL);
    const struct {
        const char *name;
        double *to;
    } fields[] = {{"waited", &out->waited},
                  {"round_trips", &out->round_trips},
                  {"bytes_sent", &out->sent},
                  {"bytes_received", &out->received},
                  {"calls", &out->calls}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i].to += json_number_value(json_object_get(one, fields[i].name));
    const char *transport = json_string_value(json_object_get(one, "transport"));
    if (transport)
        snprintf(out->transport, sizeof out->transport, "%s", transport);
    json_decref(one);
}

/* Every process of the command that used CUDA has left a line. */
static void read_statistics(const char *path, struct run *out)
{
    char line[2048];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        add_up(line, out);
    if (file)
        fclose(file);
}

static _Noreturn void become(const struct rg_cli_settings *settings, const struct row *row, const char *stats,
                             char **argv)
{
    struct rg_cli_settings mine = *settings;
    mine.transport = (char *)(uintptr_t)row->transport;
    mine.stats = (char *)(uintptr_t)stats;
    if (rg_cli_set_environment(&mine, settings->server.items[0]) != RG_OK ||
        (row->link && setenv("REMOTE_GPU_FILTER", row->link, 1) != 0) ||
        (row->device[0] && setenv("REMOTE_GPU_RAILS", row->device, 1) != 0))
        _exit(RG_EXIT_FAILURE);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    dup2(2, 1);
    execvp(argv[0], argv);
    int error = errno;
    rg_error("cannot run %s: %s", argv[0], strerror(error));
    _exit(error == ENOENT || error == ENOTDIR ? RG_EXIT_NOT_FOUND : RG_EXIT_NOT_EXECUTABLE);
}

/* A command that could not write what it counted would look like one that does not use CUDA. */
static bool has_room(int file)
{
    struct statvfs where;
    return fstatvfs(file, &where) != 0 || where.f_bavail * where.f_frsize >= STATISTICS_ROOM;
}

/* Runs the command once; returns its exit status as a shell would. */
static int run_once(const struct rg_cli_settings *settings, const struct row *row, char **argv,
                    struct run *out)
{
    char path[PATH_MAX];
    int file = rg_file_temporary("remote-gpu-compare", path, sizeof path), end = 0;
    if (file < 0) {
        rg_error("no temporary file in $TMPDIR, or /tmp: %s", strerror(errno));
        return RG_EXIT_FAILURE;
    }
    const bool room = has_room(file);
    close(file);
    if (!room) {
        rg_error("no room for the temporary file %s; TMPDIR names another folder", path);
        unlink(path);
        return RG_EXIT_FAILURE;
    }
    *out = (struct run){0};
    const uint64_t began = rg_now_ns();
    pid_t child = fork();
    if (child == 0)
        become(settings, row, path, argv);
    if (child < 0) {
        rg_error("cannot run %s: %s", argv[0], strerror(errno));
        unlink(path);
        return RG_EXIT_FAILURE;
    }
    struct rusage usage = {0};
    while (wait4(child, &end, 0, &usage) < 0 && errno == EINTR)
        ;
    out->seconds = (double)(rg_now_ns() - began) / 1e9;
    out->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    read_statistics(path, out);
    unlink(path);
    return WIFSIGNALED(end) ? 128 + WTERMSIG(end) : WEXITSTATUS(end);
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct run *)a)->seconds, y = ((const struct run *)b)->seconds;
    return (x > y) - (x < y);
}

static int run_row(const struct rg_cli_settings *settings, struct row *row, char **argv)
{
    const unsigned n = (unsigned)settings->runs;
    struct run *runs = calloc(n, sizeof *runs);
    int status = runs ? 0 : RG_EXIT_FAILURE;
    for (unsigned i = 0; i < n && status == 0; i++)
        status = run_once(settings, row, argv, &runs[i]);
    if (status == 0) {
        qsort(runs, n, sizeof *runs, by_time);
        row->typical = runs[n / 2];
        row->fastest = runs[0].seconds;
        row->slowest = runs[n - 1].seconds;
    }
    free(runs);
    return status;
}

/* A row of RDMA takes part if a connection over it can be made now. */
static void try_rdma(const struct rg_cli_settings *settings, struct row *row)
{
    struct rg_rdma_address any;
    struct rg_perf_link link;
    if (rg_rdma_addresses(&any, 1) == 0) {
        snprintf(row->skipped, sizeof row->skipped,
                 "this machine has no RDMA device with an active port and an address");
        return;
    }
    if (row->device[0])
        setenv("REMOTE_GPU_RAILS", row->device, 1);
    /* by a device of its own, whichever of the server's addresses that reaches */
    if (rg_perf_link_open(&link, settings->server.items[0], RG_PERF_LINK_RDMA, row->device[0] ? UINT_MAX : 0,
                          settings->timeout_ns, row->skipped, sizeof row->skipped) == RG_OK)
        rg_perf_link_close(&link);
    else if (!row->skipped[0])
        snprintf(row->skipped, sizeof row->skipped, "it is not available; see remote-gpu doctor");
    if (row->device[0])
        unsetenv("REMOTE_GPU_RAILS");
}

/* A row for each RDMA device, if there are several and the user has not named any; returns how many rows
 * there are. */
static unsigned add_devices(struct row *rows, unsigned n)
{
    struct rg_rdma_address found[RG_RAILS_MAX];
    const char *named = secure_getenv("REMOTE_GPU_RAILS");
    const unsigned n_found = named && *named ? 0 : rg_rdma_addresses(found, RG_RAILS_MAX);
    const unsigned first = n;
    for (unsigned i = 0; i < n_found; i++) {
        bool known = false;
        for (unsigned k = first; k < n; k++)
            known |= strcmp(rows[k].device, found[i].device) == 0;
        if (known)
            continue;
        rows[n] = (struct row){.transport = "rdma"};
        snprintf(rows[n].name, sizeof rows[n].name, "rdma, %s", found[i].device);
        snprintf(rows[n].device, sizeof rows[n].device, "%s", found[i].device);
        n++;
    }
    return n == first + 1 ? first : n; /* the one there is has a row already */
}

static void print_table(const struct row *rows, unsigned n, const struct rg_cli_settings *settings)
{
    printf("%-28s %9s %9s %11s %10s %10s %9s\n", "", "time s", "waited s", "round trips", "sent MB",
           "recv MB", "CPU s");
    for (unsigned i = 0; i < n; i++) {
        const struct run *run = &rows[i].typical;
        if (rows[i].skipped[0])
            printf("%-28s not run: %s\n", rows[i].name, rows[i].skipped);
        else
            printf("%-28s %9.3f %9.3f %11.0f %10.2f %10.2f %9.3f%s\n", rows[i].name, run->seconds,
                   run->waited, run->round_trips, run->sent / 1e6, run->received / 1e6, run->cpu,
                   run->transport[0] ? "" : "  (no CUDA used)");
    }
    if (settings->runs > 1)
        printf("\nOf %d runs each, the one of median time.\n", (int)settings->runs);
}

static bool print_json(const struct row *rows, unsigned n, const struct rg_cli_settings *settings)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++) {
        const struct run *run = &rows[i].typical;
        json_t *one = json_pack("{s:s}", "name", rows[i].name);
        if (rows[i].device[0])
            json_object_set_new(one, "device", json_string(rows[i].device));
        if (rows[i].skipped[0])
            json_object_set_new(one, "skipped", json_string(rows[i].skipped));
        else
            json_object_update_new(
                one,
                json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "transport", run->transport,
                          "seconds", run->seconds, "fastest", rows[i].fastest, "slowest", rows[i].slowest,
                          "waited", run->waited, "cpu", run->cpu, "calls", (json_int_t)run->calls,
                          "round_trips", (json_int_t)run->round_trips, "bytes_sent", (json_int_t)run->sent,
                          "bytes_received", (json_int_t)run->received));
        rg_cli_json_add(&list, one);
    }
    return rg_cli_print_json(json_pack("{s:s, s:i, s:o}", "server", settings->server.items[0], "runs",
                                       (int)settings->runs, "transports", list));
}

int rg_cli_compare(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (argc == 0) {
        rg_error("which command? see remote-gpu compare --help");
        return RG_EXIT_FAILURE;
    }
    if (settings->server.n != 1) {
        rg_error("compare runs on one server; name it with -s HOST");
        return RG_EXIT_FAILURE;
    }
    char filter[256] = "", why[256] = "";
    if (settings->link &&
        rg_perf_link_filter(settings->link, filter, sizeof filter, why, sizeof why) != RG_OK) {
        rg_error("--link: %s", why);
        return RG_EXIT_FAILURE;
    }
    struct row rows[ROWS_MAX] = {{.name = "tcp", .transport = "tcp"}, {.name = "rdma", .transport = "rdma"}};
    unsigned n = add_devices(rows, 2);
    for (unsigned i = 1; i < n; i++)
        try_rdma(settings, &rows[i]);
    if (settings->link) {
        rows[n] = (struct row){.transport = "tcp", .link = filter};
        snprintf(rows[n].name, sizeof rows[n].name, "tcp, %.120s", settings->link);
        n++;
    }
    signal(SIGINT, SIG_IGN); /* the terminal's goes to the command, whose end ends this */
    signal(SIGQUIT, SIG_IGN);
    for (unsigned i = 0; i < n; i++) {
        int status = rows[i].skipped[0] ? 0 : run_row(settings, &rows[i], argv);
        if (status != 0) {
            rg_error("over %s the command ended with status %d", rows[i].name, status);
            return status;
        }
    }
    if (settings->json)
        return print_json(rows, n, settings) ? 0 : RG_EXIT_FAILURE;
    print_table(rows, n, settings);
    return 0;
}
