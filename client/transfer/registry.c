/* registry.c - see registry.h. */
#include "client/transfer/registry.h"

#include "client/core/probe.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/transfer/transfer.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "transport/memory.h"

#include <stdlib.h>

#define COPY_SMALL 16384u /* bytes that a connection holds while nobody reads */

pthread_mutex_t rg_registry_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t rg_registry_idle = PTHREAD_COND_INITIALIZER;

static struct rg_hash_table transfers; /* by id */
static uint64_t next_id = 1;
static unsigned n_host_writers;
static unsigned
    n_queued_reads[RG_SERVERS_MAX]; /* those of them whose data the worker sends, of each session */
/*
 * What the thread that reads a session's connection receives into just now, by its id; of each session. 0:
 * nothing.
 */
static uint64_t receiving[RG_SERVERS_MAX];

void *rg_registry_new(struct rg_session *session, const struct rg_transfer_kind *kind, size_t size)
{
    struct rg_transfer *transfer = calloc(1, size);
    if (!transfer)
        return NULL;
    transfer->session = session;
    transfer->kind = kind;
    return transfer;
}

uint64_t rg_registry_add(struct rg_transfer *transfer)
{
    struct rg_session *const session = transfer->session;
    const struct rg_transfer_kind *const kind = transfer->kind;
    const size_t size = rg_region_size(&transfer->memory);
    pthread_mutex_lock(&rg_registry_lock);
    const uint64_t id = next_id++;
    transfer->id = id;
    rg_hash_table_add(&transfers, &transfer->link, id);
    n_host_writers += kind->writes_host;
    n_queued_reads[session->number] += kind->writes_host && kind->queued;
    pthread_mutex_unlock(&rg_registry_lock);
    if (kind->awaited) /* its data may come with the reply instead */
        return id;
    rg_probe_bytes(kind->sends ? size : 0, kind->sends ? 0 : size);
    if (kind->queued && !kind->sends && size <= COPY_SMALL)
        rg_receiver_expect_copy(session);
    else
        rg_receiver_expect_notices(session, 1);
    return id;
}

struct rg_transfer *rg_registry_find(const struct rg_session *session, uint64_t id)
{
    struct rg_transfer *transfer = (struct rg_transfer *)rg_hash_table_first(&transfers, id);
    return transfer && (!session || transfer->session == session) ? transfer : NULL;
}

struct rg_transfer *rg_registry_take(uint64_t id)
{
    struct rg_transfer *transfer = rg_registry_find(NULL, id);
    if (transfer)
        rg_hash_table_remove(&transfers, &transfer->link);
    return transfer;
}

struct rg_transfer *rg_registry_search(bool (*match)(const struct rg_transfer *transfer, const void *user),
                                       const void *user)
{
    struct rg_hash_link *at = NULL;
    while ((at = rg_hash_table_after(&transfers, at)) && !match((struct rg_transfer *)at, user))
        ;
    return (struct rg_transfer *)at;
}

void rg_registry_done(const struct rg_session *session, const struct rg_transfer_kind *kind)
{
    if (!kind->writes_host)
        return;
    RG_SCOPED_LOCK(&rg_registry_lock);
    n_host_writers--;
    n_queued_reads[session->number] -= kind->queued;
}

void rg_registry_end(struct rg_transfer *transfer)
{
    rg_registry_done(transfer->session, transfer->kind);
    if (!transfer->kind->awaited)
        rg_receiver_expect_notices(transfer->session, -1);
    rg_registry_free(transfer);
}

bool rg_transfers_may_write_host(void)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    return n_host_writers != 0;
}

bool rg_transfers_read_of(const struct rg_session *session)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    return n_queued_reads[session->number] != 0;
}

void rg_registry_receiving(const struct rg_session *session, uint64_t id)
{
    receiving[session->number] = id;
}

struct rg_transfer *rg_registry_received(const struct rg_session *session, uint64_t ended)
{
    RG_SCOPED_LOCK(&rg_registry_lock);
    receiving[session->number] = 0;
    pthread_cond_broadcast(&rg_registry_idle);
    return ended ? rg_registry_take(ended) : NULL;
}

void rg_registry_wait_received(const struct rg_session *session, uint64_t id)
{
    RG_UNCANCELLED;
    const uint64_t *now = &receiving[session->number];
    while (id ? *now == id : *now != 0)
        pthread_cond_wait(&rg_registry_idle, &rg_registry_lock);
}

void rg_registry_free(struct rg_transfer *transfer)
{
    if (transfer && transfer->advertised)
        rg_conn_withdraw(transfer->session->conn, transfer->id, (void *)(uintptr_t)transfer->memory.address);
    free(transfer);
}
