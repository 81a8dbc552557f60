/* control.c - control messages survive the way to bytes and back; texts are cleaned; limits hold when
 * packing. */
#include "proto/control/control.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Packs and unpacks; the result is to be released. */
static struct rg_control *pass(const struct rg_control *message)
{
    void *data;
    size_t size;
    cr_assert_eq(rg_control_pack(message, &data, &size), RG_OK);
    struct rg_control *out = malloc(sizeof *out);
    cr_assert_eq(rg_control_unpack(data, size, out), RG_OK);
    free(data);
    cr_assert_eq(out->kind, message->kind);
    return out;
}

static void release(struct rg_control *message)
{
    rg_control_fini(message);
    free(message);
}

Test(control, client_hello)
{
    static struct rg_control message;
    rg_client_hello_init(&message, RG_PURPOSE_SESSION);
    struct rg_client_hello *in = &message.client_hello;
    cr_expect_eq(in->protocol_major, RG_PROTOCOL_MAJOR);
    cr_expect_eq(in->identity.pid, (uint32_t)getpid());
    cr_expect_neq(in->identity.host[0], 0);
    cr_expect_neq(in->identity.user[0], 0);
    cr_expect_neq(in->identity.command[0], 0);
    in->gpus = 3;
    in->n_gpu_indices = 2;
    in->gpu_indices[1] = 7;
    in->share = (struct rg_share_wish){.memory_bytes = 1ull << 40,
                                       .memory_millionths = 500000,
                                       .compute_millionths = 1000000,
                                       .weight = RG_SHARE_WEIGHT_MAX,
                                       .priority = RG_SHARE_PRIORITY_HIGH,
                                       .idle_timeout_ns = UINT64_MAX,
                                       .project = "vision"};
    in->capabilities = 1ull << 63;
    memset(in->api_digest, 0xab, sizeof in->api_digest);
    in->credential_size = RG_CONTROL_CREDENTIAL;
    memset(in->credential, 0, sizeof in->credential);
    in->transports.n = 2;
    strcpy(in->transports.names[1], "rdma");
    struct rg_control *out = pass(&message);
    cr_expect_arr_eq(&out->client_hello, in, sizeof *in);
    release(out);
}

Test(control, server_hello)
{
    static struct rg_control message;
    rg_server_hello_init(&message);
    struct rg_server_hello *in = &message.server_hello;
    static struct rg_device_info devices[RG_DEVICES_MAX];
    const char *names[] = {"", "cuInit", "cuMemAlloc_v2"};
    for (uint32_t i = 0; i < RG_DEVICES_MAX; i++) {
        devices[i] =
            (struct rg_device_info){.ordinal = i, .compute_major = 9, .memory_total = (uint64_t)i << 30};
        snprintf(devices[i].name, sizeof devices[i].name, "GPU %u", i);
        memset(devices[i].uuid, (int)i, sizeof devices[i].uuid);
    }
    in->devices = devices;
    in->n_devices = RG_DEVICES_MAX;
    in->opcode_names = names;
    in->n_opcode_names = 3;
    in->session = UINT64_MAX;
    in->limits.sessions = 64;
    in->driver.version = 13000;
    strcpy(in->driver.kind, "soft");
    strcpy(in->driver.release, "580.65.06");
    struct rg_control *out = pass(&message);
    const struct rg_server_hello *hello = &out->server_hello;
    cr_assert_eq(hello->n_devices, RG_DEVICES_MAX);
    cr_expect_arr_eq(hello->devices, devices, sizeof devices);
    cr_assert_eq(hello->n_opcode_names, 3);
    for (int i = 0; i < 3; i++)
        cr_expect_str_eq(hello->opcode_names[i], names[i]);
    cr_expect_eq(hello->session, UINT64_MAX);
    cr_expect_eq(hello->limits.message_bytes, RG_MESSAGE_MAX);
    cr_expect_eq(hello->limits.sessions, 64);
    cr_expect_str_eq(hello->driver.kind, "soft");
    cr_expect_str_eq(hello->driver.release, "580.65.06");
    cr_expect_eq(hello->driver.version, 13000);
    release(out);
}

