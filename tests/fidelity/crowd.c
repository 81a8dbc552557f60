/*
 * crowd.c - threads with streams of their own: some copy much both ways, the others copy little and wait, all at once. The
 * wire is then full in both directions, and everybody's answers must still come. What comes back is compared.
 *
 *   crowd [THREADS]
 */
#include "must.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, BULKY = 2, BULKY_ROUNDS = 5, ROUNDS = 200, SMALL = 4096, BULK = 24 << 20 };

static CUcontext context;

struct worker {
    pthread_t thread;
    int number, right;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    const int bulky = worker->number < BULKY, rounds = bulky ? BULKY_ROUNDS : ROUNDS;
    const size_t size = bulky ? BULK : SMALL;
    CUdeviceptr device;
    CUstream stream;
    unsigned char *source = malloc(size), *target = malloc(size);
    if (!source || !target)
        exit(2);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&device, size));
    for (int i = 0; i < rounds; i++) {
        memset(source, worker->number * 16 + i % 16, size);
        CHECK(cuMemsetD8Async(device, 0xee, SMALL, stream));
        if (bulky) {
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuMemcpyHtoD_v2(device, source, size));
            CHECK(cuMemcpyDtoH_v2(target, device, size));
        } else {
            size_t free_bytes, total;
            CHECK(cuMemcpyHtoDAsync_v2(device, source, size, stream));
            CHECK(cuMemcpyDtoHAsync_v2(target, device, size, stream));
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuMemGetInfo_v2(&free_bytes, &total));
        }
        worker->right += memcmp(source, target, size) == 0;
    }
    CHECK(cuMemFree_v2(device));
    CHECK(cuStreamDestroy_v2(stream));
    free(source);
    free(target);
    return NULL;
}

int main(int argc, char **argv)
{
    struct worker workers[THREADS_MAX];
    const int n = argc > 1 ? atoi(argv[1]) : 8;
    if (n < 1 || n > THREADS_MAX)
        return 2;
    context = use_first_device();
    for (int i = 0; i < n; i++) {
        workers[i] = (struct worker){.number = i};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 2;
    }
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        printf("thread %d: %d\n", i, workers[i].right);
        wrong += workers[i].right != (i < BULKY ? BULKY_ROUNDS : ROUNDS);
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return wrong != 0;
}
