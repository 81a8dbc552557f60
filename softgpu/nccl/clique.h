/*
 * clique.h - ranks that communicate: what they share, and what each has of its own.
 *
 * A clique is made by the first rank of this process that joins an id, and ends when all of them have left it. Ranks are threads or
 * devices of this process (its *members*), or are in other processes (*far*), which the meeting of the id (meeting.h) has named; then
 * each process has a clique of the same key, and has to be connected to all others before calls may come. A clique that has failed stays
 * so: streams that wait in it go on (with what their buffers hold by then), and each of its ranks, also the far ones, is told by
 * ncclCommGetAsyncError and by every later call.
 *
 * Threads: any. clique->lock protects all that may change, and is held while page-locked memory is allocated, but never while a call
 * waits. Host functions of streams take it too. It may be taken with the lock of the list of cliques (list.h), not before it.
 */
#ifndef SG_NCCL_CLIQUE_H
#define SG_NCCL_CLIQUE_H

#include "common/cuda/nccl.h"
#include "softgpu/nccl/reduce.h"
#include "softgpu/nccl/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SG_NCCL_OPERATORS_MAX 1024 /* of one communicator at a time */

struct sg_buffer;
struct sg_come;
struct sg_exchange;
struct sg_peer;
struct sg_shrinks;
struct sg_split;

struct sg_operator {
    bool used;
    ncclDataType_t type;
    ncclScalarResidence_t residence;
    CUdeviceptr device;      /* of the scalar, if it is in device memory */
    unsigned char scalar[8]; /* else itself */
};

struct ncclComm {
    struct sg_clique *clique;
    int rank;
    CUdevice device;
    CUcontext context;
    bool retained; /* the context is the device's primary one, and was retained for this communicator */
    bool blocking, ended;
    unsigned graphs;              /* nodes of graphs with calls of it */
    bool left;                    /* by its program: it ends with the last of those */
    int pending;                  /* steps in streams */
    int inside;                   /* threads that wait for something of it: who aborts it waits for them */
    bool aborted;                 /* by one that ends it: the others neither wait any longer nor do so */
    uint64_t collectives, splits; /* begun */
    struct sg_shrinks *shrinks;   /* likewise (split.h) */
    uint64_t sent[SG_NCCL_RANKS_MAX]; /* messages to each rank, begun */
    uint64_t received[SG_NCCL_RANKS_MAX];
    struct sg_operator *operators;
    int n_operators;
};

/** Another process that has ranks of the clique. */
struct sg_far {
    struct sg_wire_place place;
    struct sg_peer *peer; /* the link to it; NULL: there is none, yet or any more */
    bool asked;           /* whoever makes links has been told, or the other process is to be */
    bool ready;           /* it is connected to all others */
    bool gone;            /* it wants nothing more of the clique */
    int n_ranks;
};

struct sg_clique {
    struct sg_clique *next; /* in the list of cliques */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* joined, placed, ready, pending, inside, exchanges, error, splits */
    uint64_t key;
    struct sg_wire_place root; /* the process in which the id was made */
    struct sg_peer *root_peer; /* until the clique is placed; NULL: there is no link, or it is this process */
    bool root_asked;           /* whoever makes links has been told of it */
    int n, joined, left;       /* ranks; of them members that have come, and that have left */
    int here;                  /* how many members there are, once it is placed */
    bool placed, said_ready;
    uint64_t began_ns; /* the first member joined */
    struct ncclComm *members[SG_NCCL_RANKS_MAX];
    int8_t at[SG_NCCL_RANKS_MAX]; /* of each rank, once it is placed: in `far`; -1: a member */
    struct sg_far *far;
    int n_far;
    int users; /* peers' threads that are at work for it: it does not end meanwhile */
    bool over; /* all members have left */
    struct sg_exchange *exchanges, **exchanges_end; /* in the order of the calls */
    struct sg_exchange *spare;
    struct sg_buffer *buffers; /* that no operation uses */
    struct sg_come *comes;     /* of operations that no member has called yet */
    int n_comes;
    size_t come_bytes; /* of data of these */
    struct sg_split *splits;
    int n_splits;
    ncclResult_t error; /* ncclSuccess: it has not failed */
    uint64_t failed_ns;
    char why[SG_NCCL_WHY];
};

/** A thread begins to wait for something of the communicator, or has ended it. The clique's lock is held. */
static inline void sg_comm_enter(ncclComm_t comm)
{
    comm->inside++;
}

static inline void sg_comm_exit(ncclComm_t comm)
{
    if (--comm->inside == 0)
        pthread_cond_broadcast(&comm->clique->changed);
}

/** Notes `result` as what the process's last error was, with a sentence; returns it. */
ncclResult_t sg_nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * Joins `id` as `rank` of `n`, on the device of the current context. With `primary`, the communicator keeps that device's primary
 * context. Does not wait for the others.
 */
ncclResult_t sg_clique_join(const ncclUniqueId *id, int n, int rank, bool blocking, bool primary,
                            ncclComm_t *comm);
