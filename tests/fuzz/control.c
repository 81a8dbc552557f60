/*
 * control.c - the body of one kind of control message (FUZZ_FIELD: its field in control.proto), or, without that, a
 * whole message of any kind: what unpacks must be packed again, and then always to the same bytes.
 */
#include "proto/control/control.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char message[RG_MESSAGE_MAX + 64];

static void check_texts(const struct rg_control *control)
{
    if (control->kind == RG_CONTROL_REFUSAL)
        CHECK(memchr(control->refusal.reason, 0, sizeof control->refusal.reason));
    if (control->kind == RG_CONTROL_SESSION_END)
        CHECK(memchr(control->session_end.reason, 0, sizeof control->session_end.reason));
    if (control->kind == RG_CONTROL_CLIENT_HELLO)
        CHECK(memchr(control->client_hello.identity.user, 0, RG_CONTROL_TEXT));
}

static void unpack(const void *data, size_t size)
{
    static struct rg_control first, second;
    void *once, *twice;
    size_t once_size, twice_size;
    /* Exactly as many bytes as there are. */
    void *copy = malloc(size);
    CHECK(copy);
    memcpy(copy, data, size);
    const enum rg_status status = rg_control_unpack(copy, size, &first);
    free(copy);
    if (status != RG_OK) {
        CHECK(!first.storage);
        return;
    }
    check_texts(&first);
    if (rg_control_pack(&first, &once, &once_size) == RG_OK) {
        CHECK(rg_control_unpack(once, once_size, &second) == RG_OK && second.kind == first.kind);
        CHECK(rg_control_pack(&second, &twice, &twice_size) == RG_OK);
        CHECK(once_size == twice_size && memcmp(once, twice, once_size) == 0);
        free(once);
        free(twice);
        rg_control_fini(&second);
    }
    rg_control_fini(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *at = message;
    if (size > RG_MESSAGE_MAX)
        return 0;
#ifdef FUZZ_FIELD
    const struct rg_message_header header = {
        .kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    memcpy(at, &header, sizeof header);
    at += sizeof header;
    /* protobuf: number and type 2 (a length follows), then the length, both as varints. */
    for (size_t tag = FUZZ_FIELD << 3 | 2; tag || at == message + sizeof header; tag >>= 7)
        *at++ = (unsigned char)((tag & 127) | (tag > 127 ? 128 : 0));
    size_t length = size;
    do
        *at++ = (unsigned char)((length & 127) | (length > 127 ? 128 : 0));
    while (length >>= 7);
#endif
    memcpy(at, data, size);
    unpack(message, (size_t)(at - message) + size);
    return 0;
}

/* --- seeds ---------------------------------------------------------------------------------------------- */

static void seed(const char *name, const struct rg_control *control)
{
    void *data;
    size_t size;
    CHECK(rg_control_pack(control, &data, &size) == RG_OK);
    const unsigned char *at = data;
#ifdef FUZZ_FIELD
    at += sizeof(struct rg_message_header);
    size_t tag = 0, shift = 0;
    do
        tag |= (size_t)(*at & 127) << shift, shift += 7;
    while (*at++ & 128);
    while (*at++ & 128)
        ;
    if (tag >> 3 != FUZZ_FIELD) {
        free(data);
        return;
    }
#endif
    fuzz_seed(name, at, size - (size_t)(at - (const unsigned char *)data));
    free(data);
}

static void fill_device(struct rg_device_info *device)
{
    *device = (struct rg_device_info){.ordinal = 1,
                                      .name = "a device",
                                      .compute_major = 12,
                                      .memory_total = 1u << 30,
                                      .memory_free = 5,
                                      .memory_free_known = true,
                                      .pci = "0000:01:00.0",
                                      .direct = RG_CONTROL_GPUDIRECT_PEER,
                                      .n_attributes = 3,
                                      .attributes = {1, -2, 3},
                                      .attribute_results = {0, 1, 0}};
    memset(device->uuid, 7, sizeof device->uuid);
}

void fuzz_seeds(void)
{
    static struct rg_control control;
    static const enum rg_purpose purposes[] = {RG_PURPOSE_SESSION,    RG_PURPOSE_STATUS, RG_PURPOSE_NETPERF,
                                               RG_PURPOSE_MANAGEMENT, RG_PURPOSE_BULK,   RG_PURPOSE_RESUME,
                                               RG_PURPOSE_JOIN,       RG_PURPOSE_RENEW,  RG_PURPOSE_STAY,
                                               RG_PURPOSE_USAGE,      RG_PURPOSE_QUOTA};
    for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++) {
        memset(&control, 0, sizeof control);
        rg_client_hello_init(&control, purposes[i]);
        struct rg_client_hello *hello = &control.client_hello;
        hello->gpus = 2;
        hello->n_gpu_indices = 2;
        hello->gpu_indices[1] = 1;
        hello->share.memory_millionths = 500000;
        hello->window_size = 1ull << 40;
        hello->credential_size = 5;
        hello->transports = (struct rg_transport_list){2, {"tcp", "rdma"}};
        hello->bulk_session = hello->resume_session = 77;
        hello->bulk_connections = 3;
        hello->question_size = purposes[i] == RG_PURPOSE_MANAGEMENT ? 40 : 0;
        /* Not of the machine and user that made the seeds. */
        hello->identity = (struct rg_identity){"host", "user", "command", 5};
        char name[32];
        snprintf(name, sizeof name, "hello-%d", (int)purposes[i]);
        seed(name, &control);
    }
    struct rg_device_info devices[2];
    static struct rg_session_info session = {
        .id = 9, .identity = {"host", "user", "command", 5}, .n_devices = 1, .peer = "10.0.0.7:99"};
    static const char *names[] = {"", "cuInit", "cuLaunchKernel"};
    fill_device(&devices[0]);
    fill_device(&devices[1]);
    memset(&control, 0, sizeof control);
    rg_server_hello_init(&control);
    control.server_hello.n_devices = 2;
    control.server_hello.devices = devices;
    control.server_hello.n_opcode_names = 3;
    control.server_hello.opcode_names = names;
    control.server_hello.n_addresses = 2;
    control.server_hello.has_rails = true;
    strcpy(control.server_hello.addresses[0], "rdma:10.0.0.1:7600");
    strcpy(control.server_hello.addresses[1], "rdma:10.0.0.2:7600");
    control.server_hello.n_tcp_addresses = 2;
    control.server_hello.tcp_rails[1] = 1;
    strcpy(control.server_hello.tcp_addresses[0], "10.0.0.1");
    strcpy(control.server_hello.tcp_addresses[1], "fd00::1");
    control.server_hello.bulk_connections = 4;
    control.server_hello.resume_seconds = 60;
    strcpy(control.server_hello.host, "host");
    seed("server-hello", &control);
    memset(&control, 0, sizeof control);
    rg_refusal_init(&control, RG_REFUSAL_FULL, "there is no room");
    seed("refusal", &control);
    memset(&control, 0, sizeof control);
    control.kind = RG_CONTROL_INVENTORY;
    control.inventory.n_devices = 2;
    control.inventory.devices = devices;
    control.inventory.n_sessions = 1;
    control.inventory.sessions = &session;
    strcpy(control.inventory.machine.kernel, "6.1");
    seed("inventory", &control);
    memset(&control, 0, sizeof control);
    rg_session_end_init(&control, "it is over");
    seed("session-end", &control);
    memset(&control, 0, sizeof control);
    rg_upgrade_init(&control, "rdma");
    control.upgrade.has_token = true;
    control.upgrade.rails = 2;
    seed("move", &control);
    memset(&control, 0, sizeof control);
    control.kind = RG_CONTROL_ANSWER;
    control.answer = (struct rg_management_answer){"an answer", 9};
    seed("answer", &control);
    memset(&control, 0, sizeof control);
    rg_resumed_init(&control, 1234567);
    seed("resumed", &control);
}
