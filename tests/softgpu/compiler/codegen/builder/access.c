/*
 * access.c - which accesses are misaligned: what analysis knows of addresses must neither hide one nor make
 * one up; and which places offsets name.
 */
#include "softgpu/exec/exec.h"
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* %p is the parameter, an address with 16 bytes' alignment; %n is 3 and %t the thread's number (of 2). */
static const struct {
    const char *body;
    int fault;
} cases[] = {
    {"st.global.u32 [%p], %t;", SG_FAULT_NONE},
    {"st.global.u32 [%p+4], %t;", SG_FAULT_NONE},
    {"st.global.u32 [%p+2], %t;", SG_FAULT_MISALIGNED},
    {"st.global.u16 [%p+2], %h;", SG_FAULT_NONE},
    {"st.global.u16 [%p+1], %h;", SG_FAULT_MISALIGNED},
    {"st.global.u8 [%p+1], %t;", SG_FAULT_NONE},
    {"ld.global.u64 %a, [%p+4];", SG_FAULT_MISALIGNED},
    {"ld.global.v2.u32 {%t, %u}, [%p+4];", SG_FAULT_MISALIGNED},
    {"ld.global.v2.u32 {%t, %u}, [%p+8];", SG_FAULT_NONE},
    /* an element of an array, by the thread's number */
    {"mul.wide.u32 %a, %t, 4; add.s64 %b, %p, %a; st.global.u32 [%b+8], %t;", SG_FAULT_NONE},
    {"mul.wide.u32 %a, %t, 2; add.s64 %b, %p, %a; st.global.u32 [%b], %t;", SG_FAULT_MISALIGNED},
    {"mul.wide.u32 %a, %t, 2; add.s64 %b, %a, %p; st.global.u16 [%b], %h;", SG_FAULT_NONE},
    {"mad.wide.u32 %b, %t, 4, %p; st.global.u32 [%b+2], %t;", SG_FAULT_MISALIGNED},
    {"shl.b64 %a, %q, 2; sub.s64 %b, %p, %a; add.s64 %b, %b, 12; ld.global.u32 %t, [%b];", SG_FAULT_NONE},
    {"cvta.to.global.u64 %a, %p; add.s64 %a, %a, 6; ld.global.u32 %t, [%a];", SG_FAULT_MISALIGNED},
    {"and.b64 %a, %q, -4; add.s64 %b, %p, %a; ld.global.u32 %t, [%b];", SG_FAULT_NONE},
    {"and.b64 %a, %q, -2; add.s64 %b, %p, %a; ld.global.u32 %t, [%b];", SG_FAULT_MISALIGNED},
    {"add.s64 %b, %p, %q; ld.global.u32 %t, [%b];", SG_FAULT_MISALIGNED},
    {"add.s64 %b, %p, %q; ld.global.u32 %t, [%b+1];", SG_FAULT_NONE},
    /* what a call gives back is no parameter of the kernel, though it is loaded like one */
    {"{ .param .b64 r; add.s64 %a, %p, 2; st.param.b64 [r], %a; ld.param.b64 %b, [r]; ld.global.u32 %t, "
     "[%b]; }",
     SG_FAULT_MISALIGNED},
    {"{ .param .b64 r; add.s64 %a, %p, 4; st.param.b64 [r], %a; ld.param.b64 %b, [r]; ld.global.u32 %t, "
     "[%b]; }",
     SG_FAULT_NONE},
    /* registers that change: what is known must hold at all times */
    {"mov.u64 %b, %p; L: ld.global.u32 %t, [%b]; add.s64 %b, %b, 4; sub.u32 %n, %n, 1; setp.ne.u32 %c, %n, "
     "0; @%c "
     "bra L;",
     SG_FAULT_NONE},
    {"mov.u64 %b, %p; L: ld.global.u32 %t, [%b]; add.s64 %b, %b, 2; sub.u32 %n, %n, 1; setp.ne.u32 %c, %n, "
     "0; @%c "
     "bra L;",
     SG_FAULT_MISALIGNED},
    {"add.s64 %b, %p, 1; setp.eq.u32 %c, %n, 3; @%c add.s64 %b, %b, 3; ld.global.u32 %t, [%b];",
     SG_FAULT_NONE},
    {"add.s64 %b, %p, 1; setp.ne.u32 %c, %n, 3; @%c add.s64 %b, %b, 3; ld.global.u32 %t, [%b];",
     SG_FAULT_MISALIGNED},
    {"add.s64 %a, %p, 1; setp.eq.u32 %c, %n, 3; selp.b64 %b, %p, %a, %c; ld.global.u32 %t, [%b];",
     SG_FAULT_NONE},
    {"add.s64 %a, %p, 1; setp.ne.u32 %c, %n, 3; selp.b64 %b, %p, %a, %c; ld.global.u32 %t, [%b];",
     SG_FAULT_MISALIGNED},
    /* an access that is not made is no fault */
    {"setp.ne.u32 %c, %n, 3; @%c ld.global.u32 %t, [%p+1];", SG_FAULT_NONE},
    {"setp.eq.u32 %c, %t, 1; @%c ld.global.u32 %u, [%p+1];", SG_FAULT_MISALIGNED},
    {"setp.eq.u32 %c, %n, 3; @%c exit; ld.global.u32 %u, [%p+1];", SG_FAULT_NONE},
    {"setp.eq.u32 %c, %n, 3; ld.global.u32 %u, [%p+1]; @%c ret; st.global.u32 [%p], %u;",
     SG_FAULT_MISALIGNED},
    /* shared, local and generic memory, atomic and asynchronous accesses */
    {"st.shared.u32 [sv+4], %t;", SG_FAULT_NONE},
    {"st.shared.u32 [sv+6], %t;", SG_FAULT_MISALIGNED},
    {"mov.u32 %u, sv; mad.lo.u32 %u, %t, 4, %u; st.shared.u32 [%u], %t;", SG_FAULT_NONE},
    {"mov.u32 %u, sv; mad.lo.u32 %u, %t, 3, %u; st.shared.u32 [%u], %t;", SG_FAULT_MISALIGNED},
    {"st.local.u64 [lv+4], %p;", SG_FAULT_MISALIGNED},
    {"cvta.local.u64 %a, %q; add.u64 %a, %a, 1; mov.u64 %b, lv; add.u64 %b, %b, %a; ld.local.u32 %t, [%b];",
     SG_FAULT_NONE},
    {"atom.global.add.u32 %u, [%p+4], 1;", SG_FAULT_NONE},
    {"atom.global.add.u32 %u, [%p+2], 1;", SG_FAULT_MISALIGNED},
    {"red.global.add.f64 [%p+4], 0d3FF0000000000000;", SG_FAULT_MISALIGNED},
    {"cp.async.ca.shared.global [sv], [%p+4], 8;", SG_FAULT_MISALIGNED},
    {"cp.async.ca.shared.global [sv+8], [%p+8], 8;", SG_FAULT_NONE},
    {"ld.volatile.global.u32 %t, [%p+1];", SG_FAULT_MISALIGNED},
    /* by a function */
    {"call read, (%p);", SG_FAULT_NONE},
    {"add.s64 %a, %p, 2; call read, (%a);", SG_FAULT_MISALIGNED},
    {"add.s64 %a, %p, 2; call leave, (%a);", SG_FAULT_MISALIGNED},
    /* faults of other kinds */
    {"trap;", SG_FAULT_TRAP},
    {"mov.u64 %a, lv; cvta.local.u64 %a, %a; atom.add.u32 %u, [%a], 1;", SG_FAULT_ADDRESS_SPACE},
    {"mov.u64 %a, lv; st.local.u32 [%a], 1; atom.add.u32 %u, [%p], 1;", SG_FAULT_NONE},
    {"st.global.u32 [8], %t;", SG_FAULT_ILLEGAL_ADDRESS},
};

