/*
 * pack.c - typed control messages into bytes.
 *
 * The protobuf structs are built on the stack and in scratch memory, point into the typed message, and are
 * packed behind the header in one allocation.
 */
#include "proto/control/control.h"

#include "common/base/cleanup.h"
#include "proto/control/control.pb-c.h"

#include <stdlib.h>
#include <string.h>

/* protobuf-c's fields are not const; packing only reads them. */
#define TEXT(field) ((char *)(field))

static ProtobufCBinaryData bytes_of(const void *data, size_t size)
{
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)data};
}

/* An all-zero digest says that there is none. */
static ProtobufCBinaryData digest_of(const uint8_t digest[RG_DIGEST_SIZE])
{
    static const uint8_t none[RG_DIGEST_SIZE];
    return bytes_of(digest, memcmp(digest, none, sizeof none) == 0 ? 0 : RG_DIGEST_SIZE);
}

static void fill_identity(Rg__Identity *to, const struct rg_identity *from)
{
    rg__identity__init(to);
    to->host = TEXT(from->host);
    to->user = TEXT(from->user);
    to->pid = from->pid;
    to->command = TEXT(from->command);
}

static void fill_driver(Rg__Driver *to, const struct rg_driver_info *from)
{
    rg__driver__init(to);
    to->kind = TEXT(from->kind);
    to->path = TEXT(from->path);
    to->version = from->version;
    to->release = TEXT(from->release);
}

static void fill_limits(Rg__Limits *to, const struct rg_limits_info *from)
{
    rg__limits__init(to);
    to->message_bytes = from->message_bytes;
    to->bulk_bytes = from->bulk_bytes;
    to->sessions = from->sessions;
}

static void fill_device(Rg__Device *to, const struct rg_device_info *from)
{
    rg__device__init(to);
    to->ordinal = from->ordinal;
    to->name = TEXT(from->name);
    to->uuid = bytes_of(from->uuid, sizeof from->uuid);
    to->compute_major = from->compute_major;
    to->compute_minor = from->compute_minor;
    to->memory_total = from->memory_total;
    to->memory_free = from->memory_free;
    to->memory_free_known = from->memory_free_known;
    to->pci = TEXT(from->pci);
    to->direct = from->direct;
    to->host_reach = from->host_reach;
    to->memory_guaranteed = from->memory_guaranteed;
    to->warm_workers = from->warm_workers;
    to->memory_warm = from->memory_warm;
    to->numa_node = from->numa_node;
    to->nvlink_group = from->nvlink_group;
    to->pcie_group = from->pcie_group;
    to->mig = from->mig;
    to->gpu_instance = from->gpu_instance;
    to->compute_instance = from->compute_instance;
    if (from->mig)
        to->whole = bytes_of(from->whole, sizeof from->whole);
    to->n_attributes = to->n_attribute_results = from->n_attributes;
    to->attributes = (int32_t *)from->attributes;
    to->attribute_results = (uint32_t *)from->attribute_results;
}

static size_t fill_transports(char *names[RG_CONTROL_TRANSPORTS], const struct rg_transport_list *from)
{
    for (uint32_t i = 0; i < from->n; i++)
        names[i] = TEXT(from->names[i]);
    return from->n;
}