Test(control, inventory)
{
    static struct rg_control message = {.kind = RG_CONTROL_INVENTORY};
    struct rg_inventory *in = &message.inventory;
    struct rg_device_info device = {
        .memory_free = 5, .memory_free_known = true, .pci = "0000:65:00.0", .memory_guaranteed = 9};
    struct rg_session_info sessions[2] = {
        {.id = 1,
         .since_unix = 1700000000,
         .n_devices = 2,
         .devices = {3, 4},
         .peer = "10.0.0.1:5",
         .n_shares = 2,
         .shares = {{1, 2, 3, 4, 5}, {.memory_limit = UINT64_MAX}},
         .compute_millionths = 250000,
         .weight = 100,
         .priority = RG_SHARE_PRIORITY_LOW,
         .state = RG_SHARE_SUSPENDED,
         .idle_timeout_ns = 6,
         .launches = 7,
         .project = "vision",
         .overcommitted = true},
        {.id = 2, .identity_name = "spiffe://example.org/alice", .encrypted = true}};
    strcpy(sessions[1].identity.command, "./train");
    in->devices = &device;
    in->n_devices = 1;
    in->sessions = sessions;
    in->n_sessions = 2;
    in->sessions_running = 99;
    in->unauthenticated = true;
    strcpy(in->host, "gpu-machine");
    strcpy(in->sandbox.mode, "auto");
    strcpy(in->sandbox.holds, "limits, own user");
    strcpy(in->sandbox.missing, "none");
    struct rg_control *out = pass(&message);
    cr_expect_arr_eq(out->inventory.devices, &device, sizeof device);
    cr_expect_arr_eq(out->inventory.sessions, sessions, sizeof sessions);
    cr_expect_eq(out->inventory.sessions_running, 99);
    cr_expect(out->inventory.unauthenticated);
    cr_expect_str_eq(out->inventory.host, "gpu-machine");
    cr_expect_str_eq(out->inventory.sandbox.mode, "auto");
    cr_expect_str_eq(out->inventory.sandbox.holds, "limits, own user");
    cr_expect_str_eq(out->inventory.sandbox.missing, "none");
    release(out);
}

Test(control, refusal_and_end)
{
    static struct rg_control message;
    for (unsigned code = 0; code <= RG_REFUSAL_INTERNAL; code++) {
        rg_refusal_init(&message, (enum rg_refusal_code)code, "%u of %s", code, "them");
        struct rg_control *out = pass(&message);
        cr_expect_eq((unsigned)out->refusal.code, code);
        cr_expect_not_null(strstr(out->refusal.reason, "of them"));
        cr_expect_eq(out->refusal.protocol_major, RG_PROTOCOL_MAJOR);
        release(out);
    }
    rg_session_end_init(&message, "until %s", "tomorrow");
    struct rg_control *out = pass(&message);
    cr_expect_str_eq(out->session_end.reason, "until tomorrow");
    release(out);
    cr_expect_str_eq(rg_refusal_name(RG_REFUSAL_NO_SUCH_GPU), "no-such-gpu");
    cr_expect_str_eq(rg_refusal_name((enum rg_refusal_code)12345), "unknown");
}

Test(control, move)
{
    static struct rg_control message;
    rg_upgrade_init(&message, "rdma");
    struct rg_control *out = pass(&message);
    cr_expect_str_eq(out->upgrade.transport, "rdma");
    cr_expect(!out->upgrade.has_token);
    cr_expect_eq(out->upgrade.rails, 0);
    release(out);
    message.upgrade.rails = 3;
    message.upgrade.has_token = true;
    memcpy(message.upgrade.token, "0123456789abcdef", RG_UPGRADE_TOKEN);
    out = pass(&message);
    cr_expect(out->upgrade.has_token);
    cr_expect_arr_eq(out->upgrade.token, "0123456789abcdef", RG_UPGRADE_TOKEN);
    cr_expect_eq(out->upgrade.rails, 3);
    release(out);
    rg_server_hello_init(&message);
    message.server_hello.n_addresses = 2;
    strcpy(message.server_hello.addresses[1], "rdma://10.0.0.1:4");
    memcpy(message.server_hello.move_token, "fedcba9876543210", RG_UPGRADE_TOKEN);
    out = pass(&message);
    cr_expect_eq(out->server_hello.n_addresses, 2);
    cr_expect_str_eq(out->server_hello.addresses[1], "rdma://10.0.0.1:4");
    cr_expect_arr_eq(out->server_hello.move_token, "fedcba9876543210", RG_UPGRADE_TOKEN);
    cr_expect(!out->server_hello.has_rails);
    release(out);
    message.server_hello.has_rails = true;
    message.server_hello.address_rails[1] = 7;
    out = pass(&message);
    cr_expect(out->server_hello.has_rails);
    cr_expect_eq(out->server_hello.address_rails[0], 0);
    cr_expect_eq(out->server_hello.address_rails[1], 7);
    release(out);
    message.server_hello.n_addresses = RG_CONTROL_ADDRESSES + 1;
    void *data;
    size_t size;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
}