static char *text_of(const char *body, bool waits)
{
    char *text = NULL;
    int size = asprintf(
        &text,
        ".func read(.reg .u64 x) { .reg .u32 %%v; ld.global.u32 %%v, [x]; st.global.u32 [x], %%v; ret; }\n"
        ".func leave(.reg .u64 x) { .reg .u32 %%v; ld.global.u32 %%v, [x]; exit; }\n"
        ".visible .entry k(.param .u64 p) {\n"
        ".reg .u64 %%p, %%q, %%a, %%b; .reg .u32 %%t, %%u, %%n; .reg .u16 %%h; .reg .pred %%c;\n"
        ".shared .align 16 .b8 sv[64]; .local .align 16 .b8 lv[64];\n"
        "ld.param.u64 %%p, [p]; ld.global.u32 %%n, [%%p]; cvt.u64.u32 %%q, %%n; mov.u32 %%t, %%tid.x;\n"
        "%s\n%s\nret;\n}\n",
        waits ? "bar.sync 0;" : "", body);
    cr_assert(size > 0);
    return text;
}

Test(access, alignment)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int waits = 0; waits < 2; waits++) {
            _Alignas(16) uint32_t memory[16] = {3};
            const void *params[1] = {memory};
            char *text = text_of(cases[i].body, waits);
            struct sg_program *program = program_of(text);
            int fault = run_grid(program, 3, 2, params);
            cr_expect_eq(fault, cases[i].fault, "fault %d instead of %d, %s a barrier: %s", fault,
                         cases[i].fault, waits ? "behind" : "without", cases[i].body);
            free_program(program);
            free(text);
        }
}

