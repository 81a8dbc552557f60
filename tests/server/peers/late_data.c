/*
 * late_data.c - what a peer begins to send of a copy that it has already said to have failed: the stream goes on without it, and the
 * copy is over before the data has come.
 */
#include "common/sync/scoped_lock.h"
#include "server/peers/peers.h"
#include "server/transfer/deferred.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "transport/connect/connect.h"

#include <semaphore.h>
#include <string.h>

enum { PEER = 3, TRANSFER = 9, SIZE = 4096, SOON_MS = 20000 };

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

/* The other end of a connection to the worker of another server, of which the client has told. */
static struct rg_conn *connect_peer(struct rg_worker *worker, struct rg_transport_ops *ops)
{
    static const struct rg_client_hello hello = {.purpose = RG_PURPOSE_INTRODUCE, .peer_secret = {1, 2, 3}};
    const struct rg_transport_options options = {.filters = "", .bulk = true};
    struct rg_listener *listener;
    struct rg_conn *here, *there;
    CHECK(rg_transport_listen("mem:late-data", &options, NULL, 0, &listener) == RG_OK);
    CHECK(rg_transport_connect("mem:late-data", &options, NULL, 0, &there) == RG_OK);
    CHECK(rg_listener_accept(listener, SOON_MS, &here) == RG_OK);
    rg_listener_destroy(listener);
    *ops = *here->ops;
    recv_bulk = ops->recv_bulk;
    ops->recv_bulk = recv_late;
    here->ops = ops;
    {
        RG_SCOPED_LOCK(&rg_deferred_of(worker)->lock);
        struct rg_peer *peer = &rg_peers_of(worker)->peers[PEER];
        peer->state = RG_PEER_INVITED;
        memcpy(peer->secret, hello.peer_secret, sizeof peer->secret);
    }
    rg_peers_connect(worker, &hello, here);
    return there;
}

static void say(struct rg_conn *conn, unsigned type, const void *bulk, size_t size)
{
    const struct rg_peer_message message = {.type = type, .transfer = TRANSFER, .size = size};
    const struct iovec part = {.iov_base = (void *)(uintptr_t)&message, .iov_len = sizeof message};
    const struct iovec data = {.iov_base = (void *)(uintptr_t)bulk, .iov_len = size};
    CHECK(rg_conn_send(conn, &(struct rg_send){
                                 .msg = &part, .n_msg = 1, .bulk = &data, .n_bulk = size ? 1 : 0}) == RG_OK);
}

static void expect_message(struct rg_conn *conn, unsigned type)
{
    struct rg_message received;
    struct rg_peer_message message;
    CHECK(rg_conn_recv(conn, SOON_MS, &received) == RG_OK && received.size == sizeof message);
    memcpy(&message, received.data, sizeof message);
    CHECK(message.type == type && message.transfer == TRANSFER);
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
    expect_message(peer, RG_PEER_ASK);
    say(peer, RG_PEER_FAIL, NULL, 0);
    say(peer, RG_PEER_DATA, data, SIZE);
    sem_wait(&receives);
    sem_post(&may_end);
    expect_notice(c, RG_NOTICE_ERROR, 0); /* the copy is over */
    sem_post(&may_receive);
    begin_copy(c); /* another of that number; the connection is still good */
    expect_message(peer, RG_PEER_ASK);
    sem_post(&may_receive);
    say(peer, RG_PEER_DATA, data, SIZE);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 1));
    stub_driver_wait();
    CHECK(client_destroy(c) == 0);
    rg_conn_destroy(peer);
    return 0;
}
