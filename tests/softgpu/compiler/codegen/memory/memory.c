/*
 * memory.c - memory, variables, calls, control flow, atomics, and kernels of both forms.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

Test(memory, vectors_and_sizes)
{
    uint8_t in[32], out[64];
    for (int i = 0; i < 32; i++)
        in[i] = (uint8_t)(i * 9 + 100);
    memset(out, 0, sizeof(out));
    run_block_of(
        ".entry k(.param .u64 in, .param .u64 out) { .reg .b64 %a<3>; .reg .b32 %r<9>; .reg .b16 %h<9>;\n"
        "ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out];\n"
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a1]; st.global.v4.u32 [%a2], {%r4, %r3, %r2, %r1};\n"
        "ld.global.v2.u8 {%h1, %h2}, [%a1+16]; st.global.v2.u8 [%a2+16], {%h2, %h1};\n"
        "ld.global.s8 %r5, [%a1+17]; st.global.u32 [%a2+20], %r5;\n"
        "ld.global.nc.u16 %h3, [%a1+18]; st.global.u16 [%a2+24], %h3;\n"
        "ld.volatile.global.u32 %r6, [%a1+20]; st.relaxed.gpu.global.u32 [%a2+28], %r6;\n"
        "ld.acquire.sys.global.b64 %a1, [%a1+24]; st.release.cta.global.b64 [%a2+32], %a1; ret; }",
        1, PARAMS(in, out));
    uint32_t words[9], source[8];
    memcpy(words, out, sizeof(words));
    memcpy(source, in, sizeof(source));
    cr_expect_eq(words[0], source[3]);
    cr_expect_eq(words[3], source[0]);
    cr_expect_eq(out[16], in[17]);
    cr_expect_eq(words[5], (uint32_t)(int32_t)(int8_t)in[17]);
    cr_expect_eq(out[24], in[18]);
    cr_expect_eq(words[7], source[5]);
    cr_expect_eq(memcmp(out + 32, in + 24, 8), 0);
}

/* As Triton takes the addresses of its tensor maps: 32 bits, which cvta widens; beside one that was taken as 64 bits. */
Test(memory, parameters_by_narrow_addresses)
{
    uint32_t out[3] = {0};
    const struct {
        void *out;
        uint32_t box[4];
    } params = {out, {10, 11, 12, 13}};
    run_block_of(
        ".entry k(.param .u64 out, .param .align 8 .b8 box[16]) { .reg .b64 %a<6>; .reg .b32 %r<6>;\n"
        "ld.param.u64 %a1, [out]; mov.b32 %r1, box; cvt.u64.u32 %a2, %r1; cvta.param.u64 %a3, %a2;\n"
        "ld.u32 %r2, [%a3+4]; st.global.u32 [%a1], %r2; mov.b32 %r3, box+8; cvt.u64.u32 %a2, %r3;\n"
        "cvta.param.u64 %a3, %a2; ld.u32 %r4, [%a3]; st.global.u32 [%a1+4], %r4;\n"
        "mov.b64 %a4, box; cvta.param.u64 %a5, %a4; ld.u32 %r5, [%a5+12]; st.global.u32 [%a1+8], %r5; ret; "
        "}",
        1, &params);
    cr_expect_eq(out[0], 11);
    cr_expect_eq(out[1], 12);
    cr_expect_eq(out[2], 13);
}

