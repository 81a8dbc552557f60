/*
 * copy.c - what PTX calls asynchronous, beyond plain copies: reductions in bulk, stores and reductions whose
 * bytes an mbarrier counts, copies that leave bytes out; and the addresses of a cluster, of one block here
 * (the engine's tests and the example have more).
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES 256u

/*
 * Runs `body` by one thread; %in and %out are the arrays' addresses, in shared memory there are `to`, which
 * begins as `out` does, `from`, which is as `in`, and the initialised mbarrier `bar`. Afterwards `to` is
 * stored in out[BYTES …].
 */
static void run_copy(const char *body, const void *in, void *out)
{
    char *text = NULL;
    cr_assert(asprintf(&text,
                       ".visible .entry k(.param .u64 pin, .param .u64 pout) {\n"
                       ".reg .b64 %%in, %%out, %%d<8>; .reg .b32 %%i, %%r<16>; .reg .f32 %%f<4>; .reg .f64 "
                       "%%e<4>; .reg .b16 "
                       "%%h<4>; .reg .pred %%p<4>;\n"
                       ".shared .align 128 .b8 to[%u], from[%u]; .shared .align 8 .b64 bar;\n"
                       "ld.param.u64 %%in, [pin]; ld.param.u64 %%out, [pout]; mov.u32 %%i, 0;\n"
                       "FILL: cvt.u64.u32 %%d0, %%i; add.u64 %%d1, %%in, %%d0; ld.global.u32 %%r1, [%%d1]; "
                       "mov.u32 %%r2, from; "
                       "add.u32 %%r2, %%r2, %%i; st.shared.u32 [%%r2], %%r1;\n"
                       "add.u64 %%d1, %%out, %%d0; ld.global.u32 %%r1, [%%d1]; mov.u32 %%r2, to; add.u32 "
                       "%%r2, %%r2, %%i; "
                       "st.shared.u32 [%%r2], %%r1;\n"
                       "add.u32 %%i, %%i, 4; setp.lt.u32 %%p0, %%i, %u; @%%p0 bra FILL;\n"
                       "mbarrier.init.shared.b64 [bar], 1;\n%s\n"
                       "mov.u32 %%i, 0;\nBACK: cvt.u64.u32 %%d0, %%i; add.u64 %%d1, %%out, %%d0; mov.u32 "
                       "%%r2, to; add.u32 "
                       "%%r2, %%r2, %%i; ld.shared.u32 %%r1, [%%r2]; st.global.u32 [%%d1+%u], %%r1;\n"
                       "add.u32 %%i, %%i, 4; setp.lt.u32 %%p0, %%i, %u; @%%p0 bra BACK;\nret;\n}\n",
                       BYTES, BYTES, BYTES, body, BYTES, BYTES) > 0);
    run_grid_of(text, 1, 1, PARAMS(in, out));
    free(text);
}

static _Alignas(128) unsigned char in[BYTES], out[2 * BYTES], before[BYTES];

static void fill(void)
{
    uint32_t random = 4711;
    for (uint32_t i = 0; i < BYTES; i++) {
        random = random * 1664525 + 1013904223;
        in[i] = (unsigned char)(random >> 24);
        out[i] = before[i] = (unsigned char)(random >> 16);
    }
}

/* --- reductions in bulk --- */

static uint64_t word_at(const unsigned char *bytes, uint32_t i, uint32_t size)
{
    uint64_t word = 0;
    memcpy(&word, bytes + (size_t)i * size, size);
    return word;
}

static int64_t extended(uint64_t word, uint32_t size)
{
    return size == 4 ? (int32_t)(uint32_t)word : (int64_t)word;
}

/* By the definition, in integers of `size` bytes. */
static uint64_t reduced(const char *operation, bool is_signed, uint64_t old, uint64_t value, uint32_t size)
{
    bool less = is_signed ? extended(value, size) < extended(old, size) : value < old;
    if (strcmp(operation, "add") == 0)
        return size == 4 ? (uint32_t)(old + value) : old + value;
    if (strcmp(operation, "min") == 0)
        return less ? value : old;
    if (strcmp(operation, "max") == 0)
        return less ? old : value;
    if (strcmp(operation, "inc") == 0)
        return old >= value ? 0 : old + 1;
    if (strcmp(operation, "dec") == 0)
        return old == 0 || old > value ? value : old - 1;
    return strcmp(operation, "and") == 0  ? old & value
           : strcmp(operation, "or") == 0 ? old | value
                                          : old ^ value;
}

