/*
 * integer.c - integer arithmetic and bits, with the edges that hosts get wrong: wrapping, division by
 * zero, the smallest number, shifts beyond the width, carries.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>

struct case32 {
    const char *insn;
    uint64_t a, b, c, d;
    uint32_t expected;
};

#define MIN32 0x80000000u
#define ONES  0xffffffffu

static const struct case32 cases32[] = {
    {"add.s32 %r0, %r1, %r2;", 0x7fffffff, 1, 0, 0, MIN32},
    {"add.sat.s32 %r0, %r1, %r2;", 0x7fffffff, 1, 0, 0, 0x7fffffff},
    {"sub.sat.s32 %r0, %r1, %r2;", MIN32, 1, 0, 0, MIN32},
    {"sub.u32 %r0, %r1, %r2;", 0, 1, 0, 0, ONES},
    {"mul.lo.s32 %r0, %r1, %r2;", 0x10001, 0x10001, 0, 0, 0x20001},
    {"mul.hi.s32 %r0, %r1, %r2;", ONES, 2, 0, 0, ONES},
    {"mul.hi.u32 %r0, %r1, %r2;", ONES, ONES, 0, 0, 0xfffffffe},
    {"mul.wide.s16 %r0, %h1, %h2;", 0xffff, 3, 0, 0, 0xfffffffd},
    {"mul.wide.u16 %r0, %h1, %h2;", 0xffff, 3, 0, 0, 0x2fffd},
    {"mad.lo.s32 %r0, %r1, %r2, %r3;", 7, 6, 0xfffffff0, 0, 26},
    {"mad.hi.sat.s32 %r0, %r1, %r2, %r3;", 0x7fffffff, 0x7fffffff, 0x7fffffff, 0, 0x7fffffff},
    {"mul24.lo.s32 %r0, %r1, %r2;", 0xffffff, 5, 0, 0, 0xfffffffb},
    {"mul24.hi.u32 %r0, %r1, %r2;", 0xffffff, 0xffffff, 0, 0, 0xfffffe00},
    {"mad24.lo.u32 %r0, %r1, %r2, %r3;", 0x1000002, 3, 1, 0, 7},
    {"sad.s32 %r0, %r1, %r2, %r3;", 0xfffffffb, 5, 100, 0, 110},
    {"sad.u32 %r0, %r1, %r2, %r3;", 3, 5, 100, 0, 102},
    {"div.s32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, 0, 0xfffffffd},
    {"div.s32 %r0, %r1, %r2;", MIN32, ONES, 0, 0, MIN32},
    {"div.s32 %r0, %r1, %r2;", 5, 0, 0, 0, ONES},
    {"div.u32 %r0, %r1, %r2;", 5, 0, 0, 0, ONES},
    {"div.u32 %r0, %r1, %r2;", MIN32, ONES, 0, 0, 0},
    {"rem.s32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, 0, ONES},
    {"rem.s32 %r0, %r1, %r2;", MIN32, ONES, 0, 0, 0},
    {"rem.u32 %r0, %r1, %r2;", 17, 5, 0, 0, 2},
    {"abs.s32 %r0, %r1;", 0xfffffff9, 0, 0, 0, 7},
    {"abs.s32 %r0, %r1;", MIN32, 0, 0, 0, MIN32},
    {"neg.s32 %r0, %r1;", MIN32, 0, 0, 0, MIN32},
    {"min.s32 %r0, %r1, %r2;", ONES, 1, 0, 0, ONES},
    {"min.u32 %r0, %r1, %r2;", ONES, 1, 0, 0, 1},
    {"max.relu.s32 %r0, %r1, %r2;", ONES, 0xfffffff0, 0, 0, 0},
    {"max.s16x2 %r0, %r1, %r2;", 0x0001ffff, 0xffff0002, 0, 0, 0x00010002},
    {"add.u16x2 %r0, %r1, %r2;", 0x0001ffff, 0x00020001, 0, 0, 0x00030000},
    {"popc.b32 %r0, %r1;", 0xf0f00001, 0, 0, 0, 9},
    {"popc.b64 %r0, %rd1;", UINT64_MAX, 0, 0, 0, 64},
    {"clz.b32 %r0, %r1;", 0, 0, 0, 0, 32},
    {"clz.b64 %r0, %rd1;", 1, 0, 0, 0, 63},
    {"bfind.u32 %r0, %r1;", 0, 0, 0, 0, ONES},
    {"bfind.u32 %r0, %r1;", 0x10, 0, 0, 0, 4},
    {"bfind.shiftamt.u32 %r0, %r1;", 0x10, 0, 0, 0, 27},
    {"bfind.s32 %r0, %r1;", 0xfffffff0, 0, 0, 0, 3},
    {"bfind.s32 %r0, %r1;", ONES, 0, 0, 0, ONES},
    {"bfind.u64 %r0, %rd1;", UINT64_C(1) << 63, 0, 0, 0, 63},
    {"brev.b32 %r0, %r1;", 1, 0, 0, 0, MIN32},
    {"bfe.u32 %r0, %r1, %r2, %r3;", 0xabcd1234, 8, 8, 0, 0x12},
    {"bfe.s32 %r0, %r1, %r2, %r3;", 0x0000f000, 12, 4, 0, ONES},
    {"bfe.s32 %r0, %r1, %r2, %r3;", MIN32, 30, 8, 0, 0xfffffffe},
    {"bfe.s32 %r0, %r1, %r2, %r3;", MIN32, 40, 8, 0, ONES},
    {"bfe.u32 %r0, %r1, %r2, %r3;", ONES, 0, 32, 0, ONES},
    {"bfe.s32 %r0, %r1, %r2, %r3;", ONES, 0, 0, 0, 0},
    {"bfi.b32 %r0, %r1, %r2, %r3, %r4;", 0xff, 0, 8, 4, 0xf00},
    {"bfi.b32 %r0, %r1, %r2, %r3, %r4;", 0x12345678, ONES, 0, 32, 0x12345678},
    {"bfi.b32 %r0, %r1, %r2, %r3, %r4;", 0, ONES, 28, 8, 0x0fffffff},
    {"bmsk.clamp.b32 %r0, %r1, %r2;", 4, 8, 0, 0, 0xff0},
    {"bmsk.clamp.b32 %r0, %r1, %r2;", 0, 40, 0, 0, ONES},
    {"bmsk.wrap.b32 %r0, %r1, %r2;", 36, 8, 0, 0, 0xff0},
    {"szext.clamp.s32 %r0, %r1, %r2;", 0xff, 8, 0, 0, ONES},
    {"szext.wrap.u32 %r0, %r1, %r2;", 0x1ff, 8, 0, 0, 0xff},
    {"fns.b32 %r0, %r1, %r2, %r3;", 0xf0, 0, 2, 0, 5},
    {"fns.b32 %r0, %r1, %r2, %r3;", 0xf0, 31, 0xffffffff, 0, 7},
    {"shl.b32 %r0, %r1, %r2;", 1, 31, 0, 0, MIN32},
    {"shl.b32 %r0, %r1, %r2;", 1, 32, 0, 0, 0},
    {"shl.b32 %r0, %r1, %r2;", 1, 0xfffffff0, 0, 0, 0},
    {"shr.u32 %r0, %r1, %r2;", MIN32, 32, 0, 0, 0},
    {"shr.s32 %r0, %r1, %r2;", MIN32, 40, 0, 0, ONES},
    {"shr.s32 %r0, %r1, %r2;", MIN32, 4, 0, 0, 0xf8000000},
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 0x80000001, 0x12345678, 4, 0, 0x23456788},
    {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", 0xaaaaaaaa, 0x12345678, 40, 0, 0xaaaaaaaa},
    {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 0x12345678, 0x9abcdef0, 36, 0, 0x01234567},
    {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 0x12345678, 0x9abcdef0, 32, 0, 0x9abcdef0},
    {"prmt.b32 %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 0x7531, 0, 0x77553311},
    {"prmt.b32 %r0, %r1, %r2, %r3;", 0x000000ff, 0, 0x9888, 0, 0x00ffffff},
    {"prmt.b32.f4e %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 1, 0, 0x44332211},
    {"prmt.b32.b4e %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 1, 0, 0x66770011},
    {"prmt.b32.rc8 %r0, %r1, %r2, %r3;", 0x33221100, 0, 2, 0, 0x22222222},
    {"prmt.b32.ecl %r0, %r1, %r2, %r3;", 0x33221100, 0, 2, 0, 0x33222222},
    {"prmt.b32.ecr %r0, %r1, %r2, %r3;", 0x33221100, 0, 2, 0, 0x22221100},
    {"prmt.b32.rc16 %r0, %r1, %r2, %r3;", 0x33221100, 0, 2, 0, 0x33223322},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0x80;", 0xff00, 0xf0f0, 0xcccc, 0, 0xff00 & 0xf0f0 & 0xcccc},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", 0xff00, 0xf0f0, 0xcccc, 0, 0xff00 ^ 0xf0f0 ^ 0xcccc},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0xca;", 0xff00, 0x1234, 0x5678, 0, 0x1278},
    {"not.b32 %r0, %r1;", 0xff, 0, 0, 0, 0xffffff00},
    {"cnot.b32 %r0, %r1;", 0, 0, 0, 0, 1},
    {"cnot.b32 %r0, %r1;", 4, 0, 0, 0, 0},
    {"dp4a.s32.s32 %r0, %r1, %r2, %r3;", 0xff020304, 0x01010101, 10, 0, 18},
    {"dp4a.u32.s32 %r0, %r1, %r2, %r3;", 0xff000000, 0xff000000, 0, 0, 0xffffff01},
    {"dp2a.lo.u32.u32 %r0, %r1, %r2, %r3;", 0x00020003, 0x04030201, 1, 0, 8},
    {"dp2a.hi.u32.u32 %r0, %r1, %r2, %r3;", 0x00020003, 0x04030201, 1, 0, 18},
    {"vabsdiff4.u32.u32.u32 %r0, %r1, %r2, %r3;", 0x01050305, 0x02030405, 0, 0, 0x01020100},
    {"vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;", 0x01050305, 0x02030405, 10, 0, 14},
    {"vadd4.s32.s32.s32.sat %r0, %r1, %r2, %r3;", 0x7f800102, 0x01ff0101, 0, 0, 0x7f800203},
    {"selp.b32 %r0, %r1, %r2, %p3;", 7, 8, 0, 0, 8},
    {"slct.s32.s32 %r0, %r1, %r2, %r3;", 7, 8, 0, 0, 7},
    {"slct.s32.s32 %r0, %r1, %r2, %r3;", 7, 8, ONES, 0, 8},
    {"set.lt.u32.s32 %r0, %r1, %r2;", ONES, 0, 0, 0, ONES},
    {"set.gt.and.u32.s32 %r0, %r1, %r2, %p3;", 1, 0, 0, 0, 0},
    {"{ .reg .b32 lo; add.cc.u32 lo, %r1, %r2; addc.u32 %r0, %r3, %r4; }", ONES, 1, 5, 6, 12},
    {"{ .reg .b32 lo; sub.cc.u32 lo, %r1, %r2; subc.u32 %r0, %r3, %r4; }", 0, 1, 5, 2, 2},
    /*
     * an addition behind a subtraction, and the other way round: the flag is 1 if nothing has been borrowed
     */
    {"{ .reg .b32 lo; sub.cc.u32 lo, %r1, %r2; addc.u32 %r0, %r3, %r4; }", 0, 1, 5, 2, 7},
    {"{ .reg .b32 lo; sub.cc.u32 lo, %r1, %r2; addc.u32 %r0, %r3, %r4; }", 1, 1, 5, 2, 8},
    {"{ .reg .b32 lo; sub.cc.u32 lo, %r1, %r2; subc.cc.u32 lo, %r3, %r4; addc.u32 %r0, %r3, 0; }", 0, 1, 5, 5,
     5},
    {"{ .reg .b32 lo; add.cc.u32 lo, %r1, %r2; subc.u32 %r0, %r3, %r4; }", ONES, 1, 5, 2, 3},
    {"{ .reg .b32 lo; mad.lo.cc.u32 lo, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r4; }", ONES, ONES, ONES,
     1, 0},
    {"@%p1 mov.u32 %r0, 5; @!%p1 mov.u32 %r0, 6;", 0, 0, 0, 0, 6},
};

