/*
 * improve.h - better code of kernels that run already.
 *
 * Code of a large kernel is first made with little effort, so that it runs soon; meanwhile a thread of the process makes it again
 * with full effort, one kernel after another. What has been done is kept on disk as it is done (cache.h): a process that ends early
 * leaves it to the next one.
 */
#ifndef SG_COMPILER_JIT_IMPROVE_H
#define SG_COMPILER_JIT_IMPROVE_H

#include "softgpu/compiler/jit/cache.h"

#include <llvm-c/Core.h>
#include <stdbool.h>

/** What of a kernel is kept: its code, or as long as there is none that is better, quick code and what better code is made of. */
enum sg_part {
    SG_PART_CODE,
    SG_PART_QUICK,     /* an object, too */
    SG_PART_GENERATED, /* a module in LLVM's bitcode */
    SG_PART_OPTIMISED, /* the same when it has been optimised and confined */
};
/** The key of a part, from that of the kernel. */
struct rg_digest sg_part_key(const struct rg_digest *kernel, enum sg_part part);

struct sg_improvement {
    const char *symbol; /* copied */
    const char *name;   /* the kernel's, for messages; copied */
    bool guarded;
    bool optimised;         /* the module has been: code remains to be made of it */
    struct sg_cache *cache; /* NULL: nothing is kept */
    struct rg_digest key;   /* the kernel's */
    /** Gets the object, which is its own from there; on the improving thread. */
    void (*deliver)(void *owner, size_t index, LLVMMemoryBufferRef object);
    void *owner;
    size_t index;
};

/** Has it done some time. The module (bitcode) is taken over. Any thread. */
void sg_improve(const struct sg_improvement *improvement, LLVMMemoryBufferRef module);
/** From here on nothing is delivered to this owner; waits while that is being done. Not under a lock that `deliver` takes. */
void sg_improve_forget(const void *owner);
/** Waits until all that the owner asked for has been done. */
void sg_improve_wait(const void *owner);

#endif
