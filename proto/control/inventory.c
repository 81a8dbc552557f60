/*
 * inventory.c - what a server says of its devices and sessions, into protobuf and back. See fields.h.
 */
#include "proto/control/fields.h"

#include "common/base/cleanup.h"

#include <stdlib.h>

/* clang-format off */
#define INVENTORY_FIELDS(NUMBER, TEXT)                                                                       \
    RG_VERSION_FIELDS(NUMBER, TEXT) NUMBER(sessions_running) NUMBER(unauthenticated) TEXT(host) TEXT(pool)
#define MACHINE_FIELDS(NUMBER, TEXT)                                                                         \
    NUMBER(clock_ns) TEXT(kernel) TEXT(rdma) TEXT(rails) TEXT(tcp_rails)
#define SANDBOX_FIELDS(NUMBER, TEXT)                                                                         \
    TEXT(mode) TEXT(holds) TEXT(missing)
#define SESSION_FIELDS(NUMBER, TEXT)                                                                         \
    NUMBER(id) NUMBER(since_unix) NUMBER(encrypted) NUMBER(compute_millionths) NUMBER(weight)                \
    NUMBER(idle_timeout_ns) NUMBER(launches) NUMBER(overcommitted) NUMBER(exclusive) TEXT(peer)              \
    TEXT(identity_name) TEXT(project)
#define SHARE_FIELDS(NUMBER, TEXT)                                                                           \
    NUMBER(memory_limit) NUMBER(memory_used) NUMBER(memory_peak) NUMBER(busy_ns) NUMBER(throttled_ns)
/* clang-format on */

/* --- packing -------------------------------------------------------------------------------------------- */

/* What a session needs besides the typed message. */
struct packed_session {
    Rg__Session session;
    Rg__Identity identity;
    Rg__SessionShare shares[RG_DEVICES_MAX], *share_pointers[RG_DEVICES_MAX];
};

static void pack_share(Rg__SessionShare *to, const struct rg_share_info *from)
{
    rg__session_share__init(to);
    RG_PACK_FIELDS(SHARE_FIELDS)
}

static enum rg_status pack_session(struct packed_session *packed, const struct rg_session_info *from)
{
    if (from->n_devices > RG_DEVICES_MAX || (from->n_shares && from->n_shares != from->n_devices))
        return RG_ERR_LIMIT;
    Rg__Session *to = &packed->session;
    rg__session__init(to);
    RG_PACK_FIELDS(SESSION_FIELDS)
    to->priority = from->priority;
    to->state = from->state;
    to->sharing = from->sharing;
    rg_pack_identity(&packed->identity, &from->identity);
    to->identity = &packed->identity;
    to->n_devices = from->n_devices;
    to->devices = (uint32_t *)from->devices;
    for (uint32_t i = 0; i < from->n_shares; i++) {
        pack_share(&packed->shares[i], &from->shares[i]);
        packed->share_pointers[i] = &packed->shares[i];
    }
    to->n_shares = from->n_shares;
    to->shares = packed->share_pointers;
    return RG_OK;
}

static void pack_machine(Rg__Machine *to, const struct rg_machine_info *from)
{
    rg__machine__init(to);
    RG_PACK_FIELDS(MACHINE_FIELDS)
}

static void pack_sandbox(Rg__Sandbox *to, const struct rg_sandbox_info *from)
{
    rg__sandbox__init(to);
    RG_PACK_FIELDS(SANDBOX_FIELDS)
}

