/*
 * held.c - a program with a session that lasts as long as a test wants, by the driver API alone.
 *
 * usage: held FIFO. Writes a pattern into device memory and says "held"; waits until FIFO has been written to and closed; copies the
 * pattern through the device and back. The last line is "held: ok", and the exit status 0, if it is still the same.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS 100000u

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "held: the driver has no %s\n", name);
        exit(1);
    }
    return found;
}

static void check(const char *what, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "held: %s: error %d\n", what, (int)result);
        exit(1);
    }
}

#define CALL(name, ...) check(#name, ((__typeof__(name) *)find(#name))(__VA_ARGS__))

static void wait_for_word(const char *path)
{
    FILE *fifo = fopen(path, "re");
    if (!fifo) {
        perror(path);
        exit(1);
    }
    while (fgetc(fifo) != EOF)
        ;
    fclose(fifo);
}

int main(int argc, char **argv)
{
    static uint32_t pattern[WORDS], back[WORDS];
    CUdevice device;
    CUcontext context;
    CUdeviceptr first, second;
    if (argc != 2 || !(library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "held: %s\n", argc != 2 ? "usage: held FIFO" : dlerror());
        return 1;
    }
    for (uint32_t i = 0; i < WORDS; i++)
        pattern[i] = i * 2654435761u;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemAlloc_v2, &first, sizeof pattern);
    CALL(cuMemAlloc_v2, &second, sizeof pattern);
    CALL(cuMemcpyHtoD_v2, first, pattern, sizeof pattern);
    CALL(cuCtxSynchronize);
    puts("held");
    fflush(stdout);
    wait_for_word(argv[1]);
    CALL(cuMemcpyDtoD_v2, second, first, sizeof pattern);
    CALL(cuMemcpyDtoH_v2, back, second, sizeof back);
    for (uint32_t i = 0; i < WORDS; i++)
        if (back[i] != pattern[i]) {
            fprintf(stderr, "held: word %u is not what it was\n", i);
            return 1;
        }
    puts("held: ok");
    return 0;
}
