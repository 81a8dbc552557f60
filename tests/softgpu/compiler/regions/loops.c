/*
 * loops.c - kernels give the same in loop form, without loops taken side by side, with a stack for each
 * thread, and not optimised; in blocks of many shapes.
 */
#include "softgpu/exec/exec.h"
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 8192, BLOCKS = 3 };

static const char *const options[] = {NULL, "-lockstep", "-loops", "-all"};
#define N_OPTIONS (sizeof(options) / sizeof(options[0]))
#ifdef __SANITIZE_ADDRESS__ // which watches the compiler, not its code: compiling in the other ways shows nothing new
#define N_COMPARED 1
#else
#define N_COMPARED N_OPTIONS
#endif

static const uint32_t shapes[][3] = {{256, 1, 1}, {32, 1, 1}, {1, 1, 1},   {33, 1, 1}, {1000, 1, 1},
                                     {16, 16, 1}, {7, 5, 3},  {1, 96, 1},  {8, 4, 4},  {1024, 1, 1},
                                     {5, 1, 1},   {64, 2, 1}, {129, 1, 1}, {2, 2, 64}};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint32_t in[N], out[N];

static struct sg_program *load(const char *path, const char *option)
{
    if (option != NULL)
        setenv("SOFTGPU_OPT", option, 1);
    else
        unsetenv("SOFTGPU_OPT");
    return program_of_file(path);
}

static void run(struct sg_program *program, size_t index, const uint32_t shape[3], uint32_t *result)
{
    const struct {
        void *out, *in;
        int n;
    } params = {result, in, N / 2 - 5};
    memset(result, 0, sizeof(out));
    int fault = run_kernel(program, index, (uint32_t[3]){BLOCKS, 1, 1}, shape, &params, NULL);
    cr_assert_eq(fault, 0, "%s (%u,%u,%u): fault %d", sg_program_kernel(program, index)->name, shape[0],
                 shape[1], shape[2], fault);
}

/* Loop form where the name says so, unless it is switched off; and never where it cannot be. */
static void check_form(const struct sg_kernel *kernel, size_t option)
{
    bool loops = strncmp(kernel->name, "loops_", 6) == 0, block = strncmp(kernel->name, "block_", 6) == 0;
    if (block)
        cr_expect_eq(kernel->form, SG_CODE_BLOCK, "%s", kernel->name);
    else if (!loops)
        cr_expect_eq(kernel->form, SG_CODE_THREAD, "%s", kernel->name);
    else if (option == 0)
        cr_expect_eq(kernel->form, SG_CODE_LOOPS, "%s", kernel->name);
    else if (option >= 2)
        cr_expect_neq(kernel->form, SG_CODE_LOOPS, "%s", kernel->name);
}

/*
 * What the lanes of a warp are to give, whose first one is thread `first`; what each gets is in[]. A kernel whose name is not among
 * them is only compared with itself.
 */
typedef void expectation(uint32_t first, uint32_t expected[32]);

static uint32_t mix(uint32_t a, uint32_t b)
{
    a = (a ^ b) * 0x9e3779b1u;
    return a ^ a >> 15;
}

/* The sums before each lane in its warp: what a GPU gives whose lanes run together. */
static void lanes_run_together(uint32_t first, uint32_t expected[32])
{
    for (uint32_t t = 0, sum = 0; t < 32; sum += in[first + t++])
        expected[t] = sum;
}

/* Lanes that part are together again where their ways meet: nobody adds there before all have added that do so before. */
static void lanes_that_part_meet_again(uint32_t first, uint32_t expected[32])
{
    uint32_t value[32], sums[32] = {0}, marks[32] = {0};
    for (uint32_t t = 0; t < 32; t++) {
        value[t] = in[first + t];
        if (!(value[t] & 1))
            continue;
        marks[t * 5 % 32] = 1;
        sums[t * 5 % 32] += value[t];
        value[t] = mix(value[t], in[value[t] % 64]);
    }
    for (uint32_t t = 0; t < 32; t++) {
        if (!(value[t] & 2))
            continue;
        marks[(t * 11 + 7) % 32] = 1;
        sums[(t * 11 + 7) % 32] += value[t];
        value[t] = mix(value[t], in[value[t] % 32]);
    }
    for (uint32_t t = 0; t < 32; t++)
        expected[t] = sums[t] + marks[t] + value[t];
}

