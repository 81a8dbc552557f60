/*
 * cuda.c - what nvcc makes of CUDA C++: the mathematical functions against the host's, and kernels whose
 * threads work together. Needs nvcc at build time.
 */
#include "softgpu/exec/exec.h"
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool has_form(struct sg_program *program, const char *name, enum sg_code_form form)
{
    return sg_program_kernel(program, kernel_index(program, name))->form == form;
}

static int launch(struct sg_program *program, const char *name, const uint32_t grid[2],
                  const uint32_t block[2], const void *params)
{
    return run_kernel(program, kernel_index(program, name), (uint32_t[3]){grid[0], grid[1], 1},
                      (uint32_t[3]){block[0], block[1], 1}, params, NULL);
}

/* --- mathematics --- */

enum { N = 2000 };

struct function {
    const char *name;
    float (*single)(float);
    double (*plain)(double);
    float (*single2)(float, float);
    double (*plain2)(double, double);
};
#define ONE(name) {#name, name##f, name, NULL, NULL},
#define TWO(name) {#name, NULL, NULL, name##f, name},
static const struct function functions[] = {
#include "tests/softgpu/compiler/cuda/mathematics.inc"
};

static int64_t order32(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

static int64_t order64(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits < 0 ? INT64_MIN - bits : bits;
}

static bool near32(float a, float b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return llabs(order32(a) - order32(b)) <= 8 || fabsf(a - b) < 2e-6f;
}

static bool near64(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return imaxabs(order64(a) - order64(b)) <= 16 || fabs(a - b) < 1e-14;
}

static double argument(int i)
{
    static const double special[] = {0.0,      -0.0,  1.0,   -1.0,  INFINITY, -INFINITY, NAN,   1e-300,
                                     1e300,    1e-40, 1e38,  0.5,   -0.5,     2.5,       -2.5,  3.5,
                                     105615.0, 1e10,  -1e-5, 709.0, -745.0,   88.5,      -103.9};
    int count = (int)(sizeof(special) / sizeof(special[0]));
    return i < count ? special[i]
                     : ((i * 7919) % 20000 - 10000) / (i % 3 == 0   ? 100000.0
                                                       : i % 3 == 1 ? 400.0
                                                                    : 7.0);
}

Test(cuda, mathematics, .timeout = 300)
{
    static float in32[N], second32[N], out32[N];
    static double in64[N], second64[N], out64[N];
    struct sg_program *program = program_of_file(MATHEMATICS_PTX);
    const uint32_t grid[2] = {8, 1}, block[2] = {256, 1};
    for (int i = 0; i < N; i++) {
        in64[i] = argument(i);
        second64[i] = argument((i * 31) % N);
        in32[i] = (float)in64[i];
        second32[i] = (float)second64[i];
    }
    for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
        const struct function *function = &functions[f];
        struct {
            void *out, *in, *second;
            int n;
        } params = {out32, in32, second32, N};
        char name[32];
        snprintf(name, sizeof(name), "%s_f", function->name);
        cr_assert_eq(launch(program, name, grid, block, &params), 0);
        params.out = out64, params.in = in64, params.second = second64;
        snprintf(name, sizeof(name), "%s_d", function->name);
        cr_assert_eq(launch(program, name, grid, block, &params), 0);
        int bad = 0;
        for (int i = 0; i < N && bad < 5; i++) {
            float a = function->single != NULL ? function->single(in32[i])
                                               : function->single2(in32[i], second32[i]);
            double b =
                function->plain != NULL ? function->plain(in64[i]) : function->plain2(in64[i], second64[i]);
            bool good32 = near32(out32[i], a), good64 = near64(out64[i], b);
            bad += !good32 || !good64;
            cr_expect(good32, "%sf(%a, %a): %a instead of %a", function->name, (double)in32[i],
                      (double)second32[i], (double)out32[i], (double)a);
            cr_expect(good64, "%s(%a, %a): %a instead of %a", function->name, in64[i], second64[i], out64[i],
                      b);
        }
    }
    free_program(program);
}

/* --- threads --- */

Test(cuda, matrix_multiply)
{
    enum { SIZE = 64 };
    static float a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = (float)(i % 7);
        b[i] = (float)(i % 5);
    }
    struct sg_program *program = program_of_file(THREADS_PTX);
    struct {
        void *c, *a, *b;
        int n;
    } params = {c, a, b, SIZE};
    const uint32_t grid[2] = {SIZE / 16, SIZE / 16}, block[2] = {16, 16};
    cr_assert_eq(launch(program, "matrix_multiply", grid, block, &params), 0);
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) {
            float sum = 0;
            for (int k = 0; k < SIZE; k++)
                sum += a[y * SIZE + k] * b[k * SIZE + x];
            cr_assert_eq(c[y * SIZE + x], sum, "%d, %d", x, y);
        }
    free_program(program);
}

