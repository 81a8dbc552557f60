/*
 * idle_session.c - a session that does nothing: it begins, says how long that took ("began ns SAMPLE"), and ends with its input.
 *
 * It finds the driver as any program does, by the name of its library, so that `remote-gpu run` gives it a server's.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(void)
{
    const uint64_t began = now_ns();
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
    int (*create)(void **, unsigned, int) =
        library ? (int (*)(void **, unsigned, int))dlsym(library, "cuCtxCreate_v2") : NULL;
    char byte;
    if (!init || !create || init(0) != 0 || create(&context, 0, 0) != 0) {
        fprintf(stderr, "idle_session: no session\n");
        return 1;
    }
    printf("began ns %llu\n", (unsigned long long)(now_ns() - began));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
