/*
 * messages.c - control messages: what was packed is what is unpacked, and bytes of any other origin are refused or taken for
 * what can be packed again, whatever is changed in them (meant for the sanitizers).
 * usage: proto_control_messages [CASES [SEED]]
 */
#include "proto/control/control.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static uint32_t chance(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

static void fill(void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)data)[i] = (unsigned char)chance(256);
}

/* --- one message of each kind ------------------------------------------------------------------------------------------- */

static struct rg_device_info devices[2];
static struct rg_session_info sessions[2];
static const char *op_names[] = {"", "cuInit", "rgLaunch"};

static void fill_devices(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        devices[i].ordinal = i;
        snprintf(devices[i].name, sizeof devices[i].name, "device %u", i);
        fill(devices[i].uuid, sizeof devices[i].uuid);
        devices[i].memory_total = 1ull << 33;
        devices[i].direct = RG_CONTROL_GPUDIRECT_DMABUF;
        devices[i].host_reach = RG_CONTROL_REACH_PAGEABLE;
        devices[i].n_attributes = RG_CONTROL_ATTRIBUTES;
        fill(devices[i].attributes, sizeof devices[i].attributes);
        fill(devices[i].attribute_results, sizeof devices[i].attribute_results);
        sessions[i].id = i;
        sessions[i].n_devices = 2;
        snprintf(sessions[i].peer, sizeof sessions[i].peer, "10.0.0.%u:7", i);
        snprintf(sessions[i].identity_name, sizeof sessions[i].identity_name, "user %u", i);
        sessions[i].encrypted = i;
    }
}

static void make_client_hello(struct rg_control *out)
{
    static const enum rg_purpose purposes[] = {
        RG_PURPOSE_SESSION, RG_PURPOSE_INVENTORY, RG_PURPOSE_STATUS,     RG_PURPOSE_NETPERF,
        RG_PURPOSE_BULK,    RG_PURPOSE_RESUME,    RG_PURPOSE_MANAGEMENT, RG_PURPOSE_JOIN,
        RG_PURPOSE_RENEW,   RG_PURPOSE_STAY,      RG_PURPOSE_USAGE,      RG_PURPOSE_QUOTA,
        RG_PURPOSE_POOL,    RG_PURPOSE_PEER,      RG_PURPOSE_INTRODUCE,  RG_PURPOSE_INVITE,
        RG_PURPOSE_PAGE};
    rg_client_hello_init(out, purposes[chance(sizeof purposes / sizeof *purposes)]);
    struct rg_client_hello *hello = &out->client_hello;
    hello->n_gpu_indices = 2;
    hello->gpu_indices[1] = 7;
    hello->capabilities = RG_CONTROL_CAP_RESUME;
    hello->pool_lease = 1ull << 63 | 7;
    hello->question_size = hello->purpose == RG_PURPOSE_MANAGEMENT ? chance(RG_QUESTION_SIZE_MAX) : 0;
    hello->bulk_session = hello->resume_session = 5;
    hello->resume_received = 1ull << 40;
    fill(hello->bulk_token, sizeof hello->bulk_token);
    fill(hello->resume_token, sizeof hello->resume_token);
    fill(hello->join_secret, sizeof hello->join_secret);
    fill(hello->join_public_key, sizeof hello->join_public_key);
    fill(hello->join_proof, sizeof hello->join_proof);
    hello->join_proof_size = 1 + chance(RG_JOIN_PROOF);
    hello->peer_session = 1ull << 62 | 3;
    hello->target_session = 4;
    fill(hello->peer_secret, sizeof hello->peer_secret);
    fill(hello->target_secret, sizeof hello->target_secret);
    fill(hello->target_authority, sizeof hello->target_authority);
    hello->has_target_authority = chance(2);
    snprintf(hello->target_address, sizeof hello->target_address, "tcp://10.0.0.2:7600");
    snprintf(hello->target_name, sizeof hello->target_name, "gpu-machine");
    hello->transports.n = 2;
    strcpy(hello->transports.names[0], "rdma");
    strcpy(hello->transports.names[1], "tcp");
}

static void make_server_hello(struct rg_control *out)
{
    rg_server_hello_init(out);
    struct rg_server_hello *hello = &out->server_hello;
    hello->n_devices = 2;
    hello->devices = devices;
    hello->opcode_names = op_names;
    hello->n_opcode_names = chance(2) ? 3 : 0;
    hello->capabilities = chance(2) ? RG_CONTROL_CAP_RESUME : 0;
    hello->resume_seconds = 30;
    fill(hello->resume_token, sizeof hello->resume_token);
    hello->n_addresses = chance(RG_CONTROL_ADDRESSES + 1);
    hello->has_rails = chance(2);
    for (uint32_t i = 0; i < hello->n_addresses; i++) {
        snprintf(hello->addresses[i], sizeof hello->addresses[i], "rdma://10.0.0.%u:7", i);
        hello->address_rails[i] = i / 2;
    }
    hello->n_tcp_addresses = chance(RG_CONTROL_ADDRESSES + 1);
    for (uint32_t i = 0; i < hello->n_tcp_addresses; i++) {
        snprintf(hello->tcp_addresses[i], sizeof hello->tcp_addresses[i], "10.1.0.%u", i);
        hello->tcp_rails[i] = i / 2;
    }
    hello->bulk_connections = chance(3);
    snprintf(hello->host, sizeof hello->host, "host");
}

