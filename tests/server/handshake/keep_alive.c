/* keep_alive.c - clients that take nothing, and do not go either, keep no worker: not by its last words to them. */
#include "server/handshake/keep_alive.h"

#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_bool full, waits;
static bool interrupted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum rg_status (*plain_send)(struct rg_conn *conn, struct rg_send *message);
static void (*plain_interrupt)(struct rg_conn *conn);

/* There is no room at the client's end, and there will be none. */
static enum rg_status send_into_full(struct rg_conn *conn, struct rg_send *message)
{
    if (!atomic_load(&full))
        return plain_send(conn, message);
    pthread_mutex_lock(&lock);
    atomic_store(&waits, true);
    while (!interrupted)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return RG_ERR_CLOSED;
}

static void interrupt(struct rg_conn *conn)
{
    pthread_mutex_lock(&lock);
    interrupted = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    plain_interrupt(conn);
}

static void change(struct rg_transport_ops *ops)
{
    plain_send = ops->send;
    plain_interrupt = ops->interrupt;
    ops->send = send_into_full;
    ops->interrupt = interrupt;
}

int main(void)
{
    stub_driver_use(stub_succeed);
    struct client *c = client_create_with(false, change);
    CHECK(rg_keep_alive_start(c->worker, 1) == RG_OK);
    enter_context(c);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    atomic_store(&full, true);
    const struct rg_message_header none = {
        .kind = 99, .version = RG_PROTOCOL_MAJOR, .count = 1, .seq = c->seq};
    CHECK(send_raw(c, &none, sizeof none, NULL, 0)); /* a violation, of which the client is to be told */
    CHECK(rg_worker_wait(c->worker) == 1);
    CHECK(atomic_load(&waits) && interrupted);
    CHECK(client_destroy(c) == 1);
    return 0;
}