Test(cuda, reductions_and_scans)
{
    enum { COUNT = 10000 };
    static int in[COUNT], out[64];
    int sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += in[i] = i % 13 - 3;
    struct sg_program *program = program_of_file(THREADS_PTX);
    struct {
        void *out, *in;
        int n;
    } params = {out, in, COUNT};
    cr_assert_eq(launch(program, "reduce", (uint32_t[2]){6, 1}, (uint32_t[2]){128, 1}, &params), 0);
    cr_expect_eq(out[0], sum);
    cr_assert_eq(launch(program, "scan_warp", (uint32_t[2]){1, 1}, (uint32_t[2]){64, 1}, &params), 0);
    for (int warp = 0; warp < 2; warp++) {
        int odd = 0, running = 0;
        for (int i = 0; i < 32; i++)
            odd += in[warp * 32 + i] & 1;
        for (int i = 0; i < 32; i++) {
            running += in[warp * 32 + i];
            cr_expect_eq(out[warp * 32 + i], running + 1000 * odd, "lane %d", i);
        }
    }
    free_program(program);
}

Test(cuda, locks_and_exchanges)
{
    int lock = 0, counter = 0;
    double sum = 0;
    struct sg_program *program = program_of_file(THREADS_PTX);
    struct {
        void *lock, *counter;
    } lock_params = {&lock, &counter};
    cr_assert_eq(launch(program, "lock_counter", (uint32_t[2]){4, 1}, (uint32_t[2]){64, 1}, &lock_params), 0);
    cr_expect_eq(counter, 256);
    cr_expect(has_form(program, "lock_counter", SG_CODE_LOOPS), "a thread may wait for the lock");
    cr_expect(has_form(program, "add_by_exchange", SG_CODE_BLOCK), "no thread waits for another");
    struct {
        void *sum;
        double value;
    } add_params = {&sum, 0.5};
    cr_assert_eq(launch(program, "add_by_exchange", (uint32_t[2]){10, 1}, (uint32_t[2]){100, 1}, &add_params),
                 0);
    cr_expect_eq(sum, 500.0);
    free_program(program);
}

Test(cuda, virtual_calls_and_recursion)
{
    int out[32];
    struct sg_program *program = program_of_file(THREADS_PTX);
    struct {
        void *out;
        int n;
    } params = {out, 200};
    cr_assert_eq(launch(program, "virtual_call", (uint32_t[2]){1, 1}, (uint32_t[2]){32, 1}, &params), 0);
    for (int i = 0; i < 32; i++)
        cr_expect_eq(out[i], i % 2 ? i * i : i);
    cr_assert_eq(launch(program, "recursion", (uint32_t[2]){1, 1}, (uint32_t[2]){32, 1}, &params), 0);
    for (int i = 0; i < 32; i++)
        cr_expect_eq(out[i], 200 + i);
    free_program(program);
}

Test(cuda, divisions_of_128_bits)
{
    typedef unsigned __int128 wide;
    enum { COUNT = 400 };
    static wide in[2 * COUNT], out[4 * COUNT];
    uint64_t state = 1;
    for (int i = 0; i < 2 * COUNT; i++) { /* of all sizes */
        uint64_t words[2];
        for (int k = 0; k < 2; k++)
            words[k] = state = state * 6364136223846793005u + 1442695040888963407u;
        in[i] = ((wide)words[1] << 64 | words[0]) >> (i * 37 % 128);
    }
    in[1] = (wide)1 << 64, in[3] = in[2], in[4] = 0, in[6] = -(wide)1;
    struct sg_program *program = program_of_file(THREADS_PTX);
    struct {
        void *out, *in;
        int n;
    } params = {out, in, COUNT};
    cr_assert_eq(launch(program, "divide_wide", (uint32_t[2]){4, 1}, (uint32_t[2]){100, 1}, &params), 0);
    for (int i = 0, bad = 0; i < COUNT && bad < 5; i++) {
        wide a = in[2 * i], b = in[2 * i + 1], results[4];
        if (b == 0)
            continue;
        results[0] = a / b, results[1] = a % b;
        results[2] = (wide)((__int128)a / (__int128)b), results[3] = (wide)((__int128)a % (__int128)b);
        bool good = memcmp(results, &out[4 * i], sizeof(results)) == 0;
        cr_expect(good, "division %d", i);
        bad += !good;
    }
    free_program(program);
}

Test(cuda, split_barrier)
{
    int out[128];
    struct sg_program *program = program_of_file(THREADS_PTX);
    const void *params[1] = {out};
    cr_assert_eq(launch(program, "split_barrier", (uint32_t[2]){1, 1}, (uint32_t[2]){128, 1}, params), 0);
    for (int i = 0; i < 128; i++)
        cr_expect_eq(out[i], 3000 + 6 * ((i + 1) % 128), "thread %d: %d", i, out[i]);
    free_program(program);
}

Test(cuda, large_tiles)
{
    int out[128];
    struct sg_program *program = program_of_file(THREADS_PTX);
    const void *params[1] = {out};
    cr_assert_eq(launch(program, "large_tiles", (uint32_t[2]){1, 1}, (uint32_t[2]){128, 1}, params), 0);
    for (int i = 0; i < 128; i++)
        cr_expect_eq(out[i], i < 64 ? 2016 + 40 : 6112 + 104, "thread %d: %d", i, out[i]);
    free_program(program);
}
