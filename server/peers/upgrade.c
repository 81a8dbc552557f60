/* upgrade.c - see upgrade.h. */
#include "server/peers/upgrade.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "generated/server/driver.h"
#include "proto/peer.h"
#include "transport/control.h"
#include "transport/upgrade/upgrade.h"

#include <stdlib.h>
#include <string.h>

enum {
    SAY_MS = 10000
}; /* for the next word of the other worker, which its server may not have given the connection yet */

bool rg_peer_upgrade_may(bool allowed, const struct rg_transport_list *offered)
{
    struct rg_transport_list here;
    if (!allowed || !rg_upgrade_is_offered(offered))
        return false;
    rg_upgrade_offer(RG_TRANSPORT_AUTO, &here);
    return rg_upgrade_is_offered(&here);
}

/* --- who was connected to --------------------------------------------------------------------------------- */

/* Where the session's devices are, by which adapters are chosen; the caller frees them. */
static void find_devices(struct rg_server_hello *hello)
{
    int n = 0;
    if (!rg_driver_has(cuDeviceGetPCIBusId) || rg_driver.cuDeviceGetCount(&n) != CUDA_SUCCESS || n <= 0)
        return;
    const uint32_t count = n < RG_DEVICES_MAX ? (uint32_t)n : RG_DEVICES_MAX;
    hello->devices = calloc(count, sizeof *hello->devices);
    for (uint32_t i = 0; hello->devices && i < count; i++) {
        CUdevice device;
        char *pci = hello->devices[i].pci;
        if (rg_driver.cuDeviceGet(&device, (int)i) == CUDA_SUCCESS &&
            rg_driver.cuDeviceGetPCIBusId(pci, sizeof hello->devices[i].pci - 1, device) != CUDA_SUCCESS)
            pci[0] = '\0';
        hello->n_devices = i + 1;
    }
}

static struct rg_upgrade *listen_for(const struct rg_transport_list *asked, struct rg_server_hello *hello)
{
    find_devices(hello);
    struct rg_upgrade *upgrade = rg_upgrade_open(asked, hello);
    free(hello->devices); /* nothing that the peer needs to know */
    hello->devices = NULL;
    hello->n_devices = 0;
    return upgrade;
}

static enum rg_status answer(struct rg_conn **conn, struct rg_conn **control_conn)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    struct rg_transport_list asked = {0};
    if (!message)
        return RG_ERR_NO_MEMORY;
    RG_TRY(rg_control_receive(*conn, SAY_MS, message));
    const bool good = message->kind == RG_CONTROL_UPGRADE;
    const bool wanted = good && strcmp(message->upgrade.transport, RG_PEER_RDMA) == 0;
    const bool stays = good && strcmp(message->upgrade.transport, "tcp") == 0;
    rg_control_fini(message);
    if (!wanted)
        return stays ? RG_OK : RG_ERR_PROTOCOL;
    rg_upgrade_offer(RG_TRANSPORT_RDMA, &asked);
    rg_server_hello_init(message);
    struct rg_upgrade *upgrade = listen_for(&asked, &message->server_hello);
    const enum rg_status status = rg_control_send(*conn, message);
    explicit_bzero(message, sizeof *message);
    if (status == RG_OK && upgrade)
        return rg_upgrade_finish(upgrade, conn, control_conn);
    rg_upgrade_abandon(upgrade);
    return status;
}

/* --- who has connected ------------------------------------------------------------------------------------ */

static enum rg_status ask(bool allowed, struct rg_conn **conn, struct rg_conn **control_conn)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    struct rg_transport_list offered = {.n = 1, .names = {RG_PEER_RDMA}};
    char why[256] = "";
    if (!message)
        return RG_ERR_NO_MEMORY;
    const bool wants = rg_peer_upgrade_may(allowed, &offered);
    rg_upgrade_init(message, wants ? RG_PEER_RDMA : "tcp");
    RG_TRY(rg_control_send(*conn, message));
    if (!wants)
        return RG_OK;
    RG_TRY(rg_control_receive(*conn, SAY_MS, message));
    enum rg_status status = RG_ERR_PROTOCOL;
    if (message->kind == RG_CONTROL_SERVER_HELLO)
        status =
            rg_upgrade_follow(RG_TRANSPORT_AUTO, &message->server_hello, conn, control_conn, why, sizeof why);
    if (status == RG_OK && !*control_conn)
        rg_info("%s is reached by TCP alone: %s", rg_conn_peer(*conn), why);
    rg_control_fini(message);
    explicit_bzero(message, sizeof *message);
    return status;
}

enum rg_status rg_peer_upgrade(bool connects, bool allowed, struct rg_conn **conn,
                               struct rg_conn **control_conn)
{
    *control_conn = NULL;
    return connects ? ask(allowed, conn, control_conn) : answer(conn, control_conn);
}
