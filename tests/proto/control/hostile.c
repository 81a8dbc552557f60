/*
 * hostile.c - bytes that no client of ours sends: cut, beyond the limits (changed ones: messages.c). Nothing may
 * be believed that breaks a limit, nothing may crash, nothing may be left behind (the sanitizers look).
 */
#include "common/base/clock.h"
#include "proto/control/control.h"
#include "proto/control/control.pb-c.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct rg_control out;

/* A message of these protobuf contents; the caller frees it. */
static unsigned char *message_of(const Rg__Control *control, size_t *size)
{
    size_t packed = rg__control__get_packed_size(control);
    unsigned char *data = calloc(1, sizeof(struct rg_message_header) + packed);
    struct rg_message_header header = {.kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    memcpy(data, &header, sizeof header);
    rg__control__pack(control, data + sizeof header);
    *size = sizeof header + packed;
    return data;
}

static enum rg_status unpack_hello(const Rg__ClientHello *hello)
{
    Rg__Control control;
    rg__control__init(&control);
    control.body_case = RG__CONTROL__BODY_CLIENT_HELLO;
    control.client_hello = (Rg__ClientHello *)(uintptr_t)hello;
    size_t size;
    unsigned char *data = message_of(&control, &size);
    enum rg_status status = rg_control_unpack(data, size, &out);
    free(data);
    if (status == RG_OK)
        rg_control_fini(&out);
    else
        cr_expect_null(out.storage);
    return status;
}

static void good_hello(Rg__ClientHello *hello)
{
    rg__client_hello__init(hello);
    hello->purpose = RG__CLIENT_HELLO__PURPOSE__SESSION;
}

Test(hostile, the_plain_one_is_good)
{
    Rg__ClientHello hello;
    good_hello(&hello);
    cr_expect_eq(unpack_hello(&hello), RG_OK);
}

Test(hostile, long_texts)
{
    char text[RG_CONTROL_TEXT + 1];
    memset(text, 'x', RG_CONTROL_TEXT);
    text[RG_CONTROL_TEXT] = 0;
    Rg__ClientHello hello;
    Rg__Identity identity;
    good_hello(&hello);
    rg__identity__init(&identity);
    hello.software = text;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    text[RG_CONTROL_TEXT - 1] = 0;
    cr_expect_eq(unpack_hello(&hello), RG_OK);
    text[RG_CONTROL_TEXT - 1] = 'x';
    char **fields[] = {&identity.host, &identity.user, &identity.command};
    for (int i = 0; i < 3; i++) {
        good_hello(&hello);
        rg__identity__init(&identity);
        hello.identity = &identity;
        *fields[i] = text;
        cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT, "field %d", i);
    }
}

Test(hostile, numbers_and_counts)
{
    Rg__ClientHello hello;
    static uint32_t many[RG_DEVICES_MAX + 1];
    good_hello(&hello);
    hello.gpus = RG_DEVICES_MAX + 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    good_hello(&hello);
    hello.gpu_indices = many;
    hello.n_gpu_indices = RG_DEVICES_MAX + 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    hello.n_gpu_indices = RG_DEVICES_MAX;
    cr_expect_eq(unpack_hello(&hello), RG_OK);
    good_hello(&hello);
    hello.memory_millionths = 1000001;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    good_hello(&hello);
    hello.compute_millionths = 1000001;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    good_hello(&hello);
    hello.weight = RG_SHARE_WEIGHT_MAX + 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    good_hello(&hello);
    hello.priority = RG_SHARE_PRIORITY_HIGH + 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_PROTOCOL);
    for (int purpose = -1; purpose < 150; purpose++) {
        good_hello(&hello);
        hello.purpose = (Rg__ClientHello__Purpose)purpose;
        const bool known = (purpose >= 1 && purpose <= 5) || purpose == RG_PURPOSE_STAY ||
                           purpose == RG_PURPOSE_USAGE || purpose == RG_PURPOSE_QUOTA ||
                           purpose == RG_PURPOSE_PAGE || purpose == RG_PURPOSE_POOL ||
                           purpose == RG_PURPOSE_INVITE;
        cr_expect_eq(unpack_hello(&hello), known ? RG_OK : RG_ERR_PROTOCOL, "%d",
                     purpose); /* of others something else is missing */
    }
}

Test(hostile, bytes_of_wrong_length)
{
    static uint8_t bytes[RG_CONTROL_CREDENTIAL + 1];
    Rg__ClientHello hello;
    for (size_t size = 0; size <= 64; size++) {
        good_hello(&hello);
        hello.api_digest = (ProtobufCBinaryData){.len = size, .data = bytes};
        cr_expect_eq(unpack_hello(&hello), size == 0 || size == RG_DIGEST_SIZE ? RG_OK : RG_ERR_PROTOCOL,
                     "%zu", size);
    }
    good_hello(&hello);
    hello.credential = (ProtobufCBinaryData){.len = sizeof bytes, .data = bytes};
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
}

