/*
 * peers.c - what a process with ranks makes of another one's messages that break the rules: nobody's memory, and no result that
 * somebody else is to get, depends on the others' manners. The streams are streams.h's; links send nowhere.
 */
#include "common/base/limits.h"
#include "softgpu/nccl/meeting.h"
#include "tests/softgpu/nccl/other_process.h"

#include <time.h>

/* --- who speaks for a process ---------------------------------------------------------------------------------- */

static struct sg_peer *second; /* another link, by which somebody says that he is the other process */

static unsigned told(struct sg_peer *peer, struct link *link, enum sg_wire_type type)
{
    sg_cliques_lock();
    sg_peer_flush(peer);
    sg_cliques_unlock();
    return atomic_load(&link->told[type]);
}

/* Of a communicator that has begun, he says in vain that he has come, and that all data is there. */
static void speak_for_the_other(void)
{
    CHECK(!say_it(second, SG_WIRE_MEET) && !say_it(second, SG_WIRE_READY));
    CHECK(!say(second, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    CHECK(!say(second, of_sum(SG_WIRE_DATA, SG_REDUCED, true), NULL, 0, 0));
    CHECK(!say(second, (struct sg_wire){.type = SG_WIRE_SPLIT, .rank = 1}, NULL, 0, 0));
}

static void data_comes_by_one_link(void)
{
    struct link link = {0};
    struct sg_peer *first = begin();
    second = meet_as(OTHER, &link);
    CHECK(sg_ncclAllReduce(given, got, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    streams_run();
    CHECK(say(first, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    CHECK(say(first, of_sum(SG_WIRE_DATA, SG_GIVEN, true), NULL, 0, 0));
    streams_run();
    CHECK(is_there(0));
    while_receiving = speak_for_the_other;
    CHECK(say(first, of_sum(SG_WIRE_DATA, SG_REDUCED, true), NULL, 0, COUNT / RANKS * sizeof(float)));
    CHECK(!while_receiving);
    streams_run();
    end(first, second);
}

/* Whoever says that he is where the id was made, and comes by a link that does not lead there, hears nothing of the communicator. */
static void who_has_made_the_id_is_found_at_his_place(void)
{
    const struct sg_wire_place places[RANKS] = {{.process = sg_process()}, {.process = OTHER}};
    struct link false_link = {0}, link = {.made_here = true};
    struct sg_peer *impostor = meet_as(OTHER, &false_link);
    join(RANKS);
    CHECK(told(impostor, &false_link, SG_WIRE_JOIN) == 0);
    CHECK(!say_places(impostor, places, RANKS));
    struct sg_peer *peer = meet_as(OTHER, &link);
    CHECK(told(peer, &link, SG_WIRE_JOIN) == 1);
    CHECK(say_places(peer, places, RANKS));
    second = impostor;
    speak_for_the_other();
    CHECK(sg_clique_state(comm) == ncclInProgress);
    CHECK(say_it(peer, SG_WIRE_READY));
    CHECK(sg_clique_state(comm) == ncclSuccess);
    for (int type = SG_WIRE_HELLO + 1; type <= SG_WIRE_MEET; type++)
        CHECK(told(impostor, &false_link, (enum sg_wire_type)type) == 0);
    end(peer, impostor);
}

static bool say_join(struct sg_peer *peer, int rank, int ranks)
{
    const struct sg_wire_place place = {.process = OTHER};
    return say(peer, (struct sg_wire){.type = SG_WIRE_JOIN, .rank = rank, .ranks = ranks}, &place,
               sizeof place, 0);
}

/* Where the id was made here: the ranks of a process come by one link, and the communicator is theirs by that. */
static void ranks_of_a_process_join_by_one_link(void)
{
    enum { ALL = 3 };
    struct link link = {0}, false_link = {0};
    struct rg_nccl_id id;
    ncclUniqueId given_id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(sg_meeting_new(&id));
    key = id.key;
    memcpy(&given_id, &id, sizeof id);
    struct sg_peer *peer = meet_as(OTHER, &link), *impostor = meet_as(OTHER, &false_link);
    CHECK(sg_ncclCommInitRankConfig(&comm, ALL, given_id, 0, &config) == ncclInProgress);
    CHECK(say_join(peer, 1, ALL));
    CHECK(say_join(impostor, 2, ALL) && told(impostor, &false_link, SG_WIRE_FAIL) == 1);
    CHECK(say_join(peer, 2, ALL));
    CHECK(told(peer, &link, SG_WIRE_TABLE) == 1 && told(impostor, &false_link, SG_WIRE_TABLE) == 0);
    CHECK(!say_it(impostor, SG_WIRE_MEET) && !say_it(impostor, SG_WIRE_READY));
    CHECK(sg_clique_state(comm) == ncclInProgress);
    CHECK(say_it(peer, SG_WIRE_READY));
    CHECK(sg_clique_state(comm) == ncclSuccess);
    end(peer, impostor);
    key = KEY;
}

/*
 * To those with higher numbers links are made here, and lead to their places; those with lower numbers make theirs, and say then whose they
 * are. That is known before the ranks' places are, too.
 */
static void other_processes_come_as_their_numbers_say(void)
{
    enum { ALL = 4, LOW = 1 };
    const uint64_t high = UINT64_MAX;
    for (int early = 0; early < 2; early++) {
        const struct sg_wire_place places[ALL] = {
            {.process = sg_process()}, {.process = OTHER}, {.process = LOW}, {.process = high}};
        struct link root_link = {.made_here = true}, low_link = {0}, high_link = {.made_here = true},
                    false_link = {0};
        struct sg_peer *root = meet_as(OTHER, &root_link), *low = meet_as(LOW, &low_link),
                       *impostor = meet_as(high, &false_link), *third = NULL;
        join(ALL);
        CHECK(!early || say_it(low, SG_WIRE_MEET));
        CHECK(say_places(root, places, ALL) && say_it(root, SG_WIRE_READY));
        CHECK(!say_it(impostor, SG_WIRE_MEET));
        CHECK(told(impostor, &false_link, SG_WIRE_MEET) == 0);
        third = meet_as(high, &high_link);
        CHECK(told(third, &high_link, SG_WIRE_MEET) == 1);
        CHECK(early || (!say_it(low, SG_WIRE_READY) && say_it(low, SG_WIRE_MEET)));
        CHECK(told(low, &low_link, SG_WIRE_READY) == 1 && told(third, &high_link, SG_WIRE_READY) == 1);
        CHECK(say_it(low, SG_WIRE_READY) && say_it(third, SG_WIRE_READY));
        CHECK(sg_clique_state(comm) == ncclSuccess);
        rg_nccl_extension.lost(impostor);
        CHECK(sg_clique_state(comm) == ncclSuccess);
        rg_nccl_extension.lost(third);
        CHECK(sg_clique_state(comm) == ncclRemoteError);
        end(root, low);
    }
}

/* What one process says too early, and too often, displaces nothing that another has said. */
static void early_words_are_kept_of_each(void)
{
    const struct sg_wire_place places[RANKS] = {{.process = sg_process()}, {.process = OTHER}};
    struct link link = {.made_here = true}, talker_link = {0};
    struct sg_peer *peer = meet_as(OTHER, &link), *talker = meet_as(~OTHER, &talker_link);
    CHECK(say_it(peer, SG_WIRE_READY));
    for (key = 1; key < 5 * RG_NCCL_EARLY_READY_MAX; key++)
        CHECK(say_it(talker, SG_WIRE_READY));
    key = KEY;
    join(RANKS);
    CHECK(say_places(peer, places, RANKS));
    CHECK(sg_clique_state(comm) == ncclSuccess);
    end(peer, talker);
}

/* A process is not at the other end of its own links. */
static void nobody_is_this_process(void)
{
    struct link link = {0};
    struct sg_peer *peer = rg_nccl_extension.opened(&link);
    CHECK(!say(peer,
               (struct sg_wire){.type = SG_WIRE_HELLO,
                                .version = NCCL_VERSION_CODE,
                                .clique = sg_process(),
                                .number = SG_WIRE_PROTOCOL},
               NULL, 0, 0));
    rg_nccl_extension.lost(peer);
}

/* --- small operations ------------------------------------------------------------------------------------------ */

static struct sg_wire of_small_sum(uint64_t number)
{
    struct sg_wire wire = of_sum(SG_WIRE_COME, SG_GIVEN, false);
    wire.number = number;
    wire.count = wire.whole = SMALL;
    return wire;
}

/* What the other rank gives comes with the word that it is there, before or after this one has called. */
static void what_a_rank_gives_comes_with_it(void)
{
    static const float theirs[SMALL] = {1, 2, 3, 4};
    struct sg_peer *peer = begin();
    for (size_t i = 0; i < SMALL; i++)
        given[i] = 10;
    for (uint64_t number = 0; number < 2; number++) {
        const bool first = number == 0;
        memset(got, 0, sizeof got);
        CHECK(!first || say(peer, of_small_sum(number), theirs, sizeof theirs, 0));
        CHECK(sg_ncclAllReduce(given, got, SMALL, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
        streams_run();
        CHECK(first || say(peer, of_small_sum(number), theirs, sizeof theirs, 0));
        streams_run();
        for (size_t i = 0; i < SMALL; i++)
            CHECK(got[i] == 10 + theirs[i]);
        CHECK(!is_there(number));
    }
    memset(given, 0, sizeof given);
    end(peer, NULL);
}

/* Each step costs the thread that puts it and the one that does it: where the buffers can be used themselves there are three of them. */
static void small_operations_take_few_steps(void)
{
    enum { OF_ALL = RANKS * SMALL };
    static const enum sg_nccl_kind kinds[] = {SG_NCCL_ALL_REDUCE, SG_NCCL_ALL_GATHER, SG_NCCL_REDUCE_SCATTER};
    float of_both[OF_ALL], taken[OF_ALL], theirs[OF_ALL];
    struct sg_peer *peer = begin();
    for (int i = 0; i < OF_ALL; i++) {
        of_both[i] = (float)i;
        theirs[i] = (float)(100 * i);
    }
    for (uint64_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const bool gathers = kinds[i] == SG_NCCL_ALL_GATHER, scatters = kinds[i] == SG_NCCL_REDUCE_SCATTER;
        struct sg_wire comes = of_small_sum(i);
        comes.kind = (int)kinds[i];
        comes.op = gathers ? 0 : ncclSum;
        memset(taken, 0, sizeof taken);
        CHECK((gathers ? sg_ncclAllGather(of_both, taken, SMALL, ncclFloat32, comm, streams_get(0))
               : scatters
                   ? sg_ncclReduceScatter(of_both, taken, SMALL, ncclFloat32, ncclSum, comm, streams_get(0))
                   : sg_ncclAllReduce(of_both, taken, SMALL, ncclFloat32, ncclSum, comm, streams_get(0))) ==
              ncclSuccess);
        CHECK(streams_left(0) == 3);
        streams_run();
        CHECK(say(peer, comes, theirs, (scatters ? OF_ALL : SMALL) * sizeof theirs[0], 0));
        streams_run();
        for (int k = 0; k < (gathers ? OF_ALL : SMALL); k++)
            CHECK(taken[k] == (!gathers    ? of_both[k] + theirs[k]
                               : k < SMALL ? of_both[k]
                                           : theirs[k - SMALL]));
        CHECK(gathers || taken[SMALL] == 0);
        CHECK(!is_there(i));
    }
    end(peer, NULL);
}

/* Nobody reads or writes buffers that the program has freed meanwhile, before or after the other rank has come. */
static void freed_buffers_fail_small_operations(void)
{
    for (int comes_first = 0; comes_first < 2; comes_first++) {
        static const float theirs[SMALL] = {1, 2, 3, 4};
        struct sg_peer *peer = begin();
        memset(got, 0, sizeof got);
        CHECK(sg_ncclAllReduce(given, got, SMALL, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
        if (comes_first)
            streams_run();
        streams_set_in_place(false);
        CHECK(say(peer, of_small_sum(0), theirs, sizeof theirs, 0));
        streams_run();
        CHECK(sg_clique_state(comm) == ncclInvalidUsage && got[0] == 0);
        streams_set_in_place(true);
        end(peer, NULL);
    }
}

/* Of data that is missing, too long, or comes twice, nothing is taken: the communicator fails. */
static void what_a_rank_gives_has_its_size(void)
{
    static const float theirs[SMALL + 1];
    const size_t sizes[] = {0, sizeof theirs, sizeof theirs - sizeof theirs[0]};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct sg_peer *peer = begin();
        const bool twice = i == 2;
        CHECK(sg_ncclAllReduce(given, got, SMALL, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
        CHECK(say(peer, of_small_sum(0), theirs, sizes[i], 0));
        CHECK(sg_clique_state(comm) == (twice ? ncclSuccess : ncclInternalError));
        CHECK(!twice || say(peer, of_small_sum(0), theirs, sizes[i], 0));
        CHECK(sg_clique_state(comm) == ncclInternalError);
        end(peer, NULL);
    }
}

/* --- large operations ------------------------------------------------------------------------------------------ */

static struct sg_wire of_part(enum sg_wire_type type, enum sg_phase phase, uint64_t number, size_t count,
                              size_t whole)
{
    struct sg_wire wire = of_sum(type, phase, true);
    wire.number = number;
    wire.count = count;
    wire.whole = whole;
    wire.offset = phase == SG_REDUCED ? count / RANKS * sizeof(float) : 0;
    return wire;
}

/* Whether the rank's stream has got to a part. */
static bool has_come_to(uint64_t number)
{
    pthread_mutex_lock(&comm->clique->lock);
    const struct sg_exchange *exchange = sg_exchange_find(comm->clique, -1, 0, number);
    const bool has = exchange && exchange->arrived[0];
    pthread_mutex_unlock(&comm->clique->lock);
    return has;
}

static void await_part(uint64_t number)
{
    while (!has_come_to(number)) {
        streams_run();
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* Parts of a call take over the memory of those before them, when that has been sent, and nobody writes there before. */
static void a_large_sum_goes_through_little_memory(void)
{
    enum { PARTS = 3 * SG_NCCL_WINDOW, PART = SG_NCCL_PART / sizeof(float), WHOLE = PARTS * PART };
    const size_t half = PART / 2 * sizeof(float), memory = 3 * (size_t)PART * sizeof(float);
    float *from = malloc(WHOLE * sizeof *from), *to = calloc(WHOLE, sizeof *to);
    CHECK(from && to);
    for (size_t i = 0; i < WHOLE; i++)
        from[i] = (float)i;
    struct sg_peer *peer = begin();
    const size_t before = streams_page_locked();
    CHECK(sg_ncclAllReduce(from, to, WHOLE, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    CHECK(streams_page_locked() - before < (SG_NCCL_WINDOW + 1) * memory);
    for (uint64_t i = 0; i < PARTS; i++) {
        await_part(i);
        CHECK(i + SG_NCCL_WINDOW >= PARTS || !has_come_to(i + SG_NCCL_WINDOW));
        CHECK(say(peer, of_part(SG_WIRE_COME, SG_GIVEN, i, PART, WHOLE), NULL, 0, 0));
        CHECK(say(peer, of_part(SG_WIRE_DATA, SG_GIVEN, i, PART, WHOLE), NULL, 0, half));
        streams_run();
        CHECK(say(peer, of_part(SG_WIRE_DATA, SG_REDUCED, i, PART, WHOLE), NULL, 0, half));
    }
    while (is_there(PARTS - 1)) {
        streams_run();
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    for (size_t i = 0; i < WHOLE; i++) /* the other rank gives zeros, and says that its half comes to zeros */
        CHECK(to[i] == (i % PART < PART / 2 ? from[i] : 0));
    CHECK(sg_ncclAllReduce(from, to, WHOLE, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    CHECK(!say(peer, of_part(SG_WIRE_DATA, SG_GIVEN, PARTS + SG_NCCL_WINDOW, PART, WHOLE), NULL, 0, half));
    end(peer, NULL);
    free(from);
    free(to);
}

/* What a rank has reduced comes once, and does not count as what it gives. */
static void what_has_been_reduced_comes_once(void)
{
    struct sg_peer *peer = begin();
    CHECK(sg_ncclAllReduce(given, got, COUNT, ncclFloat32, ncclSum, comm, streams_get(0)) == ncclSuccess);
    streams_run();
    CHECK(say(peer, of_sum(SG_WIRE_COME, SG_GIVEN, false), NULL, 0, 0));
    CHECK(say(peer, of_sum(SG_WIRE_DATA, SG_REDUCED, true), NULL, 0, 0));
    CHECK(!say(peer, of_sum(SG_WIRE_DATA, SG_REDUCED, true), NULL, 0, 0));
    end(peer, NULL);
}

/* --- a rank that enters twice ------------------------------------------------------------------------------------ */

static void nobody_enters_a_split_for_others(void)
{
    struct sg_peer *peer = begin();
    struct sg_split *split = NULL;
    ncclComm_t part = NULL;
    const struct sg_wire enters = {.type = SG_WIRE_SPLIT, .rank = 1, .source = 7};
    CHECK(say(peer, enters, NULL, 0, 0));
    CHECK(!say(peer, enters, NULL, 0, 0));
    CHECK(sg_clique_split(comm, 7, 0, false, &part, &split) == ncclSuccess);
    CHECK(sg_clique_wait_split(comm, split) == ncclSuccess);
    CHECK(part && part->clique->n == RANKS);
    rg_nccl_extension.end();
    CHECK(sg_ncclCommAbort(part) == ncclSuccess);
    end(peer, NULL);
}

/* --- whose device has failed --------------------------------------------------------------------------------- */

/* Else what the rank has would not be freed, as steps of its streams might still need it. */
static void an_error_of_cuda_elsewhere_is_none_here(void)
{
    struct sg_peer *peer = begin();
    CHECK(say(peer, (struct sg_wire){.type = SG_WIRE_FAIL, .rank = ncclUnhandledCudaError}, "gone", 5, 0));
    CHECK(sg_clique_state(comm) == ncclRemoteError);
    end(peer, NULL);
}

int main(void)
{
    rg_nccl_extension.use(&network);
    rg_log_set_level(RG_LOG_ERROR);
    for (int in_place = 0; in_place < 2; in_place++) {
        streams_set_in_place(in_place);
        data_comes_by_one_link();
        what_a_rank_gives_comes_with_it();
        what_a_rank_gives_has_its_size();
        what_has_been_reduced_comes_once();
        a_large_sum_goes_through_little_memory();
    }
    who_has_made_the_id_is_found_at_his_place();
    ranks_of_a_process_join_by_one_link();
    other_processes_come_as_their_numbers_say();
    early_words_are_kept_of_each();
    nobody_is_this_process();
    small_operations_take_few_steps();
    freed_buffers_fail_small_operations();
    nobody_enters_a_split_for_others();
    an_error_of_cuda_elsewhere_is_none_here();
    return 0;
}