static void check_integers(const char *operation, const char *type, bool shared)
{
    uint32_t size = strstr(type, "64") != NULL ? 8 : 4;
    char body[512];
    fill();
    memcpy(in + 64, before + 64, 8); /* equal ones */
    memset(out + 32, 0, 8);
    memset(before + 32, 0, 8);
    if (shared)
        snprintf(body, sizeof(body),
                 "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 240;\n"
                 "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.%s.%s [to], "
                 "[from], 240, [bar];\n"
                 "mbarrier.test_wait.parity.shared.b64 %%p1, [bar], 0; @!%%p1 trap;",
                 operation, type);
    else
        snprintf(body, sizeof(body),
                 "cp.reduce.async.bulk.global.shared::cta.bulk_group.%s.%s [%%out], [from], 240; "
                 "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
                 operation, type);
    run_copy(body, in, out);
    for (uint32_t i = 0; i < BYTES / size; i++) {
        uint64_t old = word_at(before, i, size), value = word_at(in, i, size),
                 result = word_at(shared ? out + BYTES : out, i, size),
                 wanted = i * size < 240 ? reduced(operation, type[0] == 's', old, value, size) : old;
        cr_assert_eq(result, wanted, "%s.%s of %#lx and %#lx: %#lx", operation, type, (unsigned long)old,
                     (unsigned long)value, (unsigned long)result);
    }
}

Test(copies, integers_reduced_in_bulk)
{
    static const char *const shared[][2] = {{"add", "u32"}, {"add", "s32"}, {"add", "u64"}, {"min", "s32"},
                                            {"min", "u32"}, {"max", "s32"}, {"max", "u32"}, {"inc", "u32"},
                                            {"dec", "u32"}, {"and", "b32"}, {"or", "b32"},  {"xor", "b32"}};
    static const char *const global[][2] = {{"add", "u64"}, {"add", "s32"}, {"min", "s64"}, {"min", "u64"},
                                            {"max", "s64"}, {"max", "u64"}, {"inc", "u32"}, {"dec", "u32"},
                                            {"and", "b64"}, {"or", "b32"},  {"xor", "b64"}, {"max", "s32"}};
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        check_integers(shared[i][0], shared[i][1], true);
    for (size_t i = 0; i < sizeof(global) / sizeof(global[0]); i++)
        check_integers(global[i][0], global[i][1], false);
}

Test(copies, floats_reduced_in_bulk)
{
    static const char form[] = "cp.reduce.async.bulk.global.shared::cta.bulk_group.%s [%%out], [from], 64;";
    char body[256];
    for (uint32_t i = 0; i < 16; i++) {
        memcpy(in + (size_t)i * 4, &(float){(float)i * 0.5f}, 4);
        memcpy(out + (size_t)i * 4, &(float){100 - (float)i}, 4);
    }
    snprintf(body, sizeof(body), form, "add.f32");
    run_copy(body, in, out);
    for (uint32_t i = 0; i < 16; i++)
        cr_expect_eq(word_at(out, i, 4), f32_bits(100 - (float)i * 0.5f));
    for (uint32_t i = 0; i < 8; i++) {
        memcpy(in + (size_t)i * 8, &(double){(double)i * 0.25}, 8);
        memcpy(out + (size_t)i * 8, &(double){(double)i}, 8);
    }
    snprintf(body, sizeof(body), form, "add.f64");
    run_copy(body, in, out);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(word_at(out, i, 8), f64_bits((double)i * 1.25));
    /* 1 + 2 = 3, and of NaN and a number the number */
    static const struct {
        const char *form;
        uint16_t old, value, result;
    } small[] = {{"add.noftz.f16", 0x3c00, 0x4000, 0x4200},  {"add.noftz.f16", 0x0001, 0x0002, 0x0003},
                 {"add.noftz.bf16", 0x3f80, 0x4000, 0x4040}, {"min.f16", 0xbc00, 0x3c00, 0xbc00},
                 {"max.f16", 0x7e00, 0x3c00, 0x3c00},        {"max.bf16", 0xbf80, 0xc000, 0xbf80}};
    for (size_t n = 0; n < sizeof(small) / sizeof(small[0]); n++) {
        for (uint32_t i = 0; i < 32; i++) {
            memcpy(in + (size_t)i * 2, &small[n].value, 2);
            memcpy(out + (size_t)i * 2, &small[n].old, 2);
        }
        snprintf(body, sizeof(body), form, small[n].form);
        run_copy(body, in, out);
        for (uint32_t i = 0; i < 32; i++)
            cr_expect_eq(word_at(out, i, 2), small[n].result, "%s: %#lx", small[n].form,
                         (unsigned long)word_at(out, i, 2));
    }
}