/* Writes header and protobuf. */
static enum rg_status finish(const Rg__Control *control, void **data, size_t *size)
{
    size_t packed = rg__control__get_packed_size(control);
    if (packed > RG_MESSAGE_MAX - sizeof(struct rg_message_header))
        return RG_ERR_LIMIT;
    unsigned char *memory = malloc(sizeof(struct rg_message_header) + packed);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    struct rg_message_header header = {.kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    memcpy(memory, &header, sizeof header);
    rg__control__pack(control, memory + sizeof header);
    *data = memory;
    *size = sizeof header + packed;
    return RG_OK;
}

static enum rg_status pack_client_hello(Rg__Control *control, const struct rg_client_hello *from, void **data,
                                        size_t *size)
{
    if (from->n_gpu_indices > RG_DEVICES_MAX || from->credential_size > RG_CONTROL_CREDENTIAL ||
        from->transports.n > RG_CONTROL_TRANSPORTS || from->question_size > RG_QUESTION_SIZE_MAX ||
        from->join_proof_size > RG_JOIN_PROOF)
        return RG_ERR_LIMIT;
    Rg__Identity identity;
    fill_identity(&identity, &from->identity);
    char *transports[RG_CONTROL_TRANSPORTS];
    Rg__ClientHello hello;
    rg__client_hello__init(&hello);
    hello.protocol_major = from->protocol_major;
    hello.protocol_minor = from->protocol_minor;
    hello.software = TEXT(from->software);
    hello.api_digest = digest_of(from->api_digest);
    hello.purpose = (Rg__ClientHello__Purpose)from->purpose;
    hello.gpus = from->gpus;
    hello.n_gpu_indices = from->n_gpu_indices;
    hello.gpu_indices = (uint32_t *)from->gpu_indices;
    hello.memory_bytes = from->share.memory_bytes;
    hello.memory_millionths = from->share.memory_millionths;
    hello.compute_millionths = from->share.compute_millionths;
    hello.weight = from->share.weight;
    hello.priority = from->share.priority;
    hello.idle_timeout_ns = from->share.idle_timeout_ns;
    hello.exclusive = from->share.exclusive;
    hello.project = TEXT(from->share.project);
    hello.address_part = from->address_part;
    hello.window_start = from->window_start;
    hello.window_size = from->window_size;
    hello.capability = from->capability;
    hello.contexts = from->contexts;
    hello.identity = &identity;
    hello.capabilities = from->capabilities;
    hello.credential = bytes_of(from->credential, from->credential_size);
    hello.question = bytes_of(from->question, from->question_size);
    hello.n_transports = fill_transports(transports, &from->transports);
    hello.transports = transports;
    hello.bulk_session = from->bulk_session;
    hello.bulk_token = bytes_of(from->bulk_token, from->purpose == RG_PURPOSE_BULK ? RG_BULK_TOKEN : 0);
    hello.bulk_connections = from->bulk_connections;
    hello.bulk_codecs = from->bulk_codecs;
    hello.bulk_compression = from->bulk_compression;
    hello.bulk_adaptive = from->bulk_adaptive;
    const bool resume = from->purpose == RG_PURPOSE_RESUME;
    hello.resume_session = from->resume_session;
    hello.resume_token = bytes_of(from->resume_token, resume ? RG_RESUME_TOKEN : 0);
    hello.resume_received = from->resume_received;
    hello.keep_alive = from->keep_alive;
    hello.pool_lease = from->pool_lease;
    const bool introduce = from->purpose == RG_PURPOSE_INTRODUCE;
    if (introduce || from->purpose == RG_PURPOSE_PEER)
        hello.peer_secret = bytes_of(from->peer_secret, RG_PEER_SECRET);
    hello.peer_session = from->peer_session;
    if (introduce) {
        hello.target_session = from->target_session;
        hello.target_secret = bytes_of(from->target_secret, RG_PEER_SECRET);
        hello.target_address = TEXT(from->target_address);
        hello.target_name = TEXT(from->target_name);
        hello.target_authority =
            bytes_of(from->target_authority, from->has_target_authority ? RG_PEER_AUTHORITY : 0);
    }
    if (from->purpose == RG_PURPOSE_JOIN)
        hello.join_secret = bytes_of(from->join_secret, RG_JOIN_SECRET);
    if (from->purpose == RG_PURPOSE_JOIN || from->purpose == RG_PURPOSE_RENEW) {
        hello.join_public_key = bytes_of(from->join_public_key, RG_JOIN_PUBLIC_KEY);
        hello.join_proof = bytes_of(from->join_proof, from->join_proof_size);
    }
    control->body_case = RG__CONTROL__BODY_CLIENT_HELLO;
    control->client_hello = &hello;
    return finish(control, data, size);
}

static enum rg_status pack_server_hello(Rg__Control *control, const struct rg_server_hello *from, void **data,
                                        size_t *size)
{
    if (from->n_devices > RG_DEVICES_MAX || from->n_opcode_names > RG_CONTROL_OPCODES ||
        from->transports.n > RG_CONTROL_TRANSPORTS || from->n_addresses > RG_CONTROL_ADDRESSES)
        return RG_ERR_LIMIT;
    Rg__Device devices[RG_DEVICES_MAX];
    Rg__Device *device_pointers[RG_DEVICES_MAX];
    for (uint32_t i = 0; i < from->n_devices; i++) {
        if (from->devices[i].n_attributes > RG_CONTROL_ATTRIBUTES)
            return RG_ERR_LIMIT;
        fill_device(&devices[i], &from->devices[i]);
        device_pointers[i] = &devices[i];
    }
    Rg__Driver driver;
    fill_driver(&driver, &from->driver);
    Rg__Limits limits;
    fill_limits(&limits, &from->limits);
    char *transports[RG_CONTROL_TRANSPORTS];
    Rg__ServerHello hello;
    rg__server_hello__init(&hello);
    hello.protocol_major = from->protocol_major;
    hello.protocol_minor = from->protocol_minor;
    hello.software = TEXT(from->software);
    hello.api_digest = digest_of(from->api_digest);
    hello.n_opcode_names = from->n_opcode_names;
    hello.opcode_names = (char **)from->opcode_names;
    hello.n_devices = from->n_devices;
    hello.devices = device_pointers;
    hello.driver = &driver;
    hello.limits = &limits;
    hello.session = from->session;
    hello.n_transports = fill_transports(transports, &from->transports);
    hello.transports = transports;
    hello.capabilities = from->capabilities;
    char *addresses[RG_CONTROL_ADDRESSES];
    for (uint32_t i = 0; i < from->n_addresses; i++)
        addresses[i] = TEXT(from->addresses[i]);
    hello.n_addresses = from->n_addresses;
    hello.addresses = addresses;
    uint32_t rails[RG_CONTROL_ADDRESSES];
    memcpy(rails, from->address_rails, sizeof rails);
    hello.n_address_rails = from->has_rails ? from->n_addresses : 0;
    hello.address_rails = rails;
    hello.answers = digest_of(from->answers);
    hello.contexts = from->contexts;
    hello.move_token = bytes_of(from->move_token, from->n_addresses ? RG_UPGRADE_TOKEN : 0);
    hello.bulk_token = bytes_of(from->bulk_token, from->bulk_connections ? RG_BULK_TOKEN : 0);
    hello.bulk_connections = from->bulk_connections;
    hello.bulk_codecs = from->bulk_codecs;
    const bool lasts = from->capabilities & RG_CONTROL_CAP_RESUME;
    hello.resume_token = bytes_of(from->resume_token, lasts ? RG_RESUME_TOKEN : 0);
    hello.resume_seconds = from->resume_seconds;
    hello.keep_alive = from->keep_alive;
    hello.host = TEXT(from->host);
    hello.sharing = from->sharing;
    hello.compute_millionths = from->compute_millionths;
    control->body_case = RG__CONTROL__BODY_SERVER_HELLO;
    control->server_hello = &hello;
    return finish(control, data, size);
}

static enum rg_status pack_refusal(Rg__Control *control, const struct rg_refusal *from, void **data,
                                   size_t *size)
{
    Rg__Refusal refusal;
    rg__refusal__init(&refusal);
    refusal.code = (Rg__Refusal__Code)from->code;
    refusal.reason = TEXT(from->reason);
    refusal.software = TEXT(from->software);
    refusal.protocol_major = from->protocol_major;
    refusal.protocol_minor = from->protocol_minor;
    control->body_case = RG__CONTROL__BODY_REFUSAL;
    control->refusal = &refusal;
    return finish(control, data, size);
}

/* What an inventory's sessions need besides the typed message. */
struct session_scratch {
    Rg__Session session;
    Rg__Identity identity;
    Rg__SessionShare shares[RG_DEVICES_MAX], *share_pointers[RG_DEVICES_MAX];
};

static void fill_session_share(struct session_scratch *to, const struct rg_session_info *from)
{
    for (uint32_t i = 0; i < from->n_shares; i++) {
        Rg__SessionShare *share = to->share_pointers[i] = &to->shares[i];
        rg__session_share__init(share);
        share->memory_limit = from->shares[i].memory_limit;
        share->memory_used = from->shares[i].memory_used;
        share->memory_peak = from->shares[i].memory_peak;
        share->busy_ns = from->shares[i].busy_ns;
        share->throttled_ns = from->shares[i].throttled_ns;
    }
    to->session.n_shares = from->n_shares;
    to->session.shares = to->share_pointers;
    to->session.compute_millionths = from->compute_millionths;
    to->session.weight = from->weight;
    to->session.priority = from->priority;
    to->session.state = from->state;
    to->session.idle_timeout_ns = from->idle_timeout_ns;
    to->session.launches = from->launches;
    to->session.project = TEXT(from->project);
    to->session.overcommitted = from->overcommitted;
    to->session.exclusive = from->exclusive;
    to->session.sharing = from->sharing;
}

static enum rg_status pack_inventory(Rg__Control *control, const struct rg_inventory *from, void **data,
                                     size_t *size)
{
    if (from->n_devices > RG_DEVICES_MAX || from->n_sessions > RG_CONTROL_SESSIONS)
        return RG_ERR_LIMIT;
    Rg__Device devices[RG_DEVICES_MAX];
    Rg__Device *device_pointers[RG_DEVICES_MAX];
    for (uint32_t i = 0; i < from->n_devices; i++) {
        if (from->devices[i].n_attributes > RG_CONTROL_ATTRIBUTES)
            return RG_ERR_LIMIT;
        fill_device(&devices[i], &from->devices[i]);
        device_pointers[i] = &devices[i];
    }
    RG_CLEANUP_FREE struct session_scratch *scratch = calloc(from->n_sessions + 1u, sizeof *scratch);
    RG_CLEANUP_FREE Rg__Session **session_pointers = calloc(from->n_sessions + 1u, sizeof *session_pointers);
    if (!scratch || !session_pointers)
        return RG_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < from->n_sessions; i++) {
        const struct rg_session_info *session = &from->sessions[i];
        if (session->n_devices > RG_DEVICES_MAX ||
            (session->n_shares && session->n_shares != session->n_devices))
            return RG_ERR_LIMIT;
        fill_identity(&scratch[i].identity, &session->identity);
        rg__session__init(&scratch[i].session);
        scratch[i].session.id = session->id;
        scratch[i].session.identity = &scratch[i].identity;
        scratch[i].session.since_unix = session->since_unix;
        scratch[i].session.n_devices = session->n_devices;
        scratch[i].session.devices = (uint32_t *)session->devices;
        scratch[i].session.peer = TEXT(session->peer);
        scratch[i].session.identity_name = TEXT(session->identity_name);
        scratch[i].session.encrypted = session->encrypted;
        fill_session_share(&scratch[i], session);
        session_pointers[i] = &scratch[i].session;
    }
    Rg__Driver driver;
    fill_driver(&driver, &from->driver);
    Rg__Limits limits;
    fill_limits(&limits, &from->limits);
    Rg__Inventory inventory;
    rg__inventory__init(&inventory);
    inventory.software = TEXT(from->software);
    inventory.host = TEXT(from->host);
    inventory.protocol_major = from->protocol_major;
    inventory.protocol_minor = from->protocol_minor;
    inventory.driver = &driver;
    inventory.n_devices = from->n_devices;
    inventory.devices = device_pointers;
    inventory.n_sessions = from->n_sessions;
    inventory.sessions = session_pointers;
    inventory.sessions_running = from->sessions_running;
    inventory.limits = &limits;
    Rg__Machine machine;
    rg__machine__init(&machine);
    machine.clock_ns = from->machine.clock_ns;
    machine.kernel = TEXT(from->machine.kernel);
    machine.rdma = TEXT(from->machine.rdma);
    machine.rails = TEXT(from->machine.rails);
    inventory.machine = &machine;
    inventory.unauthenticated = from->unauthenticated;
    inventory.pool = TEXT(from->pool);
    Rg__Sandbox sandbox;
    rg__sandbox__init(&sandbox);
    sandbox.mode = TEXT(from->sandbox.mode);
    sandbox.holds = TEXT(from->sandbox.holds);
    sandbox.missing = TEXT(from->sandbox.missing);
    inventory.sandbox = &sandbox;
    control->body_case = RG__CONTROL__BODY_INVENTORY;
    control->inventory = &inventory;
    return finish(control, data, size);
}