static void make_inventory(struct rg_control *out)
{
    out->kind = RG_CONTROL_INVENTORY;
    out->inventory.n_devices = out->inventory.n_sessions = 2;
    out->inventory.devices = devices;
    out->inventory.sessions = sessions;
    out->inventory.unauthenticated = chance(2);
    snprintf(out->inventory.sandbox.mode, sizeof out->inventory.sandbox.mode, "auto");
    snprintf(out->inventory.sandbox.holds, sizeof out->inventory.sandbox.holds, "limits, own user");
    snprintf(out->inventory.sandbox.missing, sizeof out->inventory.sandbox.missing, "own /proc");
    snprintf(out->inventory.pool, sizeof out->inventory.pool, "lab");
    snprintf(out->inventory.machine.rails, sizeof out->inventory.machine.rails, "a rail");
}

static void make(struct rg_control *out, enum rg_control_kind kind)
{
    memset(out, 0, sizeof *out);
    switch (kind) {
    case RG_CONTROL_CLIENT_HELLO:
        make_client_hello(out);
        break;
    case RG_CONTROL_SERVER_HELLO:
        make_server_hello(out);
        break;
    case RG_CONTROL_REFUSAL:
        rg_refusal_init(out, RG_REFUSAL_NO_SUCH_SESSION, "no");
        break;
    case RG_CONTROL_INVENTORY:
        make_inventory(out);
        break;
    case RG_CONTROL_SESSION_END:
        rg_session_end_init(out, "over");
        break;
    case RG_CONTROL_UPGRADE:
        rg_upgrade_init(out, "rdma");
        out->upgrade.has_token = chance(2);
        fill(out->upgrade.token, out->upgrade.has_token ? sizeof out->upgrade.token : 0);
        out->upgrade.rails = chance(9);
        break;
    case RG_CONTROL_ANSWER:
        out->kind = RG_CONTROL_ANSWER;
        out->answer.data = devices;
        out->answer.size = 100;
        break;
    case RG_CONTROL_RESUMED:
        rg_resumed_init(out, 1ull << 50);
        break;
    case RG_CONTROL_JOINED:
        out->kind = RG_CONTROL_JOINED;
        memset(out->joined.certificate, 'c', 1 + chance(RG_CONTROL_PEM - 1));
        memset(out->joined.authority, '\n', 1 + chance(RG_CONTROL_PEM - 1));
        snprintf(out->joined.user, sizeof out->joined.user, "alice");
        break;
    }
}

/* --- there and back ----------------------------------------------------------------------------------------------------- */

/* What can be unpacked can be packed again, and then stays the same. */
static void check_again(const struct rg_control *message)
{
    void *data, *again;
    size_t size, size_again;
    struct rg_control copy;
    if (rg_control_pack(message, &data, &size) != RG_OK)
        return; /* it would not fit into a message, with what our packing adds */
    CHECK(rg_control_unpack(data, size, &copy) == RG_OK);
    CHECK(copy.kind == message->kind);
    CHECK(rg_control_pack(&copy, &again, &size_again) == RG_OK);
    CHECK(size == size_again && memcmp(data, again, size) == 0);
    rg_control_fini(&copy);
    free(data);
    free(again);
}

