/*
 * predict.c - remote-gpu predict: reads a trace, simulates it over networks, shows what comes out. The
 * simulation is in client/predict/.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/predict/chart.h"
#include "client/predict/simulate.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER     (1u << 20) /* bytes that a socket takes beyond what has left */
#define GIGABIT    125000000ull
#define N_NETWORKS (sizeof networks / sizeof *networks)
#define N_RTTS     (sizeof rtts_us / sizeof *rtts_us)
#define N_RATES    (sizeof rates / sizeof *rates)

/* Typical values, from the literature; docs/prediction.md says which. Measure yours with remote-gpu
 * netperf. */
static const struct {
    const char *name;
    double rtt_us;
    uint64_t bytes_per_second;
} networks[] = {
    {"TCP, 10 GbE", 60, 9400000000 / 8},       {"TCP, 25 GbE", 45, 23500000000 / 8},
    {"PVRDMA, 40 GbE", 14, 37000000000 / 8},   {"RoCE, 100 GbE", 6, 92000000000 / 8},
    {"TCP, other site", 1000, 1000000000 / 8},
};
static const double rtts_us[] = {5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
static const struct {
    const char *name;
    uint64_t bytes_per_second;
} rates[] = {{"1 Gb/s", GIGABIT},
             {"10 Gb/s", 10 * GIGABIT},
             {"25 Gb/s", 25 * GIGABIT},
             {"40 Gb/s", 40 * GIGABIT},
             {"100 Gb/s", 100 * GIGABIT}};

struct prediction {
    const struct rg_cli_settings *settings;
    struct rg_trace trace;
    struct rg_model model;
    struct rg_wire wire; /* the network that was asked for */
    uint64_t base;       /* ns: what the simulation takes over the recorded network */
    double grid[N_RATES * N_RTTS], marks[N_NETWORKS]; /* slow-downs */
};

/* --- the network ---------------------------------------------------------------------------------------- */

/* A round-trip time as netperf would measure it: what the recorded link took is part of it. */
static uint64_t oneway_of(const struct rg_model *model, uint64_t rtt_ns)
{
    return rtt_ns > model->round_trip ? (rtt_ns - model->round_trip) / 2 : 0;
}

/* As the filter delay is told. */
static bool read_link(const char *text, uint64_t *oneway_ns, uint64_t *bytes_per_second, char *why,
                      size_t why_size)
{
    RG_CLEANUP_FREE char *copy = strdup(text);
    for (char *rest = copy, *option; rest && (option = strsep(&rest, ","));) {
        enum rg_status status = RG_ERR_INVALID;
        if (strncmp(option, "oneway=", 7) == 0)
            status = rg_parse_duration(option + 7, oneway_ns, why, why_size);
        else if (strncmp(option, "bandwidth=", 10) == 0)
            status = rg_parse_bandwidth(option + 10, bytes_per_second, why, why_size);
        else
            rg_explain(why, why_size, "a link has no '%s' (oneway=, bandwidth=)", option);
        if (status != RG_OK)
            return false;
    }
    return copy != NULL;
}

static bool read_wire(const struct rg_cli_settings *settings, const struct rg_model *model,
                      struct rg_wire *wire, char *why, size_t why_size)
{
    *wire = (struct rg_wire){.buffer = BUFFER};
    if (settings->link && (settings->rtt || settings->bandwidth)) {
        rg_explain(why, why_size, "--link and --rtt or --bandwidth say the same; use one");
        return false;
    }
    if (settings->server_link && !read_link(settings->server_link, &wire->between_oneway_ns,
                                            &wire->between_bytes_per_second, why, why_size))
        return false;
    if (settings->link) {
        wire->whole = true;
        return read_link(settings->link, &wire->oneway_ns, &wire->bytes_per_second, why, why_size);
    }
    uint64_t rtt = 0;
    const bool added = settings->rtt && *settings->rtt == '+';
    if (settings->rtt && rg_parse_duration(settings->rtt + added, &rtt, why, why_size) != RG_OK)
        return false;
    if (settings->bandwidth &&
        rg_parse_bandwidth(settings->bandwidth, &wire->bytes_per_second, why, why_size) != RG_OK)
        return false;
    wire->oneway_ns = added ? rtt / 2 : settings->rtt ? oneway_of(model, rtt) : 0;
    if (settings->rtt && !added && rtt < model->round_trip)
        rg_warn(
            "the recorded network's round trips took %.1f us; what takes less is not known from the trace",
            (double)model->round_trip / 1e3);
    return true;
}

/* --- the figures ---------------------------------------------------------------------------------------- */

static bool simulate(const struct prediction *p, const struct rg_wire *wire, uint64_t off,
                     struct rg_outcome *out)
{
    if (rg_simulate(&p->model, wire, off, out) == RG_OK)
        return true;
    rg_error("out of memory");
    return false;
}

static bool slow_down(const struct prediction *p, double rtt_us, uint64_t bytes_per_second, double *out)
{
    const struct rg_wire wire = {.oneway_ns = oneway_of(&p->model, (uint64_t)(rtt_us * 1e3)),
                                 .bytes_per_second = bytes_per_second,
                                 .buffer = BUFFER,
                                 .between_oneway_ns = p->wire.between_oneway_ns,
                                 .between_bytes_per_second = p->wire.between_bytes_per_second};
    struct rg_outcome outcome;
    if (!simulate(p, &wire, 0, &outcome))
        return false;
    *out = p->base ? (double)outcome.ns / (double)p->base : 1;
    return true;
}

static bool fill_grid(struct prediction *p)
{
    for (size_t i = 0; i < N_RATES; i++)
        for (size_t j = 0; j < N_RTTS; j++)
            if (!slow_down(p, rtts_us[j], rates[i].bytes_per_second, &p->grid[i * N_RTTS + j]))
                return false;
    for (size_t i = 0; i < N_NETWORKS; i++)
        if (!slow_down(p, networks[i].rtt_us, networks[i].bytes_per_second, &p->marks[i]))
            return false;
    return true;
}

/* One line of the table: the run with some optimisations off. */
struct variant {
    char name[80];
    uint64_t off;
    struct rg_outcome outcome;
};

/* All on as recorded, each of those off, all off. Returns how many; 0: out of memory. The caller frees
 * them. */
static size_t make_variants(const struct prediction *p, struct variant **out)
{
    const struct rg_trace_list *names = &p->trace.optimisations;
    struct variant *variants = calloc(names->n + 2, sizeof *variants);
    size_t n = 0;
    if (!variants)
        return 0;
    snprintf(variants[n++].name, sizeof variants->name, "as recorded");
    const uint64_t simulated = rg_simulated_optimisations(&p->model);
    for (size_t i = 0; i < names->n; i++)
        if (simulated >> i & 1) {
            snprintf(variants[n].name, sizeof variants->name, "without %.60s", names->names[i]);
            variants[n++].off = 1ull << i;
        }
    snprintf(variants[n].name, sizeof variants->name, "without any");
    variants[n++].off = simulated;
    for (size_t i = 0; i < n; i++)
        if (!simulate(p, &p->wire, variants[i].off, &variants[i].outcome)) {
            free(variants);
            return 0;
        }
    *out = variants;
    return n;
}

/* --- what is shown -------------------------------------------------------------------------------------- */

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double rtt_of(const struct prediction *p)
{
    return (double)(p->model.round_trip + 2 * p->wire.oneway_ns) / 1e3;
}

/* What all servers sent each other, and for how many records that was. */
static uint64_t sent_between(const struct prediction *p)
{
    uint64_t bytes = 0;
    for (size_t i = 1; i < p->model.n_exchanges; i++)
        bytes += p->model.exchanges[i].sent;
    return bytes;
}

static size_t n_exchanges(const struct prediction *p)
{
    return p->model.n_exchanges ? p->model.n_exchanges - 1 : 0;
}

static void print_recorded(const struct prediction *p)
{
    printf("%s (%llu) on ", p->trace.program, (unsigned long long)p->trace.pid);
    for (size_t i = 0; i < p->trace.n_servers; i++)
        printf("%s%s", i ? ", " : "", p->trace.servers[i].name);
    printf(", over %s, %s driver: recorded in %.6f s\n", p->trace.servers[0].transport,
           p->trace.servers[0].device, seconds(p->trace.elapsed));
    printf("  its threads: %.6f s computed, %.6f s waited; %llu round trips of %.1f us; %.3f MB sent, %.3f "
           "MB received\n  the device's streams together: %.6f s; the simulation of the same: %.6f s\n",
           seconds(p->model.computed), seconds(p->model.waited), (unsigned long long)p->trace.round_trips,
           (double)p->model.round_trip / 1e3, (double)p->trace.sent / 1e6, (double)p->trace.received / 1e6,
           seconds(p->model.device_busy), seconds(p->base));
    if (n_exchanges(p))
        printf("  between servers: %zu copies, waits and collectives, for which these sent %.3f MB\n",
               n_exchanges(p), (double)sent_between(p) / 1e6);
}

static void print_server_link(const struct rg_wire *wire)
{
    printf("  between servers, besides what the recorded link took: round trips of %.1f us, ",
           (double)wire->between_oneway_ns * 2 / 1e3);
    if (wire->between_bytes_per_second)
        printf("%.4g Gb/s\n", (double)wire->between_bytes_per_second * 8 / 1e9);
    else
        printf("no limit of bandwidth\n");
}

static void print_table(const struct prediction *p, const struct variant *variants, size_t n)
{
    if (p->wire.bytes_per_second)
        printf("\nWith a round-trip time of %.1f us and %.4g Gb/s:\n", rtt_of(p),
               (double)p->wire.bytes_per_second * 8 / 1e9);
    else
        printf("\nWith a round-trip time of %.1f us and no limit of bandwidth:\n", rtt_of(p));
    if (p->settings->server_link)
        print_server_link(&p->wire);
    printf("  %-24s %14s %10s %12s %12s %12s\n", "optimisations", "seconds", "slow-down", "waited s",
           "round trips", "messages");
    for (size_t i = 0; i < n; i++)
        printf("  %-24s %14.6f %10.2f %12.6f %12llu %12llu\n", variants[i].name,
               seconds(variants[i].outcome.ns),
               (double)variants[i].outcome.ns / (double)(p->base ? p->base : 1),
               seconds(variants[i].outcome.waited_ns), (unsigned long long)variants[i].outcome.round_trips,
               (unsigned long long)variants[i].outcome.messages);
}

static void print_grid(const struct prediction *p)
{
    printf("\nSlow-down against the recorded run:\n  %-16s", "round trip");
    for (size_t i = 0; i < N_RATES; i++)
        printf(" %9s", rates[i].name);
    printf("\n");
    for (size_t j = 0; j < N_RTTS; j++) {
        printf("  %10g us   ", rtts_us[j]);
        for (size_t i = 0; i < N_RATES; i++)
            printf(" %9.2f", p->grid[i * N_RTTS + j]);
        printf("\n");
    }
    printf("\nTypical networks:\n");
    for (size_t i = 0; i < N_NETWORKS; i++)
        printf("  %-20s %8g us %9.4g Gb/s %9.2f\n", networks[i].name, networks[i].rtt_us,
               (double)networks[i].bytes_per_second * 8 / 1e9, p->marks[i]);
}

static json_t *outcome_json(const struct prediction *p, const struct variant *variant)
{
    const struct rg_outcome *o = &variant->outcome;
    json_t *off = json_array();
    for (size_t i = 0; i < p->trace.optimisations.n; i++)
        if (variant->off >> i & 1)
            json_array_append_new(off, json_string(p->trace.optimisations.names[i]));
    return json_pack("{s:o, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "without", off, "seconds", seconds(o->ns),
                     "slow_down", (double)o->ns / (double)(p->base ? p->base : 1), "waited_seconds",
                     seconds(o->waited_ns), "round_trips", (json_int_t)o->round_trips, "messages",
                     (json_int_t)o->messages, "bytes_sent", (json_int_t)o->sent, "bytes_received",
                     (json_int_t)o->received);
}

static json_t *grid_json(const struct prediction *p)
{
    json_t *points = json_array();
    for (size_t i = 0; i < N_RATES; i++)
        for (size_t j = 0; j < N_RTTS; j++)
            json_array_append_new(points, json_pack("{s:f, s:f, s:f}", "rtt_us", rtts_us[j], "gigabits",
                                                    (double)rates[i].bytes_per_second * 8 / 1e9, "slow_down",
                                                    p->grid[i * N_RTTS + j]));
    return points;
}

static bool print_json(const struct prediction *p, const struct variant *variants, size_t n)
{
    json_t *predictions = json_array();
    for (size_t i = 0; i < n; i++)
        rg_cli_json_add(&predictions, outcome_json(p, &variants[i]));
    json_t *all =
        json_pack("{s:s, s:I, s:s, s:s, s:{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:I}, s:{s:f, "
                  "s:f}, s:{s:f, "
                  "s:f}, s:o}",
                  "program", p->trace.program, "pid", (json_int_t)p->trace.pid, "transport",
                  p->trace.servers[0].transport, "device", p->trace.servers[0].device, "recorded", "seconds",
                  seconds(p->trace.elapsed), "computed_seconds", seconds(p->model.computed), "waited_seconds",
                  seconds(p->model.waited), "device_seconds", seconds(p->model.device_busy), "rtt_us",
                  (double)p->model.round_trip / 1e3, "round_trips", (json_int_t)p->trace.round_trips,
                  "bytes_sent", (json_int_t)p->trace.sent, "bytes_received", (json_int_t)p->trace.received,
                  "simulated_seconds", seconds(p->base), "exchanges", (json_int_t)n_exchanges(p),
                  "bytes_between_servers", (json_int_t)sent_between(p), "network", "rtt_us", rtt_of(p),
                  "gigabits", (double)p->wire.bytes_per_second * 8 / 1e9, "server_link", "added_rtt_us",
                  (double)p->wire.between_oneway_ns * 2 / 1e3, "gigabits",
                  (double)p->wire.between_bytes_per_second * 8 / 1e9, "predictions", predictions);
    if (all && p->settings->grid)
        json_object_set_new(all, "grid", grid_json(p));
    return rg_cli_print_json(all);
}

static bool write_chart(const void *chart, FILE *out)
{
    return rg_chart_write(chart, out);
}

static bool draw(const struct prediction *p, const char *path)
{
    struct rg_chart_mark marks[N_NETWORKS];
    const char *names[N_RATES];
    for (size_t i = 0; i < N_NETWORKS; i++)
        marks[i] = (struct rg_chart_mark){networks[i].name, networks[i].rtt_us, p->marks[i]};
    for (size_t i = 0; i < N_RATES; i++)
        names[i] = rates[i].name;
    const struct rg_chart chart = {.program = p->trace.program,
                                   .seconds = seconds(p->trace.elapsed),
                                   .rtts_us = rtts_us,
                                   .n_rtts = N_RTTS,
                                   .bandwidths = names,
                                   .n_bandwidths = N_RATES,
                                   .slow_downs = p->grid,
                                   .marks = marks,
                                   .n_marks = N_NETWORKS};
    return rg_cli_write_file(path, write_chart, &chart);
}

/* --- the command ---------------------------------------------------------------------------------------- */

static bool predict(struct prediction *p)
{
    struct variant *variants = NULL;
    const struct rg_wire recorded = {.buffer = BUFFER};
    struct rg_outcome base;
    if (!simulate(p, &recorded, 0, &base))
        return false;
    p->base = base.ns;
    if ((p->settings->grid || p->settings->svg) && !fill_grid(p))
        return false;
    const size_t n = make_variants(p, &variants);
    bool good = n != 0;
    if (good && p->settings->json) {
        good = print_json(p, variants, n);
    } else if (good) {
        print_recorded(p);
        print_table(p, variants, n);
        if (p->settings->grid)
            print_grid(p);
    }
    free(variants);
    return good && (!p->settings->svg || draw(p, p->settings->svg));
}

int rg_cli_predict(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct prediction p = {.settings = settings};
    char why[512] = "";
    int status = RG_EXIT_FAILURE;
    if (argc != 1) {
        rg_error("predict takes one file, of remote-gpu run --record; see remote-gpu predict --help");
        return RG_EXIT_FAILURE;
    }
    if (rg_trace_read(argv[0], &p.trace, why, sizeof why) != RG_OK) {
        rg_error("%s: %s", argv[0], why);
    } else if (rg_model_make(&p.trace, &p.model) != RG_OK) {
        rg_error("out of memory");
    } else if (!read_wire(settings, &p.model, &p.wire, why, sizeof why)) {
        rg_error("%s; see remote-gpu predict --help", why);
    } else {
        if (p.trace.events_dropped || p.trace.times_dropped)
            rg_warn("%s is full: the end of the run is missing in it", argv[0]);
        if (settings->server_link && !n_exchanges(&p))
            rg_warn("%s: nothing went from one server to another, so --server-link changes nothing", argv[0]);
        status = predict(&p) ? 0 : RG_EXIT_FAILURE;
    }
    rg_model_free(&p.model);
    rg_trace_free(&p.trace);
    return status;
}