Test(integer, words)
{
    for (size_t i = 0; i < sizeof(cases32) / sizeof(cases32[0]); i++) {
        const struct case32 *c = &cases32[i];
        uint32_t value = run_b32(c->insn, IN(c->a, c->b, c->c, c->d));
        cr_expect_eq(value, c->expected, "%s with %#lx %#lx %#lx %#lx: %#x instead of %#x", c->insn, c->a,
                     c->b, c->c, c->d, value, c->expected);
    }
}

static const struct {
    const char *insn;
    uint64_t a, b, c, d, expected;
} cases64[] = {
    {"add.s64 %rd0, %rd1, %rd2;", UINT64_MAX, 1, 0, 0, 0},
    {"mul.wide.s32 %rd0, %r1, %r2;", 0xffffffff, 2, 0, 0, (uint64_t)-2},
    {"mul.wide.u32 %rd0, %r1, %r2;", 0xffffffff, 2, 0, 0, 0x1fffffffe},
    {"mad.wide.s32 %rd0, %r1, %r2, %rd3;", 0xffffffff, 2, 10, 0, 8},
    {"mul.hi.u64 %rd0, %rd1, %rd2;", UINT64_MAX, UINT64_MAX, 0, 0, UINT64_MAX - 1},
    {"mul.hi.s64 %rd0, %rd1, %rd2;", UINT64_MAX, 5, 0, 0, UINT64_MAX},
    {"div.s64 %rd0, %rd1, %rd2;", UINT64_C(1) << 63, UINT64_MAX, 0, 0, UINT64_C(1) << 63},
    {"div.u64 %rd0, %rd1, %rd2;", 9, 0, 0, 0, UINT64_MAX},
    {"rem.s64 %rd0, %rd1, %rd2;", (uint64_t)-7, 3, 0, 0, (uint64_t)-1},
    {"shl.b64 %rd0, %rd1, %r2;", 1, 64, 0, 0, 0},
    {"shr.s64 %rd0, %rd1, %r2;", UINT64_C(1) << 63, 63, 0, 0, UINT64_MAX},
    {"bfi.b64 %rd0, %rd1, %rd2, 32, 32;", 0xabcd, 0x1234, 0, 0, UINT64_C(0xabcd00001234)},
    {"bfe.s64 %rd0, %rd1, %r2, %r3;", UINT64_C(0xf000000000), 36, 4, 0, UINT64_MAX},
    {"brev.b64 %rd0, %rd1;", 1, 0, 0, 0, UINT64_C(1) << 63},
    {"mov.b64 %rd0, {%r1, %r2};", 1, 2, 0, 0, UINT64_C(0x200000001)},
    {"mov.b64 {%r9, _}, %rd1; cvt.u64.u32 %rd0, %r9;", UINT64_C(0x500000007), 0, 0, 0, 7},
    {"mov.b64 %rd0, {%h1, %h2, %h3, %h4};", 1, 2, 3, 4, UINT64_C(0x0004000300020001)},
    {"cvt.s64.s32 %rd0, %r1;", 0x80000000, 0, 0, 0, UINT64_C(0xffffffff80000000)},
    {"cvt.u64.u32 %rd0, %r1;", 0x80000000, 0, 0, 0, 0x80000000},
    {"cvt.s64.s8 %rd0, %rd1;", 0x80, 0, 0, 0, UINT64_C(0xffffffffffffff80)},
    {"cvt.sat.u8.s32 %rd0, %r1;", 300, 0, 0, 0, 255},
    {"cvt.sat.u8.s32 %rd0, %r1;", 0xffffffff, 0, 0, 0, 0},
    {"cvt.sat.s8.s32 %rd0, %r1;", 0xffffff00, 0, 0, 0, UINT64_C(0xffffffffffffff80)},
    {"cvt.sat.s32.u32 %rd0, %r1;", 0xffffffff, 0, 0, 0, 0x7fffffff},
};