/* With "short pointers" LLVM takes addresses of .local and .const variables as 32 bits. */
Test(memory, variables_by_narrow_addresses)
{
    for (int meets = 0; meets < 2; meets++) {
        uint32_t out[64] = {0};
        char text[1536];
        snprintf(
            text, sizeof(text),
            ".const .align 4 .b8 table[16] = {1, 0, 0, 0, 20};\n"
            ".func (.reg .b32 y) f(.reg .b32 x) { .reg .b32 %%r; ld.local.u32 %%r, [x+4]; mov.u32 y, %%r; "
            "ret; }\n"
            ".entry k(.param .u64 out) { .reg .b64 %%a<6>; .reg .b32 %%r<9>; .local .align 4 .b8 box[16];\n"
            "ld.param.u64 %%a1, [out]; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%a2, %%r1, 8; add.u64 %%a1, "
            "%%a1, %%a2;\n"
            "mov.b32 %%r2, box; and.b32 %%r3, %%r1, 3; shl.b32 %%r3, %%r3, 2; st.local.u32 [box+4], 7; "
            "add.u32 %%r4, "
            "%%r2, %%r3;\n"
            "st.local.u32 [%%r4], %%r1; %s mov.b32 %%r5, table; ld.const.u32 %%r6, [%%r5+4]; cvt.u64.u32 "
            "%%a3, %%r2;\n"
            "cvta.local.u64 %%a4, %%a3; add.u32 %%r7, %%r2, 0; ld.u32 %%r8, [%%a4+4]; cvt.u64.u32 %%a3, "
            "%%r5; "
            "cvta.const.u64 %%a4, %%a3;\n"
            "ld.u32 %%r5, [%%a4]; add.u32 %%r8, %%r8, %%r6; mad.lo.u32 %%r8, %%r5, 100, %%r8; call (%%r7), "
            "f, (%%r7);\n"
            "st.global.v2.u32 [%%a1], {%%r8, %%r7}; ret; }",
            meets ? "bar.sync 0;" : "");
        struct sg_program *program = program_of(text);
        place_variables(program);
        cr_assert_eq(run_grid(program, 1, 32, PARAMS(out)), 0);
        free_program(program);
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t second = i % 4 == 1 ? i : 7;
            cr_expect_eq(out[2 * i], second + 20 + 100, "thread %u: %u", i, out[2 * i]);
            cr_expect_eq(out[2 * i + 1], second, "thread %u: %u", i, out[2 * i + 1]);
        }
    }
}

/* All of a thread's variables are its own memory, however large. */
Test(memory, large_variables_are_local)
{
    uint32_t out[3] = {0};
    run_grid_of(
        ".entry k(.param .u64 out) { .reg .b64 %a<3>; .reg .b32 %r<3>; .reg .pred %p<3>; .local .align 8 .b8 "
        "box[200000];\n"
        "ld.param.u64 %a1, [out]; mov.u64 %a2, box; cvta.local.u64 %a2, %a2; st.u32 [%a2], 5; isspacep.local "
        "%p0, %a2;\n"
        "add.u64 %a2, %a2, 199996; st.u32 [%a2], 6; isspacep.local %p1, %a2; isspacep.local %p2, %a1;\n"
        "selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2;\n"
        "st.global.u32 [%a1], %r0; st.global.u32 [%a1+4], %r1; st.global.u32 [%a1+8], %r2; ret; }",
        1, 1, PARAMS(out));
    cr_expect_eq(out[0], 1);
    cr_expect_eq(out[1], 1);
    cr_expect_eq(out[2], 0);
}

Test(memory, initial_values)
{
    struct sg_program *program = program_of(
        ".func (.param .b32 r) f(.param .b32 x);\n"
        ".global .align 4 .b8 bytes[8] = {1, 0xff, 3};\n.const .f32 pi = 0f40490FDB;\n"
        ".global .f64 d[2] = {1.5, 0d4000000000000000};\n.global .s32 n = -5;\n.visible .global .u64 self = "
        "generic(self);\n"
        ".global .u64 p[3] = {bytes+4, f, 7};\n.global .b8 masked[4] = {0xff(n), 0xff00(n), 1, 2};\n"
        ".global .s16 m[2][2] = {{1, 2}, {-3, 4}};\n"
        ".func (.param .b32 r) f(.param .b32 x) { ret; }\n.entry k() { ret; }\n");
    place_variables(program);
    const unsigned char *bytes = variable_address(program, "bytes");
    cr_expect_eq(memcmp(bytes, "\1\377\3\0\0\0\0\0", 8), 0);
    cr_expect_eq(*(float *)variable_address(program, "pi"), 3.14159274f);
    cr_expect_eq(((double *)variable_address(program, "d"))[0], 1.5);
    cr_expect_eq(((double *)variable_address(program, "d"))[1], 2.0);
    cr_expect_eq(*(int32_t *)variable_address(program, "n"), -5);
    cr_expect_eq(*(void **)variable_address(program, "self"), variable_address(program, "self"));
    uint64_t *p = variable_address(program, "p");
    cr_expect_eq(p[0], (uintptr_t)bytes + 4);
    cr_expect_neq(p[1], 0);
    cr_expect_eq(p[2], 7);
    unsigned char *masked = variable_address(program, "masked");
    cr_expect_eq(masked[0], (uintptr_t)variable_address(program, "n") & 0xff);
    cr_expect_eq(masked[1], ((uintptr_t)variable_address(program, "n") >> 8) & 0xff);
    cr_expect_eq(((int16_t *)variable_address(program, "m"))[2], -3);
    cr_expect_eq(sg_program_variable(program, 1)->constant, true);
    cr_expect_eq(sg_program_variable(program, 0)->constant, false);
    free_program(program);
}

