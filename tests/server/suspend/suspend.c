/*
 * suspend.c - sessions that are suspended, on the software device: by command and by themselves, what brings them back and what
 * does not, what keeps them from it, and drivers that refuse. usage: server_suspend DRIVER
 */
#include "server/suspend/suspend.h"

#include "common/base/clock.h"
#include "generated/server/driver.h"
#include "tests/server/raw_client.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS   1000000ull
#define SIZE 300000u

static const uint64_t context = 1ull << 42 | 1ull << 26; /* handle(RG_KIND_CONTEXT, 0) */

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* --- the driver, which counts and may refuse -------------------------------------------------------------- */

static struct rg_driver_table real;
static atomic_int refusals, restores; /* how often the next call is refused; how often it was asked */
static CUresult refusal;

static bool refuses(void)
{
    return atomic_load(&refusals) > 0 && atomic_fetch_sub(&refusals, 1) > 0;
}

static CUresult checkpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    return refuses() ? refusal : real.cuCheckpointProcessCheckpoint(pid, args);
}

static CUresult restore(int pid, CUcheckpointRestoreArgs *args)
{
    atomic_fetch_add(&restores, 1);
    return refuses() ? refusal : real.cuCheckpointProcessRestore(pid, args);
}

static void refuse(int times, CUresult with)
{
    refusal = with;
    atomic_store(&refusals, times);
}

static CUprocessState driver_state(void)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    CHECK(real.cuCheckpointProcessGetState((int)getpid(), &state) == CUDA_SUCCESS);
    return state;
}

/* --- sessions --------------------------------------------------------------------------------------------- */

static unsigned char data[SIZE];
static uint64_t memory;

/* A session with `data` at `memory`. */
static struct client *begin(uint64_t idle_ns, uint64_t end_ns)
{
    struct client *c = client_create();
    const struct rg_suspend_policy policy = {.idle_ns = idle_ns, .end_ns = end_ns, .tells = true};
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 0, context);
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", context);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", context);
    CALL(c, RG_OP_cuMemAlloc_v2, 0, CUDA_SUCCESS, "8", (uint64_t)SIZE);
    memory = output_u64(c);
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", memory, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1, 0,
        (uint64_t)0);
    send_bulk(c, data, SIZE);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    rg_suspend_set_policy(c->worker, &policy);
    return c;
}

static void ask_data(struct client *c, unsigned thread, uint32_t token)
{
    put(c, RG_OP_rgCopyOut, thread, token, "888888", memory, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1,
        (uint64_t)0, (uint64_t)0);
    send_batch(c);
}

static void expect_data(struct client *c, uint32_t token)
{
    expect_reply(c, token, CUDA_SUCCESS);
    CHECK(c->got.bulk_size == SIZE && memcmp(c->got.bulk, data, SIZE) == 0);
}

static void expect_line(struct client *c, const char *words)
{
    CHECK(receive(c, 20000));
    CHECK(c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_SAY);
    CHECK(c->got.notice.arg[0] == c->got.output_size && c->got.output_size < 512);
    CHECK(memmem(c->got.output, c->got.output_size, words, strlen(words)));
}

static void wait_for(struct client *c, enum rg_suspend_state state)
{
    for (int i = 0; rg_suspend_state(c->worker) != state; i++) {
        CHECK(i < 20000);
        pause_ms(1);
    }
}

static void suspend(struct client *c, enum rg_suspend_command command)
{
    rg_suspend_command(c->worker, command);
    wait_for(c, RG_SUSPEND_SUSPENDED);
    CHECK(driver_state() == CU_PROCESS_STATE_CHECKPOINTED);
}

static void test_until_used(void)
{
    struct client *c = begin(0, 0);
    for (uint32_t i = 0; i < 5; i++) {
        suspend(c, RG_SUSPEND_UNTIL_USED);
        send_answer(c, RG_ANSWER_ALIVE, 0, 1, NULL,
                    0); /* a sign of life, and it is answered: the server lives, too */
        expect_notice(c, RG_NOTICE_ALIVE, 0);
        CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_SUSPENDED);
        ask_data(c, i % 2, 100 + i);
        expect_data(c, 100 + i);
        CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_RUNNING &&
              driver_state() == CU_PROCESS_STATE_RUNNING);
    }
    CHECK(client_destroy(c) == 0);
}

