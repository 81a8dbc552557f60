/*
 * random_values.c - instructions of a table, moves of bits between kinds of registers, own memory.
 */
#include "random_writer.h"

/*
 * Each letter after a '$' is an operand: r, d (64 bits), h, f, g (double), p registers; i a number, j a small
 * one; R D H F G P the result. '~' after the text: the result may be NaN.
 */
static const char *const instructions[] = {
    "add.u32 $R, $r, $r",
    "sub.s32 $R, $r, $i",
    "mul.lo.s32 $R, $r, $r",
    "mul.hi.u32 $R, $r, $r",
    "mul.hi.s32 $R, $r, $i",
    "mad.lo.u32 $R, $r, $r, $r",
    "mad.hi.s32 $R, $r, $r, $r",
    "mul24.lo.s32 $R, $r, $r",
    "mul24.hi.u32 $R, $r, $r",
    "mad24.lo.s32 $R, $r, $r, $r",
    "sad.s32 $R, $r, $r, $r",
    "sad.u32 $R, $r, $r, $r",
    "div.s32 $R, $r, $r",
    "div.u32 $R, $r, $r",
    "rem.s32 $R, $r, $r",
    "rem.u32 $R, $r, $i",
    "abs.s32 $R, $r",
    "neg.s32 $R, $r",
    "min.s32 $R, $r, $r",
    "max.u32 $R, $r, $r",
    "min.u32 $R, $r, $i",
    "max.s32 $R, $r, $i",
    "add.sat.s32 $R, $r, $r",
    "sub.sat.s32 $R, $r, $r",
    "popc.b32 $R, $r",
    "clz.b32 $R, $r",
    "bfind.u32 $R, $r",
    "bfind.s32 $R, $r",
    "bfind.shiftamt.u32 $R, $r",
    "brev.b32 $R, $r",
    "bfe.u32 $R, $r, $r, $r",
    "bfe.s32 $R, $r, $j, $j",
    "bfi.b32 $R, $r, $r, $r, $r",
    "bfi.b32 $R, $r, $r, $j, $j",
    "prmt.b32 $R, $r, $r, $r",
    "prmt.b32.f4e $R, $r, $r, $r",
    "prmt.b32.rc16 $R, $r, $r, $r",
    "shf.l.wrap.b32 $R, $r, $r, $r",
    "shf.r.clamp.b32 $R, $r, $r, $r",
    "shl.b32 $R, $r, $r",
    "shr.u32 $R, $r, $j",
    "shr.s32 $R, $r, $r",
    "and.b32 $R, $r, $r",
    "or.b32 $R, $r, $i",
    "xor.b32 $R, $r, $r",
    "not.b32 $R, $r",
    "cnot.b32 $R, $r",
    "lop3.b32 $R, $r, $r, $r, 0x96",
    "lop3.b32 $R, $r, $r, $r, 0xe8",
    "bmsk.clamp.b32 $R, $r, $r",
    "szext.wrap.s32 $R, $r, $r",
    "szext.clamp.u32 $R, $r, $r",
    "fns.b32 $R, $r, $j, 2",
    "dp4a.s32.u32 $R, $r, $r, $r",
    "dp2a.lo.s32.s32 $R, $r, $r, $r",
    "vabsdiff4.u32.u32.u32.add $R, $r, $r, $r",
    "vadd2.s32.s32.s32.sat $R, $r, $r, $r",
    "vset4.u32.u32.lt $R, $r, $r, $r",
    "vmax4.s32.s32.s32 $R, $r, $r, $r",
    "max.s16x2 $R, $r, $r",
    "add.u16x2 $R, $r, $r",
    "add.cc.u32 $R, $r, $r;\naddc.u32 $R, $r, $r",
    "sub.cc.u32 $R, $r, $r;\nsubc.cc.u32 $R, $r, $r;\nsubc.u32 $R, $r, 0",
    "mad.lo.cc.u32 $R, $r, $r, $r;\nmadc.hi.u32 $R, $r, $r, $r",
    "add.u64 $D, $d, $d",
    "sub.s64 $D, $d, $i",
    "mul.lo.s64 $D, $d, $d",
    "mul.hi.u64 $D, $d, $d",
    "mul.hi.s64 $D, $d, $d",
    "mad.lo.s64 $D, $d, $d, $d",
    "mul.wide.u32 $D, $r, $r",
    "mul.wide.s32 $D, $r, $i",
    "mad.wide.s32 $D, $r, $r, $d",
    "div.s64 $D, $d, $d",
    "rem.u64 $D, $d, $d",
    "min.s64 $D, $d, $d",
    "max.u64 $D, $d, $d",
    "shl.b64 $D, $d, $r",
    "shr.s64 $D, $d, $r",
    "shr.u64 $D, $d, $j",
    "and.b64 $D, $d, $d",
    "xor.b64 $D, $d, $i",
    "not.b64 $D, $d",
    "brev.b64 $D, $d",
    "bfe.s64 $D, $d, $r, $r",
    "bfi.b64 $D, $d, $d, $j, $j",
    "popc.b64 $R, $d",
    "clz.b64 $R, $d",
    "bfind.u64 $R, $d",
    "mov.b64 $D, {$r, $r}",
    "mov.b64 {$R, _}, $d",
    "cvt.u64.u32 $D, $r",
    "cvt.s64.s32 $D, $r",
    "cvt.u32.u64 $R, $d",
    "cvt.sat.s32.s64 $R, $d",
    "cvt.u32.u8 $R, $r",
    "cvt.s32.s16 $R, $h",
    "cvt.sat.u8.s32 $R, $r",
    "add.s16 $H, $h, $h",
    "mul.lo.u16 $H, $h, $h",
    "mul.hi.s16 $H, $h, $h",
    "mad.lo.s16 $H, $h, $h, $h",
    "shr.s16 $H, $h, $j",
    "shl.b16 $H, $h, $r",
    "min.s16 $H, $h, $h",
    "xor.b16 $H, $h, $h",
    "div.s16 $H, $h, $h",
    "mul.wide.s16 $R, $h, $h",
    "mul.wide.u16 $R, $h, $h",
    "cvt.u16.u32 $H, $r",
    "mov.b32 $R, {$h, $h}",
    "mov.b32 {$H, _}, $r",
    "add.rn.f32 $F, $f, $f",
    "add.ftz.f32 $F, $f, $f",
    "sub.rz.f32 $F, $f, $f",
    "mul.rm.f32 $F, $f, $f",
    "mul.ftz.sat.f32 $F, $f, $f",
    "fma.rn.f32 $F, $f, $f, $f",
    "fma.rp.ftz.f32 $F, $f, $f, $f",
    "div.rn.f32 $F, $f, $f",
    "div.rz.ftz.f32 $F, $f, $f",
    "sqrt.rn.f32 $F, $f",
    "rcp.rm.f32 $F, $f",
    "min.f32 $F, $f, $f",
    "max.NaN.f32 $F, $f, $f",
    "min.ftz.f32 $F, $f, $f",
    "max.f32 $F, $f, $f, $f",
    "abs.f32 $F, $f",
    "neg.ftz.f32 $F, $f",
    "selp.f32 $F, $f, $f, $p",
    "slct.f32.s32 $F, $f, $f, $r",
    "cvt.rn.f32.s32 $F, $r",
    "cvt.rz.f32.u32 $F, $r",
    "cvt.rp.f32.u64 $F, $d",
    "cvt.rni.f32.f32 $F, $f",
    "cvt.sat.f32.f32 $F, $f",
    "cvt.f32.f16 $F, $h",
    "cvt.rm.f32.f64 $F, $g",
    "cvt.rzi.s32.f32 $R, $f",
    "cvt.rni.u32.f32 $R, $f",
    "cvt.rpi.s64.f32 $D, $f",
    "cvt.rmi.s16.f32 $H, $f",
    "cvt.rni.u8.f32 $R, $f",
    "cvt.rzi.s32.f64 $R, $g",
    "cvt.rni.u64.f64 $D, $g",
    "ex2.approx.ftz.f32 $F, $f",
    "lg2.approx.f32 $F, $f",
    "rsqrt.approx.f32 $F, $f",
    "sin.approx.f32 $F, $f",
    "tanh.approx.f32 $F, $f",
    "div.approx.f32 $F, $f, $f",
    "set.lt.f32.f32 $F, $f, $f",
    "set.ge.u32.f32 $R, $f, $f",
    "set.eq.s32.s32 $R, $r, $r",
    "add.rn.f64 $G, $g, $g",
    "mul.rz.f64 $G, $g, $g",
    "fma.rp.f64 $G, $g, $g, $g",
    "div.rn.f64 $G, $g, $g",
    "sqrt.rm.f64 $G, $g",
    "min.f64 $G, $g, $g",
    "neg.f64 $G, $g",
    "cvt.f64.f32 $G, $f",
    "cvt.rn.f64.s64 $G, $d",
    "cvt.rpi.f64.f64 $G, $g",
    "selp.f64 $G, $g, $g, $p",
    "setp.lt.s32 $P, $r, $r",
    "setp.hi.u32 $P, $r, $i",
    "setp.eq.and.s32 $P, $r, $r, $p",
    "setp.ne.s64 $P, $d, $d",
    "setp.ltu.f32 $P, $f, $f",
    "setp.num.f32 $P, $f, $f",
    "setp.ge.or.f64 $P, $g, $g, !$p",
    "setp.gt.xor.u16 $P, $h, $h, $p",
    "setp.le.ftz.f32 $P, $f, $f",
    "setp.lt.f16 $P, $h, $h",
    "and.pred $P, $p, $p",
    "xor.pred $P, $p, !$p",
    "not.pred $P, $p",
    "testp.subnormal.f32 $P, $f",
    "testp.infinite.f64 $P, $g",
    "selp.b32 $R, $r, $r, $p",
    "selp.b64 $D, $d, $i, $p",
    "selp.b16 $H, $h, $h, !$p",
    "slct.u32.f32 $R, $r, $r, $f",
    "lop3.or.b32 $R|$P, $r, $r, $r, 0x3c, $p",
    "mov.u32 $R, %tid.x",
    "mov.u32 $R, %laneid",
    "mov.u32 $R, %lanemask_lt",
    "mov.u32 $R, %ctaid.x",
    "mov.u32 $R, $i",
};
#define N_INSTRUCTIONS (sizeof(instructions) / sizeof(instructions[0]))

