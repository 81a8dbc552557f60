/*
 * pool.c - remote-gpu netperf --pool: the way to each server of a pool, by TCP as a session begins by it, measured one after the other and
 * told to the pool.
 *
 * A server that cannot be reached is said and left out: what was measured of it before stays.
 */
#include "client/pool/pool.h"
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/netperf/netperf.h"
#include "common/base/log.h"
#include "common/base/printable.h"

#include <string.h>

enum { ROUND_TRIP_SIZE = 64, STREAM_SIZE = 1 << 20 };
#define ROUND_TRIP_S 0.1
#define STREAM_S     0.2 /* each way */

/* [nanoseconds, bytes a second]; NULL: it was said why it cannot be measured. */
static json_t *measure(const struct rg_cli_settings *settings, const char *address)
{
    struct rg_perf_link link;
    struct rg_latency latency;
    struct rg_bandwidth bandwidth;
    char why[512] = "";
    enum rg_status status =
        rg_perf_link_open(&link, address, RG_PERF_LINK_TCP, 0, settings->timeout_ns, why, sizeof why);
    if (status == RG_OK)
        status = rg_perf_link_latency(&link, ROUND_TRIP_SIZE, ROUND_TRIP_S, &latency);
    if (status == RG_OK)
        status = rg_perf_link_bandwidth(&link, STREAM_SIZE, STREAM_S, &bandwidth);
    rg_perf_link_close(&link);
    if (status != RG_OK) {
        rg_error("the way to %s is not measured: %s", address, *why ? why : rg_status_string(status));
        return NULL;
    }
    const double least =
        bandwidth.to_server < bandwidth.from_server ? bandwidth.to_server : bandwidth.from_server;
    return json_pack("[I, I]", (json_int_t)(latency.p50_us * 1e3) + 1, (json_int_t)least);
}

/* A server's address, clean enough to be shown; "": it says none. */
static const char *address_of(const json_t *member, char *out, size_t size)
{
    const char *address = json_string_value(json_object_get(member, "address"));
    snprintf(out, size, "%s", address ? address : "");
    rg_printable_clean(out);
    return out;
}

/* False: one could not be measured. */
static bool measure_all(const struct rg_cli_settings *settings, const json_t *pool, json_t *figures)
{
    const json_t *member;
    size_t i;
    bool good = true;
    json_array_foreach(json_object_get(pool, "servers"), i, member)
    {
        char address[RG_CONTROL_TEXT];
        json_t *one = *address_of(member, address, sizeof address) ? measure(settings, address) : NULL;
        good = good && one;
        if (!one)
            continue;
        if (!settings->json)
            printf("%-32s %11.1f us %11.1f MB/s\n", address,
                   (double)json_integer_value(json_array_get(one, 0)) / 1e3,
                   (double)json_integer_value(json_array_get(one, 1)) / 1e6);
        (void)json_object_set_new(figures, address, one);
    }
    return good;
}

int rg_netperf_pool(const struct rg_cli_settings *settings)
{
    struct rg_pool_failure failure;
    char machine[RG_CONTROL_TEXT];
    if (settings->server.n != 1) {
        rg_error("name one server of the pool with -s: any of them speaks for all");
        return RG_EXIT_FAILURE;
    }
    const char *server = settings->server.items[0];
    json_t *pool =
        rg_pool_list(server, rg_pool_machine(machine, sizeof machine), settings->timeout_ns, &failure);
    json_t *figures = json_object();
    bool good = pool && measure_all(settings, pool, figures);
    if (!pool) {
        rg_error("%s", failure.why);
    } else if (json_object_size(figures) &&
               !rg_pool_tell_links(server, machine, figures, settings->timeout_ns, &failure)) {
        rg_error("the pool was not told: %s", failure.why);
        good = false;
    } else if (settings->json) {
        good = rg_cli_print_json(json_pack("{s:s, s:O}", "machine", machine, "servers", figures)) && good;
    } else if (json_object_size(figures)) {
        printf("The pool knows it for 30 days: what you ask for from %s goes to near servers.\n", machine);
    }
    json_decref(figures);
    json_decref(pool);
    return good ? 0 : RG_EXIT_FAILURE;
}
