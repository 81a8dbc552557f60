/*
 * list.c - remote-gpu list: servers, their GPUs, and who uses them.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/inventory.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "client/cli/topology.h"
#include "common/base/log.h"
#include "common/base/uuid_text.h"
#include "generated/proto/driver_versions.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void print_device(const struct rg_device_info *device, unsigned first)
{
    char total[24], available[24] = "n/a";
    rg_cli_bytes_text(device->memory_total, total, sizeof total);
    if (device->memory_free_known)
        rg_cli_bytes_text(device->memory_free, available, sizeof available);
    static const char *const direct[] = {"", ", RDMA into its memory by dma-buf",
                                         ", RDMA into its memory by nvidia_peermem",
                                         ", RDMA into its memory by dma-buf or nvidia_peermem"};
    char guaranteed[48] = "", bytes[24];
    if (device->memory_guaranteed)
        snprintf(guaranteed, sizeof guaranteed, ", guaranteed %s",
                 rg_cli_bytes_text(device->memory_guaranteed, bytes, sizeof bytes));
    char warm[80] = "";
    if (device->warm_workers)
        snprintf(warm, sizeof warm, ", %u warm worker%s hold%s %s", device->warm_workers,
                 device->warm_workers == 1 ? "" : "s", device->warm_workers == 1 ? "s" : "",
                 rg_cli_bytes_text(device->memory_warm, bytes, sizeof bytes));
    char instance[120] = "", uuid[RG_UUID_TEXT], whole[RG_UUID_TEXT];
    if (device->mig)
        snprintf(instance, sizeof instance, ", %s of %s", rg_uuid_text(device->uuid, true, uuid, sizeof uuid),
                 rg_uuid_text(device->whole, false, whole, sizeof whole));
    printf("  GPU %u: %s, compute capability %u.%u, %s, free %s%s%s%s%s\n", first + device->ordinal,
           device->name, device->compute_major, device->compute_minor, total, available, instance, guaranteed,
           warm, direct[device->direct & (RG_CONTROL_GPUDIRECT_DMABUF | RG_CONTROL_GPUDIRECT_PEER)]);
}

/* What it has and uses of each GPU, as far as the server tells. */
static void print_share(const struct rg_session_info *session, unsigned first)
{
    uint64_t busy = 0, throttled = 0;
    for (uint32_t i = 0; i < session->n_shares; i++) {
        const struct rg_share_info *share = &session->shares[i];
        char used[24], limit[24], peak[24];
        rg_cli_bytes_text(share->memory_used, used, sizeof used);
        rg_cli_bytes_text(share->memory_limit, limit, sizeof limit);
        rg_cli_bytes_text(share->memory_peak, peak, sizeof peak);
        printf("    GPU %u: %s", first + session->devices[i], used);
        if (share->memory_limit)
            printf(" of %s%s", limit, session->overcommitted ? " (not guaranteed)" : "");
        printf(", at most %s so far\n", peak);
        busy += share->busy_ns;
        throttled += share->throttled_ns;
    }
    if (!session->weight)
        return; /* an older server */
    printf("    %s, priority %s, weight %u", rg_share_state_name(session->state),
           rg_share_priority_name(session->priority), session->weight);
    if (session->compute_millionths)
        printf(", at most %g %% of each GPU's %s", session->compute_millionths / 1e4,
               session->sharing == RG_SHARING_MPS ? "multiprocessors" : "time");
    if (busy)
        printf(", %.3f s of work", (double)busy / 1e9);
    if (throttled)
        printf(", which waited %.3f s for its turn", (double)throttled / 1e9);
    if (session->idle_timeout_ns)
        printf(", suspended when idle for %g s", (double)session->idle_timeout_ns / 1e9);
    static const char *const ways[RG_SHARINGS] = {
        [RG_SHARING_TURNS] = ", shares GPUs by turns", [RG_SHARING_MPS] = ", shares GPUs by MPS"};
    if (session->exclusive)
        printf(", alone on its GPUs");
    else if (ways[session->sharing])
        printf("%s", ways[session->sharing]);
    printf("%s%s\n", session->project[0] ? ", project " : "", session->project);
}

