/*
 * hello.c - describing the driver and its devices, answering the client. See hello.h.
 */
#include "server/handshake/hello.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/cache/digest.h"
#include "generated/proto/ops.h"
#include "generated/server/driver.h"
#include "server/handshake/host_memory.h"
#include "server/handshake/keep_alive.h"
#include "server/handshake/prepare.h"
#include "server/handshake/rails.h"
#include "server/shares/worker/share.h"
#include "transport/control.h"
#include "transport/liveness.h"
#include "transport/topology/proximity.h"
#include "transport/upgrade/upgrade.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool describe(const struct rg_hello *hello, uint32_t index, struct rg_device_info *out, char *why,
                     size_t why_size)
{
    CUdevice device;
    size_t total = 0;
    char name[RG_CONTROL_TEXT] = "", pci[32] = "";
    int major = 0, minor = 0;
    if (!rg_prepare_check(rg_driver.cuDeviceGet(&device, (int)index), "cuDeviceGet", why, why_size) ||
        !rg_prepare_check(rg_driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName", why,
                          why_size) ||
        !rg_prepare_check(rg_driver.cuDeviceTotalMem_v2(&total, device), "cuDeviceTotalMem", why, why_size) ||
        !rg_prepare_check(
            rg_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
            "cuDeviceGetAttribute", why, why_size) ||
        !rg_prepare_check(
            rg_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
            "cuDeviceGetAttribute", why, why_size))
        return false;
    out->ordinal = hello->devices[index];
    rg_control_text(out->name, sizeof out->name, name, strlen(name));
    out->memory_total = total;
    out->compute_major = (uint32_t)major;
    out->compute_minor = (uint32_t)minor;
    CUuuid uuid;
    CUresult result = rg_driver_has(cuDeviceGetUuid_v2) ? rg_driver.cuDeviceGetUuid_v2(&uuid, device)
                                                        : rg_driver.cuDeviceGetUuid(&uuid, device);
    if (result == CUDA_SUCCESS)
        memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); /* by the monitor */
    out->mig = visible && strncmp(visible, "MIG-", 4) == 0;
    if (rg_driver.cuDeviceGetPCIBusId(pci, sizeof pci - 1, device) == CUDA_SUCCESS)
        rg_control_text(out->pci, sizeof out->pci, pci, strlen(pci));
    return true;
}

/* All that can be asked of a device, so that the client need not. */
static void describe_attributes(uint32_t index, struct rg_device_info *out)
{
    CUdevice device;
    const uint32_t n =
        CU_DEVICE_ATTRIBUTE_MAX < RG_CONTROL_ATTRIBUTES ? CU_DEVICE_ATTRIBUTE_MAX : RG_CONTROL_ATTRIBUTES;
    if (rg_driver.cuDeviceGet(&device, (int)index) != CUDA_SUCCESS)
        return;
    for (uint32_t i = 0; i < n; i++) {
        int value = 0;
        out->attribute_results[i] =
            (uint32_t)rg_driver.cuDeviceGetAttribute(&value, (CUdevice_attribute)i, device);
        out->attributes[i] = out->attribute_results[i] == CUDA_SUCCESS ? value : 0;
    }
    out->n_attributes = n;
}

/* What tells one state of a file from another. */
static struct rg_digest file_state(const char *path)
{
    struct stat status = {0};
    (void)stat(path, &status);
    const uint64_t numbers[] = {status.st_dev, status.st_ino, (uint64_t)status.st_size,
                                (uint64_t)status.st_mtim.tv_sec, (uint64_t)status.st_mtim.tv_nsec};
    const struct rg_digest_part parts[] = {{path, strlen(path)}, {numbers, sizeof numbers}};
    return rg_digest_of(parts, 2);
}

