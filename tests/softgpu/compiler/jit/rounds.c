/*
 * rounds.c - see rounds.h. Integers are mixed as SHA does it; beside them go floats, each operation of which has a result that
 * other roundings, or products that are fused with sums, would change.
 */
#include "tests/softgpu/compiler/jit/rounds.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t constant(unsigned round)
{
    return (round + 1) * 2654435769u;
}

static void write_integers(FILE *out, unsigned round)
{
    fprintf(out, "shf.l.wrap.b32 %%t0, %%a0, %%a0, 5;\n"
                 "lop3.b32 %%t1, %%a1, %%a2, %%a3, 0xca;\n" /* choose */
                 "add.u32 %%t0, %%t0, %%t1;\n");
    fprintf(out, "add.u32 %%t0, %%t0, %u;\n", constant(round));
    fprintf(out, "ld.local.u32 %%t1, [words+%u];\n", round % 16 * 4);
    fprintf(out, "add.u32 %%t0, %%t0, %%t1;\n"
                 "xor.b32 %%t1, %%t1, %%t0;\n"
                 "prmt.b32 %%t1, %%t1, 0, 0x0123;\n"); /* the bytes' order is turned around */
    fprintf(out, "st.local.u32 [words+%u], %%t1;\n", round % 16 * 4);
    fprintf(out, "mov.u32 %%a3, %%a2;\n"
                 "shf.l.wrap.b32 %%a2, %%a1, %%a1, 30;\n"
                 "mov.u32 %%a1, %%a0;\n"
                 "mov.u32 %%a0, %%t0;\n");
}

static void write_floats(FILE *out, unsigned round)
{
    fprintf(out, "cvt.rn.f32.u32 %%f2, %%a0;\n"
                 "mul.rn.f32 %%f2, %%f2, 0f2F800000;\n" /* 2^-32 */
                 "mul.rn.f32 %%f3, %%f0, %%f2;\n"
                 "add.rn.f32 %%f0, %%f3, %%f2;\n");
    switch (round % 6) {
    case 0:
        fprintf(out, "fma.rn.f32 %%f1, %%f1, %%f2, %%f0;\n");
        break;
    case 1:
        fprintf(out, "add.rz.f32 %%f1, %%f1, %%f2;\n");
        break;
    case 2:
        fprintf(out, "add.rn.f32 %%f3, %%f2, 0f3F800000;\ndiv.rn.f32 %%f1, %%f1, %%f3;\n");
        break;
    case 3:
        fprintf(out, "sqrt.rn.f32 %%f3, %%f2;\nmul.rm.f32 %%f1, %%f1, %%f3;\n");
        break;
    case 4:
        fprintf(out, "ex2.approx.f32 %%f3, %%f2;\nsub.rn.f32 %%f1, %%f3, %%f1;\n");
        break;
    default:
        fprintf(out,
                "cvt.rn.f16.f32 %%h0, %%f2;\nadd.rn.f16 %%h1, %%h1, %%h0;\nmul.rn.f16 %%h1, %%h1, %%h0;\n");
        break;
    }
    fprintf(
        out,
        "cvt.f64.f32 %%d1, %%f0;\nmul.rn.f64 %%d1, %%d1, %%d0;\nadd.rn.f64 %%d0, %%d1, 0d3FD5555555555555;\n"
        "mul.rn.f64 %%d0, %%d0, 0d3FE0000000000000;\n");
}

static void write_exchange(FILE *out)
{
    fprintf(out, "st.shared.u32 [%%s1], %%a0;\nbar.sync 0;\nld.shared.u32 %%t0, [%%s2];\nbar.sync 0;\n"
                 "xor.b32 %%a1, %%a1, %%t0;\n");
}

char *rounds_text(unsigned rounds, bool meets)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fprintf(out,
            ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %%p<3>;\n.reg .b32 %%a<4>, %%t<4>, %%s<3>;\n"
            ".reg .f32 %%f<4>;\n.reg .f64 %%d<2>;\n.reg .b16 %%h<2>;\n.local .align 16 .b8 words[64];\n"
            ".shared .align 4 .b8 row[%d];\n",
            ROUNDS_THREADS * 4);
    fprintf(out,
            "ld.param.u64 %%p1, [p];\nmov.u32 %%t3, %%tid.x;\nmul.wide.u32 %%p2, %%t3, %d;\nadd.s64 %%p1, "
            "%%p1, %%p2;\n"
            "mov.u32 %%s0, row;\nmad.lo.u32 %%s1, %%t3, 4, %%s0;\nxor.b32 %%t0, %%t3, 21;\n"
            "mad.lo.u32 %%s2, %%t0, 4, %%s0;\n",
            ROUNDS_WORDS * 4);
    for (int i = 0; i < 16; i++)
        fprintf(out, "mad.lo.u32 %%t0, %%t3, %u, %u;\nst.local.u32 [words+%d], %%t0;\n",
                constant((unsigned)i), i, i * 4);
    fprintf(out, "mov.u32 %%a0, 0x67452301;\nmov.u32 %%a1, 0xefcdab89;\nmov.u32 %%a2, 0x98badcfe;\nmov.u32 "
                 "%%a3, 0x10325476;\n"
                 "mov.f32 %%f0, 0f3F000000;\nmov.f32 %%f1, 0f3E800000;\nmov.f64 %%d0, "
                 "0d3FF0000000000000;\nmov.b16 %%h1, 0;\n");
    for (unsigned round = 0; round < rounds; round++) {
        write_integers(out, round);
        write_floats(out, round);
        if (meets && round % 50 == 49)
            write_exchange(out);
    }
    for (int i = 0; i < 4; i++)
        fprintf(out, "st.global.u32 [%%p1+%d], %%a%d;\n", i * 4, i);
    fprintf(out, "cvt.u32.u16 %%t0, %%h1;\nmov.b32 %%t1, %%f0;\nxor.b32 %%t0, %%t0, %%t1;\nst.global.u32 "
                 "[%%p1+16], %%t0;\n"
                 "st.global.f32 [%%p1+20], %%f1;\nst.global.f64 [%%p1+24], %%d0;\nret;\n}\n");
    fclose(out);
    return text;
}

static uint32_t turned(uint32_t value, unsigned count)
{
    return value << count | value >> (32 - count);
}

void rounds_expected(unsigned rounds, uint32_t thread, uint32_t out[4])
{
    uint32_t a[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}, words[16];
    for (unsigned i = 0; i < 16; i++)
        words[i] = thread * constant(i) + i;
    for (unsigned round = 0; round < rounds; round++) {
        uint32_t *word = &words[round % 16];
        const uint32_t sum = turned(a[0], 5) + ((a[1] & a[2]) | (~a[1] & a[3])) + constant(round) + *word;
        *word = __builtin_bswap32(*word ^ sum);
        a[3] = a[2];
        a[2] = turned(a[1], 30);
        a[1] = a[0];
        a[0] = sum;
    }
    for (int i = 0; i < 4; i++)
        out[i] = a[i];
}
