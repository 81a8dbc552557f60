/* json.c - see json.h. Times are seconds, sizes bytes, parts of a whole from 0 to 1. */
#include "server/http/json.h"

#include "common/base/clock.h"
#include "common/base/printable.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX_SIZE = 1024 };

json_t *rg_json_text(const char *text)
{
    char clean[TEXT_MAX_SIZE];
    snprintf(clean, sizeof clean, "%s", text ? text : "");
    rg_printable_clean(clean); /* a character that was cut at the end as well */
    return json_string(clean);
}

/* JSON's numbers are doubles to many readers; jansson's are of 64 bits with a sign. */
static json_t *number(uint64_t value)
{
    return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
}

static json_t *seconds(uint64_t ns)
{
    return json_real((double)ns * 1e-9);
}

/* --- the server --------------------------------------------------------------------------------------------- */

static json_t *pool_json(const struct rg_gauges *gauges)
{
    if (!gauges->in_pool)
        return json_null();
    return json_pack("{s:o, s:b, s:o, s:o}", "name", rg_json_text(gauges->pool), "member",
                     (int)(rg_now_ns() < gauges->pool_until_ns), "leases", number(gauges->pool_leases), "why",
                     rg_json_text(gauges->pool_why));
}

static json_t *refusals_json(const struct rg_gauges *gauges)
{
    json_t *out = json_object();
    for (uint32_t i = 0; i < RG_REFUSALS; i++)
        (void)json_object_set_new(out, rg_refusal_name(rg_refusal_at(i)), number(gauges->refused[i]));
    return out;
}

json_t *rg_json_server(const struct rg_view *view)
{
    static const char *const accounts[] = {"off", "saved", "failing"};
    const struct rg_gauges *gauges = &view->gauges;
    char why[600];
    const bool ready = !rg_view_why_not_ready(view, why, sizeof why);
    return json_pack("{s:s, s:o, s:{s:s, s:s, s:i}, s:o, s:b, s:o, s:b, s:o, s:o, s:o, s:o, s:s, s:o, s:o}",
                     "version", RG_VERSION, "host", rg_json_text(view->host), "driver", "kind",
                     view->driver.info.kind, "release", view->driver.info.release, "cuda",
                     (int)view->driver.info.version, "began", number(gauges->began_unix), "ready", (int)ready,
                     "why", rg_json_text(why), "draining", (int)(gauges->drained || gauges->stopping),
                     "sessions", number(view->running), "sessions_limit", number(view->max_sessions),
                     "sessions_waiting", number(gauges->waiting), "sessions_started", number(gauges->granted),
                     "accounts", accounts[gauges->accounts], "pool", pool_json(gauges), "refusals",
                     refusals_json(gauges));
}

json_t *rg_json_reader(const struct rg_view *view)
{
    static const char *const scopes[] = {[RG_READER_FIGURES] = "figures",
                                         [RG_READER_OWN] = "own",
                                         [RG_READER_PUBLIC] = "public",
                                         [RG_READER_OPERATOR] = "operator"};
    const struct rg_snapshot_reader *reader = &view->reader;
    return json_pack("{s:o, s:s, s:b, s:o}", "name", rg_json_text(reader->name), "sees",
                     scopes[reader->scope], "by_cookie", (int)reader->by_cookie, "seconds_left",
                     reader->by_cookie ? number(reader->seconds) : json_null());
}

/* --- GPUs --------------------------------------------------------------------------------------------------- */

static json_t *figures_json(const struct rg_gpu_figures *figures)
{
    static const char *const names[RG_GPU_FIGURES] = {
        [RG_GPU_SM_CLOCK] = "sm_clock_mhz",
        [RG_GPU_MEM_CLOCK] = "memory_clock_mhz",
        [RG_GPU_TEMP] = "temperature_c",
        [RG_GPU_MEMORY_TEMP] = "memory_temperature_c",
        [RG_GPU_POWER_USAGE] = "power_w",
        [RG_GPU_ENERGY] = "energy_mj",
        [RG_GPU_PCIE_REPLAYS] = "pcie_replays",
        [RG_GPU_UTIL] = "utilisation_percent",
        [RG_GPU_MEM_COPY_UTIL] = "memory_utilisation_percent",
        [RG_GPU_ENC_UTIL] = "encoder_percent",
        [RG_GPU_DEC_UTIL] = "decoder_percent",
        [RG_GPU_FB_RESERVED] = "memory_reserved_by_driver",
    };
    json_t *out = json_object();
    for (int i = 0; i < RG_GPU_FIGURES; i++)
        if (names[i] && (figures->known >> i & 1))
            (void)json_object_set_new(out, names[i], json_real(figures->values[i]));
    return out;
}