/* Lanes that have left a loop change nothing before the others have left it. */
static void lanes_that_leave_a_loop_wait(uint32_t first, uint32_t expected[32])
{
    memcpy(expected, &in[first], 32 * sizeof(*expected));
    for (uint32_t t = 0; t < 32; t++)
        expected[(t * 5 + 3) % 32] += in[first + t] * (1 + (in[first + t] >> 9 & 7));
    for (uint32_t t = 0; t < 32; t++)
        expected[(t * 3 + 1) % 32] ^= in[first + t];
}

/* Lanes vote among themselves first, each in as many turns as it has, then at the same instruction among all. */
static void lanes_wait_for_others_with_turns_left(uint32_t first, uint32_t expected[32])
{
    uint32_t even = 0;
    for (uint32_t t = 0; t < 32; t++)
        even |= (uint32_t)(in[first + t] % 2 == 0) << t;
    for (uint32_t t = 0; t < 32; t++) {
        uint32_t sum = 0;
        for (uint32_t turn = 0; t != 0 && turn <= (in[first + t] >> 7 & 3); turn++)
            sum = mix(sum, even & 1u << t);
        expected[t] = mix(sum, even);
    }
}

/* Who is elected is there: not a lane that has ended. */
static void a_lane_that_lives_is_elected(uint32_t first, uint32_t expected[32])
{
    (void)first;
    for (uint32_t t = 0; t < 32; t++)
        expected[t] = t < 3 ? 7 : t == 3 ? 103 : 3;
}

/* What others of the warp have written is seen without a barrier or `volatile`, as it is on a GPU. */
static void lanes_see_what_others_wrote(uint32_t first, uint32_t expected[32])
{
    const uint32_t *mine = &in[first];
    for (uint32_t t = 0; t < 32; t++) {
        expected[t] = t != 31 ? mine[t + 1] : 0;
        for (uint32_t back = 0; back <= 3 && back <= t; back++)
            expected[t] += 3 * mine[t - back];
    }
    if (first % 256 == 0)
        expected[0] += 5 * (mine[0] + mine[30]);
}

/* So it is where each warp has a row of its own. */
static void lanes_see_what_others_wrote_in_rows(uint32_t first, uint32_t expected[32])
{
    for (uint32_t t = 0; t < 32; t++) {
        expected[t] = 0;
        for (uint32_t turn = 0; turn < 3; turn++) {
            expected[t] *= 7;
            for (uint32_t other = 0; other < t; other++)
                expected[t] += in[first + other] + turn;
        }
    }
}

/* What lanes store stays where other lanes of the warp have stored before, and with no barrier between. */
static void lanes_overwrite_what_others_wrote(uint32_t first, uint32_t expected[32])
{
    uint32_t swapped[32], marked[32];
    for (uint32_t t = 0; t < 32; t++) {
        swapped[t] = 3 * in[first + t];
        marked[t] = in[first + t];
    }
    for (uint32_t t = 0; t < 32; t++)
        if (in[first + t] & 64)
            swapped[(t * 5 + 2) % 32] = in[first + t];
    marked[5] = 9;
    marked[in[first + 11] % 8 + 20] = 5;
    for (uint32_t t = 0; t < 32; t++)
        expected[t] = 49 * in[first + t] + 7 * swapped[t] + marked[t];
}

static void local_variables_are_aligned(uint32_t first, uint32_t expected[32])
{
    for (uint32_t t = 0; t < 32; t++)
        expected[t] = in[first + t] + (first + t - in[first + t]) % 8;
}

/* What all have loaded from one place is overwritten once all have it, as on a GPU. */
static void marks_are_left_when_all_have_looked(uint32_t first, uint32_t expected[32])
{
    for (uint32_t t = 0; t < 32; t++)
        expected[t] = in[first + (t & ~7u)] + 5;
}

/* Votes of lanes that name those below them: what a GPU gives whose lanes run together. */
static void masks_of_lower_lanes(uint32_t first, uint32_t expected[32])
{
    for (uint32_t t = 0; t < 32; t++) {
        expected[t] = 0;
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint32_t votes = 0;
            for (uint32_t other = 0; other < t; other++)
                votes += in[first + other] >> bit & 1;
            expected[t] += votes << 4 * bit / 2;
        }
    }
}

