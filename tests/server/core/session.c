/*
 * session.c - sessions on a real driver (the software device): order, waits, errors, staging, deferred
 * transfers, clients that vanish. usage: server_session DRIVER
 */
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "generated/server/driver.h"
#include "proto/function_info.h"
#include "proto/graph.h"
#include "proto/times.h"
#include "server/api/module.h"
#include "server/timeline/times.h"
#include "tests/server/raw_client.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1u << 20)

static const uint64_t context = 1ull << 42 | 1ull << 26; /* handle(RG_KIND_CONTEXT, 0) */

/* A client with the primary context of device 0 current in client thread 0 and 1. */
static struct client *begin_in(struct client *c)
{
    const uint64_t proposed = handle(RG_KIND_CONTEXT, 0);
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 0, proposed);
    CHECK(output_u64(c) == proposed);
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", proposed);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", proposed);
    return c;
}

static struct client *begin(void)
{
    return begin_in(client_create());
}

static uint64_t allocate(struct client *c, uint64_t size)
{
    CALL(c, RG_OP_cuMemAlloc_v2, 0, CUDA_SUCCESS, "8", size);
    return output_u64(c);
}

static unsigned char *noise(size_t size, unsigned seed)
{
    unsigned char *data = malloc(size);
    CHECK(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
    return data;
}

static void copy_in(struct client *c, uint64_t to, const unsigned char *data, size_t size, uint64_t stream)
{
    for (size_t at = 0; at < size; at += RG_BULK_MAX) {
        const size_t part = size - at < RG_BULK_MAX ? size - at : RG_BULK_MAX;
        put(c, RG_OP_rgCopyIn, 0, 0, "888848", to + at, part, part, (uint64_t)1, 0, stream);
        send_bulk(c, data + at, part);
    }
}

/* Receives the parts of a deferred read, in order; `first`: the first of them is there. */
static void expect_parts(struct client *c, uint64_t id, const unsigned char *data, size_t size, bool first)
{
    for (size_t at = 0; at < size; first = false) {
        if (!first)
            expect_notice(c, RG_NOTICE_DEFERRED_READ, id);
        CHECK(c->got.notice.type == RG_NOTICE_DEFERRED_READ && c->got.notice.id == id);
        CHECK(c->got.notice.arg[0] == at && c->got.notice.arg[1] == c->got.bulk_size);
        CHECK(memcmp(c->got.bulk, data + at, c->got.bulk_size) == 0);
        at += c->got.bulk_size;
        CHECK(c->got.notice.arg[2] == (at == size));
    }
}

static void expect_deferred_read(struct client *c, uint64_t id, const unsigned char *data, size_t size)
{
    expect_parts(c, id, data, size, false);
}

/*
 * What is at `from` must be `data`. Without a transfer it comes with the reply; with one, what is no more than
 * a message may have comes either way.
 */
static void check_rows_by(struct client *c, uint64_t from, uint64_t pitch, const unsigned char *data,
                          uint64_t width, uint64_t rows, uint64_t stream, uint64_t transfer)
{
    const size_t size = width * rows;
    put(c, RG_OP_rgCopyOut, 0, 5, "888888", from, pitch, width, rows, transfer, stream);
    send_batch(c);
    CHECK(receive(c, 20000));
    if (c->got.kind == RG_MESSAGE_NOTICE) {
        CHECK(transfer);
        expect_parts(c, transfer, data, size, true);
        expect_reply(c, 5, CUDA_SUCCESS);
        CHECK(c->got.bulk_size == 0);
        return;
    }
    CHECK(c->got.kind == RG_MESSAGE_REPLY && c->got.reply.token == 5 && c->got.reply.result == CUDA_SUCCESS);
    CHECK(size <= RG_BULK_MAX && c->got.bulk_size == size && memcmp(c->got.bulk, data, size) == 0);
}

static void check_device_by(struct client *c, uint64_t from, const unsigned char *data, size_t size,
                            uint64_t stream, uint64_t transfer)
{
    check_rows_by(c, from, size, data, size, 1, stream, transfer);
}

static void check_device(struct client *c, uint64_t from, const unsigned char *data, size_t size,
                         uint64_t stream)
{
    check_device_by(c, from, data, size, stream, 999);
    if (size <= RG_BULK_MAX)
        check_device_by(c, from, data, size, stream, 0);
}

static void test_copies(void)
{
    static const size_t sizes[] = {1,       4096,        65536,           65537,
                                   1000003, RG_BULK_MAX, RG_BULK_MAX + 1, 19 * MIB + 5};
    struct client *c = begin();
    const uint64_t memory = allocate(c, 20 * MIB), stream = handle(RG_KIND_STREAM, 3);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, stream);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        RG_CLEANUP_FREE unsigned char *data = noise(sizes[i], (unsigned)i);
        const uint64_t streams[] = {0, 1, 2, stream};
        copy_in(c, memory, data, sizes[i], streams[i % 4]);
        check_device(c, memory, data, sizes[i], streams[i % 4]);
    }
    /* rows: 100 of 3000 bytes, 4096 apart */
    RG_CLEANUP_FREE unsigned char *rows = noise(300000, 9);
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", memory, (uint64_t)4096, (uint64_t)3000, (uint64_t)100, 1,
        (uint64_t)0);
    send_bulk(c, rows, 300000);
    check_device(c, memory + 5 * 4096, rows + 5 * 3000, 3000, 0);
    check_rows_by(c, memory, 4096, rows, 3000, 100, 0, 1);
    check_rows_by(c, memory, 4096, rows, 3000, 100, 0, 0);
    put(c, RG_OP_rgThreadEnd, 0, 0, "");
    send_batch(c);
    CHECK(client_destroy(c) == 0);
}

