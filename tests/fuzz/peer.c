/*
 * peer.c - what the worker of another server says to a worker (proto/peer.h), while its own client has copies put into streams, on
 * a driver that looks at all it is given (driver.h).
 *
 * Input: a byte of what the driver does, in whose highest bit the peer answers nothing by itself; then steps, each a byte that says
 * what it is (modulo STEPS) and its fields, numbers little-endian:
 *
 *   RECEIVE, SEND  u8 transfer, u8 height, u32 width: a record of the client
 *   MESSAGE        u8 type, u8 transfer, u32 offset, u32 size, u16 of bulk data: a message of the peer
 *   RAW            u8 size, u8 of bulk data, bytes: a message of just these bytes
 *   PAUSE          nothing: the client waits a moment before it says more
 *   MODE           u8: what the driver does from now on
 *
 * Unless it is silent the peer gives what it is asked for, once it is, besides.
 */
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "proto/codec.h"
#include "server/peers/peers.h"
#include "server/transfer/deferred.h"
#include "tests/check.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/scripted_conn.h"

#include <stdlib.h>
#include <string.h>

enum { RECEIVE, SEND, MESSAGE, RAW, PAUSE, MODE, STEPS };
enum { SILENT = 128, PAUSES_MAX = 3, PAUSE_US = 300, RECORDS_MAX = 48, MESSAGES_MAX = 256, ANSWERS_MAX = 64 };
enum { PEER = 3, WIDTH_MAX = 5 << 20, WIDTH_USUAL = 64 << 10, BULK_MAX = RG_PEER_CHUNK };

static const CUdeviceptr memory = 0x700000000000; /* the first that the driver gives */

struct session {
    struct rg_conn *client, *peer;
    bool silent;
    atomic_uint answers;
    uint64_t seq;
    unsigned records, pauses, messages;
};

static void push_record(struct session *s, unsigned op, unsigned thread, const void *parameters, size_t size)
{
    unsigned char message[sizeof(struct rg_message_header) + sizeof(struct rg_record) + 80];
    const size_t whole = (sizeof(struct rg_record) + size + 7) & ~(size_t)7;
    const struct rg_message_header header = {
        .kind = RG_MESSAGE_BATCH, .version = RG_PROTOCOL_MAJOR, .count = 1, .seq = s->seq++};
    const struct rg_record record = {.size = (uint32_t)whole, .op = (uint16_t)op, .thread = thread};
    memset(message, 0, sizeof message);
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, &record, sizeof record);
    memcpy(message + sizeof header + sizeof record, parameters, size);
    fuzz_conn_push(s->client, message, sizeof header + whole, NULL, 0);
}

/* A context, a stream and device memory; as the worker's fuzzer begins, and for the same reasons. */
static void begin(struct session *s)
{
    unsigned char parameters[32];
    struct rg_writer w = {parameters};
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 0);
    rg_put_u64(&w, rg_handle_make(RG_KIND_CONTEXT, 1000, 1));
    push_record(s, RG_OP_cuCtxCreate_v2, 9, parameters, 16);
    w.at = parameters;
    rg_put_u32(&w, 0);
    rg_put_u64(&w, rg_handle_make(RG_KIND_CONTEXT, 0, 1));
    push_record(s, RG_OP_cuDevicePrimaryCtxRetain, 0, parameters, 12);
    push_record(s, RG_OP_rgThreadSetContext, 0, parameters + 4, 8);
    w.at = parameters + 4;
    rg_put_u64(&w, rg_handle_make(RG_KIND_STREAM, 1, 1));
    push_record(s, RG_OP_cuStreamCreate, 0, parameters, 12);
    w.at = parameters;
    rg_put_u64(&w, 64u << 20);
    push_record(s, RG_OP_cuMemAlloc_v2, 0, parameters, 8);
}

