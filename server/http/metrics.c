/*
 * metrics.c - see metrics.h.
 *
 * Figures of GPUs have dcgm-exporter's names and labels, so that its dashboards show them; what is ours begins with rgpu_. Each label
 * has few values: GPUs of this server, and words of lists in this program. Nothing that a client can choose is a label.
 */
#include "server/http/metrics.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

enum {
    GPU_LABELS = 7,
    OWN_LABELS = 4
}; /* dcgm-exporter's, of which the first few are those of our own metrics */

struct gpu {
    char index[12], device[20], uuid[RG_VIEW_UUID];
    struct rg_label labels[GPU_LABELS];
};

struct writer {
    const struct rg_view *view;
    struct rg_exposition *out;
    struct gpu gpus[RG_DEVICES_MAX];
};

static void name_gpu(const struct rg_view *view, uint32_t i, struct gpu *gpu)
{
    const struct rg_device_info *device = &view->driver.devices[i];
    snprintf(gpu->index, sizeof gpu->index, "%u", device->ordinal);
    snprintf(gpu->device, sizeof gpu->device, "nvidia%u", device->ordinal);
    rg_view_uuid(device, gpu->uuid);
    const struct rg_label labels[GPU_LABELS] = {{"gpu", gpu->index},
                                                {"UUID", gpu->uuid},
                                                {"pci_bus_id", device->pci},
                                                {"hostname", view->host},
                                                {"device", gpu->device},
                                                {"modelName", device->name},
                                                {"DCGM_FI_DRIVER_VERSION", view->driver.info.release}};
    memcpy(gpu->labels, labels, sizeof labels);
}

/* --- of GPUs, as dcgm-exporter has them ------------------------------------------------------------------- */

/* A counter of dcgm-exporter's lacks OpenMetrics' _total, so it is of unknown type here; rate() works all the same. */
static const struct {
    enum rg_gpu_figure figure;
    enum rg_metric_type type;
    const char *name, *help;
} figures[] = {
    {RG_GPU_SM_CLOCK, RG_METRIC_GAUGE, "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."},
    {RG_GPU_MEM_CLOCK, RG_METRIC_GAUGE, "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."},
    {RG_GPU_TEMP, RG_METRIC_GAUGE, "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)."},
    {RG_GPU_MEMORY_TEMP, RG_METRIC_GAUGE, "DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C)."},
    {RG_GPU_POWER_USAGE, RG_METRIC_GAUGE, "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)."},
    {RG_GPU_ENERGY, RG_METRIC_UNKNOWN, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
     "Energy consumption since the driver was loaded (in mJ), a counter."},
    {RG_GPU_PCIE_REPLAYS, RG_METRIC_UNKNOWN, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries, a counter."},
    {RG_GPU_UTIL, RG_METRIC_GAUGE, "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."},
    {RG_GPU_MEM_COPY_UTIL, RG_METRIC_GAUGE, "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %)."},
    {RG_GPU_ENC_UTIL, RG_METRIC_GAUGE, "DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %)."},
    {RG_GPU_DEC_UTIL, RG_METRIC_GAUGE, "DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %)."},
};

static void write_figures(const struct writer *writer)
{
    const struct rg_view *view = writer->view;
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        const uint32_t bit = 1u << figures[f].figure;
        bool begun = false;
        for (uint32_t i = 0; i < view->driver.n_devices; i++) {
            if (!(view->gpus[i].known & bit))
                continue;
            if (!begun)
                rg_exposition_family(writer->out, figures[f].name, figures[f].type, "", figures[f].help);
            begun = true;
            rg_exposition_sample(writer->out, writer->gpus[i].labels, GPU_LABELS,
                                 view->gpus[i].values[figures[f].figure]);
        }
    }
}