/* Calls wait, in their order, and are told why; another command lets them go on. */
static void test_held(void)
{
    struct client *c = begin(0, 0);
    suspend(c, RG_SUSPEND_HOLD);
    put(c, RG_OP_cuMemsetD8_v2, 0, 0, "848", memory, (uint32_t)7, (uint64_t)1);
    ask_data(c, 0, 5);
    expect_line(c, "operator");
    expect_nothing(c);
    CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_SUSPENDED);
    send_answer(c, RG_ANSWER_ALIVE, 0, 1, NULL, 0); /* is read meanwhile */
    expect_notice(c, RG_NOTICE_ALIVE, 0);
    rg_suspend_command(c->worker, RG_SUSPEND_RESUME);
    expect_reply(c, 5, CUDA_SUCCESS);
    CHECK(c->got.bulk_size == SIZE && c->got.bulk[0] == 7 &&
          memcmp(c->got.bulk + 1, data + 1, SIZE - 1) == 0);
    suspend(c, RG_SUSPEND_HOLD);
    rg_suspend_command(c->worker, RG_SUSPEND_UNTIL_USED); /* is no longer held */
    ask_data(c, 0, 6);
    expect_reply(c, 6, CUDA_SUCCESS);
    suspend(c, RG_SUSPEND_HOLD);
    rg_suspend_command(c->worker, RG_SUSPEND_RESUME); /* without any call */
    wait_for(c, RG_SUSPEND_RUNNING);
    CHECK(client_destroy(c) == 0);
}

/* What runs, or waits for something that runs, keeps the session from it; then it goes on by itself. */
static void test_work_is_waited_for(void)
{
    struct client *c = begin(0, 0);
    const uint64_t stream = handle(RG_KIND_STREAM, 1);
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, stream);
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1, 0, stream);
    put(c, RG_OP_cuStreamSynchronize, 0, 9, "8", stream);
    send_batch(c);
    expect_notice(c, RG_NOTICE_HOST_CALL, 1);
    rg_suspend_command(c->worker, RG_SUSPEND_UNTIL_USED);
    pause_ms(100);
    CHECK(rg_suspend_state(c->worker) != RG_SUSPEND_SUSPENDED);
    ask_data(c, 1, 10); /* calls go on */
    expect_data(c, 10);
    send_answer(c, RG_ANSWER_HOST_DONE, 1, 0, NULL, 0);
    expect_reply(c, 9, CUDA_SUCCESS);
    wait_for(c, RG_SUSPEND_SUSPENDED);
    ask_data(c, 0, 11);
    expect_data(c, 11);
    CHECK(client_destroy(c) == 0);
}

/* A host function in a stream of its own, and a call of a thread of its own that waits for it. */
static void put_wait(struct client *c, uint32_t i)
{
    put(c, RG_OP_rgHostCall, i % 2, 0, "848", (uint64_t)i, 0, handle(RG_KIND_STREAM, 1 + i % 2));
    put(c, RG_OP_cuStreamSynchronize, i % 2, 1000 + i, "8", handle(RG_KIND_STREAM, 1 + i % 2));
    send_batch(c);
}

/*
 * Takes what comes until the call before has ended and the host function is called: true. False: the session is suspended before it
 * is.
 */
static bool is_called(struct client *c, uint32_t i)
{
    bool ended = false, called = false;
    while (!ended || !called) {
        if (receive(c, 10)) {
            ended = ended || (c->got.kind == RG_MESSAGE_REPLY && c->got.reply.token == 1000 + i - 1);
            called = called || (c->got.kind == RG_MESSAGE_NOTICE &&
                                c->got.notice.type == RG_NOTICE_HOST_CALL && c->got.notice.id == i);
            continue;
        }
        if (!called && rg_suspend_state(c->worker) == RG_SUSPEND_SUSPENDED)
            return false;
        CHECK(rg_suspend_state(c->worker) != RG_SUSPEND_RUNNING); /* it has not given up */
    }
    return true;
}

