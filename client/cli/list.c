/*
 * list.c - remote-gpu list: servers, their GPUs, and who uses them.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/inventory.h"
#include "client/cli/base/output.h"
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
    printf("  GPU %u: %s, compute capability %u.%u, %s, free %s%s\n", first + device->ordinal, device->name,
           device->compute_major, device->compute_minor, total, available,
           direct[device->direct & (RG_CONTROL_GPUDIRECT_DMABUF | RG_CONTROL_GPUDIRECT_PEER)]);
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
    for (uint32_t i = 0; i < inventory->n_sessions; i++)
        print_session(&inventory->sessions[i], answer->first);
    if (inventory->n_sessions < inventory->sessions_running)
        printf("  and %u more sessions\n", inventory->sessions_running - inventory->n_sessions);
}

int rg_cli_list(const struct rg_cli_settings *settings, int argc, char **argv)
{
    return rg_inventory_show(settings, "list", argc, argv, print_server);
}
