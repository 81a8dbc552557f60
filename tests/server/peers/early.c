/*
 * early.c - what other servers say of copies and waits before the client does: one that says what cannot be, or too much, loses its own
 * connection, and no other's.
 */
#include "tests/server/peers/other_server.h"
#include "tests/server/stub_driver.h"

enum { SECOND = 5, FEW = 64 /* bytes */ };

static struct rg_conn *connect_as(struct client *c, unsigned number)
{
    struct rg_conn *here, *there = connect_here(true, &here);
    join_as(c->worker, number, here);
    return there;
}

static struct client *begin(void)
{
    stub_driver_use(stub_succeed);
    stub_driver_call_host();
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    return c;
}

static void end(struct client *c)
{
    CHECK(client_destroy_behind(c, stub_driver_wait) == 0);
}

/* Until the worker has read what was said before. */
static void settle(struct client *c)
{
    static uint32_t event = 100; /* each call makes one: its answer comes behind what was read */
    for (int i = 0; i < 3; i++) {
        CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, ++event));
        usleep(20000);
    }
}

static void wait_for(struct client *c, unsigned peer)
{
    put(c, RG_OP_rgPeerWait, 0, 0, "848", (uint64_t)TRANSFER, peer, handle(RG_KIND_STREAM, 7));
    send_batch(c);
}

static void expect_lost(struct client *c, unsigned number)
{
    bool lost = false;
    for (int i = 0; i < 3 && !lost; i++) {
        CHECK(receive(c, SOON_MS));
        CHECK(c->got.kind == RG_MESSAGE_NOTICE);
        lost = c->got.notice.type == RG_NOTICE_PEER_LOST && c->got.notice.id == number;
    }
    CHECK(lost);
}

/* More data than the copy has: where that is counted in chunks, which are small, the number of them wraps, or means something else. */
static void asks_for_more_than_there_is(void)
{
    static const uint64_t all[] = {FEW + 1, UINT32_MAX, (uint64_t)UINT32_MAX + 1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct client *c = begin();
        struct rg_conn *peer = connect_as(c, PEER);
        for (uint64_t at = 0, size; at < all[i]; at += size) {
            size = all[i] - at < RG_PEER_CHUNK ? all[i] - at : RG_PEER_CHUNK;
            CHECK(
                say_plain(peer, &(struct rg_peer_message){
                                    .type = RG_PEER_ASK, .transfer = TRANSFER, .offset = at, .size = size}));
        }
        settle(c);
        put(c, RG_OP_rgPeerSend, 0, 0, "8888848", (uint64_t)1 << 40, (uint64_t)FEW, (uint64_t)FEW,
            (uint64_t)1, (uint64_t)TRANSFER, PEER, handle(RG_KIND_STREAM, 7));
        send_batch(c);
        expect_lost(c, PEER);
        end(c);
        rg_conn_destroy(peer);
    }
}

/* A signal for a copy. */
static void says_what_is_of_another_kind(void)
{
    struct client *c = begin();
    struct rg_conn *peer = connect_as(c, PEER);
    CHECK(say_plain(peer, &(struct rg_peer_message){.type = RG_PEER_SIGNAL, .transfer = TRANSFER}));
    settle(c);
    put(c, RG_OP_rgPeerSend, 0, 0, "8888848", (uint64_t)1 << 40, (uint64_t)FEW, (uint64_t)FEW, (uint64_t)1,
        (uint64_t)TRANSFER, PEER, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    expect_lost(c, PEER);
    end(c);
    rg_conn_destroy(peer);
}

/* One speaks of a transfer of another one's, and of as many as it may and one more. */
static void one_server_does_not_speak_for_another(void)
{
    struct client *c = begin();
    struct rg_conn *bad = connect_as(c, PEER), *good = connect_as(c, SECOND);
    CHECK(say_plain(bad, &(struct rg_peer_message){.type = RG_PEER_FAIL, .transfer = TRANSFER}));
    settle(c);
    CHECK(say_plain(good, &(struct rg_peer_message){.type = RG_PEER_SIGNAL, .transfer = TRANSFER}));
    settle(c);
    for (uint64_t i = 0; i < RG_PEER_EARLY_MAX; i++)
        if (!say_plain(bad, &(struct rg_peer_message){.type = RG_PEER_FAIL, .transfer = 1000 + i}))
            break;
    expect_lost(c, PEER);
    CHECK(say_plain(good, &(struct rg_peer_message){.type = RG_PEER_SIGNAL, .transfer = 2}));
    settle(c);
    wait_for(c, SECOND);
    expect_nothing(c); /* no error, and the connection is there */
    end(c);
    rg_conn_destroy(bad);
    rg_conn_destroy(good);
}

int main(void)
{
    asks_for_more_than_there_is();
    says_what_is_of_another_kind();
    one_server_does_not_speak_for_another();
    return 0;
}