Test(memory, calls)
{
    /* direct, recursive, through a table, with a structure by value */
    struct sg_program *program = program_of(
        ".global .u64 table[2] = {twice, thrice};\n"
        ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; ld.param.u32 %r1, [x];\n"
        "  shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }\n"
        ".func (.param .b32 r) thrice(.param .b32 x) { .reg .b32 %r<3>; ld.param.u32 %r1, [x];\n"
        "  mul.lo.s32 %r2, %r1, 3; st.param.b32 [r], %r2; ret; }\n"
        ".func (.param .b32 r) fib(.param .b32 n) { .reg .b32 %r<9>; .reg .pred %p<2>; ld.param.u32 %r1, "
        "[n];\n"
        "  setp.lt.s32 %p1, %r1, 2; @%p1 bra DONE; sub.s32 %r2, %r1, 1; sub.s32 %r3, %r1, 2;\n"
        "  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call.uni (b), fib, (a); ld.param.b32 %r4, "
        "[b]; }\n"
        "  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call.uni (b), fib, (a); ld.param.b32 %r5, "
        "[b]; }\n"
        "  add.s32 %r1, %r4, %r5; DONE: st.param.b32 [r], %r1; ret; }\n"
        ".func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 s[16]) { .reg .b64 %a<3>;\n"
        "  ld.param.v2.b64 {%a1, %a2}, [s]; st.param.b64 [r], %a2; st.param.b64 [r+8], %a1; ret; }\n"
        ".func (.reg .u32 r) plus(.reg .u32 x, .reg .u32 y) { add.u32 r, x, y; ret; }\n"
        ".entry k(.param .u64 out, .param .u32 which) { .reg .b64 %a<9>; .reg .b32 %r<9>;\n"
        "  ld.param.u64 %a1, [out]; ld.param.u32 %r1, [which];\n"
        "  { .param .b32 x; .param .b32 y; st.param.b32 [x], 10; call (y), fib, (x); ld.param.b32 %r2, [y]; "
        "}\n"
        "  st.global.u32 [%a1], %r2;\n"
        "  mov.u64 %a2, table; mul.wide.u32 %a3, %r1, 8; add.s64 %a4, %a2, %a3; ld.global.u64 %a5, [%a4];\n"
        "  { .param .b32 x; .param .b32 y; st.param.b32 [x], 7; P: .callprototype (.param .b32 _) _ (.param "
        ".b32 _);\n"
        "    call (y), %a5, (x), P; ld.param.b32 %r3, [y]; }\n"
        "  st.global.u32 [%a1+4], %r3;\n"
        "  { .param .align 8 .b8 x[16]; .param .align 8 .b8 y[16]; st.param.b64 [x], 1; st.param.b64 [x+8], "
        "2;\n"
        "    call (y), swap, (x); ld.param.b64 %a6, [y]; ld.param.b64 %a7, [y+8]; }\n"
        "  st.global.v2.u64 [%a1+16], {%a6, %a7};\n"
        "  call (%r4), plus, (%r1, 40); st.global.u32 [%a1+8], %r4; ret; }");
    place_variables(program);
    struct {
        void *out;
        uint32_t which;
    } params;
    _Alignas(16) uint64_t out[8] = {0};
    params.out = out;
    for (uint32_t which = 0; which < 2; which++) {
        params.which = which;
        run_block(program, 1, &params);
        cr_expect_eq((uint32_t)out[0], 55);
        cr_expect_eq((uint32_t)(out[0] >> 32), which == 0 ? 14 : 21);
        cr_expect_eq(out[2], 2);
        cr_expect_eq(out[3], 1);
        cr_expect_eq((uint32_t)out[1], 40 + which);
    }
    free_program(program);
}

