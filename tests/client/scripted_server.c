/* scripted_server.c - see scripted_server.h. */
#include "tests/client/scripted_server.h"

#include "client/core/session.h"
#include "client/modules.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 64, NUMBERS = 16, BULK_MAX = 1 << 20 };

static struct {
    struct rg_conn head;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_reader script; /* what it is still to say */
    bool patient, over;
    uint32_t tokens[TOKENS]; /* of calls that wait */
    unsigned n_tokens;
    uint64_t numbers[NUMBERS]; /* of 8 bytes, in the records sent last: ids are among them */
    unsigned n_numbers;
    unsigned char *message; /* the current one; the receiver's */
    size_t bulk_left;
} server;

static unsigned char zeros[256];

/* Takes tokens and numbers of the records. The lock is held. */
static void look_at_records(struct rg_reader *in)
{
    struct rg_record record;
    while (rg_left(in) >= sizeof record) {
        rg_get_into(in, &record, sizeof record);
        if (record.size < sizeof record)
            return;
        const unsigned char *parameters = rg_get(in, record.size - sizeof record);
        if (!parameters)
            return;
        for (size_t at = 0; at + 8 <= record.size - sizeof record; at += 4)
            memcpy(&server.numbers[server.n_numbers++ % NUMBERS], parameters + at, 8);
        if (record.token && server.n_tokens < TOKENS)
            server.tokens[server.n_tokens++] = record.token;
    }
}

static enum rg_status server_send(struct rg_conn *conn, struct rg_send *send)
{
    (void)conn;
    static unsigned char all[RG_MESSAGE_MAX];
    RG_SCOPED_LOCK(&server.lock);
    if (server.over)
        return RG_ERR_CLOSED;
    struct rg_writer w = {all};
    for (int i = 0; i < send->n_msg; i++)
        rg_put(&w, send->msg[i].iov_base, send->msg[i].iov_len);
    for (int i = 0; i < send->n_bulk; i++)
        fuzz_read(send->bulk[i].iov_base, send->bulk[i].iov_len);
    struct rg_reader in = rg_reader_of(all, (size_t)(w.at - all));
    struct rg_message_header header;
    rg_get_into(&in, &header, sizeof header);
    if (header.kind == RG_MESSAGE_BATCH)
        look_at_records(&in);
    pthread_cond_broadcast(&server.changed);
    return RG_OK;
}

static void put_head(struct rg_writer *w, unsigned kind)
{
    const struct rg_message_header header = {
        .kind = (uint16_t)kind, .version = RG_PROTOCOL_MAJOR, .count = 1};
    rg_put(w, &header, sizeof header);
}

static uint32_t take_token(void)
{
    if (!server.n_tokens)
        return 12345;
    const uint32_t token = server.tokens[0];
    memmove(server.tokens, server.tokens + 1, --server.n_tokens * sizeof *server.tokens);
    return token;
}

static void put_reply(struct rg_writer *w, int32_t result, const void *outputs, uint32_t size)
{
    const struct rg_reply reply = {.token = take_token(), .result = result, .size = size};
    put_head(w, RG_MESSAGE_REPLY);
    rg_put(w, &reply, sizeof reply);
    rg_put(w, outputs, size);
}

static size_t get_sized(struct rg_reader *in, const unsigned char **bytes)
{
    uint16_t size;
    rg_get_into(in, &size, sizeof size);
    const size_t there = size % SCRIPT_MESSAGE_MAX < rg_left(in) ? size % SCRIPT_MESSAGE_MAX : rg_left(in);
    *bytes = rg_get(in, there);
    return *bytes ? there : 0;
}

/* The next message of the script. False: nothing is left of it. */
static bool next_item(struct rg_writer *w, size_t *bulk)
{
    struct rg_reader *in = &server.script;
    unsigned char head[2];
    uint16_t bulk_size;
    const unsigned char *bytes;
    if (in->bad || rg_left(in) < 4 ||
        (server.patient && *in->at % SCRIPT_ITEMS == SCRIPT_REPLY && !server.n_tokens))
        return false;
    rg_get_into(in, head, sizeof head);
    rg_get_into(in, &bulk_size, sizeof bulk_size);
    *bulk = (size_t)bulk_size << (head[1] & SCRIPT_LARGE ? 4 : 0);
    *bulk = *bulk < BULK_MAX ? *bulk : BULK_MAX;
    if (head[0] % SCRIPT_ITEMS == SCRIPT_REPLY) {
        const int32_t result = (int32_t)rg_get_u32(in);
        const size_t size = get_sized(in, &bytes);
        put_reply(w, head[1] & SCRIPT_FAILS ? result : 0, bytes, (uint32_t)size);
    } else if (head[0] % SCRIPT_ITEMS == SCRIPT_NOTICE) {
        struct rg_notice notice = {0};
        unsigned char type;
        rg_get_into(in, &type, 1);
        notice.type = type;
        for (unsigned i = 0; i < 3; i++)
            notice.arg[i] = rg_get_u64(in);
        const uint64_t id = rg_get_u64(in);
        notice.id = head[1] & SCRIPT_KNOWN ? server.numbers[id % NUMBERS] : id;
        put_head(w, RG_MESSAGE_NOTICE);
        rg_put(w, &notice, sizeof notice);
    } else {
        const size_t size = get_sized(in, &bytes);
        rg_put(w, bytes, size);
    }
    return true;
}

