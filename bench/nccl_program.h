/* nccl_program.h - NCCL's functions, for programs among the benchmarks that use it. */
#ifndef BENCH_NCCL_PROGRAM_H
#define BENCH_NCCL_PROGRAM_H

#include "measure.h"

#include "common/cuda/nccl.h"
#include "generated/proto/nccl.h"

#include <dlfcn.h>

static struct {
#define MEMBER(name) __typeof__(name) *name;
    RG_NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
} nccl;

/** Finds them in the library that the program would get; those of later versions than its own stay NULL. */
static inline void load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library)
        fail("%s", dlerror());
#define FIND(name) nccl.name = (__typeof__(name) *)dlsym(library, #name);
    RG_NCCL_FUNCTIONS(FIND)
#undef FIND
    if (!nccl.ncclCommInitAll || !nccl.ncclAllReduce)
        fail("libnccl.so.2 has no ncclCommInitAll or ncclAllReduce: is it NCCL's?");
}

static inline void check_nccl(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess)
        fail("%s: %d, %s", call, (int)result, nccl.ncclGetLastError(NULL));
}
/** Calls one; ends the program where it fails. */
#define NCCL(call) check_nccl(nccl.call, #call)

#endif
