/* raw_client.c - see raw_client.h. */
#include "tests/server/raw_client.h"
#include "tests/server/put_parameters.h"
#include "transport/connect/connect.h"

#include "generated/server/driver.h"
#include "proto/codec.h"
#include "server/modules.h"
#include "server/timeline/times.h"
#include "transport/control.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

void load_driver(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    rg_driver_resolve(library);
    CHECK(rg_driver.cuInit(0) == CUDA_SUCCESS);
}

struct rg_conn *connect_here(bool bulk, struct rg_conn **theirs)
{
    static int number;
    char name[64];
    snprintf(name, sizeof name, "mem:worker-test-%d", number++);
    const struct rg_transport_options options = {.filters = "", .bulk = bulk};
    struct rg_listener *listener;
    struct rg_conn *ours;
    CHECK(rg_transport_listen(name, &options, NULL, 0, &listener) == RG_OK);
    CHECK(rg_transport_connect(name, &options, NULL, 0, &ours) == RG_OK);
    CHECK(rg_listener_accept(listener, 1000, theirs) == RG_OK);
    rg_listener_destroy(listener);
    return ours;
}

struct client *client_create_with(bool timed, void (*change)(struct rg_transport_ops *ops))
{
    struct rg_conn *theirs;
    struct client *c = calloc(1, sizeof *c);
    CHECK(c);
    c->conn = connect_here(false, &theirs);
    c->ops = *theirs->ops;
    if (change)
        change(&c->ops);
    theirs->ops = &c->ops;
    c->worker = rg_worker_create(theirs, 1, -1, rg_server_modules);
    CHECK(c->worker);
    if (timed)
        rg_times_start(c->worker);
    CHECK(rg_worker_start(c->worker) == RG_OK);
    c->seq = 1;
    c->used = sizeof(struct rg_message_header);
    return c;
}

struct client *client_create(void)
{
    return client_create_with(false, NULL);
}

void enter_context(struct client *c)
{
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_CONTEXT, 0));
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 0));
}

int client_destroy(struct client *c)
{
    return client_destroy_behind(c, NULL);
}

int client_destroy_behind(struct client *c, void (*device_is_done)(void))
{
    rg_conn_destroy(c->conn);
    const int code = rg_worker_wait(c->worker);
    if (device_is_done)
        device_is_done();
    rg_worker_destroy(c->worker);
    free(c->got.output);
    free(c->got.bulk);
    free(c);
    return code;
}

void put(struct client *c, unsigned op, uint32_t thread, uint32_t token, const char *format, ...)
{
    struct rg_writer w = {c->batch + c->used + sizeof(struct rg_record)};
    va_list arguments;
    va_start(arguments, format);
    put_parameters(&w, format, arguments);
    va_end(arguments);
    unsigned char *start = c->batch + c->used;
    while ((w.at - start) % 8)
        *w.at++ = 0;
    struct rg_record record = {
        .size = (uint32_t)(w.at - start), .op = (uint16_t)op, .thread = thread, .token = token};
    memcpy(start, &record, sizeof record);
    c->last = c->used;
    c->used += record.size;
    c->count++;
}

void await(struct client *c)
{
    memcpy(c->batch + c->last + offsetof(struct rg_record, flags), &(uint16_t){RG_RECORD_AWAITED},
           sizeof(uint16_t));
}

void send_bulk(struct client *c, const void *bulk, size_t size)
{
    struct rg_message_header header = {
        .kind = RG_MESSAGE_BATCH, .version = RG_PROTOCOL_MAJOR, .count = c->count, .seq = c->seq};
    memcpy(c->batch, &header, sizeof header);
    CHECK(send_raw(c, c->batch, c->used, bulk, size));
    c->seq += c->count;
    c->count = 0;
    c->used = sizeof header;
}

void send_batch(struct client *c)
{
    send_bulk(c, NULL, 0);
}

