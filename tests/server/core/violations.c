/*
 * violations.c - what a client must not send, on a driver that does nothing: each ends the session with a
 * reason and nothing else.
 */
#include "common/base/log.h"
#include "generated/proto/nccl.h"
#include "proto/delta.h"
#include "server/images/image.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>
#include <time.h>

/* --- a driver that does nothing ------------------------------------------------------------------------- */

static CUresult launch_host(CUstream stream, CUhostFn function, void *user)
{
    (void)stream, (void)function, (void)user; /* the stream never gets there */
    return CUDA_SUCCESS;
}

static void use_driver(CUresult (*all)(void))
{
    stub_driver_use(all);
    rg_driver.cuLaunchHostFunc = launch_host;
}

/* --- single violations ---------------------------------------------------------------------------------- */

static const uint64_t stream = 2ull << 42 | 1ull << 26 | 7 << 4; /* handle(RG_KIND_STREAM, 7) */

static struct client *begin(void)
{
    struct client *c = client_create();
    enter_context(c);
    return c;
}

/* Sends one record with its header changed. */
static struct client *with_header(unsigned op, uint32_t size, unsigned flags, uint32_t thread)
{
    struct client *c = client_create();
    put(c, RG_OP_rgThreadEnd, 0, 0, "88", (uint64_t)0, (uint64_t)0);
    struct rg_record record = {.size = size, .op = (uint16_t)op, .flags = (uint16_t)flags, .thread = thread};
    memcpy(c->batch + sizeof(struct rg_message_header), &record, sizeof record);
    send_batch(c);
    return c;
}

/* Sends one message with its header changed. */
static struct client *with_message(unsigned kind, unsigned version, uint32_t count, uint64_t seq, size_t size)
{
    struct client *c = client_create();
    unsigned char data[256] = {0};
    struct rg_message_header header = {
        .kind = (uint16_t)kind, .version = (uint16_t)version, .count = count, .seq = seq};
    memcpy(data, &header, sizeof header);
    CHECK(send_raw(c, data, size, NULL, 0));
    return c;
}

static void test_headers(void)
{
    expect_violation(with_header(RG_OP_rgThreadEnd, 8, 0, 0), "impossible size");
    expect_violation(with_header(RG_OP_rgThreadEnd, 20, 0, 0), "impossible size");
    expect_violation(with_header(RG_OP_rgThreadEnd, 40, 0, 0), "impossible size");
    expect_violation(with_header(RG_OP_rgThreadEnd, 0xfffffff8u, 0, 0), "impossible size");
    expect_violation(with_header(RG_OP_rgThreadEnd, 16, 0, 0), "behind its last record");
    expect_violation(with_header(RG_OP_rgThreadEnd, 32, 0, 0), "too many bytes");
    expect_violation(with_header(RG_OP_cuMemFree_v2, 32, 0, 0), "too many bytes");
    expect_violation(with_header(RG_OP_rgCopyIn, 32, 0, 0), "too few bytes");
    expect_violation(with_header(0, 32, 0, 0), "unknown operation");
    expect_violation(with_header(RG_OP_COUNT, 32, 0, 0), "unknown operation");
    expect_violation(with_header(0xffff, 32, 0, 0), "unknown operation");
    expect_violation(with_header(RG_OP_rgThreadEnd, 32, 2, 0), "flags");
    expect_violation(with_header(RG_OP_rgThreadEnd, 32, RG_RECORD_AWAITED, 0), "has no answer");
    expect_violation(with_header(RG_OP_rgThreadEnd, 32, 0, RG_CLIENT_THREADS_MAX), "thread");
    expect_violation(with_message(RG_MESSAGE_BATCH, 1, 1, 2, 40), "out of sequence");
    expect_violation(with_message(RG_MESSAGE_BATCH, 1, 0, 1, 24), "without records");
    expect_violation(with_message(RG_MESSAGE_BATCH, 1, 3, 1, 24), "fewer records");
    expect_violation(with_message(RG_MESSAGE_BATCH, 2, 1, 1, 40), "version");
    expect_violation(with_message(RG_MESSAGE_REPLY, 1, 1, 1, 64), "unknown kind");
    expect_violation(with_message(99, 1, 1, 1, 64), "unknown kind");
    expect_violation(with_message(RG_MESSAGE_BATCH, 1, 1, 1, 23), "without a header");
    expect_violation(with_message(RG_MESSAGE_ANSWER, 1, 1, 1, 24), "answer");
    expect_violation(with_message(RG_MESSAGE_ANSWER, 1, 1, 1, 64), "answer");
}