static void test_waits_do_not_hold_up_others(void)
{
    struct client *c = begin();
    const uint64_t stream = handle(RG_KIND_STREAM, 4), event = handle(RG_KIND_EVENT, 5);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, stream);
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, event);
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)41, 0, stream);
    put(c, RG_OP_cuEventRecord, 0, 0, "88", event, stream);
    put(c, RG_OP_cuStreamSynchronize, 0, 1, "8", stream);
    put(c, RG_OP_cuEventSynchronize, 1, 2, "8", event);
    put(c, RG_OP_cuMemGetInfo_v2, 2, 0, ""); /* no context: a failure that the next reply carries */
    put(c, RG_OP_rgThreadSetContext, 2, 0, "8", context);
    put(c, RG_OP_cuMemGetInfo_v2, 2, 3, "");
    send_batch(c);
    for (int i = 0; i < 2; i++) { /* in either order */
        CHECK(receive(c, 20000));
        if (c->got.kind == RG_MESSAGE_NOTICE)
            CHECK(c->got.notice.type == RG_NOTICE_HOST_CALL && c->got.notice.id == 41);
        else
            CHECK(c->got.reply.token == 3 && c->got.reply.result == CUDA_SUCCESS &&
                  c->got.reply.async_result == CUDA_ERROR_INVALID_CONTEXT &&
                  c->got.reply.async_op == RG_OP_cuMemGetInfo_v2);
    }
    expect_nothing(c);
    /* the reader takes batches while two threads wait */
    CALL(c, RG_OP_cuMemGetInfo_v2, 2, CUDA_SUCCESS, "");
    send_answer(c, RG_ANSWER_HOST_DONE, 41, 0, NULL, 0);
    bool first = false, second = false;
    for (int i = 0; i < 2; i++) {
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result == CUDA_SUCCESS);
        first |= c->got.reply.token == 1;
        second |= c->got.reply.token == 2;
    }
    CHECK(first && second);
    CHECK(client_destroy(c) == 0);
}

/* Records that block the dispatcher until an answer comes, with more behind them. */
static void test_answers_are_read_while_blocked(void)
{
    struct client *c = begin();
    const uint64_t memory = allocate(c, MIB);
    for (uint64_t id = 1; id <= 20; id++) {
        put(c, RG_OP_rgHostCall, 0, 0, "848", id, (uint32_t)(id % 2), (uint64_t)0);
        put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", memory, (uint32_t)id, (uint64_t)MIB);
    }
    put(c, RG_OP_cuMemFree_v2, 0, 0, "8", memory); /* waits for the work */
    put(c, RG_OP_cuMemGetInfo_v2, 0, 8, "");
    send_batch(c);
    put(c, RG_OP_cuMemGetInfo_v2, 1, 9, "");
    send_batch(c);
    for (uint64_t id = 1; id <= 20; id++) {
        expect_notice(c, RG_NOTICE_HOST_CALL, id);
        send_answer(c, RG_ANSWER_HOST_DONE, id, 0, NULL, 0);
    }
    expect_reply(c, 8, CUDA_SUCCESS);
    expect_reply(c, 9, CUDA_SUCCESS);
    CHECK(client_destroy(c) == 0);
}

