/*
 * stream_order.c - other streams come after a synchronous copy from the host, which for the client is done when it has been sent: also
 * where the copy's stream has ended meanwhile, and another one is in its place in memory. Over a driver that is never done.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>

#define ADDRESS UINT64_C(0x7f0000000000)

static atomic_uint waits;

static CUresult not_ready(CUevent event)
{
    (void)event;
    return CUDA_ERROR_NOT_READY;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    atomic_fetch_add(&waits, 1);
    return CUDA_SUCCESS;
}

int main(void)
{
    static const char data[64];
    stub_driver_use(stub_succeed);
    rg_driver.cuEventQuery = not_ready;
    rg_driver.cuStreamWaitEvent = wait_event;
    struct client *c = client_create();
    enter_context(c);
    for (uint32_t i = 1; i <= 100; i++) {
        const uint64_t one = handle(RG_KIND_STREAM, 2 * i), other = handle(RG_KIND_STREAM, 2 * i + 1);
        CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 1, one);
        put(c, RG_OP_rgCopyInSmall, 0, 0, "8488b", ADDRESS, 1, (uint64_t)sizeof data, one, data, sizeof data);
        CALL(c, RG_OP_cuStreamQuery, 0, CUDA_SUCCESS, "8", one);
        atomic_store(&waits, 0); /* that was for the copy before */
        CALL(c, RG_OP_cuStreamQuery, 0, CUDA_SUCCESS, "8", one);
        CHECK(atomic_load(&waits) == 0); /* it is the copy's own */
        CALL(c, RG_OP_cuStreamDestroy_v2, 0, CUDA_SUCCESS, "8", one);
        CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 1, other);
        CALL(c, RG_OP_cuStreamQuery, 0, CUDA_SUCCESS, "8", other);
        CHECK(atomic_load(&waits) == 1);
        CALL(c, RG_OP_cuStreamQuery, 0, CUDA_SUCCESS, "8", other);
        CHECK(atomic_load(&waits) == 1);
        CALL(c, RG_OP_cuStreamDestroy_v2, 0, CUDA_SUCCESS, "8", other);
    }
    CHECK(client_destroy(c) == 0);
    return 0;
}
