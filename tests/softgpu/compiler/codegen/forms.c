/*
 * forms.c - forms of instructions that only newer devices have: copies in bulk and the barriers that count
 * their bytes, arithmetic on mixed formats, reductions of floats over a warp, hints; and those that only
 * older PTX has.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs `body` by 64 threads; %in and %out are arrays of 256 words, %t the thread, %a its word in %out. */
static void run_form(const char *body, uint32_t in[256], uint32_t out[256])
{
    char *text = NULL;
    cr_assert(
        asprintf(&text,
                 ".visible .entry k(.param .u64 pin, .param .u64 pout) {\n"
                 ".reg .b64 %%in, %%out, %%a, %%d<8>, %%state; .reg .b32 %%t, %%r<8>; .reg .f32 %%f<8>;\n"
                 ".reg .b16 %%h<8>; .reg .pred %%p<4>; .shared .align 128 .b8 sv[1024]; .shared .align 8 "
                 ".b64 bar;\n"
                 "ld.param.u64 %%in, [pin]; ld.param.u64 %%out, [pout]; mov.u32 %%t, %%tid.x;\n"
                 "mad.wide.u32 %%a, %%t, 4, %%out;\n%s\nret;\n}\n",
                 body) > 0);
    memset(out, 0, 256 * sizeof(*out));
    run_grid_of(text, 1, 64, PARAMS(in, out));
    free(text);
}

static _Alignas(128) uint32_t in[256], out[256];

static void fill(void)
{
    for (uint32_t i = 0; i < 256; i++)
        in[i] = i * 0x01010101u + 7;
}

Test(forms, bulk_copy_in)
{
    fill();
    /* one thread expects the bytes and copies; all wait for the phase, then read what has come */
    run_form(
        "setp.ne.u32 %p0, %t, 0; @%p0 bra READY; mbarrier.init.shared::cta.b64 [bar], 1;\n"
        "fence.mbarrier_init.release.cluster;\nREADY: bar.sync 0; @%p0 bra WAIT;\n"
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 512;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sv], [%in], 256, [bar];\n"
        "mov.u32 %r1, 256; mov.u32 %r2, sv; add.u32 %r2, %r2, 256; add.u64 %d1, %in, 256; mov.u32 %r3, bar;\n"
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%d1], %r1, "
        "[%r3], %d2;\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra WAIT;\n"
        "mov.u32 %r2, sv; mad.lo.u32 %r2, %t, 8, %r2; ld.shared.v2.u32 {%r4, %r5}, [%r2];\n"
        "mad.wide.u32 %d3, %t, 8, %out; st.global.v2.u32 [%d3], {%r4, %r5};",
        in, out);
    cr_expect_eq(memcmp(in, out, 512), 0);
}

Test(forms, bulk_copy_out)
{
    fill();
    run_form("mov.u32 %r1, sv; mad.lo.u32 %r1, %t, 4, %r1; mad.wide.u32 %d1, %t, 4, %in; ld.global.u32 %r2, "
             "[%d1];\n"
             "st.shared.u32 [%r1], %r2; fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p0, %t, 0; "
             "@%p0 ret;\n"
             "cp.async.bulk.global.shared::cta.bulk_group [%out], [sv], 256; cp.async.bulk.commit_group;\n"
             "cp.async.bulk.prefetch.L2.global [%in], 256; cp.async.bulk.wait_group.read 0; "
             "cp.async.bulk.wait_group 0;\n"
             "add.u64 %d2, %out, 128; mov.u64 %d3, 64; st.bulk.weak [%d2], %d3, 0;",
             in, out);
    for (uint32_t i = 0; i < 64; i++)
        cr_expect_eq(out[i], i >= 32 && i < 48 ? 0 : in[i], "word %u: %#x", i, out[i]);
}

