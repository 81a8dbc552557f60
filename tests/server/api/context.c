/*
 * context.c - several contexts in a session, and what is under way when one of them ends: transfers that the
 * client is still to answer, data that is being sent, calls that wait. Over a driver of the test's own, whose
 * contexts fail when the test says so. Meant for the address sanitizer.
 */
#include "common/base/tuning.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define SIZE (100u << 10) /* of a copy through pinned memory */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* --- the driver: objects know their context ------------------------------------------------------------- */

enum { OBJECTS = 256 };
static __thread CUcontext current;
static struct {
    const void *object;
    CUcontext context;
} objects[OBJECTS]; /* the lock */
static unsigned n_objects;

static void know(const void *object)
{
    pthread_mutex_lock(&lock);
    CHECK(n_objects < OBJECTS);
    objects[n_objects].object = object;
    objects[n_objects++].context = current;
    pthread_mutex_unlock(&lock);
}

static CUcontext context_of(const void *object)
{
    CUcontext found = object ? NULL : current; /* the legacy stream */
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_objects; i++)
        found = objects[i].object == object ? objects[i].context : found;
    pthread_mutex_unlock(&lock);
    return found;
}

static CUresult (*make_stream)(CUstream *stream, unsigned flags),
    (*make_event)(CUevent *event, unsigned flags);

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}
static CUresult stream_create(CUstream *stream, unsigned flags)
{
    CHECK(make_stream(stream, flags) == CUDA_SUCCESS);
    know(*stream);
    return CUDA_SUCCESS;
}
static CUresult event_create(CUevent *event, unsigned flags)
{
    CHECK(make_event(event, flags) == CUDA_SUCCESS);
    know(*event);
    return CUDA_SUCCESS;
}
static CUresult event_record(CUevent event, CUstream stream)
{
    return atomic_load(&stub_failed)                 ? CUDA_ERROR_ILLEGAL_ADDRESS
           : context_of(event) == context_of(stream) ? CUDA_SUCCESS
                                                     : CUDA_ERROR_INVALID_HANDLE;
}
static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    stub_pass();
    return CUDA_SUCCESS;
}
static CUresult synchronize(void)
{
    stub_pass();
    return atomic_load(&stub_failed) ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static const void *copied[8]; /* where the copies to the device were from; the dispatcher's */
static unsigned n_copied;

static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)to, (void)size, (void)stream;
    copied[n_copied++ % 8] = from;
    return CUDA_SUCCESS;
}
static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)from, (void)stream;
    memset(to, 0x5a, size);
    return CUDA_SUCCESS;
}
/* What was freed is not there any more, for nobody. */
static CUresult host_alloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    unsigned char *start =
        mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    memcpy(start, &size, sizeof size);
    *memory = start + PAGE;
    return CUDA_SUCCESS;
}
static CUresult host_free(void *memory)
{
    unsigned char *start = (unsigned char *)memory - PAGE;
    size_t size;
    memcpy(&size, start, sizeof size);
    CHECK(munmap(start, size + PAGE) == 0);
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    make_stream = rg_driver.cuStreamCreate;
    make_event = rg_driver.cuEventCreate;
    rg_driver.cuCtxSetCurrent = set_current;
    rg_driver.cuStreamCreate = stream_create;
    rg_driver.cuEventCreate = event_create;
    rg_driver.cuEventRecord = event_record;
    rg_driver.cuCtxSynchronize = synchronize;
    rg_driver.cuStreamSynchronize = stream_synchronize;
    stub_driver_call_host();
    rg_driver.cuMemcpyHtoDAsync_v2 = copy_in;
    rg_driver.cuMemcpyDtoHAsync_v2 = copy_out;
    rg_driver.cuMemHostAlloc = host_alloc;
    rg_driver.cuMemFreeHost = host_free;
}

/* --- the session ---------------------------------------------------------------------------------------- */

static const uint64_t address = 0x10000;
static unsigned char data[4u << 20];

/* Context 0 with stream 7 is current. */
static struct client *begin_on(void (*change)(struct rg_transport_ops *ops))
{
    struct client *c = client_create_with(false, change);
    atomic_store(&stub_failed, false);
    atomic_store(&stub_busy, false);
    n_objects = n_copied = 0;
    enter_context(c);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    return c;
}

static struct client *begin(void)
{
    return begin_on(NULL);
}

