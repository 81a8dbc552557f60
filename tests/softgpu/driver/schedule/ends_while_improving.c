/*
 * ends_while_improving.c - a program that ends while code of a large kernel is being made, better code in the background or the first
 * by a thread of the program, and has exit handlers that run for long behind those of the driver's library: it must end well. It runs
 * itself some times, and ends later each time.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { RUNS = 3, PIECES = 120, FIRST_US = 200000, STEP_US = 300000, AFTERWARDS_US = 1000000 };
/* Less than the driver's patience with a thread that compiles: one that runs on what has been destroyed may never come back. */
enum { HANGS_AFTER_S = 50 };

static void take_long(void)
{
    usleep(AFTERWARDS_US);
}

/* A large kernel of many loops, in which threads go apart, with barriers between. */
static char *write_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
          ".reg .b64 %p<2>; .reg .b32 %a<5>; .reg .f32 %f<4>; .reg .pred %q; .shared .align 4 .b8 s[4096];\n"
          "ld.param.u64 %p1, [p]; mov.u32 %a1, %tid.x; mov.u32 %a2, s; mad.lo.u32 %a3, %a1, 4, %a2;\n"
          "mul.wide.u32 %p0, %a1, 4; add.s64 %p1, %p1, %p0; mov.f32 %f1, 0f3F800000;\n",
          out);
    for (int i = 0; i < PIECES; i++)
        fprintf(out,
                "ld.global.u32 %%a4, [%%p1+%d]; mov.u32 %%a2, 0;\n"
                "L%d: setp.lt.u32 %%q, %%a4, %d; @%%q bra M%d;\n"
                "ld.global.f32 %%f2, [%%p1+%d]; fma.rn.f32 %%f1, %%f1, %%f2, %%f2; sqrt.rn.f32 %%f1, %%f1;\n"
                "bra N%d;\nM%d: ex2.approx.f32 %%f1, %%f1; st.global.f32 [%%p1+%d], %%f1;\n"
                "N%d: add.u32 %%a2, %%a2, 1; setp.lt.u32 %%q, %%a2, %d; @%%q bra L%d;\n"
                "st.shared.f32 [%%a3], %%f1; bar.sync 0; ld.shared.f32 %%f3, [%%a3+4];\n"
                "add.f32 %%f1, %%f1, %%f3; bar.sync 0;\n",
                i * 4, i, i * 1000, i, i * 8, i, i, i * 16, i, 3 + i % 7, i);
    fputs("st.global.f32 [%p1], %f1; ret;\n}\n", out);
    fclose(out);
    return text;
}

#define FIND(name, symbol)                                                                                   \
    __typeof__(name) *name##_ = (__typeof__(name) *)dlsym(library, symbol);                                  \
    if (name##_ == NULL)                                                                                     \
    return 2

struct loading {
    __typeof__(cuFuncLoad) *call;
    CUfunction function;
};

static void *load(void *argument)
{
    const struct loading *loading = argument;
    return loading->call(loading->function) == CUDA_SUCCESS ? NULL : argument;
}

/* As a program does that uses the CUDA runtime: the library is loaded after the program has registered handlers. */
static int run_once(const char *path, useconds_t wait, bool by_thread)
{
    CUcontext context;
    CUmodule module;
    CUfunction function;
    char *text = write_text();
    void *library;
    alarm(HANGS_AFTER_S);
    if (atexit(take_long) != 0 || (library = dlopen(path, RTLD_NOW)) == NULL)
        return 2;
    FIND(cuInit, "cuInit");
    FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
    FIND(cuModuleLoadData, "cuModuleLoadData");
    FIND(cuModuleGetFunction, "cuModuleGetFunction");
    FIND(cuFuncLoad, "cuFuncLoad");
    if (cuInit_(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent_(context) != CUDA_SUCCESS || cuModuleLoadData_(&module, text) != CUDA_SUCCESS ||
        cuModuleGetFunction_(&function, module, "k") != CUDA_SUCCESS)
        return 3;
    static struct loading loading;
    loading = (struct loading){cuFuncLoad_, function};
    pthread_t thread;
    if (by_thread ? pthread_create(&thread, NULL, load, &loading) != 0 : load(&loading) != NULL)
        return 3;
    free(text);
    usleep(wait);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 3)
        return run_once(argv[1], (useconds_t)strtoul(argv[2], NULL, 10), *argv[3] == 't');
    if (argc < 2)
        return 2;
    for (int i = 0; i < 2 * RUNS; i++) {
        char wait[16], who[2] = {i % 2 == 0 ? 'm' : 't', '\0'};
        char *arguments[] = {argv[0], argv[1], wait, who, NULL};
        pid_t child;
        int status = -1;
        snprintf(wait, sizeof(wait), "%d", FIRST_US + i / 2 * STEP_US);
        if (posix_spawn(&child, argv[0], NULL, NULL, arguments, environ) != 0 ||
            waitpid(child, &status, 0) != child || status != 0) {
            printf("run %d ended with %d\n", i, status);
            return 1;
        }
    }
    return 0;
}
