/*
 * wait.c - more calls that wait at the same time than a session has threads: those that find none fail, and
 * nobody else is held up by them.
 */
#include "server/core/leader_followers.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

enum { TOO_MANY = 5, WAITING = RG_EXECUTORS_MAX - 1 }; /* one thread executes records */

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    stub_pass();
    return CUDA_SUCCESS;
}

static void expect_some(struct client *c, unsigned n, CUresult result)
{
    for (unsigned i = 0; i < n; i++) {
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY);
        CHECK(c->got.reply.token >= 1000 && c->got.reply.result == (int)result);
    }
}

int main(void)
{
    stub_driver_use(stub_succeed);
    atomic_store(&stub_busy, true);
    stub_hold(true);
    rg_driver.cuStreamSynchronize = synchronize;
    struct client *c = client_create();
    const uint64_t stream = handle(RG_KIND_STREAM, 7);
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, stream);
    for (unsigned i = 1; i <= WAITING + TOO_MANY; i++) {
        put(c, RG_OP_rgThreadSetContext, i, 0, "8", handle(RG_KIND_CONTEXT, 0));
        put(c, RG_OP_cuStreamSynchronize, i, 1000 + i, "8", stream);
    }
    send_batch(c);
    expect_some(c, TOO_MANY, CUDA_ERROR_OPERATING_SYSTEM);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 8));
    stub_hold(false);
    expect_some(c, WAITING, CUDA_SUCCESS);
    put(c, RG_OP_cuStreamSynchronize, WAITING + TOO_MANY, 2000, "8",
        stream); /* now there are threads again */
    send_batch(c);
    expect_some(c, 1, CUDA_SUCCESS);
    CHECK(client_destroy(c) == 0);
    return 0;
}
