/*
 * nccl.h - what the files of this folder share: NCCL's functions, executed by the servers' own NCCL.
 *
 * A communicator is a structure here and a number for the worker (proto/api/nccl.api). The calls of a group are kept by the thread
 * until the group ends; then one record has them all, and comes behind what the thread has put into its streams before. Gradients
 * never come here.
 *
 * What is wrong with a call by itself is found here, with NCCL's codes, in the order of its parameters; the rest the server's library
 * finds. Failures are told by ncclGetLastError, the server's as well.
 */
#ifndef RG_CLIENT_NCCL_NCCL_H
#define RG_CLIENT_NCCL_NCCL_H

#include "client/core/session.h"
#include "generated/proto/nccl.h"
#include "proto/nccl/call.h"

#include <stdatomic.h>
#include <stdbool.h>

/** The ranks of this process on one server that belong to one communicator of NCCL's. Under the lock of communicator.c. */
struct rg_nccl_clique {
    struct rg_nccl_clique *next;
    const struct rg_session *session;
    uint64_t key[16]; /* the id, or what it was split from, when and with which colour */
    uint64_t whole;   /* the number of the communicator of NCCL's, the same on all servers */
    size_t here;      /* how many there are */
    size_t named;     /* of these, by a group that is looked at */
};

struct ncclComm {
    uint32_t number;
    const struct rg_session *session;
    struct rg_nccl_clique *clique;
    uint64_t splits, named_by;
    atomic_bool begun;           /* the sessions of its ranks are connected to each other, if they need be */
    atomic_bool ready;           /* it has been told to be at rest: of one that does not block */
    _Atomic ncclResult_t failed; /* as the program has been told; ncclSuccess: it has not */
    int ranks, rank;
    atomic_uint places; /* of other processes that its worker has named */
    CUdevice device;    /* as the program numbers it */
    bool blocking, finalized;
    uint64_t collectives; /* that a trace has been told of */
    unsigned graphs;      /* nodes of graphs with calls of it */
    atomic_uint
        held; /* by the program, and by threads that are inside of a call: it is freed behind the last of them */
    bool left, over; /* the program has ended it; has aborted it. These three under a lock of capture.c. */
    /* operators that the program has made: their numbers and types. Under a lock of operators.c. */
    struct rg_nccl_operator {
        int number;
        ncclDataType_t type;
        unsigned calls; /* of graphs, and of groups that have not ended, with it */
        bool ended;     /* by the program: it goes with the last of them */
    } * operators;
    size_t n_operators;
};

/**
 * Whether these communicators are all that this process has of their cliques: then nothing that waits for other ranks waits for
 * records that come later.
 */
bool rg_nccl_comms_complete(const ncclComm_t *comms, size_t n);
/**
 * A communicator of `session` that has a number and is of the clique of that key, and nothing else; NULL: there are too many, or no
 * memory.
 */
ncclComm_t rg_nccl_comm_make(const struct rg_session *session, const uint64_t key[16]);
/** How many ranks of its clique it stands for, itself included: those of this process on its server. */
size_t rg_nccl_comm_ranks_here(const struct ncclComm *comm);
/** Takes over what is said there (common/cuda/nccl_config.h). */
ncclResult_t rg_nccl_check_config(const ncclConfig_t *config, bool *blocking);
/**
 * It stays what it is, whoever ends it, until it is let go: by the program, whose it is from rg_nccl_comm_make on, and by those who are
 * inside of a call. Then it goes, and another one may get its number.
 */
void rg_nccl_comm_hold(ncclComm_t comm);
void rg_nccl_comm_let_go(ncclComm_t comm);
/** Frees what the program has left already; but for one that is `over`, its worker ends it first. */
void rg_nccl_comm_end(ncclComm_t comm, bool over);
/** ncclSuccess, or why `function` cannot use it: it has failed, or is still beginning, as NCCL has it. May ask the server. */
ncclResult_t rg_nccl_ready(const char *function, ncclComm_t comm);
/** Whether `op` is NCCL's, or was made for the communicator and the type. */
bool rg_nccl_knows_operator(ncclComm_t comm, int op, ncclDataType_t type);
/** A call of a graph, or of a group until it ends, has the operator, or has it no more. NCCL's own are let be. */
void rg_nccl_operator_keep(ncclComm_t comm, int op);
void rg_nccl_operator_release(ncclComm_t comm, int op);

/** Notes what went wrong, a sentence; returns `result`. */
ncclResult_t rg_nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/**
 * What came of a record of the session: of `status`, whether it was executed, and `result`, which NCCL then said. Asks the server why,
 * if it failed.
 */
ncclResult_t rg_nccl_answered(const struct rg_session *session, const char *what, CUresult status,
                              int result);

/** A communicator that is to begin: where the program has it then, itself, and what its worker is told. */
struct rg_nccl_begun {
    ncclComm_t *out, comm;
    struct rg_nccl_beginning wire;
};

/** Begins communicators, on whichever servers they are (beginning.c); if one fails, none is there. */
ncclResult_t rg_nccl_begin_all(struct rg_nccl_begun *beginnings, size_t n);
/** None of them is to begin. */
void rg_nccl_begin_none(struct rg_nccl_begun *beginnings, size_t n);

/** A call, as it is kept until its group ends, or its graph is launched. */
struct rg_nccl_submitted {
    ncclComm_t comm;
    uint64_t capture; /* that its stream takes part in; 0: none */
    struct rg_nccl_call wire;
};

/** Tells whoever records it what the session's server has to exchange with others for its calls among these, whose record was put just now. */
void rg_nccl_tell_probe(const struct rg_nccl_submitted *calls, size_t n, const struct rg_session *session);
/** Sends calls, of streams that are not being captured, as one group. */
ncclResult_t rg_nccl_run(const struct rg_nccl_submitted *calls, size_t n);
/**
 * Fills in call->capture; ncclSuccess, or why the call, of the function `name`, cannot be: its stream is captured otherwise than those of the n
 * calls of its group that are there. `captured`: some of those are.
 */
ncclResult_t rg_nccl_check_capture(const char *name, struct rg_nccl_submitted *call,
                                   const struct rg_nccl_submitted *group, size_t n, bool captured);
/** Makes nodes of those calls whose streams are captured, one for each communicator, and takes them out: *n becomes what is left. */
ncclResult_t rg_nccl_capture(struct rg_nccl_submitted *calls, size_t *n);
/**
 * Whether graphs have calls of the communicator, which its program ends: then it goes with the last of them (rg_nccl_comm_end). `over`: its
 * worker has ended it, so that no launch can use it.
 */
bool rg_nccl_graphs_keep(ncclComm_t comm, bool over);

/** A failure in a group makes its end fail, too; returns it. */
ncclResult_t rg_nccl_group_failed(ncclResult_t result);
/** A communicator that is to begin, now or when the group ends, as `beginning` says; it gets its number here. */
ncclResult_t rg_nccl_group_begin(ncclComm_t *out, ncclComm_t comm, const struct rg_nccl_beginning *beginning);

#endif