static void test_failures_that_nobody_waits_for(void)
{
    struct client *c = begin();
    send_batch(c);
    put(c, RG_OP_cuMemFree_v2, 0, 0, "8", (uint64_t)0x1234);
    put(c, RG_OP_cuStreamQuery, 0, 0, "8", handle(RG_KIND_STREAM, 77));
    send_batch(c);
    expect_notice(c, RG_NOTICE_ERROR, 0); /* the first one, since no call waits */
    CHECK(c->got.notice.arg[0] == CUDA_ERROR_INVALID_VALUE && c->got.notice.arg[1] == RG_OP_cuMemFree_v2);
    expect_nothing(c);
    put(c, RG_OP_cuStreamQuery, 0, 0, "8", handle(RG_KIND_STREAM, 77));
    put(c, RG_OP_cuStreamSynchronize, 0, 4, "8", (uint64_t)0);
    put(c, RG_OP_cuStreamSynchronize, 0, 5, "8", (uint64_t)0);
    send_batch(c);
    expect_reply(c, 4, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == CUDA_ERROR_INVALID_HANDLE &&
          c->got.reply.async_op == RG_OP_cuStreamQuery);
    expect_reply(c, 5, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == 0);
    CHECK(client_destroy(c) == 0);
}

/* More copies than the pinned memory takes, behind work that only the client can let go on. */
static void test_staging_under_load(void)
{
    enum { COPIES = 30, PART = RG_BULK_MAX };
    struct client *c = begin();
    const uint64_t memory = allocate(c, (uint64_t)COPIES * PART);
    RG_CLEANUP_FREE unsigned char *data = noise((size_t)COPIES * PART, 3);
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1, 0, (uint64_t)0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_HOST_CALL, 1);
    /* mem holds 8 MiB: all of this is only sent if the worker reads on although it cannot go on */
    copy_in(c, memory, data, (size_t)COPIES * PART, 0);
    put(c, RG_OP_cuMemGetInfo_v2, 0, 9, "");
    send_batch(c);
    send_answer(c, RG_ANSWER_HOST_DONE, 1, 0, NULL, 0);
    expect_reply(c, 9, CUDA_SUCCESS);
    check_device(c, memory, data, (size_t)COPIES * PART, 0);
    CHECK(client_destroy(c) == 0);
}

/* Answers pulls until nothing more comes but the reply of `token`. */
static void serve_pulls(struct client *c, uint64_t id, const unsigned char *data, uint32_t token)
{
    for (;;) {
        CHECK(receive(c, 20000));
        if (c->got.kind == RG_MESSAGE_REPLY)
            break;
        CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_RENDEZVOUS &&
              c->got.notice.id == id);
        const size_t offset = c->got.notice.arg[0], size = c->got.notice.arg[1], half = size / 2;
        CHECK(size && size <= RG_BULK_MAX);
        if (half) /* in two parts, as rows may need */
            send_answer(c, RG_ANSWER_DATA, id, offset, data + offset, half);
        send_answer(c, RG_ANSWER_DATA, id, offset + half, data + offset + half, size - half);
    }
    CHECK(c->got.reply.token == token && c->got.reply.result == CUDA_SUCCESS &&
          c->got.reply.async_result == 0);
}

static void test_late_copies(void)
{
    static const size_t sizes[] = {10, 3 * MIB + 1, 23 * MIB};
    struct client *c = begin();
    const uint64_t memory = allocate(c, 32 * MIB), stream = handle(RG_KIND_STREAM, 6);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    for (uint64_t i = 0; i < 6; i++) {
        const size_t size = sizes[i % 3];
        const uint64_t where = i < 3 ? stream : 2;
        RG_CLEANUP_FREE unsigned char *data = noise(size, (unsigned)i);
        put(c, RG_OP_rgCopyInDeferred, 0, 0, "888888", memory, size, size, (uint64_t)1, 100 + i, where);
        put(c, RG_OP_cuStreamSynchronize, 0, 1, "8", where);
        send_batch(c);
        serve_pulls(c, 100 + i, data, 1);
        put(c, RG_OP_rgCopyOutDeferred, 0, 0, "888888", memory, size, size, (uint64_t)1, 200 + i, where);
        put(c, RG_OP_cuStreamSynchronize, 0, 2, "8", where);
        send_batch(c);
        expect_deferred_read(c, 200 + i, data, size);
        expect_reply(c, 2, CUDA_SUCCESS);
        CHECK(c->got.reply.async_result == 0);
    }
    /* a transfer that cannot be: the client is told that it is over */
    put(c, RG_OP_rgCopyInDeferred, 0, 0, "888888", memory + 31 * MIB, (uint64_t)2 * MIB, (uint64_t)2 * MIB,
        (uint64_t)1, (uint64_t)300, stream);
    put(c, RG_OP_rgCopyOutDeferred, 0, 0, "888888", (uint64_t)64, (uint64_t)100, (uint64_t)100, (uint64_t)1,
        (uint64_t)301, stream);
    put(c, RG_OP_cuStreamSynchronize, 0, 3, "8", stream);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 300);
    CHECK(c->got.notice.arg[0] == 2 * MIB && c->got.notice.arg[1] == 0);
    expect_notice(c, RG_NOTICE_DEFERRED_READ, 301);
    CHECK(c->got.notice.arg[1] == 0 && c->got.notice.arg[2] == 1);
    expect_reply(c, 3, CUDA_SUCCESS);
    CHECK(c->got.reply.async_result == CUDA_ERROR_INVALID_VALUE);
    CHECK(client_destroy(c) == 0);
}

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry put(.param .u64 to, .param .u32 value)\n{\n"
                          ".reg .u64 %rd<2>; .reg .u32 %r<2>;\n"
                          "ld.param.u64 %rd1, [to];\nld.param.u32 %r1, [value];\n"
                          "cvta.to.global.u64 %rd1, %rd1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

static void send_image(struct client *c, uint64_t id, const char *text, size_t size)
{
    const size_t half = size / 2;
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, size, (uint64_t)0, half);
    send_bulk(c, text, half);
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, size, half, size - half);
    send_bulk(c, text + half, size - half);
}

