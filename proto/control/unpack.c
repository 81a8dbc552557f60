/*
 * unpack.c - bytes from the wire into typed control messages.
 *
 * protobuf-c checks the encoding; this file checks the content. Each getter takes one field, checks it
 * against its limit and returns the status of the first violation; nothing of a message is handed out unless
 * all of it is good. What the sender repeats more often than the limit is refused before anything is
 * allocated for it here.
 */
#include "proto/control/control.h"

#include "common/base/addresses.h"
#include "proto/control/control.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define GET_TEXT(field, text) get_text((field), sizeof(field), (text))

static enum rg_status get_text(char *field, size_t field_size, const char *text)
{
    size_t size = strlen(text);
    if (size >= field_size)
        return RG_ERR_LIMIT;
    rg_control_text(field, field_size, text, size);
    return RG_OK;
}

static enum rg_status get_digest(uint8_t digest[RG_DIGEST_SIZE], const ProtobufCBinaryData *from)
{
    if (from->len == 0)
        return RG_OK;
    if (from->len != RG_DIGEST_SIZE)
        return RG_ERR_PROTOCOL;
    memcpy(digest, from->data, RG_DIGEST_SIZE);
    return RG_OK;
}

static enum rg_status get_bulk_token(uint8_t token[RG_BULK_TOKEN], const ProtobufCBinaryData *from)
{
    if (from->len != RG_BULK_TOKEN)
        return RG_ERR_PROTOCOL;
    memcpy(token, from->data, RG_BULK_TOKEN);
    return RG_OK;
}

static enum rg_status get_token(uint8_t token[RG_RESUME_TOKEN], const ProtobufCBinaryData *from)
{
    if (from->len != RG_RESUME_TOKEN)
        return RG_ERR_PROTOCOL;
    memcpy(token, from->data, RG_RESUME_TOKEN);
    return RG_OK;
}

static enum rg_status get_indices(uint32_t *to, uint32_t *n, const uint32_t *from, size_t n_from)
{
    if (n_from > RG_DEVICES_MAX)
        return RG_ERR_LIMIT;
    if (n_from)
        memcpy(to, from, n_from * sizeof *to);
    *n = (uint32_t)n_from;
    return RG_OK;
}

static enum rg_status get_transports(struct rg_transport_list *to, char **names, size_t n)
{
    if (n > RG_CONTROL_TRANSPORTS)
        return RG_ERR_LIMIT;
    for (size_t i = 0; i < n; i++)
        RG_TRY(GET_TEXT(to->names[i], names[i]));
    to->n = (uint32_t)n;
    return RG_OK;
}

static enum rg_status get_identity(struct rg_identity *to, const Rg__Identity *from)
{
    if (!from)
        return RG_OK;
    RG_TRY(GET_TEXT(to->host, from->host));
    RG_TRY(GET_TEXT(to->user, from->user));
    RG_TRY(GET_TEXT(to->command, from->command));
    to->pid = from->pid;
    return RG_OK;
}

static enum rg_status get_driver(struct rg_driver_info *to, const Rg__Driver *from)
{
    if (!from)
        return RG_OK;
    RG_TRY(GET_TEXT(to->kind, from->kind));
    RG_TRY(GET_TEXT(to->path, from->path));
    RG_TRY(GET_TEXT(to->release, from->release));
    to->version = from->version;
    return RG_OK;
}

static void get_limits(struct rg_limits_info *to, const Rg__Limits *from)
{
    if (!from)
        return;
    to->message_bytes = from->message_bytes;
    to->bulk_bytes = from->bulk_bytes;
    to->sessions = from->sessions;
}