static void copy(struct session *s, unsigned op, uint64_t transfer, unsigned height, uint32_t width)
{
    unsigned char parameters[64];
    struct rg_writer w = {parameters};
    if (s->records++ >= RECORDS_MAX)
        return;
    width %= (width % 8 ? WIDTH_USUAL : WIDTH_MAX) + 1; /* what is large takes long, and few need it */
    rg_put_u64(&w, memory);
    rg_put_u64(&w, width);
    rg_put_u64(&w, width);
    rg_put_u64(&w, height % 4);
    rg_put_u64(&w, transfer);
    rg_put_u32(&w, PEER);
    rg_put_u64(&w, rg_handle_make(RG_KIND_STREAM, 1, 1)); /* objects are behind all else */
    push_record(s, op, 0, parameters, (size_t)(w.at - parameters));
}

/* The other end of the peer's connection: data for what is asked for. */
static void sent(void *user, struct rg_conn *conn, const void *data, size_t size, size_t bulk_size)
{
    struct session *s = user;
    struct rg_peer_message message;
    CHECK(size == sizeof message);
    memcpy(&message, data, sizeof message);
    CHECK(message.type == RG_PEER_ASK || message.type == RG_PEER_DATA || message.type == RG_PEER_FAIL);
    CHECK(bulk_size == (message.type == RG_PEER_DATA ? message.size : 0) && bulk_size <= RG_PEER_CHUNK);
    if (s->silent || message.type != RG_PEER_ASK || atomic_fetch_add(&s->answers, 1) >= ANSWERS_MAX)
        return;
    CHECK(message.size <= BULK_MAX);
    message.type = RG_PEER_DATA;
    fuzz_conn_push(conn, &message, sizeof message, NULL, message.size);
}

static void say(struct session *s, const void *message, size_t size, size_t bulk)
{
    if (s->messages++ < MESSAGES_MAX)
        fuzz_conn_push(s->peer, message, size, NULL, bulk);
}

static void do_step(struct session *s, struct rg_reader *in)
{
    const unsigned kind = *(const unsigned char *)rg_get(in, 1) % STEPS;
    unsigned char head[12] = {0};
    if (kind == PAUSE) {
        if (s->pauses++ < PAUSES_MAX)
            fuzz_conn_push_pause(s->client, PAUSE_US);
    } else if (kind == MODE) {
        rg_get_into(in, head, 1);
        fuzz_conn_push_call(s->client, fuzz_driver_change, head[0] & 31);
    } else if (kind == RAW) {
        rg_get_into(in, head, 2);
        const size_t size = head[0] < rg_left(in) ? head[0] : rg_left(in);
        say(s, rg_get(in, size), size, head[1]);
    } else if (kind == MESSAGE) {
        uint32_t numbers[2];
        uint16_t bulk;
        rg_get_into(in, head, sizeof head);
        memcpy(numbers, head + 2, sizeof numbers);
        memcpy(&bulk, head + 10, sizeof bulk);
        const struct rg_peer_message message = {
            .type = head[0], .transfer = head[1], .offset = numbers[0], .size = numbers[1]};
        say(s, &message, sizeof message, bulk);
    } else {
        uint32_t width;
        rg_get_into(in, head, 6);
        memcpy(&width, head + 2, sizeof width);
        copy(s, kind == RECEIVE ? RG_OP_rgPeerReceive : RG_OP_rgPeerSend, head[0], head[1], width);
    }
}

