/* flow.c - blocks of instructions and the ways between them; what registers an instruction touches. */
#include "softgpu/compiler/ir/flow.h"

#include "softgpu/compiler/ir/traits.h"
#include "tests/softgpu/compiler/checked.h"

#include <criterion/criterion.h>

#include <string.h>

#define REGISTERS ".reg .b32 %r<5>; .reg .pred %p<2>;\n"

static bool leads(const struct sg_flow *flow, uint32_t from, uint32_t to)
{
    uint32_t found;
    for (uint32_t i = 0; sg_flow_successor(flow, from, i, &found); i++)
        if (found == to)
            return true;
    return false;
}

Test(flow, blocks_and_ways)
{
    struct checked checked;
    struct sg_flow flow = {0};
    checked_begin(&checked, ".visible .entry k() {\n" REGISTERS "mov.u32 %r1, 0;\n" /* 0 */
                            "L: add.u32 %r1, %r1, 1;\n"                             /* 1 */
                            "setp.lt.u32 %p1, %r1, 4;\n"                            /* 2 */
                            "@%p1 bra L;\n"                                         /* 3 */
                            "bra E;\n"                                              /* 4 */
                            "mov.u32 %r2, 1;\n"                                     /* 5: nobody comes here */
                            "E: ret;\n}\n");                                        /* 6 */
    const struct sg_ptx_function *kernel = checked_function(&checked, "k");
    sg_flow_build(&checked.arena, kernel, &flow);
    const uint32_t *of = flow.block_of;
    cr_assert_geq(kernel->n_insns, 7u);
    cr_expect_eq(of[1], of[3]);
    cr_expect_neq(of[0], of[1]);
    cr_expect_neq(of[3], of[4]);
    cr_expect(leads(&flow, of[0], of[1]));
    cr_expect(leads(&flow, of[3], of[1]));
    cr_expect(leads(&flow, of[3], of[4]));
    cr_expect(leads(&flow, of[4], of[6]));
    cr_expect_not(leads(&flow, of[4], of[5]));
    uint32_t none;
    cr_expect_not(sg_flow_successor(&flow, of[6], 0, &none), "it returns");
    /* a walk enters each block once, and those only that can be come to */
    struct sg_walk walk;
    uint32_t block, insn, entered = 0;
    sg_walk_init(&checked.arena, &flow, &walk);
    sg_walk_begin(&walk);
    sg_walk_to(&walk, of[0]);
    while (sg_walk_next(&walk, &block, &insn)) {
        cr_expect_neq(block, of[5]);
        cr_expect_eq(insn, flow.first[block]);
        (void)sg_walk_on(&walk, block);
        entered++;
    }
    cr_expect_eq(entered, flow.n_blocks - 1);
    checked_end(&checked);
}

struct seen {
    uint32_t read, written, n_read, n_written;
    bool maybe;
};

static void see(void *user, uint32_t reg, bool written, bool maybe)
{
    struct seen *seen = user;
    if (written) {
        seen->written = reg;
        seen->n_written++;
        seen->maybe = maybe;
    } else {
        seen->read = reg;
        seen->n_read++;
    }
}

Test(flow, registers_of_instructions)
{
    struct checked checked;
    checked_begin(&checked, ".visible .entry k() {\n" REGISTERS
                            "add.u32 %r1, %r2, 3;\n@%p1 mov.u32 %r3, %r4;\nbar.sync 0;\nret;\n}\n");
    const struct sg_ptx_function *kernel = checked_function(&checked, "k");
    struct seen plain = {0}, guarded = {0};
    sg_visit_registers(&kernel->insns[0], see, &plain);
    cr_expect_eq(plain.n_read, 1);
    cr_expect_eq(plain.n_written, 1);
    cr_expect_eq(plain.written, checked_result(kernel, 0));
    cr_expect_not(plain.maybe);
    sg_visit_registers(&kernel->insns[1], see, &guarded);
    cr_expect_eq(guarded.n_read, 2, "the guard, too");
    cr_expect(guarded.maybe);
    cr_expect(sg_is_meeting(&kernel->insns[2]));
    cr_expect_not(sg_is_meeting(&kernel->insns[0]));
    cr_expect(sg_is_arithmetic(kernel->insns[0].form->op));
    checked_end(&checked);
}

static struct sg_slice slice(const char *text)
{
    return (struct sg_slice){text, (uint32_t)strlen(text)};
}

Test(flow, types_by_name)
{
    for (int i = SG_TYPE_NONE + 1; i < SG_TYPE_COUNT; i++)
        cr_expect_eq(sg_type_from_name(slice(sg_types[i].name)), i, "%s", sg_types[i].name);
    cr_expect_eq(sg_type_from_name(slice("u128")), SG_TYPE_NONE);
    cr_expect_eq(sg_type_widened(SG_S16), SG_S32);
    cr_expect_eq(sg_type_widened(SG_F32), SG_TYPE_NONE);
    cr_expect_eq(sg_type_bytes(SG_PRED), 1);
    cr_expect_eq(sg_type_bytes(SG_B128), 16);
}