Test(memory, local_and_branch_table)
{
    /* an array of the thread's own, indexed by data, and a jump through a table, in every thread */
    enum { THREADS = 64 };
    uint32_t out[THREADS];
    run_block_of(
        ".entry k(.param .u64 out) { .local .align 4 .b8 depot[16]; .reg .b64 %a<9>; .reg .b32 %r<9>;\n"
        "  ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %a2, %r1, 4; add.s64 %a1, %a1, %a2;\n"
        "  mov.u64 %a3, depot; cvta.local.u64 %a4, %a3; and.b32 %r2, %r1, 3;\n"
        "  mul.wide.u32 %a5, %r2, 4; add.s64 %a5, %a4, %a5; st.local.u32 [depot], 0; st.local.u32 [depot+4], "
        "0;\n"
        "  st.u32 [%a5], %r1; ld.local.u32 %r3, [%a3+4];\n"
        "  T: .branchtargets L0, L1, L2, L3; brx.idx %r2, T;\n"
        "  L0: add.s32 %r3, %r3, 1000; bra.uni END; L1: add.s32 %r3, %r3, 2000; bra END;\n"
        "  L2: add.s32 %r3, %r3, 3000; bra END; L3: add.s32 %r3, %r3, 4000;\n"
        "  END: st.global.u32 [%a1], %r3; }",
        THREADS, PARAMS(out));
    for (uint32_t i = 0; i < THREADS; i++)
        cr_expect_eq(out[i], ((i & 3) == 1 ? i : 0) + 1000 * ((i & 3) + 1), "thread %u: %u", i, out[i]);
}

Test(memory, atomics)
{
    enum { THREADS = 100 };
    _Alignas(16) uint32_t memory[16] = {0, 0, 0, 0xffffffff, 0, 200, 0, 0, 0, 0, 0, 0};
    run_block_of(
        ".entry k(.param .u64 out) { .reg .b64 %a<9>; .reg .b32 %r<9>; .reg .f32 %f<4>;\n"
        "  ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x;\n"
        "  red.global.add.u32 [%a1], %r1; atom.global.inc.u32 %r2, [%a1+4], 6; atom.global.max.s32 %r2, "
        "[%a1+8], %r1;\n"
        "  atom.min.u32 %r2, [%a1+12], %r1; atom.global.add.f32 %f1, [%a1+16], 0f3F800000;\n"
        "  atom.global.dec.u32 %r2, [%a1+20], 300; atom.global.or.b32 %r2, [%a1+24], %r1;\n"
        "  atom.relaxed.gpu.global.cas.b32 %r2, [%a1+28], %r1, 77; atom.global.exch.b32 %r2, [%a1+32], %r1;\n"
        "  atom.add.noftz.f16x2 %r2, [%a1+36], 0x3c003c00; atom.global.add.u64 %a2, [%a1+40], 3; ret; }",
        THREADS, PARAMS(memory));
    float sum;
    memcpy(&sum, &memory[4], sizeof(sum));
    cr_expect_eq(memory[0], 4950);
    cr_expect_eq(memory[1], 100 % 7);
    cr_expect_eq(memory[2], 99);
    cr_expect_eq(memory[3], 0);
    cr_expect_eq(sum, 100.0f);
    cr_expect_eq(memory[5], 100);
    cr_expect_eq(memory[6], 127);
    cr_expect_eq(memory[7], 77);
    cr_expect_eq(memory[8], 99);
    cr_expect_eq(memory[9], 0x56405640); /* 100 in half precision */
    cr_expect_eq(memory[10], 300);
}