static void test_modules(void)
{
    struct client *c = begin();
    const uint64_t memory = allocate(c, 64), module = handle(RG_KIND_MODULE, 8),
                   function = handle(RG_KIND_FUNCTION, 9);
    send_image(c, 1, ptx, sizeof ptx - 1); /* without its NUL */
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_SUCCESS, "8488888", (uint64_t)1, 0, (uint64_t)1000, (uint64_t)1000,
         module, (uint64_t)0, (uint64_t)0);
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_ERROR_NOT_FOUND, "88s", function, module, "none");
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_SUCCESS, "88s", function, module, "put");
    struct rg_function_info info;
    struct rg_param_info params[2];
    CHECK(c->got.output_size == sizeof info + sizeof params);
    memcpy(&info, c->got.output, sizeof info);
    memcpy(params, c->got.output + sizeof info, sizeof params);
    CHECK(info.n_params == 2 && params[0].offset == 0 && params[0].size == 8 && params[1].offset == 8 &&
          params[1].size == 4);
    struct {
        uint64_t to;
        uint32_t value;
    } __attribute__((packed)) arguments = {memory, 0xabcd};
    put(c, RG_OP_rgLaunch, 0, 0, "844444444848b8", function, 1, 1, 1, 1, 1, 1, 0, 0,
        (uint64_t)sizeof arguments, 0, (uint64_t)0, &arguments, sizeof arguments, (uint64_t)0);
    check_device(c, memory, (const unsigned char *)"\xcd\xab\0\0", 4, 0);
    CALL(c, RG_OP_rgModuleEnumerate, 0, CUDA_SUCCESS, "4488", 0, 0, module, (uint64_t)0);
    /* nothing that looks like a module */
    send_image(c, 2,
               "\x7f"
               "ELF and then nothing of the kind",
               30);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_ERROR_INVALID_IMAGE, "8488888", (uint64_t)2, 0, (uint64_t)0,
         (uint64_t)0, handle(RG_KIND_MODULE, 10), (uint64_t)0, (uint64_t)0);
    /* an error of the compiler's comes with its log */
    send_image(c, 3, ".version 8.0\n.target sm_80\n.address_size 64\nnonsense\n", 54);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_ERROR_INVALID_PTX, "8488888", (uint64_t)3, 0, (uint64_t)0,
         (uint64_t)1000, handle(RG_KIND_MODULE, 10), (uint64_t)0, (uint64_t)0);
    CHECK(output_u64(c) == 0 && c->got.output_size > 16 + 10);
    put(c, RG_OP_cuModuleUnload, 0, 0, "8", module);
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_ERROR_INVALID_HANDLE, "88s", function, module, "put");
    CHECK(client_destroy(c) == 0);
}