static void write_framebuffer(const struct writer *writer)
{
    static const char *const names[] = {"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED",
                                        "DCGM_FI_DEV_FB_RESERVED"};
    static const char *const helps[] = {"Framebuffer memory free (in MiB).",
                                        "Framebuffer memory used (in MiB).",
                                        "Framebuffer memory reserved (in MiB)."};
    const struct rg_view *view = writer->view;
    for (int f = 0; f < 3; f++) {
        bool begun = false;
        for (uint32_t i = 0; i < view->driver.n_devices; i++) {
            double used = 0, free = 0;
            bool known = rg_view_memory(view, i, &used, &free);
            if (f == 2)
                known = (view->gpus[i].known >> RG_GPU_FB_RESERVED & 1) != 0;
            if (!known)
                continue;
            if (!begun)
                rg_exposition_family(writer->out, names[f], RG_METRIC_GAUGE, "", helps[f]);
            begun = true;
            rg_exposition_sample(writer->out, writer->gpus[i].labels, GPU_LABELS,
                                 (f == 0   ? free
                                  : f == 1 ? used
                                           : view->gpus[i].values[RG_GPU_FB_RESERVED]) /
                                     MIB);
        }
    }
}

/* --- of GPUs, ours ----------------------------------------------------------------------------------------- */

enum of_gpu {
    MEMORY,
    MEMORY_HELD,
    MEMORY_RESERVED,
    MEMORY_REFUSALS,
    BUSY,
    THROTTLED,
    SESSIONS,
    WARM,
    MEMORY_WARM,
    OF_GPU
};

static const struct {
    enum rg_metric_type type;
    const char *name, *unit, *help;
} of_gpu[OF_GPU] = {
    [MEMORY] = {RG_METRIC_GAUGE, "rgpu_gpu_memory_bytes", "bytes", "Memory of the GPU."},
    [MEMORY_HELD] = {RG_METRIC_GAUGE, "rgpu_gpu_memory_held_bytes", "bytes",
                     "Memory that sessions have allocated."},
    [MEMORY_RESERVED] = {RG_METRIC_GAUGE, "rgpu_gpu_memory_reserved_bytes", "bytes",
                         "Memory that is guaranteed to sessions."},
    [MEMORY_REFUSALS] = {RG_METRIC_COUNTER, "rgpu_gpu_memory_refusals", "",
                         "Allocations that were refused for the sake of a session's limit."},
    [BUSY] = {RG_METRIC_COUNTER, "rgpu_gpu_busy_seconds", "seconds",
              "Time in which the GPU worked for sessions, summed over sessions."},
    [THROTTLED] = {RG_METRIC_COUNTER, "rgpu_gpu_throttled_seconds", "seconds",
                   "Time for which sessions' work has waited for its turn on the GPU."},
    [SESSIONS] = {RG_METRIC_GAUGE, "rgpu_gpu_sessions", "", "Sessions that have the GPU."},
    [WARM] = {RG_METRIC_GAUGE, "rgpu_gpu_warm_workers", "",
              "Workers that are kept ready for sessions on the GPU."},
    [MEMORY_WARM] = {RG_METRIC_GAUGE, "rgpu_gpu_memory_warm_bytes", "bytes",
                     "Memory that these hold until a session needs it."},
};

static double sessions_on(const struct rg_view *view, uint32_t device)
{
    double n = 0;
    for (uint32_t i = 0; i < view->n_sessions; i++)
        for (uint32_t j = 0; j < view->sessions[i].info.n_devices; j++)
            n += view->sessions[i].info.devices[j] == device;
    return n;
}

static double value_of(const struct rg_view *view, enum of_gpu which, uint32_t i)
{
    const struct rg_gauge_device *device = &view->gauges.devices[i];
    const double values[OF_GPU] = {[MEMORY] = (double)view->driver.devices[i].memory_total,
                                   [MEMORY_HELD] = (double)device->held,
                                   [MEMORY_RESERVED] = (double)device->promised,
                                   [MEMORY_REFUSALS] = (double)device->memory_refusals,
                                   [BUSY] = (double)device->busy_ns * 1e-9,
                                   [THROTTLED] = (double)device->throttled_ns * 1e-9,
                                   [SESSIONS] = sessions_on(view, i),
                                   [WARM] = (double)view->driver.devices[i].warm_workers,
                                   [MEMORY_WARM] = (double)view->driver.devices[i].memory_warm};
    return values[which];
}