Test(hostile, joining)
{
    static uint8_t bytes[RG_JOIN_PROOF + 1];
    Rg__ClientHello hello;
    const ProtobufCBinaryData secret = {.len = RG_JOIN_SECRET, .data = bytes};
    const ProtobufCBinaryData key = {.len = RG_JOIN_PUBLIC_KEY, .data = bytes};
    const ProtobufCBinaryData proof = {.len = RG_JOIN_PROOF, .data = bytes};
    for (int renew = 0; renew < 2; renew++)
        for (size_t size = 0; size <= sizeof bytes; size++) {
            const ProtobufCBinaryData other = {.len = size, .data = bytes};
            good_hello(&hello);
            hello.purpose = renew ? RG__CLIENT_HELLO__PURPOSE__RENEW : RG__CLIENT_HELLO__PURPOSE__JOIN;
            hello.join_secret = other;
            hello.join_public_key = key;
            hello.join_proof = proof;
            cr_expect_eq(unpack_hello(&hello), renew || size == secret.len ? RG_OK : RG_ERR_PROTOCOL);
            hello.join_secret = secret;
            hello.join_public_key = other;
            cr_expect_eq(unpack_hello(&hello), size == key.len ? RG_OK : RG_ERR_PROTOCOL);
            hello.join_public_key = key;
            hello.join_proof = other;
            cr_expect_eq(unpack_hello(&hello), size == 0              ? RG_ERR_PROTOCOL
                                               : size > RG_JOIN_PROOF ? RG_ERR_LIMIT
                                                                      : RG_OK);
        }
}