static const char described[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                ".visible .global .align 4 .u32 number = 5;\n"
                                ".visible .entry first(.param .u64 to, .param .u8 value)\n{\nret;\n}\n"
                                ".visible .entry second()\n{\nret;\n}\n";

/* One function of a description. */
static void expect_function(struct rg_reader *in, const char *name, unsigned taken, unsigned n_params)
{
    struct rg_function_info info;
    CHECK(rg_get_u32(in) == 1);
    const char *found = rg_get_string(in, RG_NAME_MAX);
    CHECK(found && strcmp(found, name) == 0 && rg_get_u32(in) == taken);
    rg_get_into(in, &info, sizeof info);
    CHECK(info.n_params == n_params && rg_get(in, n_params * sizeof(struct rg_param_info)));
}

static void expect_description(struct rg_reader *in, unsigned taken, bool variable)
{
    expect_function(in, "first", taken, 2);
    expect_function(in, "second", taken, 0);
    CHECK(rg_get_u32(in) == 0);
    if (variable) {
        CHECK(rg_get_u32(in) == 1);
        const char *name = rg_get_string(in, RG_NAME_MAX);
        CHECK(name && strcmp(name, "number") == 0);
        CHECK(rg_get_u64(in) != 0 && rg_get_u64(in) == 4 && rg_get_u64(in) == 0 && rg_get_u64(in) == 0);
    }
    CHECK(rg_get_u32(in) == 0 && !in->bad);
}

static struct rg_reader output_of(const struct client *c)
{
    return rg_reader_of(c->got.output, c->got.output_size);
}

/* Images that nobody has asked for, and what is in modules and libraries. */
static void test_image_prefetch(void)
{
    static const char vast[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .b8 vast[9000000];\n";
    struct client *c = begin();
    const uint64_t library = handle(RG_KIND_LIBRARY, 8), module = handle(RG_KIND_MODULE, 9),
                   other = handle(RG_KIND_LIBRARY, 10);
    send_image(c, 1, described, sizeof described);
    CALL(c, RG_OP_rgImagePrefetch, 0, CUDA_SUCCESS, "88", (uint64_t)1, library);
    struct rg_reader in = output_of(c);
    CHECK(rg_get_u32(&in) == CUDA_SUCCESS);
    expect_description(&in, 1, true);
    CHECK(rg_get_u32(&in) == CUDA_SUCCESS);
    expect_description(&in, 0, true);
    CHECK(rg_left(&in) == 0);
    CALL(c, RG_OP_rgLibraryDescribe, 0, CUDA_SUCCESS, "8", library);
    in = output_of(c);
    expect_description(&in, 1, false);
    CALL(c, RG_OP_rgModuleTake, 0, CUDA_SUCCESS, "88", module, library);
    CALL(c, RG_OP_rgModuleDescribe, 0, CUDA_SUCCESS, "8", module);
    in = output_of(c);
    expect_description(&in, 0, false);
    /* what is not loaded: one that is not there, no module, too much memory, once it has taken long */
    for (uint64_t image = 2; image < 6; image++) {
        if (image == 3)
            send_image(c, image,
                       "\x7f"
                       "ELF and then nothing of the kind",
                       30);
        if (image == 4)
            send_image(c, image, vast, sizeof vast);
        if (image == 5) {
            ((struct rg_image_prefetch *)c->worker->state[RG_MODULE_DESCRIBE])->ns = UINT64_MAX / 2;
            send_image(c, image, described, sizeof described);
        }
        CALL(c, RG_OP_rgImagePrefetch, 0, CUDA_SUCCESS, "88", image, other);
        in = output_of(c);
        CHECK(rg_get_u32(&in) == UINT32_MAX && rg_left(&in) == 0);
        CALL(c, RG_OP_rgLibraryDescribe, 0, CUDA_ERROR_INVALID_HANDLE, "8", other);
        CALL(c, RG_OP_rgImagePrefetch, 0, CUDA_SUCCESS, "88", image, other); /* and its bytes are gone */
    }
    /* what the compiler does not take says so */
    ((struct rg_image_prefetch *)c->worker->state[RG_MODULE_DESCRIBE])->ns = 0;
    send_image(c, 6, ".version 8.0\n.target sm_80\n.address_size 64\nnonsense\n", 54);
    CALL(c, RG_OP_rgImagePrefetch, 0, CUDA_SUCCESS, "88", (uint64_t)6, other);
    in = output_of(c);
    CHECK(rg_get_u32(&in) == CUDA_ERROR_INVALID_PTX && rg_left(&in) == 0);
    put(c, RG_OP_cuLibraryUnload, 0, 0, "8", library);
    CALL(c, RG_OP_rgModuleDescribe, 0, CUDA_ERROR_INVALID_HANDLE, "8", module); /* it went with its library */
    CHECK(client_destroy(c) == 0);
}

/*
 * A graph with a condition: what is not one ends nothing but the call or, where the bytes are wrong, the
 * session.
 */
static size_t describe_graph(unsigned char *out, uint64_t memory, unsigned initial)
{
    struct rg_writer w = {out};
    rg_put_u32(&w, 1); /* conditions */
    rg_put_u64(&w, 0x1234);
    rg_put_u32(&w, initial);
    rg_put_u32(&w, CU_GRAPH_COND_ASSIGN_DEFAULT);
    rg_put_u32(&w, 2); /* steps */
    rg_put_u32(&w, RG_GRAPH_WIRE_NOTHING);
    rg_put_u32(&w, 0);
    rg_put_u32(&w, RG_GRAPH_WIRE_CONDITIONAL);
    rg_put_u32(&w, 1); /* behind one, the first */
    rg_put_u32(&w, 0);
    rg_put_u64(&w, 0x1234);
    rg_put_u32(&w, CU_GRAPH_COND_TYPE_SWITCH);
    rg_put_u32(&w, 2); /* bodies */
    for (unsigned body = 0; body < 2; body++) {
        rg_put_u32(&w, 1);
        rg_put_u32(&w, RG_GRAPH_WIRE_FILL);
        rg_put_u32(&w, 0);
        rg_put_u64(&w, memory);
        rg_put_u64(&w, 0);
        rg_put_u64(&w, 1);
        rg_put_u64(&w, 1);
        rg_put_u32(&w, 0x50 + body);
        rg_put_u32(&w, 4);
    }
    return (size_t)(w.at - out);
}

static void test_graphs(void)
{
    unsigned char bytes[1024];
    struct client *c = begin();
    const uint64_t memory = allocate(c, 64), graph = handle(RG_KIND_GRAPH, 30);
    for (unsigned initial = 0; initial < 2; initial++) {
        const size_t size = describe_graph(bytes, memory, initial);
        send_image(c, 1, (const char *)bytes, size);
        CALL(c, RG_OP_rgGraphMake, 0, CUDA_SUCCESS, "848", (uint64_t)1, 0, graph + (uint64_t)initial * 16);
        put(c, RG_OP_rgGraphRun, 0, 0, "88", graph + (uint64_t)initial * 16, (uint64_t)0);
        check_device(c, memory,
                     initial ? (const unsigned char *)"\x51\0\0\0" : (const unsigned char *)"\x50\0\0\0", 4,
                     0);
        put(c, RG_OP_rgGraphDrop, 0, 0, "8", graph + (uint64_t)initial * 16);
        CALL(c, RG_OP_rgGraphRun, 0, CUDA_ERROR_INVALID_HANDLE, "88", graph + (uint64_t)initial * 16,
             (uint64_t)0);
    }
    CALL(c, RG_OP_rgGraphMake, 0, CUDA_ERROR_INVALID_VALUE, "848", (uint64_t)77, 0, graph); /* not sent */
    CHECK(client_destroy(c) == 0);
    /* Every byte that can be wrong, once: the worker must end well, whatever it does. */
    const size_t size = describe_graph(bytes, memory, 1);
    for (size_t at = 0; at < size; at += 4) {
        c = begin();
        describe_graph(bytes, allocate(c, 64), 1);
        memset(bytes + at, 0xee, 4);
        send_image(c, 1, (const char *)bytes, size);
        put(c, RG_OP_rgGraphMake, 0, 9, "848", (uint64_t)1, 0, graph);
        send_batch(c);
        do
            CHECK(receive(c, 5000));
        while (c->got.kind != RG_MESSAGE_REPLY && c->got.kind != RG_MESSAGE_CONTROL);
        const int expected = c->got.kind == RG_MESSAGE_CONTROL; /* told what it violated */
        CHECK(client_destroy(c) == expected);
    }
}

/* Contexts come and go with what is in them; handles of what is gone are known as such. */
static void test_contexts_end(void)
{
    struct client *c = begin();
    const uint64_t own = handle(RG_KIND_CONTEXT, 20), stream = handle(RG_KIND_STREAM, 21);
    for (int i = 0; i < 3; i++) {
        const uint64_t other = rg_handle_make(RG_KIND_CONTEXT, 20, (unsigned)i + 1);
        CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_SUCCESS, "448", 0, 0, other);
        put(c, RG_OP_rgThreadSetContext, 0, 0, "8", other);
        put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, rg_handle_make(RG_KIND_STREAM, 21, (unsigned)i + 1));
        const uint64_t memory = allocate(c, 16 * MIB);
        RG_CLEANUP_FREE unsigned char *data = noise(8 * MIB, 1);
        copy_in(c, memory, data, 8 * MIB, 2);
        put(c, RG_OP_cuMemsetD8Async, 0, 0, "8488", memory + 8 * MIB, 7, (uint64_t)8 * MIB,
            rg_handle_make(RG_KIND_STREAM, 21, (unsigned)i + 1));
        CALL(c, RG_OP_cuCtxDestroy_v2, 0, CUDA_SUCCESS, "8", other);
        CHECK(c->got.reply.async_result == 0);
        CALL(c, RG_OP_cuStreamSynchronize, 0, CUDA_ERROR_INVALID_HANDLE, "8",
             rg_handle_make(RG_KIND_STREAM, 21, (unsigned)i + 1));
        CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_ERROR_CONTEXT_IS_DESTROYED, "");
    }
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", context);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    CALL(c, RG_OP_cuCtxDestroy_v2, 0, CUDA_ERROR_INVALID_CONTEXT, "8", own);
    (void)stream;
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, 0, "4", 0);
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_CONTEXT, 30));
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", output_u64(c));
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    CHECK(client_destroy(c) == 0);
}