/* Records that refer to others (proto/delta.h), which the tests of that file try in depth. */
static void test_references(void)
{
    struct client *c = client_create();
    unsigned char encoded[512];
    struct rg_delta *delta = rg_delta_create();
    CHECK(delta);
    struct rg_message_header header = {
        .kind = RG_MESSAGE_DELTA, .version = RG_PROTOCOL_MAJOR, .count = 2, .seq = 1};
    const size_t head = sizeof header;
    put(c, RG_OP_cuDevicePrimaryCtxRetain, 0, 1, "48", 0, handle(RG_KIND_CONTEXT, 0));
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 0));
    memcpy(encoded, &header, head);
    size_t size = rg_delta_encode(delta, c->batch + head, c->used - head, encoded + head);
    CHECK(send_raw(c, encoded, head + size, NULL, 0));
    expect_reply(c, 1, CUDA_SUCCESS);

    /* the second of them once more, with one of those before its first */
    c->used = head;
    c->count = 0;
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 0));
    put(c, RG_OP_cuCtxSynchronize, 0, 2, "");
    header.seq = 3;
    memcpy(encoded, &header, head);
    size = rg_delta_encode(delta, c->batch + head, c->used - head, encoded + head);
    CHECK(size < c->used - head);
    CHECK(send_raw(c, encoded, head + size, NULL, 0));
    expect_reply(c, 2, CUDA_SUCCESS);
    rg_delta_destroy(delta);

    header = (struct rg_message_header){RG_MESSAGE_DELTA, RG_PROTOCOL_MAJOR, 1, 5, 0};
    memcpy(encoded, &header, head);
    memcpy(encoded + head, "\x10\1\x7f", 3); /* 127 records back */
    CHECK(send_raw(c, encoded, head + 3, NULL, 0));
    expect_violation(c, "not there");
    expect_violation(with_message(RG_MESSAGE_DELTA, 1, 1, 1, 24), "not there");
    expect_violation(with_message(RG_MESSAGE_DELTA, 1, 0, 1, 24), "without records");
}

