/*
 * fft.c - cuFFT: transforms of one to three dimensions, of all kinds, in batches and with strides, against the sums that
 * define them.
 */
#include "library.h"

#include <cuda_runtime.h>
#include <cufft.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* values[i * stride], i < n, become their transform; sign -1 forward, 1 inverse. */
static void transform_line(double complex *values, int n, size_t stride, int sign, double complex *scratch)
{
    for (int k = 0; k < n; k++) {
        scratch[k] = 0;
        for (int i = 0; i < n; i++)
            scratch[k] +=
                values[(size_t)i * stride] * cexp(sign * 2 * M_PI * I * (double)((long long)i * k % n) / n);
    }
    for (int k = 0; k < n; k++)
        values[(size_t)k * stride] = scratch[k];
}

/* Of a whole array of `rank` dimensions, the last one contiguous. */
static void transform(double complex *values, int rank, const int *n, int sign)
{
    size_t total = 1, stride = 1;
    int longest = 1;
    for (int d = 0; d < rank; d++) {
        total *= (size_t)n[d];
        longest = n[d] > longest ? n[d] : longest;
    }
    double complex *scratch = calloc((size_t)longest, sizeof *scratch);
    must(scratch == NULL, "calloc");
    for (int d = rank - 1; d >= 0; d--) {
        for (size_t at = 0; at < total; at++)
            if (at / stride % (size_t)n[d] == 0)
                transform_line(values + at, n[d], stride, sign, scratch);
        stride *= (size_t)n[d];
    }
    free(scratch);
}

