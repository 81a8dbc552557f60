/*
 * errors.c - text that must be refused: on which line, and in which words.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *insn, *log;
} bad[] = {
    {"frobnicate.u32 %r1, %r2;", "ptx:11: unknown instruction 'frobnicate': frobnicate.u32 %r1, %r2\n"},
    {"add.u32 %r1 + 1, %r2, %r3;",
     "ptx:11: a number cannot be added to '%r1' here: add.u32 %r1 + 1, %r2, %r3\n"},
    {"mov.v2.u32 %r1, {%r2, %r3};",
     "ptx:11: a vector of 2 registers is wanted: mov.v2.u32 %r1, {%r2, %r3}\n"},
    {"add.f32 %f1, %f2 + 1, %f3;",
     "ptx:11: a number cannot be added to a register of type .f32: add.f32 %f1, %f2 + 1, %f3\n"},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};",
     "ptx:11: a vector of 4 registers is wanted for a matrix of this instruction: "
     "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1}\n"},
    {"wmma.load.d.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4}, [%rd1];",
     "ptx:11: a, b and c are loaded, d is stored: "
     "wmma.load.d.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4}, [%rd1]\n"},
    {"ldmatrix.sync.aligned.m8n8.x2.global.b16 {%r1, %r2}, [%rd1];",
     "ptx:11: the matrices of this instruction are in .shared memory: "
     "ldmatrix.sync.aligned.m8n8.x2.global.b16 {%r1, %r2}, [%rd1]\n"},
    {"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f5,%f6}];",
     "ptx:11: unknown name 't': "
     "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f5,%f6}]\n"},
    {"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5}];",
     "ptx:11: 2 coordinates are wanted: "
     "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5}]\n"},
    {"tex.2d.v4.f64.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f5,%f6}];",
     "ptx:11: the type is missing or not supported: "
     "tex.2d.v4.f64.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f5,%f6}]\n"},
    {"tex.2d.v4.f16x2.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f5,%f6}];",
     "ptx:11: results are vectors of 2: "
     "tex.2d.v4.f16x2.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%f5,%f6}]\n"},
    {"tex.level.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r5,%r6}], %f7;",
     "ptx:11: a register of type .f32 does not fit where .s32 is wanted: "
     "tex.level.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r5,%r6}], %f7\n"},
    {"tex.level.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], 1;",
     "ptx:11: an integer where .f32 is wanted: "
     "tex.level.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], 1\n"},
    {"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], %f7;",
     "ptx:11: a vector of 2 is wanted: "
     "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], %f7\n"},
    {"sust.b.2d.b32 [%rd1, {%r1,%r2}], {%r3};",
     "ptx:11: a rule for bounds is missing: sust.b.2d.b32 [%rd1, {%r1,%r2}], {%r3}\n"},
    {"add %r1, %r2, %r3;", "ptx:11: instruction 'add' lacks a type or modifier: add %r1, %r2, %r3\n"},
    {"add.s32 %r1, %r2;", "ptx:11: wrong number of operands: add.s32 %r1, %r2\n"},
    {"add.s32 %r1, %r2, %f3;",
     "ptx:11: a register of type .f32 does not fit where .s32 is wanted: add.s32 %r1, %r2, %f3\n"},
    {"shfl.idx.b32;", "ptx:11: wrong number of operands: shfl.idx.b32\n"},
    {"vote.all.pred;", "ptx:11: wrong number of operands: vote.all.pred\n"},
    {"add.s64 %rd1, %r2, %rd3;",
     "ptx:11: a register of type .b32 does not fit where .s64 is wanted: add.s64 %rd1, %r2, %rd3\n"},
    {"add.s32 %r1, %r2, %r77;", "ptx:11: unknown name '%r77': add.s32 %r1, %r2, %r77\n"},
    {"add.s32 5, %r2, %r3;", "ptx:11: the result must be a register: add.s32 5, %r2, %r3\n"},
    {"bra NOWHERE;", "ptx:11: unknown name 'NOWHERE': bra NOWHERE\n"},
    {"@%r1 bra X; X:", "ptx:11: the guard '%r1' is not a predicate: @%r1 bra X\n"},
    {"ld.global.u32 %r1, %rd1;",
     "ptx:11: operand 2 must be an address in brackets: ld.global.u32 %r1, %rd1\n"},
    {"ld.global.v2.u32 %r1, [%rd1];",
     "ptx:11: operand 1 must be a vector of 2: ld.global.v2.u32 %r1, [%rd1]\n"},
    {"st.const.u32 [%rd1], %r1;", "ptx:11: constant memory cannot be written: st.const.u32 [%rd1], %r1\n"},
    {"cvt.s32.f32 %r1, %f1;",
     "ptx:11: a conversion to an integer needs .rni, .rzi, .rmi or .rpi: cvt.s32.f32 %r1, %f1\n"},
    {"div.f32 %f1, %f2, %f3;", "ptx:11: needs .approx or a rounding mode: div.f32 %f1, %f2, %f3\n"},
    {"atom.global.inc.s32 %r1, [%rd1], 1;",
     "ptx:11: the operation does not fit type .s32: atom.global.inc.s32 %r1, [%rd1], 1\n"},
    {"red.global.add.v8.f32 [%rd1], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1};",
     "ptx:11: a vector of more than 16 bytes: "
     "red.global.add.v8.f32 [%rd1], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1}\n"},
    {"red.global.min.v2.f32 [%rd1], {%f1, %f1};",
     "ptx:11: the operation does not fit a vector of type .f32: red.global.min.v2.f32 [%rd1], {%f1, %f1}\n"},
    {"red.shared.add.v2.f32 [%rd1], {%f1, %f1};", "ptx:11: atomic operations on vectors work on .global "
                                                  "memory: red.shared.add.v2.f32 [%rd1], {%f1, %f1}\n"},
    {"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f1}, %rd1, %rd1, %p1, 1, 1, 0, 0;",
     "ptx:11: a vector of 4 registers is wanted for a matrix of this instruction: "
     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f1}, %rd1, %rd1, %p1, 1, 1, 0, 0\n"},
    {"wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %p1, 1, 0;",
     "ptx:11: operand 6 is 1 or -1: "
     "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %p1, 1, 0\n"},
    {"wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r1, %r1, %r1}, %rd1, %rd1, %p1, 1, 1;",
     "ptx:11: wrong number of operands: "
     "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r1, %r1, %r1}, %rd1, %rd1, %p1, 1, 1\n"},
    {"call (%r1), nothing, (%r2);", "ptx:11: unknown name 'nothing': call (%r1), nothing, (%r2)\n"},
    {".reg .b32 %r<4>;", "ptx:11: '%r' is already declared here\n"},
    {"add.s32 %r1, %r2, 3", "ptx:12: expected ';', found 'ret'\n"},
    {"mov.u32 %r1, 0f3F8;", "ptx:11: a 0f literal needs 8 hexadecimal digits\n"},
    {"mov.u32 %r1, #;", "ptx:11: unexpected character 0x23\n"},
};

Test(errors, instructions)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_str_eq(log_of_insn(bad[i].insn), bad[i].log);
}

/* What may be right and is not known here: refused with the kernel. */
static const struct {
    const char *insn, *log;
} unknown[] = {
    {"vote.b32 %r1, %p1;", "ptx:11: modifier '.b32' does not fit instruction 'vote': vote.b32 %r1, %p1\n"},
    {"tcgen05.wait::ld.sync.aligned;", "ptx:11: instruction 'tcgen05' is not supported by the software "
                                       "device: tcgen05.wait::ld.sync.aligned\n"},
    {"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %r1, 0, %p1, 1, "
     "1, 0, 0;",
     "ptx:11: instruction 'wgmma' is not supported by the software device: "
     "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %r1, 0, %p1, 1, "
     "1, 0, 0\n"},
    {"wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16 {%f1}, %rd1, %rd1, %p1, 1, 1, 0, 0;",
     "ptx:11: instruction 'wgmma' is not supported by the software device: "
     "wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16 {%f1}, %rd1, %rd1, %p1, 1, 1, 0, 0\n"},
    {"mma.sync.aligned.m16n8k4.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r2}, {%r1};",
     "ptx:11: the software device has no multiplication of this shape for .f16 and .f16: "
     "mma.sync.aligned.m16n8k4.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r2}, {%r1}\n"},
    {"mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%f1}, {%r1}, {%r2}, {%f1};",
     "ptx:11: the software device has no multiplication of this shape for .e2m1 and .e2m1: "
     "mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%f1}, {%r1}, {%r2}, {%f1}\n"},
    {"mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r2}, {%r1}, "
     "%r3, 0;",
     "ptx:11: the software device has no multiplication of this shape for .f16 and .f16: "
     "mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r2}, {%r1}, "
     "%r3, 0\n"},
    {"add.wide.s32 %r1, %r2, %r3;",
     "ptx:11: modifier '.wide' does not fit instruction 'add': add.wide.s32 %r1, %r2, %r3\n"},
    {"multimem.st.weak.global.u32 [%rd1], %r1;",
     "ptx:11: instruction 'multimem' is not supported by the software device: multimem.st.weak.global.u32 "
     "[%rd1], %r1\n"},
};