static void test_parameters(void)
{
    struct client *c = begin();
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    send_batch(c);
    expect_violation(c, "in use");

    c = begin();
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, handle(RG_KIND_EVENT, 7));
    send_batch(c);
    expect_violation(c, "kind");

    c = begin(); /* something else as a thread's current context */
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", stream);
    put(c, RG_OP_cuCtxSynchronize, 1, 1, "");
    send_batch(c);
    expect_violation(c, "no context");

    c = begin(); /* a second handle for a context */
    put(c, RG_OP_rgPrimaryTake, 0, 0, "48", 0, handle(RG_KIND_CONTEXT, 1));
    send_batch(c);
    expect_violation(c, "has a handle");

    c = begin(); /* bulk data for an operation that takes none */
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 0, stream);
    send_bulk(c, "abc", 3);
    expect_violation(c, "bulk data");

    c = begin(); /* more data than the copy says */
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)4096, (uint64_t)2, (uint64_t)2, (uint64_t)1, 0,
        (uint64_t)0);
    send_bulk(c, "abc", 3);
    expect_violation(c, "rgCopyIn");

    c = begin(); /* less */
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)4096, (uint64_t)9, (uint64_t)9, (uint64_t)1, 0,
        (uint64_t)0);
    send_bulk(c, "abc", 3);
    expect_violation(c, "rgCopyIn");

    c = begin(); /* rows whose size overflows */
    put(c, RG_OP_rgCopyOut, 0, 1, "888888", (uint64_t)4096, 1ull << 33, 1ull << 33, 1ull << 33, (uint64_t)0,
        (uint64_t)0);
    send_batch(c);
    expect_reply(c, 1, CUDA_ERROR_INVALID_VALUE); /* a program's mistake, that no memory has */
    CHECK(client_destroy(c) == 0);

    c = begin(); /* an array shorter than its count */
    put(c, RG_OP_cuMemPoolSetAccess, 0, 1, "888", (uint64_t)2, (uint64_t)0, (uint64_t)1);
    send_batch(c);
    expect_violation(c, "cuMemPoolSetAccess");

    c = begin(); /* an array longer than the record */
    put(c, RG_OP_cuMemPoolSetAccess, 0, 1, "888", 1ull << 60, (uint64_t)0, 1ull << 60);
    send_batch(c);
    expect_violation(c, "cuMemPoolSetAccess");

    c = begin(); /* text without an end */
    put(c, RG_OP_rgModuleGetFunction, 0, 1, "88b", handle(RG_KIND_FUNCTION, 1), (uint64_t)0, "abcd",
        (size_t)4);
    send_batch(c);
    expect_violation(c, "rgModuleGetFunction");

    c = begin(); /* outputs beyond the limit */
    put(c, RG_OP_rgDeviceAttributes, 0, 1, "444", 0, 0, 0xffffffffu);
    send_batch(c);
    expect_violation(c, "rgDeviceAttributes");

    c = begin(); /* a description of another length */
    put(c, RG_OP_rgTensorMapEncode, 0, 1, "488", 1u, (uint64_t)1, (uint64_t)0);
    send_batch(c);
    expect_violation(c, "tensor map");

    c = begin(); /* images */
    put(c, RG_OP_rgImageData, 0, 0, "8888", (uint64_t)1, RG_IMAGE_MAX + 1, (uint64_t)0, (uint64_t)3);
    send_bulk(c, "abc", 3);
    expect_violation(c, "image");
    c = begin();
    put(c, RG_OP_rgImageData, 0, 0, "8888", (uint64_t)1, (uint64_t)9, (uint64_t)0, (uint64_t)3);
    send_bulk(c, "abc", 3);
    put(c, RG_OP_rgImageData, 0, 0, "8888", (uint64_t)1, (uint64_t)9, (uint64_t)2, (uint64_t)3);
    send_bulk(c, "abc", 3);
    expect_violation(c, "image");

    c = begin(); /* very many of them */
    for (uint64_t id = 1; id <= RG_IMAGES_MAX + 1; id++) {
        put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)2, (uint64_t)0, (uint64_t)0);
        if (id % 1000 == 0)
            send_batch(c);
    }
    send_batch(c);
    expect_violation(c, "waiting to be loaded");

    c = begin(); /* a transfer's number that is taken */
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)5, 0, (uint64_t)0);
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)5, 0, (uint64_t)0);
    send_batch(c);
    expect_violation(c, "in use");

    c = begin(); /* an answer before it was asked for */
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)5, 0, (uint64_t)0);
    send_batch(c);
    send_answer(c, RG_ANSWER_HOST_DONE, 5, 0, NULL, 0);
    expect_violation(c, "answer");

    c = begin();
    put(c, RG_OP_rgCopyInDeferred, 0, 0, "888888", (uint64_t)4096, (uint64_t)64, (uint64_t)64, (uint64_t)1,
        (uint64_t)5, (uint64_t)0);
    send_batch(c);
    send_answer(c, RG_ANSWER_DATA, 5, 0, "abc", 3);
    expect_violation(c, "answer");

    c = begin(); /* times, in a session whose hello has not asked for them */
    send_answer(c, RG_ANSWER_TIMES, 1, 1, NULL, 0);
    expect_violation(c, "answer");

    c = client_create_with(true, NULL);
    send_answer(c, RG_ANSWER_TIMES, 1, 2, NULL, 0);
    expect_violation(c, "answer");

    c = client_create_with(true, NULL);
    send_answer(c, RG_ANSWER_TIMES, 1, 1, "abc", 3);
    expect_violation(c, "answer");
}

static CUresult destroy_nothing(CUstream s)
{
    (void)s;
    return CUDA_ERROR_UNKNOWN;
}
static CUresult release_nothing(CUdevice device)
{
    (void)device;
    return CUDA_ERROR_UNKNOWN;
}

/*
 * The place of an object that more goes with is its own until a record has ended it, whatever the driver says
 * to that.
 */