Test(integer, double_words)
{
    for (size_t i = 0; i < sizeof(cases64) / sizeof(cases64[0]); i++) {
        uint64_t value = run_b64(cases64[i].insn, IN(cases64[i].a, cases64[i].b, cases64[i].c, cases64[i].d));
        cr_expect_eq(value, cases64[i].expected, "%s: %#lx instead of %#lx", cases64[i].insn, value,
                     cases64[i].expected);
    }
}

static const struct {
    const char *insn;
    uint64_t a, b;
    int expected;
} predicates[] = {
    {"setp.lt.s32 %p0, %r1, %r2;", 0xffffffff, 0, 1},
    {"setp.lt.u32 %p0, %r1, %r2;", 0xffffffff, 0, 0},
    {"setp.hs.u32 %p0, %r1, %r2;", 5, 5, 1},
    {"setp.ls.u32 %p0, %r1, %r2;", 6, 5, 0},
    {"setp.ge.s16 %p0, %h1, %h2;", 0xffff, 0, 0},
    {"setp.eq.and.b32 %p0, %r1, %r2, !%p1;", 5, 5, 0},
    {"setp.ne.or.b64 %p0, %rd1, %rd2, %p1;", 5, 5, 1},
    {"setp.eq.xor.b32 %p9|%p0, %r1, %r2, %p1;", 5, 5, 1},
    {"and.pred %p0, %p1, %p2;", 1, 0, 0},
    {"xor.pred %p0, %p1, %p2;", 1, 0, 1},
    {"not.pred %p0, %p1;", 1, 0, 0},
    {"mov.pred %p0, 1;", 0, 0, 1},
    {"lop3.or.b32 %r0|%p0, %r1, %r2, 0, 0x80, %p1;", 1, 1, 1},
    {"testp.subnormal.f32 %p0, %f1;", 1, 0, 1},
    {"testp.normal.f32 %p0, %f1;", 0, 0, 1},
    {"testp.infinite.f32 %p0, %f1;", 0x7f800000, 0, 1},
    {"testp.notanumber.f32 %p0, %f1;", 0x7f800001, 0, 1},
    {"testp.finite.f64 %p0, %fd1;", 1, 0, 1},
};

Test(integer, predicates)
{
    for (size_t i = 0; i < sizeof(predicates) / sizeof(predicates[0]); i++)
        cr_expect_eq(run_pred(predicates[i].insn, IN(predicates[i].a, predicates[i].b)),
                     predicates[i].expected, "%s", predicates[i].insn);
}