Test(copies, bytes_left_out)
{
    fill();
    run_copy(
        "mov.u16 %h1, 0x8421; cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [from], 48, %h1;",
        in, out);
    for (uint32_t i = 0; i < BYTES; i++)
        cr_expect_eq(out[i], i < 48 && (0x8421 >> i % 16 & 1) != 0 ? in[i] : before[i], "byte %u", i);
}

/* The barrier counts all bytes; what is not read may be anything, and stays as it is here. */
Test(copies, bytes_ignored_at_the_ends)
{
    static const struct {
        uint32_t left, right;
    } cut[] = {{0, 0}, {3, 0}, {0, 15}, {15, 1}};
    for (size_t n = 0; n < sizeof(cut) / sizeof(cut[0]); n++) {
        char body[512];
        snprintf(body, sizeof(body),
                 "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; mov.u32 %%r1, to; mov.u32 %%r2, bar; "
                 "mov.u32 %%r3, 64;\n"
                 "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%%r1], [%%in], "
                 "%%r3, %u, %u, [%%r2];\n"
                 "mbarrier.test_wait.parity.shared.b64 %%p1, [bar], 0; @!%%p1 trap;",
                 cut[n].left, cut[n].right);
        fill();
        run_copy(body, in, out);
        for (uint32_t i = 0; i < BYTES; i++)
            cr_expect_eq(out[BYTES + i], i >= cut[n].left && i < 64 - cut[n].right ? in[i] : before[i],
                         "byte %u", i);
    }
}

/* --- stores and reductions that an mbarrier counts --- */

Test(copies, stores_counted)
{
    fill();
    run_copy("mbarrier.arrive.expect_tx.shared.b64 _, [bar], 76; mov.u32 %r1, to; mov.u32 %r2, bar; "
             "mapa.shared::cluster.u32 "
             "%r3, %r1, 0; mapa.shared::cluster.u32 %r4, %r2, 0; mov.u32 %r5, 17; mov.u32 %r6, 18;\n"
             "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r5, [%r2];\n"
             "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.s32 [%r3+8], {%r5, %r6}, [%r4];\n"
             "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r3+16], {%r5, %r6, %r6, "
             "%r5}, [%r4];\n"
             "mov.u64 %d2, 0x0102030405060708; "
             "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u64 [%r3+32], "
             "{%d2, %d2}, [%r4];\n"
             "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @%p1 trap;\n"
             "cvta.shared.u64 %d3, %d4; mov.u64 %d4, to; cvta.shared.u64 %d3, %d4; mov.u64 %d4, bar; "
             "cvta.shared.u64 %d5, %d4;\n"
             "mov.f64 %e1, 0d3ff0000000000000; st.async.weak.mbarrier::complete_tx::bytes.v2.f64 [%d3+48], "
             "{%e1, %e1}, [%d5];\n"
             "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3+64], %r5, "
             "[%r4];\n"
             "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32 [%r1+68], %r5, "
             "[%r2];\n"
             "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u64 [%d3+72], %d2, [%d5];\n"
             "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 trap;\n"
             "st.async.mmio.release.sys.global.u32 [%out], %r6; red.async.mmio.release.sys.global.add.u32 "
             "[%out+4], %r6;",
             in, out);
    const unsigned char *to = out + BYTES;
    const uint32_t words[] = {17, 0, 17, 18, 17, 18, 18, 17};
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(word_at(to, i, 4), i == 1 ? word_at(before, 1, 4) : words[i], "word %u", i);
    cr_expect(word_at(to, 4, 8) == 0x0102030405060708 && word_at(to, 5, 8) == 0x0102030405060708);
    cr_expect(word_at(to, 6, 8) == f64_bits(1) && word_at(to, 7, 8) == f64_bits(1));
    cr_expect_eq(word_at(to, 16, 4), (uint32_t)(word_at(before, 16, 4) + 17));
    cr_expect_eq(word_at(to, 17, 4), word_at(before, 17, 4) ^ 17);
    cr_expect_eq(word_at(to, 9, 8), word_at(before, 9, 8) + 0x0102030405060708);
    cr_expect_eq(word_at(out, 0, 4), 18);
    cr_expect_eq(word_at(out, 1, 4), (uint32_t)(word_at(before, 1, 4) + 18));
}