Test(errors, unknown_instructions)
{
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        cr_expect_str_eq(log_of_unknown_insn(unknown[i].insn), unknown[i].log);
}

/* GCC's kernels of OpenMP would wait for ever. */
Test(errors, lanes_that_share_a_stack)
{
    struct sg_program *program =
        program_of(".shared .u32 __nvptx_uni[32];\n.entry k() { .reg .u64 %a;\nmov.u64 %a, "
                   "__nvptx_uni; st.shared.u32 [%a], 0; ret; }\n.entry other() { ret; }\n");
    struct sg_text log = {0};
    void *code = NULL;
    cr_expect_eq(sg_program_code(program, 0, &log, &code), SG_COMPILE_UNKNOWN);
    cr_expect(log.data && strstr(log.data, "GCC's OpenMP is not supported"), "%s", log.data);
    cr_expect_eq(sg_program_code(program, 1, &log, &code), SG_COMPILE_OK);
    sg_text_fini(&log);
    sg_program_destroy(program);
}

/* A kernel that calls such a function is refused, one that may reach it by a pointer runs until it does; others run. */
Test(errors, unknown_instructions_keep_only_those_from_running_that_need_them)
{
    struct sg_program *program = program_of(
        ".func strange(.param .b64 p) { .reg .b64 %a; ld.param.u64 %a, [p]; multimem.st.weak.global.u32 "
        "[%a], 1; ret; }\n"
        ".func fine(.param .b64 p) { .reg .b64 %a; ld.param.u64 %a, [p]; st.global.u32 [%a], 7; ret; }\n"
        ".global .u64 table[2] = {strange, fine};\n"
        ".entry by_table(.param .u64 p, .param .u64 i) {\n"
        ".reg .b64 %a<4>; .reg .pred %q; ld.param.u64 %a1, [p]; ld.param.u64 %a2, [i]; mov.u64 %a0, table;\n"
        "shl.b64 %a2, %a2, 3; add.s64 %a0, %a0, %a2; ld.global.u64 %a3, [%a0];\n"
        "{ .param .b64 q; st.param.b64 [q], %a1; proto: .callprototype _ (.param .b64 q0); call %a3, (q), "
        "proto; }\n"
        "ret; }\n"
        ".entry by_name(.param .u64 p) { .reg .b64 %a; ld.param.u64 %a, [p];\n"
        "{ .param .b64 q; st.param.b64 [q], %a; call strange, (q); } ret; }\n");
    struct sg_text log = {0};
    void *code = NULL;
    uint32_t out = 0;
    cr_expect_eq(sg_program_code(program, 1, &log, &code), SG_COMPILE_UNKNOWN);
    cr_expect_str_eq(log.data, "ptx:4: instruction 'multimem' is not supported by the software device: "
                               "multimem.st.weak.global.u32 [%a], 1\n");
    place_variables(program);
    const struct {
        uint32_t *p;
        uint64_t i;
    } right = {&out, 1}, wrong = {&out, 0};
    cr_expect_eq(run_grid(program, 1, 1, &right), SG_FAULT_NONE);
    cr_expect_eq(out, 7);
    cr_expect_eq(run_grid(program, 1, 1, &wrong), SG_FAULT_ILLEGAL_INSTRUCTION);
    sg_text_fini(&log);
    free_program(program);
}