static enum rg_status get_devices(struct rg_device_info *to, Rg__Device **from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i].ordinal = from[i]->ordinal;
        RG_TRY(GET_TEXT(to[i].name, from[i]->name));
        RG_TRY(GET_TEXT(to[i].pci, from[i]->pci));
        if (from[i]->uuid.len != 0 && from[i]->uuid.len != sizeof to[i].uuid)
            return RG_ERR_PROTOCOL;
        if (from[i]->uuid.len)
            memcpy(to[i].uuid, from[i]->uuid.data, sizeof to[i].uuid);
        to[i].compute_major = from[i]->compute_major;
        to[i].direct = from[i]->direct;
        to[i].host_reach = from[i]->host_reach;
        to[i].memory_guaranteed = from[i]->memory_guaranteed;
        to[i].warm_workers = from[i]->warm_workers;
        to[i].memory_warm = from[i]->memory_warm;
        to[i].numa_node = from[i]->numa_node;
        to[i].nvlink_group = from[i]->nvlink_group;
        to[i].pcie_group = from[i]->pcie_group;
        to[i].mig = from[i]->mig;
        to[i].gpu_instance = from[i]->gpu_instance;
        to[i].compute_instance = from[i]->compute_instance;
        if (from[i]->whole.len != 0 && from[i]->whole.len != sizeof to[i].whole)
            return RG_ERR_PROTOCOL;
        if (from[i]->whole.len)
            memcpy(to[i].whole, from[i]->whole.data, sizeof to[i].whole);
        to[i].compute_minor = from[i]->compute_minor;
        if (from[i]->n_attributes > RG_CONTROL_ATTRIBUTES)
            return RG_ERR_LIMIT;
        if (from[i]->n_attributes != from[i]->n_attribute_results)
            return RG_ERR_PROTOCOL;
        to[i].n_attributes = (uint32_t)from[i]->n_attributes;
        if (to[i].n_attributes) {
            memcpy(to[i].attributes, from[i]->attributes, to[i].n_attributes * sizeof *to[i].attributes);
            memcpy(to[i].attribute_results, from[i]->attribute_results,
                   to[i].n_attributes * sizeof *to[i].attribute_results);
        }
        to[i].memory_total = from[i]->memory_total;
        to[i].memory_free = from[i]->memory_free;
        to[i].memory_free_known = from[i]->memory_free_known;
    }
    return RG_OK;
}

/* Whether it is none, or some that a process can have. */
static bool is_window(uint64_t start, uint64_t size)
{
    return (start == 0 && size == 0) ||
           (start % RG_ADDRESS_PAGE == 0 && size % RG_ADDRESS_PAGE == 0 && size >= RG_ADDRESS_WINDOW_LEAST &&
            start >= RG_ADDRESS_WINDOW_LEAST && start < RG_ADDRESS_END && size <= RG_ADDRESS_END - start);
}

static enum rg_status get_join(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    if (to->purpose == RG_PURPOSE_JOIN) {
        if (from->join_secret.len != RG_JOIN_SECRET)
            return RG_ERR_PROTOCOL;
        memcpy(to->join_secret, from->join_secret.data, RG_JOIN_SECRET);
    }
    if (from->join_public_key.len != RG_JOIN_PUBLIC_KEY || from->join_proof.len == 0)
        return RG_ERR_PROTOCOL;
    if (from->join_proof.len > RG_JOIN_PROOF)
        return RG_ERR_LIMIT;
    memcpy(to->join_public_key, from->join_public_key.data, RG_JOIN_PUBLIC_KEY);
    memcpy(to->join_proof, from->join_proof.data, from->join_proof.len);
    to->join_proof_size = (uint32_t)from->join_proof.len;
    return RG_OK;
}

static enum rg_status get_secret(uint8_t secret[RG_PEER_SECRET], const ProtobufCBinaryData *from)
{
    if (from->len != RG_PEER_SECRET)
        return RG_ERR_PROTOCOL;
    memcpy(secret, from->data, RG_PEER_SECRET);
    return RG_OK;
}

static enum rg_status get_peer(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    RG_TRY(get_secret(to->peer_secret, &from->peer_secret));
    if (to->purpose == RG_PURPOSE_PEER)
        return RG_OK;
    to->target_session = from->target_session;
    RG_TRY(get_secret(to->target_secret, &from->target_secret));
    RG_TRY(GET_TEXT(to->target_address, from->target_address));
    RG_TRY(GET_TEXT(to->target_name, from->target_name));
    to->has_target_authority = from->target_authority.len != 0;
    if (to->has_target_authority && from->target_authority.len != RG_PEER_AUTHORITY)
        return RG_ERR_PROTOCOL;
    if (to->has_target_authority)
        memcpy(to->target_authority, from->target_authority.data, RG_PEER_AUTHORITY);
    return RG_OK;
}