/* No cluster can be had; the answer says so, and comes as a copy would. */
Test(copies, clusters_not_canceled)
{
    fill();
    run_copy(
        "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; mov.u32 %r3, to;\n"
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [to], [bar];\n"
        "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 trap; .reg .b128 %q; ld.shared.b128 %q, "
        "[to];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q; @%p2 trap;\n"
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r4, %r5, %r6, _}, %q; "
        "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r7, %q;",
        in, out);
    cr_expect(word_at(out + BYTES, 0, 8) == 0 && word_at(out + BYTES, 1, 8) == 0);
    cr_expect_eq(memcmp(out + BYTES + 16, before + 16, BYTES - 16), 0);
}

/* --- addresses of a cluster --- */

Test(copies, windows)
{
    fill();
    run_copy(
        "mov.u32 %r1, to; add.u32 %r1, %r1, 20; mapa.shared::cluster.u32 %r2, %r1, 0; "
        "mapa.shared::cluster.u32 %r3, %r2, 0;\n"
        "ld.shared::cluster.u32 %r4, [%r1]; ld.shared::cluster.u32 %r5, [%r3+4]; st.global.v2.u32 [%out], "
        "{%r4, %r5};\n"
        "atom.shared::cluster.add.u32 %r6, [%r2], 5; red.relaxed.cluster.shared::cluster.add.u32 [%r2+4], "
        "7;\n"
        "getctarank.shared::cluster.u32 %r7, %r1; getctarank.shared::cluster.u32 %r8, %r2; add.u32 %r7, %r7, "
        "%r8;\n"
        "cvt.u64.u32 %d1, %r2; cvta.shared::cluster.u64 %d2, %d1; cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d4, "
        "%d3;\n"
        "setp.ne.u64 %p1, %d2, %d4; selp.u32 %r9, 1, 0, %p1; add.u32 %r7, %r7, %r9; getctarank.u64 %r8, %d2; "
        "add.u32 %r7, "
        "%r7, %r8;\n"
        "mapa.u64 %d5, %d2, 0; setp.ne.u64 %p1, %d5, %d4; selp.u32 %r9, 1, 0, %p1; add.u32 %r7, %r7, %r9;\n"
        "cvta.to.shared::cluster.u64 %d6, %d4; setp.ne.u64 %p1, %d6, %d3; selp.u32 %r9, 1, 0, %p1; add.u32 "
        "%r7, %r7, %r9;\n"
        "isspacep.shared::cluster %p1, %d4; selp.u32 %r9, 0, 1, %p1; add.u32 %r7, %r7, %r9; "
        "isspacep.shared::cta %p1, %d4; "
        "selp.u32 %r9, 0, 1, %p1; add.u32 %r7, %r7, %r9;\n"
        "isspacep.shared::cluster %p1, %out; selp.u32 %r9, 1, 0, %p1; add.u32 %r7, %r7, %r9; isspacep.global "
        "%p1, %out; "
        "selp.u32 %r9, 0, 1, %p1; add.u32 %r7, %r7, %r9;\n"
        "mov.u32 %r8, %cluster_nctarank; add.u32 %r7, %r7, %r8; mov.u32 %r8, %cluster_ctarank; add.u32 %r7, "
        "%r7, %r8;\n"
        "mov.pred %p1, %is_explicit_cluster; selp.u32 %r9, 1, 0, %p1; add.u32 %r7, %r7, %r9;\n"
        "st.global.v2.u32 [%out+8], {%r6, %r7}; barrier.cluster.arrive.release; "
        "barrier.cluster.wait.acquire;",
        in, out);
    cr_expect_eq(word_at(out, 0, 4), word_at(before, 5, 4));
    cr_expect_eq(word_at(out, 1, 4), word_at(before, 6, 4));
    cr_expect_eq(word_at(out, 2, 4), word_at(before, 5, 4));
    cr_expect_eq(word_at(out, 3, 4), 1, "%u", (unsigned)word_at(out, 3, 4));
    cr_expect_eq(word_at(out + BYTES, 5, 4), (uint32_t)(word_at(before, 5, 4) + 5));
    cr_expect_eq(word_at(out + BYTES, 6, 4), (uint32_t)(word_at(before, 6, 4) + 7));
}