/* A program that always has another call under way before one ends gets no turn until the last has ended. */
static void test_busy_is_held(void)
{
    struct client *c = begin(0, 0);
    uint32_t i = 1;
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 1));
    put(c, RG_OP_cuStreamCreate, 0, 0, "48", 1, handle(RG_KIND_STREAM, 2));
    put_wait(c, i);
    expect_notice(c, RG_NOTICE_HOST_CALL, 1);
    ask_data(c, 0, 5); /* the call that waits is under way */
    expect_data(c, 5);
    rg_suspend_command(c->worker, RG_SUSPEND_HOLD);
    wait_for(c, RG_SUSPEND_SUSPENDING);
    do {
        put_wait(c, i + 1);
        pause_ms(5); /* it is there before the one before has ended */
        send_answer(c, RG_ANSWER_HOST_DONE, i, 0, NULL, 0);
        i++;
    } while (is_called(c, i));
    CHECK(driver_state() == CU_PROCESS_STATE_CHECKPOINTED);
    rg_suspend_command(c->worker, RG_SUSPEND_RESUME);
    do
        CHECK(receive(c, 20000));
    while (c->got.kind != RG_MESSAGE_NOTICE || c->got.notice.type != RG_NOTICE_HOST_CALL);
    send_answer(c, RG_ANSWER_HOST_DONE, i, 0, NULL, 0);
    expect_reply(c, 1000 + i, CUDA_SUCCESS);
    ask_data(c, 0, 5);
    expect_data(c, 5);
    CHECK(client_destroy(c) == 0);
}

/* What cannot be done now may be possible later. */
static void test_idle_is_tried_again(void)
{
    struct client *c = begin(100 * MS, 0);
    refuse(2, CUDA_ERROR_NOT_SUPPORTED);
    do
        expect_line(c, "this session");
    while (!memmem(c->got.output, c->got.output_size, "until its next call", 19) ||
           memmem(c->got.output, c->got.output_size, "after 0.1 s others", 18));
    CHECK(atomic_load(&refusals) == 0);
    wait_for(c, RG_SUSPEND_SUSPENDED);
    ask_data(c, 0, 5);
    expect_data(c, 5);
    CHECK(client_destroy(c) == 0);
}

static void test_idle(void)
{
    struct client *c = begin(400 * MS, 0);
    for (int i = 0; i < 2; i++) {
        expect_line(c, "after 0.4 s");
        expect_line(c, "until its next call");
        wait_for(c, RG_SUSPEND_SUSPENDED);
        ask_data(c, 0, 5);
        expect_data(c, 5);
    }
    CHECK(client_destroy(c) == 0);
}

/* Whether a line comes before the data. */
static bool is_told(struct client *c)
{
    bool told = false;
    ask_data(c, 0, 5);
    for (; receive(c, 20000) && c->got.kind == RG_MESSAGE_NOTICE; told = true)
        CHECK(c->got.notice.type == RG_NOTICE_SAY);
    CHECK(c->got.kind == RG_MESSAGE_REPLY && c->got.bulk_size == SIZE &&
          memcmp(c->got.bulk, data, SIZE) == 0);
    return told;
}

/* Nothing is told to who is never silent for as long as that takes; this machine may be slow. */
static void test_used_is_not_idle(void)
{
    struct client *c = begin(800 * MS, 0);
    uint64_t longest = 0;
    bool told = false;
    for (int i = 0; i < 20; i++) {
        const uint64_t began = rg_now_ns();
        told = is_told(c) || told;
        pause_ms(60);
        longest = rg_now_ns() - began > longest ? rg_now_ns() - began : longest;
    }
    CHECK(!told || longest > 500 * MS);
    CHECK(client_destroy(c) == 0);
}

