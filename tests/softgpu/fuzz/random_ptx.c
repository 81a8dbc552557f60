/*
 * random_ptx.c - see random_ptx.h.
 *
 * Registers of every kind begin with what the thread reads; statements work on them: instructions of the table below,
 * branches that part threads, loops with different numbers of turns, memory of the thread, of the block between two
 * barriers of several kinds, operations of warps with full and partial masks, atomic sums, calls. All registers are written at the end.
 * Some branches and loops depend on the thread's place alone, by numbers that may overflow between two threads.
 *
 * Bits of NaN are no part of what is compared: PTX leaves them open, and so does LLVM. A number that is not one is
 * replaced before its bits can be seen.
 */
#include "random_ptx.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define R  10u /* registers of 32 bits, %r0… */
#define RD 6u
#define H  6u
#define F  6u
#define FD 4u
#define P  5u

struct writer {
    FILE *file;
    uint64_t state;
    uint32_t labels, depth, threads;
    bool uniform; /* all threads of the block are here */
    bool in_function;
    bool alone; /* of a kernel: threads never meet, there are no loops, and it is short */
};

static uint32_t next(struct writer *w, uint32_t below)
{
    w->state ^= w->state << 13;
    w->state ^= w->state >> 7;
    w->state ^= w->state << 17;
    return (uint32_t)((w->state >> 20) % below);
}

/*
 * Each letter after a '$' is an operand: r, d (64 bits), h, f, g (double), p registers; i a number, j a small one; R D H
 * F G P the result. '~' after the text: the result may be NaN.
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

static uint32_t interesting(struct writer *w)
{
    static const uint32_t numbers[] = {0,          1,          2,          31,         32,
                                       33,         0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe,
                                       0x3f800000, 0x7f800000, 0x00800000, 0xff};
    return next(w, 3) == 0 ? numbers[next(w, sizeof(numbers) / sizeof(numbers[0]))] : next(w, UINT32_MAX);
}

static void operand(struct writer *w, char kind, uint32_t *result)
{
    FILE *f = w->file;
    switch (kind) {
    case 'R':
        fprintf(f, "%%r%u", next(w, R));
        break;
    case 'r':
        fprintf(f, "%%r%u", next(w, R));
        break;
    case 'D':
    case 'd':
        fprintf(f, "%%rd%u", next(w, RD));
        break;
    case 'H':
        fprintf(f, "%%h%u", *result = next(w, H));
        break;
    case 'h':
        fprintf(f, "%%h%u", next(w, H));
        break;
    case 'F':
    case 'f':
        fprintf(f, "%%f%u", next(w, F));
        break;
    case 'G':
    case 'g':
        fprintf(f, "%%fd%u", next(w, FD));
        break;
    case 'P':
    case 'p':
        fprintf(f, "%%p%u", next(w, P));
        break;
    case 'i':
        fprintf(f, "%d", (int32_t)interesting(w));
        break;
    default:
        fprintf(f, "%u", next(w, 40));
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

static void instruction(struct writer *w)
{
    if (next(w, 12) == 0) {
        uint32_t h = write_template(w, half_instructions[next(w, N_HALF)]);
        fprintf(w->file, "setp.nan.f16 %%nan, %%h%u, %%h%u; selp.b16 %%h%u, 0x7fff, %%h%u, %%nan;\n", h, h, h,
                h);
        return;
    }
    if (next(w, 8) == 0) /* guarded; several instructions in one text share no guard, so none of those */
        fprintf(w->file, "@%s%%p%u xor.b32 %%r%u, %%r%u, %u;\n", next(w, 2) ? "!" : "", next(w, P),
                next(w, R), next(w, R), next(w, 1000));
    write_template(w, instructions[next(w, N_INSTRUCTIONS)]);
}

