/*
 * kernels.h - the PTX of guard.c: kernels that do what a kernel of an attacker would, and some that do what is
 * right with all kinds of memory. Each takes an address and a number.
 */
#ifndef SG_TEST_GUARD_KERNELS_H
#define SG_TEST_GUARD_KERNELS_H

// clang-format off
#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
/* one thread, with the address in %a, the number in %n and registers to use */
#define KERNEL(name, body)                                                                                   \
    ".visible .entry " name "(.param .u64 pa, .param .u64 pn)\n"                                             \
    "{\n.reg .b64 %a, %n, %x<16>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .pred %p<4>;\n"                \
    "ld.param.u64 %a, [pa];\nld.param.u64 %n, [pn];\ncvt.u32.u64 %r0, %n;\n" body "ret;\n}\n"
/* the same after something that makes threads wait for each other: loop form */
#define WAITING(name, body) KERNEL(name, "bar.sync 0;\n" body "bar.sync 0;\n")

/* Accesses to the address, which must be refused whatever is there. */
static const char access_ptx[] = HEAD
    ".shared .align 16 .b8 tile[1024];\n.shared .align 8 .b64 barrier;\n.global .align 8 .b8 variable[64];\n"
    ".const .align 8 .b8 constant[64];\n" KERNEL("load_global",
                                                 "ld.global.u32 %r1, [%a];\nst.global.u32 [variable], %r1;\n")
        KERNEL("load_generic", "ld.u32 %r1, [%a];\nst.global.u32 [variable], %r1;\n") KERNEL(
            "load_wide",
            "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a];\nadd.u32 %r1, %r1, %r4;\nst.global.u32 [variable], "
            "%r1;\n") KERNEL("load_volatile",
                             "ld.volatile.global.u64 %x1, [%a];\n") KERNEL("load_acquire",
                                                                           "ld.acquire.gpu.u64 %x1, [%a];\n")
            KERNEL("load_constant", "ld.const.u32 %r1, [%a];\nst.global.u32 [variable], %r1;\n") KERNEL(
                "load_local", "ld.local.u32 %r1, [%a];\nst.global.u32 [variable], %r1;\n")
                KERNEL("store_global", "st.global.u32 [%a], %r0;\n") KERNEL(
                    "store_generic", "st.u32 [%a], %r0;\n") KERNEL("store_local", "st.local.u32 [%a], %r0;\n")
                    KERNEL("store_wide", "st.global.v2.u64 [%a], {%n, %n};\n") KERNEL(
                        "store_release",
                        "st.release.sys.u64 [%a], %n;\n") KERNEL("add",
                                                                 "atom.global.add.u32 %r1, [%a], %r0;\n")
                        KERNEL("reduce", "red.global.or.b64 [%a], %n;\n") KERNEL(
                            "add_float", "mov.b32 %f0, %r0;\natom.global.add.f32 %f1, [%a], %f0;\n")
                            KERNEL("increment", "atom.global.inc.u32 %r1, [%a], %r0;\n")
                                KERNEL("exchange", "atom.exch.b64 %x1, [%a], %n;\n") KERNEL(
                                    "compare", "mov.u64 %x2, 0;\natom.global.cas.b64 %x1, [%a], %x2, %n;\n")
                                    KERNEL("copy_in",
                                           "mov.u32 %r1, tile;\ncp.async.ca.shared.global [%r1], [%a], "
                                           "16;\ncp.async.wait_all;\n"
                                           "ld.shared.u32 %r2, [tile];\nst.global.u32 [variable], %r2;\n")
                                        KERNEL("bulk_in",
                                               "mbarrier.init.shared.b64 [barrier], 1;\nmov.u32 %r1, "
                                               "tile;\nmov.u32 %r2, barrier;\nmov.u32 %r3, 256;\n"
                                               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                                               "bytes [%r1], [%a], %r3, [%r2];\n")
                                            KERNEL("bulk_out", "mov.u32 %r1, tile;\nmov.u32 %r3, "
                                                               "256;\ncp.async.bulk.global.shared::cta.bulk_"
                                                               "group [%a], [%r1], %r3;\n") KERNEL(
                                                "bulk_add",
                                                "mov.u32 %r1, tile;\nmov.u32 %r3, 256;\nst.shared.u32 "
                                                "[tile], %r0;\n"
                                                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
                                                "[%a], [%r1], %r3;\n") KERNEL("barrier_there",
                                                                              "mbarrier.init.b64 [%a], 1;\n")
                                                KERNEL(
                                                    "matrix",
                                                    "mov.u32 %r1, "
                                                    "16;\nwmma.load.c.sync.aligned.m16n16k16.row.f32 "
                                                    "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%a], %r1;\n")
    /* by sums that are large, small, and of a variable and a constant */
    KERNEL(
        "far_from_variable",
        "mov.u64 %x1, variable;\nsub.u64 %x2, %a, %x1;\nadd.u64 %x3, %x1, %x2;\nst.global.u32 [%x3], %r0;\n")
        KERNEL(
            "far_from_shared",
            "mov.u64 %x1, tile;\ncvta.shared.u64 %x2, %x1;\nsub.u64 %x3, %a, %x2;\nadd.u64 %x4, %x2, %x3;\n"
            "st.u32 [%x4], %r0;\n")
            KERNEL("far_from_local", ".local .align 16 .b8 own[256];\nmov.u64 %x1, own;\ncvta.local.u64 %x2, "
                                     "%x1;\nst.local.u32 [own], %r0;\n"
                                     "sub.u64 %x3, %a, %x2;\nadd.u64 %x4, %x2, %x3;\nst.u32 [%x4], %r0;\n")
                KERNEL("far_by_constant",
                       "mov.u64 %x1, variable;\nst.global.u32 [variable+35184372088832], %r0;\n")
                    KERNEL("far_by_index", "sub.u64 %x1, %a, 68719476736;\nshl.b64 %x2, %n, 0;\nadd.u64 %x3, "
                                           "%x1, 68719476736;\nst.global.u32 [%x3], %r0;\n")
    /* side by side, as vectors */
    KERNEL("rows", "mov.u32 %r1, %tid.x;\nmul.wide.u32 %x1, %r1, 4;\nadd.u64 %x2, %a, %x1;\nst.global.u32 "
                   "[%x2], %r0;\n") KERNEL(
        "scattered",
        "mov.u32 %r1, %tid.x;\nmul.lo.u32 %r1, %r1, %r1;\nmul.wide.u32 %x1, %r1, 4;\nadd.u64 %x2, %a, %x1;\n"
        "ld.global.u32 %r2, [%x2];\nmov.u32 %r3, %tid.x;\nmul.wide.u32 %x4, %r3, 4;\nadd.u64 %x5, %a, "
        "%x4;\nst.global.u32 [%x5], %r2;\n")
        KERNEL(
            "filled",
            "mov.u64 %x1, 0;\nLoop:\nadd.u64 %x2, %a, %x1;\nst.global.u8 [%x2], %r0;\nadd.u64 %x1, %x1, 1;\n"
            "setp.lt.u64 %p1, %x1, 4096;\n@%p1 bra Loop;\n")
            WAITING("load_waiting", "ld.global.u32 %r1, [%a];\nbar.sync 0;\nst.global.u32 [variable], %r1;\n")
                WAITING("store_waiting", "st.global.u32 [%a], %r0;\n")
                    WAITING("add_waiting", "atom.global.add.u32 %r1, [%a], %r0;\n")
                        WAITING("matrix_waiting",
                                "mov.u32 %r1, 16;\nwmma.load.c.sync.aligned.m16n16k16.row.f32 "
                                "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%a], %r1;\n");

