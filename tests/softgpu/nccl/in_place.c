/*
 * in_place.c - operations that use the calls' own buffers (softgpu/nccl/exchange.h): results, and that nobody touches a buffer which is not
 * the operation's any more.
 */
#include "tests/softgpu/nccl/other_process.h"

#include <time.h>

/* What is done in a call: of two ranks, this one the first, with `COUNT` elements of each. */
static struct sg_wire of_blocks(enum sg_wire_type type, enum sg_nccl_kind kind)
{
    struct sg_wire wire = of_sum(type, SG_GIVEN, true);
    wire.kind = (int)kind;
    wire.op = kind == SG_NCCL_ALL_GATHER ? 0 : ncclSum;
    return wire;
}

static float of_both[RANKS * COUNT];

/* In its own place and in another, results are right, and all that is page-locked is what others give to be reduced. */
static void buffers_are_used_themselves(void)
{
    const size_t block = COUNT * sizeof(float);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct sg_peer *peer = begin();
        float *to = in_place ? of_both : got;
        for (size_t i = 0; i < RANKS * COUNT; i++)
            of_both[i] = (float)i;
        size_t before = streams_page_locked();
        CHECK(sg_ncclReduceScatter(of_both, to, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) ==
              ncclSuccess);
        CHECK(streams_page_locked() - before < RANKS * block + block / 2);
        CHECK(say(peer, of_blocks(SG_WIRE_COME, SG_NCCL_REDUCE_SCATTER), NULL, 0, 0));
        CHECK(say(peer, of_blocks(SG_WIRE_DATA, SG_NCCL_REDUCE_SCATTER), NULL, 0, block)); /* zeros */
        streams_run();
        await_sent();
        streams_run();
        CHECK(!is_there(0));
        for (size_t i = 0; i < COUNT; i++)
            CHECK(to[i] == (float)i);
        float *mine = in_place ? of_both : given;
        for (size_t i = 0; i < COUNT; i++)
            mine[i] = (float)(7 * i);
        before = streams_page_locked();
        CHECK(sg_ncclAllGather(mine, of_both, COUNT, ncclFloat32, comm, streams_get(0)) == ncclSuccess);
        struct sg_wire comes = of_blocks(SG_WIRE_COME, SG_NCCL_ALL_GATHER),
                       data = of_blocks(SG_WIRE_DATA, SG_NCCL_ALL_GATHER);
        comes.number = data.number = 1;
        CHECK(streams_page_locked() - before < block);
        CHECK(say(peer, comes, NULL, 0, 0));
        CHECK(say(peer, data, NULL, 0, block));
        for (int i = 0; is_there(1) && i < 10000; i++) {
            streams_run();
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
        CHECK(!is_there(1));
        for (size_t i = 0; i < RANKS * COUNT; i++)
            CHECK(of_both[i] == (i < COUNT ? (float)(7 * i) : 0));
        memset(given, 0, sizeof given);
        end(peer, NULL);
    }
}

/* What is not of the block that the rank reduces has no place. */
static void no_place_for_other_blocks(void)
{
    struct sg_peer *peer = begin();
    struct sg_wire data = of_sum(SG_WIRE_DATA, SG_GIVEN, true);
    CHECK(sg_ncclAllReduce(given, got, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    streams_run();
    CHECK(say(peer, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    data.offset = COUNT / RANKS * sizeof(float) - 4;
    CHECK(!say(peer, data, NULL, 0, 8));
    end(peer, NULL);
}

static bool has_gone_on;

static void CUDA_CB go_on(void *unused)
{
    (void)unused;
    has_gone_on = true;
}

static struct sg_peer *failing;

static void fail_while_receiving(void)
{
    CHECK(say(failing, (struct sg_wire){.type = SG_WIRE_FAIL, .rank = ncclRemoteError}, "gone", 5, 0));
    streams_run();
    CHECK(sg_clique_state(comm) == ncclRemoteError && !has_gone_on);
    const unsigned before = interrupted;
    pthread_mutex_lock(&comm->clique->lock);
    sg_clique_end_stuck(comm->clique);
    CHECK(interrupted == before);
    comm->clique->failed_ns -= 10000000000ull; /* ten seconds later */
    sg_clique_end_stuck(comm->clique);
    CHECK(interrupted == before + 1);
    pthread_mutex_unlock(&comm->clique->lock);
}

/* Also where the communicator has failed: the program may free its buffers as soon as its stream goes on. */
static void a_stream_waits_until_its_buffers_are_let_go(void)
{
    failing = begin();
    has_gone_on = false;
    CHECK(sg_ncclAllReduce(given, got, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    CHECK(sg_nccl_driver()->p_cuLaunchHostFunc(streams_get(0), go_on, NULL) == CUDA_SUCCESS);
    streams_run();
    CHECK(say(failing, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    await_sent_given();
    while_receiving = fail_while_receiving;
    (void)say(failing, of_sum(SG_WIRE_DATA, SG_GIVEN, true), NULL, 0, COUNT / RANKS * sizeof(float));
    CHECK(!while_receiving);
    streams_run();
    CHECK(has_gone_on);
    pthread_mutex_lock(&comm->clique->lock);
    const unsigned before = interrupted;
    sg_clique_end_stuck(comm->clique); /* nothing is */
    CHECK(interrupted == before);
    pthread_mutex_unlock(&comm->clique->lock);
    end(failing, NULL);
}

/* A buffer that the program has freed meanwhile is nobody's to write to. */
static void freed_buffers_fail_the_communicator(void)
{
    struct sg_peer *peer = begin();
    CHECK(sg_ncclAllReduce(given, got, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    streams_run();
    streams_set_in_place(false);
    CHECK(say(peer, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    CHECK(say(peer, of_sum(SG_WIRE_DATA, SG_GIVEN, true), NULL, 0, COUNT / RANKS * sizeof(float)));
    CHECK(sg_clique_state(comm) == ncclInvalidUsage);
    streams_set_in_place(true);
    end(peer, NULL);
}

int main(void)
{
    rg_nccl_extension.use(&network);
    rg_log_set_level(RG_LOG_ERROR);
    streams_set_in_place(true);
    buffers_are_used_themselves();
    no_place_for_other_blocks();
    a_stream_waits_until_its_buffers_are_let_go();
    freed_buffers_fail_the_communicator();
    return 0;
}
