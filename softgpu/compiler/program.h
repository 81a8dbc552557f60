/*
 * program.h - a program inside: program.c makes it, code.c its code.
 */
#ifndef SG_COMPILER_PROGRAM_H
#define SG_COMPILER_PROGRAM_H

#include "common/cache/digest.h"
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/compiler.h"

#include <pthread.h>

struct sg_program_kernel {
    struct sg_kernel public;
    struct sg_ptx_function *function;
    struct sg_reach reach;
    struct sg_shared_layout shared;
    const char *unknown;  /* an instruction that keeps it from running, as sg_reach_unknown says */
    bool lockstep;        /* its loops have been looked at */
    _Atomic(void *) code; /* made under the lock; better code may take its place, and it stays valid */
};

struct sg_program {
    struct sg_arena arena;
    struct sg_arena scratch; /* while the program is made */
    struct sg_ptx_module *module;
    uint32_t capability;
    bool optimised;
    bool quick;              /* large kernels get quick code first */
    bool guarded;            /* SOFTGPU_GUARD: kernels are confined to their memory */
    bool watched;            /* SOFTGPU_REPORT: code tells the engine of its accesses */
    struct rg_digest digest; /* of the texts, if there is a cache */
    struct sg_program_kernel *kernels;
    size_t n_kernels;
    struct sg_variable *variables;
    struct sg_var **places;
    size_t n_variables;
    pthread_mutex_t lock;
    struct sg_jit *jit; /* under the lock; made when the first code is asked for */
};

#endif