static enum rg_status get_share(struct rg_share_wish *to, const Rg__ClientHello *from)
{
    if (from->memory_millionths > 1000000 || from->compute_millionths > 1000000 ||
        from->weight > RG_SHARE_WEIGHT_MAX)
        return RG_ERR_LIMIT;
    if (from->priority > RG_SHARE_PRIORITY_HIGH)
        return RG_ERR_PROTOCOL;
    to->memory_bytes = from->memory_bytes;
    to->memory_millionths = from->memory_millionths;
    to->compute_millionths = from->compute_millionths;
    to->weight = from->weight;
    to->priority = (enum rg_share_priority)from->priority;
    to->idle_timeout_ns = from->idle_timeout_ns;
    to->exclusive = from->exclusive;
    return GET_TEXT(to->project, from->project);
}

static enum rg_status get_client_hello(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    to->protocol_major = from->protocol_major;
    to->protocol_minor = from->protocol_minor;
    RG_TRY(GET_TEXT(to->software, from->software));
    RG_TRY(get_digest(to->api_digest, &from->api_digest));
    if (from->purpose != RG__CLIENT_HELLO__PURPOSE__SESSION &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__INVENTORY &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__STATUS &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__NETPERF &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__MANAGEMENT &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__BULK &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__RESUME &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__JOIN &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__RENEW &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__STAY &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__USAGE &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__PAGE &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__PEER &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__INTRODUCE &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__INVITE &&
        from->purpose != RG__CLIENT_HELLO__PURPOSE__QUOTA && from->purpose != RG__CLIENT_HELLO__PURPOSE__POOL)
        return RG_ERR_PROTOCOL;
    to->purpose = (enum rg_purpose)from->purpose;
    if (from->question.len > RG_QUESTION_SIZE_MAX)
        return RG_ERR_LIMIT;
    if (from->question.len)
        memcpy(to->question, from->question.data, from->question.len);
    to->question_size = (uint32_t)from->question.len;
    if (from->gpus > RG_DEVICES_MAX)
        return RG_ERR_LIMIT;
    to->gpus = from->gpus;
    RG_TRY(get_indices(to->gpu_indices, &to->n_gpu_indices, from->gpu_indices, from->n_gpu_indices));
    RG_TRY(get_share(&to->share, from));
    if (from->address_part >= RG_SERVERS_MAX)
        return RG_ERR_LIMIT;
    to->address_part = from->address_part;
    if (!is_window(from->window_start, from->window_size))
        return RG_ERR_PROTOCOL;
    to->window_start = from->window_start;
    to->window_size = from->window_size;
    if (from->capability >= 1000)
        return RG_ERR_PROTOCOL;
    to->capability = from->capability;
    to->contexts = from->contexts;
    RG_TRY(get_identity(&to->identity, from->identity));
    to->capabilities = from->capabilities;
    if (from->credential.len > RG_CONTROL_CREDENTIAL)
        return RG_ERR_LIMIT;
    if (from->credential.len)
        memcpy(to->credential, from->credential.data, from->credential.len);
    to->credential_size = (uint32_t)from->credential.len;
    if (to->purpose == RG_PURPOSE_BULK)
        RG_TRY(get_bulk_token(to->bulk_token, &from->bulk_token));
    to->bulk_session = from->bulk_session;
    to->bulk_connections = from->bulk_connections;
    to->bulk_codecs = from->bulk_codecs;
    to->bulk_compression = from->bulk_compression;
    to->bulk_adaptive = from->bulk_adaptive;
    if (to->purpose == RG_PURPOSE_RESUME)
        RG_TRY(get_token(to->resume_token, &from->resume_token));
    to->resume_session = from->resume_session;
    to->resume_received = from->resume_received;
    to->keep_alive = from->keep_alive;
    to->pool_lease = from->pool_lease;
    to->peer_session = from->peer_session;
    if (to->purpose == RG_PURPOSE_PEER || to->purpose == RG_PURPOSE_INTRODUCE)
        RG_TRY(get_peer(to, from));
    if (to->purpose == RG_PURPOSE_JOIN || to->purpose == RG_PURPOSE_RENEW)
        RG_TRY(get_join(to, from));
    return get_transports(&to->transports, from->transports, from->n_transports);
}

static enum rg_sharing get_sharing(uint32_t sharing)
{
    return sharing < RG_SHARINGS ? (enum rg_sharing)sharing : RG_SHARING_UNKNOWN;
}