/* Control: each has its own way to a place that is none. */
static const char control_ptx[] = HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n.extern .func free(.param .b64 "
    "p);\n"
    ".global .align 8 .b8 variable[64];\n"
    ".func (.param .b32 r) one(.param .b32 a)\n{\n.reg .b32 %r;\nld.param.b32 %r, [a];\nst.param.b32 [r], "
    "%r;\nret;\n}\n"
    ".func three(.param .b64 a, .param .b64 b, .param .b64 c)\n{\n.reg .b64 %x, %y;\nld.param.b64 %x, "
    "[a];\nld.param.b64 %y, [c];\n"
    "st.u64 [%x], %y;\nst.param.b64 [b], %y;\nret;\n}\n"
    ".func (.param .b64 r) deep(.param .b64 n)\n{\n.local .align 16 .b8 own[1024];\n.reg .b64 %n, %m, "
    "%x<4>;\n.reg .pred %p;\n"
    "ld.param.b64 %n, [n];\nmov.u64 %x0, own;\nand.b64 %x1, %n, 127;\nadd.u64 %x2, %x0, %x1;\nst.local.u8 "
    "[%x2], %n;\n"
    "setp.eq.u64 %p, %n, 0;\nmov.u64 %m, 0;\n@%p bra End;\nsub.u64 %m, %n, 1;\n{\n.param .b64 i;\n.param "
    ".b64 o;\nst.param.b64 [i], %m;\n"
    "call (o), deep, (i);\nld.param.b64 %m, [o];\n}\nEnd:\nld.local.u8 %x3, [%x2];\nadd.u64 %m, %m, "
    "%x3;\nst.param.b64 [r], %m;\nret;\n}\n"
    ".func overflow(.param .b64 n, .param .b64 v)\n{\n.local .align 16 .b8 own[64];\n.reg .b64 %n, %v, %i, "
    "%x<4>;\n.reg .pred %p;\n"
    "ld.param.b64 %n, [n];\nld.param.b64 %v, [v];\nmov.u64 %x0, own;\nmov.u64 %i, 0;\nLoop:\nadd.u64 %x1, "
    "%x0, %i;\nst.local.u64 [%x1], %v;\n"
    "add.u64 %i, %i, 8;\nsetp.lt.u64 %p, %i, %n;\n@%p bra Loop;\nret;\n}\n" KERNEL(
        "call_anything", "{\n.param .b32 i;\n.param .b32 o;\nst.param.b32 [i], %r0;\nProto: .callprototype "
                         "(.param .b32 _) _ (.param .b32 _);\n"
                         "call (o), %a, (i), Proto;\n}\n")
        KERNEL("call_other_kind",
               "mov.u64 %x1, three;\n{\n.param .b32 i;\n.param .b32 o;\nst.param.b32 [i], %r0;\n"
               "Proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (o), %x1, (i), Proto;\n}\n")
            KERNEL("jump_anywhere", "{\nA:\n.reg .b32 %z;\nmov.u32 %z, %r0;\nTargets: .branchtargets First, "
                                    "Second, Third, Fourth, Fifth;\n"
                                    "brx.idx %z, Targets;\nFirst:\nst.global.u32 [variable], "
                                    "1;\nret;\nSecond:\nst.global.u32 [variable], 2;\nret;\n"
                                    "Third:\nst.global.u32 [variable], 3;\nret;\nFourth:\nst.global.u32 "
                                    "[variable], 4;\nret;\nFifth:\nst.global.u32 [variable], 5;\nret;\n}\n")
                KERNEL("print_there", "{\n.param .b64 f;\n.param .b64 g;\n.param .b32 o;\nst.param.b64 [f], "
                                      "%a;\nst.param.b64 [g], %a;\ncall (o), vprintf, (f, g);\n}\n") KERNEL(
                    "free_there", "{\n.param .b64 f;\nst.param.b64 [f], %a;\ncall free, (f);\n}\n")
                    KERNEL("overflow_locals", "{\n.param .b64 i;\n.param .b64 j;\nst.param.b64 [i], "
                                              "%n;\nst.param.b64 [j], %a;\ncall overflow, (i, j);\n}\n")
                        KERNEL("recurse", "{\n.param .b64 i;\n.param .b64 o;\nst.param.b64 [i], %n;\ncall "
                                          "(o), deep, (i);\n}\n") KERNEL(
                            "stack_elsewhere", "stackrestore.u64 %a;\n{\n.param .b64 i;\n.param .b64 "
                                               "o;\nst.param.b64 [i], 40;\ncall (o), deep, (i);\n}\n")
                            KERNEL("allocate_much",
                                   "alloca.u64 %x1, %n, 16;\nst.local.u64 [%x1], %a;\n{\n.param .b64 "
                                   "i;\n.param .b64 o;\nst.param.b64 [i], 40;\ncall (o), deep, (i);\n}\n");

/* What LLVM takes for undefined, and variables that are named where the engine goes on from them. */
static const char undefined_ptx[] = HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n.global .align 8 .b8 variable[64];\n"
    ".global .align 4 .b8 text[4] = {37, 115, 10, 0};\n"
    ".func (.param .b32 r) one(.param .b32 a)\n{\n.reg .b32 %r;\nld.param.b32 %r, [a];\nst.param.b32 [r], "
    "%r;\nret;\n}\n.global .align 8 .u64 table[1] = {one};\n"
#define NEVER ".local .align 8 .b8 own[64];\nld.local.u64 %x1, [own+1024];\n"
    KERNEL("branch", NEVER "setp.eq.u64 %p1, %x1, 7;\n@%p1 bra End;\nst.global.u64 [variable], %a;\nEnd:\n")
    KERNEL("jump", NEVER "cvt.u32.u64 %r1, %x1;\nTargets: .branchtargets First, Second;\nbrx.idx %r1, Targets;\n"
                   "First:\nst.global.u32 [variable], 1;\nret;\nSecond:\nst.global.u32 [variable], 2;\n")
    KERNEL("store", NEVER "st.global.u64 [%x1], %n;\n")
    KERNEL("store_near", NEVER "add.u64 %x2, %x1, %a;\nst.global.u64 [%x2], %n;\n")
    KERNEL("print", NEVER "mov.u64 %x2, text;\n{\n.param .b64 f;\n.param .b64 g;\n.param .b32 o;\n"
                    "st.param.b64 [f], %x2;\nst.param.b64 [g], %x1;\ncall (o), vprintf, (f, g);\n}\n")
    KERNEL("format", NEVER "{\n.param .b64 f;\n.param .b64 g;\n.param .b32 o;\n"
                     "st.param.b64 [f], %x1;\nst.param.b64 [g], %x1;\ncall (o), vprintf, (f, g);\n}\n")
    KERNEL("call_it", NEVER "{\n.param .b32 i;\n.param .b32 o;\nst.param.b32 [i], %r0;\nProto: .callprototype (.param .b32 _) "
                      "_ (.param .b32 _);\ncall (o), %x1, (i), Proto;\n}\n")
    KERNEL("zeros", NEVER "st.bulk.weak.shared::cta [%a], %x1, 0;\n")
#define OWN(space) "." space " .align 32 .b8 own[64];\ncvt.rn.f32.u32 %f0, %r0;\nmov.u32 %r1, %r0;\n"
#define EIGHT      "{%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0}"
    KERNEL("matrix_local", OWN("local") "wmma.store.d.sync.aligned.m16n16k16.row.f32 [own], " EIGHT ", %r1;\n")
    KERNEL("matrix_param", OWN("param") "wmma.store.d.sync.aligned.m16n16k16.row.f32 [own], " EIGHT ", %r1;\n")
    WAITING("matrix_local_waiting",
            OWN("local") "wmma.store.d.sync.aligned.m16n16k16.row.f32 [own], " EIGHT ", %r1;\n");

/* Copies of boxes as the map at `a` says: one of one dimension. */
#define BOX(name, copy)                                                                                      \
    KERNEL(name, "mbarrier.init.shared.b64 [barrier], 1;\nmov.u32 %r1, tile;\nmov.u32 %r2, barrier;\n"       \
                 "mov.u32 %r3, 0;\n" copy "ld.shared.u32 %r4, [tile];\nst.global.u32 [variable], %r4;\n")
static const char box_ptx[] = HEAD
    ".shared .align 128 .b8 tile[4096];\n.shared .align 8 .b64 barrier;\n.global .align 8 .b8 variable[64];\n"
    BOX("box_in", "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%a, "
                  "{%r3}], [%r2];\n")
    BOX("box_in_2", "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], "
                    "[%a, {%r3, %r3}], [%r2];\n")
    BOX("box_out", "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%a, {%r3}], [%r1];\n")
    BOX("box_add", "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%a, {%r3}], [%r1];\n");

/* Some blocks use what is at `a`, as many change it meanwhile. */
#define RACE(name, first, turns, second)                                                                            \
    KERNEL(name, "mov.u32 %r9, %ctaid.x;\nand.b32 %r9, %r9, 1;\nsetp.ne.u32 %p3, %r9, 0;\nmov.u32 %r8, 0;\n@%p3 bra Other;\n"     \
                 "Use:\n" first "add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, 200;\n@%p1 bra Use;\nret;\n"  \
                 "Other:\n" second "add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, " turns ";\n@%p1 bra Other;\n")
#define CHANGE "@%p2 st.volatile.global.u64 [%x1], %n;\n@%p2 st.volatile.global.u64 [%x1], %a;\n"
static const char race_ptx[] = HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".extern .func (.param .b64 r) cudaGetParameterBuffer(.param .b64 a, .param .b64 s);\n"
    ".extern .func (.param .b32 r) cudaLaunchDevice(.param .b64 f, .param .b64 p, .param .align 4 .b8 g[12], "
    ".param .align 4 .b8 b[12], .param .b32 s, .param .b64 q);\n"
    ".global .align 8 .u64 shown;\n" KERNEL("child", "atom.global.add.u64 %x1, [%a], %n;\n")
    /* the format is at `a`, the argument behind it; its character 1 becomes one, another, and the end */
    RACE("print_changed",
         "{\n.param .b64 f;\n.param .b64 g;\n.param .b32 o;\nadd.u64 %x1, %a, 8;\nst.param.b64 [f], %a;\n"
         "st.param.b64 [g], %x1;\ncall (o), vprintf, (f, g);\n}\n",
         "50000",
         "st.volatile.global.u8 [%a+1], 110;\nst.volatile.global.u8 [%a+1], 0;\nst.volatile.global.u8 [%a+1], 48;\n")
    /* a buffer of parameters, shown to the other block, which makes `n` of its pointer and back again */
    RACE("launch_changed",
         "{\n.param .b64 i;\n.param .b64 j;\n.param .b64 o;\nst.param.b64 [i], 8;\nst.param.b64 [j], 16;\n"
         "call (o), cudaGetParameterBuffer, (i, j);\nld.param.b64 %x1, [o];\n}\n"
         "mov.u64 %x3, 1;\nst.global.u64 [%x1], %a;\nst.global.u64 [%x1+8], %x3;\nst.volatile.global.u64 [shown], %x1;\n"
         "{\n.param .b64 f;\n.param .b64 p;\n.param .align 4 .b8 g[12];\n.param .align 4 .b8 b[12];\n.param .b32 s;\n"
         ".param .b64 q;\n.param .b32 o;\nmov.u64 %x2, child;\nst.param.b64 [f], %x2;\nst.param.b64 [p], %x1;\n"
         "mov.u32 %r1, 1;\nst.param.b32 [g], %r1;\nst.param.b32 [g+4], %r1;\nst.param.b32 [g+8], %r1;\n"
         "st.param.b32 [b], %r1;\nst.param.b32 [b+4], %r1;\nst.param.b32 [b+8], %r1;\nst.param.b32 [s], 0;\n"
         "st.param.b64 [q], 0;\ncall (o), cudaLaunchDevice, (f, p, g, b, s, q);\nld.param.b32 %r2, [o];\n}\n",
         "100", /* a loop that looks at memory lets others run */
         "ld.volatile.global.u64 %x1, [shown];\nsetp.ne.u64 %p2, %x1, 0;\n"
         CHANGE CHANGE CHANGE CHANGE);

/* What is right, and must work: results go to `a`. */
static const char right_ptx[] = HEAD
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    ".shared .align 16 .b8 tile[1024];\n.const .align 4 .b32 constant[4] = {7, 8, 9, 10};\n.global .align 4 "
    ".b32 variable[4] = {1, 2, 3, 4};\n"
    ".func (.param .b32 r) twice(.param .b32 a)\n{\n.reg .b32 %r;\nld.param.b32 %r, [a];\nadd.u32 %r, %r, "
    "%r;\nst.param.b32 [r], %r;\nret;\n}\n"
    ".func (.param .b32 r) thrice(.param .b32 a)\n{\n.reg .b32 %r;\nld.param.b32 %r, [a];\nmul.lo.u32 %r, "
    "%r, 3;\nst.param.b32 [r], %r;\nret;\n}\n"
    ".global .align 8 .u64 table[2] = {twice, thrice};\n" KERNEL(
        "own_memory",
        ".local .align 16 .b8 own[256];\nmov.u64 %x1, own;\ncvta.local.u64 %x2, %x1;\nmul.lo.u64 %x3, %n, "
        "4;\nadd.u64 %x4, %x2, %x3;\n"
        "st.u32 [%x4], 40;\nld.local.u32 %r1, [own+8];\n" /* n is 2 */
        "mov.u64 %x5, tile;\ncvta.shared.u64 %x6, %x5;\nst.u32 [%x6+16], 1;\nld.shared.u32 %r2, "
        "[tile+16];\nadd.u32 %r1, %r1, %r2;\n"
        "mov.u64 %x7, constant;\ncvta.const.u64 %x8, %x7;\nadd.u64 %x8, %x8, %x3;\nld.u32 %r3, "
        "[%x8];\nadd.u32 %r1, %r1, %r3;\n"
        "mov.u64 %x9, variable;\nadd.u64 %x9, %x9, %x3;\nld.global.u32 %r4, [%x9];\nadd.u32 %r1, %r1, %r4;\n"
        "mov.u64 %x10, pn;\ncvta.param.u64 %x11, %x10;\nld.u32 %r5, [%x11];\nadd.u32 %r1, %r1, "
        "%r5;\nst.global.u32 [%a], %r1;\n")
        KERNEL("heap", "{\n.param .b64 i;\n.param .b64 o;\nst.param.b64 [i], 64;\ncall (o), malloc, "
                       "(i);\nld.param.b64 %x1, [o];\n}\n"
                       "st.u32 [%x1+8], 55;\nld.u32 %r1, [%x1+8];\n{\n.param .b64 i;\nst.param.b64 [i], "
                       "%x1;\ncall free, (i);\n}\nst.global.u32 [%a], %r1;\n")
            KERNEL("pointers",
                   "mov.u64 %x1, table;\nshr.u64 %x3, %n, 1;\nshl.b64 %x3, %x3, 3;\nadd.u64 %x1, %x1, "
                   "%x3;\nld.global.u64 %x2, [%x1];\n"
                   "{\n.param .b32 i;\n.param .b32 o;\nst.param.b32 [i], 37;\nProto: .callprototype (.param "
                   ".b32 _) _ (.param .b32 _);\n"
                   "call (o), %x2, (i), Proto;\nld.param.b32 %r1, [o];\n}\nst.global.u32 [%a], %r1;\n")
                KERNEL("dynamic", "shl.b64 %x1, %n, 6;\nstacksave.u64 %x5;\nalloca.u64 %x2, %x1, "
                                  "16;\nst.local.u32 [%x2+64], 77;\nld.local.u32 %r1, [%x2+64];\n"
                                  "stackrestore.u64 %x5;\nst.global.u32 [%a], %r1;\n")
                    KERNEL("increment", "ld.global.u32 %r1, [%a];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%a], "
                                        "%r1;\natom.add.u32 %r2, [%a], 100;\n")
                        KERNEL("handle", "mov.u64 %x1, twice;\nst.global.u64 [%a], %x1;\n");

// clang-format on

#endif