/** Waits until all ranks have joined. Where the clique fails instead, comm is freed: here, or by a thread that aborts it meanwhile. */
ncclResult_t sg_clique_wait_joined(ncclComm_t comm);
/** Waits until what comm has put into streams is done. */
ncclResult_t sg_clique_wait_idle(ncclComm_t comm);
/** The clique fails, as the rank has aborted it. */
void sg_clique_abort(ncclComm_t comm);
/**
 * The rank leaves. With `abort`, the clique fails first, and threads that wait for something of comm go on and have left it; else, if it is the
 * last member, what others are to get is sent. Frees comm.
 */
ncclResult_t sg_clique_leave(ncclComm_t comm, bool abort);
/** ncclSuccess, ncclInProgress or how it failed, which becomes the last error. */
ncclResult_t sg_clique_state(ncclComm_t comm);
/** ncclSuccess, or why `function` cannot use it, which becomes the last error: it has failed, or is still beginning, as NCCL has it. */
ncclResult_t sg_clique_usable(ncclComm_t comm, const char *function);
/** The same as sg_clique_state without looking whether all have joined. */
ncclResult_t sg_clique_failed(struct sg_clique *clique);
/**
 * Who waits for a clique calls this now and then, with its lock held: if it failed seconds ago, and a message is still coming into a buffer
 * that a stream is kept from letting go of, or going out of one, the links end.
 */
void sg_clique_end_stuck(const struct sg_clique *clique);
/** The clique fails, here and elsewhere: with its lock held. The first failure counts. */
void sg_clique_fail_locked(struct sg_clique *clique, ncclResult_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- with the list's lock held --- */

/** The clique of a key; NULL: there is none here. */
struct sg_clique *sg_clique_by_key(uint64_t key);
/** A peer has said which process it is; `version` not 0: it is of that version of NCCL, or of another protocol, and of no use. */
void sg_cliques_met(struct sg_peer *peer, uint64_t process, unsigned version, unsigned protocol);
/** A link has ended. */
void sg_cliques_lost(const struct sg_peer *peer);
/** All fail: the session is over. */
void sg_cliques_end(void);

/* --- with the list's lock and the clique's held --- */

/** Who is where, from the meeting: by message, or (peer NULL) here, by which links ranks have `joined`. False: that cannot be. */
bool sg_clique_place(struct sg_clique *clique, const struct sg_peer *peer, struct sg_peer *const *joined,
                     const struct sg_wire *wire, const void *places, size_t size);
/** The process at the other end has made the link for the clique, or (ready) is connected to all others. False: it has no part in it, or by another link. */
bool sg_clique_meets(struct sg_clique *clique, struct sg_peer *peer, bool ready);
void sg_clique_told_failure(struct sg_clique *clique, int error, const void *text, size_t size);
void sg_clique_far_left(struct sg_clique *clique, const struct sg_peer *peer);
/** Whether it has. The lock of the clique is held. */
bool sg_clique_has_left(const struct sg_clique *clique, const struct sg_peer *peer);
/** Which of the far processes is reached by that link, an index; -1: none. */
int sg_clique_far_of(const struct sg_clique *clique, const struct sg_peer *peer);

/* --- between clique.c and placing.c: with the clique's lock held --- */

/** Tells all other processes that can be told; before it is known which those are, the one that will know. */
void sg_clique_tell_all(const struct sg_clique *clique, const struct sg_wire *wire, const void *behind,
                        size_t size);
/** Whether calls may come. */
bool sg_clique_has_begun(const struct sg_clique *clique);
/** Says that this process is ready, as soon as it is. */
void sg_clique_say_ready(struct sg_clique *clique);
/** What other processes said before the clique was here, or placed; with the list's lock, too. */
void sg_clique_take_early(struct sg_clique *clique);
/** A member of a clique whose id was made in another process joins there. */
void sg_clique_join_far(const struct sg_clique *clique, int rank);

/* --- for split.c and join.c --- */

/** Without members, and in no list; NULL: out of memory. */
struct sg_clique *sg_clique_new(uint64_t key, int n);
/** In no clique; NULL: out of memory. */
ncclComm_t sg_comm_new(int rank, bool blocking);
/** Gives back its context if that was retained. The clique may name it no more. */
void sg_comm_free(ncclComm_t comm);
/** A member joins: with the clique's lock held, or nobody else knows the clique. */
void sg_clique_add_member(struct sg_clique *clique, ncclComm_t comm);
/** Takes a clique that has no members any more out of the list, whose lock is held, and ends it. */
void sg_clique_drop(struct sg_clique *clique);
/** Puts a placed clique into the list, whose lock is held. */
void sg_clique_enter(struct sg_clique *clique);

/** Somebody who is at work for it has done it: with its lock held, which is released. */
void sg_clique_unuse(struct sg_clique *clique);
/** The thread begins, or ends, to be at work inside of a host function, which may end no clique. */
void sg_clique_enter_stream(bool enters);
/** Ends those that could not be ended there. No lock is held. */
void sg_cliques_end_left(void);

#endif