static enum rg_status pack_session_end(Rg__Control *control, const struct rg_session_end *from, void **data,
                                       size_t *size)
{
    Rg__SessionEnd end;
    rg__session_end__init(&end);
    end.reason = TEXT(from->reason);
    control->body_case = RG__CONTROL__BODY_SESSION_END;
    control->session_end = &end;
    return finish(control, data, size);
}

static enum rg_status pack_move(Rg__Control *control, const struct rg_upgrade_message *from, void **data,
                                size_t *size)
{
    Rg__Move move;
    rg__move__init(&move);
    move.transport = TEXT(from->transport);
    move.token = bytes_of(from->token, from->has_token ? RG_UPGRADE_TOKEN : 0);
    move.rails = from->rails;
    move.rails_always = from->rails_always;
    control->body_case = RG__CONTROL__BODY_MOVE;
    control->move = &move;
    return finish(control, data, size);
}

static enum rg_status pack_resumed(Rg__Control *control, const struct rg_resumed *from, void **data,
                                   size_t *size)
{
    Rg__Resumed resumed;
    rg__resumed__init(&resumed);
    resumed.received = from->received;
    control->body_case = RG__CONTROL__BODY_RESUMED;
    control->resumed = &resumed;
    return finish(control, data, size);
}

static enum rg_status pack_answer(Rg__Control *control, const struct rg_management_answer *from, void **data,
                                  size_t *size)
{
    if (from->size > RG_ANSWER_SIZE_MAX)
        return RG_ERR_LIMIT;
    Rg__Answer answer;
    rg__answer__init(&answer);
    answer.data = bytes_of(from->data, from->size);
    control->body_case = RG__CONTROL__BODY_ANSWER;
    control->answer = &answer;
    return finish(control, data, size);
}