static const struct {
    const char *kernel;
    expectation *expect;
} expectations[] = {
    {"loops_volatile_warp", lanes_run_together},
    {"loops_volatile_parts", lanes_that_part_meet_again},
    {"loops_volatile_leaving", lanes_that_leave_a_loop_wait},
    {"loops_masks_of_turns_of_one", lanes_wait_for_others_with_turns_left},
    {"loops_elected", a_lane_that_lives_is_elected},
    {"loops_plain_warp", lanes_see_what_others_wrote},
    {"loops_plain_rows", lanes_see_what_others_wrote_in_rows},
    {"loops_overwritten", lanes_overwrite_what_others_wrote},
    {"loops_aligned_local", local_variables_are_aligned},
    {"loops_marks", marks_are_left_when_all_have_looked},
    {"loops_masks_of_lower_lanes", masks_of_lower_lanes},
};
#define N_EXPECTATIONS (sizeof(expectations) / sizeof(expectations[0]))

/* Of a kernel of which it is known: what it gives in blocks of 256 threads, for numbers that all differ. Returns whether it is one. */
static bool check_expected(struct sg_program *program, size_t index, const char *option)
{
    const char *name = sg_program_kernel(program, index)->name;
    size_t e = 0;
    while (e < N_EXPECTATIONS && strcmp(expectations[e].kernel, name) != 0)
        e++;
    if (e == N_EXPECTATIONS)
        return false;
    static uint32_t result[N];
    for (uint32_t i = 0; i < N; i++)
        in[i] = i * 2654435761u;
    run(program, index, (const uint32_t[3]){256, 1, 1}, result);
    for (uint32_t first = 0; first < BLOCKS * 256; first += 32) {
        uint32_t expected[32];
        expectations[e].expect(first, expected);
        cr_assert_arr_eq(&result[first], expected, sizeof(expected), "%s with %s, warp of thread %u", name,
                         option, first);
    }
    return true;
}

static void fill_in(void)
{
    uint32_t seed = 12345;
    for (int i = 0; i < N; i++)
        in[i] = seed = seed * 1664525u + 1013904223u;
}

/* Every kernel of a file, which has so many, in every form and shape; of `known` of them it is known what they give. */
static void compare_forms(const char *path, size_t expected, size_t known)
{
    struct sg_program *program;
    const struct sg_kernel *kernel;
    static uint32_t results[48][N_SHAPES][N];
    for (size_t option = 0; option < N_OPTIONS; option++) {
        const char *with = option == 0 ? "loops" : options[option];
        program = load(path, options[option]);
        size_t count = 0, checked = 0;
        for (; (kernel = sg_program_kernel(program, count)) != NULL; count++) {
            cr_assert_lt(count, 48);
            check_form(kernel, option);
            checked += check_expected(program, count, with);
            fill_in();
            for (size_t shape = 0; shape < N_SHAPES && option < N_COMPARED; shape++) {
                const uint32_t *s = shapes[shape];
                run(program, count, s, out);
                if (option == 0)
                    memcpy(results[count][shape], out, sizeof(out));
                for (uint32_t i = 0, bad = 0; i < BLOCKS * s[0] * s[1] * s[2] && bad < 3; i++) {
                    bool same = out[i] == results[count][shape][i];
                    bad += !same;
                    if (!same) // Criterion reports each check to its parent, the good ones too: millions here
                        cr_expect_fail("%s with %s, block (%u,%u,%u), thread %u: %08x, and %08x without",
                                       kernel->name, with, s[0], s[1], s[2], i, out[i],
                                       results[count][shape][i]);
                }
            }
        }
        cr_assert_eq(count, expected);
        cr_assert_eq(checked, known);
        free_program(program);
    }
}

Test(loops, same_results, .timeout = 400)
{
    compare_forms(LOOPS_PTX, 47, N_EXPECTATIONS);
}

Test(loops, waiting, .timeout = 400)
{
    compare_forms(WAITS_PTX, 21, 0);
}

