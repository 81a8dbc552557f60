/*
 * ends_at_once.c - a program that returns from main right behind its first launch, which may then begin while the process ends: it
 * must end well all the same. It runs itself many times, as that is a matter of moments.
 */
#include "tests/fidelity/must.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { RUNS = 20 };

static void launch(void)
{
    static const char ptx[] =
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry none() { ret; }\n";
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction none;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&none, module, "none"));
    CHECK(cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

int main(int argc, char **argv)
{
    char once[] = "once", *arguments[] = {argv[0], once, NULL};
    if (argc > 1) {
        launch();
        return 0;
    }
    for (int i = 0; i < RUNS; i++) { /* the first one makes the code that the others find */
        pid_t child;
        int status = -1;
        if (posix_spawn(&child, argv[0], NULL, NULL, arguments, environ) != 0 ||
            waitpid(child, &status, 0) != child || status != 0) {
            printf("run %d ended with %d\n", i, status);
            return 1;
        }
    }
    return 0;
}