static void write_gpus(const struct writer *writer)
{
    for (int f = 0; f < OF_GPU; f++) {
        rg_exposition_family(writer->out, of_gpu[f].name, of_gpu[f].type, of_gpu[f].unit, of_gpu[f].help);
        for (uint32_t i = 0; i < writer->view->driver.n_devices; i++)
            rg_exposition_sample(writer->out, writer->gpus[i].labels, OWN_LABELS,
                                 value_of(writer->view, (enum of_gpu)f, i));
    }
}

/* --- of the server ----------------------------------------------------------------------------------------- */

static void write_one(struct rg_exposition *out, const char *name, enum rg_metric_type type, const char *unit,
                      const char *help, double value)
{
    rg_exposition_family(out, name, type, unit, help);
    rg_exposition_sample(out, NULL, 0, value);
}

static void write_sessions(const struct rg_view *view, struct rg_exposition *out)
{
    static const char *const transports[] = {"tcp", "tls", "unix"};
    static const char *const ends[RG_GAUGE_ENDS] = {"ended", "failed", "killed"};
    double states[RG_SHARE_STATES] = {0};
    for (uint32_t i = 0; i < view->n_sessions; i++)
        states[view->sessions[i].info.state < RG_SHARE_STATES ? view->sessions[i].info.state
                                                              : RG_SHARE_UNKNOWN]++;
    rg_exposition_family(out, "rgpu_sessions", RG_METRIC_GAUGE, "",
                         "Sessions that there are, by what they do.");
    for (int i = 0; i < RG_SHARE_STATES; i++)
        rg_exposition_sample(
            out, (const struct rg_label[]){{"state", rg_share_state_name((enum rg_share_state)i)}}, 1,
            states[i]);
    rg_exposition_family(out, "rgpu_sharing_sessions", RG_METRIC_GAUGE, "",
                         "Sessions that there are, by how they share GPUs.");
    for (int i = RG_SHARING_TURNS; i < RG_SHARINGS; i++) {
        double n = 0;
        for (uint32_t j = 0; j < view->n_sessions; j++)
            n += (int)view->sessions[j].info.sharing == i;
        rg_exposition_sample(out, (const struct rg_label[]){{"sharing", rg_sharing_name((enum rg_sharing)i)}},
                             1, n);
    }
    rg_exposition_family(out, "rgpu_transport_sessions", RG_METRIC_GAUGE, "",
                         "Sessions that there are, by how they began; they may have gone on by RDMA.");
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++) {
        double n = 0;
        for (uint32_t i = 0; i < view->n_sessions; i++)
            n += strcmp(rg_view_transport(&view->sessions[i].info), transports[t]) == 0;
        rg_exposition_sample(out, (const struct rg_label[]){{"transport", transports[t]}}, 1, n);
    }
    write_one(out, "rgpu_sessions_limit", RG_METRIC_GAUGE, "", "Sessions that there may be at once.",
              view->max_sessions);
    write_one(out, "rgpu_sessions_waiting", RG_METRIC_GAUGE, "",
              "Sessions that wait for others of lower priority to give them their memory.",
              view->gauges.waiting);
    write_one(out, "rgpu_sessions_started", RG_METRIC_COUNTER, "", "Sessions that have begun.",
              (double)view->gauges.granted);
    rg_exposition_family(out, "rgpu_sessions_ended", RG_METRIC_COUNTER, "",
                         "Sessions that have ended, by how their worker did.");
    for (int i = 0; i < RG_GAUGE_ENDS; i++)
        rg_exposition_sample(out, (const struct rg_label[]){{"how", ends[i]}}, 1,
                             (double)view->gauges.ended[i]);
    rg_exposition_family(out, "rgpu_refusals", RG_METRIC_COUNTER, "",
                         "Clients that were refused, by reason; counted within seconds.");
    for (uint32_t i = 0; i < RG_REFUSALS; i++)
        rg_exposition_sample(out, (const struct rg_label[]){{"reason", rg_refusal_name(rg_refusal_at(i))}}, 1,
                             (double)view->gauges.refused[i]);
    rg_exposition_family(out, "rgpu_bulk_bytes", RG_METRIC_COUNTER, "bytes",
                         "Bulk data between clients and GPUs, from the client (in) and to it (out).");
    rg_exposition_sample(out, (const struct rg_label[]){{"direction", "in"}}, 1,
                         (double)view->gauges.bytes_in);
    rg_exposition_sample(out, (const struct rg_label[]){{"direction", "out"}}, 1,
                         (double)view->gauges.bytes_out);
    write_one(out, "rgpu_launches", RG_METRIC_COUNTER, "", "Kernels and whole graphs that were launched.",
              (double)view->gauges.launches);
}