/* Of half precision: results are made whole before anything else reads their bits. */
static const char *const half_instructions[] = {
    "add.f16 $H, $h, $h",
    "mul.rn.f16 $H, $h, $h",
    "fma.rn.f16 $H, $h, $h, $h",
    "fma.rn.relu.f16 $H, $h, $h, $h",
    "sub.ftz.sat.f16 $H, $h, $h",
    "min.f16 $H, $h, $h",
    "max.NaN.f16 $H, $h, $h",
    "cvt.rn.f16.f32 $H, $f",
    "cvt.rz.f16.f32 $H, $f",
    "cvt.rn.f16.s32 $H, $r",
    "cvt.rn.f16.f64 $H, $g",
    "cvt.rmi.f16.f16 $H, $h",
    "neg.f16 $H, $h",
    "ex2.approx.f16 $H, $h",
    "tanh.approx.f16 $H, $h",
};
#define N_HALF (sizeof(half_instructions) / sizeof(half_instructions[0]))

uint32_t random_number(struct writer *w)
{
    static const uint32_t numbers[] = {0,          1,          2,          31,         32,
                                       33,         0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe,
                                       0x3f800000, 0x7f800000, 0x00800000, 0xff};
    return random_next(w, 3) == 0 ? numbers[random_next(w, sizeof(numbers) / sizeof(numbers[0]))]
                                  : random_next(w, UINT32_MAX);
}