static enum rg_status pack_joined(Rg__Control *control, const struct rg_joined *from, void **data,
                                  size_t *size)
{
    Rg__Joined joined;
    rg__joined__init(&joined);
    joined.certificate = bytes_of(from->certificate, strlen(from->certificate));
    joined.authority = bytes_of(from->authority, strlen(from->authority));
    joined.user = TEXT(from->user);
    control->body_case = RG__CONTROL__BODY_JOINED;
    control->joined = &joined;
    return finish(control, data, size);
}

enum rg_status rg_control_pack(const struct rg_control *message, void **data, size_t *size)
{
    Rg__Control control;
    rg__control__init(&control);
    switch (message->kind) {
    case RG_CONTROL_CLIENT_HELLO:
        return pack_client_hello(&control, &message->client_hello, data, size);
    case RG_CONTROL_SERVER_HELLO:
        return pack_server_hello(&control, &message->server_hello, data, size);
    case RG_CONTROL_REFUSAL:
        return pack_refusal(&control, &message->refusal, data, size);
    case RG_CONTROL_INVENTORY:
        return pack_inventory(&control, &message->inventory, data, size);
    case RG_CONTROL_SESSION_END:
        return pack_session_end(&control, &message->session_end, data, size);
    case RG_CONTROL_UPGRADE:
        return pack_move(&control, &message->upgrade, data, size);
    case RG_CONTROL_ANSWER:
        return pack_answer(&control, &message->answer, data, size);
    case RG_CONTROL_JOINED:
        return pack_joined(&control, &message->joined, data, size);
    case RG_CONTROL_RESUMED:
        return pack_resumed(&control, &message->resumed, data, size);
    }
    return RG_ERR_INVALID;
}
