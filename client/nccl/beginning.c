/* beginning.c - communicators that come to be at the end of a group: those of each server are begun by its worker. See nccl.h. */
#include "client/core/home.h"
#include "client/nccl/nccl.h"
#include "client/nccl/rendezvous.h"
#include "common/base/cleanup.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/cuda/nccl_network.h"
#include "generated/client/operations.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_LEAST_NS 100000 /* between looks whether several communicators have begun */
#define PAUSE_MOST_NS  10000000

/* None of them has begun. */
void rg_nccl_begin_none(struct rg_nccl_begun *beginnings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *beginnings[i].out = NULL;
        rg_nccl_comm_let_go(beginnings[i].comm);
    }
}

/* Gives the program what has begun. */
static void hand_out(const struct rg_nccl_begun *beginnings, size_t n, const unsigned *told)
{
    for (size_t i = 0; i < n; i++) {
        ncclComm_t comm = beginnings[i].comm;
        comm->ranks = (int)told[2 * i];
        comm->rank = (int)told[2 * i + 1];
        *beginnings[i].out = comm->ranks ? comm : NULL;
        if (!comm->ranks)
            rg_nccl_comm_let_go(comm);
    }
}

static bool is_split(const struct rg_nccl_begun *beginning)
{
    return beginning->wire.parent != RG_NCCL_COMMS_MAX;
}

/* Whether what a worker says of what has begun can be: calls count with it, and programs size their memory by it. */
static bool can_be(const struct rg_nccl_begun *beginning, unsigned ranks, unsigned rank)
{
    if (!is_split(beginning))
        return !ranks || (ranks == beginning->wire.ranks && rank == beginning->wire.rank);
    return ranks <= INT_MAX && (!ranks || rank < ranks);
}

/* Those of the session begin in its worker. `told`: of each beginning, of all, ranks and rank. */
static ncclResult_t send_beginnings(const struct rg_nccl_begun *beginnings, size_t n,
                                    const struct rg_session *session, unsigned *told)
{
    RG_CLEANUP_FREE unsigned long long *words = malloc(n * sizeof beginnings->wire);
    RG_CLEANUP_FREE unsigned *answers = calloc(n, 2 * sizeof *answers);
    int result = ncclSystemError;
    size_t count = 0;
    if (!words || !answers)
        return rg_nccl_fail(ncclSystemError, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (beginnings[i].comm->session == session)
            memcpy(words + count++ * RG_NCCL_BEGINNING_WORDS, &beginnings[i].wire, sizeof beginnings->wire);
    if (!count)
        return ncclSuccess;
    rg_nccl_tell_place(session);
    const CUresult status =
        rg_op_rgNcclBegin((unsigned)(count * RG_NCCL_BEGINNING_WORDS), (unsigned)(2 * count), words, &result,
                          answers, rg_home_of_session(session));
    bool good = true;
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (beginnings[i].comm->session == session) {
            memcpy(told + 2 * i, answers + 2 * count++, 2 * sizeof *told);
            good = good && can_be(&beginnings[i], told[2 * i], told[2 * i + 1]);
        }
    if (!good)
        return rg_nccl_fail(ncclInternalError, "%s says of a communicator what cannot be", session->server);
    return rg_nccl_answered(session, "the beginning of a communicator", status, result);
}

/* On several servers they can begin together only where beginning does not wait for the other ranks, or the servers are asked at once. */
static ncclResult_t check_servers(const struct rg_nccl_begun *beginnings, size_t n)
{
    const struct rg_session *first = beginnings[0].comm->session;
    for (size_t i = 0; i < n; i++)
        if (beginnings[i].comm->session != first && !is_split(&beginnings[i]) &&
            !rg_nccl_id_is_ours(beginnings[i].wire.id))
            return rg_nccl_fail(ncclInvalidUsage,
                                "communicators of a group are on the servers %s and %s: all must be on one",
                                first->server, beginnings[i].comm->session->server);
    return ncclSuccess;
}

/* What one server is asked. */
struct asking {
    const struct rg_nccl_begun *beginnings;
    size_t n;
    const struct rg_session *session;
    unsigned *told;
    ncclResult_t result;
    pthread_mutex_t *gate; /* held until it is known whether all can be asked */
    const bool *given_up;  /* under `gate` */
    pthread_t thread;
};

static void *asking_main(void *argument)
{
    struct asking *asking = argument;
    pthread_mutex_lock(asking->gate);
    const bool given_up = *asking->given_up;
    pthread_mutex_unlock(asking->gate);
    if (!given_up)
        asking->result = send_beginnings(asking->beginnings, asking->n, asking->session, asking->told);
    return NULL;
}

static ncclResult_t worse(ncclResult_t one, ncclResult_t other)
{
    return one == ncclSuccess || (one == ncclInProgress && other != ncclSuccess) ? other : one;
}

/* A worker answers a split when all ranks have come to it: so all servers are asked at once, by a thread each. */
static ncclResult_t ask_at_once(const struct rg_nccl_begun *beginnings, size_t n, unsigned *told)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct asking all[RG_SERVERS_MAX];
    bool given_up = false;
    unsigned asked = 0;
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&gate);
    for (; asked < rg_n_sessions && !given_up; asked += !given_up) {
        all[asked] = (struct asking){.beginnings = beginnings,
                                     .n = n,
                                     .session = &rg_sessions[asked],
                                     .told = told,
                                     .gate = &gate,
                                     .given_up = &given_up};
        given_up = rg_thread_create(&all[asked].thread, "rg-nccl", asking_main, &all[asked]) != RG_OK;
    }
    pthread_mutex_unlock(&gate);
    for (unsigned i = 0; i < asked; i++) {
        pthread_join(all[i].thread, NULL);
        result = worse(result, all[i].result);
    }
    return given_up ? rg_nccl_fail(ncclSystemError, "there is no thread to ask a server by") : result;
}