/* A session that has never done anything holds nothing. */
static void test_nothing_to_give(void)
{
    struct client *c = client_create();
    rg_suspend_set_policy(c->worker, &(struct rg_suspend_policy){.idle_ns = 20 * MS, .tells = true});
    expect_nothing(c);
    CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_RUNNING);
    CHECK(client_destroy(c) == 0);
}

static void test_ends_at_last(void)
{
    struct client *c = begin(100 * MS, 300 * MS);
    expect_line(c, "after 0.1 s");
    expect_line(c, "until its next call");
    CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_CONTROL);
    CHECK(client_destroy(c) == 1);
}

static void send_managed(struct client *c, const struct rg_answer *answer, const void *bulk, size_t bulk_size)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1, .seq = c->seq - 1},
                 *answer};
    CHECK(send_raw(c, &message, sizeof message, bulk, bulk_size));
}

static struct client *begin_managed(void)
{
    struct client *c = begin(0, 0);
    put(c, RG_OP_rgUnifiedOpen, 0, 0, "");
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    return c;
}

/* Memory that the host shares with the device, asked for outside of the order of calls. */
static void test_managed_memory(void)
{
    struct client *c = begin_managed();
    suspend(c, RG_SUSPEND_UNTIL_USED);
    send_managed(c,
                 &(struct rg_answer){.type = RG_ANSWER_MANAGED_OUT, .id = 3, .arg = {memory, 4096, context}},
                 NULL, 0);
    expect_notice(c, RG_NOTICE_MANAGED, 3);
    CHECK(c->got.bulk_size == 4096 && memcmp(c->got.bulk, data, 4096) == 0);
    CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_RUNNING);
    CHECK(client_destroy(c) == 0);
}

/* While the session is held, such requests wait in their order, before the calls that come after them; and signs of life do not. */
static void test_managed_memory_is_held(void)
{
    struct {
        uint64_t run[2];
        unsigned char bytes[16];
    } in = {{memory, 16}, "shared contents"};
    struct client *c = begin_managed();
    in.run[0] = memory;
    for (int resumed = 1; resumed >= 0; resumed--) {
        suspend(c, RG_SUSPEND_HOLD);
        send_managed(
            c, &(struct rg_answer){.type = RG_ANSWER_MANAGED_OUT, .id = 3, .arg = {memory, 4096, context}},
            NULL, 0);
        send_managed(c, &(struct rg_answer){.type = RG_ANSWER_MANAGED_IN, .id = context}, &in, sizeof in);
        send_managed(
            c, &(struct rg_answer){.type = RG_ANSWER_MANAGED_OUT, .id = 4, .arg = {memory, 4096, context}},
            NULL, 0);
        expect_line(c, "operator");
        send_answer(c, RG_ANSWER_ALIVE, 0, 1, NULL, 0);
        expect_notice(c, RG_NOTICE_ALIVE, 0);
        ask_data(c, 0, 5);
        CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_SUSPENDED);
        if (!resumed) /* the client goes: all of it is dropped */
            break;
        rg_suspend_command(c->worker, RG_SUSPEND_RESUME);
        expect_notice(c, RG_NOTICE_MANAGED, 3);
        CHECK(c->got.bulk_size == 4096 && memcmp(c->got.bulk, data, 4096) == 0);
        expect_notice(c, RG_NOTICE_MANAGED, 4);
        CHECK(c->got.bulk_size == 4096 && memcmp(c->got.bulk, in.bytes, 16) == 0);
        expect_reply(c, 5, CUDA_SUCCESS);
        CHECK(c->got.bulk_size == SIZE && memcmp(c->got.bulk, in.bytes, 16) == 0 &&
              memcmp(c->got.bulk + 16, data + 16, SIZE - 16) == 0);
    }
    CHECK(client_destroy(c) == 0);
}

static void test_client_goes(void)
{
    static const enum rg_suspend_command commands[] = {RG_SUSPEND_UNTIL_USED, RG_SUSPEND_HOLD};
    for (int i = 0; i < 4; i++) {
        struct client *c = begin(0, 0);
        suspend(c, commands[i % 2]);
        if (i / 2)
            ask_data(c, 0, 5); /* and waits for nothing */
        CHECK(client_destroy(c) == 0);
        CHECK(driver_state() == CU_PROCESS_STATE_RUNNING);
    }
}

