/*
 * deferred.c - what a session may have waiting behind streams that never get there: transfers and host
 * functions beyond that fail, each is told, and the rest of the session goes on.
 */
#include "server/transfer/deferred.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

enum { AT_ONCE = 2000, AREA = 1u << 30 }; /* records of a batch; bytes of device memory, as the driver says */

static uint64_t next_id = 1;

/* Puts deferred reads until one is refused; how many there are then. */
static uint64_t fill(struct client *c)
{
    uint64_t refused = 0;
    while (!refused) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            put(c, RG_OP_rgCopyOutDeferred, 0, 0, "888888", (uint64_t)1 << 40, (uint64_t)AREA, (uint64_t)AREA,
                (uint64_t)1, next_id++, handle(RG_KIND_STREAM, 7));
        put(c, RG_OP_cuEventCreate, 0, 5, "48", 0, handle(RG_KIND_EVENT, (uint32_t)next_id));
        send_batch(c);
        do {
            CHECK(receive(c, 20000));
            if (c->got.kind == RG_MESSAGE_NOTICE && c->got.notice.type == RG_NOTICE_DEFERRED_READ) {
                CHECK(c->got.notice.arg[2] == 1 && c->got.notice.arg[1] == 0);
                refused = refused ? refused : c->got.notice.id;
            }
        } while (c->got.kind != RG_MESSAGE_REPLY);
        CHECK(c->got.reply.async_result == (refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
    }
    return refused - 1;
}

int main(void)
{
    stub_driver_use(stub_succeed); /* its streams do nothing at all */
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    const uint64_t n = fill(c);
    CHECK(n > 1000 && rg_deferred_of(c->worker)->bytes <= RG_DEFERRED_MAX);
    /* what takes little finds room for a while, and then is told as well */
    for (unsigned i = 0; i < 1000; i++)
        put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)1 << 50 | i, 0, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    for (uint64_t expected = 0; !expected; expected = c->got.notice.id)
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_NOTICE &&
              c->got.notice.type == RG_NOTICE_HOST_CALL && c->got.notice.arg[1] == 1);
    CHECK(client_destroy(c) == 0);
    return 0;
}