/* What answers about images depend on: a client may keep them for as long as this is the same. */
static void digest_answers(const struct rg_hello *hello, struct rg_server_hello *server)
{
    static const char *const settings[] = {"SOFTGPU_", "CUDA_"};
    struct rg_digest state[2] = {file_state("/proc/self/exe"), file_state(hello->driver)};
    struct rg_digest all = {0};
    for (char **at = environ; *at; at++)
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
            if (strncmp(*at, settings[i], strlen(settings[i])) == 0) {
                const struct rg_digest_part parts[] = {{&all, sizeof all}, {*at, strlen(*at)}};
                all = rg_digest_of(parts, 2);
            }
    for (uint32_t i = 0; i < server->n_devices; i++) {
        const struct rg_device_info *device = &server->devices[i];
        const struct rg_digest_part parts[] = {
            {&all, sizeof all},
            {device->name, strlen(device->name)},
            {device->uuid, sizeof device->uuid},
            {&device->memory_total, sizeof device->memory_total},
            {device->attributes, device->n_attributes * sizeof *device->attributes}};
        all = rg_digest_of(parts, sizeof parts / sizeof *parts);
    }
    const struct rg_digest_part parts[] = {{&all, sizeof all},
                                           {state, sizeof state},
                                           {server->software, strlen(server->software)},
                                           {rg_api_digest, sizeof rg_api_digest},
                                           {&server->driver.version, sizeof server->driver.version}};
    all = rg_digest_of(parts, sizeof parts / sizeof *parts);
    memcpy(server->answers, all.bytes, sizeof server->answers);
}

/* Now that the driver has what it needs; the software device's memory is of this machine's. */
static void limit_host_memory(const struct rg_hello *hello, const struct rg_device_info *devices)
{
    uint64_t memory = 0;
    for (uint32_t i = 0; i < hello->n_devices && strcmp(hello->driver_kind, "soft") == 0; i++)
        memory += devices[i].memory_total;
    rg_host_memory_limit(memory);
}