/* The variable parts of a server's messages share one allocation, which becomes the message's storage. */
static enum rg_status get_server_hello(struct rg_server_hello *to, void **storage,
                                       const Rg__ServerHello *from)
{
    to->protocol_major = from->protocol_major;
    to->protocol_minor = from->protocol_minor;
    RG_TRY(GET_TEXT(to->software, from->software));
    RG_TRY(get_digest(to->api_digest, &from->api_digest));
    RG_TRY(get_digest(to->answers, &from->answers));
    to->contexts = from->contexts;
    RG_TRY(get_driver(&to->driver, from->driver));
    get_limits(&to->limits, from->limits);
    to->session = from->session;
    to->capabilities = from->capabilities;
    RG_TRY(get_transports(&to->transports, from->transports, from->n_transports));
    if (from->n_devices > RG_DEVICES_MAX || from->n_opcode_names > RG_CONTROL_OPCODES ||
        from->n_addresses > RG_CONTROL_ADDRESSES)
        return RG_ERR_LIMIT;
    for (size_t i = 0; i < from->n_addresses; i++)
        RG_TRY(GET_TEXT(to->addresses[i], from->addresses[i]));
    to->n_addresses = (uint32_t)from->n_addresses;
    if (from->n_address_rails && from->n_address_rails != from->n_addresses)
        return RG_ERR_PROTOCOL;
    to->has_rails = from->n_address_rails != 0;
    for (size_t i = 0; i < from->n_address_rails; i++)
        to->address_rails[i] = from->address_rails[i];
    if (to->n_addresses) {
        if (from->move_token.len != RG_UPGRADE_TOKEN)
            return RG_ERR_PROTOCOL;
        memcpy(to->move_token, from->move_token.data, RG_UPGRADE_TOKEN);
    }
    if (to->capabilities & RG_CONTROL_CAP_RESUME)
        RG_TRY(get_token(to->resume_token, &from->resume_token));
    to->resume_seconds = from->resume_seconds;
    to->keep_alive = from->keep_alive;
    RG_TRY(GET_TEXT(to->host, from->host));
    to->sharing = get_sharing(from->sharing);
    to->compute_millionths = from->compute_millionths;

    if (from->bulk_connections)
        RG_TRY(get_bulk_token(to->bulk_token, &from->bulk_token));
    to->bulk_connections = from->bulk_connections;
    to->bulk_codecs = from->bulk_codecs;

    size_t text = 0;
    for (size_t i = 0; i < from->n_opcode_names; i++) {
        size_t size = strlen(from->opcode_names[i]) + 1;
        if (size > RG_CONTROL_OPCODE)
            return RG_ERR_LIMIT;
        text += size;
    }
    size_t devices = from->n_devices * sizeof(struct rg_device_info);
    char *memory = calloc(1, devices + from->n_opcode_names * sizeof(char *) + text + 1);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    *storage = memory;
    to->devices = (struct rg_device_info *)memory;
    to->n_devices = (uint32_t)from->n_devices;
    to->opcode_names = (const char **)(memory + devices);
    to->n_opcode_names = (uint32_t)from->n_opcode_names;
    char *at = (char *)(to->opcode_names + from->n_opcode_names);
    for (size_t i = 0; i < from->n_opcode_names; i++) {
        to->opcode_names[i] = at;
        size_t size = strlen(from->opcode_names[i]) + 1;
        memcpy(at, from->opcode_names[i], size);
        at += size;
    }
    return get_devices(to->devices, from->devices, from->n_devices);
}

/* What a newer server knows beside that is nothing to this one: a state, or priority, without a name. */
static enum rg_status get_session_share(struct rg_session_info *to, const Rg__Session *from)
{
    if (from->n_shares && from->n_shares != from->n_devices)
        return RG_ERR_PROTOCOL;
    for (size_t i = 0; i < from->n_shares; i++)
        to->shares[i] = (struct rg_share_info){.memory_limit = from->shares[i]->memory_limit,
                                               .memory_used = from->shares[i]->memory_used,
                                               .memory_peak = from->shares[i]->memory_peak,
                                               .busy_ns = from->shares[i]->busy_ns,
                                               .throttled_ns = from->shares[i]->throttled_ns};
    to->n_shares = (uint32_t)from->n_shares;
    to->compute_millionths = from->compute_millionths;
    to->weight = from->weight;
    to->priority = from->priority <= RG_SHARE_PRIORITY_HIGH ? (enum rg_share_priority)from->priority
                                                            : RG_SHARE_PRIORITY_DEFAULT;
    to->state = from->state < RG_SHARE_STATES ? (enum rg_share_state)from->state : RG_SHARE_UNKNOWN;
    to->idle_timeout_ns = from->idle_timeout_ns;
    to->launches = from->launches;
    to->overcommitted = from->overcommitted;
    to->exclusive = from->exclusive;
    to->sharing = get_sharing(from->sharing);
    return GET_TEXT(to->project, from->project);
}

