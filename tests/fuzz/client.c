/*
 * client.c - the client's receiving side, and the calls that wait for it, against a hostile server.
 *
 * One session is made of a connection of the fuzzer's own, and lives as long as the process; an input is what the
 * program calls and what the server says meanwhile. Memory of the program's is exactly as large as a call says, and is
 * freed when the session has ended: what is written later, whatever the server sends, is found by a sanitizer.
 *
 * The input: u8 n, n calls (u8 which, u8 size), then what the server sends, one item after another: u8 kind (modulo
 * ITEMS), u8 flags, u16 bytes of bulk data (times 16 with flag LARGE), and
 *   REPLY   to the oldest call that waits: i32 result, u16 size, outputs
 *   NOTICE  u8 type, 3 numbers; its id is one that the client has sent (flag: KNOWN), or a number more
 *   RAW     u16 size, a message of these bytes
 * When there is no more, calls are answered with success and zeros.
 */
#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/modules.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <stdlib.h>

enum { REPLY, NOTICE, RAW, ITEMS };
enum { KNOWN = 1, LARGE = 2, FAILS = 4 };
enum { TOKENS = 64, NUMBERS = 16, CALLS = 6, MESSAGE_MAX = 8192, BULK_MAX = 1 << 20 };

/*
 * What the client keeps for as long as a program runs is no leak: names of functions that a module had, which others may still
 * hold. Read by the address sanitizer.
 */
FUZZ_EXPORT const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* --- the server ---------------------------------------------------------------------------------------------- */

static struct {
    struct rg_conn head;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_reader script; /* what it is still to say */
    bool over;
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
    const size_t there = size % MESSAGE_MAX < rg_left(in) ? size % MESSAGE_MAX : rg_left(in);
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
    if (in->bad || rg_left(in) < 4)
        return false;
    rg_get_into(in, head, sizeof head);
    rg_get_into(in, &bulk_size, sizeof bulk_size);
    *bulk = (size_t)bulk_size << (head[1] & LARGE ? 4 : 0);
    *bulk = *bulk < BULK_MAX ? *bulk : BULK_MAX;
    if (head[0] % ITEMS == REPLY) {
        const int32_t result = (int32_t)rg_get_u32(in);
        const size_t size = get_sized(in, &bytes);
        put_reply(w, head[1] & FAILS ? result : 0, bytes, (uint32_t)size);
    } else if (head[0] % ITEMS == NOTICE) {
        struct rg_notice notice = {0};
        unsigned char type;
        rg_get_into(in, &type, 1);
        notice.type = type;
        for (unsigned i = 0; i < 3; i++)
            notice.arg[i] = rg_get_u64(in);
        const uint64_t id = rg_get_u64(in);
        notice.id = head[1] & KNOWN ? server.numbers[id % NUMBERS] : id;
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
    static unsigned char made[2 * MESSAGE_MAX];
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

/* --- the program --------------------------------------------------------------------------------------------- */

static CUcontext context;
static CUstream stream;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct rg_control hello;
    static unsigned char packed[RG_MESSAGE_MAX];
    static struct rg_device_info device = {.name = "a device", .compute_major = 9, .memory_total = 1u << 30};
    void *data;
    size_t size;
    (void)argc, (void)argv;
    setenv("REMOTE_GPU_SERVER", "scripted://server", 1);
    setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED", "1", 1);
    setenv("REMOTE_GPU_TRANSPORT", "tcp", 1);
    setenv("REMOTE_GPU_CACHE", "off", 1);
    setenv("REMOTE_GPU_CONNECTIONS", "0", 1);
    rg_log_set_level(RG_LOG_ERROR);
    pthread_mutex_init(&server.lock, NULL);
    rg_cond_init(&server.changed);
    rg_transport_register(&server_ops);
    rg_modules_register();
    rg_server_hello_init(&hello);
    hello.server_hello.n_devices = 1;
    hello.server_hello.devices = &device;
    hello.server_hello.driver.version = 12090;
    memcpy(hello.server_hello.api_digest, rg_api_digest, sizeof rg_api_digest);
    CHECK(rg_control_pack(&hello, &data, &size) == RG_OK && size < MESSAGE_MAX);
    struct rg_writer w = {packed};
    rg_put(&w, &(unsigned char[]){RAW, 0, 0, 0}, 4);
    rg_put(&w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(&w, data, size);
    free(data);
    server.script = rg_reader_of(packed, (size_t)(w.at - packed));
    CHECK(cuInit(0) == CUDA_SUCCESS);
    CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    return 0;
}

static void CUDA_CB host_function(void *user)
{
    (void)user;
}

static const CUdeviceptr there = 0x700000000000;

static void call(unsigned which, unsigned size, unsigned char *memory)
{
    size_t a, b;
    CUevent event;
    CUdeviceptr allocated;
    CUmodule module;
    CUfunction function;
    int value;
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = there,
                                .srcPitch = 64,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = memory,
                                .dstPitch = size / 4,
                                .WidthInBytes = size / 8,
                                .Height = 4};
    switch (which % 14) {
    case 0:
        (void)cuMemGetInfo_v2(&a, &b);
        break;
    case 1:
        (void)cuMemcpyDtoH_v2(memory, there, size);
        break;
    case 2:
        (void)cuMemcpyDtoHAsync_v2(memory, there, size, stream);
        break;
    case 3:
        (void)cuMemcpyHtoD_v2(there, memory, size);
        break;
    case 4:
        (void)cuMemcpyHtoDAsync_v2(there, memory, size, stream);
        break;
    case 5:
        if (cuEventCreate(&event, 0) == CUDA_SUCCESS) {
            (void)cuEventRecord(event, stream);
            (void)cuEventQuery(event);
            (void)cuEventDestroy_v2(event);
        }
        break;
    case 6:
        (void)cuLaunchHostFunc(stream, host_function, NULL);
        break;
    case 7:
        if (cuMemAlloc_v2(&allocated, size) == CUDA_SUCCESS)
            (void)cuMemFree_v2(allocated);
        break;
    case 8:
        if (cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n.address_size 64\n") == CUDA_SUCCESS) {
            (void)cuModuleGetFunction(&function, module, "name");
            (void)cuModuleGetGlobal_v2(&allocated, &a, module, "variable");
            (void)cuModuleUnload(module);
        }
        break;
    case 9:
        (void)cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there);
        break;
    case 10:
        if (size >= 32)
            (void)cuMemcpy2D_v2(&rows);
        break;
    case 11:
        (void)cuStreamQuery(stream);
        break;
    case 12:
        (void)cuStreamSynchronize(stream);
        break;
    default:
        (void)cuCtxSynchronize();
    }
}