/* The client goes away while everything at once is under way. */
static void test_client_vanishes(void)
{
    RG_CLEANUP_FREE unsigned char *data = noise(RG_BULK_MAX, 3);
    for (int i = 0; i < 8; i++) {
        struct client *c = begin();
        const uint64_t memory = allocate(c, 96 * MIB), other = memory + 32 * MIB;
        const uint64_t a = handle(RG_KIND_STREAM, 5), b = handle(RG_KIND_STREAM, 6);
        put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, a);
        put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, b);
        if (i & 1)
            put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1, 0, a);
        put(c, RG_OP_rgCopyInDeferred, 0, 0, "888888", memory, (uint64_t)16 * MIB, (uint64_t)16 * MIB,
            (uint64_t)1, (uint64_t)2, a);
        if (i & 2)
            put(c, RG_OP_rgCopyOutDeferred, 0, 0, "888888", other, (uint64_t)64 * MIB, (uint64_t)64 * MIB,
                (uint64_t)1, (uint64_t)3, b);
        put(c, RG_OP_cuStreamSynchronize, 1, 1, "8", a);
        put(c, RG_OP_cuStreamSynchronize, 2, 2, "8", b);
        put(c, RG_OP_rgCopyOut, 3, 3, "888888", other, (uint64_t)64 * MIB, (uint64_t)64 * MIB, (uint64_t)1,
            (uint64_t)4, b);
        put(c, RG_OP_rgCopyIn, 0, 0, "888848", memory, (uint64_t)RG_BULK_MAX, (uint64_t)RG_BULK_MAX,
            (uint64_t)1, 0, a);
        send_bulk(c, data, RG_BULK_MAX);
        if (i & 4) {
            put(c, RG_OP_cuMemFree_v2, 0, 0, "8", memory);
            send_batch(c);
        }
        const struct timespec moment = {.tv_nsec = i * 1000000};
        nanosleep(&moment, NULL);
        (void)client_destroy(c);
    }
}