static enum rg_status get_sessions(struct rg_session_info *to, Rg__Session **from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i].id = from[i]->id;
        RG_TRY(get_identity(&to[i].identity, from[i]->identity));
        to[i].since_unix = from[i]->since_unix;
        RG_TRY(get_indices(to[i].devices, &to[i].n_devices, from[i]->devices, from[i]->n_devices));
        RG_TRY(GET_TEXT(to[i].peer, from[i]->peer));
        RG_TRY(GET_TEXT(to[i].identity_name, from[i]->identity_name));
        to[i].encrypted = from[i]->encrypted;
        RG_TRY(get_session_share(&to[i], from[i]));
    }
    return RG_OK;
}

static enum rg_status get_inventory(struct rg_inventory *to, void **storage, const Rg__Inventory *from)
{
    RG_TRY(GET_TEXT(to->software, from->software));
    RG_TRY(GET_TEXT(to->host, from->host));
    to->protocol_major = from->protocol_major;
    to->protocol_minor = from->protocol_minor;
    RG_TRY(get_driver(&to->driver, from->driver));
    get_limits(&to->limits, from->limits);
    if (from->machine) {
        to->machine.clock_ns = from->machine->clock_ns;
        RG_TRY(GET_TEXT(to->machine.kernel, from->machine->kernel));
        RG_TRY(GET_TEXT(to->machine.rdma, from->machine->rdma));
        RG_TRY(GET_TEXT(to->machine.rails, from->machine->rails));
    }
    to->sessions_running = from->sessions_running;
    to->unauthenticated = from->unauthenticated;
    RG_TRY(GET_TEXT(to->pool, from->pool));
    if (from->sandbox) {
        RG_TRY(GET_TEXT(to->sandbox.mode, from->sandbox->mode));
        RG_TRY(GET_TEXT(to->sandbox.holds, from->sandbox->holds));
        RG_TRY(GET_TEXT(to->sandbox.missing, from->sandbox->missing));
    }
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
    RG_TRY(get_devices(to->devices, from->devices, from->n_devices));
    return get_sessions(to->sessions, from->sessions, from->n_sessions);
}

static enum rg_status get_refusal(struct rg_refusal *to, const Rg__Refusal *from)
{
    /* a code of a newer server is shown by its sentence */
    unsigned code = (unsigned)from->code;
    const bool known = code <= RG_REFUSAL_INTERNAL || code == RG_REFUSAL_NO_SUCH_SESSION ||
                       code == RG_REFUSAL_LIMIT || code == RG_REFUSAL_QUOTA;
    to->code = known ? (enum rg_refusal_code)code : RG_REFUSAL_UNKNOWN;
    RG_TRY(GET_TEXT(to->reason, from->reason));
    RG_TRY(GET_TEXT(to->software, from->software));
    to->protocol_major = from->protocol_major;
    to->protocol_minor = from->protocol_minor;
    return RG_OK;
}

static enum rg_status get_move(struct rg_upgrade_message *to, const Rg__Move *from)
{
    RG_TRY(GET_TEXT(to->transport, from->transport));
    if (from->token.len != 0 && from->token.len != RG_UPGRADE_TOKEN)
        return RG_ERR_PROTOCOL;
    to->has_token = from->token.len != 0;
    if (to->has_token)
        memcpy(to->token, from->token.data, RG_UPGRADE_TOKEN);
    to->rails = from->rails;
    to->rails_always = from->rails_always;
    return RG_OK;
}

