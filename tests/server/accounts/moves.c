/*
 * moves.c - a program of which it is known what it does: so many launches, and so many bytes each way, by copies of each kind; then it
 * says so, and stays until its input ends. moves LAUNCHES BYTES
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/add_kernel.h"
#include "tests/ok.h"

#include <cuda.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const unsigned launches = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    const size_t size = argc > 2 ? (size_t)atol(argv[2]) : 4096;
    CUmodule module;
    CUfunction add;
    CUstream stream;
    CUdeviceptr data;
    unsigned one = 1, sum = 0;
    void *pinned;
    use_first_device();
    OK(cuModuleLoadData(&module, ADD_KERNEL));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, size));
    OK(cuMemHostAlloc(&pinned, size, 0));
    char *pageable = calloc(1, size);
    if (!pageable)
        return 1;
    memset(pinned, 0, size);
    /* in: pageable, pinned, and the word; out: pageable, pinned, and the word */
    OK(cuMemcpyHtoD(data, pageable, size));
    OK(cuMemcpyHtoDAsync(data, pinned, size, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(pageable, data, size));
    OK(cuMemcpyDtoHAsync(pinned, data, size, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyHtoD(data, &sum, sizeof sum));
    for (unsigned i = 0; i < launches; i++)
        OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&data, &one}, NULL));
    OK(cuMemcpyDtoH(&sum, data, sizeof sum));
    printf("%u %zu %zu\n", sum, 2 * size + sizeof sum, 2 * size + sizeof sum);
    fflush(stdout);
    size_t left, total;
    /* what the server says meanwhile is heard in calls that wait for it */
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 100) == 0)
        (void)cuMemGetInfo(&left, &total);
    free(pageable);
    return sum == launches ? 0 : 1;
}