static void print_session(const struct rg_session_info *session, unsigned first)
{
    long long seconds = (long long)time(NULL) - (long long)session->since_unix;
    printf("  session %llu: %s@%s, process %u, for %lld s, GPU %s", (unsigned long long)session->id,
           session->identity.user, session->identity.host, session->identity.pid, seconds > 0 ? seconds : 0,
           session->n_devices ? "" : "none");
    for (uint32_t i = 0; i < session->n_devices; i++)
        printf("%s%u", i ? "," : "", first + session->devices[i]);
    /* a user whom the server's kernel knows: nothing that could be encrypted leaves that machine */
    const bool local =
        strncmp(session->peer, "unix", 4) == 0 || strncmp(session->identity_name, "uid ", 4) == 0;
    printf(", %s%s: %s\n", session->identity_name[0] ? session->identity_name : "unauthenticated",
           session->encrypted ? ", encrypted"
           : local            ? ""
                              : ", not encrypted",
           session->identity.command);
    print_share(session, first);
}

/* What came with later versions than the server's, the oldest first. */
static void print_lacks(uint32_t version)
{
    const struct rg_driver_version *at = rg_driver_versions, *end = at + RG_DRIVER_VERSIONS;
    unsigned ptx = at->ptx;
    for (; at < end && at->number <= (int)version; at++)
        ptx = at->ptx;
    if (at == end)
        return;
    printf("  this driver takes PTX up to %u.%u and lacks (docs/drivers.md):\n", ptx / 10, ptx % 10);
    for (; at < end; at++)
        printf("    of CUDA %d.%d: %s\n", at->number / 1000, at->number % 1000 / 10, at->news);
}

static void print_server(const struct rg_answer_of *answer)
{
    const struct rg_inventory *inventory = &answer->message.inventory;
    printf("%s: %s, %s driver, CUDA %u.%u, %u of %u sessions%s\n", answer->server, inventory->software,
           inventory->driver.kind, inventory->driver.version / 1000, inventory->driver.version % 1000 / 10,
           inventory->sessions_running, inventory->limits.sessions,
           inventory->unauthenticated ? ", takes unauthenticated clients" : "");
    print_lacks(inventory->driver.version);
    for (uint32_t i = 0; i < inventory->n_devices; i++)
        print_device(&inventory->devices[i], answer->first);
    if (inventory->machine.rails[0])
        printf("  rails: %s\n", inventory->machine.rails);
    if (inventory->machine.tcp_rails[0])
        printf("  rails over TCP: %s\n", inventory->machine.tcp_rails);
    for (uint32_t i = 0; i < inventory->n_sessions; i++)
        print_session(&inventory->sessions[i], answer->first);
    if (inventory->n_sessions < inventory->sessions_running)
        printf("  and %u more sessions\n", inventory->sessions_running - inventory->n_sessions);
    if (answer->pool)
        rg_pool_print(answer->pool);
}

/* What its pool has, which any of the pool's servers tells. */
static void look_at_pool(const struct rg_cli_settings *settings, struct rg_answer_of *answer)
{
    struct rg_pool_failure failure;
    char machine[RG_CONTROL_TEXT];
    if (!answer->ok || !answer->message.inventory.pool[0])
        return;
    answer->pool = rg_pool_list(answer->server, rg_pool_machine(machine, sizeof machine),
                                settings->timeout_ns, &failure);
    if (!answer->pool)
        rg_warn("the pool %s: %s", answer->message.inventory.pool, failure.why);
}

int rg_cli_list(const struct rg_cli_settings *settings, int argc, char **argv)
{
    return rg_inventory_show(settings, "list", argc, argv, look_at_pool,
                             settings->topology ? rg_cli_print_topology : print_server);
}
