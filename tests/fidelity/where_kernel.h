/* where_kernel.h - a kernel that tells on which multiprocessors its blocks run, for programs with green contexts. */
#ifndef TESTS_FIDELITY_WHERE_KERNEL_H
#define TESTS_FIDELITY_WHERE_KERNEL_H

/* PTX, without a head. Counts in `at` where blocks run; waits a little, so that others come. */
#define WHERE_KERNEL                                                                                         \
    ".visible .entry where(.param .u64 at)\n{\n.reg .u64 %a<4>;\n.reg .u32 %r<4>;\n.reg .pred %p;\n"         \
    "ld.param.u64 %a1, [at];\ncvta.to.global.u64 %a1, %a1;\nmov.u32 %r1, %smid;\n"                           \
    "mul.wide.u32 %a2, %r1, 4;\nadd.u64 %a1, %a1, %a2;\natom.global.add.u32 %r2, [%a1], 1;\n"                \
    "mov.u32 %r3, 0;\nagain:\nld.volatile.global.u32 %r2, [%a1];\nadd.u32 %r3, %r3, 1;\n"                    \
    "setp.lt.u32 %p, %r3, 2000;\n@%p bra again;\nret;\n}\n"

#endif
