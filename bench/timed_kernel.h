/* timed_kernel.h - a kernel that lasts a given time and uses hardly any processor, for programs whose network is what matters. */
#ifndef BENCH_TIMED_KERNEL_H
#define BENCH_TIMED_KERNEL_H

#include "cuda_program.h"

#include <stdio.h>

/* last(ns, counter): lasts so long, then adds 1 to *counter. %s: the kernel's name. */
static const char timed_kernel_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                        ".visible .entry %s(.param .u64 ns, .param .u64 counter)\n{\n"
                                        " .reg .u64 %%rd<8>; .reg .u32 %%r<3>; .reg .pred %%p<2>;\n"
                                        " ld.param.u64 %%rd1, [ns];\n ld.param.u64 %%rd2, [counter];\n"
                                        " mov.u64 %%rd3, %%globaltimer;\n"
                                        "LOOP:\n nanosleep.u32 1000;\n mov.u64 %%rd4, %%globaltimer;\n"
                                        " sub.u64 %%rd5, %%rd4, %%rd3;\n setp.lt.u64 %%p1, %%rd5, %%rd1;\n"
                                        " @%%p1 bra LOOP;\n"
                                        " cvta.to.global.u64 %%rd6, %%rd2;\n ld.global.u32 %%r1, [%%rd6];\n"
                                        " add.u32 %%r2, %%r1, 1;\n st.global.u32 [%%rd6], %%r2;\n ret;\n}\n";

/** Loads it by that name into the current context. */
static inline CUfunction load_timed_kernel(const char *name)
{
    char text[sizeof timed_kernel_text + 64];
    CUmodule module;
    CUfunction function;
    snprintf(text, sizeof text, timed_kernel_text, name);
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

/** Launches it. */
static inline void launch_timed_kernel(CUfunction kernel, uint64_t us, CUdeviceptr counter, CUstream stream)
{
    uint64_t ns = us * 1000;
    void *parameters[] = {&ns, &counter};
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

#endif