static enum rg_status get_answer(struct rg_management_answer *to, void **storage, const Rg__Answer *from)
{
    if (from->data.len > RG_ANSWER_SIZE_MAX)
        return RG_ERR_LIMIT;
    *storage = malloc(from->data.len + 1);
    if (!*storage)
        return RG_ERR_NO_MEMORY;
    if (from->data.len)
        memcpy(*storage, from->data.data, from->data.len);
    *to = (struct rg_management_answer){.data = *storage, .size = (uint32_t)from->data.len};
    return RG_OK;
}

/* Text of several lines that a certificate is: not empty, printable ASCII and line ends. */
static enum rg_status get_pem(char *field, size_t field_size, const ProtobufCBinaryData *from)
{
    if (from->len >= field_size)
        return RG_ERR_LIMIT;
    for (size_t i = 0; i < from->len; i++)
        if (from->data[i] != '\n' && from->data[i] != '\r' && (from->data[i] < ' ' || from->data[i] > '~'))
            return RG_ERR_PROTOCOL;
    if (from->len == 0)
        return RG_ERR_PROTOCOL;
    memcpy(field, from->data, from->len);
    field[from->len] = 0;
    return RG_OK;
}

static enum rg_status get_joined(struct rg_joined *to, const Rg__Joined *from)
{
    RG_TRY(get_pem(to->certificate, sizeof to->certificate, &from->certificate));
    RG_TRY(get_pem(to->authority, sizeof to->authority, &from->authority));
    return GET_TEXT(to->user, from->user);
}

static enum rg_status get_body(struct rg_control *out, const Rg__Control *control)
{
    switch (control->body_case) {
    case RG__CONTROL__BODY_CLIENT_HELLO:
        out->kind = RG_CONTROL_CLIENT_HELLO;
        return get_client_hello(&out->client_hello, control->client_hello);
    case RG__CONTROL__BODY_SERVER_HELLO:
        out->kind = RG_CONTROL_SERVER_HELLO;
        return get_server_hello(&out->server_hello, &out->storage, control->server_hello);
    case RG__CONTROL__BODY_REFUSAL:
        out->kind = RG_CONTROL_REFUSAL;
        return get_refusal(&out->refusal, control->refusal);
    case RG__CONTROL__BODY_INVENTORY:
        out->kind = RG_CONTROL_INVENTORY;
        return get_inventory(&out->inventory, &out->storage, control->inventory);
    case RG__CONTROL__BODY_SESSION_END:
        out->kind = RG_CONTROL_SESSION_END;
        return GET_TEXT(out->session_end.reason, control->session_end->reason);
    case RG__CONTROL__BODY_MOVE:
        out->kind = RG_CONTROL_UPGRADE;
        return get_move(&out->upgrade, control->move);
    case RG__CONTROL__BODY_RESUMED:
        out->kind = RG_CONTROL_RESUMED;
        out->resumed.received = control->resumed->received;
        return RG_OK;
    case RG__CONTROL__BODY_ANSWER:
        out->kind = RG_CONTROL_ANSWER;
        return get_answer(&out->answer, &out->storage, control->answer);
    case RG__CONTROL__BODY_JOINED:
        out->kind = RG_CONTROL_JOINED;
        return get_joined(&out->joined, control->joined);
    default:
        return RG_ERR_PROTOCOL;
    }
}

enum rg_status rg_control_unpack(const void *data, size_t size, struct rg_control *out)
{
    memset(out, 0, sizeof *out);
    struct rg_message_header header;
    if (size < sizeof header)
        return RG_ERR_PROTOCOL;
    if (size > RG_MESSAGE_MAX)
        return RG_ERR_LIMIT;
    memcpy(&header, data, sizeof header);
    /* The version in the header is not looked at: the hello inside says it, and a refusal is always
     * understood. */
    if (header.kind != RG_MESSAGE_CONTROL)
        return RG_ERR_PROTOCOL;
    Rg__Control *control =
        rg__control__unpack(NULL, size - sizeof header, (const uint8_t *)data + sizeof header);
    if (!control)
        return RG_ERR_PROTOCOL;
    enum rg_status status = get_body(out, control);
    rg__control__free_unpacked(control, NULL);
    if (status != RG_OK)
        rg_control_fini(out);
    return status;
}

void rg_control_fini(struct rg_control *message)
{
    free(message->storage);
    memset(message, 0, sizeof *message);
}
