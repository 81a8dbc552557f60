/* operators.c - operators that programs make, which belong to communicators: their numbers are the server's. See nccl.h. Any thread. */
#include "client/nccl/nccl.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the operators of all communicators; a leaf */

bool rg_nccl_knows_operator(ncclComm_t comm, int op, ncclDataType_t type)
{
    if (op >= 0 && op < ncclNumOps)
        return true;
    RG_SCOPED_LOCK(&lock);
    for (size_t i = 0; i < comm->n_operators; i++)
        if (comm->operators[i].number == op)
            return comm->operators[i].type == type;
    return false;
}

static bool add_operator(ncclComm_t comm, int number, ncclDataType_t type)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_nccl_operator *more = realloc(comm->operators, (comm->n_operators + 1) * sizeof *more);
    if (!more)
        return false;
    comm->operators = more;
    more[comm->n_operators++] = (struct rg_nccl_operator){number, type};
    return true;
}

static bool drop_operator(ncclComm_t comm, int number)
{
    RG_SCOPED_LOCK(&lock);
    for (size_t i = 0; i < comm->n_operators; i++)
        if (comm->operators[i].number == number) {
            comm->operators[i] = comm->operators[--comm->n_operators];
            return true;
        }
    return false;
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
                                                 rg_nccl_home_of(comm->session));
    const ncclResult_t made = rg_nccl_answered(comm->session, "ncclRedOpCreatePreMulSum", status, result);
    if (made != ncclSuccess)
        return made;
    *op = (ncclRedOp_t)number;
    return add_operator(comm, number, type) ? ncclSuccess : rg_nccl_fail(ncclSystemError, "out of memory");
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    if (!comm || !drop_operator(comm, (int)op))
        return rg_nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: the communicator has no operator %d",
                            (int)op);
    int result = ncclSystemError;
    const CUresult status =
        rg_op_rgNcclOperatorEnd(comm->number, (int)op, &result, rg_nccl_home_of(comm->session));
    return rg_nccl_answered(comm->session, "ncclRedOpDestroy", status, result);
}