static void write_server(const struct rg_view *view, struct rg_exposition *out)
{
    const struct rg_gauges *gauges = &view->gauges;
    char why[512];
    rg_exposition_family(out, "rgpu_build", RG_METRIC_INFO, "", "What answers here.");
    rg_exposition_sample(
        out, (const struct rg_label[]){{"version", RG_VERSION}, {"driver", view->driver.info.kind}}, 2, 1);
    write_one(out, "rgpu_start_time_seconds", RG_METRIC_GAUGE, "seconds",
              "When the server began, since 1970.", (double)gauges->began_unix);
    write_one(out, "rgpu_ready", RG_METRIC_GAUGE, "", "1: new sessions can begin (/readyz says why not).",
              !rg_view_why_not_ready(view, why, sizeof why));
    write_one(out, "rgpu_draining", RG_METRIC_GAUGE, "",
              "1: no new sessions, as the operator wants it, or as the server is about to stop.",
              gauges->drained || gauges->stopping);
    if (gauges->accounts != RG_GAUGE_NO_ACCOUNTS)
        write_one(out, "rgpu_accounts_saved", RG_METRIC_GAUGE, "",
                  "1: what sessions use is being written down; 0: it is kept in memory, as that fails.",
                  gauges->accounts == RG_GAUGE_ACCOUNTS);
    if (!gauges->in_pool)
        return;
    const struct rg_label pool[] = {{"pool", gauges->pool}};
    rg_exposition_family(out, "rgpu_pool_member", RG_METRIC_GAUGE, "",
                         "1: the server has its place in the pool; 0: it is cut off from it.");
    rg_exposition_sample(out, pool, 1, rg_now_ns() < gauges->pool_until_ns);
    rg_exposition_family(out, "rgpu_pool_leases", RG_METRIC_GAUGE, "", "Leases of GPUs of this server.");
    rg_exposition_sample(out, pool, 1, gauges->pool_leases);
    rg_exposition_family(out, "rgpu_pool_requests_waiting", RG_METRIC_GAUGE, "",
                         "Requests of the whole pool that wait.");
    rg_exposition_sample(out, pool, 1, gauges->pool_waiting);
    rg_exposition_family(out, "rgpu_pool_gpus_waited_for", RG_METRIC_GAUGE, "", "GPUs that they ask for.");
    rg_exposition_sample(out, pool, 1, gauges->pool_waiting_gpus);
    rg_exposition_family(out, "rgpu_pool_longest_wait_seconds", RG_METRIC_GAUGE, "seconds",
                         "For how long one of them has waited at most.");
    rg_exposition_sample(out, pool, 1, (double)gauges->pool_longest_s);
}

void rg_metrics_write(const struct rg_view *view, struct rg_exposition *out)
{
    struct writer writer = {.view = view, .out = out};
    for (uint32_t i = 0; i < view->driver.n_devices; i++)
        name_gpu(view, i, &writer.gpus[i]);
    write_server(view, out);
    write_sessions(view, out);
    write_gpus(&writer);
    write_figures(&writer);
    write_framebuffer(&writer);
}
