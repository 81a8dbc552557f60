/* add_kernel.h - a kernel for tests: add(data, n) adds n to the word at data, atomically. More PTX can follow. */
#ifndef TESTS_ADD_KERNEL_H
#define TESTS_ADD_KERNEL_H

#define ADD_KERNEL                                                                                           \
    ".version 7.0\n"                                                                                         \
    ".target sm_75\n"                                                                                        \
    ".address_size 64\n"                                                                                     \
    ".visible .entry add(.param .u64 data, .param .u32 n)\n"                                                 \
    "{\n"                                                                                                    \
    "    .reg .u32 %r<3>;\n"                                                                                 \
    "    .reg .u64 %rd<3>;\n"                                                                                \
    "    ld.param.u64 %rd1, [data];\n"                                                                       \
    "    ld.param.u32 %r1, [n];\n"                                                                           \
    "    cvta.to.global.u64 %rd2, %rd1;\n"                                                                   \
    "    atom.global.add.u32 %r2, [%rd2], %r1;\n"                                                            \
    "    ret;\n"                                                                                             \
    "}\n"

#endif