static void test_places(void)
{
    static const enum rg_kind kinds[] = {RG_KIND_CONTEXT, RG_KIND_STREAM, RG_KIND_EVENT};
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct client *c = begin();
        CALL(c, RG_OP_cuCtxCreate_v2, 0, CUDA_SUCCESS, "448", 0, 0, handle(RG_KIND_CONTEXT, 5));
        put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 5));
        if (kinds[i] != RG_KIND_CONTEXT)
            CALL(c, kinds[i] == RG_KIND_STREAM ? RG_OP_cuStreamCreate : RG_OP_cuEventCreate, 0, CUDA_SUCCESS,
                 "48", 0, handle(kinds[i], 7));
        put(c, RG_OP_cuEventCreate, 0, 0, "48", 0,
            rg_handle_make(RG_KIND_EVENT, kinds[i] == RG_KIND_CONTEXT ? 5 : 7, 2));
        send_batch(c);
        expect_violation(c, "in use");
    }

    struct client *c = begin(); /* a pool is no more than its name here */
    put(c, RG_OP_cuMemPoolCreate, 0, 0, "888888888888", handle(RG_KIND_POOL, 7), (uint64_t)0, (uint64_t)0,
        (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0,
        (uint64_t)0, (uint64_t)0);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, rg_handle_make(RG_KIND_EVENT, 7, 2));
    CHECK(client_destroy(c) == 0);

    c = begin(); /* the client has given up a stream that the driver does not destroy */
    rg_driver.cuStreamDestroy_v2 = destroy_nothing;
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, stream);
    CALL(c, RG_OP_cuStreamDestroy_v2, 0, CUDA_ERROR_UNKNOWN, "8", stream);
    CALL(c, RG_OP_cuStreamDestroy_v2, 0, CUDA_ERROR_INVALID_HANDLE, "8", stream);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, rg_handle_make(RG_KIND_EVENT, 7, 2));
    CALL(c, RG_OP_cuEventDestroy_v2, 0, CUDA_ERROR_INVALID_HANDLE, "8",
         handle(RG_KIND_CONTEXT, 0)); /* of another kind, which stays */
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");

    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 8)); /* or a context */
    rg_driver.cuDevicePrimaryCtxRelease_v2 = release_nothing;
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_ERROR_UNKNOWN, "4", 0);
    CALL(c, RG_OP_cuStreamQuery, 0, CUDA_ERROR_INVALID_HANDLE, "8", handle(RG_KIND_STREAM, 8));
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, rg_handle_make(RG_KIND_EVENT, 8, 2));
    CHECK(client_destroy(c) == 0);
    use_driver(stub_succeed);
}

static void name_image(struct client *c, uint64_t id, uint64_t size, uint64_t transfer)
{
    static const unsigned char digest[32] = {1, 2, 3};
    put(c, RG_OP_rgImageNamed, 0, 0, "888b", id, size, transfer, digest, sizeof digest);
}

/* A session in which the worker has asked for image 1, of 9 bytes. */
static struct client *begin_asked(void)
{
    struct client *c = begin();
    name_image(c, 1, 9, 5);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    return c;
}

/* Images by a digest, which are asked for as pulls are. */
static void test_named_images(void)
{
    struct client *c = begin();
    name_image(c, 1, RG_IMAGE_MAX + 1, 5);
    send_batch(c);
    expect_violation(c, "image");

    c = begin();
    name_image(c, 1, 9, 5);
    name_image(c, 1, 9, 6);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    expect_violation(c, "there already");

    c = begin_asked(); /* data beside what is asked for */
    put(c, RG_OP_rgImageData, 0, 0, "8888", (uint64_t)1, (uint64_t)9, (uint64_t)0, (uint64_t)3);
    send_bulk(c, "abc", 3);
    expect_violation(c, "image");

    c = begin_asked(); /* more than was asked for, out of order, and nothing at all */
    send_answer(c, RG_ANSWER_DATA, 5, 0, "0123456789", 10);
    expect_violation(c, "answer");
    c = begin_asked();
    send_answer(c, RG_ANSWER_DATA, 5, 3, "012", 3);
    expect_violation(c, "answer");
    c = begin_asked();
    send_answer(c, RG_ANSWER_DATA, 5, 0, "012345678", 9);
    send_answer(c, RG_ANSWER_DATA, 5, 0, "012345678", 9);
    expect_violation(c, "answer");

    /* Bytes that have another digest are nobody's image; the session goes on. So it does without any. */
    c = begin_asked();
    put(c, RG_OP_rgModuleLoad, 0, 77, "8488888", (uint64_t)1, 0, (uint64_t)0, (uint64_t)0,
        handle(RG_KIND_MODULE, 3), (uint64_t)0, (uint64_t)0);
    send_batch(c);
    send_answer(c, RG_ANSWER_DATA, 5, 0, "0123", 4);
    send_answer(c, RG_ANSWER_DATA, 5, 4, "45678", 5);
    expect_reply(c, 77, CUDA_ERROR_INVALID_IMAGE);
    name_image(c, 2, 9, 0);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_ERROR_INVALID_IMAGE, "8488888", (uint64_t)2, 0, (uint64_t)0,
         (uint64_t)0, handle(RG_KIND_MODULE, 3), (uint64_t)0, (uint64_t)0);
    name_image(c, 3, 9, 6); /* the client goes while it is waited for */
    put(c, RG_OP_rgModuleLoad, 0, 78, "8488888", (uint64_t)3, 0, (uint64_t)0, (uint64_t)0,
        handle(RG_KIND_MODULE, 3), (uint64_t)0, (uint64_t)0);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 6);
    CHECK(client_destroy(c) == 0);
}

