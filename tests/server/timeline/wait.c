/*
 * wait.c - more calls that wait at the same time than a session has threads: those that find none fail, and
 * nobody else is held up by them.
 */
#include "server/core/leader_followers.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>

enum { TOO_MANY = 5, WAITING = RG_EXECUTORS_MAX - 1 }; /* one thread executes records */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool open_now;

static CUresult query(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_NOT_READY;
}

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    pthread_mutex_lock(&lock);
    while (!open_now)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
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
    rg_driver.cuStreamQuery = query;
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
    pthread_mutex_lock(&lock);
    open_now = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    expect_some(c, WAITING, CUDA_SUCCESS);
    put(c, RG_OP_cuStreamSynchronize, WAITING + TOO_MANY, 2000, "8",
        stream); /* now there are threads again */
    send_batch(c);
    expect_some(c, 1, CUDA_SUCCESS);
    CHECK(client_destroy(c) == 0);
    return 0;
}
