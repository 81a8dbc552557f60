/*
 * aborts.c - communicators that one thread aborts while another waits for something of them: the other one returns, and each
 * communicator is freed once. Each case comes often, as what is freed twice is not always noticed at once.
 */
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/list.h"
#include "tests/check.h"

#include <pthread.h>
#include <time.h>

#include "common/base/log.h"

enum { TIMES = 300, RANKS = 3 };

static ncclUniqueId id;
static ncclComm_t comms[RANKS], made;
static ncclResult_t told;

/* Waits until another thread waits for something of the communicator. */
static void await_inside(ncclComm_t *of)
{
    bool inside = false;
    while (!inside) {
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        const ncclComm_t comm = __atomic_load_n(of, __ATOMIC_ACQUIRE);
        if (!comm)
            continue;
        pthread_mutex_lock(&comm->clique->lock);
        inside = comm->inside > 0;
        pthread_mutex_unlock(&comm->clique->lock);
    }
}

/* The only one of three ranks that comes. */
static void *begin(void *unused)
{
    told = sg_ncclCommInitRank(&comms[0], RANKS, id, 0);
    return unused;
}

static void aborted_while_it_begins(void)
{
    pthread_t thread;
    CHECK(sg_ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(pthread_create(&thread, NULL, begin, NULL) == 0);
    await_inside(&comms[0]);
    CHECK(sg_ncclCommAbort(comms[0]) == ncclSuccess);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(told == ncclRemoteError && !comms[0]);
    CHECK(!*sg_cliques());
}

/* Rank 1 stays away from where rank 0 goes on without rank 2. */
static void *shrink(void *unused)
{
    int last[] = {RANKS - 1};
    told = sg_ncclCommShrink(comms[0], last, 1, &made, NULL, NCCL_SHRINK_ABORT);
    return unused;
}

static void *split(void *unused)
{
    told = sg_ncclCommSplit(comms[0], 0, 0, &made, NULL);
    return unused;
}

static void aborted_while_another_is_made(void *(*make)(void *unused))
{
    pthread_t thread;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(sg_ncclGetUniqueId(&id) == ncclSuccess);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(sg_ncclCommInitRankConfig(&comms[rank], RANKS, id, rank, &config) ==
              (rank < RANKS - 1 ? ncclInProgress : ncclSuccess));
    CHECK(pthread_create(&thread, NULL, make, NULL) == 0);
    await_inside(&comms[0]);
    CHECK(sg_ncclCommAbort(comms[0]) == ncclSuccess);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(told == ncclRemoteError && !made);
    for (int rank = 1; rank < RANKS; rank++)
        CHECK(sg_ncclCommAbort(comms[rank]) == ncclSuccess);
    comms[0] = NULL;
    CHECK(!*sg_cliques());
}

int main(void)
{
    rg_log_set_level(RG_LOG_ERROR);
    for (int time = 0; time < TIMES; time++)
        aborted_while_it_begins();
    aborted_while_another_is_made(split);
    aborted_while_another_is_made(shrink);
    return 0;
}
