/*
 * late_data.c - what a peer begins to send of a copy that it has already said to have failed: the stream goes on without it, and the
 * copy is over before the data has come.
 */
#include "tests/server/peers/other_server.h"
#include "tests/server/stub_driver.h"

#include <semaphore.h>

enum { SIZE = 4096 };

static sem_t receives, may_receive, may_end;
static enum rg_status (*recv_bulk)(struct rg_conn *conn, void *buffer, size_t size);

/* The data is on its way for as long as the test wants. */
static enum rg_status recv_late(struct rg_conn *conn, void *buffer, size_t size)
{
    sem_post(&receives);
    sem_wait(&may_receive);
    return recv_bulk(conn, buffer, size);
}

static struct {
    CUresult (*launch)(CUstream stream, CUhostFn function, void *user);
    CUhostFn function;
    void *user;
    unsigned n;
} host;

static void CUDA_CB end_later(void *user)
{
    (void)user;
    sem_wait(&may_end);
    host.function(host.user);
}

/* The second host function of a copy of one chunk is its end. */
static CUresult launch(CUstream stream, CUhostFn function, void *user)
{
    if (++host.n != 2)
        return host.launch(stream, function, user);
    host.function = function;
    host.user = user;
    return host.launch(stream, end_later, NULL);
}

/* The other end of a connection over which the worker receives late. */
static struct rg_conn *connect_peer(struct rg_worker *worker, struct rg_transport_ops *ops)
{
    struct rg_conn *here, *there = connect_here(true, &here);
    *ops = *here->ops;
    recv_bulk = ops->recv_bulk;
    ops->recv_bulk = recv_late;
    here->ops = ops;
    join_peer(worker, here);
    return there;
}

static void begin_copy(struct client *c)
{
    put(c, RG_OP_rgPeerReceive, 0, 0, "8888848", (uint64_t)1 << 40, (uint64_t)SIZE, (uint64_t)SIZE,
        (uint64_t)1, (uint64_t)TRANSFER, PEER, handle(RG_KIND_STREAM, 7));
    send_batch(c);
}

int main(void)
{
    static unsigned char data[SIZE];
    struct rg_transport_ops ops;
    struct rg_message received;
    stub_driver_use(stub_succeed);
    stub_driver_call_host();
    host.launch = rg_driver.cuLaunchHostFunc;
    rg_driver.cuLaunchHostFunc = launch;
    sem_init(&receives, 0, 0);
    sem_init(&may_receive, 0, 0);
    sem_init(&may_end, 0, 0);
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    struct rg_conn *peer = connect_peer(c->worker, &ops);
    begin_copy(c);
    hear(peer, RG_PEER_ASK, &received);
    say(peer, RG_PEER_FAIL, NULL, 0);
    say(peer, RG_PEER_DATA, data, SIZE);
    sem_wait(&receives);
    sem_post(&may_end);
    expect_notice(c, RG_NOTICE_ERROR, 0); /* the copy is over */
    sem_post(&may_receive);
    begin_copy(c); /* another of that number; the connection is still good */
    hear(peer, RG_PEER_ASK, &received);
    sem_post(&may_receive);
    say(peer, RG_PEER_DATA, data, SIZE);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 1));
    stub_driver_wait();
    CHECK(client_destroy(c) == 0);
    rg_conn_destroy(peer);
    return 0;
}