bool send_raw(struct client *c, const void *data, size_t size, const void *bulk, size_t bulk_size)
{
    struct iovec part = {(void *)(uintptr_t)data, size}, bulk_part = {(void *)(uintptr_t)bulk, bulk_size};
    return rg_conn_send(c->conn,
                        &(struct rg_send){
                            .msg = &part, .n_msg = 1, .bulk = &bulk_part, .n_bulk = bulk_size ? 1 : 0}) ==
           RG_OK;
}

void send_answer(struct client *c, uint32_t type, uint64_t id, uint64_t offset, const void *bulk, size_t size)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1},
                 {.type = type, .id = id, .arg = {offset, size}}};
    CHECK(send_raw(c, &message, sizeof message, bulk, size));
}

bool receive(struct client *c, int timeout_ms)
{
    struct rg_message message;
    struct rg_message_header header;
    free(c->got.output);
    free(c->got.bulk);
    memset(&c->got, 0, sizeof c->got);
    if (rg_conn_recv(c->conn, timeout_ms, &message) != RG_OK)
        return false;
    struct rg_reader in = rg_reader_of(message.data, message.size);
    rg_get_into(&in, &header, sizeof header);
    c->got.kind = header.kind;
    if (header.kind == RG_MESSAGE_REPLY)
        rg_get_into(&in, &c->got.reply, sizeof c->got.reply);
    else if (header.kind == RG_MESSAGE_NOTICE)
        rg_get_into(&in, &c->got.notice, sizeof c->got.notice);
    CHECK(!in.bad);
    if (header.kind == RG_MESSAGE_CONTROL) {
        struct rg_control control;
        CHECK(rg_control_unpack(message.data, message.size, &control) == RG_OK);
        CHECK(control.kind == RG_CONTROL_SESSION_END);
        c->got.output = (unsigned char *)strdup(control.session_end.reason);
        c->got.output_size = strlen(control.session_end.reason);
        rg_control_fini(&control);
    } else {
        c->got.output_size = rg_left(&in);
        c->got.output = malloc(c->got.output_size + 1);
        rg_get_into(&in, c->got.output, c->got.output_size);
        c->got.output[c->got.output_size] = 0;
    }
    c->got.bulk_size = message.bulk_size;
    c->got.bulk = malloc(message.bulk_size + 1);
    CHECK(rg_conn_recv_bulk(c->conn, c->got.bulk, message.bulk_size) == RG_OK);
    return true;
}

void expect_reply(struct client *c, uint32_t token, int result)
{
    CHECK(receive(c, 20000));
    if (c->got.kind == RG_MESSAGE_CONTROL)
        fprintf(stderr, "the session ended: %s\n", c->got.output);
    CHECK(c->got.kind == RG_MESSAGE_REPLY);
    if (c->got.reply.result != result)
        fprintf(stderr, "result %d where %d was expected\n", c->got.reply.result, result);
    CHECK(c->got.reply.token == token && c->got.reply.result == result);
    CHECK(c->got.reply.size == c->got.output_size);
}

void expect_notice(struct client *c, uint32_t type, uint64_t id)
{
    CHECK(receive(c, 20000));
    if (c->got.kind == RG_MESSAGE_CONTROL)
        fprintf(stderr, "the session ended: %s\n", c->got.output);
    CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == type && c->got.notice.id == id);
}

void expect_violation(struct client *c, const char *word)
{
    do
        CHECK(receive(c, 5000));
    while (c->got.kind != RG_MESSAGE_CONTROL);
    const char *said = (const char *)c->got.output;
    if (!strstr(said, "protocol violation") || !strstr(said, word)) {
        fprintf(stderr, "'%s' does not say '%s'\n", said, word);
        _exit(1);
    }
    CHECK(!receive(c, 5000));
    CHECK(client_destroy(c) == 1);
}

void expect_nothing(struct client *c)
{
    CHECK(!receive(c, 50));
    CHECK(!rg_worker_over(c->worker));
}

uint64_t output_u64(const struct client *c)
{
    uint64_t value;
    CHECK(c->got.output_size >= sizeof value);
    memcpy(&value, c->got.output, sizeof value);
    return value;
}
