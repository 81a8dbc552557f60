/*
 * A thread that launches into a stream that does not go on is held up there, as by GPUs' drivers: it can neither fill memory nor
 * keep who waits for the context waiting for ever longer. Other streams of the context take launches meanwhile.
 */
#include "tests/ok.h"
#include "tests/softgpu/driver/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { LAUNCHES = 5000, ROOM = 1024 };

static CUcontext context;
static CUfunction small;
static CUstream held;
static _Atomic int launched;

static void launch(CUfunction function, CUstream stream, void **parameters)
{
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void *flood(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < LAUNCHES; i++) {
        launch(small, held, NULL);
        launched++;
    }
    return NULL;
}

int main(void)
{
    CUmodule module;
    CUfunction wait_flag;
    CUstream other;
    void *flag;
    pthread_t thread;
    use_first_device();
    OK(cuCtxGetCurrent(&context));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&small, module, "small"));
    OK(cuModuleGetFunction(&wait_flag, module, "wait_flag"));
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc(&flag, 4, 0));
    *(uint32_t *)flag = 0;
    launch(wait_flag, held, (void *[]){&flag});
    if (pthread_create(&thread, NULL, flood, NULL) != 0)
        return 1;
    while (launched < ROOM - 1)
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* time for more, if there were room */
    const int before = launched;
    launch(small, other, NULL);
    OK(cuStreamSynchronize(other));
    __atomic_store_n((uint32_t *)flag, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    printf("%d launches at first, then %d\n", before, launched);
    return before == ROOM - 1 ? 0 : 1;
}
