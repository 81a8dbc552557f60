/*
 * large.c - a kernel above the size from which few optimisations are made computes what it says; quick code and the better code
 * that takes its place compute the same, bit by bit.
 */
#include "tests/softgpu/compiler/harness.h"
#include "tests/softgpu/compiler/jit/rounds.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS   20000
#define THREADS 32

/* A chain of steps whose operands depend on the place in it. */
static char *write_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, ".visible .entry k(.param .u64 p) {\n.reg .u64 %%a<3>;\n.reg .u32 %%r<4>;\n.reg .pred %%q;\n"
                 "ld.param.u64 %%a1, [p];\nmov.u32 %%r0, %%tid.x;\nmul.wide.u32 %%a2, %%r0, 4;\nadd.s64 "
                 "%%a1, %%a1, %%a2;\n"
                 "mov.u32 %%r1, %%r0;\n");
    for (int i = 0; i < STEPS; i++) {
        fprintf(out,
                "mad.lo.u32 %%r1, %%r1, 1664525, %d;\nshr.u32 %%r2, %%r1, 7;\nxor.b32 %%r1, %%r1, %%r2;\n",
                i);
        if (i % 1000 == 999)
            fprintf(out, "setp.lt.u32 %%q, %%r1, 2000000000;\n@%%q bra L%d;\nadd.u32 %%r1, %%r1, 17;\nL%d:\n",
                    i, i);
    }
    fprintf(out, "st.global.u32 [%%a1], %%r1;\nret;\n}\n");
    fclose(out);
    return text;
}

static uint32_t expected(uint32_t value)
{
    for (uint32_t i = 0; i < STEPS; i++) {
        value = value * 1664525 + i;
        value ^= value >> 7;
        if (i % 1000 == 999 && value >= 2000000000)
            value += 17;
    }
    return value;
}

Test(jit, large_kernels_compute_what_they_say)
{
    char *text = write_text();
    struct sg_program *program = program_of(text);
    uint32_t out[THREADS] = {0}, *parameter = out;
    place_variables(program);
    cr_assert_eq(run_grid(program, 1, THREADS, &parameter), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        cr_assert_eq(out[i], expected(i), "thread %u", i);
    free_program(program);
    free(text);
}

#define ROUNDS 200 /* some 5,000 instructions */

static void run_rounds(struct sg_program *program, uint32_t out[ROUNDS_THREADS][ROUNDS_WORDS])
{
    void *parameter = out;
    memset(out, 0, ROUNDS_THREADS * sizeof(out[0]));
    cr_assert_eq(run_grid(program, 1, ROUNDS_THREADS, &parameter), 0);
}

static void *code_now(struct sg_program *program)
{
    struct sg_text log = {0};
    void *code = NULL;
    cr_assert_eq(sg_program_code(program, 0, &log, &code), SG_COMPILE_OK, "%s", log.data);
    sg_text_fini(&log);
    return code;
}

static void compare_codes(bool meets, enum sg_code_form form)
{
    static uint32_t quick[ROUNDS_THREADS][ROUNDS_WORDS], better[ROUNDS_THREADS][ROUNDS_WORDS];
    char *text = rounds_text(ROUNDS, meets);
    struct sg_program *program = program_of(text);
    place_variables(program);
    cr_assert_eq(sg_program_kernel(program, 0)->form, form);
    void *first = code_now(program);
    run_rounds(program, quick);
    sg_program_wait_better(program);
    cr_assert_neq(code_now(program), first, "no better code took the place of the first");
    run_rounds(program, better);
    for (uint32_t i = 0; i < ROUNDS_THREADS; i++) {
        uint32_t expected[4];
        rounds_expected(ROUNDS, i, expected);
        if (!meets)
            cr_assert_arr_eq(quick[i], expected, sizeof(expected), "thread %u", i);
        cr_assert_arr_eq(quick[i], better[i], sizeof(quick[i]), "thread %u", i);
    }
    free_program(program);
    free(text);
}

Test(jit, quick_and_better_code_compute_the_same)
{
    compare_codes(false, SG_CODE_BLOCK);
}

Test(jit, quick_and_better_code_compute_the_same_where_threads_meet)
{
    compare_codes(true, SG_CODE_LOOPS);
}

/* The better code is in the making, and the program goes. */
Test(jit, programs_end_while_better_code_is_made)
{
    char *text = rounds_text(ROUNDS, false);
    for (int i = 0; i < 3; i++) {
        struct sg_program *program = program_of(text);
        place_variables(program);
        code_now(program);
        free_program(program);
    }
    free(text);
}
