/*
 * inventory.c - see inventory.h. What comes from servers was cleaned when it was unpacked: valid UTF-8
 * without control characters, so it can go to a terminal and into JSON.
 */
#include "client/cli/base/inventory.h"

#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/query/query.h"
#include "common/base/log.h"
#include "generated/proto/driver_versions.h"

#include <stdlib.h>

struct rg_answer_of *rg_inventory_ask(const struct rg_cli_settings *settings, enum rg_purpose purpose)
{
    size_t n = settings->server.n;
    if (n == 0) {
        rg_error("the list of servers is empty; name one with -s HOST or REMOTE_GPU_SERVER");
        return NULL;
    }
    struct rg_answer_of *answers = calloc(n, sizeof *answers);
    if (!answers) {
        rg_error("out of memory");
        return NULL;
    }
    unsigned gpus = 0;
    for (size_t i = 0; i < n; i++) {
        struct rg_answer_of *answer = &answers[i];
        answer->first = gpus;
        answer->server = settings->server.items[i];
        answer->ok = rg_query(answer->server, purpose, settings->timeout_ns, &answer->message, answer->why,
                              sizeof answer->why) == RG_OK;
        gpus += answer->ok ? answer->message.inventory.n_devices : 0;
    }
    return answers;
}

void rg_inventory_free(const struct rg_cli_settings *settings, struct rg_answer_of *answers)
{
    for (size_t i = 0; answers && i < settings->server.n; i++) {
        if (answers[i].ok)
            rg_control_fini(&answers[i].message);
        json_decref(answers[i].pool);
    }
    free(answers);
}

int rg_inventory_status(const struct rg_cli_settings *settings, const struct rg_answer_of *answers)
{
    int status = 0;
    for (size_t i = 0; i < settings->server.n; i++) {
        if (answers[i].ok)
            continue;
        status = RG_EXIT_FAILURE;
        if (!settings->json)
            rg_error("%s", answers[i].why);
    }
    return status;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

/* A node or group of a device, which is told as one more than it is; null: none, or not known. */
static void add_place(json_t *out, const char *name, uint32_t told)
{
    if (out)
        json_object_set_new(out, name, told ? json_integer((json_int_t)told - 1) : json_null());
}

/* Which instance of which GPU it is; null: it is a GPU. */
static json_t *mig_json(const struct rg_device_info *device)
{
    char whole[RG_UUID_TEXT];
    if (!device->mig)
        return json_null();
    return json_pack("{s:s, s:I, s:I}", "gpu", rg_uuid_text(device->whole, false, whole, sizeof whole),
                     "gpu_instance", (json_int_t)device->gpu_instance, "compute_instance",
                     (json_int_t)device->compute_instance);
}

static json_t *device_json(const struct rg_device_info *device)
{
    char uuid[48];
    json_t *out = json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:I}", "index", (int)device->ordinal, "name",
                            device->name, "uuid", rg_uuid_text(device->uuid, device->mig, uuid, sizeof uuid),
                            "pci", device->pci, "compute_major", (int)device->compute_major, "compute_minor",
                            (int)device->compute_minor, "memory_total", (json_int_t)device->memory_total);
    if (out)
        json_object_set_new(out, "memory_free",
                            device->memory_free_known ? json_integer((json_int_t)device->memory_free)
                                                      : json_null());
    json_t *direct = out ? json_array() : NULL;
    if (device->direct & RG_CONTROL_GPUDIRECT_DMABUF)
        json_array_append_new(direct, json_string("dma-buf"));
    if (device->direct & RG_CONTROL_GPUDIRECT_PEER)
        json_array_append_new(direct, json_string("peer memory"));
    if (out)
        json_object_set_new(out, "direct", direct);
    if (out)
        json_object_set_new(out, "memory_guaranteed", json_integer((json_int_t)device->memory_guaranteed));
    if (out)
        json_object_set_new(out, "warm_workers", json_integer((json_int_t)device->warm_workers));
    if (out)
        json_object_set_new(out, "memory_warm", json_integer((json_int_t)device->memory_warm));
    if (out)
        json_object_set_new(out, "mig", mig_json(device));
    add_place(out, "numa", device->numa_node);
    add_place(out, "nvlink", device->nvlink_group);
    add_place(out, "pcie", device->pcie_group);
    return out;
}

/* A limit, or null where there is none. */
static json_t *limit_json(uint64_t limit)
{
    return limit ? json_integer((json_int_t)limit) : json_null();
}

static json_t *share_json(const struct rg_session_info *session)
{
    json_t *devices = json_array();
    for (uint32_t i = 0; i < session->n_shares; i++) {
        const struct rg_share_info *share = &session->shares[i];
        rg_cli_json_add(
            &devices,
            json_pack("{s:i, s:o, s:I, s:I, s:f, s:f}", "device", (int)session->devices[i], "memory_limit",
                      limit_json(share->memory_limit), "memory_used", (json_int_t)share->memory_used,
                      "memory_peak", (json_int_t)share->memory_peak, "busy_seconds",
                      (double)share->busy_ns / 1e9, "throttled_seconds", (double)share->throttled_ns / 1e9));
    }
    json_t *compute =
        session->compute_millionths ? json_real(session->compute_millionths / 1e6) : json_null();
    json_t *idle = session->idle_timeout_ns ? json_real((double)session->idle_timeout_ns / 1e9) : json_null();
    return json_pack("{s:o, s:o, s:i, s:s, s:s, s:o, s:I, s:s?, s:b, s:b, s:s?}", "devices", devices,
                     "compute", compute, "weight", (int)session->weight, "priority",
                     rg_share_priority_name(session->priority), "state", rg_share_state_name(session->state),
                     "idle_timeout", idle, "launches", (json_int_t)session->launches, "project",
                     session->project[0] ? session->project : NULL, "overcommitted",
                     (int)session->overcommitted, "exclusive", (int)session->exclusive, "sharing",
                     session->sharing ? rg_sharing_name(session->sharing) : NULL);
}

