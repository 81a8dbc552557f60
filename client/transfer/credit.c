/* credit.c - what is taken and what is free again. See credit.h. */
#include "client/transfer/credit.h"

#include "client/core/receiver.h"
#include "client/core/session.h"
#include "common/sync/credit_pool.h"
#include "generated/client/operations.h"
#include "proto/bulk_credit.h"

#define TOLD_EVERY (RG_BULK_CREDIT / 8)

static struct {
    struct rg_credit_pool pool; /* bytes */
    atomic_bool told;           /* the worker knows that it is to tell */
} credits[RG_SERVERS_MAX];

/* Asks the worker. An error that it tells of besides is not this call's: the next that waits returns it. */
static void ask(struct rg_session *session)
{
    unsigned long long freed = 0;
    const CUresult status = rg_op_rgCreditAsk(&freed);
    if (status == CUDA_SUCCESS)
        (void)rg_credit_pool_given(&credits[session->number].pool, freed);
    else if (rg_session_lives(session))
        rg_session_async_error(session, status, RG_OP_rgCreditAsk);
}

bool rg_credit_take(struct rg_session *session, size_t size)
{
    struct rg_credit_pool *pool = &credits[session->number].pool;
    const uint64_t amount = rg_bulk_credit_of(size);
    if (!session->op_numbers[RG_OP_rgCreditAsk] || !session->op_numbers[RG_OP_rgCreditTell])
        return true; /* a worker that knows nothing of it */
    if (!atomic_exchange(&credits[session->number].told, true))
        (void)rg_op_rgCreditTell(TOLD_EVERY);
    if (rg_credit_pool_in_use(pool) + amount > RG_BULK_CREDIT / 2)
        rg_receiver_poll(session); /* for what the worker has told already */
    if (rg_credit_pool_take(pool, amount, RG_BULK_CREDIT))
        return true;
    ask(session);
    return rg_credit_pool_take(pool, amount, RG_BULK_CREDIT);
}

void rg_credit_return(struct rg_session *session, size_t size)
{
    rg_credit_pool_untake(&credits[session->number].pool, rg_bulk_credit_of(size));
}

bool rg_credit_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                      size_t bulk_size)
{
    (void)in, (void)bulk_size;
    return rg_credit_pool_given(&credits[session->number].pool, notice->arg[0]);
}
