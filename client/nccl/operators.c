/* operators.c - operators that programs make, which belong to communicators: their numbers are the server's. See nccl.h. Any thread. */
#include "client/core/home.h"
#include "client/nccl/nccl.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the operators of all communicators; a leaf */

/* Also one that calls alone still have; NULL: there is none of that number. The lock is held. */
static struct rg_nccl_operator *find(ncclComm_t comm, int number)
{
    for (size_t i = 0; i < comm->n_operators; i++)
        if (comm->operators[i].number == number)
            return &comm->operators[i];
    return NULL;
}

bool rg_nccl_knows_operator(ncclComm_t comm, int op, ncclDataType_t type)
{
    if (op >= 0 && op < ncclNumOps)
        return true;
    RG_SCOPED_LOCK(&lock);
    const struct rg_nccl_operator *made = find(comm, op);
    return made && !made->ended && made->type == type;
}

static bool add_operator(ncclComm_t comm, int number, ncclDataType_t type)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_nccl_operator *more = realloc(comm->operators, (comm->n_operators + 1) * sizeof *more);
    if (!more)
        return false;
    comm->operators = more;
    more[comm->n_operators++] = (struct rg_nccl_operator){.number = number, .type = type};
    return true;
}

/* The program has no use for it any more: whether it was there. *now: nor has a call that is kept, and it is gone. */
static bool drop_operator(ncclComm_t comm, int number, bool *now)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_nccl_operator *made = find(comm, number);
    if (!made || made->ended)
        return false;
    made->ended = true;
    *now = !made->calls;
    if (*now)
        *made = comm->operators[--comm->n_operators];
    return true;
}

static ncclResult_t end_operator(ncclComm_t comm, int number)
{
    int result = ncclSystemError;
    const CUresult status =
        rg_op_rgNcclOperatorEnd(comm->number, number, &result, rg_home_of_session(comm->session));
    return rg_nccl_answered(comm->session, "ncclRedOpDestroy", status, result);
}

void rg_nccl_operator_keep(ncclComm_t comm, int op)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_nccl_operator *made = find(comm, op);
    if (made)
        made->calls++;
}

void rg_nccl_operator_release(ncclComm_t comm, int op)
{
    pthread_mutex_lock(&lock);
    struct rg_nccl_operator *made = find(comm, op);
    const bool last = made && --made->calls == 0 && made->ended;
    if (last)
        *made = comm->operators[--comm->n_operators];
    pthread_mutex_unlock(&lock);
    if (last)
        (void)end_operator(comm, op);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    const size_t width = rg_nccl_type_size(type);
    if (!op || !scalar || !comm || !width ||
        (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
        return rg_nccl_fail(ncclInvalidArgument,
                            "ncclRedOpCreatePreMulSum: a value is missing or not one of NCCL's");
    unsigned long long value = (uintptr_t)scalar;
    if (residence == ncclScalarHostImmediate) {
        value = 0;
        memcpy(&value, scalar, width);
    }
    int number = 0, result = ncclSystemError;
    const CUresult status = rg_op_rgNcclOperator(comm->number, type, residence, value, &number, &result,
                                                 rg_home_of_session(comm->session));
    const ncclResult_t made = rg_nccl_answered(comm->session, "ncclRedOpCreatePreMulSum", status, result);
    if (made != ncclSuccess)
        return made;
    *op = (ncclRedOp_t)number;
    return add_operator(comm, number, type) ? ncclSuccess : rg_nccl_fail(ncclSystemError, "out of memory");
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    bool now = false;
    if (!comm || !drop_operator(comm, (int)op, &now))
        return rg_nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: the communicator has no operator %d",
                            (int)op);
    return now ? end_operator(comm, (int)op) : ncclSuccess;
}