static json_t *session_json(const struct rg_session_info *session)
{
    json_t *devices = json_array();
    for (uint32_t i = 0; i < session->n_devices; i++)
        rg_cli_json_add(&devices, json_integer(session->devices[i]));
    return json_pack("{s:I, s:s, s:s, s:I, s:s, s:s, s:I, s:o, s:s?, s:b, s:o}", "id",
                     (json_int_t)session->id, "user", session->identity.user, "host", session->identity.host,
                     "pid", (json_int_t)session->identity.pid, "command", session->identity.command, "peer",
                     session->peer, "since", (json_int_t)session->since_unix, "devices", devices, "identity",
                     session->identity_name[0] ? session->identity_name : NULL, "encrypted",
                     (int)session->encrypted, "share", share_json(session));
}

/* What came with later versions of CUDA than the driver's. */
static json_t *lacks_json(uint32_t version)
{
    json_t *lacks = json_array();
    for (size_t i = 0; i < RG_DRIVER_VERSIONS; i++)
        if (rg_driver_versions[i].number > (int)version)
            rg_cli_json_add(&lacks, json_pack("{s:i, s:s}", "version", rg_driver_versions[i].number, "what",
                                              rg_driver_versions[i].news));
    return lacks;
}

/* What carries a session's bulk data beside its connection, as the server says it; null: nothing, or it is not told. */
static json_t *rails_json(const struct rg_machine_info *machine)
{
    return json_pack("{s:s?, s:s?}", "rdma", machine->rails[0] ? machine->rails : NULL, "tcp",
                     machine->tcp_rails[0] ? machine->tcp_rails : NULL);
}

static json_t *server_json(const struct rg_answer_of *answer)
{
    if (!answer->ok)
        return json_pack("{s:s, s:s}", "address", answer->server, "error", answer->why);
    const struct rg_inventory *inventory = &answer->message.inventory;
    json_t *devices = json_array(), *sessions = json_array();
    for (uint32_t i = 0; i < inventory->n_devices; i++)
        rg_cli_json_add(&devices, device_json(&inventory->devices[i]));
    for (uint32_t i = 0; i < inventory->n_sessions; i++)
        rg_cli_json_add(&sessions, session_json(&inventory->sessions[i]));
    return json_pack("{s:s, s:s, s:s, s:[ii], s:{s:s, s:s, s:i, s:o}, s:o, s:o, s:i, s:i, s:b, s:o, s:O*}",
                     "address", answer->server, "host", inventory->host, "software", inventory->software,
                     "protocol", (int)inventory->protocol_major, (int)inventory->protocol_minor, "driver",
                     "kind", inventory->driver.kind, "path", inventory->driver.path, "version",
                     (int)inventory->driver.version, "lacks", lacks_json(inventory->driver.version),
                     "devices", devices, "sessions", sessions, "sessions_running",
                     (int)inventory->sessions_running, "sessions_max", (int)inventory->limits.sessions,
                     "unauthenticated", (int)inventory->unauthenticated, "rails",
                     rails_json(&inventory->machine), "pool", answer->pool);
}

/* All answers as {"servers": […]}, written to stdout. False: they cannot be; it was said. */
static bool print_json(const struct rg_cli_settings *settings, const struct rg_answer_of *answers)
{
    json_t *servers = json_array();
    for (size_t i = 0; i < settings->server.n; i++)
        rg_cli_json_add(&servers, server_json(&answers[i]));
    return rg_cli_print_json(json_pack("{s:o}", "servers", servers));
}

int rg_inventory_show(const struct rg_cli_settings *settings, const char *subcommand, int argc, char **argv,
                      void (*look_on)(const struct rg_cli_settings *settings, struct rg_answer_of *answer),
                      void (*print)(const struct rg_answer_of *answer))
{
    if (!rg_cli_no_words(subcommand, argc, argv))
        return RG_EXIT_FAILURE;
    struct rg_answer_of *answers = rg_inventory_ask(settings, RG_PURPOSE_STATUS);
    if (!answers)
        return RG_EXIT_FAILURE;
    for (size_t i = 0; look_on && i < settings->server.n; i++)
        look_on(settings, &answers[i]);
    const bool written = !settings->json || print_json(settings, answers);
    for (size_t i = 0; !settings->json && i < settings->server.n; i++)
        if (answers[i].ok)
            print(&answers[i]);
    const int status = written ? rg_inventory_status(settings, answers) : RG_EXIT_FAILURE;
    rg_inventory_free(settings, answers);
    return status;
}