/* --- drivers that refuse ---------------------------------------------------------------------------------- */

static void test_driver_without(void)
{
    struct client *c = begin(0, 0);
    rg_driver.cuCheckpointProcessLock = rg_driver_absent.cuCheckpointProcessLock;
    rg_suspend_command(c->worker, RG_SUSPEND_UNTIL_USED);
    pause_ms(50);
    ask_data(c, 0, 5);
    expect_data(c, 5);
    CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_RUNNING);
    CHECK(client_destroy(c) == 0);
    c = begin(20 * MS, 0); /* by itself: nothing is told, as nothing comes of it */
    expect_nothing(c);
    CHECK(rg_suspend_state(c->worker) == RG_SUSPEND_RUNNING);
    CHECK(client_destroy(c) == 0);
    rg_driver.cuCheckpointProcessLock = real.cuCheckpointProcessLock;
}

static void test_checkpoint_refused(void)
{
    struct client *c = begin(0, 0);
    refuse(1, CUDA_ERROR_NOT_SUPPORTED);
    rg_suspend_command(c->worker, RG_SUSPEND_UNTIL_USED);
    while (atomic_load(&refusals))
        pause_ms(1);
    wait_for(c, RG_SUSPEND_RUNNING);
    ask_data(c, 0, 5);
    expect_data(c, 5);
    suspend(c, RG_SUSPEND_UNTIL_USED);
    ask_data(c, 0, 6);
    expect_data(c, 6);
    CHECK(client_destroy(c) == 0);
}

/* The device's memory is others' when it is to come back: the call waits, and the client is told. */
static void test_memory_is_waited_for(void)
{
    struct client *c = begin(0, 0);
    suspend(c, RG_SUSPEND_UNTIL_USED);
    atomic_store(&restores, 0);
    refuse(15, CUDA_ERROR_OUT_OF_MEMORY);
    ask_data(c, 0, 5);
    expect_line(c, "waits until the GPU has memory");
    expect_data(c, 5);
    CHECK(atomic_load(&restores) == 16);
    suspend(c, RG_SUSPEND_UNTIL_USED); /* the client goes while its call waits */
    refuse(INT32_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    ask_data(c, 0, 6);
    expect_line(c, "waits until the GPU has memory");
    rg_conn_destroy(c->conn);
    CHECK(rg_worker_wait(c->worker) == 0);
    refuse(0, CUDA_SUCCESS);
    rg_worker_destroy(c->worker);
    CHECK(driver_state() == CU_PROCESS_STATE_RUNNING);
    free(c->got.output);
    free(c->got.bulk);
    free(c);
}

static void test_memory_is_lost(void)
{
    struct client *c = begin(0, 0);
    suspend(c, RG_SUSPEND_UNTIL_USED);
    refuse(1, CUDA_ERROR_OPERATING_SYSTEM);
    ask_data(c, 0, 5);
    CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_CONTROL);
    CHECK(client_destroy(c) == 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    load_driver(argv[1]);
    real = rg_driver;
    rg_driver.cuCheckpointProcessCheckpoint = checkpoint;
    rg_driver.cuCheckpointProcessRestore = restore;
    for (uint32_t i = 0; i < SIZE; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
#define RUN(test) fprintf(stderr, "%s\n", #test), test()
    RUN(test_until_used);
    RUN(test_held);
    RUN(test_work_is_waited_for);
    RUN(test_busy_is_held);
    RUN(test_idle);
    RUN(test_idle_is_tried_again);
    RUN(test_used_is_not_idle);
    RUN(test_nothing_to_give);
    RUN(test_ends_at_last);
    RUN(test_managed_memory);
    RUN(test_managed_memory_is_held);
    RUN(test_client_goes);
    RUN(test_driver_without);
    RUN(test_checkpoint_refused);
    RUN(test_memory_is_waited_for);
    RUN(test_memory_is_lost);
    return 0;
}