static void end(struct client *c)
{
    CALL(c, RG_OP_cuMemGetInfo_v2, 3, CUDA_SUCCESS, ""); /* it goes on */
    stub_driver_wait();
    CHECK(client_destroy(c) == 0);
}

/* The second device's context, 1, with stream 8. */
static void add_context(struct client *c)
{
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 1, handle(RG_KIND_CONTEXT, 1));
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 1));
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 8));
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 0));
    send_batch(c);
}

static void put_late(struct client *c, unsigned op, uint64_t transfer, size_t size, uint64_t stream)
{
    put(c, op, 0, 0, "888888", address, (uint64_t)size, (uint64_t)size, (uint64_t)1, transfer, stream);
}

/*
 * Copies in a stream of another context than the current one: their buffers are kept until that stream has
 * taken them.
 */
static void test_streams_of_others(void)
{
    struct client *c = begin();
    add_context(c);
    atomic_store(&stub_busy, true);
    for (int i = 0; i < 2; i++) {
        put(c, RG_OP_rgCopyIn, 0, 0, "888848", address, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1, 0,
            handle(RG_KIND_STREAM, 8));
        send_bulk(c, data, SIZE);
    }
    CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_SUCCESS, "");
    CHECK(n_copied == 2 && copied[0] != copied[1]);
    atomic_store(&stub_busy, false);
    CALL(c, RG_OP_rgCopyOut, 0, CUDA_SUCCESS, "888888", address, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1,
         (uint64_t)0, handle(RG_KIND_STREAM, 8));
    CHECK(c->got.bulk_size == SIZE);

    /* A stream keeps buffers for deferred transfers; they go with its context and no other. */
    for (uint64_t transfer = 5; transfer < 7; transfer++) {
        put_late(c, RG_OP_rgCopyInDeferred, transfer, SIZE, handle(RG_KIND_STREAM, 8));
        send_batch(c);
        expect_notice(c, RG_NOTICE_RENDEZVOUS, transfer);
        send_answer(c, RG_ANSWER_DATA, transfer, 0, data, SIZE);
        if (transfer == 5) {
            CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
            put(c, RG_OP_rgThreadSetContext, 0, 0, "8", handle(RG_KIND_CONTEXT, 1));
        }
    }
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 1);
    end(c);
}

static bool advertises;
static enum rg_status advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    (void)conn, (void)tag, (void)base, (void)memory, (void)size;
    return advertises ? RG_OK : RG_ERR_UNSUPPORTED;
}

static void lend_or_not(struct rg_transport_ops *ops)
{
    ops->advertise = advertise;
}

/*
 * A context fails and ends while the client is asked for data: it may answer, in parts, and the data goes
 * nowhere.
 */
static void test_pull_into_nothing(void)
{
    struct client *c = begin_on(lend_or_not);
    put_late(c, RG_OP_rgCopyInDeferred, 5, SIZE, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    send_answer(c, RG_ANSWER_DATA, 5, 0, data, SIZE / 2);
    atomic_store(&stub_failed, true);
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    send_answer(c, RG_ANSWER_DATA, 5, SIZE / 2, data, SIZE / 2);
    end(c);

    advertises = true; /* where its device may be at the buffer, the context ends when that is done */
    c = begin_on(lend_or_not);
    put_late(c, RG_OP_rgCopyInDeferred, 5, SIZE, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    atomic_store(&stub_failed, true);
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, 77, "4", 0);
    send_batch(c);
    expect_nothing(c);
    send_answer(c, RG_ANSWER_DATA, 5, 0, data, SIZE);
    expect_reply(c, 77, CUDA_SUCCESS);
    end(c);
    advertises = false;

    c = begin_on(lend_or_not); /* or it may not */
    put_late(c, RG_OP_rgCopyInDeferred, 5, SIZE, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    atomic_store(&stub_failed, true);
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    end(c);
}

static enum rg_status (*plain_send)(struct rg_conn *conn, struct rg_send *message);

static enum rg_status slow_send(struct rg_conn *conn, struct rg_send *message)
{
    if (message->bulk_size)
        stub_pass();
    return plain_send(conn, message);
}

static void send_slowly(struct rg_transport_ops *ops)
{
    plain_send = ops->send;
    ops->send = slow_send;
}

/* The same while data is being sent: the memory that it is sent from stays until it has left. */
static void test_landing_from_nothing(void)
{
    struct client *c = begin_on(send_slowly);
    stub_hold(true);
    put_late(c, RG_OP_rgCopyOutDeferred, 5, 3 * RG_DEFERRED_CHUNK, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    stub_wait_held(1);
    atomic_store(&stub_failed, true);
    rg_driver.cuCtxSynchronize = stub_fail;
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, 77, "4", 0);
    send_batch(c);
    usleep(50000);
    stub_hold(false);
    expect_notice(c, RG_NOTICE_DEFERRED_READ,
                  5); /* in one piece or several; what was under way, and no more */
    while (c->got.kind == RG_MESSAGE_NOTICE) {
        CHECK(c->got.bulk[0] == 0x5a && c->got.bulk[c->got.bulk_size - 1] == 0x5a);
        CHECK(receive(c, 5000));
    }
    CHECK(c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result == CUDA_SUCCESS);
    rg_driver.cuCtxSynchronize = synchronize;
    end(c);
}

/* The same of a copy that another thread of the program's waits for. */
static void test_copy_from_nothing(void)
{
    struct client *c = begin_on(send_slowly);
    stub_hold(true);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 0));
    put(c, RG_OP_rgCopyOut, 1, 5, "888888", address, (uint64_t)8 << 20, (uint64_t)8 << 20, (uint64_t)1,
        (uint64_t)9, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    stub_wait_held(1);
    rg_driver.cuCtxSynchronize = stub_succeed;
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, 6, "4", 0);
    send_batch(c);
    usleep(50000);
    stub_hold(false);
    for (unsigned replies = 0; replies < 2;) {
        CHECK(receive(c, 5000));
        replies += c->got.kind == RG_MESSAGE_REPLY;
        if (c->got.bulk_size)
            CHECK(c->got.bulk[0] == 0x5a && c->got.bulk[c->got.bulk_size - 1] == 0x5a);
    }
    rg_driver.cuCtxSynchronize = synchronize;
    end(c);
}