/* The session that has ended begins again, as if nothing had been. */
static void revive(void)
{
    struct rg_session *session = &rg_sessions[0];
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context);
    pthread_mutex_lock(&server.lock);
    server.n_tokens = 0;
    server.over = false;
    server.head.bulk_left = 0;
    pthread_mutex_unlock(&server.lock);
    atomic_store(&rg_contexts_suspect, false);
    if (shadow)
        atomic_store(&shadow->context.sticky, CUDA_SUCCESS);
    atomic_store(&session->latched, CUDA_SUCCESS);
    atomic_store(&session->over, false);
    atomic_store(&session->ended, CUDA_SUCCESS);
    atomic_store(&rg_sessions_ended, CUDA_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *memory[CALLS] = {NULL};
    struct rg_reader in = rg_reader_of(data, size);
    unsigned char head[2], n;
    rg_get_into(&in, &n, 1);
    n = n % CALLS + 1;
    unsigned char calls[CALLS][2];
    for (unsigned i = 0; i < n; i++) {
        rg_get_into(&in, head, sizeof head);
        memcpy(calls[i], head, sizeof head);
    }
    revive();
    pthread_mutex_lock(&server.lock);
    server.script = in;
    pthread_mutex_unlock(&server.lock);
    for (unsigned i = 0; i < n; i++) {
        /* 1 byte to 130 KB: inline, eager and rendezvous. */
        const unsigned bytes = 1 + calls[i][1] * (calls[i][0] & 128 ? 512u : 1u);
        memory[i] = calloc(1, bytes);
        CHECK(memory[i]);
        call(calls[i][0] & 127, bytes, memory[i]);
    }
    rg_session_end(&rg_sessions[0], CUDA_ERROR_DEVICE_UNAVAILABLE, "the input has ended");
    pthread_mutex_lock(&server.lock);
    server.script = rg_reader_of(data, 0);
    pthread_mutex_unlock(&server.lock);
    for (unsigned i = 0; i < n; i++)
        free(memory[i]);
    return 0;
}

/* --- seeds --------------------------------------------------------------------------------------------------- */

static struct rg_writer w;

static void reply(unsigned bulk, unsigned size)
{
    rg_put(&w, &(unsigned char[]){REPLY, 0}, 2);
    rg_put(&w, &(uint16_t){(uint16_t)bulk}, 2);
    rg_put_u32(&w, 0);
    rg_put(&w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(&w, zeros, size);
}

static void notice(unsigned type, unsigned bulk, uint64_t a, uint64_t b, uint64_t id)
{
    rg_put(&w, &(unsigned char[]){NOTICE, KNOWN}, 2);
    rg_put(&w, &(uint16_t){(uint16_t)bulk}, 2);
    rg_put(&w, &(unsigned char){(unsigned char)type}, 1);
    rg_put_u64(&w, a);
    rg_put_u64(&w, b);
    rg_put_u64(&w, 0);
    rg_put_u64(&w, id);
}

void fuzz_seeds(void)
{
    unsigned char seed[1024];
    for (unsigned which = 0; which < 14; which++) {
        char name[32];
        w.at = seed;
        rg_put(&w, &(unsigned char[]){1, (unsigned char)(which | (which % 2 ? 128 : 0)), 100, 12, 0}, 5);
        notice(RG_NOTICE_DEFERRED_READ, 101, 0, 101, which);
        reply(which == 1 ? 100 : 0, 64);
        notice(RG_NOTICE_RENDEZVOUS, 0, 0, 100, which);
        reply(0, 32);
        snprintf(name, sizeof name, "call-%u", which);
        fuzz_seed(name, seed, (size_t)(w.at - seed));
    }
}