static void check_what_was_added(const struct rg_control *a, const struct rg_control *b)
{
    const struct rg_client_hello *client = &a->client_hello;
    const struct rg_server_hello *server = &a->server_hello;
    if (a->kind == RG_CONTROL_CLIENT_HELLO && client->purpose == RG_PURPOSE_RESUME)
        CHECK(b->client_hello.resume_session == client->resume_session &&
              b->client_hello.resume_received == client->resume_received &&
              memcmp(b->client_hello.resume_token, client->resume_token, RG_RESUME_TOKEN) == 0);
    if (a->kind == RG_CONTROL_SERVER_HELLO && server->n_addresses)
        CHECK(b->server_hello.has_rails == server->has_rails &&
              (!server->has_rails || memcmp(b->server_hello.address_rails, server->address_rails,
                                            server->n_addresses * sizeof *server->address_rails) == 0));
    if (a->kind == RG_CONTROL_SERVER_HELLO) {
        CHECK(b->server_hello.n_tcp_addresses == server->n_tcp_addresses);
        for (uint32_t i = 0; i < server->n_tcp_addresses; i++)
            CHECK(strcmp(b->server_hello.tcp_addresses[i], server->tcp_addresses[i]) == 0 &&
                  b->server_hello.tcp_rails[i] == server->tcp_rails[i]);
    }
    if (a->kind == RG_CONTROL_SERVER_HELLO && server->capabilities)
        CHECK(b->server_hello.resume_seconds == server->resume_seconds &&
              memcmp(b->server_hello.resume_token, server->resume_token, RG_RESUME_TOKEN) == 0);
    if (a->kind == RG_CONTROL_UPGRADE)
        CHECK(b->upgrade.rails == a->upgrade.rails && b->upgrade.has_token == a->upgrade.has_token);
    if (a->kind == RG_CONTROL_RESUMED)
        CHECK(b->resumed.received == a->resumed.received);
    if (a->kind == RG_CONTROL_CLIENT_HELLO && client->purpose == RG_PURPOSE_JOIN)
        CHECK(memcmp(b->client_hello.join_secret, client->join_secret, RG_JOIN_SECRET) == 0 &&
              b->client_hello.join_proof_size == client->join_proof_size);
    if (a->kind == RG_CONTROL_CLIENT_HELLO &&
        (client->purpose == RG_PURPOSE_PEER || client->purpose == RG_PURPOSE_INTRODUCE))
        CHECK(b->client_hello.peer_session == client->peer_session &&
              memcmp(b->client_hello.peer_secret, client->peer_secret, RG_PEER_SECRET) == 0);
    if (a->kind == RG_CONTROL_CLIENT_HELLO && client->purpose == RG_PURPOSE_INVITE)
        CHECK(b->client_hello.peer_session == client->peer_session);
    if (a->kind == RG_CONTROL_CLIENT_HELLO && client->purpose == RG_PURPOSE_INTRODUCE)
        CHECK(b->client_hello.target_session == client->target_session &&
              memcmp(b->client_hello.target_secret, client->target_secret, RG_PEER_SECRET) == 0 &&
              strcmp(b->client_hello.target_address, client->target_address) == 0 &&
              b->client_hello.has_target_authority == client->has_target_authority);
    if (a->kind == RG_CONTROL_JOINED)
        CHECK(strcmp(b->joined.certificate, a->joined.certificate) == 0 &&
              strcmp(b->joined.user, a->joined.user) == 0);
    if (a->kind == RG_CONTROL_REFUSAL)
        CHECK(strcmp(rg_refusal_name(b->refusal.code), "no-such-session") == 0);
}

/* --- changed bytes ------------------------------------------------------------------------------------------------------ */

static size_t change(unsigned char *data, size_t size, size_t room)
{
    for (unsigned i = 1 + chance(4); i; i--)
        switch (chance(4)) {
        case 0:
            data[chance((uint32_t)size)] = (unsigned char)chance(256);
            break;
        case 1:
            data[chance((uint32_t)size)] ^= (unsigned char)(1u << chance(8));
            break;
        case 2: /* a part comes twice, so that a field does */
            if (size < room) {
                const size_t at = chance((uint32_t)size), n = 1 + chance((uint32_t)(room - size));
                const size_t copied = n < size - at ? n : size - at;
                memmove(data + at + copied, data + at, size - at);
                size += copied;
            }
            break;
        default:
            size = size > 1 && chance(4) == 0 ? 1 + chance((uint32_t)size - 1) : size;
        }
    return size;
}

static void one_case(uint64_t seed)
{
    struct rg_control message, got;
    void *data;
    size_t size;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    fill_devices();
    make(&message, (enum rg_control_kind)(RG_CONTROL_CLIENT_HELLO + chance(RG_CONTROL_JOINED)));
    CHECK(rg_control_pack(&message, &data, &size) == RG_OK);
    CHECK(rg_control_unpack(data, size, &got) == RG_OK && got.kind == message.kind);
    check_what_was_added(&message, &got);
    check_again(&got);
    rg_control_fini(&got);
    const size_t room = size + 200;
    data = realloc(data, room);
    CHECK(data);
    size = change(data, size, room);
    unsigned char *exact = malloc(size); /* so that a look behind its end is one beyond memory */
    CHECK(exact);
    memcpy(exact, data, size);
    if (rg_control_unpack(exact, size, &got) == RG_OK) {
        check_again(&got);
        rg_control_fini(&got);
    }
    free(exact);
    free(data);
}

int main(int argc, char **argv)
{
    const unsigned long cases = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    const unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    for (unsigned long i = 0; i < cases; i++)
        one_case(seed + i);
    fprintf(stderr, "%lu cases\n", cases);
    return 0;
}