/* A phase ends when neither an arrival nor a byte is missing, in whatever order they come. */
Test(forms, barrier_bytes)
{
    run_form(
        "setp.ne.u32 %p0, %t, 0; @%p0 ret; mbarrier.init.shared.b64 [bar], 2;\n"
        "mbarrier.complete_tx.shared.b64 [bar], 48; mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; "
        "selp.u32 %r0, 1, 0, %p1;\n"
        "mbarrier.arrive.shared.b64 %state, [bar]; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;\n"
        "mbarrier.test_wait.shared.b64 %p1, [bar], %state; selp.u32 %r1, 1, 0, %p1;\n"
        "mbarrier.complete_tx.shared.b64 [bar], 16; mbarrier.test_wait.shared.b64 %p1, [bar], %state; "
        "selp.u32 %r2, 1, 0, %p1;\n"
        "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r3, 1, 0, %p1;\n"
        "mbarrier.arrive.shared.b64 %state, [bar]; mbarrier.pending_count.b64 %r4, %state;\n"
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 1048575; mbarrier.arrive_drop.shared.b64 _, "
        "[bar];\n"
        "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r5, 1, 0, %p1;\n"
        "mbarrier.complete_tx.shared.b64 [bar], 1048575; mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; "
        "selp.u32 %r6, 1, 0, %p1;\n"
        "mbarrier.arrive.shared.b64 %state, [bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %state; "
        "selp.u32 %r7, 1, 0, %p1;\n"
        "st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3}; st.global.v4.u32 [%out+16], {%r4, %r5, %r6, %r7};",
        in, out);
    static const uint32_t expected[8] = {0, 0, 1, 0, 2, 0, 1, 1}; /* after the drop one arrival is a phase */
    for (int i = 0; i < 8; i++)
        cr_expect_eq(out[i], expected[i], "%d: %u", i, out[i]);
}

Test(forms, mixed_formats)
{
    /* 2049 is no half; sums are float's */
    cr_expect_eq(run_f32("add.f32.f16 %f0, %h1, %f2;", IN(0x6800, f32_bits(1))), f32_bits(2049));
    cr_expect_eq(run_f32("sub.rz.f32.bf16 %f0, %h1, %f2;", IN(0x3f80, f32_bits(0x1p-30f))), 0x3f7fffff);
    cr_expect_eq(run_f32("fma.rn.f32.f16 %f0, %h1, %h2, %f3;", IN(0x3c01, 0x3c01, f32_bits(1))),
                 f32_bits(2 + 0x1p-9f + 0x1p-20f));
    cr_expect_eq(run_f32("fma.rn.sat.f32.bf16 %f0, %h1, %h2, %f3;", IN(0x4000, 0x4000, f32_bits(1))),
                 f32_bits(1));
    cr_expect_eq(run_b32("set.lt.and.f16x2.f16x2 %r0, %r1, %r2, %p3;", IN(0x3c003c00, 0x40003800, 1)),
                 0x3c000000);
    cr_expect_eq(run_b32("set.lt.or.f16x2.f16x2 %r0, %r1, %r2, %p3;", IN(0x3c003c00, 0x40003800, 1)),
                 0x3c003c00);
    cr_expect_eq(run_b32("mov.u32 %r0, (1 << 4) | 3;", IN(0)), 19);
}

static void reduce(const char *operation, uint32_t nan_lane, uint32_t *first, uint32_t *second)
{
    char body[512];
    for (uint32_t i = 0; i < 64; i++)
        in[i] = i == nan_lane ? 0x7fc00000 : f32_bits((float)((i * 37 + 11) % 64) - 32);
    snprintf(body, sizeof(body),
             "mad.wide.u32 %%d1, %%t, 4, %%in; ld.global.f32 %%f1, [%%d1]; redux.sync.%s.f32 %%f2, %%f1, -1; "
             "st.global.f32 [%%a], %%f2;",
             operation);
    run_form(body, in, out);
    *first = out[0];
    *second = out[63];
    for (uint32_t i = 0; i < 64; i++)
        cr_expect_eq(out[i], i < 32 ? *first : *second);
}

Test(forms, reductions_of_floats)
{
    float least[2] = {100, 100}, greatest[2] = {-100, -100}, nearest[2] = {100, 100};
    for (uint32_t i = 0; i < 64; i++) {
        float value = (float)((i * 37 + 11) % 64) - 32, magnitude = value < 0 ? -value : value;
        if (i == 40)
            continue;
        least[i / 32] = value < least[i / 32] ? value : least[i / 32];
        greatest[i / 32] = value > greatest[i / 32] ? value : greatest[i / 32];
        nearest[i / 32] = magnitude < nearest[i / 32] ? magnitude : nearest[i / 32];
    }
    uint32_t a, b;
    reduce("min", 40, &a, &b);
    cr_expect(a == f32_bits(least[0]) && b == f32_bits(least[1]), "%#x %#x", a, b);
    reduce("max", 40, &a, &b);
    cr_expect(a == f32_bits(greatest[0]) && b == f32_bits(greatest[1]), "%#x %#x", a, b);
    reduce("min.abs", 40, &a, &b);
    cr_expect(a == f32_bits(nearest[0]) && b == f32_bits(nearest[1]), "%#x %#x", a, b);
    reduce("max.NaN", 40, &a, &b);
    cr_expect(a == f32_bits(greatest[0]) && b == 0x7fffffff, "%#x %#x", a, b);
    reduce("min.abs.NaN", 40, &a, &b);
    cr_expect(a == f32_bits(nearest[0]) && b == 0x7fffffff, "%#x %#x", a, b);
}