/* Watched kernels find the same, and know the thread and the instruction. */
Test(access, watched)
{
    setenv("SOFTGPU_REPORT", "1", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _Alignas(16) uint32_t memory[16] = {3};
        const void *params[1] = {memory};
        char *text = text_of(cases[i].body, false);
        struct sg_program *program = program_of(text);
        struct sg_fault_report report;
        run_kernel(program, 0, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){2, 1, 1}, params, &report);
        cr_expect_eq(report.fault, cases[i].fault, "fault %d instead of %d: %s", report.fault, cases[i].fault,
                     cases[i].body);
        if (report.fault != SG_FAULT_NONE) {
            cr_expect(report.thread_known && report.block_known, "the thread is not known: %s",
                      cases[i].body);
            cr_expect(report.site != NULL && report.site->text != NULL, "no place: %s", cases[i].body);
        }
        free_program(program);
        free(text);
    }
}

Test(access, place_in_the_sources)
{
    setenv("SOFTGPU_REPORT", "1", 1);
    _Alignas(16) uint32_t memory[16] = {0};
    const void *params[1] = {memory};
    struct sg_program *program =
        program_of(".visible .entry k(.param .u64 p) {\n.reg .u64 %a; .reg .u32 %v;\n.loc 2 17 5\n"
                   "ld.param.u64 %a, [p];\n.loc 1 40 3, function_name $L__info, inlined_at 2 17 5\n"
                   "ld.global.u32 %v, [%a+3];\n.loc 2 18 1\nret;\n}\n.file 1 \"other.h\"\n.file 2 "
                   "\"main.cu\", 12, 34\n");
    struct sg_fault_report report;
    run_kernel(program, 0, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){1, 1, 1}, params, &report);
    cr_assert(report.fault == SG_FAULT_MISALIGNED && report.site != NULL);
    cr_expect_str_eq(report.site->file, "other.h");
    cr_expect_eq(report.site->line, 40);
    cr_expect_eq(report.site->ptx_line, 9);
    cr_expect_str_eq(report.site->text, "ld.global.u32 %v, [%a+3]");
    cr_expect_str_eq(report.site->function, "k");
    cr_expect_eq(report.address, (uintptr_t)memory + 3);
    cr_expect(report.site->access == SG_ACCESS_READ && report.site->bytes == 4);
    free_program(program);
}

/*
 * %s becomes an address that is 4096 less than that of the thread's own word, modulo 2^32: an offset of 4096
 * makes it valid. What is known of how large registers are must not say that these wrap nowhere. The thread's
 * number is in %t and, times 4, in %f; -4096 is in memory at %p.
 */
