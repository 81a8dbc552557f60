/*
 * exclusive.c - a device that one process at a time may use (SOFTGPU_BEHAVE=nvidia:exclusive=1): a second one is refused while
 * the first has a context, any of its own is not, and whoever ends, in order or not, makes room.
 */
#include "tests/fidelity/must.h"

#include <stdlib.h>
#include <sys/wait.h>

#define WAIT_US 20000
#define TRIES   500

/* In another process: makes a context, and ends as it is told. Returns what making it said. */
static int of_another_process(const char *self, const char *how)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, how, (char *)NULL);
        _exit(99);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int other(const char *how)
{
    CUcontext context;
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    const CUresult result = cuCtxCreate_v2(&context, 0, device);
    if (*how == 'a') /* as it is: nothing is cleaned up */
        _exit((int)result);
    if (result == CUDA_SUCCESS)
        CHECK(cuCtxDestroy_v2(context));
    return (int)result;
}

/* A server takes a moment to see that a client is gone. */
static int once_it_is_free(const char *self, const char *how)
{
    int result = -1;
    for (int i = 0; i < TRIES && result != CUDA_SUCCESS; i++) {
        result = of_another_process(self, how);
        if (result != CUDA_SUCCESS)
            usleep(WAIT_US);
    }
    return result;
}

int main(int argc, char **argv)
{
    CUcontext one, two;
    CUdevice device;
    CUdeviceptr memory;
    int mode = -1;
    if (argc > 1)
        return other(argv[1]);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
    printf("mode %d\n", mode);
    printf("while this process has no context: %d\n", of_another_process(argv[0], "in order"));
    printf("after one that cleaned up nothing: %d\n", once_it_is_free(argv[0], "abruptly"));
    printf("and again: %d\n", once_it_is_free(argv[0], "in order"));
    CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    for (int i = 0; i < TRIES && result == CUDA_ERROR_DEVICE_UNAVAILABLE; i++) {
        result = cuCtxCreate_v2(&one, 0, device);
        if (result != CUDA_SUCCESS)
            usleep(WAIT_US);
    }
    printf("a context: %d\n", (int)result);
    printf("a second one: %d\n", (int)cuCtxCreate_v2(&two, 0, device));
    printf("beside them: %d\n", of_another_process(argv[0], "in order"));
    CHECK(cuCtxDestroy_v2(two));
    printf("beside one: %d\n", of_another_process(argv[0], "in order"));
    CHECK(cuCtxSetCurrent(one));
    CHECK(cuMemAlloc_v2(&memory, 64));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxDestroy_v2(one));
    printf("beside none: %d\n", once_it_is_free(argv[0], "in order"));
    return 0;
}