Test(forms, hints)
{
    fill();
    run_form(
        "createpolicy.fractional.L2::evict_last.b64 %d1, 1.0; createpolicy.cvt.L2.b64 %d2, %d1;\n"
        "createpolicy.range.global.L2::evict_last.b64 %d3, [%in], 64, 128;\n"
        "ld.global.L1::no_allocate.L2::cache_hint.u32 %r0, [%in+4], %d1;\n"
        "atom.global.add.L2::cache_hint.u32 %r1, [%out+1020], 2, %d1; red.global.add.L2::cache_hint.u32 "
        "[%out+1020], 1, %d2;\n"
        "ld.mmio.relaxed.sys.global.u32 %r2, [%in+8]; add.u32 %r0, %r0, %r2; st.global.L2::cache_hint.u32 "
        "[%a], %r0, %d1;\n"
        "prefetch.global.L2::evict_last [%in]; membar.proxy.alias; fence.proxy.async.global; pmevent.mask "
        "3;\n"
        "fence.acquire.sync_restrict::shared::cluster.cluster; fence.proxy.tensormap::generic.release.gpu;",
        in, out);
    cr_expect_eq(out[255], 64 * 3);
    for (uint32_t i = 0; i < 64; i++)
        cr_expect_eq(out[i], in[1] + in[2]);
}

/* Values of 64 bits of some lanes, while others, and other warps, exchange 32 bits. */
Test(forms, exchanges_of_both_widths)
{
    run_form("mov.u32 %r6, 0; mov.u32 %r7, 0; and.b32 %r0, %t, 32; setp.ne.u32 %p2, %r0, 0;\n"
             "AGAIN: @%p2 vote.sync.any.pred %p3, %p2, -1;\n" /* the second warp is one exchange ahead */
             "and.b32 %r0, %t, 1; setp.ne.u32 %p0, %r0, 0; vote.sync.ballot.b32 %r1, %p0, -1;\n"
             "and.b32 %r2, %t, 2; add.u32 %r2, %r2, 5; mov.b64 %d1, {%r2, %r2}; @!%p0 bra REST;\n"
             "match.any.sync.b64 %r3, %d1, %r1; add.u32 %r6, %r6, %r3; bra BOTH;\n"
             "REST: not.b32 %r1, %r1; redux.sync.add.u32 %r3, %t, %r1; add.u32 %r6, %r6, %r3;\n"
             "BOTH: bar.warp.sync -1; shfl.sync.bfly.b32 %r4, %t, 1, 31, -1; add.u32 %r6, %r6, %r4;\n"
             "add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 3; @%p1 bra AGAIN; st.global.u32 [%a], %r6;",
             in, out);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t even = t < 32 ? 240 : 240 + 16 * 32,
                 one = t & 1 ? (t & 2 ? 0x88888888u : 0x22222222u) : even;
        cr_expect_eq(out[t], 3 * (one + (t ^ 1)), "thread %u: %#x", t, out[t]);
    }
}

/* Before Volta: among the lanes that come there together, also where their threads have diverged. */
Test(forms, exchanges_without_sync)
{
    run_form(
        "and.b32 %r0, %t, 3; setp.eq.u32 %p0, %r0, 0; vote.ballot.b32 %r1, %p0; vote.any.pred %p1, %p0;\n"
        "shfl.down.b32 %r2, %t, 1, 31; shfl.idx.b32 %r3|%p2, %t, 2, 0x1c1f; mov.u32 %r4, 100;\n"
        "@%p0 vote.all.pred %p3, %p0; @!%p0 bra REST; shfl.bfly.b32 %r4, %t, 4, 31;\n"
        "REST: xor.b32 %r1, %r1, 0x11111111; mad.lo.u32 %r1, %r2, 3, %r1; mad.lo.u32 %r1, %r3, 1000, %r1;\n"
        "@%p1 mad.lo.u32 %r1, %r4, 100000, %r1; st.global.u32 [%a], %r1;",
        in, out);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t down = t % 32 == 31 ? t : t + 1, other = t % 4 == 0 ? t ^ 4 : 100;
        cr_expect_eq(out[t], 3 * down + 1000 * (t / 4 * 4 + 2) + 100000 * other, "thread %u: %u", t, out[t]);
    }
}