static void operand(struct writer *w, char kind, uint32_t *result)
{
    FILE *f = w->file;
    switch (kind) {
    case 'R':
        fprintf(f, "%%r%u", random_next(w, R));
        break;
    case 'r':
        fprintf(f, "%%r%u", random_next(w, R));
        break;
    case 'D':
    case 'd':
        fprintf(f, "%%rd%u", random_next(w, RD));
        break;
    case 'H':
        fprintf(f, "%%h%u", *result = random_next(w, H));
        break;
    case 'h':
        fprintf(f, "%%h%u", random_next(w, H));
        break;
    case 'F':
    case 'f':
        fprintf(f, "%%f%u", random_next(w, F));
        break;
    case 'G':
    case 'g':
        fprintf(f, "%%fd%u", random_next(w, FD));
        break;
    case 'P':
    case 'p':
        fprintf(f, "%%p%u", random_next(w, P));
        break;
    case 'i':
        fprintf(f, "%d", (int32_t)random_number(w));
        break;
    default:
        fprintf(f, "%u", random_next(w, 40));
        break;
    }
}

static uint32_t write_template(struct writer *w, const char *text)
{
    uint32_t result = 0;
    for (; *text != '\0'; text++) {
        if (*text == '$')
            operand(w, *++text, &result);
        else
            fputc(*text, w->file);
    }
    fputs(";\n", w->file);
    return result;
}