/* A point a minute, the oldest first. */
static json_t *history_json(const struct rg_view *view, uint32_t device)
{
    struct rg_history_point points[RG_HISTORY_POINTS];
    const uint32_t n = rg_history_read(&view->history, device, points);
    json_t *busy = json_array(), *memory = json_array();
    for (uint32_t i = 0; i < n; i++) {
        (void)json_array_append_new(busy, json_integer(points[i].busy));
        (void)json_array_append_new(memory, json_integer(points[i].memory));
    }
    return json_pack("{s:i, s:o, s:o}", "seconds", RG_HISTORY_PERIOD_S, "busy_percent", busy,
                     "memory_percent", memory);
}

static json_t *gpu_json(const struct rg_view *view, uint32_t i)
{
    const struct rg_device_info *device = &view->driver.devices[i];
    const struct rg_gauge_device *gauge = &view->gauges.devices[i];
    char uuid[RG_VIEW_UUID];
    double used = 0, free = 0;
    uint32_t sessions = 0;
    const bool known = rg_view_memory(view, i, &used, &free);
    for (uint32_t s = 0; s < view->n_sessions; s++)
        for (uint32_t d = 0; d < view->sessions[s].info.n_devices; d++)
            sessions += view->sessions[s].info.devices[d] == i;
    rg_view_uuid(device, uuid);
    return json_pack("{s:i, s:s, s:o, s:o, s:{s:o, s:o, s:o, s:o, s:o}, s:o, s:o, s:i, s:o, s:o}", "index",
                     (int)device->ordinal, "uuid", uuid, "name", rg_json_text(device->name), "pci",
                     rg_json_text(device->pci), "memory", "total", number(device->memory_total), "used",
                     known ? number((uint64_t)used) : json_null(), "free",
                     known ? number((uint64_t)free) : json_null(), "held", number(gauge->held), "reserved",
                     number(gauge->promised), "busy_seconds", seconds(gauge->busy_ns), "throttled_seconds",
                     seconds(gauge->throttled_ns), "sessions", (int)sessions, "figures",
                     figures_json(&view->gpus[i]), "history", history_json(view, i));
}

json_t *rg_json_gpus(const struct rg_view *view)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < view->driver.n_devices; i++)
        (void)json_array_append_new(list, gpu_json(view, i));
    return json_pack("{s:o}", "gpus", list);
}

/* --- sessions ----------------------------------------------------------------------------------------------- */

/* The name of the program: no folder, no arguments. */
static json_t *program_json(const char *command)
{
    char name[RG_CONTROL_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(command, " "), command);
    const char *slash = strrchr(name, '/');
    return rg_json_text(slash ? slash + 1 : name);
}

static json_t *share_json(const struct rg_session_info *session, uint32_t i)
{
    const struct rg_share_info *share = &session->shares[i];
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "index", (int)session->devices[i], "memory_limit",
                     share->memory_limit ? number(share->memory_limit) : json_null(), "memory_used",
                     number(share->memory_used), "memory_peak", number(share->memory_peak), "busy_seconds",
                     seconds(share->busy_ns), "throttled_seconds", seconds(share->throttled_ns));
}

static json_t *session_json(const struct rg_view *view, const struct rg_snapshot_session *shown)
{
    const struct rg_session_info *session = &shown->info;
    const bool may = shown->is_own || view->reader.scope == RG_READER_OPERATOR;
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < session->n_shares && i < session->n_devices; i++)
        (void)json_array_append_new(gpus, share_json(session, i));
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s, s:i, s:o, s:b, s:s, s:o, s:o, s:b, s:b, s:o, "
        "s:o}",
        "id", number(session->id), "identity", rg_json_text(session->identity_name), "user",
        rg_json_text(session->identity.user), "host", rg_json_text(session->identity.host), "program",
        program_json(session->identity.command), "project", rg_json_text(session->project), "since",
        number(session->since_unix), "transport", rg_view_transport(session), "state",
        rg_share_state_name(session->state), "priority", rg_share_priority_name(session->priority), "weight",
        (int)session->weight, "compute_limit",
        session->compute_millionths ? json_real(session->compute_millionths * 1e-6) : json_null(),
        "exclusive", (int)session->exclusive, "sharing", rg_sharing_name(session->sharing), "launches",
        number(session->launches), "gpus", gpus, "own", (int)shown->is_own, "may_act", (int)may, "address",
        rg_json_text(may ? session->peer : ""), "round_trip_seconds",
        shown->rtt_us ? json_real(shown->rtt_us * 1e-6) : json_null());
}

json_t *rg_json_sessions(const struct rg_view *view)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < view->n_sessions; i++)
        (void)json_array_append_new(list, session_json(view, &view->sessions[i]));
    return json_pack("{s:o}", "sessions", list);
}