Test(hostile, certificates_that_are_no_text)
{
    static uint8_t bytes[RG_CONTROL_PEM];
    memset(bytes, 'x', sizeof bytes);
    Rg__Joined joined;
    rg__joined__init(&joined);
    Rg__Control control;
    rg__control__init(&control);
    control.body_case = RG__CONTROL__BODY_JOINED;
    control.joined = &joined;
    static const struct {
        size_t certificate, authority;
        uint8_t last;
        enum rg_status status;
    } cases[] = {
        {5, 5, 'x', RG_OK},
        {RG_CONTROL_PEM - 1, RG_CONTROL_PEM - 1, '\n', RG_OK},
        {0, 5, 'x', RG_ERR_PROTOCOL},
        {5, 0, 'x', RG_ERR_PROTOCOL},
        {RG_CONTROL_PEM, 5, 'x', RG_ERR_LIMIT},
        {5, RG_CONTROL_PEM, 'x', RG_ERR_LIMIT},
        {5, 5, 0, RG_ERR_PROTOCOL},
        {5, 5, 27, RG_ERR_PROTOCOL},
        {5, 5, 200, RG_ERR_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        joined.certificate = (ProtobufCBinaryData){.len = cases[i].certificate, .data = bytes};
        joined.authority = (ProtobufCBinaryData){.len = cases[i].authority, .data = bytes};
        bytes[4] = cases[i].last;
        size_t size;
        unsigned char *data = message_of(&control, &size);
        cr_expect_eq(rg_control_unpack(data, size, &out), cases[i].status, "case %zu", i);
        rg_control_fini(&out);
        free(data);
    }
}

Test(hostile, lists_of_transports)
{
    char *names[RG_CONTROL_TRANSPORTS + 1];
    for (int i = 0; i <= RG_CONTROL_TRANSPORTS; i++)
        names[i] = (char *)(uintptr_t) "tcp";
    Rg__ClientHello hello;
    good_hello(&hello);
    hello.transports = names;
    hello.n_transports = RG_CONTROL_TRANSPORTS + 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
    names[0] = (char *)(uintptr_t) "a-name-much-too-long";
    hello.n_transports = 1;
    cr_expect_eq(unpack_hello(&hello), RG_ERR_LIMIT);
}

/* What a hostile server could send to a client. */
static enum rg_status unpack_server_hello(const Rg__ServerHello *hello)
{
    Rg__Control control;
    rg__control__init(&control);
    control.body_case = RG__CONTROL__BODY_SERVER_HELLO;
    control.server_hello = (Rg__ServerHello *)(uintptr_t)hello;
    size_t size;
    unsigned char *data = message_of(&control, &size);
    enum rg_status status = rg_control_unpack(data, size, &out);
    free(data);
    if (status == RG_OK)
        rg_control_fini(&out);
    else
        cr_expect_null(out.storage);
    return status;
}

Test(hostile, servers)
{
    Rg__ServerHello hello;
    Rg__Device device, *devices[RG_DEVICES_MAX + 1];
    rg__server_hello__init(&hello);
    rg__device__init(&device);
    for (int i = 0; i <= RG_DEVICES_MAX; i++)
        devices[i] = &device;
    hello.devices = devices;
    hello.n_devices = RG_DEVICES_MAX + 1;
    cr_expect_eq(unpack_server_hello(&hello), RG_ERR_LIMIT);
    hello.n_devices = 1;
    cr_expect_eq(unpack_server_hello(&hello), RG_OK);
    uint8_t uuid[17] = {0};
    device.uuid = (ProtobufCBinaryData){.len = 17, .data = uuid};
    cr_expect_eq(unpack_server_hello(&hello), RG_ERR_PROTOCOL);
    device.uuid.len = 0;

    char **names = calloc(RG_CONTROL_OPCODES + 1, sizeof *names), long_name[RG_CONTROL_OPCODE + 1];
    for (int i = 0; i <= RG_CONTROL_OPCODES; i++)
        names[i] = (char *)(uintptr_t) "cuX";
    hello.opcode_names = names;
    hello.n_opcode_names = RG_CONTROL_OPCODES + 1;
    cr_expect_eq(unpack_server_hello(&hello), RG_ERR_LIMIT);
    hello.n_opcode_names = RG_CONTROL_OPCODES;
    cr_expect_eq(unpack_server_hello(&hello), RG_OK);
    memset(long_name, 'x', RG_CONTROL_OPCODE);
    long_name[RG_CONTROL_OPCODE] = 0;
    names[5] = long_name;
    cr_expect_eq(unpack_server_hello(&hello), RG_ERR_LIMIT);
    free(names);
}

Test(hostile, not_a_control_message)
{
    static unsigned char bytes[RG_MESSAGE_MAX + 1];
    struct rg_message_header header = {.kind = RG_MESSAGE_BATCH, .version = RG_PROTOCOL_MAJOR, .count = 1};
    for (size_t size = 0; size < sizeof header; size++)
        cr_expect_eq(rg_control_unpack(bytes, size, &out), RG_ERR_PROTOCOL);
    memcpy(bytes, &header, sizeof header);
    cr_expect_eq(rg_control_unpack(bytes, sizeof header, &out), RG_ERR_PROTOCOL);
    header.kind = RG_MESSAGE_CONTROL;
    memcpy(bytes, &header, sizeof header);
    cr_expect_eq(rg_control_unpack(bytes, sizeof header, &out), RG_ERR_PROTOCOL); /* says nothing */
    cr_expect_eq(rg_control_unpack(bytes, sizeof bytes, &out), RG_ERR_LIMIT);
}

/* A message with all that there is. */
static void *rich_message(int kind, size_t *size)
{
    static struct rg_control message;
    static struct rg_device_info devices[3];
    static struct rg_session_info sessions[3];
    const char *names[] = {"", "cuInit", "cuMemAlloc_v2"};
    void *data;
    if (kind == 0) {
        rg_client_hello_init(&message, RG_PURPOSE_STATUS);
        message.client_hello.n_gpu_indices = 3;
        message.client_hello.credential_size = 100;
    } else if (kind == 1) {
        rg_server_hello_init(&message);
        message.server_hello.devices = devices;
        message.server_hello.n_devices = 3;
        message.server_hello.opcode_names = names;
        message.server_hello.n_opcode_names = 3;
    } else {
        message = (struct rg_control){.kind = RG_CONTROL_INVENTORY};
        message.inventory.devices = devices;
        message.inventory.n_devices = 3;
        message.inventory.sessions = sessions;
        message.inventory.n_sessions = 3;
    }
    cr_assert_eq(rg_control_pack(&message, &data, size), RG_OK);
    return data;
}

Test(hostile, cut_short_at_every_byte)
{
    for (int kind = 0; kind < 3; kind++) {
        size_t size;
        unsigned char *data = rich_message(kind, &size);
        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *copy = malloc(cut + !cut); /* its end is the heap's: one byte too far is seen */
            memcpy(copy, data, cut);
            enum rg_status status = rg_control_unpack(copy, cut, &out);
            if (status == RG_OK)
                rg_control_fini(&out);
            cr_expect_neq(status, RG_OK, "kind %d cut at %zu", kind, cut);
            free(copy);
        }
        free(data);
    }
}

Test(hostile, many_empty_parts_cost_little)
{
    /* field 7 (a submessage) of a status answer, empty, as often as fits */
    static unsigned char bytes[RG_MESSAGE_MAX];
    struct rg_message_header header = {.kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    size_t at = sizeof header;
    memcpy(bytes, &header, sizeof header);
    size_t inside = sizeof bytes - at - 4;
    bytes[at++] = 4 << 3 | 2; /* Control.inventory */
    bytes[at++] = (unsigned char)(inside | 0x80);
    bytes[at++] = (unsigned char)(inside >> 7 | 0x80);
    bytes[at++] = (unsigned char)(inside >> 14);
    for (; at + 1 < sizeof bytes; at += 2)
        bytes[at] = 6 << 3 | 2; /* Inventory.sessions, of no bytes */
    uint64_t before = rg_now_ns();
    cr_expect_eq(rg_control_unpack(bytes, at, &out), RG_ERR_LIMIT);
    cr_expect_lt(rg_now_ns() - before, 2000000000ull);
}