/* As many as ptxas and the driver take: 4352 bytes before PTX 8.1, and for devices before 7.0. */
Test(errors, parameters)
{
    static const struct {
        const char *version, *target;
        unsigned most;
    } kinds[] = {{"8.1", "sm_90", 32764}, {"8.0", "sm_90", 4352}, {"8.1", "sm_61", 4352}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (unsigned more = 0; more < 2; more++) {
            char ptx[256], wanted[256];
            struct sg_text log = {0};
            struct sg_program *program = NULL;
            snprintf(ptx, sizeof(ptx),
                     ".version %s\n.target %s\n.address_size 64\n.func f(.param .b8 p[40000]) { ret; }\n"
                     ".entry k(.param .b64 p, .param .b8 q[%u]) { ret; }",
                     kinds[i].version, kinds[i].target, kinds[i].most - 8 + more);
            snprintf(wanted, sizeof(wanted),
                     "ptx:5: parameters of 'k' are too large: %u bytes of at most %u\n", kinds[i].most + 1,
                     kinds[i].most);
            cr_expect_eq(sg_program_create(ptx, strlen(ptx), 90, &log, &program),
                         more ? SG_COMPILE_INVALID_PTX : SG_COMPILE_OK);
            cr_expect_str_eq(log.data ? log.data : "", more ? wanted : "");
            sg_text_fini(&log);
            if (program != NULL)
                sg_program_destroy(program);
        }
}

Test(errors, modules)
{
    cr_expect_str_eq(log_of(".entry k() { ret;", SG_COMPILE_INVALID_PTX),
                     "ptx:4: expected '}', found the end of the text\n");
    cr_expect_str_eq(log_of("\n.global .u32 x;\n.global .u32 x;", SG_COMPILE_INVALID_PTX),
                     "ptx:6: already defined: 'x'\n");
    cr_expect_str_eq(log_of(".global .u64 p = missing;", SG_COMPILE_INVALID_PTX),
                     "ptx:4: unknown symbol 'missing'\n");
    cr_expect_str_eq(log_of(".version 99.0\n", SG_COMPILE_UNSUPPORTED_PTX),
                     "ptx:1: .version 99.0 is newer than the newest known, 9.9\n");
    cr_expect_str_eq(log_of(".version 123456789012.0\n", SG_COMPILE_INVALID_PTX),
                     "ptx:4: expected a version, found '123456789012.0'\n");
    cr_expect_str_eq(log_of(".target sm_100\n", SG_COMPILE_NO_BINARY),
                     "ptx:4: .target sm_100 does not fit the device's sm_90\n");
    cr_expect_str_eq(log_of(".entry k() { .local .b8 x[600000]; ret; }", SG_COMPILE_INVALID_PTX),
                     "ptx:4: variable is too large: 'x'\n");
    cr_expect_str_eq(log_of("/* no end", SG_COMPILE_INVALID_PTX), "ptx:4: comment is not closed\n");
    cr_expect_str_eq(
        log_of(".entry k() .blocksareclusters .reqnctapercluster 2, 0, 1 { ret; }", SG_COMPILE_INVALID_PTX),
        "ptx:4: expected a number of threads or blocks that is not 0, found '0'\n");
    cr_expect_str_eq(log_of(".global .align 3 .u32 x;", SG_COMPILE_INVALID_PTX),
                     "ptx:4: .align must be a power of two, at most 4096\n");
}

/* What is nested more deeply than any program needs is refused before the stack is used up. */
Test(errors, nesting)
{
    static const struct {
        const char *before, *open, *close, *after, *log;
    } cases[] = {
        {".global .u32 x[2] = ", "{", "", "", "nested more than"},
        {".global .u32 x = ", "(", "", "", "nested more than"},
        {".global .u32 x = ", "-", "", "", "nested more than"},
        {".global .u32 x = ", "1 ? 1 : ", "", "", "nested more than"},
        {".global .u32 x = ", "1 ? ", "", "", "nested more than"},
        {".entry k() { mov.b64 %rd1, ", "{", "}", "; }", "nested more than"},
        {".entry k() { call ", "(", ")", "; }", "nested more than"},
        {".entry k() { ld.global.u32 %r1, ", "[a, ", "]", "; }", "nested more than"},
        {".entry k() { setp.eq.u32 ", "%p|", "", "; }", "nested more than"},
        {".entry k() ", "{", "}", "", "braces are nested too deeply"},
        {".entry k() ", "{", "", "", "expected '}', found the end of the text"},
    };
    enum { TIMES = 1 << 20 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *open = cases[i].open, *close = cases[i].close, *after = cases[i].after;
        size_t head = strlen(cases[i].before);
        char *text = malloc(head + TIMES * (strlen(open) + strlen(close)) + strlen(after) + 1),
             *to = text + head;
        memcpy(text, cases[i].before, head);
        for (size_t n = 0; n < TIMES; n++)
            to = stpcpy(to, open);
        for (size_t n = 0; n < TIMES; n++)
            to = stpcpy(to, close);
        strcpy(to, after);
        const char *log = log_of(text, SG_COMPILE_INVALID_PTX);
        cr_expect(strncmp(log, "ptx:4: ", 7) == 0 &&
                      strncmp(log + 7, cases[i].log, strlen(cases[i].log)) == 0,
                  "case %zu: %.60s", i, log);
        free(text);
    }
    cr_expect_str_eq(log_of(".global .u32 x = ((((((((((((((((7))))))))))))))));", SG_COMPILE_OK), "");
}

Test(errors, bodies_end_where_their_own_brace_is)
{
    free_program(program_of(".entry k() { /* } */ // }\n .pragma \"}\"; { ret; } }\n.entry l() { ret; }"));
    cr_expect_str_eq(log_of(".entry k() { ret; }\n}", SG_COMPILE_INVALID_PTX),
                     "ptx:5: expected a directive, found '}'\n");
    cr_expect_str_eq(log_of(".entry k() { .pragma \"}; ret; }", SG_COMPILE_INVALID_PTX),
                     "ptx:4: expected '}', found the end of the text\n");
    cr_expect_str_eq(log_of(".weak .func f() { ret; }\n.weak .func f() { ret }", SG_COMPILE_INVALID_PTX),
                     "ptx:5: expected a number, found '}'\n");
}

Test(errors, what_a_kernel_needs_must_be_there_when_it_is_loaded)
{
    cr_expect_str_eq(
        log_of(".extern .func elsewhere();\n.entry k() { call elsewhere; ret; }", SG_COMPILE_UNRESOLVED),
        "undefined function 'elsewhere'\n");
    cr_expect_str_eq(
        log_of(".extern .global .u32 there;\n.entry k() { .reg .b32 %r;\nld.global.u32 %r, [there]; ret; }",
               SG_COMPILE_UNRESOLVED),
        "ptx:6: undefined variable 'there'\n");
    cr_expect_str_eq(
        log_of(".extern .const .u32 there;\n.func f() { .reg .b64 %a;\nmov.b64 %a, there; ret; }\n"
               ".entry k() { call f; ret; }",
               SG_COMPILE_UNRESOLVED),
        "ptx:6: undefined variable 'there'\n");
    cr_expect_str_eq(log_of(".extern .func elsewhere();\n.extern .global .u32 there;\n"
                            ".visible .func no_kernel_calls() { call elsewhere; ret; }\n.entry k() { ret; }",
                            SG_COMPILE_OK),
                     "");
}

Test(errors, a_function_that_the_device_runtime_lacks_here_fails_with_its_kernel)
{
    struct sg_program *program = program_of(
        ".extern .func (.param .b32 r) cudaNotYetInvented();\n"
        ".entry k() { .param .b32 r; call (r), cudaNotYetInvented, (); ret; }\n.entry l() { ret; }");
    struct sg_text log = {0};
    void *code = NULL;
    cr_expect_eq(sg_program_code(program, 0, &log, &code), SG_COMPILE_UNRESOLVED);
    cr_expect_str_eq(log.data, "undefined function 'cudaNotYetInvented'\n");
    cr_expect_eq(sg_program_code(program, 1, &log, &code), SG_COMPILE_OK);
    sg_text_fini(&log);
    free_program(program);
}

Test(errors, a_kernel_has_48_kilobytes_of_shared_variables)
{
    cr_expect_str_eq(
        log_of(".shared .b8 all[49152];\n.entry k() { .reg .b32 %r;\nmov.u32 %r, all; ret; }", SG_COMPILE_OK),
        "");
    cr_expect_str_eq(log_of(".shared .b8 unused[1000000];\n.entry k() { ret; }", SG_COMPILE_OK), "");
    cr_expect_str_eq(
        log_of(".entry k() { .shared .b8 all[49153]; ret; }", SG_COMPILE_INVALID_PTX),
        "ptx:4: kernel 'k' uses too much shared data: 0xc001 bytes with 'all', 0xc000 at most\n");
    cr_expect_str_eq(
        log_of(
            ".shared .b8 a[40000];\n.func f() { .shared .b8 b[9153];\n.reg .b32 %r;\nmov.u32 %r, a; ret; }\n"
            ".entry k() { call f; ret; }",
            SG_COMPILE_INVALID_PTX),
        "ptx:4: kernel 'k' uses too much shared data: 0xc001 bytes with 'a', 0xc000 at most\n");
}
