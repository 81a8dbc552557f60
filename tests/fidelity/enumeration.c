/* enumeration.c - modules and libraries of some thousand functions with long names: counted, listed, and found by name. */
#include "tests/fidelity/must.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 5000, NAME = 120, ENTRY = 200 };

/* PTX whose function number i is named by 100 letters and i. */
static char *make_image(int functions)
{
    static const char head[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
    char letters[101];
    memset(letters, 'f', 100);
    letters[100] = 0;
    char *image = malloc(sizeof head + (size_t)functions * ENTRY);
    if (!image)
        exit(1);
    char *at = image + sprintf(image, "%s", head);
    for (int i = 0; i < functions; i++)
        at += sprintf(at, ".visible .entry %s%d(.param .u32 n)\n{\nret;\n}\n", letters, i);
    return image;
}

/* Whether each name came once. */
static bool names_are_all(char (*names)[NAME])
{
    static bool seen[FUNCTIONS];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < FUNCTIONS; i++) {
        const int number = atoi(names[i] + 100);
        if (strlen(names[i]) < 101 || number < 0 || number >= FUNCTIONS || seen[number])
            return false;
        seen[number] = true;
    }
    return true;
}

static char names[FUNCTIONS][NAME];

static void list_module(const char *image)
{
    static CUfunction all[FUNCTIONS + 1], again[FUNCTIONS];
    CUmodule module;
    CUfunction by_name;
    unsigned n = 0;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunctionCount(&n, module));
    printf("module: %u functions\n", n);
    CHECK(cuModuleEnumerateFunctions(again, 3, module));
    CHECK(cuModuleEnumerateFunctions(all, FUNCTIONS + 1, module)); /* more than there are */
    printf("those before the end: %s, behind it: %s\n",
           memcmp(all, again, 3 * sizeof *all) ? "other" : "same", all[FUNCTIONS] ? "touched" : "untouched");
    CHECK(cuModuleEnumerateFunctions(again, FUNCTIONS, module));
    printf("again: %s\n", memcmp(all, again, sizeof again) ? "other" : "same");
    for (int i = 0; i < FUNCTIONS; i++) {
        const char *name;
        CHECK(cuFuncGetName(&name, all[i]));
        snprintf(names[i], NAME, "%s", name);
        if (i % 100 == 0)
            printf("number %d: %s\n", i, name);
    }
    printf("names: %s\n", names_are_all(names) ? "all" : "not all");
    CHECK(cuModuleGetFunction(&by_name, module, names[FUNCTIONS - 1]));
    printf("by name: %s\n", by_name == all[FUNCTIONS - 1] ? "same" : "other");
    printf("launch: %d\n", (int)cuLaunchKernel(all[FUNCTIONS / 2], 1, 1, 1, 1, 1, 1, 0, NULL,
                                               (void *[]){&(unsigned){1}}, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
}

static void list_library(const char *image)
{
    static CUkernel all[FUNCTIONS + 1], again[FUNCTIONS];
    CUlibrary library;
    CUkernel by_name;
    CUmodule module;
    CUfunction function, by_module;
    unsigned n = 0;
    CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&by_name, library, names[1234]));
    CHECK(cuLibraryGetKernelCount(&n, library));
    printf("library: %u kernels\n", n);
    CHECK(cuLibraryEnumerateKernels(all, FUNCTIONS + 1, library));
    CHECK(cuLibraryEnumerateKernels(again, FUNCTIONS, library));
    printf("again: %s, behind the end: %s\n", memcmp(all, again, sizeof again) ? "other" : "same",
           all[FUNCTIONS] ? "touched" : "untouched");
    int place = -1;
    for (int i = 0; i < FUNCTIONS; i++) {
        const char *name;
        CHECK(cuKernelGetName(&name, all[i]));
        if (strcmp(name, names[1234]) == 0)
            place = i;
        snprintf(names[i], NAME, "%s", name);
    }
    printf("names: %s; by name: %s\n", names_are_all(names) ? "all" : "not all",
           place >= 0 && all[place] == by_name ? "same" : "other");
    CHECK(cuKernelGetFunction(&function, all[FUNCTIONS - 1]));
    CHECK(cuLibraryGetModule(&module, library));
    CHECK(cuModuleGetFunction(&by_module, module, names[FUNCTIONS - 1]));
    printf("function by the module: %s\n", by_module == function ? "same" : "other");
    printf("launch: %d\n",
           (int)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&(unsigned){1}}, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
}