/* As if the client had asked for an invitation and the other server had come with its secret. */
static void connect_peer(struct rg_worker *worker, struct rg_conn *conn)
{
    static const struct rg_client_hello hello = {.purpose = RG_PURPOSE_INTRODUCE, .peer_secret = {1, 2, 3}};
    {
        RG_SCOPED_LOCK(&rg_deferred_of(worker)->lock);
        struct rg_peer *peer = &rg_peers_of(worker)->peers[PEER];
        peer->state = RG_PEER_INVITED;
        memcpy(peer->secret, hello.peer_secret, sizeof peer->secret);
    }
    rg_peers_connect(worker, &hello, conn);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_level(RG_LOG_ERROR);
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    fuzz_conn_nobody_reads(NULL, SIZE_MAX);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session session;
    struct session *s = &session;
    struct rg_reader in = rg_reader_of(data, size);
    const unsigned how = size ? data[0] : 0;
    rg_get(&in, size ? 1 : 0);
    memset(s, 0, sizeof *s);
    s->seq = 1;
    s->silent = how & SILENT;
    fuzz_driver_use(how & 31);
    s->client = fuzz_conn_create(NULL, NULL);
    s->peer = fuzz_conn_create(sent, s);
    struct rg_worker *worker = rg_worker_create(s->client, 1, -1, rg_server_modules);
    CHECK(worker);
    begin(s);
    while (!in.bad && rg_left(&in))
        do_step(s, &in);
    fuzz_conn_push_pause(s->client, PAUSE_US);
    fuzz_conn_finish(s->client);
    connect_peer(worker, s->peer);
    CHECK(rg_worker_start(worker) == RG_OK);
    (void)rg_worker_wait(worker);
    fuzz_driver_end();
    rg_worker_destroy(worker);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

static void put_copy(struct rg_writer *w, unsigned kind, unsigned transfer, unsigned height, uint32_t width)
{
    rg_put(w, &(unsigned char[]){(unsigned char)kind, (unsigned char)transfer, (unsigned char)height}, 3);
    rg_put_u32(w, width);
}

static void put_message(struct rg_writer *w, unsigned type, unsigned transfer, uint32_t offset, uint32_t size,
                        unsigned bulk)
{
    rg_put(w, &(unsigned char[]){MESSAGE, (unsigned char)type, (unsigned char)transfer}, 3);
    rg_put_u32(w, offset);
    rg_put_u32(w, size);
    rg_put(w, &(uint16_t){(uint16_t)bulk}, 2);
}

void fuzz_seeds(void)
{
    unsigned char made[512];
    const unsigned hosts = FUZZ_DRIVER_HOST;
    struct rg_writer w = {made};
    rg_put(&w, &(unsigned char){(unsigned char)hosts}, 1);
    put_copy(&w, RECEIVE, 1, 1, 5u << 20);
    put_copy(&w, SEND, 2, 1, 3u << 20);
    put_message(&w, RG_PEER_ASK, 2, 0, RG_PEER_CHUNK, 0);
    put_message(&w, RG_PEER_ASK, 2, RG_PEER_CHUNK, 1u << 20, 0);
    fuzz_seed("both-ways", made, (size_t)(w.at - made));
    w.at = made;
    rg_put(&w, &(unsigned char){(unsigned char)(hosts | SILENT)}, 1);
    put_message(&w, RG_PEER_ASK, 9, 0, 4096, 0);
    put_message(&w, RG_PEER_FAIL, 8, 0, 0, 0);
    rg_put(&w, &(unsigned char){PAUSE}, 1);
    put_copy(&w, SEND, 9, 1, 4096);
    put_copy(&w, RECEIVE, 8, 2, 2048);
    put_message(&w, RG_PEER_DATA, 8, 0, 4096, 4096);
    fuzz_seed("early", made, (size_t)(w.at - made));
    w.at = made;
    rg_put(&w, &(unsigned char){(unsigned char)(hosts | SILENT)}, 1);
    put_copy(&w, RECEIVE, 1, 1, 8192);
    put_message(&w, RG_PEER_DATA, 1, 0, 4096, 4096);
    put_message(&w, RG_PEER_DATA, 1, 4096, 4096, 4096);
    put_message(&w, RG_PEER_DATA, 1, 8192, 4096, 4096);
    rg_put(&w, &(unsigned char[]){RAW, 3, 0, 1, 2, 3}, 6);
    fuzz_seed("in-parts-and-too-much", made, (size_t)(w.at - made));
    w.at = made;
    rg_put(&w, &(unsigned char){0}, 1);
    put_copy(&w, SEND, 1, 1, 8192);
    put_copy(&w, RECEIVE, 1, 1, 8192);
    fuzz_seed("no-host-functions", made, (size_t)(w.at - made));
}