/* Runs one block of PTX in both forms; the fault must be the same. */
static void both_fault(const char *ptx, uint32_t threads, int fault)
{
    for (int loops = 0; loops < 2; loops++) {
        if (loops)
            unsetenv("SOFTGPU_OPT");
        else
            setenv("SOFTGPU_OPT", "-all", 1);
        struct sg_program *program = program_of(ptx);
        const void *params[1] = {in};
        cr_expect_eq(sg_program_kernel(program, 0)->form, loops ? SG_CODE_LOOPS : SG_CODE_THREAD);
        cr_expect_eq(run_grid(program, 2, threads, params), fault, "%s", ptx);
        free_program(program);
    }
}

/* Half the blocks store vectors of four equal words, the others look whether they are equal. */
Test(loops, strong_vectors_are_accessed_at_once)
{
    _Alignas(16) static uint32_t words[8];
    struct sg_program *program =
        program_of(".entry k(.param .u64 p) { .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %a<2>;\n"
                   "  ld.param.u64 %a1, [p]; mov.u32 %r1, %ctaid.x; and.b32 %r2, %r1, 1; mov.b32 %r3, 0;\n"
                   "  setp.eq.u32 %p1, %r2, 0;\n"
                   "again: @%p1 st.relaxed.gpu.global.v4.u32 [%a1], {%r3, %r3, %r3, %r3};\n"
                   "  @!%p1 ld.relaxed.gpu.global.v4.u32 {%r4, %r5, %r6, %r7}, [%a1];\n"
                   "  @%p1 bra next;\n"
                   "  xor.b32 %r5, %r5, %r4; xor.b32 %r6, %r6, %r4; xor.b32 %r7, %r7, %r4;\n"
                   "  or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7; setp.eq.u32 %p2, %r5, 0;\n"
                   "  @!%p2 st.global.u32 [%a1+16], 1;\n"
                   "next: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50000; @%p2 bra again; ret; }");
    const void *params[1] = {words};
    cr_expect_eq(run_grid(program, 64, 1, params), SG_FAULT_NONE);
    cr_expect_eq(words[4], 0);
    free_program(program);
}

Test(loops, faults)
{
    both_fault(".entry k(.param .u64 p) { .reg .pred %p<2>; .reg .b32 %r<2>; mov.u32 %r1, %tid.x;\n"
               "  setp.lt.u32 %p1, %r1, 20; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64; ret; }",
               40, SG_FAULT_DEADLOCK);
    both_fault(".entry k(.param .u64 p) { .reg .pred %p<2>; .reg .b32 %r<3>; mov.u32 %r1, %tid.x;\n"
               "  setp.lt.u32 %p1, %r1, 5; @%p1 shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xff;\n"
               "  @!%p1 bar.sync 0; ret; }",
               8, SG_FAULT_DEADLOCK);
    both_fault(
        ".entry k(.param .u64 p) { .reg .b64 %a<3>; .reg .b32 %r<3>; mov.u32 %r1, %tid.x; bar.sync 0;\n"
        "  mul.wide.u32 %a1, %r1, 4; ld.global.u32 %r2, [%a1+16]; bar.sync 0; ld.param.u64 %a2, [p];\n"
        "  st.global.u32 [%a2], %r2; ret; }",
        64, SG_FAULT_ILLEGAL_ADDRESS);
    /* as far from what another lane has stored as an address can be: a number that has no opposite */
    both_fault(".entry k(.param .u64 p) { .reg .b64 %a<5>; .reg .b32 %r<3>; ld.param.u64 %a1, [p];\n"
               "  mov.u32 %r1, %tid.x; cvt.u64.u32 %a2, %r1; bar.sync 0; sub.u64 %a3, %a1, %a2;\n"
               "  st.global.u8 [%a3+4096], %r1; add.u64 %a4, %a3, 0x8000000000000000;\n"
               "  ld.global.u8 %r2, [%a4+4096]; st.global.u8 [%a3+4096], %r2; ret; }",
               32, SG_FAULT_ILLEGAL_ADDRESS);
    both_fault(".entry k(.param .u64 p) { .reg .b32 %r<3>; mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 10;\n"
               "  bar.sync %r1; ret; }",
               64, SG_FAULT_ILLEGAL_INSTRUCTION);
    both_fault(
        ".entry k(.param .u64 p) { .reg .pred %p<2>; .reg .b32 %r<3>; mov.u32 %r1, %tid.x; bar.sync 0;\n"
        "  setp.eq.u32 %p1, %r1, 17; @%p1 trap; bar.sync 0; ret; }",
        64, SG_FAULT_TRAP);
}
