/*
 * netperf.c - remote-gpu netperf: round trips and bandwidth by message size, of a bare socket, of TCP as a
 * session uses it, of each RDMA address of the server and of all its adapters together, and if asked of
 * perftest on the same.
 */
#include "client/cli/netperf/netperf.h"

#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/netperf/perftest.h"
#include "client/credentials/credentials.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "transport/topology/devices.h"

#include <stdlib.h>
#include <string.h>

static const size_t all_sizes[] = {64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304};
static const size_t quick_sizes[] = {64, 4096, 65536, 1048576};
static const size_t perftest_sizes[] = {64, 4096, 65536, 1048576}; /* three runs of programs each */
static const size_t quick_perftest_sizes[] = {64, 1048576};

const char *rg_netperf_size(size_t size, char *text)
{
    if (size < 1024)
        snprintf(text, 16, "%u B", (unsigned)size);
    else if (size < 1048576)
        snprintf(text, 16, "%u KiB", (unsigned)(size / 1024));
    else
        snprintf(text, 16, "%u MiB", (unsigned)(size / 1048576));
    return text;
}

/* All sizes over one link; what was measured before a failure stays. */
static void measure(struct rg_netperf_link *out, struct rg_perf_link *link, bool quick)
{
    const size_t *sizes = quick ? quick_sizes : all_sizes;
    const unsigned n =
        quick ? sizeof quick_sizes / sizeof *quick_sizes : sizeof all_sizes / sizeof *all_sizes;
    const double seconds = quick ? 0.1 : 0.4;
    for (unsigned i = 0; i < n; i++) {
        struct rg_netperf_point *point = &out->points[out->n];
        point->size = sizes[i];
        enum rg_status status = rg_perf_link_latency(link, sizes[i], seconds, &point->latency);
        if (status == RG_OK)
            status = rg_perf_link_bandwidth(link, sizes[i], seconds, &point->bandwidth);
        if (status != RG_OK) {
            snprintf(out->failed, sizeof out->failed, "messages of %u bytes: %s", (unsigned)sizes[i],
                     rg_status_string(status));
            return;
        }
        out->n++;
    }
}

/* What perftest shows on the way of the RDMA link that was measured last. */
static void measure_perftest(struct rg_netperf *all, const struct rg_cli_settings *settings)
{
    const struct rg_netperf_link *rdma = &all->links[all->n - 1];
    if (!settings->perftest || rdma->n == 0 || all->n == RG_NETPERF_LINKS)
        return;
    const bool quick = settings->quick;
    if (strchr(rdma->name, ':'))
        return; /* IPv6: its programs differ in how they are told so */
    rg_netperf_perftest(&all->links[all->n++], all->server, rdma->name + strlen("rdma "),
                        quick ? quick_perftest_sizes : perftest_sizes,
                        quick ? sizeof quick_perftest_sizes / sizeof *quick_perftest_sizes
                              : sizeof perftest_sizes / sizeof *perftest_sizes,
                        quick, settings->timeout_ns);
}

/* One link; returns how many RDMA addresses the server has, as far as this link came to know. */
static unsigned measure_link(struct rg_netperf *all, const struct rg_cli_settings *settings,
                             enum rg_perf_link_kind kind, unsigned index)
{
    static const char *const names[] = {"socket", "tcp", "rdma", "rails"};
    struct rg_netperf_link *out = &all->links[all->n++];
    struct rg_perf_link link;
    out->kind = kind;
    snprintf(out->name, sizeof out->name, "%s", names[kind]);
    if (rg_perf_link_open(&link, all->server, kind, index, settings->timeout_ns, out->failed,
                          sizeof out->failed) != RG_OK)
        return 0;
    const unsigned addresses = link.n_addresses;
    if (kind == RG_PERF_LINK_RDMA)
        snprintf(out->name, sizeof out->name, "rdma %.*s", (int)(sizeof out->name - sizeof "rdma "),
                 link.address);
    else if (kind == RG_PERF_LINK_TCP)
        snprintf(out->name, sizeof out->name, "%s", rg_conn_transport(link.conn));
    else if (kind == RG_PERF_LINK_RAILS)
        snprintf(out->name, sizeof out->name, "rdma, %u rails", link.n_rails);
    if (kind == RG_PERF_LINK_RAILS && link.n_rails < 2)
        all->n--; /* the same as RDMA */
    else
        measure(out, &link, settings->quick);
    rg_perf_link_close(&link);
    return addresses;
}

/* Whether sessions with the server are by TLS; what is wrong with the credentials shows when it is connected. */
static bool is_encrypted(const char *server)
{
    struct rg_credentials credentials;
    char why[16];
    return rg_credentials_find(server, &credentials, why, sizeof why) == RG_OK && credentials.found;
}

static void measure_all(struct rg_netperf *all, const struct rg_cli_settings *settings)
{
    if (is_encrypted(all->server)) {
        struct rg_netperf_link *none = &all->links[all->n++];
        *none = (struct rg_netperf_link){.kind = RG_PERF_LINK_RAW, .name = "socket"};
        snprintf(none->failed, sizeof none->failed, "nothing goes to this server without TLS");
        all->encrypted = true;
    } else {
        measure_link(all, settings, RG_PERF_LINK_RAW, 0);
        if (all->links[0].failed[0] && all->links[0].n == 0)
            return; /* nor would anything else work */
    }
    measure_link(all, settings, RG_PERF_LINK_TCP, 0);
    struct rg_rdma_address any;
    if (rg_rdma_addresses(&any, 1) == 0) {
        struct rg_netperf_link *none = &all->links[all->n++];
        *none = (struct rg_netperf_link){.kind = RG_PERF_LINK_RDMA, .name = "rdma"};
        snprintf(none->failed, sizeof none->failed,
                 "this machine has no RDMA device with an active port and an address");
        return;
    }
    unsigned n = measure_link(all, settings, RG_PERF_LINK_RDMA, 0);
    measure_perftest(all, settings);
    for (unsigned i = 1; i < n && all->n < RG_NETPERF_LINKS; i++) {
        measure_link(all, settings, RG_PERF_LINK_RDMA, i);
        measure_perftest(all, settings);
    }
    if (n > 1 && all->n < RG_NETPERF_LINKS)
        measure_link(all, settings, RG_PERF_LINK_RAILS, 0);
}