/* The server ends the session: the client is told why. */
static void test_end_from_outside(void)
{
    struct client *c = begin();
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1, 0, (uint64_t)0);
    put(c, RG_OP_cuCtxSynchronize, 0, 1, "");
    send_batch(c);
    expect_notice(c, RG_NOTICE_HOST_CALL, 1);
    rg_worker_end(c->worker, 0, "the server is shutting down");
    CHECK(receive(c, 1000) && c->got.kind == RG_MESSAGE_CONTROL);
    CHECK(strcmp((char *)c->got.output, "the server is shutting down") == 0);
    CHECK(!receive(c, 1000));
    CHECK(client_destroy(c) == 0);
}

/* Fetches times until `n` have come; the worker need not have finished the last records yet. */
static void fetch_times(struct client *c, struct rg_time *times, size_t n)
{
    size_t have = 0;
    for (uint64_t id = 1; have < n; id++) {
        send_answer(c, RG_ANSWER_TIMES, id, 0, NULL, 0);
        expect_notice(c, RG_NOTICE_TIMES, id);
        const size_t more = c->got.notice.arg[0];
        CHECK(c->got.bulk_size == more * sizeof *times && more <= n - have && c->got.notice.arg[1] == 0);
        memcpy(times + have, c->got.bulk, c->got.bulk_size);
        have += more;
        CHECK(id < 100000);
    }
}