/* Memory that host and device address: what travels outside the records. */
static void test_unified(void)
{
    const uint64_t context = handle(RG_KIND_CONTEXT, 0);
    struct client *c = begin();
    const uint64_t runs[] = {4096, 1 << 20, 0}; /* a run that is longer than what follows */
    CALL(c, RG_OP_rgUnifiedOpen, 0, CUDA_SUCCESS, "");
    send_answer(c, RG_ANSWER_MANAGED_IN, context, 0, runs, sizeof runs);
    expect_violation(c, "answer");

    c = begin();
    CALL(c, RG_OP_rgUnifiedOpen, 0, CUDA_SUCCESS, "");
    send_answer(c, RG_ANSWER_MANAGED_IN, context, 0, runs, 15); /* half a head */
    expect_violation(c, "answer");

    c = begin(); /* a question of no bytes */
    send_answer(c, RG_ANSWER_MANAGED_OUT, 1, 4096, NULL, 0);
    expect_violation(c, "answer");

    c = begin(); /* not whole pages */
    put(c, RG_OP_rgHostMap, 0, 0, "88", (uint64_t)0x300000000010, (uint64_t)4096);
    send_batch(c);
    expect_violation(c, "rgHostMap");

    c = begin(); /* beyond the end of addresses */
    put(c, RG_OP_rgHostMap, 0, 0, "88", UINT64_MAX - 4095, (uint64_t)8192);
    send_batch(c);
    expect_violation(c, "rgHostMap");
}

static CUresult never(CUstream s)
{
    (void)s;
    const struct timespec moment = {.tv_nsec = 300000000};
    nanosleep(&moment, NULL);
    return CUDA_SUCCESS;
}

/* One thread of the client's cannot be in two calls. */
static void test_two_calls_of_a_lane(void)
{
    struct client *c = begin();
    atomic_store(&stub_busy, true);
    rg_driver.cuStreamSynchronize = never;
    put(c, RG_OP_cuStreamSynchronize, 0, 1, "8", (uint64_t)0);
    put(c, RG_OP_cuStreamSynchronize, 0, 2, "8", (uint64_t)0);
    send_batch(c);
    expect_violation(c, "still in another call");
    atomic_store(&stub_busy, false);
    use_driver(stub_succeed);
}

/* Operators of NCCL's whose scalar is of no known place or type: the library is not asked, whichever the communicator. */
static void test_nccl_scalars(void)
{
    static const unsigned wrong[][2] = {
        {ncclFloat32, 2}, {ncclFloat32, ~0u}, {ncclNumTypes, 0}, {1000, 1}, {~0u, 1}};
    struct client *c = begin();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CALL(c, RG_OP_rgNcclOperator, 0, CUDA_SUCCESS, "8448", (uint64_t)0, wrong[i][0], wrong[i][1],
             (uint64_t)1);
        CHECK((int)(output_u64(c) >> 32) == ncclInvalidArgument);
    }
    CALL(c, RG_OP_rgNcclOperator, 0, CUDA_ERROR_INVALID_HANDLE, "8448", (uint64_t)0, ncclFloat32,
         ncclScalarHostImmediate, (uint64_t)1);
    CHECK(client_destroy(c) == 0);
}

int main(void)
{
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    use_driver(stub_succeed);
    test_headers();
    test_references();
    test_parameters();
    test_places();
    test_named_images();
    test_unified();
    test_two_calls_of_a_lane();
    test_nccl_scalars();
    return 0;
}