/* A call waits for a context whose handle is given to something else meanwhile. */
static void test_handle_taken(void)
{
    struct client *c = begin();
    atomic_store(&stub_busy, true);
    put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", address, 1, (uint64_t)1);
    stub_hold(true);
    put(c, RG_OP_cuCtxSynchronize, 0, 5, "");
    send_batch(c);
    stub_wait_held(1);
    put(c, RG_OP_cuEventCreate, 1, 6, "48", 0, handle(RG_KIND_EVENT, 20));
    send_batch(c);
    expect_reply(c, 6, CUDA_SUCCESS);
    stub_hold(false);
    expect_reply(c, 5, CUDA_SUCCESS);
    end(c);
}

/* Contexts come and go, while threads wait in others or not: nothing of them stays for good. */
static void test_come_and_go(void)
{
    struct client *c = begin();
    for (unsigned round = 0; round < 2; round++) {
        if (round) {
            atomic_store(&stub_busy, true);
            stub_hold(true);
            put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", address, 1, (uint64_t)1);
            put(c, RG_OP_cuStreamSynchronize, 0, 5, "8", handle(RG_KIND_STREAM, 7));
            send_batch(c);
            stub_wait_held(1);
            stub_hold(false);
            expect_reply(c, 5, CUDA_SUCCESS);
        }
        for (unsigned i = 0; i < 20; i++) {
            const uint64_t context = rg_handle_make(RG_KIND_CONTEXT, 3, i + 1 + 100 * round);
            put(c, RG_OP_cuCtxCreate_v2, 2, 0, "448", 0, 0, context);
            CALL(c, RG_OP_cuCtxDestroy_v2, 2, CUDA_SUCCESS, "8", context);
        }
        CHECK(!c->worker->retired && !atomic_load(&c->worker->detached)); /* the dispatcher is idle */
    }
    end(c);
}

/* The records of a session are timed, and a stream ends. */
static void test_timed(void)
{
    struct client *c = client_create_with(true, NULL);
    n_objects = 0;
    enter_context(c);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 7));
    CALL(c, RG_OP_cuStreamSynchronize, 0, CUDA_SUCCESS, "8", handle(RG_KIND_STREAM, 7));
    CALL(c, RG_OP_cuStreamDestroy_v2, 0, CUDA_SUCCESS, "8", handle(RG_KIND_STREAM, 7));
    end(c);
}

int main(void)
{
    use_driver();
    test_streams_of_others();
    test_pull_into_nothing();
    test_landing_from_nothing();
    test_copy_from_nothing();
    test_handle_taken();
    test_come_and_go();
    test_timed();
    return 0;
}