/* Times are in order, of every record, and know when the device was done. */
static void test_times(void)
{
    enum { SIZE = 100000, BEFORE = 4, N = BEFORE + 5 };
    struct client *c = client_create();
    rg_times_start(c->worker);
    begin_in(c);
    const uint64_t memory = allocate(c, SIZE);
    RG_CLEANUP_FREE unsigned char *data = noise(SIZE, 4);
    struct rg_time times[N];
    copy_in(c, memory, data, SIZE, 0);
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1, 0, (uint64_t)0); /* the stream waits for the client */
    put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", memory, (uint32_t)7, (uint64_t)SIZE);
    put(c, RG_OP_cuCtxSynchronize, 0, 9, "");
    put(c, RG_OP_cuMemGetInfo_v2, 1, 10, "");
    send_batch(c);
    for (int i = 0; i < 2; i++) { /* in either order */
        CHECK(receive(c, 20000));
        CHECK(c->got.kind == RG_MESSAGE_REPLY ? c->got.reply.token == 10
                                              : c->got.notice.type == RG_NOTICE_HOST_CALL);
    }
    usleep(20000);
    send_answer(c, RG_ANSWER_HOST_DONE, 1, 0, NULL, 0);
    expect_reply(c, 9, CUDA_SUCCESS);
    fetch_times(c, times, N);
    const struct rg_time *by_seq_all[N] = {NULL}, **by_seq = by_seq_all + BEFORE;
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < N; i++)
        first = times[i].seq < first ? times[i].seq : first;
    for (size_t i = 0; i < N; i++) {
        CHECK(times[i].seq < first + N && !by_seq_all[times[i].seq - first]);
        by_seq_all[times[i].seq - first] = &times[i];
        CHECK(times[i].begin <= times[i].served && times[i].result == CUDA_SUCCESS);
    }
    CHECK(by_seq[0]->op == RG_OP_rgCopyIn && by_seq[2]->op == RG_OP_cuMemsetD8_v2);
    for (size_t i = 0; i < 3; i++)
        CHECK((by_seq[i]->flags & RG_TIME_WORK) && (by_seq[i]->flags & RG_TIME_END) && !by_seq[i]->reply);
    CHECK(by_seq[1]->end <= by_seq[2]->end && by_seq[1]->end >= by_seq[1]->begin + 20000000);
    const struct rg_time *wait = by_seq[3];
    CHECK((wait->flags & RG_TIME_YIELDED) && wait->reply >= wait->served + 10000000);
    CHECK(wait->sent >= wait->reply && by_seq[4]->reply && by_seq[4]->reply < wait->reply);
    send_answer(c, RG_ANSWER_TIMES, 200000, 1, NULL, 0);
    expect_notice(c, RG_NOTICE_TIMES, 200000);
    CHECK(c->got.notice.arg[0] == 0 && c->got.notice.arg[2] == 0);
    CHECK(client_destroy(c) == 0);
}

static atomic_uint queries;
static CUresult (*query)(CUevent event);

static CUresult count_query(CUevent event)
{
    atomic_fetch_add(&queries, 1);
    return query(event);
}

/* While the session is suspended nobody calls the driver to answer: who wants all times waits, others get what is known. */
static void test_times_while_suspended(void)
{
    struct client *c = client_create();
    rg_times_start(c->worker);
    begin_in(c);
    const uint64_t memory = allocate(c, 1000);
    put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", memory, (uint32_t)7, (uint64_t)1000);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    while (!rg_device_close(c->worker))
        usleep(1000);
    query = rg_driver.cuEventQuery;
    rg_driver.cuEventQuery = count_query;
    send_answer(c, RG_ANSWER_TIMES, 1, 0, NULL, 0);
    expect_notice(c, RG_NOTICE_TIMES, 1);
    send_answer(c, RG_ANSWER_TIMES, 2, 1, NULL, 0);
    while (!rg_device_wanted(&c->worker->device_gate))
        usleep(1000);
    CHECK(atomic_load(&queries) == 0);
    rg_device_open(c->worker);
    expect_notice(c, RG_NOTICE_TIMES, 2);
    CHECK(atomic_load(&queries) > 0 && !rg_device_wanted(&c->worker->device_gate));
    const struct rg_time *times = (const struct rg_time *)c->got.bulk;
    CHECK(c->got.notice.arg[0] > 0 && c->got.bulk_size == c->got.notice.arg[0] * sizeof *times);
    for (size_t i = 0; i < c->got.notice.arg[0]; i++)
        CHECK(!(times[i].flags & RG_TIME_WORK) || (times[i].flags & RG_TIME_END));
    CHECK(client_destroy(c) == 0);
    rg_driver.cuEventQuery = query;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    load_driver(argv[1]);
#define RUN(test) fprintf(stderr, "%s\n", #test), test()
    RUN(test_copies);
    RUN(test_waits_do_not_hold_up_others);
    RUN(test_answers_are_read_while_blocked);
    RUN(test_failures_that_nobody_waits_for);
    RUN(test_staging_under_load);
    RUN(test_late_copies);
    RUN(test_modules);
    RUN(test_image_prefetch);
    RUN(test_graphs);
    RUN(test_contexts_end);
    RUN(test_times);
    RUN(test_times_while_suspended);
    RUN(test_client_vanishes);
    RUN(test_end_from_outside);
    return 0;
}
