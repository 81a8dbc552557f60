/*
 * wake.c - the end of a session while a host function of the driver waits for the client, and the driver cannot answer
 * a question before it has returned: the function is released first, so the session ends.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool asked, released;
static atomic_uint running;

struct call {
    CUhostFn function;
    void *argument;
};

static void *run(void *arg)
{
    struct call *call = arg;
    call->function(call->argument);
    free(call);
    if (atomic_fetch_sub(&running, 1) == 1 && atomic_load(&asked))
        atomic_store(&released, true);
    return NULL;
}

static CUresult launch_host(CUstream stream, CUhostFn called, void *user)
{
    struct call *call = malloc(sizeof *call);
    pthread_t thread;
    (void)stream;
    *call = (struct call){called, user};
    atomic_fetch_add(&running, 1);
    CHECK(pthread_create(&thread, NULL, run, call) == 0);
    pthread_detach(thread);
    return CUDA_SUCCESS;
}

/* As behind a lock of the driver's that the stream keeps until its host function has returned. */
static CUresult query(CUevent event)
{
    (void)event;
    atomic_store(&asked, true);
    while (!atomic_load(&released))
        usleep(1000);
    return CUDA_ERROR_NOT_READY;
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED; /* so that a host function waits */
}

int main(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuLaunchHostFunc = launch_host;
    rg_driver.cuStreamWaitValue32_v2 = wait_value;
    rg_driver.cuEventQuery = query;
    struct client *c = client_create();
    enter_context(c);
    CALL(c, RG_OP_cuStreamCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_STREAM, 7));
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 8));
    put(c, RG_OP_rgHostCall, 0, 0, "848", (uint64_t)5, 0, handle(RG_KIND_STREAM, 7));
    send_batch(c);
    expect_notice(c, RG_NOTICE_HOST_CALL, 5);
    put(c, RG_OP_rgEventWatch, 0, 0, "88", (uint64_t)9, handle(RG_KIND_EVENT, 8));
    send_batch(c);
    while (!atomic_load(&asked) || atomic_load(&running) > 1)
        usleep(1000);
    CHECK(atomic_load(&running) == 1 && !atomic_load(&released));
    CHECK(client_destroy(c) == 0);
    return 0;
}