static const char *const addresses[] = {
    "sub.u32 %s, %f, 4096; mov.u32 %u, sv; add.u32 %s, %s, %u;",
    "mov.u32 %u, sv; add.s32 %s, %f, %u; add.s32 %s, %s, -4096;",
    "mad.lo.s32 %s, %t, 4, -4096; mov.u32 %u, sv; add.s32 %s, %s, %u;",
    "mad.lo.s32 %s, %t, -4, 4096; neg.s32 %s, %s;",
    "mul.lo.s32 %s, %t, -4; add.s32 %s, %s, 4096; not.b32 %s, %s; add.s32 %s, %s, 1;",
    "mul.lo.u32 %s, %t, 0x40000001; and.b32 %s, %s, 63; shl.b32 %s, %s, 2; add.u32 %s, %s, 0xfffff000;",
    "or.b32 %s, %f, 0xfffff000;",
    "xor.b32 %s, %f, 0xfffff000;",
    "or.b32 %s, %f, 0xfffff002; and.b32 %s, %s, -4;",
    "add.s32 %s, %f, -4096; max.s32 %s, %s, -8192; min.s32 %s, %s, 4096;",
    "add.s32 %s, %f, -4096; min.u32 %s, %s, 0xfffffffe; max.u32 %s, %s, 1;",
    "add.s32 %u, %f, -4096; setp.lt.u32 %c, %t, 100; selp.b32 %s, %u, %f, %c;",
    "mov.u32 %s, %f; setp.lt.u32 %c, %t, 100; @%c add.u32 %s, %s, 0xfffff000;",
    "add.s32 %s, %f, -4096; cvt.s32.s16 %s, %s;",
    "add.s32 %s, %f, -4096; cvt.s64.s32 %a, %s; cvt.u32.u64 %s, %a;",
    "mul.wide.u32 %a, %t, 4; add.u64 %a, %a, 0xfffff000; cvt.u32.u64 %s, %a;",
    "mul.wide.s32 %a, %t, -4; add.s64 %a, %a, 4096; neg.s64 %a, %a; cvt.u32.u64 %s, %a;",
    "add.s32 %s, %f, -4096; shl.b32 %s, %s, 3; shr.s32 %s, %s, 3;",
    "add.s32 %s, %f, -4096; rem.s32 %s, %s, 8192; div.s32 %s, %s, 1;",
    "add.s32 %s, %f, -4096; bfe.s32 %s, %s, 0, 20;",
    "ld.global.s32 %s, [%p]; add.s32 %s, %s, %f;",
    "ld.global.s16 %s, [%p]; add.s32 %s, %s, %f;",
    "ld.global.v2.s32 {%s, %u}, [%p]; add.s32 %s, %s, %f;",
    "call (%s), less, (%f);",
    "mov.u32 %s, %f; mov.u32 %u, 0; L: sub.u32 %s, %s, 1024; add.u32 %u, %u, 1; setp.lt.u32 %c, %u, 4; @%c "
    "bra L;",
    "mov.u32 %s, %f; mov.u32 %u, 0; L: add.u32 %s, %s, 0x3ffffc00; add.u32 %u, %u, 1; setp.lt.u32 %c, %u, 4; "
    "@%c bra L;",
    "mov.u32 %s, 1; mov.u32 %u, 0; L: shl.b32 %s, %s, 1; add.u32 %u, %u, 1; setp.lt.u32 %c, %u, 32; @%c bra "
    "L;\n"
    "add.u32 %s, %s, %f; add.s32 %s, %s, -4096;",
    "shl.b32 %s, %f, 29; shr.u32 %s, %s, 29; and.b32 %u, %f, 0xfff8; or.b32 %s, %s, %u; add.u32 %s, %s, "
    "-4096;",
};

/* The same with no way round: what is known to be small, with the offset beside. */
static const char *const small_addresses[] = {
    "mov.u32 %s, sv; add.u32 %s, %s, %f;",
    "mov.u32 %u, sv; mad.lo.u32 %s, %t, 4, %u;",
    "and.b32 %u, %t, 63; shl.b32 %s, %u, 2;",
    "mov.u32 %u, %ntid.x; mul.lo.u32 %u, %u, 4; rem.u32 %s, %f, %u;",
};

static void check_address(const char *body, uint32_t offset)
{
    enum { THREADS = 40 };
    for (int waits = 0; waits < 2; waits++) {
        uint32_t memory[2 + THREADS] = {(uint32_t)-4096, 7};
        const void *params[1] = {memory};
        char *text = NULL;
        int size = asprintf(&text,
                            ".func (.reg .u32 y) less(.reg .u32 x) { add.s32 y, x, -4096; ret; }\n"
                            ".visible .entry k(.param .u64 p) {\n.reg .u64 %%p, %%a; .reg .u32 %%t, %%u, "
                            "%%f, %%s; .reg .pred %%c;\n"
                            ".shared .align 16 .b8 sv[8192];\nld.param.u64 %%p, [p]; mov.u32 %%t, %%tid.x; "
                            "shl.b32 %%f, %%t, 2;\n"
                            "%s\n%s\nst.shared.u32 [%%s+%u], %%t; mov.u32 %%u, sv; add.u32 %%u, %%u, %%f; "
                            "add.u32 %%u, %%u, %u;\n"
                            "ld.shared.u32 %%u, [%%u]; mul.wide.u32 %%a, %%t, 4; add.u64 %%a, %%a, %%p; "
                            "add.u32 %%u, %%u, 1;\n"
                            "st.global.u32 [%%a+8], %%u; ret;\n}\n",
                            waits ? "bar.sync 0;" : "", body, offset, offset == 4096 ? 0 : offset);
        cr_assert(size > 0);
        struct sg_program *program = program_of(text);
        cr_expect_eq(run_grid(program, 2, THREADS, params), SG_FAULT_NONE, "fault: %s", body);
        for (uint32_t i = 0; i < THREADS; i++)
            cr_expect_eq(memory[2 + i], i + 1, "thread %u, %s a barrier: %s", i, waits ? "behind" : "without",
                         body);
        free_program(program);
        free(text);
    }
}

Test(access, offsets)
{
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
        check_address(addresses[i], 4096);
    for (size_t i = 0; i < sizeof(small_addresses) / sizeof(small_addresses[0]); i++)
        for (uint32_t offset = 0; offset < 4096; offset = offset * 16 + 4)
            check_address(small_addresses[i], offset);
}
