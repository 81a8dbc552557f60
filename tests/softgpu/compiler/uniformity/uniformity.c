/* uniformity.c - how registers are found to differ from thread to thread; loops whose turns threads take together. */
#include "softgpu/compiler/uniformity/uniformity.h"

#include "tests/softgpu/compiler/checked.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define REGISTERS ".reg .b32 %r<9>; .reg .b64 %rd<6>; .reg .f32 %f<3>; .reg .pred %p<3>;\n"

static void expect_affine(const struct sg_uniformity *all, const struct sg_ptx_function *kernel,
                          uint32_t insn, int64_t step)
{
    const struct sg_uniformity found = all[checked_result(kernel, insn)];
    cr_expect_eq(found.kind, SG_UNIFORMITY_AFFINE, "instruction %u", insn);
    cr_expect_eq(found.step, step, "instruction %u: %lld", insn, (long long)found.step);
}

static void expect_divergent(const struct sg_uniformity *all, const struct sg_ptx_function *kernel,
                             uint32_t insn, bool piecewise)
{
    const struct sg_uniformity found = all[checked_result(kernel, insn)];
    cr_expect_eq(found.kind, SG_UNIFORMITY_DIVERGENT, "instruction %u", insn);
    cr_expect_eq(found.piecewise, piecewise, "instruction %u", insn);
}

Test(uniformity, of_values)
{
    struct checked checked;
    checked_begin(&checked, ".visible .entry k(.param .u64 p) {\n" REGISTERS "mov.u32 %r1, %tid.x;\n" /* 0 */
                            "mad.lo.u32 %r2, %r1, 12, 5;\n"                                           /* 1 */
                            "mov.u32 %r3, %ctaid.x;\n"                                                /* 2 */
                            "sub.u32 %r4, %r3, %r2;\n"                                                /* 3 */
                            "ld.param.u64 %rd1, [p];\n"                                               /* 4 */
                            "mul.wide.u32 %rd2, %r1, 4;\n"                                            /* 5 */
                            "add.u64 %rd3, %rd1, %rd2;\n"                                             /* 6 */
                            "ld.global.u32 %r5, [%rd3];\n"                                            /* 7 */
                            "mul.lo.u32 %r6, %r1, %r1;\n"                                             /* 8 */
                            "setp.lt.u32 %p1, %r1, 5;\n"                                              /* 9 */
                            "setp.lt.u32 %p2, %r3, 5;\n"                                              /* 10 */
                            "st.global.u32 [%rd3], %r6;\nret;\n}\n");
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    const struct sg_uniformity *all = sg_uniformity_compute(&checked.arena, kernel, SG_AMONG_ROW);
    expect_affine(all, kernel, 0, 1);
    expect_affine(all, kernel, 1, 12);
    expect_affine(all, kernel, 2, 0);
    expect_affine(all, kernel, 3, -12);
    expect_affine(all, kernel, 4, 0);
    expect_affine(all, kernel, 5, 4);
    expect_affine(all, kernel, 6, 4);
    expect_divergent(all, kernel, 7, false);
    expect_divergent(all, kernel, 8, false);
    expect_divergent(all, kernel, 9, true);
    expect_affine(all, kernel, 10, 0);
    checked_end(&checked);
}

/* What a thread's place in its warp has no part in is the same for the warp, if not for the row. */
Test(uniformity, among_a_warp)
{
    struct checked checked;
    checked_begin(&checked, ".visible .entry k() {\n" REGISTERS "mov.u32 %r1, %tid.x;\n"
                            "shr.u32 %r2, %r1, 5;\n"
                            "shr.u32 %r3, %r1, 2;\nret;\n}\n");
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    const struct sg_uniformity *row = sg_uniformity_compute(&checked.arena, kernel, SG_AMONG_ROW);
    const struct sg_uniformity *warp = sg_uniformity_compute(&checked.arena, kernel, SG_AMONG_WARP);
    expect_divergent(row, kernel, 1, true);
    expect_affine(warp, kernel, 1, 0);
    expect_divergent(warp, kernel, 2, false);
    cr_expect_eq(warp[checked_result(kernel, 2)].bits, 7, "four lanes each");
    checked_end(&checked);
}

/* A loop over rows of memory, each by neighbours side by side; and one that goes round as often as data say. */
Test(uniformity, loops_taken_together)
{
    struct checked checked;
    checked_begin(&checked,
                  ".visible .entry even(.param .u64 p, .param .u32 n) {\n" REGISTERS
                  "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [p];\nld.param.u32 %r4, [n];\n"
                  "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nmov.u32 %r2, 0;\n"
                  "L: ld.global.f32 %f1, [%rd3];\nadd.f32 %f2, %f2, %f1;\nadd.u64 %rd3, %rd3, 4096;\n"
                  "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, %r4;\n@%p1 bra L;\n"
                  "st.global.f32 [%rd3], %f2;\nret;\n}\n"
                  ".visible .entry uneven(.param .u64 p) {\n" REGISTERS
                  "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [p];\n"
                  "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.u32 %r4, [%rd3];\n"
                  "mov.u32 %r2, 0;\n"
                  "L: ld.global.u32 %r4, [%rd1];\ncvt.u64.u32 %rd1, %r4;\n"
                  "setp.ne.u32 %p1, %r4, 0;\n@%p1 bra L;\nst.global.u32 [%rd3], %r2;\nret;\n}\n");
    static const struct {
        const char *name;
        bool together;
    } kernels[] = {{"even", true}, {"uneven", false}};
    for (int i = 0; i < 2; i++) {
        struct sg_ptx_function *kernel = checked_function(&checked, kernels[i].name);
        sg_analyse_lockstep(&checked.arena, kernel);
        bool passes = false;
        for (uint32_t n = 0; n < kernel->n_insns; n++)
            passes |= kernel->insns[n].passes;
        cr_expect_eq(passes, kernels[i].together, "%s", kernels[i].name);
    }
    checked_end(&checked);
}

/* A store that is to outlast what other lanes have stored waits for them, however many stores there are before. */
Test(uniformity, stores_that_outlast_others_are_found_behind_many)
{
    enum { BEFORE = 600 }; /* as where loops have been unrolled */
    struct checked checked;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs(".visible .entry k(.param .u64 p) {\n" REGISTERS ".shared .align 4 .b8 s[4096];\n"
          "ld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1];\nmov.u32 %r2, %tid.x;\n"
          "mov.u32 %r3, s;\nadd.u32 %r1, %r1, %r3;\nmad.lo.u32 %r3, %r2, 4, %r3;\n",
          out);
    for (int i = 0; i < BEFORE; i++)
        fprintf(out, "st.shared.u32 [%%r1+%d], %%r2;\n", i);
    fprintf(out, "bar.sync 0;\nst.shared.u32 [%%r3], 0;\nst.shared.u32 [%%r1], %%r2;\nret;\n}\n");
    fclose(out);
    checked_begin(&checked, text);
    struct sg_ptx_function *kernel = checked_function(&checked, "k");
    sg_analyse_neighbours(&checked.arena, kernel);
    cr_expect(!kernel->insns[kernel->n_insns - 3].aligns, "nothing has been stored since the barrier");
    cr_expect(kernel->insns[kernel->n_insns - 2].aligns);
    checked_end(&checked);
    free(text);
}
