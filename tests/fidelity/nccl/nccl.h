/* nccl.h - NCCL as a program finds it, in libnccl.so.2, and calls of it that must succeed. Of one source file a program. */
#ifndef TESTS_FIDELITY_NCCL_NCCL_H
#define TESTS_FIDELITY_NCCL_NCCL_H

#include "common/cuda/nccl.h"
#include "generated/proto/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/** The exit status of a program in which such a call has failed. */
#define NCCL_FAILED 3

static struct {
#define NCCL_MEMBER(name) __typeof__(name) *name;
    RG_NCCL_FUNCTIONS(NCCL_MEMBER)
} nccl;

/** Fills `nccl`. Ends the program where the library, a function or its profiling name is missing. */
static inline void load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
#define NCCL_FIND(name)                                                                                      \
    nccl.name = (__typeof__(name) *)dlsym(library, #name);                                                   \
    if (!nccl.name || !dlsym(library, "p" #name)) {                                                          \
        printf("no %s\n", #name);                                                                            \
        exit(1);                                                                                             \
    }
    RG_NCCL_FUNCTIONS(NCCL_FIND)
}

static inline void must_nccl(ncclResult_t result, const char *call)
{
    if (result == ncclSuccess)
        return;
    printf("%s: %d, %s\n", call, (int)result, nccl.ncclGetLastError(NULL));
    fflush(stdout);
    _exit(NCCL_FAILED);
}
#define NCCL(call) must_nccl(nccl.call, #call)

#endif