void random_instruction(struct writer *w)
{
    if (random_next(w, 12) == 0) {
        uint32_t h = write_template(w, half_instructions[random_next(w, N_HALF)]);
        fprintf(w->file, "setp.nan.f16 %%nan, %%h%u, %%h%u; selp.b16 %%h%u, 0x7fff, %%h%u, %%nan;\n", h, h, h,
                h);
        return;
    }
    if (random_next(w, 8) ==
        0) /* guarded; several instructions in one text share no guard, so none of those */
        fprintf(w->file, "@%s%%p%u xor.b32 %%r%u, %%r%u, %u;\n", random_next(w, 2) ? "!" : "",
                random_next(w, P), random_next(w, R), random_next(w, R), random_next(w, 1000));
    write_template(w, instructions[random_next(w, N_INSTRUCTIONS)]);
}

/* The bits of a float into a register, and back. */
void random_move_of_bits(struct writer *w)
{
    uint32_t f = random_next(w, F), r = random_next(w, R), g = random_next(w, FD), d = random_next(w, RD);
    switch (random_next(w, 4)) {
    case 0:
        fprintf(w->file,
                "mov.b32 %%r%u, %%f%u; setp.nan.f32 %%nan, %%f%u, %%f%u; selp.b32 %%r%u, 0x7fffffff, %%r%u, "
                "%%nan;\n",
                r, f, f, f, r, r);
        break;
    case 1:
        fprintf(w->file, "mov.b32 %%f%u, %%r%u;\n", f, r);
        break;
    case 2:
        fprintf(w->file,
                "mov.b64 %%rd%u, %%fd%u; setp.nan.f64 %%nan, %%fd%u, %%fd%u; selp.b64 %%rd%u, 1, %%rd%u, "
                "%%nan;\n",
                d, g, g, g, d, d);
        break;
    default:
        fprintf(w->file, "mov.b64 %%fd%u, %%rd%u;\n", g, d);
        break;
    }
}

void random_own_memory(struct writer *w)
{
    static const char *const types[] = {"b8", "b16", "b32", "s16", "u8"};
    uint32_t r = random_next(w, R), slot = random_next(w, 4);
    const char *type = types[random_next(w, 5)];
    fprintf(w->file,
            "and.b32 %%at, %%r%u, 15; cvt.u64.u32 %%a, %%at; shl.b64 %%a, %%a, 2; mov.u64 %%b, lv; add.u64 "
            "%%b, %%b, %%a;\n",
            random_next(w, R));
    fprintf(w->file,
            "st.local.b32 [%%b], %%r%u; st.local.%s [lv+%u], %%r%u; ld.local.%s %%r%u, [lv+%u]; ld.local.u32 "
            "%%r%u, [%%b];\n",
            r, type, slot * 4, random_next(w, R), type, random_next(w, R), slot * 4, random_next(w, R));
    if (random_next(w, 2))
        fprintf(w->file, "ld.local.v4.u32 {%%r0, %%r1, %%r2, %%r3}, [lv+16];\n");
}