Test(memory, atomics_on_vectors)
{
    enum { THREADS = 64 };
    _Alignas(16) struct {
        float v4[4];
        uint16_t halves[8];
        uint32_t pairs[2];
        float old[2];
    } memory = {
        .v4 = {0, 10, 20, 30}, .halves = {0xbc00, 0, 0, 0, 0, 0, 0, 0x7e00}, .pairs = {0x40004000, 0}};
    run_block_of(
        ".entry k(.param .u64 out) { .reg .b64 %a<4>; .reg .b32 %r<4>; .reg .f32 %f<9>; .reg .b16 %h<9>;\n"
        "  ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mov.b32 %f2, 0f40000000;\n"
        "  red.global.add.v4.f32 [%a1], {%f1, %f2, %f2, %f1};\n"
        "  cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2;\n"
        "  red.relaxed.gpu.global.max.noftz.v8.f16 [%a1+16], {%h1, %h2, %h1, %h2, %h1, %h2, %h1, %h2};\n"
        "  mov.b32 %r2, 0x3c004400; atom.add.noftz.v2.bf16x2 {%r3, %r3}, [%a1+32], {0, 0};\n"
        "  red.global.min.noftz.v2.f16x2 [%a1+32], {%r2, %r2};\n"
        "  atom.global.add.v2.f32 {%f5, %f6}, [%a1+40], {%f2, %f2}; ret; }",
        THREADS, PARAMS(&memory));
    cr_expect_eq(memory.v4[0], 2016.0f);
    cr_expect_eq(memory.v4[1], 138.0f);
    cr_expect_eq(memory.v4[2], 148.0f);
    cr_expect_eq(memory.v4[3], 2046.0f);
    cr_expect_eq(memory.halves[0], 0x53e0); /* 63 */
    cr_expect_eq(memory.halves[1], 0x4000);
    cr_expect_eq(memory.halves[7], 0x4000, "NaN gives way to a number: %#x", memory.halves[7]);
    cr_expect_eq(memory.pairs[0], 0x3c004000);
    cr_expect_eq(memory.pairs[1], 0);
    cr_expect_eq(memory.old[0], 128.0f);
    cr_expect_eq(memory.old[1], 128.0f);
}

Test(memory, barrier_and_shared)
{
    enum { THREADS = 96, BLOCKS = 5 };
    uint32_t in[THREADS * BLOCKS], out[THREADS * BLOCKS];
    for (uint32_t i = 0; i < THREADS * BLOCKS; i++)
        in[i] = i * 3;
    struct sg_program *program = program_of(
        ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .u32 first;\n"
        ".entry k(.param .u64 in, .param .u64 out) { .reg .b64 %a<9>; .reg .b32 %r<16>; .shared .u32 "
        "tile[96];\n"
        "  .reg .pred %p<3>;\n"
        "  ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n"
        "  mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %a3, %r4, 4; add.s64 %a4, %a1, "
        "%a3;\n"
        "  ld.global.u32 %r5, [%a4]; mov.u32 %r6, tile; shl.b32 %r7, %r1, 2; add.u32 %r6, %r6, %r7;\n"
        "  st.shared.u32 [%r6], %r5; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [first], %r2;\n"
        "  mov.u32 %r8, dynamic; add.u32 %r8, %r8, %r7; st.shared.u32 [%r8], %r1; bar.sync 0;\n"
        "  sub.u32 %r9, 95, %r1; shl.b32 %r9, %r9, 2; mov.u32 %r10, tile; add.u32 %r10, %r10, %r9;\n"
        "  ld.shared.u32 %r11, [%r10]; ld.shared.u32 %r12, [first]; mul.lo.u32 %r12, %r12, 100000;\n"
        "  add.u32 %r11, %r11, %r12; cvt.u64.u32 %a5, %r8; cvta.shared.u64 %a5, %a5; ld.u32 %r13, [%a5];\n"
        "  sub.u32 %r13, %r13, %r1; add.u32 %r11, %r11, %r13;\n"
        "  shfl.sync.idx.b32 %r14|%p2, %r11, 0, 31, 0xffffffff; add.s64 %a6, %a2, %a3;\n"
        "  sub.u32 %r14, %r14, %r11; st.global.u32 [%a6], %r14; ret; }");
    const struct sg_kernel *kernel = sg_program_kernel(program, 0);
    cr_expect_neq(kernel->form, SG_CODE_BLOCK);
    cr_expect_eq(kernel->shared_static, 400);
    cr_expect_eq(run_grid(program, BLOCKS, THREADS, PARAMS(in, out)), 0);
    free_program(program);
    for (uint32_t block = 0; block < BLOCKS; block++)
        for (uint32_t i = 0; i < THREADS; i++) {
            uint32_t expected = 3 * (i % 32); /* value of the warp's first lane less one's own */
            cr_expect_eq(out[block * THREADS + i], expected, "block %u thread %u: %u", block, i,
                         out[block * THREADS + i]);
        }
}

