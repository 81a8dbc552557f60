/*
 * settle.c - transfers end: by a notice, because their record could not be sent, because the application has
 * its memory back, with their session.
 *
 * Whoever ends a transfer waits until nothing is received into its memory or sent from it. None of these
 * waits is for the worker: the reader is at most in the middle of a message, which the end of a session
 * interrupts.
 */
#include "client/core/session.h"
#include "client/transfer/answers.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "transport/memory.h"

bool rg_transfer_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                        size_t bulk_size)
{
    (void)in;
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_find(session, notice->id);
    if (transfer && transfer->kind->notice == notice->type)
        return transfer->kind->progress(transfer, notice, bulk_size);
    pthread_mutex_unlock(&rg_registry_lock);
    return false;
}

bool rg_transfer_cancel(uint64_t id)
{
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_take(id);
    if (transfer) {
        rg_registry_wait_received(transfer->session, id);
        rg_answers_wait_transfer(id);
    }
    pthread_mutex_unlock(&rg_registry_lock);
    if (!transfer)
        return false;
    rg_registry_end(transfer);
    return true;
}

/*
 * The worker writes nothing into the transfer's memory any more. The lock is held, and given up meanwhile: it
 * may be gone then.
 */
static void withdraw(struct rg_transfer *transfer)
{
    struct rg_session *session = transfer->session;
    const uint64_t id = transfer->id;
    void *memory = (void *)(uintptr_t)transfer->memory.address;
    if (!transfer->advertised)
        return;
    pthread_mutex_unlock(&rg_registry_lock);
    rg_conn_withdraw(session->conn, id, memory); /* who ends it meanwhile does so, too: that is no harm */
    pthread_mutex_lock(&rg_registry_lock);
    if ((transfer = rg_registry_find(session, id)))
        transfer->advertised = false;
}

/*
 * The memory is the application's again; the lock is held, and given up while something of it is under way.
 */
static void revoke(struct rg_transfer *transfer)
{
    struct rg_session *session = transfer->session;
    const uint64_t id = transfer->id;
    transfer->revoked = true;
    rg_registry_wait_received(session, id);
    transfer = rg_registry_find(session, id);
    if (transfer)
        withdraw(transfer);
    rg_answers_wait_transfer(id);
}

void rg_transfer_revoke(uint64_t id)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    struct rg_transfer *transfer = rg_registry_find(NULL, id);
    if (transfer)
        revoke(transfer);
    else
        rg_answers_wait_transfer(id); /* its last part */
}

struct range {
    uint64_t start, size;
};

static bool uses(const struct rg_transfer *transfer, const void *user)
{
    const struct range *range = user;
    return !transfer->revoked && rg_region_meets(&transfer->memory, range->start, range->size);
}

static bool uses_queued(const struct rg_transfer *transfer, const void *user)
{
    return transfer->kind->queued && uses(transfer, user);
}

bool rg_transfers_meet(uint64_t start, uint64_t size)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    const bool found =
        rg_registry_search(uses, &(struct range){start, size}) != NULL || rg_answers_meet(start, size);
    return found;
}

void rg_transfers_revoke(uint64_t start, uint64_t size)
{
    RG_UNCANCELLED;
    const struct range range = {start, size};
    RG_SCOPED_LOCK(&rg_registry_lock);
    for (struct rg_transfer *transfer; (transfer = rg_registry_search(uses_queued, &range));)
        revoke(transfer);
    rg_answers_wait_memory(start, size); /* the last of a rendezvous, which is not registered any more */
}

static bool is_of(const struct rg_transfer *transfer, const void *user)
{
    return transfer->session == user;
}

static bool is_advertised_to(const struct rg_transfer *transfer, const void *user)
{
    return transfer->session == user && transfer->advertised;
}

void rg_transfers_drop(struct rg_session *session)
{
    struct rg_transfer *dropped = NULL;
    pthread_mutex_lock(&rg_registry_lock);
    for (struct rg_transfer *transfer; (transfer = rg_registry_search(is_of, session));) {
        rg_registry_take(transfer->id);
        transfer->next = dropped;
        dropped = transfer;
    }
    pthread_mutex_unlock(&rg_registry_lock);
    rg_transfers_settle(session);
    while (dropped) {
        struct rg_transfer *transfer = dropped;
        dropped = transfer->next;
        rg_registry_done(transfer->session, transfer->kind);
        if (transfer->kind->lost)
            transfer->kind->lost(transfer);
        rg_registry_free(transfer);
    }
}

void rg_transfers_settle(const struct rg_session *session)
{
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&rg_registry_lock);
    rg_registry_wait_received(session, 0);
    for (struct rg_transfer *transfer; (transfer = rg_registry_search(is_advertised_to, session));)
        withdraw(transfer);
}