/* 0: it could not be had. */
static void print_bandwidth(double value)
{
    if (value > 0)
        printf(" %13.1f", value / 1e6);
    else
        printf(" %13s", "-");
}

static json_t *bandwidth_json(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static void print_table(const struct rg_netperf *all)
{
    printf("%-24s %8s %11s %11s %11s %13s %13s\n", "", "size", "p50 us", "p99 us", "p99.9 us", "to MB/s",
           "from MB/s");
    for (unsigned i = 0; i < all->n; i++) {
        const struct rg_netperf_link *link = &all->links[i];
        for (unsigned j = 0; j < link->n; j++) {
            const struct rg_netperf_point *point = &link->points[j];
            char size[16];
            printf("%-24s %8s %11.1f %11.1f %11.1f", link->name, rg_netperf_size(point->size, size),
                   point->latency.p50_us, point->latency.p99_us, point->latency.p999_us);
            print_bandwidth(point->bandwidth.to_server);
            print_bandwidth(point->bandwidth.from_server);
            putchar('\n');
        }
        if (link->failed[0])
            printf("%-24s not measured%s: %s\n", link->name, link->n ? " further" : "", link->failed);
    }
    printf("\nRound trips are of messages of this size each way; MB/s is to and from the server, 1 MB = 10^6 "
           "bytes.\n"
           "'socket' is a bare connection without the product's framing, for comparison.\n");
    for (unsigned i = 0; i < all->n; i++)
        if (all->links[i].kind == RG_PERF_LINK_PERFTEST) {
            printf("'perftest' is ib_send_lat (twice what it tells), ib_write_bw to the server and "
                   "ib_read_bw from it.\n");
            break;
        }
}

static bool print_json(const struct rg_netperf *all)
{
    static const char *const kinds[] = {"socket", "tcp", "rdma", "rails", "perftest"};
    json_t *links = json_array();
    for (unsigned i = 0; i < all->n; i++) {
        const struct rg_netperf_link *link = &all->links[i];
        json_t *points = json_array();
        for (unsigned j = 0; j < link->n; j++) {
            const struct rg_netperf_point *at = &link->points[j];
            rg_cli_json_add(&points, json_pack("{s:I, s:i, s:f, s:f, s:f, s:f, s:o, s:o}", "size",
                                               (json_int_t)at->size, "samples", (int)at->latency.samples,
                                               "min_us", at->latency.min_us, "p50_us", at->latency.p50_us,
                                               "p99_us", at->latency.p99_us, "p999_us", at->latency.p999_us,
                                               "to_server", bandwidth_json(at->bandwidth.to_server),
                                               "from_server", bandwidth_json(at->bandwidth.from_server)));
        }
        json_t *one =
            json_pack("{s:s, s:s, s:o}", "name", link->name, "kind", kinds[link->kind], "points", points);
        if (link->failed[0])
            json_object_set_new(one, "error", json_string(link->failed));
        rg_cli_json_add(&links, one);
    }
    return rg_cli_print_json(json_pack("{s:s, s:o}", "server", all->server, "links", links));
}

static bool plot(const void *all, FILE *out)
{
    return rg_netperf_plot(all, out);
}

static int netperf(const struct rg_cli_settings *settings)
{
    if (settings->pool)
        return rg_netperf_pool(settings);
    if (settings->server.n != 1) {
        rg_error("netperf measures the connection to one server; name it with -s HOST");
        return RG_EXIT_FAILURE;
    }
    struct rg_netperf *all = calloc(1, sizeof *all);
    if (!all) {
        rg_error("out of memory");
        return RG_EXIT_FAILURE;
    }
    all->server = settings->server.items[0];
    measure_all(all, settings);
    /* TCP must work; RDMA that one side does not have is no failure. */
    const struct rg_netperf_link *last = &all->links[all->n - 1];
    bool good = all->n >= 2 && (all->encrypted || !all->links[0].failed[0]) && !all->links[1].failed[0];
    if (all->n == 1)
        rg_error("cannot measure the connection to %s: %s", all->server, last->failed);
    else if (settings->json)
        good = print_json(all) && good;
    else
        print_table(all);
    if (all->n > 1 && settings->plot)
        good = rg_cli_write_file(settings->plot, plot, all) && good;
    free(all);
    return good ? 0 : RG_EXIT_FAILURE;
}

struct errand {
    const struct rg_cli_settings *settings;
    int status;
};

static void run_netperf(void *arg)
{
    struct errand *errand = arg;
    errand->status = netperf(errand->settings);
}

int rg_cli_netperf(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (!rg_cli_no_words("netperf", argc, argv))
        return RG_EXIT_FAILURE;
    struct errand errand = {settings, RG_EXIT_FAILURE};
    rg_thread_with_room(run_netperf, &errand); /* which ulimit -s may not leave here */
    return errand.status;
}