static const char *name_of(int rank, const int *n, int batch)
{
    static char text[80];
    int length = 0;
    for (int d = 0; d < rank; d++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%d", d > 0 ? " x " : "", n[d]);
    if (batch > 1)
        snprintf(text + length, sizeof text - (size_t)length, ", %d of them", batch);
    return text;
}

/* The reference sums, which loses more digits than a fast transform. */
static double tolerance(enum type t)
{
    return t == C || t == S ? 2e-6 : 1e-13;
}

static void complex_to_complex(enum type t, int rank, int *n, int batch, int sign, bool in_place)
{
    size_t total = 1;
    for (int d = 0; d < rank; d++)
        total *= (size_t)n[d];
    struct array in = array_random(t, total * batch), out = array_zero(t, total * batch);
    double complex *expected = calloc(in.n, sizeof *expected);
    cufftHandle plan;
    must(expected == NULL, "calloc");
    int status = cufftPlanMany(&plan, rank, n, NULL, 1, (int)total, NULL, 1, (int)total,
                               t == C ? CUFFT_C2C : CUFFT_Z2Z, batch);
    struct array *result = in_place ? &in : &out;
    for (size_t i = 0; i < in.n; i++)
        expected[i] = array_get(&in, i);
    for (int b = 0; b < batch; b++)
        transform(expected + total * (size_t)b, rank, n, sign);
    if (status == 0) {
        status = t == C ? cufftExecC2C(plan, in.device, result->device, sign)
                        : cufftExecZ2Z(plan, in.device, result->device, sign);
        MUST(cufftDestroy(plan));
    }
    tried(status, array_error(result, expected, in.n), tolerance(t), "cufft %s %s, %s%s",
          t == C ? "C2C" : "Z2Z", name_of(rank, n, batch), sign < 0 ? "forward" : "inverse",
          in_place ? ", in place" : "");
    array_free(&in), array_free(&out), free(expected);
}

/* Real to complex, which has the first half of the last dimension, and back. */
static void real_to_complex(enum type t, int rank, int *n, int batch)
{
    size_t total = 1, half = 1;
    for (int d = 0; d < rank; d++) {
        total *= (size_t)n[d];
        half *= (size_t)(d == rank - 1 ? n[d] / 2 + 1 : n[d]);
    }
    const size_t row = (size_t)n[rank - 1], half_row = row / 2 + 1;
    enum type other = t == S ? C : Z;
    struct array in = array_random(t, total * batch), out = array_zero(other, half * batch),
                 back = array_zero(t, total * batch);
    double complex *full = calloc(in.n, sizeof *full), *expected = calloc(out.n, sizeof *expected),
                   *original = calloc(in.n, sizeof *original);
    must(full == NULL || expected == NULL || original == NULL, "calloc");
    for (size_t i = 0; i < in.n; i++) {
        full[i] = array_get(&in, i);
        original[i] = full[i] * (double)total; /* cuFFT does not divide */
    }
    for (int b = 0; b < batch; b++) {
        transform(full + total * (size_t)b, rank, n, -1);
        for (size_t i = 0; i < half; i++)
            expected[half * (size_t)b + i] = full[total * (size_t)b + i / half_row * row + i % half_row];
    }
    cufftHandle plan;
    int status = cufftPlanMany(&plan, rank, n, NULL, 1, 0, NULL, 1, 0, t == S ? CUFFT_R2C : CUFFT_D2Z, batch);
    if (status == 0) {
        status =
            t == S ? cufftExecR2C(plan, in.device, out.device) : cufftExecD2Z(plan, in.device, out.device);
        MUST(cufftDestroy(plan));
    }
    tried(status, array_error(&out, expected, out.n), tolerance(t), "cufft %s %s", t == S ? "R2C" : "D2Z",
          name_of(rank, n, batch));
    for (size_t i = 0; i < out.n; i++)
        array_set(&out, i, expected[i]);
    array_push(&out);
    status = cufftPlanMany(&plan, rank, n, NULL, 1, 0, NULL, 1, 0, t == S ? CUFFT_C2R : CUFFT_Z2D, batch);
    if (status == 0) {
        status = t == S ? cufftExecC2R(plan, out.device, back.device)
                        : cufftExecZ2D(plan, out.device, back.device);
        MUST(cufftDestroy(plan));
    }
    tried(status, array_error(&back, original, back.n), tolerance(t), "cufft %s %s", t == S ? "C2R" : "Z2D",
          name_of(rank, n, batch));
    array_free(&in), array_free(&out), array_free(&back), free(full), free(expected), free(original);
}

/* Columns of a matrix: the elements of a transform lie `batch` apart. */
static void strided(int n, int batch)
{
    struct array a = array_random(C, (size_t)n * batch);
    double complex *expected = calloc(a.n, sizeof *expected), *scratch = calloc((size_t)n, sizeof *scratch);
    cufftHandle plan;
    must(expected == NULL || scratch == NULL, "calloc");
    for (size_t i = 0; i < a.n; i++)
        expected[i] = array_get(&a, i);
    for (int b = 0; b < batch; b++)
        transform_line(expected + b, n, (size_t)batch, -1, scratch);
    int status = cufftPlanMany(&plan, 1, &n, &n, batch, 1, &n, batch, 1, CUFFT_C2C, batch);
    if (status == 0) {
        status = cufftExecC2C(plan, a.device, a.device, CUFFT_FORWARD);
        MUST(cufftDestroy(plan));
    }
    tried(status, array_error(&a, expected, a.n), tolerance(C), "cufft C2C %d, columns of %d", n, batch);
    array_free(&a), free(expected), free(scratch);
}

int main(int argc, char **argv)
{
    /* powers of the small primes, a prime above them (Bluestein's way), large ones that take several kernels */
    static const int lengths[] = {1,   2,   3,   8,   16,   60,   64,   77,   100,
                                  127, 210, 256, 625, 1000, 1024, 2187, 4096, 7919};
    static const int heavy = 16384;
    if (wanted(argc, argv, "1d"))
        for (enum type t = C; t <= Z; t++)
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                int n = lengths[i];
                complex_to_complex(t, 1, &n, n < 2000 ? 3 : 1, CUFFT_FORWARD, false);
                if (n < 2000)
                    complex_to_complex(t, 1, &n, 1, CUFFT_INVERSE, true);
            }
    if (wanted(argc, argv, "large"))
        for (enum type t = C; t <= Z; t++)
            complex_to_complex(t, 1, (int[]){heavy}, 1, CUFFT_FORWARD, true);
    if (wanted(argc, argv, "real"))
        for (enum type t = S; t <= D; t++)
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
                if (lengths[i] > 1)
                    real_to_complex(t, 1, (int[]){lengths[i]}, lengths[i] < 2000 ? 2 : 1);
    if (wanted(argc, argv, "2d"))
        for (int wide = 0; wide < 2; wide++) {
            static int sizes[][2] = {{8, 8}, {64, 64}, {32, 100}, {45, 128}, {17, 31}};
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                complex_to_complex(wide ? Z : C, 2, sizes[i], 1, CUFFT_FORWARD, true);
                complex_to_complex(wide ? Z : C, 2, sizes[i], 2, CUFFT_INVERSE, false);
                real_to_complex(wide ? D : S, 2, sizes[i], 1);
            }
        }
    if (wanted(argc, argv, "3d"))
        for (int wide = 0; wide < 2; wide++) {
            static int size[3] = {8, 12, 16};
            complex_to_complex(wide ? Z : C, 3, size, 1, CUFFT_FORWARD, false);
            real_to_complex(wide ? D : S, 3, size, 2);
        }
    if (wanted(argc, argv, "strided")) {
        strided(64, 20);
        strided(90, 7);
    }
    return verdict();
}
