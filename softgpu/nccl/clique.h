/*
 * clique.h - ranks that communicate: what they share, and what each has of its own.
 *
 * A clique is made by the first rank that joins an id, and ends when all have left it. Ranks are threads or devices of one process. A
 * clique that has failed stays so: streams that wait in it go on (with what their buffers hold by then), and each of its ranks is told
 * by ncclCommGetAsyncError and by every later call.
 *
 * Threads: any. clique->lock protects all that may change, and is held while page-locked memory is allocated, but never while a call
 * waits. Host functions of streams take it too. It may be taken with the lock of the list of cliques (deadline.h), not before it.
 */
#ifndef SG_NCCL_CLIQUE_H
#define SG_NCCL_CLIQUE_H

#include "common/cuda/nccl.h"
#include "softgpu/nccl/reduce.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SG_NCCL_RANKS_MAX     64
#define SG_NCCL_OPERATORS_MAX 1024 /* of one communicator at a time */

struct sg_exchange;
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
    int pending;                      /* steps in streams */
    uint64_t collectives, splits;     /* begun */
    uint64_t sent[SG_NCCL_RANKS_MAX]; /* messages to each rank, begun */
    uint64_t received[SG_NCCL_RANKS_MAX];
    struct sg_operator *operators;
    int n_operators;
};

struct sg_clique {
    struct sg_clique *next; /* in the list of cliques */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* joined, pending, error, splits */
    char id[NCCL_UNIQUE_ID_BYTES];
    int n, joined, left;
    uint64_t began_ns; /* the first rank joined */
    struct ncclComm *members[SG_NCCL_RANKS_MAX];
    struct sg_exchange *exchanges, *spare;
    struct sg_split *splits;
    ncclResult_t error; /* ncclSuccess: it has not failed */
    char why[512];
};

/** Notes `result` as what the process's last error was, with a sentence; returns it. */
ncclResult_t sg_nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** 64 random bytes, and zeros; false: the system gives none. */
bool sg_nccl_new_id(ncclUniqueId *id);

/**
 * Joins `id` as `rank` of `n`, on the device of the current context. With `primary`, the communicator keeps that device's primary
 * context. Does not wait for the others.
 */
ncclResult_t sg_clique_join(const ncclUniqueId *id, int n, int rank, bool blocking, bool primary,
                            ncclComm_t *comm);
/** Waits until all ranks have joined, or the clique has failed. */
ncclResult_t sg_clique_wait_joined(ncclComm_t comm);
/** Enters the split that is comm's next. The new communicator, or NULL for no colour, is at *out when sg_clique_wait_split has returned. */
ncclResult_t sg_clique_split(ncclComm_t comm, int color, int key, bool blocking, ncclComm_t *out,
                             struct sg_split **split);
ncclResult_t sg_clique_wait_split(ncclComm_t comm, struct sg_split *split);
/** Waits until what comm has put into streams is done. */
ncclResult_t sg_clique_wait_idle(ncclComm_t comm);
/** The rank leaves. With `abort`, the clique fails first. Frees comm. */
ncclResult_t sg_clique_leave(ncclComm_t comm, bool abort);
/** ncclSuccess, ncclInProgress or how it failed, which becomes the last error. */
ncclResult_t sg_clique_state(ncclComm_t comm);
/** The same without looking whether all have joined. */
ncclResult_t sg_clique_failed(struct sg_clique *clique);
/** The clique fails: with its lock held. The first failure counts. */
void sg_clique_fail_locked(struct sg_clique *clique, ncclResult_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