enum { THREADS = 4, IN_CONTEXT = 40 };
static CUcontext context;
static CUlibrary shared_library;
static pthread_barrier_t ready;
static struct {
    CUkernel kernels[FUNCTIONS];
    CUfunction functions[IN_CONTEXT];
    unsigned launched;
} found[THREADS];

static void *list_and_launch(void *argument)
{
    const size_t own = (size_t)argument;
    CHECK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&ready);
    CHECK(cuLibraryEnumerateKernels(found[own].kernels, FUNCTIONS, shared_library));
    for (int i = 0; i < IN_CONTEXT; i++) {
        const char *name = NULL;
        CHECK(cuKernelGetName(&name, found[own].kernels[i * 100]));
        CHECK(cuKernelGetFunction(&found[own].functions[i], found[own].kernels[i * 100]));
        found[own].launched +=
            strlen(name) > 100 && cuLaunchKernel(found[own].functions[i], 1, 1, 1, 1, 1, 1, 0, NULL,
                                                 (void *[]){&(unsigned){1}}, NULL) == CUDA_SUCCESS;
    }
    return NULL;
}

/* Several threads learn of the same kernels at once. */
static void list_together(const char *image)
{
    pthread_t threads[THREADS];
    CHECK(cuLibraryLoadData(&shared_library, image, NULL, NULL, 0, NULL, NULL, 0));
    pthread_barrier_init(&ready, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, list_and_launch, (void *)i) != 0)
            exit(2);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    for (size_t i = 0; i < THREADS; i++)
        printf("thread %zu: kernels %s, functions %s, launched %u\n", i,
               memcmp(found[i].kernels, found[0].kernels, sizeof found[0].kernels) ? "other" : "same",
               memcmp(found[i].functions, found[0].functions, sizeof found[0].functions) ? "other" : "same",
               found[i].launched);
    CHECK(cuLibraryUnload(shared_library));
}

enum { ROUNDS = 60, NAMES = 12 };
static struct {
    CUmodule module;
    CUlibrary owner;
    CUfunction functions[THREADS][NAMES];
    CUkernel kernels[THREADS][NAMES];
    CUfunction of_kernels[THREADS][NAMES];
} asked;

static void *ask(void *argument)
{
    const size_t own = (size_t)argument;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < NAMES; i++) {
        char name[NAME];
        memset(name, 'f', 100);
        (void)snprintf(name + 100, sizeof name - 100, "%d", i);
        pthread_barrier_wait(&ready);
        CHECK(cuModuleGetFunction(&asked.functions[own][i], asked.module, name));
        CHECK(cuLibraryGetKernel(&asked.kernels[own][i], asked.owner, name));
        CHECK(cuKernelGetFunction(&asked.of_kernels[own][i], asked.kernels[own][i]));
    }
    return NULL;
}

/* Several threads ask for the same names at once: all get one handle. */
static void ask_together(const char *image)
{
    unsigned functions = 0, kernels = 0, of_kernels = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        CHECK(cuModuleLoadData(&asked.module, image));
        CHECK(cuLibraryLoadData(&asked.owner, image, NULL, NULL, 0, NULL, NULL, 0));
        for (size_t i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, ask, (void *)i) != 0)
                exit(2);
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (size_t i = 1; i < THREADS; i++) {
            functions += memcmp(asked.functions[i], asked.functions[0], sizeof asked.functions[0]) != 0;
            kernels += memcmp(asked.kernels[i], asked.kernels[0], sizeof asked.kernels[0]) != 0;
            of_kernels += memcmp(asked.of_kernels[i], asked.of_kernels[0], sizeof asked.of_kernels[0]) != 0;
        }
        CHECK(cuLibraryUnload(asked.owner));
        CHECK(cuModuleUnload(asked.module));
    }
    printf("asked at once, others than the first thread's: functions %u, kernels %u, kernels' functions %u\n",
           functions, kernels, of_kernels);
}

int main(void)
{
    context = use_first_device();
    char *image = make_image(FUNCTIONS), *small_image = make_image(NAMES);
    list_module(image);
    list_library(image);
    list_together(image);
    ask_together(small_image);
    free(image);
    free(small_image);
    return 0;
}
