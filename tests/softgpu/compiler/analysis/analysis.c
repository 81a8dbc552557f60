/* analysis.c - what is found out about functions before code is generated: bounds, low bits, loops that wait, reach, places. */
#include "softgpu/compiler/analysis/analysis.h"

#include "tests/softgpu/compiler/checked.h"

#include <criterion/criterion.h>

#include <string.h>

#define REGISTERS ".reg .b16 %h<3>; .reg .b32 %r<9>; .reg .b64 %rd<6>; .reg .pred %p<3>;\n"

Test(analysis, bounds)
{
    struct checked checked;
    checked_begin(&checked, ".visible .entry k(.param .u64 p) {\n" REGISTERS
                            "ld.param.u64 %rd1, [p];\nld.global.u32 %r6, [%rd1];\n"
                            "mov.u32 %r1, %tid.x;\n"     /* 2 */
                            "and.b32 %r2, %r6, 7;\n"     /* 3 */
                            "shr.u32 %r3, %r6, 24;\n"    /* 4 */
                            "mul.lo.u32 %r4, %r2, 10;\n" /* 5 */
                            "add.u32 %r5, %r5, 1;\n"     /* 6: a counter */
                            "ld.global.u8 %h1, [%rd1];\nret;\n}\n");
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    const uint64_t *bounds = sg_analyse_bounds(&checked.arena, kernel);
    cr_expect_eq(bounds[checked_result(kernel, 2)], 1023);
    cr_expect_eq(bounds[checked_result(kernel, 3)], 7);
    cr_expect_eq(bounds[checked_result(kernel, 4)], 255);
    cr_expect_eq(bounds[checked_result(kernel, 5)], 70);
    cr_expect_geq(bounds[checked_result(kernel, 6)], UINT32_MAX);
    cr_expect_eq(bounds[checked_result(kernel, 7)], 255);
    /* a register that is written more than once: the largest counts */
    checked_end(&checked);
    checked_begin(&checked,
                  ".visible .entry k() {\n" REGISTERS "mov.u32 %r1, 3;\n@%p1 mov.u32 %r1, 200;\nret;\n}\n");
    kernel = checked_function(&checked, "k");
    cr_expect_eq(sg_analyse_bounds(&checked.arena, kernel)[checked_result(kernel, 0)], 200);
    checked_end(&checked);
}

Test(analysis, low_bits_of_addresses)
{
    struct checked checked;
    checked_begin(&checked,
                  ".visible .entry k(.param .u64 p) {\n" REGISTERS "ld.param.u64 %rd1, [p];\n" /* 0 */
                  "ld.global.u64 %rd5, [%rd1];\n"
                  "shl.b64 %rd2, %rd5, 4;\n"    /* 2: a multiple of 16 */
                  "add.u64 %rd3, %rd1, %rd2;\n" /* 3 */
                  "add.u64 %rd4, %rd3, 6;\n"    /* 4 */
                  "add.u64 %rd0, %rd0, 1;\nret;\n}\n");
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    const struct sg_low_bits *bits = sg_analyse_alignment(&checked.arena, kernel);
    const struct sg_low_bits *multiple = &bits[checked_result(kernel, 2)],
                             *last = &bits[checked_result(kernel, 4)];
    cr_expect_eq(multiple->base, UINT32_MAX);
    cr_expect_eq(multiple->bits, 4);
    cr_expect_eq(multiple->offset, 0);
    cr_expect_eq(last->base, 0u, "of what the first instruction loads");
    cr_expect_eq(last->bits, 4);
    cr_expect_eq(last->offset, 6);
    cr_expect_eq(bits[checked_result(kernel, 5)].bits, 0, "a counter");
    checked_end(&checked);
}

static bool waits(const struct checked *checked, const char *name)
{
    const struct sg_ptx_function *kernel = checked_function(checked, name);
    bool any = false;
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        any |= kernel->insns[i].waits_in_loop;
    return any;
}

Test(analysis, loops_that_wait)
{
    struct checked checked;
    checked_begin(&checked, ".visible .entry spins(.param .u64 p) {\n" REGISTERS
                            "ld.param.u64 %rd1, [p];\nL: ld.volatile.global.u32 %r1, [%rd1];\n"
                            "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;\nret;\n}\n"
                            ".visible .entry counts(.param .u64 p) {\n" REGISTERS
                            "mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\n"
                            "setp.lt.u32 %p1, %r1, 100;\n@%p1 bra L;\nret;\n}\n");
    sg_analyse_module(&checked.arena, checked.module);
    cr_expect(waits(&checked, "spins"));
    cr_expect_not(waits(&checked, "counts"));
    checked_end(&checked);
}

Test(analysis, reach_and_shared_places)
{
    struct checked checked;
    checked_begin(
        &checked,
        ".shared .align 4 .b8 small[5];\n.shared .align 16 .b8 wide[32];\n.shared .align 4 .b8 other[8];\n"
        ".func leaf() {\n" REGISTERS "ld.shared.u32 %r1, [wide];\nbar.sync 0;\nret;\n}\n"
        ".func middle() { call leaf; ret; }\n"
        ".func unused() {\n" REGISTERS "ld.shared.u32 %r1, [other];\nret;\n}\n"
        ".visible .entry k() {\n" REGISTERS "ld.shared.u8 %r1, [small];\ncall middle;\nret;\n}\n");
    sg_analyse_module(&checked.arena, checked.module);
    struct sg_reach reach = {0};
    struct sg_shared_layout layout = {0};
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    sg_reach_compute(&checked.arena, checked.module, kernel, &reach);
    cr_assert_eq(reach.count, 3);
    cr_expect_eq(reach.functions[0], kernel);
    cr_expect_not(reach.indirect);
    for (uint32_t i = 0; i < reach.count; i++)
        cr_expect_str_neq(reach.functions[i]->name, "unused");
    sg_shared_compute(&checked.arena, &reach, &layout);
    cr_expect_geq(layout.size, 48u);
    for (uint32_t i = 0; i < layout.count; i++) {
        const struct sg_shared_place *place = &layout.places[i];
        cr_expect_eq(place->offset % place->var->align, 0);
        cr_expect_leq(place->offset + place->var->size, layout.size);
        cr_expect_eq(sg_shared_offset(&layout, place->var), place->offset);
        for (uint32_t k = 0; k < i; k++)
            cr_expect(layout.places[k].offset + layout.places[k].var->size <= place->offset ||
                      place->offset + place->var->size <= layout.places[k].offset);
    }
    checked_end(&checked);
}

Test(analysis, builtins)
{
    struct checked checked;
    checked_begin(&checked, ".extern .func (.param .b32 result) vprintf(.param .b64 a, .param .b64 b);\n"
                            ".func mine() { ret; }\n");
    cr_expect_eq(sg_builtin_find(checked_function(&checked, "vprintf")), SG_BUILTIN_VPRINTF);
    cr_expect_eq(sg_builtin_find(checked_function(&checked, "mine")), SG_BUILTIN_NONE);
    checked_end(&checked);
    checked_begin(&checked, ".extern .func vprintf(.param .b64 a, .param .b64 b);\n"
                            ".extern .func (.param .b32 result) free(.param .b64 a);\n");
    cr_expect_eq(sg_builtin_find(checked_function(&checked, "vprintf")), SG_BUILTIN_VPRINTF);
    cr_expect_eq(sg_builtin_find(checked_function(&checked, "free")), SG_BUILTIN_NONE);
    checked_end(&checked);
}
