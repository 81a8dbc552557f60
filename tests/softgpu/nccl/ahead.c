/*
 * ahead.c - many ranks of another process that are ahead by as many small operations as share memory here: what they give comes while this
 * rank's stream has not got to the first of these, and changes nothing of what that one gets.
 */
#include "tests/softgpu/nccl/other_process.h"

enum {
    MANY = 16, /* ranks: so many places of a small operation are SG_NCCL_SHARED bytes */
    EACH = SG_NCCL_SMALL / sizeof(float),
    OPERATIONS = SG_NCCL_WINDOW + 1
};

_Static_assert((size_t)MANY *SG_NCCL_SMALL >= SG_NCCL_SHARED, "memory that an operation would take over");

static float theirs[EACH], later[SG_NCCL_WINDOW][EACH];

/* Where an operation's sums go. */
static float *sums_of(int number)
{
    return number ? later[number - 1] : got;
}

/* All other ranks come to an operation, and give a number that is that operation's alone. */
static void others_come(struct sg_peer *peer, int number)
{
    struct sg_wire comes = of_sum(SG_WIRE_COME, SG_GIVEN, false);
    comes.number = (uint64_t)number;
    comes.count = comes.whole = EACH;
    for (int i = 0; i < EACH; i++)
        theirs[i] = (float)(1 + number);
    for (comes.rank = 1; comes.rank < MANY; comes.rank++)
        CHECK(say(peer, comes, theirs, sizeof theirs, 0));
}

static void nobody_writes_into_what_is_still_to_be_read(bool in_place)
{
    streams_set_in_place(in_place);
    struct sg_peer *peer = begin_of(MANY);
    for (int i = 0; i < EACH; i++)
        given[i] = (float)i;
    memset(got, 0, sizeof got);
    memset(later, 0, sizeof later);
    for (int at = 0; at < OPERATIONS; at++)
        CHECK(sg_ncclAllReduce(given, sums_of(at), EACH, ncclFloat32, ncclSum, comm, streams_get(0)) ==
              ncclSuccess);
    for (int at = 0; at < OPERATIONS; at++)
        others_come(peer, at);
    streams_run();
    CHECK(sg_clique_state(comm) == ncclSuccess && !streams_left(0));
    for (int at = 0; at < OPERATIONS; at++)
        for (int i = 0; i < EACH; i++)
            CHECK(sums_of(at)[i] == (float)(i + (MANY - 1) * (1 + at)));
    end(peer, NULL);
}

int main(void)
{
    rg_nccl_extension.use(&network);
    rg_log_set_level(RG_LOG_ERROR);
    nobody_writes_into_what_is_still_to_be_read(true);
    nobody_writes_into_what_is_still_to_be_read(false);
    return 0;
}