Test(control, join_and_renew)
{
    static struct rg_control message;
    rg_client_hello_init(&message, RG_PURPOSE_JOIN);
    struct rg_client_hello *in = &message.client_hello;
    memset(in->join_secret, 0x5e, sizeof in->join_secret);
    memset(in->join_public_key, 4, sizeof in->join_public_key);
    memset(in->join_proof, 0x30, sizeof in->join_proof);
    in->join_proof_size = RG_JOIN_PROOF;
    struct rg_control *out = pass(&message);
    cr_expect_arr_eq(&out->client_hello, in, sizeof *in);
    release(out);

    in->purpose = RG_PURPOSE_RENEW;
    in->join_proof_size = 70;
    out = pass(&message);
    cr_expect_eq(out->client_hello.join_proof_size, 70);
    cr_expect_arr_eq(out->client_hello.join_public_key, in->join_public_key, RG_JOIN_PUBLIC_KEY);
    cr_expect_eq(out->client_hello.join_secret[0], 0, "a renewal shows no secret");
    release(out);

    in->purpose = RG_PURPOSE_SESSION; /* which sends nothing of it */
    out = pass(&message);
    cr_expect_eq(out->client_hello.join_public_key[0], 0);
    release(out);

    in->purpose = RG_PURPOSE_JOIN;
    in->join_proof_size = RG_JOIN_PROOF + 1;
    void *data;
    size_t size;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
}

Test(control, joined)
{
    static struct rg_control message = {.kind = RG_CONTROL_JOINED};
    memset(message.joined.certificate, 'A', RG_CONTROL_PEM - 1);
    message.joined.certificate[64] = '\n';
    strcpy(message.joined.authority, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    strcpy(message.joined.user, "alice");
    struct rg_control *out = pass(&message);
    cr_expect_str_eq(out->joined.certificate, message.joined.certificate);
    cr_expect_str_eq(out->joined.authority, message.joined.authority);
    cr_expect_str_eq(out->joined.user, "alice");
    release(out);
}

Test(control, packing_holds_the_limits)
{
    static struct rg_control message;
    void *data = NULL;
    size_t size;
    rg_client_hello_init(&message, RG_PURPOSE_SESSION);
    message.client_hello.n_gpu_indices = RG_DEVICES_MAX + 1;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
    rg_client_hello_init(&message, RG_PURPOSE_SESSION);
    message.client_hello.credential_size = RG_CONTROL_CREDENTIAL + 1;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
    message = (struct rg_control){.kind = RG_CONTROL_INVENTORY};
    message.inventory.n_sessions = RG_CONTROL_SESSIONS + 1;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
    message = (struct rg_control){.kind = (enum rg_control_kind)77};
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_INVALID);

    /* more than fits into a message */
    static struct rg_session_info sessions[RG_CONTROL_SESSIONS];
    for (int i = 0; i < RG_CONTROL_SESSIONS; i++)
        memset(sessions[i].identity.command, 'x', RG_CONTROL_TEXT - 1);
    message = (struct rg_control){.kind = RG_CONTROL_INVENTORY};
    message.inventory.sessions = sessions;
    message.inventory.n_sessions = RG_CONTROL_SESSIONS;
    cr_expect_eq(rg_control_pack(&message, &data, &size), RG_ERR_LIMIT);
    cr_expect_null(data);
}

Test(text, cleaned)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"\033[31mred\033[0m", "?[31mred?[0m"},
        {"line\nline\ttab\r", "line?line?tab?"},
        {"\x7f", "?"},
        {"Grüße €", "Grüße €"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xff\xfe", "??"},
        {"\xc3", "?"},                /* cut short */
        {"\xc0\xaf", "??"},           /* longer than need be */
        {"\xe0\x80\xaf", "???"},      /* the same */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* CSI as one character */
        {"a\xe2\x80\xae"
         "b",
         "a???b"}, /* right-to-left override */
        {"a\xe2\x80\xa8"
         "b",
         "a???b"}, /* line separator */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char field[64];
        rg_control_text(field, sizeof field, cases[i].in, strlen(cases[i].in));
        cr_expect_str_eq(field, cases[i].out, "case %zu: %s", i, field);
    }
}

Test(text, cut_between_characters)
{
    char field[4];
    rg_control_text(field, sizeof field, "ab€", 5);
    cr_expect_str_eq(field, "ab");
    rg_control_text(field, sizeof field, "€", 3);
    cr_expect_str_eq(field, "€");
    rg_control_text(field, 1, "x", 1);
    cr_expect_str_eq(field, "");
}