/* Programs whose threads wait, cut into loops or with a stack for each. */
static struct sg_program *program_in(enum sg_code_form form, const char *text)
{
    setenv("SOFTGPU_OPT", form == SG_CODE_THREAD ? "-loops" : "", 1);
    struct sg_program *program = program_of(text);
    cr_expect_eq(sg_program_kernel(program, 0)->form, form);
    return program;
}

static void wait_for_another_thread(enum sg_code_form form)
{
    /* the first thread waits for a flag that the last one sets */
    uint32_t flag[2] = {0, 0};
    struct sg_program *program = program_in(
        form, ".entry k(.param .u64 flag) { .reg .b64 %a<3>; .reg .b32 %r<4>; .reg .pred %p<3>;\n"
              "  ld.param.u64 %a1, [flag]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra SET;\n"
              "  WAIT: ld.volatile.global.u32 %r2, [%a1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;\n"
              "  st.global.u32 [%a1+4], %r2; ret; SET: st.volatile.global.u32 [%a1], %r1; ret; }");
    const void *params[1] = {flag};
    cr_expect_eq(run_grid(program, 1, 2, params), 0);
    cr_expect_eq(flag[1], 1);
    free_program(program);
}

Test(memory, waiting_for_another_thread)
{
    wait_for_another_thread(SG_CODE_LOOPS);
    wait_for_another_thread(SG_CODE_THREAD);
}

Test(memory, exit_in_callee_and_trap)
{
    uint32_t out[2] = {0, 0};
    struct sg_program *program = program_of(
        ".func leave() { exit; }\n"
        ".entry k(.param .u64 out) { .reg .b64 %a<3>; .reg .b32 %r<4>; .reg .pred %p<3>;\n"
        "  ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 call leave;\n"
        "  st.global.u32 [%a1+4], %r1; ret; }");
    cr_expect_eq(sg_program_kernel(program, 0)->form, SG_CODE_THREAD);
    const void *params[1] = {out};
    cr_expect_eq(run_grid(program, 1, 2, params), 0);
    cr_expect_eq(out[1], 1);
    free_program(program);
    program = program_of(".entry k() { trap; }");
    cr_expect_eq(run_grid(program, 1, 1, params), SG_FAULT_TRAP);
    free_program(program);
}

Test(memory, bad_function_pointer)
{
    struct sg_program *program = program_of(
        ".func f() { ret; }\n.global .u64 keep = f;\n"
        ".entry k() { .reg .b64 %a<3>; mov.u64 %a1, 12345; P: .callprototype _ (); call %a1, (), P; ret; }");
    place_variables(program);
    const void *params[1] = {NULL};
    cr_expect_eq(run_grid(program, 1, 1, params), SG_FAULT_INVALID_PC);
    free_program(program);
}

Test(memory, large_block_vectorises_and_is_right)
{
    enum { N = 1000 };
    static float a[N], b[N], c[N + 24];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)(i * i % 97);
    }
    for (int i = N; i < N + 24; i++)
        c[i] = -1;
    struct {
        void *a, *b, *c;
        uint32_t n;
    } params = {a, b, c, N};
    run_block_of(
        ".entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {\n"
        "  .reg .b64 %rd<12>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .pred %p<2>;\n"
        "  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r2, [n];\n"
        "  mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %tid.x; mad.lo.s32 %r1, %r3, %r4, %r5;\n"
        "  setp.ge.s32 %p1, %r1, %r2; @%p1 bra END; cvta.to.global.u64 %rd4, %rd1; mul.wide.s32 %rd5, %r1, "
        "4;\n"
        "  add.s64 %rd6, %rd4, %rd5; cvta.to.global.u64 %rd7, %rd2; add.s64 %rd8, %rd7, %rd5;\n"
        "  ld.global.f32 %f1, [%rd8]; ld.global.f32 %f2, [%rd6]; add.f32 %f3, %f2, %f1;\n"
        "  cvta.to.global.u64 %rd9, %rd3; add.s64 %rd10, %rd9, %rd5; st.global.f32 [%rd10], %f3; END: ret; "
        "}",
        1024, &params);
    for (int i = 0; i < N; i++)
        cr_assert_eq(c[i], a[i] + b[i]);
    for (int i = N; i < N + 24; i++)
        cr_assert_eq(c[i], -1.0f);
}