enum rg_status rg_pack_inventory(Rg__Control *control, const struct rg_inventory *from, void **data,
                                 size_t *size)
{
    if (from->n_sessions > RG_CONTROL_SESSIONS)
        return RG_ERR_LIMIT;
    RG_CLEANUP_FREE struct packed_session *sessions = calloc(from->n_sessions + 1u, sizeof *sessions);
    RG_CLEANUP_FREE Rg__Session **session_pointers = calloc(from->n_sessions + 1u, sizeof *session_pointers);
    if (!sessions || !session_pointers)
        return RG_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < from->n_sessions; i++) {
        RG_TRY(pack_session(&sessions[i], &from->sessions[i]));
        session_pointers[i] = &sessions[i].session;
    }
    Rg__Inventory inventory, *to = &inventory;
    rg__inventory__init(to);
    RG_PACK_FIELDS(INVENTORY_FIELDS)
    to->n_sessions = from->n_sessions;
    to->sessions = session_pointers;
    struct rg_packed_devices devices;
    RG_TRY(rg_pack_devices(&devices, from->devices, from->n_devices));
    to->n_devices = from->n_devices;
    to->devices = devices.pointers;
    Rg__Driver driver;
    rg_pack_driver(&driver, &from->driver);
    to->driver = &driver;
    Rg__Limits limits;
    rg_pack_limits(&limits, &from->limits);
    to->limits = &limits;
    Rg__Machine machine;
    pack_machine(&machine, &from->machine);
    to->machine = &machine;
    Rg__Sandbox sandbox;
    pack_sandbox(&sandbox, &from->sandbox);
    to->sandbox = &sandbox;
    control->body_case = RG__CONTROL__BODY_INVENTORY;
    control->inventory = to;
    return rg_pack_finish(control, data, size);
}

/* --- unpacking ------------------------------------------------------------------------------------------ */

static void unpack_share(struct rg_share_info *to, const Rg__SessionShare *from)
{
    RG_PACK_FIELDS(SHARE_FIELDS)
}

/* What a newer server knows beside that is nothing to this one: a state, or priority, without a name. */
static enum rg_status unpack_session(struct rg_session_info *to, const Rg__Session *from)
{
    if (from->n_shares && from->n_shares != from->n_devices)
        return RG_ERR_PROTOCOL;
    RG_UNPACK_FIELDS(SESSION_FIELDS)
    to->priority = from->priority <= RG_SHARE_PRIORITY_HIGH ? (enum rg_share_priority)from->priority
                                                            : RG_SHARE_PRIORITY_DEFAULT;
    to->state = from->state < RG_SHARE_STATES ? (enum rg_share_state)from->state : RG_SHARE_UNKNOWN;
    to->sharing = rg_unpack_sharing(from->sharing);
    RG_TRY(rg_unpack_identity(&to->identity, from->identity));
    RG_TRY(rg_get_indices(to->devices, &to->n_devices, from->devices, from->n_devices));
    for (size_t i = 0; i < from->n_shares; i++)
        unpack_share(&to->shares[i], from->shares[i]);
    to->n_shares = (uint32_t)from->n_shares;
    return RG_OK;
}

static enum rg_status unpack_machine(struct rg_machine_info *to, const Rg__Machine *from)
{
    RG_UNPACK_FIELDS(MACHINE_FIELDS)
    return RG_OK;
}

static enum rg_status unpack_sandbox(struct rg_sandbox_info *to, const Rg__Sandbox *from)
{
    RG_UNPACK_FIELDS(SANDBOX_FIELDS)
    return RG_OK;
}

enum rg_status rg_unpack_inventory(struct rg_inventory *to, void **storage, const Rg__Inventory *from)
{
    RG_UNPACK_FIELDS(INVENTORY_FIELDS)
    RG_TRY(rg_unpack_driver(&to->driver, from->driver));
    rg_unpack_limits(&to->limits, from->limits);
    if (from->machine)
        RG_TRY(unpack_machine(&to->machine, from->machine));
    if (from->sandbox)
        RG_TRY(unpack_sandbox(&to->sandbox, from->sandbox));
    if (from->n_devices > RG_DEVICES_MAX || from->n_sessions > RG_CONTROL_SESSIONS)
        return RG_ERR_LIMIT;
    size_t devices = from->n_devices * sizeof(struct rg_device_info);
    char *memory = calloc(1, devices + from->n_sessions * sizeof(struct rg_session_info) + 1);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    *storage = memory;
    to->devices = (struct rg_device_info *)memory;
    to->n_devices = (uint32_t)from->n_devices;
    to->sessions = (struct rg_session_info *)(memory + devices);
    to->n_sessions = (uint32_t)from->n_sessions;
    RG_TRY(rg_unpack_devices(to->devices, from->devices, from->n_devices));
    for (size_t i = 0; i < from->n_sessions; i++)
        RG_TRY(unpack_session(&to->sessions[i], from->sessions[i]));
    return RG_OK;
}