static ncclResult_t ask_in_turns(const struct rg_nccl_begun *beginnings, size_t n, unsigned *told)
{
    ncclResult_t result = ncclSuccess;
    for (unsigned i = 0; i < rg_n_sessions && (result == ncclSuccess || result == ncclInProgress); i++)
        result = worse(result, send_beginnings(beginnings, n, &rg_sessions[i], told));
    return result;
}

/* Asks all servers; what went wrong, or that some have not begun yet. */
static ncclResult_t ask_all(const struct rg_nccl_begun *beginnings, size_t n, unsigned *told)
{
    bool split = false;
    for (size_t i = 0; i < n; i++)
        split = split || is_split(&beginnings[i]);
    return split && rg_several_servers() ? ask_at_once(beginnings, n, told)
                                         : ask_in_turns(beginnings, n, told);
}

/* Ends those that have begun, as others of the group have not. */
static void undo(const struct rg_nccl_begun *beginnings, size_t n, const unsigned *told)
{
    int result;
    for (size_t i = 0; i < n; i++)
        if (told[2 * i])
            (void)rg_op_rgNcclEnd(beginnings[i].comm->number, RG_NCCL_ABORT, &result,
                                  rg_home_of_session(beginnings[i].comm->session));
}

/*
 * Waits until all have begun. Several are looked at in turns: one may need a connection that is made for another, here or in another
 * process, in which they stand in another order.
 */
static ncclResult_t wait_for_all(const struct rg_nccl_begun *beginnings, size_t n)
{
    for (long pause = PAUSE_LEAST_NS;; pause = pause < PAUSE_MOST_NS ? 2 * pause : PAUSE_MOST_NS) {
        size_t begun = 0;
        for (size_t i = 0; i < n; i++) {
            ncclComm_t comm = beginnings[i].comm;
            const ncclResult_t result =
                atomic_load(&comm->begun) ? ncclSuccess : rg_nccl_rendezvous(comm, n == 1);
            if (result != ncclSuccess && result != ncclInProgress)
                return result;
            if (result == ncclSuccess)
                atomic_store(&comm->begun, true);
            begun += result == ncclSuccess;
        }
        if (begun == n)
            return ncclSuccess;
        rg_pause((uint64_t)pause);
    }
}

/* `began`: what the workers said. Where no communicator blocks, the program asks whether they have begun (ncclCommGetAsyncError). */
static ncclResult_t complete(const struct rg_nccl_begun *beginnings, size_t n, ncclResult_t began)
{
    bool blocking = false;
    for (size_t i = 0; i < n; i++) {
        ncclComm_t comm = beginnings[i].comm;
        blocking = blocking || comm->blocking;
        atomic_store(&comm->begun, began == ncclSuccess || is_split(&beginnings[i]) ||
                                       !comm->session->op_numbers[RG_OP_rgNcclAwait]);
    }
    return blocking ? wait_for_all(beginnings, n) : began;
}

ncclResult_t rg_nccl_begin_all(struct rg_nccl_begun *beginnings, size_t n)
{
    RG_CLEANUP_FREE unsigned *told = calloc(n + 1, 2 * sizeof *told);
    if (!n)
        return ncclSuccess;
    ncclResult_t done = told ? check_servers(beginnings, n) : rg_nccl_fail(ncclSystemError, "out of memory");
    const ncclResult_t began = done == ncclSuccess ? ask_all(beginnings, n, told) : done;
    done = began == ncclInProgress ? ncclSuccess : began;
    if (done == ncclSuccess)
        done = complete(beginnings, n, began);
    if (done == ncclSuccess || done == ncclInProgress) {
        hand_out(beginnings, n, told);
    } else {
        if (told)
            undo(beginnings, n, told);
        rg_nccl_begin_none(beginnings, n);
    }
    return done;
}