/* Two modules that need each other, each with a function and a variable of the same name for itself. */
Test(memory, linked_modules)
{
#define HEADER ".version 8.7\n.target sm_90\n.address_size 64\n"
    static const char first[] = HEADER
        ".extern .func (.param .b32 r) outside(.param .b32 x);\n.global .u32 own = 3;\n.visible .global .u32 "
        "common;\n"
        ".weak .func (.param .b32 r) twin() { st.param.b32 [r], 1; ret; }\n"
        ".func (.param .b32 r) inside() { .reg .b32 %r<2>; ld.global.u32 %r1, [own]; st.param.b32 [r], %r1; "
        "ret; }\n"
        ".visible .entry k(.param .u64 out) { .reg .b64 %a<2>; .reg .b32 %r<9>; ld.param.u64 %a1, [out];\n"
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], 5; call (y), outside, (x); ld.param.b32 %r1, [y]; "
        "}\n"
        "{ .param .b32 y; call (y), inside; ld.param.b32 %r2, [y]; }\n"
        "{ .param .b32 y; call (y), twin; ld.param.b32 %r3, [y]; }\n"
        "ld.global.u32 %r4, [common]; st.global.v4.u32 [%a1], {%r1, %r2, %r3, %r4}; ret; }\n";
    static const char second[] = HEADER
        ".extern .global .u32 common;\n.global .u32 own = 40;\n"
        ".weak .func (.param .b32 r) twin() { st.param.b32 [r], 2; ret; }\n"
        ".func (.param .b32 r) inside() { .reg .b32 %r<2>; ld.global.u32 %r1, [own]; st.param.b32 [r], %r1; "
        "ret; }\n"
        ".visible .func (.param .b32 r) outside(.param .b32 x) { .reg .b32 %r<9>; ld.param.u32 %r1, [x];\n"
        "st.global.u32 [common], %r1; { .param .b32 y; call (y), inside; ld.param.b32 %r2, [y]; }\n"
        "add.u32 %r1, %r1, %r2; st.param.b32 [r], %r1; ret; }\n";
    const struct sg_source sources[2] = {{first, sizeof(first) - 1}, {second, sizeof(second) - 1}};
    struct sg_program *program = NULL;
    struct sg_text log = {0};
    cr_assert_eq(sg_program_link(sources, 2, 120, &log, &program), SG_COMPILE_OK, "%s", log.data);
    for (size_t i = 0; sg_program_variable(program, i) != NULL; i++)
        cr_expect_not(sg_program_variable(program, i)->external, "%s", sg_program_variable(program, i)->name);
    place_variables(program);
    _Alignas(16) uint32_t out[4];
    const void *params[1] = {out};
    run_block(program, 1, params);
    cr_expect_eq(out[0], 45);
    cr_expect_eq(out[1], 3);
    cr_expect_eq(out[2], 1);
    cr_expect_eq(out[3], 5);
    free_program(program);
}

/* All lanes store, there is a fence, and one lane speaks for all without waiting for them. */
Test(memory, fences_keep_a_warp_together)
{
    static const char *const fences[] = {"membar.gl", "membar.cta", "fence.acq_rel.gpu"};
    for (size_t i = 0; i < 2 * sizeof(fences) / sizeof(fences[0]); i++) {
        char text[2048];
        snprintf(
            text, sizeof(text),
            ".visible .entry k(.param .u64 out) { .reg .b64 %%a<4>; .reg .b32 %%r<9>; .reg .pred %%p<3>;\n"
            "ld.param.u64 %%a1, [out]; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%a2, %%r1, 4;\n"
            "add.u64 %%a2, %%a1, %%a2; bar.warp.sync -1; add.u32 %%r2, %%r1, 1;\n"
            "st.volatile.global.u32 [%%a2+4], %%r2; %s; setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra WAIT;\n"
            "mov.u32 %%r3, 0; mov.u32 %%r4, 0; mov.u64 %%a3, %%a1;\n"
            "LOOP: add.u64 %%a3, %%a3, 4; ld.global.u32 %%r5, [%%a3]; add.u32 %%r3, %%r3, %%r5;\n"
            "add.u32 %%r4, %%r4, 1; setp.lt.u32 %%p2, %%r4, 32; @%%p2 bra LOOP;\n"
            "st.volatile.global.u32 [%%a1], %%r3;\n"
            "WAIT: ld.volatile.global.u32 %%r6, [%%a1]; setp.eq.u32 %%p1, %%r6, 0; @%%p1 bra WAIT; ret; }\n",
            fences[i / 2]);
        struct sg_program *program = program_in(i % 2 ? SG_CODE_THREAD : SG_CODE_LOOPS, text);
        uint32_t out[33] = {0};
        const void *params[1] = {out};
        cr_expect_eq(run_grid(program, 1, 32, params), 0);
        cr_expect_eq(out[0], 32 * 33 / 2, "%s: %u", fences[i / 2], out[0]);
        free_program(program);
    }
}