/* The bits of a float into a register, and back. */
static void move_bits(struct writer *w)
{
    uint32_t f = next(w, F), r = next(w, R), g = next(w, FD), d = next(w, RD);
    switch (next(w, 4)) {
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

static void own_memory(struct writer *w)
{
    static const char *const types[] = {"b8", "b16", "b32", "s16", "u8"};
    uint32_t r = next(w, R), slot = next(w, 4);
    const char *type = types[next(w, 5)];
    fprintf(w->file,
            "and.b32 %%at, %%r%u, 15; cvt.u64.u32 %%a, %%at; shl.b64 %%a, %%a, 2; mov.u64 %%b, lv; add.u64 "
            "%%b, %%b, %%a;\n",
            next(w, R));
    fprintf(w->file,
            "st.local.b32 [%%b], %%r%u; st.local.%s [lv+%u], %%r%u; ld.local.%s %%r%u, [lv+%u]; ld.local.u32 "
            "%%r%u, [%%b];\n",
            r, type, slot * 4, next(w, R), type, next(w, R), slot * 4, next(w, R));
    if (next(w, 2))
        fprintf(w->file, "ld.local.v4.u32 {%%r0, %%r1, %%r2, %%r3}, [lv+16];\n");
}

/* All threads of the block wait for all others, in one of the ways there are. */
static void meet(struct writer *w, uint32_t barrier)
{
    uint32_t label = w->labels++;
    switch (next(w, 4)) {
    case 0: /* a barrier in memory; some of the threads do other things before they look */
        fprintf(w->file, "mbarrier.arrive.shared.b64 %%state, [mb];\n");
        if (next(w, 2)) {
            fprintf(w->file, "@%%p%u bra A%u;\n", next(w, P), label);
            instruction(w);
            fprintf(w->file, "A%u:\n", label);
        }
        fprintf(w->file, "M%u: mbarrier.%s_wait.shared.b64 %%more, [mb], %%state;\n@!%%more bra M%u;\n",
                label, next(w, 2) ? "try" : "test", label);
        break;
    case 1: /* as programs do it by hand: one thread looks for all, or each for itself */
        fprintf(w->file,
                "membar.cta; mov.u32 %%base, 1; atom.shared.add.u32 %%base, [counts+8], %%base;\n"
                "div.u32 %%base, %%base, %u; mad.lo.u32 %%base, %%base, %u, %u;\n",
                w->threads, w->threads, w->threads);
        if (next(w, 2))
            fprintf(w->file, "setp.ne.u32 %%more, %%tid, %u; @%%more bra A%u;\n", next(w, w->threads), label);
        fprintf(w->file,
                "M%u: ld.volatile.shared.u32 %%at, [counts+8]; setp.lt.u32 %%more, %%at, %%base;\n%s"
                "@%%more bra M%u;\nA%u: bar.sync %u;\n",
                label, next(w, 3) == 0 ? "@%more nanosleep.u32 20;\n" : "", label, label, barrier);
        break;
    default:
        fprintf(w->file, "bar.sync %u;\n", barrier);
        break;
    }
}

/* What the threads of the block leave for each other, between two barriers. */
static void shared_memory(struct writer *w)
{
    uint32_t distance = next(w, 70), barrier = next(w, 3);
    fprintf(w->file, "st.shared.u32 [%%own], %%r%u;\n", next(w, R));
    meet(w, barrier);
    fprintf(w->file,
            "add.u32 %%at, %%tid, %u; rem.u32 %%at, %%at, %u; shl.b32 %%at, %%at, 2; mov.u32 %%base, sv; "
            "add.u32 %%at, "
            "%%at, %%base; ld.shared.u32 %%r%u, [%%at];\n",
            distance, w->threads, next(w, R));
    meet(w, barrier);
    switch (next(w, 4)) {
    case 0:
        fprintf(w->file, "bar.red.popc.u32 %%r%u, 0, %%p%u;\n", next(w, R), next(w, P));
        break;
    case 1:
        fprintf(w->file, "bar.red.or.pred %%p%u, 0, %%p%u;\n", next(w, P), next(w, P));
        break;
    case 2: /* counts of values in shared memory, all added before anybody looks */
        fprintf(
            w->file,
            "bar.sync 0;\nst.shared.u32 [counts+4], 0;\nbar.sync 0;\nred.shared.add.u32 [counts+4], %%r%u;\n"
            "bar.sync 0;\nld.shared.u32 %%r%u, [counts+4];\nbar.sync 0;\n",
            next(w, R), next(w, R));
        break;
    default:
        break;
    }
}

static void warp_operation(struct writer *w)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    uint32_t label = w->labels++, p = next(w, P), r = next(w, R);
    bool partial = next(w, 2) != 0;
    if (partial) /* the lanes for which the predicate holds, by themselves */
        fprintf(w->file, "vote.sync.ballot.b32 %%mask, %%p%u, -1;\n@!%%p%u bra W%u;\n", p, p, label);
    else
        fprintf(w->file, "mov.u32 %%mask, -1;\n");
    switch (next(w, 6)) {
    case 0:
    case 1: { /* from lanes that take part: others' values are not defined */
        const char *mode = modes[next(w, 4)];
        if (partial)
            fprintf(w->file, "shfl.sync.idx.b32 %%r%u, %%r%u, %%laneid, 31, %%mask;\n", next(w, R), r);
        else
            fprintf(w->file, "shfl.sync.%s.b32 %%r%u|%%p%u, %%r%u, %u, %u, %%mask;\n", mode, next(w, R),
                    next(w, P), r, next(w, 32),
                    mode[0] == 'u' ? 0
                    : next(w, 2)   ? 31
                                   : 0x181f);
        break;
    }
    case 2:
        fprintf(w->file, "vote.sync.%s.pred %%p%u, %%p%u, %%mask;\n", next(w, 2) ? "any" : "all", next(w, P),
                next(w, P));
        break;
    case 3:
        fprintf(w->file, "and.b32 %%r%u, %%r%u, 3; match.any.sync.b32 %%r%u, %%r%u, %%mask;\n", r, r,
                next(w, R), r);
        break;
    case 4:
        fprintf(w->file, "match.all.sync.b64 %%r%u|%%p%u, %%rd%u, %%mask;\n", next(w, R), next(w, P),
                next(w, RD));
        break;
    default: {
        static const char *const ops[] = {"add.u32", "min.s32", "max.u32", "and.b32", "xor.b32"};
        fprintf(w->file, "redux.sync.%s %%r%u, %%r%u, %%mask;\n", ops[next(w, 5)], next(w, R), r);
        break;
    }
    }
    if (partial)
        fprintf(w->file, "W%u:\n", label);
    fprintf(w->file, "bar.warp.sync -1;\n");
}

static void statements(struct writer *w, uint32_t count);

static void branch(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform, otherwise = next(w, 2) != 0;
    fprintf(w->file, "@%s%%p%u bra E%u;\n", next(w, 2) ? "!" : "", next(w, P), label);
    w->uniform = false;
    statements(w, 1 + next(w, 4));
    if (otherwise)
        fprintf(w->file, "bra J%u;\n", label);
    fprintf(w->file, "E%u:\n", label);
    if (otherwise) {
        statements(w, 1 + next(w, 4));
        fprintf(w->file, "J%u:\n", label);
    }
    w->uniform = uniform;
}

static void loop(struct writer *w)
{
    uint32_t label = w->labels++;
    bool same = w->uniform && next(w, 2) != 0; /* the same number of turns for all threads */
    bool uniform = w->uniform;
    if (same)
        fprintf(w->file, "mov.u32 %%n%u, %u;\n", w->depth, 1 + next(w, 4));
    else
        fprintf(w->file, "and.b32 %%n%u, %%r%u, 3;\n", w->depth, next(w, R));
    w->uniform = same;
    fprintf(w->file, "L%u:\n", label);
    w->depth++;
    statements(w, 1 + next(w, 5));
    w->depth--;
    w->uniform = uniform;
    fprintf(w->file, "sub.s32 %%n%u, %%n%u, 1; setp.gt.s32 %%more, %%n%u, 0;\n@%%more bra L%u;\n", w->depth,
            w->depth, w->depth, label);
}

static void indexed_branch(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform;
    w->uniform = false;
    fprintf(w->file,
            "and.b32 %%at, %%r%u, 1;\n{ T%u: .branchtargets B%ua, B%ub;\nbrx.idx %%at, T%u; }\nB%ua:\n",
            next(w, R), label, label, label, label, label);
    statements(w, 2);
    fprintf(w->file, "bra B%uc;\nB%ub:\n", label, label);
    statements(w, 2);
    fprintf(w->file, "B%uc:\n", label);
    w->uniform = uniform;
}

static void call(struct writer *w)
{
    uint32_t a = next(w, R), b = next(w, R);
    if (next(w, 2)) {
        fprintf(w->file, "call (%%r%u), helper, (%%r%u, %%r%u);\n", next(w, R), a, b);
        return;
    }
    fprintf(w->file,
            "{ .param .b32 x0; .param .b32 x1; .param .b32 y; st.param.b32 [x0], %%r%u; st.param.b32 [x1], "
            "%%r%u;\n"
            "P%u: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
            "mov.u64 %%a, other; call (y), %%a, (x0, x1), P%u; ld.param.b32 %%r%u, [y]; }\n",
            a, b, w->labels, w->labels, next(w, R));
    w->labels++;
}

/* A predicate that follows from the thread's place; the numbers are such that it mostly changes within the block. */
static void compare_place(struct writer *w, uint32_t q)
{
    static const char *const comparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    static const int32_t factors[] = {1, 1, 1, -1, 4, -4, 3, 12};
    const char *comparison = comparisons[next(w, 6)];
    int32_t factor = factors[next(w, 8)];
    uint32_t there = next(w, 3) == 0 ? interesting(w)
                     : next(w, 2)    ? (next(w, 2) ? 0 : 0x80000000u)
                                     : next(w, 300);
    uint32_t start = there - (uint32_t)factor * next(w, w->threads); /* a thread of the block is there */
    uint32_t to = next(w, 3) == 0 ? next(w, 2) * 0x80000000u : start + (uint32_t)factor * next(w, w->threads);
    fprintf(w->file, "mov.u32 x0, %%tid.x; mad.lo.s32 x1, x0, %d, %d;\n", factor, (int32_t)start);
    switch (next(w, 6)) {
    case 0:
    case 1:
        fprintf(w->file, "setp.%s.s32 q%u, x1, %d;\n", comparison, q, (int32_t)to);
        break;
    case 2:
        fprintf(w->file, "setp.%s.u32 q%u, x1, %u;\n", comparison, q, to);
        break;
    case 3:
        fprintf(w->file, "mov.u32 x2, %u; setp.%s.u32 q%u, x2, x1;\n", to, comparison, q);
        break;
    case 4:
        fprintf(w->file, "cvt.s64.s32 y0, x1; shl.b64 y1, y0, 3; setp.%s.s64 q%u, y1, %lld;\n", comparison, q,
                8LL * (int32_t)to);
        break;
    default:
        fprintf(w->file, "mul.wide.u32 y0, x1, 4; setp.%s.u64 q%u, y0, %llu;\n", comparison, q, 4ULL * to);
        break;
    }
}

/* One or two of them decide who does what follows. */
static void test_place(struct writer *w)
{
    static const char *const ways[] = {"and", "or", "xor"};
    uint32_t label = w->labels++, tests = 1 + next(w, 2);
    bool uniform = w->uniform;
    if (uniform && !w->alone)
        fprintf(w->file, "bar.sync 1;\n");
    fprintf(w->file, "{ .reg .pred q<3>;\n");
    for (uint32_t i = 0; i < tests; i++) { /* registers of their own, so that they have one writer each */
        fprintf(w->file, "{ .reg .b32 x<3>; .reg .b64 y<2>;\n");
        compare_place(w, i);
        fprintf(w->file, "}\n");
    }
    if (tests == 2)
        fprintf(w->file, "%s.pred q2, q0, q1;\n", ways[next(w, 3)]);
    fprintf(w->file, "@%sq%u bra X%u;\n", next(w, 2) ? "!" : "", tests == 2 ? 2 : 0, label);
    w->uniform = false;
    statements(w, 1 + next(w, 3));
    w->uniform = uniform;
    fprintf(w->file, "X%u: }\n", label);
}

/* Turns as of a loop over the grid, or the steps of a tree: ever fewer threads have something to do. */
static void loop_by_place(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform;
    w->uniform = false;
    if (uniform && !w->alone && next(w, 2)) {
        fprintf(
            w->file,
            "{ .reg .b32 s; .reg .pred q<2>; mov.u32 s, %u;\nL%u: setp.ge.u32 q0, %%tid, s; @q0 bra X%u;\n",
            next(w, w->threads + 1), label, label);
        statements(w, 1 + next(w, 2));
        fprintf(w->file, "X%u: bar.sync 2; shr.u32 s, s, %u; setp.ne.u32 q1, s, 0; @q1 bra L%u; }\n", label,
                2 + next(w, 2), label);
    } else {
        uint32_t end = next(w, 2 * w->threads);
        fprintf(w->file,
                "{ .reg .b32 i; .reg .pred q<2>; add.u32 i, %%tid, %u; setp.ge.u32 q0, i, %u; @q0 bra "
                "X%u;\nL%u:\n",
                next(w, 9), end, label, label);
        statements(w, 1 + next(w, 2));
        fprintf(w->file, "add.u32 i, i, %u; setp.lt.u32 q1, i, %u; @q1 bra L%u;\nX%u: }\n",
                w->threads / 2 + 1 + next(w, w->threads), end, label, label);
    }
    w->uniform = uniform;
}

static void statement(struct writer *w)
{
    uint32_t kind = next(w, 44);
    if (!w->in_function && kind >= 42 && w->depth < 3) {
        if (kind == 42 || w->alone)
            test_place(w);
        else
            loop_by_place(w);
        return;
    }
    if (w->alone && ((!w->in_function && kind >= 30 && kind < 35) || kind == 37))
        kind = 0;
    if (kind < 25)
        instruction(w);
    else if (kind < 28)
        move_bits(w);
    else if (kind < 30)
        own_memory(w);
    else if (kind < 33 && w->uniform)
        shared_memory(w);
    else if (kind < 35 && w->uniform && w->threads % 32 == 0)
        warp_operation(w);
    else if (kind == 35)
        fprintf(w->file, "red.global.add.u32 [%%counters+%u], %%r%u;\n", next(w, 16) * 4, next(w, R));
    else if (kind == 36 && !w->in_function)
        call(w);
    else if (w->depth < 3 && kind == 37)
        loop(w);
    else if (w->depth < 3 && kind == 38)
        branch(w);
    else if (w->depth < 3 && kind == 39)
        indexed_branch(w);
    else
        instruction(w);
}

static void statements(struct writer *w, uint32_t count)
{
    w->depth++;
    for (uint32_t i = 0; i < count; i++)
        statement(w);
    w->depth--;
}

static const char declarations[] =
    ".reg .b32 %r<10>, %n<8>, %at, %base, %own, %tid, %mask; .reg .b64 %rd<6>, %a, %b, %in, %out, %state, "
    "%counters;\n"
    ".reg .b16 %h<6>; .reg .f32 %f<6>; .reg .f64 %fd<4>; .reg .pred %p<5>, %nan, %more;\n";

static void write_kernel(struct writer *w)
{
    FILE *f = w->file;
    fprintf(f,
            ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 counters)\n{\n%s"
            ".local .align 16 .b8 lv[64]; .shared .align 16 .b8 sv[4096]; .shared .align 4 .b8 counts[16]; "
            ".shared "
            ".align 8 .b64 mb;\n",
            declarations);
    fprintf(f,
            "ld.param.u64 %%in, [in]; ld.param.u64 %%out, [out]; ld.param.u64 %%counters, [counters];\n"
            "mov.u32 %%tid, %%tid.x; mov.u32 %%at, %%ctaid.x; mad.lo.u32 %%at, %%at, %u, %%tid;\n"
            "mul.wide.u32 %%a, %%at, %u; add.u64 %%in, %%in, %%a; add.u64 %%out, %%out, %%a;\n"
            "shl.b32 %%own, %%tid, 2; mov.u32 %%base, sv; add.u32 %%own, %%own, %%base;\n",
            w->threads, RANDOM_WORDS * 4);
    if (!w->alone)
        fprintf(f,
                "setp.ne.u32 %%more, %%tid, 0; @%%more bra START; mbarrier.init.shared.b64 [mb], %u; "
                "st.shared.u32 "
                "[counts+8], 0;\nSTART: bar.sync 0;\n",
                w->threads);
    uint32_t at = 0;
    for (uint32_t i = 0; i < R; i++)
        fprintf(f, "ld.global.u32 %%r%u, [%%in+%u];\n", i, 4 * at++);
    for (uint32_t i = 0; i < RD; i++)
        fprintf(f, "ld.global.u64 %%rd%u, [%%in+%u];\n", i, i * 8 + 16);
    for (uint32_t i = 0; i < H; i++)
        fprintf(f, "ld.global.u16 %%h%u, [%%in+%u];\n", i, i * 2 + 64);
    for (uint32_t i = 0; i < F; i++)
        fprintf(f, "ld.global.f32 %%f%u, [%%in+%u];\n", i, i * 4 + 80);
    for (uint32_t i = 0; i < FD; i++)
        fprintf(f, "ld.global.f64 %%fd%u, [%%in+%u];\n", i, i * 8 + 96);
    for (uint32_t i = 0; i < P; i++)
        fprintf(f, "and.b32 %%at, %%r%u, %u; setp.ne.u32 %%p%u, %%at, 0;\n", i, 1u << i, i);
    for (uint32_t i = 0; i < 16; i++)
        fprintf(f, "st.local.u32 [lv+%u], %%r%u;\n", i * 4, i % R);
    w->uniform = true;
    if (w->alone) { /* its tests are asked beforehand (softgpu/compiler/guards.c) */
        test_place(w);
        statements(w, next(w, 8));
        test_place(w);
    } else {
        statements(w, 12 + next(w, 40));
    }
    at = 0;
    for (uint32_t i = 0; i < R; i++)
        fprintf(f, "st.global.u32 [%%out+%u], %%r%u;\n", 4 * at++, i);
    for (uint32_t i = 0; i < RD; i++, at += 2)
        fprintf(f, "st.global.u64 [%%out+%u], %%rd%u;\n", 4 * at, i);
    for (uint32_t i = 0; i < F - 2; i++)
        fprintf(f,
                "setp.nan.f32 %%nan, %%f%u, %%f%u; selp.f32 %%f%u, 0f3F800000, %%f%u, %%nan; st.global.f32 "
                "[%%out+%u], %%f%u;\n",
                i, i, i, i, 4 * at++, i);
    for (uint32_t i = 0; i < H; i += 2)
        fprintf(f, "mov.b32 %%at, {%%h%u, %%h%u}; st.global.u32 [%%out+%u], %%at;\n", i, i + 1, 4 * at++);
    fprintf(f,
            "setp.nan.f64 %%nan, %%fd0, %%fd0; selp.f64 %%fd0, 0d3FF0000000000000, %%fd0, %%nan; mov.b64 "
            "{%%at, %%base}, %%fd0;\n"
            "st.global.u32 [%%out+%u], %%at; st.global.u32 [%%out+%u], %%base;\nmov.u32 %%at, 0;\n",
            4 * at, 4 * at + 4);
    at += 2;
    for (uint32_t i = 0; i < P; i++)
        fprintf(f, "selp.u32 %%base, %u, 0, %%p%u; or.b32 %%at, %%at, %%base;\n", 1u << i, i);
    fprintf(f, "st.global.u32 [%%out+%u], %%at;\nret;\n}\n", 4 * at);
}

/* A function of two words; its statements do not wait for anybody. */
static void write_function(struct writer *w, const char *head, const char *take, const char *give)
{
    fprintf(w->file, "%s\n{\n%s.local .align 16 .b8 lv[64];\n%s", head, declarations, take);
    for (uint32_t i = 2; i < R; i++)
        fprintf(w->file, "mad.lo.u32 %%r%u, %%r0, %u, %%r1;\n", i, interesting(w));
    for (uint32_t i = 0; i < RD; i++)
        fprintf(w->file, "mul.wide.s32 %%rd%u, %%r%u, %%r%u;\n", i, i, i + 1);
    for (uint32_t i = 0; i < H; i++)
        fprintf(w->file, "cvt.u16.u32 %%h%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < F; i++)
        fprintf(w->file, "cvt.rn.f32.s32 %%f%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < FD; i++)
        fprintf(w->file, "cvt.rn.f64.s32 %%fd%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < P; i++)
        fprintf(w->file, "setp.lt.s32 %%p%u, %%r%u, %%r%u;\n", i, i, i + 1);
    for (uint32_t i = 0; i < 16; i++)
        fprintf(w->file, "st.local.u32 [lv+%u], %%r%u;\n", i * 4, i % R);
    fprintf(w->file, "mov.u64 %%counters, unused;\n");
    w->uniform = false;
    w->in_function = true;
    statements(w, 4 + next(w, 10));
    w->in_function = false;
    fprintf(w->file, "%s\nret;\n}\n", give);
}

char *random_ptx(uint64_t seed, uint32_t threads)
{
    char *text = NULL;
    size_t size = 0;
    struct writer w = {.file = open_memstream(&text, &size),
                       .state = (seed + 1) * 0x9e3779b97f4a7c15u,
                       .threads = threads,
                       .alone = seed % 5 == 0};
    if (w.file == NULL)
        return NULL;
    for (int i = 0; i < 8; i++)
        next(&w, 2);
    fprintf(w.file, ".version 8.7\n.target sm_90\n.address_size 64\n.global .align 4 .b8 unused[64];\n");
    write_function(&w, ".func (.reg .b32 result) helper(.reg .b32 x, .reg .b32 y)",
                   "mov.u32 %r0, x; mov.u32 %r1, y;\n", "mov.u32 result, %r2;");
    write_function(&w, ".func (.param .b32 result) other(.param .b32 x, .param .b32 y)",
                   "ld.param.b32 %r0, [x]; ld.param.b32 %r1, [y];\n", "st.param.b32 [result], %r3;");
    write_kernel(&w);
    fclose(w.file);
    return text;
}
