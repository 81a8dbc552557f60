/*
 * advertised.c - memory of the worker's that its client may write to: each chunk is advertised once, and once more when the
 * connection says that the adverts have ended; but not while something of it is still to be copied.
 */
#include "server/transfer/advertised.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>

enum { SIZE = 2 * RG_ADVERTISED_CHUNK };

/* The worker's end of the connection; each is looked at when the worker has answered. */
static struct rg_transport_ops plain;
static void *adverts[4 * RG_ADVERTISED_CHUNKS];
static unsigned n_adverts;
static bool ends;      /* all adverts have ended, which has not been told yet */
static void *arriving; /* where the first chunk of the next data has been written to; NULL: nowhere */

static enum rg_status advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    (void)conn, (void)base;
    CHECK(!tag && size == RG_ADVERTISED_CHUNK && n_adverts < sizeof adverts / sizeof *adverts);
    for (unsigned i = 0; i < n_adverts; i++)
        CHECK(adverts[i] != memory);
    adverts[n_adverts++] = memory;
    return RG_OK;
}

static bool adverts_ended(struct rg_conn *conn)
{
    (void)conn;
    const bool ended = ends;
    if (ended)
        n_adverts = 0;
    ends = false;
    return ended;
}

static enum rg_status take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    *memory = arriving;
    *size = arriving && most >= RG_ADVERTISED_CHUNK ? RG_ADVERTISED_CHUNK : 0;
    arriving = NULL;
    return *size ? plain.recv_bulk(conn, *memory, *size) : RG_OK;
}

static void watch_adverts(struct rg_transport_ops *ops)
{
    plain = *ops;
    ops->advertise = advertise;
    ops->adverts_ended = adverts_ended;
    ops->take_advertised = take_advertised;
}

static void copy(struct client *c)
{
    static unsigned char data[SIZE];
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)0x10000, (uint64_t)SIZE, (uint64_t)SIZE, (uint64_t)1, 0,
        handle(RG_KIND_STREAM, 7));
    send_bulk(c, data, SIZE);
    CALL(c, RG_OP_cuMemGetInfo_v2, 0, CUDA_SUCCESS, "");
}

static bool is_advertised(const void *memory)
{
    for (unsigned i = 0; i < n_adverts; i++)
        if (adverts[i] == memory)
            return true;
    return false;
}

int main(void)
{
    stub_driver_use(stub_succeed);
    atomic_store(&stub_busy, true);
    struct client *c = client_create_with(false, watch_adverts);
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    copy(c);
    CHECK(n_adverts == RG_ADVERTISED_CHUNKS);

    void *const first = adverts[0];
    arriving = first;
    copy(c);
    CHECK(!arriving && n_adverts == RG_ADVERTISED_CHUNKS);

    ends = true;
    copy(c);
    CHECK(n_adverts == RG_ADVERTISED_CHUNKS - 1 && !is_advertised(first));
    atomic_store(&stub_busy, false);
    copy(c);
    CHECK(n_adverts == RG_ADVERTISED_CHUNKS && is_advertised(first));
    CHECK(client_destroy(c) == 0);
    return 0;
}
