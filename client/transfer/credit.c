/* credit.c - what is taken and what is free again. See credit.h. */
#include "client/transfer/credit.h"

#include "client/core/receiver.h"
#include "client/core/session.h"
#include "generated/client/operations.h"
#include "proto/bulk_credit.h"

#define TOLD_EVERY (RG_BULK_CREDIT / 8)

struct rg_credit {
    _Atomic uint64_t taken, freed; /* bytes since it began */
    atomic_bool told;              /* the worker knows that it is to tell */
};
static struct rg_credit credits[RG_SERVERS_MAX];

static uint64_t in_use(struct rg_credit *room)
{
    /* `freed` first: it never passes what `taken` was when the worker counted */
    const uint64_t freed = atomic_load(&room->freed);
    return atomic_load(&room->taken) - freed;
}

/* False: more than was taken. */
static bool note(struct rg_credit *room, uint64_t freed)
{
    if (freed > atomic_load(&room->taken))
        return false;
    uint64_t known = atomic_load(&room->freed);
    while (known < freed && !atomic_compare_exchange_weak(&room->freed, &known, freed))
        ;
    return true;
}

/* Asks the worker. An error that it tells of besides is not this call's: the next that waits returns it. */
static void ask(struct rg_session *session)
{
    unsigned long long freed = 0;
    const CUresult status = rg_op_rgRoomAsk(&freed);
    if (status == CUDA_SUCCESS)
        (void)note(&credits[session->number], freed);
    else if (atomic_load(&session->ended) == CUDA_SUCCESS)
        rg_session_async_error(session, status, RG_OP_rgRoomAsk);
}

bool rg_credit_take(struct rg_session *session, size_t size)
{
    struct rg_credit *room = &credits[session->number];
    if (!session->op_numbers[RG_OP_rgRoomAsk] || !session->op_numbers[RG_OP_rgRoomTell])
        return true; /* a worker that knows nothing of it */
    if (!atomic_exchange(&room->told, true))
        (void)rg_op_rgRoomTell(TOLD_EVERY);
    atomic_fetch_add(&room->taken, rg_bulk_credit_of(size));
    if (in_use(room) > RG_BULK_CREDIT / 2)
        rg_receiver_poll(session); /* for what the worker has told already */
    if (in_use(room) > RG_BULK_CREDIT)
        ask(session);
    if (in_use(room) <= RG_BULK_CREDIT)
        return true;
    rg_credit_return(session, size);
    return false;
}

void rg_credit_return(struct rg_session *session, size_t size)
{
    atomic_fetch_sub(&credits[session->number].taken, rg_bulk_credit_of(size));
}

bool rg_credit_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                      size_t bulk_size)
{
    (void)in, (void)bulk_size;
    return note(&credits[session->number], notice->arg[0]);
}