/* Vectors of registers: declared, as a whole in braces' stead, and by element. */
Test(forms, vectors_of_registers)
{
    run_form(".reg .v2 .u32 v, w; .reg.v4.b32 q; mov.v2.u32 v, {%t, 7}; mov.v2.u32 v, {v.y, v.x};\n"
             "add.u32 w.x, v.x, v.g; mov.u32 w.y, v.y; mov.b64 %d0, w; mov.b64 {%r0, %r1}, %d0;\n"
             "mov.v4.b32 q, {%r0, %r1, 5, v.x}; mov.v4.b32 q, {q.w, q.z, q.y, q.x};\n"
             "mad.wide.u32 %d1, %t, 12, %a; .shared .align 16 .b8 room[1024]; mov.u32 %r2, room;\n"
             "mad.lo.u32 %r2, %t, 16, %r2; st.shared.v4.b32 [%r2], q; mov.v4.b32 q, {0, 0, 0, 0};\n"
             "ld.shared.v4.b32 q, [%r2]; mad.lo.u32 %r3, q.x, 1000, q.y; mad.lo.u32 %r3, q.b, 100, %r3;\n"
             "mad.lo.u32 %r3, q.a, 10000, %r3; st.global.u32 [%a], %r3;",
             in, out);
    for (uint32_t t = 0; t < 64; t++)
        cr_expect_eq(out[t], 7 * 1000 + 5 + 100 * t + 10000 * (t + 7), "thread %u: %u", t, out[t]);
}

/* A register and a number are a value, and not the register alone; labels stay where they are. */
Test(forms, sums_as_operands)
{
    run_form(
        "mov.u32 %r0, %t + 7; mov.u32 %r1, 0;\n"
        "AGAIN: add.u32 %r1, %r1 + 1, %r0; setp.lt.u32 %p0, %r1, %t+30; @%p0 bra AGAIN;\n"
        "cvt.u64.u32 %d0, %r1; cvt.u32.u64 %r2, %d0+-2; mov.b64 %d1, {%r2 + 1, %r1};\n"
        "mov.b64 {%r3, %r4}, %d1; sub.u32 %r3, %r3, %r4; st.global.v2.u32 [%out + 512], {%r3, %r4 + 3};\n"
        "st.global.u32 [%a], %r2 + 5;",
        in, out);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t sum = 0;
        do
            sum += 1 + t + 7;
        while (sum < t + 30);
        cr_expect_eq(out[t], sum + 3, "thread %u: %u", t, out[t]);
    }
    cr_expect_eq(out[128], UINT32_MAX);
}

/* Taichi declares vprintf without its result, which a linker that goes by names does not notice. */
Test(forms, built_in_functions_without_a_result)
{
    struct sg_program *program = program_of(
        ".extern .func vprintf(.param .b64 format, .param .b64 arguments);\n"
        ".extern .func malloc(.param .b64 size);\n"
        ".global .align 1 .b8 text[1];\n"
        ".visible .entry k(.param .u64 pin, .param .u64 pout) {\n"
        ".reg .b64 %a, %b; .reg .b32 %t;\n"
        "ld.param.u64 %a, [pout]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a; mov.u64 %b, text;\n"
        "{ .param .b64 f; .param .b64 g; st.param.b64 [f], %b; st.param.b64 [g], 0;\n"
        "call vprintf, (f, g); }\n"
        "{ .param .b64 s; st.param.b64 [s], 16; call malloc, (s); }\n"
        "st.global.u32 [%a], %t; ret; }\n");
    const void *params[2] = {in, out};
    memset(out, 0xff, sizeof(out));
    place_variables(program);
    cr_assert_eq(run_grid(program, 1, 64, params), 0);
    for (uint32_t i = 0; i < 64; i++)
        cr_expect_eq(out[i], i);
    free_program(program);
}