/* Every block writes its word, then reads its neighbour's, three times over. */
Test(memory, barriers_of_the_device_runtime)
{
    struct sg_program *program = program_of(
        ".extern .func (.param .b64 h) cudaCGGetIntrinsicHandle(.param .b32 scope);\n"
        ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 flags);\n"
        ".extern .func (.param .b32 r) cudaCGSynchronizeGrid(.param .b64 h, .param .b32 flags);\n"
        ".entry k(.param .u64 data) { .reg .b64 %a<5>; .reg .b32 %r<9>; .reg .pred %p;\n"
        "{ .param .b32 s; .param .b64 h; st.param.b32 [s], 1; call (h), cudaCGGetIntrinsicHandle, (s); "
        "ld.param.b64 "
        "%a1, [h]; }\n"
        "ld.param.u64 %a2, [data]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r5, 0;\n"
        "mul.wide.u32 %a3, %r1, 4; add.u64 %a3, %a3, %a2; add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2;\n"
        "mul.wide.u32 %a4, %r3, 4; add.u64 %a4, %a4, %a2;\n"
        "again: ld.global.u32 %r4, [%a4];\n"
        "{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %a1; st.param.b32 [f], 0;\n"
        "call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r6, [r]; }\n"
        "add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, 1; st.global.u32 [%a3], %r4;\n"
        "{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %a1; st.param.b32 [f], 0;\n"
        "call (r), cudaCGSynchronizeGrid, (h, f); ld.param.b32 %r6, [r]; }\n"
        "add.u32 %r5, %r5, 1; setp.lt.u32 %p, %r5, 3; @%p bra again;\n"
        "{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], 0; st.param.b32 [f], 0;\n"
        "call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r6, [r]; }\n"
        "st.global.u32 [%a3+32], %r6; ret; }");
    uint32_t data[16] = {10, 20, 30, 40, 50, 60, 70, 80};
    uint64_t address = (uintptr_t)data;
    cr_assert(sg_program_kernel(program, 0)->cooperative);
    cr_assert_eq(run_grid(program, 8, 4, &address), 0);
    for (unsigned i = 0; i < 8; i++) {
        cr_expect_eq(data[i], (i + 3) % 8 * 10 + 13, "%u: %u", i, data[i]);
        cr_expect_eq(data[8 + i], 1, "no handle is an error");
    }
    free_program(program);
}

/* What variables take is told to the byte; dynamic memory begins on a place for anything. */
Test(memory, shared_variables_are_counted)
{
    struct sg_program *program =
        program_of(".visible .entry k() { .shared .align 8 .b8 few[40]; .reg .b32 %r;\n"
                   "mov.u32 %r, few; ret; }\n");
    cr_expect_eq(sg_program_kernel(program, 0)->shared_used, 40);
    cr_expect_eq(sg_program_kernel(program, 0)->shared_static, 48);
    free_program(program);
}

/* All kernels of a program see all its constants, as on a GPU, where they are one bank. */
Test(memory, constants_are_counted)
{
    struct sg_program *program =
        program_of(".const .align 4 .b8 few[5]; .const .align 16 .b8 more[32]; .global .b32 other;\n"
                   ".visible .entry k() { ret; }\n.visible .entry l() { ret; }\n");
    cr_expect_eq(sg_program_kernel(program, 0)->const_size, 48);
    cr_expect_eq(sg_program_kernel(program, 1)->const_size, 48);
    free_program(program);
}