static enum rg_status server_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    static unsigned char made[2 * SCRIPT_MESSAGE_MAX];
    struct rg_writer w = {made};
    size_t bulk = 0;
    (void)conn;
    RG_SCOPED_LOCK(&server.lock);
    for (;;) {
        if (server.over)
            return RG_ERR_CLOSED;
        if (next_item(&w, &bulk))
            break;
        if (server.n_tokens) {
            put_reply(&w, 0, zeros, sizeof zeros);
            bulk = 0;
            break;
        }
        if (timeout_ms == 0)
            return RG_ERR_TIMEOUT;
        pthread_cond_wait(&server.changed, &server.lock);
    }
    free(server.message);
    const size_t size = (size_t)(w.at - made);
    server.message = malloc(size ? size : 1);
    CHECK(server.message);
    memcpy(server.message, made, size);
    server.bulk_left = bulk;
    *out = (struct rg_message){.data = server.message, .size = size, .bulk_size = bulk};
    return RG_OK;
}

static enum rg_status server_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    (void)conn;
    CHECK(size <= server.bulk_left);
    server.bulk_left -= size;
    if (buffer)
        memset(buffer, 0xee, size);
    return RG_OK;
}

static void server_interrupt(struct rg_conn *conn)
{
    (void)conn;
    RG_SCOPED_LOCK(&server.lock);
    server.over = true;
    pthread_cond_broadcast(&server.changed);
}

static void server_destroy(struct rg_conn *conn)
{
    (void)conn;
}

static struct rg_transport_ops server_ops;

/* The hello is answered by hand: there is one device. */
static enum rg_status server_connect(const struct rg_address *address,
                                     const struct rg_transport_options *options, char *why, size_t why_size,
                                     struct rg_conn **out)
{
    (void)address, (void)options, (void)why, (void)why_size;
    server.head.ops = &server_ops;
    strcpy(server.head.transport, "scripted");
    strcpy(server.head.peer, "script");
    *out = &server.head;
    return RG_OK;
}

static enum rg_status no_listen(const struct rg_address *address, const struct rg_transport_options *options,
                                char *why, size_t why_size, struct rg_listener **out)
{
    (void)address, (void)options, (void)why, (void)why_size, (void)out;
    return RG_ERR_UNSUPPORTED;
}

static enum rg_status no_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    (void)listener, (void)timeout_ms, (void)out;
    return RG_ERR_UNSUPPORTED;
}

static void no_listener(struct rg_listener *listener)
{
    (void)listener;
}

static struct rg_transport_ops server_ops = {
    .name = "scripted",
    .connect = server_connect,
    .listen = no_listen,
    .accept = no_accept,
    .listener_interrupt = no_listener,
    .listener_destroy = no_listener,
    .send = server_send,
    .send_detached = server_send,
    .recv = server_recv,
    .recv_bulk = server_recv_bulk,
    .interrupt = server_interrupt,
    .destroy = server_destroy,
};

void scripted_server_say(struct rg_reader script, bool patient)
{
    RG_SCOPED_LOCK(&server.lock);
    server.script = script;
    server.patient = patient;
    pthread_cond_broadcast(&server.changed);
}

void scripted_server_revive(void)
{
    RG_SCOPED_LOCK(&server.lock);
    server.n_tokens = 0;
    server.over = false;
    server.head.bulk_left = 0;
}

void scripted_server_begin(void)
{
    static struct rg_control hello;
    static unsigned char packed[RG_MESSAGE_MAX];
    static struct rg_device_info device = {.name = "a device", .compute_major = 9, .memory_total = 1u << 30};
    void *data;
    size_t size;
    setenv("REMOTE_GPU_SERVER", "scripted://server", 1);
    setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED", "1", 1);
    setenv("REMOTE_GPU_TRANSPORT", "tcp", 1);
    setenv("REMOTE_GPU_CACHE", "off", 1);
    setenv("REMOTE_GPU_CONNECTIONS", "0", 1);
    pthread_mutex_init(&server.lock, NULL);
    rg_cond_init(&server.changed);
    rg_transport_register(&server_ops);
    rg_modules_register();
    rg_server_hello_init(&hello);
    hello.server_hello.n_devices = 1;
    hello.server_hello.devices = &device;
    hello.server_hello.driver.version = 12090;
    memcpy(hello.server_hello.api_digest, rg_api_digest, sizeof rg_api_digest);
    CHECK(rg_control_pack(&hello, &data, &size) == RG_OK && size < SCRIPT_MESSAGE_MAX);
    struct rg_writer w = {packed};
    script_raw(&w, 0, data, size);
    free(data);
    scripted_server_say(rg_reader_of(packed, (size_t)(w.at - packed)), false);
    CHECK(cuInit(0) == CUDA_SUCCESS);
}

/* --- scripts ----------------------------------------------------------------------------------------------------- */

static void put_item(struct rg_writer *w, unsigned kind, unsigned flags, unsigned bulk)
{
    rg_put(w, &(unsigned char[]){(unsigned char)kind, (unsigned char)flags}, 2);
    rg_put(w, &(uint16_t){(uint16_t)bulk}, 2);
}

void script_reply(struct rg_writer *w, unsigned bulk, int32_t result, const void *outputs, size_t size)
{
    put_item(w, SCRIPT_REPLY, result ? SCRIPT_FAILS : 0, bulk);
    rg_put_u32(w, (uint32_t)result);
    rg_put(w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(w, outputs, size);
}

void script_notice(struct rg_writer *w, unsigned flags, unsigned bulk, unsigned type, uint64_t first,
                   uint64_t second, uint64_t id)
{
    put_item(w, SCRIPT_NOTICE, flags, bulk);
    rg_put(w, &(unsigned char){(unsigned char)type}, 1);
    rg_put_u64(w, first);
    rg_put_u64(w, second);
    rg_put_u64(w, 0);
    rg_put_u64(w, id);
}

void script_raw(struct rg_writer *w, unsigned bulk, const void *message, size_t size)
{
    put_item(w, SCRIPT_RAW, 0, bulk);
    rg_put(w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(w, message, size);
}