/* The client's hello, which the daemon has read. */
static enum rg_status read_hello(int fd, struct rg_control *out)
{
    RG_CLEANUP_FREE unsigned char *data = malloc(RG_MESSAGE_MAX);
    size_t size = 0;
    if (!data)
        return RG_ERR_NO_MEMORY;
    while (size < RG_MESSAGE_MAX) {
        ssize_t got = read(fd, data + size, RG_MESSAGE_MAX - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size += (size_t)got;
    }
    return rg_control_unpack(data, size, out);
}

static void refuse(struct rg_conn *conn, enum rg_refusal_code code, const char *why)
{
    struct rg_control refusal;
    rg_error("%s", why);
    rg_refusal_init(&refusal, code, "%s", why);
    if (rg_control_send(conn, &refusal) != RG_OK)
        rg_info("the client had gone before it could be told");
}

/* A worker that was kept warm has its driver already, for clients as this one: the monitor has seen to that. */
static bool is_prepared(const struct rg_hello *hello, const struct rg_client_hello *client, char *why,
                        size_t why_size)
{
    const struct rg_shape shape = rg_shape_of(client), *prepared = rg_prepared_shape();
    if (!prepared)
        return rg_prepare_driver(hello, &shape, why, why_size) == RG_OK;
    if (rg_shape_is(prepared, &shape))
        return true;
    rg_explain(why, why_size, "the worker was made ready for another program; run the command again");
    return false;
}

/* What both sides can do. */
static void agree(struct rg_hello *hello, const struct rg_client_hello *client,
                  struct rg_server_hello *server)
{
    hello->times = client->capabilities & RG_CONTROL_CAP_TIMES;
    hello->said = client->capabilities & RG_CONTROL_CAP_SAY;
    hello->gpu_paths = client->capabilities & RG_CONTROL_CAP_GPU_PATH;
    server->capabilities |= RG_CONTROL_CAP_AWAITED | RG_CONTROL_CAP_DELTA | RG_CONTROL_CAP_KEEP_ALIVE;
    if (hello->times)
        server->capabilities |= RG_CONTROL_CAP_TIMES;
    server->keep_alive = hello->keep_alive_s = rg_keep_alive_seconds(client->keep_alive);
}

/* Starts the driver where that has not been done, and describes the session's devices in server->devices. */
static bool start_driver(const struct rg_hello *hello, const struct rg_client_hello *client,
                         struct rg_server_hello *server, char *why, size_t why_size)
{
    int count = 0;
    if (!is_prepared(hello, client, why, why_size) ||
        !rg_prepare_check(rg_driver.cuDeviceGetCount(&count), "cuDeviceGetCount", why, why_size))
        return false;
    if ((uint32_t)count < hello->n_devices) {
        rg_explain(why, why_size, "the driver shows %d of the %u devices of this session", count,
                   hello->n_devices);
        return false;
    }
    for (uint32_t i = 0; i < hello->n_devices; i++)
        if (!describe(hello, i, &server->devices[i], why, why_size))
            return false;
    for (uint32_t i = 0; i < hello->n_devices; i++)
        describe_attributes(i, &server->devices[i]);
    server->n_devices = hello->n_devices;
    if (hello->n_devices) /* staging buffers near the device; what is there by now is the driver's own */
        rg_proximity_prefer_node(rg_proximity_node("", server->devices[0].pci));
    limit_host_memory(hello, server->devices);
    return true;
}

/* The names of all operations for a client that has others. */
static void name_operations(const struct rg_client_hello *client, struct rg_server_hello *server)
{
    static const char *names[RG_OP_COUNT];
    memcpy(server->api_digest, rg_api_digest, sizeof server->api_digest);
    if (memcmp(client->api_digest, rg_api_digest, sizeof rg_api_digest) == 0)
        return;
    for (unsigned op = 0; op < RG_OP_COUNT; op++)
        names[op] = rg_op_names[op] ? rg_op_names[op] : "";
    server->opcode_names = names;
    server->n_opcode_names = RG_OP_COUNT;
}

static void describe_session(const struct rg_hello *hello, const struct rg_client_hello *client,
                             struct rg_server_hello *server)
{
    server->driver.version = rg_prepared_version();
    snprintf(server->driver.kind, sizeof server->driver.kind, "%s", hello->driver_kind);
    rg_control_text(server->driver.path, sizeof server->driver.path, hello->driver, strlen(hello->driver));
    server->limits = (struct rg_limits_info){RG_MESSAGE_MAX, RG_BULK_MAX, hello->max_sessions};
    server->session = hello->session;
    server->sharing = rg_share.slot ? rg_share_grant_sharing(&rg_share.grant) : RG_SHARING_UNKNOWN;
    server->compute_millionths = rg_share.grant.compute_millionths;
    digest_answers(hello, server);
    rg_prepare_contexts(client->contexts, hello->n_devices);
    server->contexts = rg_prepared_contexts() & client->contexts;
}

enum rg_status rg_hello_answer(struct rg_hello *hello, struct rg_conn **connection,
                               struct rg_conn **control_conn, struct rg_channels *channels,
                               struct rg_resume *resume)
{
    struct rg_conn *conn = *connection;
    *control_conn = NULL;
    static struct rg_device_info devices[RG_DEVICES_MAX];
    static struct rg_control received, answer;
    char why[512] = "";
    if (read_hello(hello->hello_fd, &received) != RG_OK || received.kind != RG_CONTROL_CLIENT_HELLO) {
        refuse(conn, RG_REFUSAL_INTERNAL, "the worker did not get the client's hello");
        return RG_ERR_PROTOCOL;
    }
    rg_server_hello_init(&answer);
    const struct rg_client_hello *client = &received.client_hello;
    struct rg_server_hello *server = &answer.server_hello;
    server->devices = devices;
    agree(hello, client, server);
    if (!start_driver(hello, client, server, why, sizeof why)) {
        refuse(conn, RG_REFUSAL_DRIVER, why);
        rg_control_fini(&received);
        return RG_ERR_REFUSED;
    }
    name_operations(client, server);
    describe_session(hello, client, server);
    struct rg_upgrade *upgrade = hello->no_rdma ? NULL : rg_upgrade_open(&client->transports, server);
    rg_channels_agree(client, server, channels);
    if (!hello->reconnect_automatic || rg_resume_is_worth_it(conn, upgrade != NULL))
        rg_resume_offer(resume, hello->session, hello->reconnect_s, client, conn, server);
    if (upgrade)
        rg_resume_offer_upgrade(resume, server);
    if (resume->offered && !upgrade && channels->options.channels)
        channels->rails = rg_rails_tell(hello->rails, conn, server);
    if (resume->offered && !upgrade)
        rg_liveness_watch_closely(conn);
    rg_control_fini(&received);
    enum rg_status status = rg_control_send(conn, &answer);
    if (status == RG_OK && upgrade) {
        status = rg_upgrade_finish(upgrade, connection, control_conn);
        if (*control_conn)
            channels->options.channels = 0;
        return status;
    }
    rg_upgrade_abandon(upgrade);
    if (status != RG_OK)
        rg_info("session %llu: the client had gone before it began (%s)", (unsigned long long)hello->session,
                rg_status_string(status));
    return status;
}
