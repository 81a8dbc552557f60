/*
 * blas.c - cuBLAS: the three levels in four types, mixed precision and batches, against loops in double precision.
 */
#include "library.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static cublasHandle_t handle;

/* Scalars in the type of a call. */
union scalar {
    float s;
    double d;
    float complex c;
    double complex z;
};

static union scalar scalar(enum type type, double complex value)
{
    union scalar x = {0};
    if (type == S)
        x.s = (float)creal(value);
    else if (type == D)
        x.d = creal(value);
    else if (type == C)
        x.c = (float complex)value;
    else
        x.z = value;
    return x;
}

static double complex scalar_value(enum type type, union scalar x)
{
    return type == S ? x.s : type == D ? x.d : type == C ? x.c : x.z;
}

static double complex *copy_of(const struct array *a)
{
    double complex *copy = calloc(a->n + 1, sizeof *copy);
    must(copy == NULL, "calloc");
    for (size_t i = 0; i < a->n; i++)
        copy[i] = array_get(a, i);
    return copy;
}

/* The imaginary part counts for complex types only. */
static double complex number(enum type type, double re, double im)
{
    return type_is_complex(type) ? re + im * I : re;
}

/* Calls cublas<letter>NAME with the arguments cast to the type. */
#define CALL(type, NAME, ...)                                                                                \
    ((type) == S   ? cublasS##NAME(handle, ARGS(float, __VA_ARGS__))                                         \
     : (type) == D ? cublasD##NAME(handle, ARGS(double, __VA_ARGS__))                                        \
     : (type) == C ? cublasC##NAME(handle, ARGS(cuComplex, __VA_ARGS__))                                     \
                   : cublasZ##NAME(handle, ARGS(cuDoubleComplex, __VA_ARGS__)))
#define ARGS(T, ...) __VA_ARGS__

/* --- level 1 --- */

static void level1(enum type t, int n, int incx, int incy)
{
    struct array x = array_random(t, (size_t)(1 + (n - 1) * incx)),
                 y = array_random(t, (size_t)(1 + (n - 1) * incy));
    double complex *rx = copy_of(&x), *ry = copy_of(&y), alpha = number(t, 1.5, -0.5), sum = 0, conj_sum = 0;
    union scalar a = scalar(t, alpha), result = {0};
    const char letter = type_letter(t);
    double norm = 0, absolute = 0, largest = -1, least = INFINITY, real;
    int at_most = 0, at_least = 0, index = 0, status;
    for (int i = 0; i < n; i++) {
        double complex vx = rx[i * incx], vy = ry[i * incy];
        double size = fabs(creal(vx)) + fabs(cimag(vx));
        sum += vx * vy;
        conj_sum += conj(vx) * vy;
        norm += creal(vx) * creal(vx) + cimag(vx) * cimag(vx);
        absolute += size;
        if (size > largest)
            largest = size, at_most = i + 1;
        if (size < least)
            least = size, at_least = i + 1;
    }
    const double tolerance = type_tolerance(t);
#define REDUCTION(name, call, expected, got)                                                                 \
    status = call;                                                                                           \
    MUST(cudaDeviceSynchronize());                                                                           \
    tried(status, cabs((double complex)(got) - (expected)) / fmax(1, absolute), tolerance,                   \
          "cublas %c%s n %d strides %d %d", letter, name, n, incx, incy)
    void *dx = x.device, *dy = y.device;
    if (type_is_complex(t)) {
        status = t == C ? cublasCdotu(handle, n, dx, incx, dy, incy, (cuComplex *)&result)
                        : cublasZdotu(handle, n, dx, incx, dy, incy, (cuDoubleComplex *)&result);
        REDUCTION("dotu", status, sum, scalar_value(t, result));
        status = t == C ? cublasCdotc(handle, n, dx, incx, dy, incy, (cuComplex *)&result)
                        : cublasZdotc(handle, n, dx, incx, dy, incy, (cuDoubleComplex *)&result);
        REDUCTION("dotc", status, conj_sum, scalar_value(t, result));
    } else {
        status = t == S ? cublasSdot(handle, n, dx, incx, dy, incy, &result.s)
                        : cublasDdot(handle, n, dx, incx, dy, incy, &result.d);
        REDUCTION("dot", status, sum, scalar_value(t, result));
    }
    union scalar r = {0};
#define NORM(name, expected)                                                                                 \
    status = t == S   ? cublasS##name(handle, n, dx, incx, &r.s)                                             \
             : t == D ? cublasD##name(handle, n, dx, incx, &r.d)                                             \
             : t == C ? cublasSc##name(handle, n, dx, incx, &r.s)                                            \
                      : cublasDz##name(handle, n, dx, incx, &r.d);                                           \
    real = t == S || t == C ? (double)r.s : r.d;                                                             \
    REDUCTION(#name, status, expected, real)
    NORM(nrm2, sqrt(norm));
    NORM(asum, absolute);
#define INDEX(name, expected)                                                                                \
    status = t == S   ? cublasIs##name(handle, n, dx, incx, &index)                                          \
             : t == D ? cublasId##name(handle, n, dx, incx, &index)                                          \
             : t == C ? cublasIc##name(handle, n, dx, incx, &index)                                          \
                      : cublasIz##name(handle, n, dx, incx, &index);                                         \
    REDUCTION("i" #name, status, expected, index)
    INDEX(amax, at_most);
    INDEX(amin, at_least);

    status = CALL(t, axpy, n, (void *)&a, dx, incx, dy, incy);
    for (int i = 0; i < n; i++)
        ry[i * incy] += alpha * rx[i * incx];
    tried(status, array_error(&y, ry, y.n), tolerance, "cublas %caxpy n %d strides %d %d", letter, n, incx,
          incy);
    status = CALL(t, scal, n, (void *)&a, dx, incx);
    for (int i = 0; i < n; i++)
        rx[i * incx] *= alpha;
    tried(status, array_error(&x, rx, x.n), tolerance, "cublas %cscal n %d stride %d", letter, n, incx);
    status = CALL(t, swap, n, dx, incx, dy, incy);
    for (int i = 0; i < n; i++) {
        double complex swapped = rx[i * incx];
        rx[i * incx] = ry[i * incy];
        ry[i * incy] = swapped;
    }
    tried(status, array_error(&x, rx, x.n) + array_error(&y, ry, y.n), 2 * tolerance,
          "cublas %cswap n %d strides %d %d", letter, n, incx, incy);
    status = t == S   ? cublasSrot(handle, n, dx, incx, dy, incy, &(float){0.6f}, &(float){0.8f})
             : t == D ? cublasDrot(handle, n, dx, incx, dy, incy, &(double){0.6}, &(double){0.8})
             : t == C ? cublasCsrot(handle, n, dx, incx, dy, incy, &(float){0.6f}, &(float){0.8f})
                      : cublasZdrot(handle, n, dx, incx, dy, incy, &(double){0.6}, &(double){0.8});
    for (int i = 0; i < n; i++) {
        double complex vx = rx[i * incx], vy = ry[i * incy];
        rx[i * incx] = 0.6 * vx + 0.8 * vy;
        ry[i * incy] = 0.6 * vy - 0.8 * vx;
    }
    tried(status, array_error(&x, rx, x.n) + array_error(&y, ry, y.n), 4 * tolerance,
          "cublas %crot n %d strides %d %d", letter, n, incx, incy);
    status = CALL(t, copy, n, dx, incx, dy, incy);
    for (int i = 0; i < n; i++)
        ry[i * incy] = rx[i * incx];
    tried(status, array_error(&y, ry, y.n), 4 * tolerance, "cublas %ccopy n %d strides %d %d", letter, n,
          incx, incy);
    array_free(&x), array_free(&y), free(rx), free(ry);
}

/* Results and scalars that stay on the device. */
static void device_pointers(void)
{
    const int n = 500;
    struct array x = array_random(S, n), y = array_random(S, n), scalars = array_zero(S, 2);
    double complex *rx = copy_of(&x), *ry = copy_of(&y), expected[2] = {2, 0};
    array_set(&scalars, 0, 2);
    array_push(&scalars);
    float *s = scalars.device;
    MUST(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    int status = cublasSaxpy(handle, n, s, x.device, 1, y.device, 1);
    if (status == 0)
        status = cublasSdot(handle, n, x.device, 1, y.device, 1, s + 1);
    MUST(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    for (int i = 0; i < n; i++)
        expected[1] += rx[i] * (ry[i] + 2 * rx[i]);
    tried(status, array_error(&scalars, expected, 2), 1e-5, "cublas saxpy, sdot with scalars on the device");
    array_free(&x), array_free(&y), array_free(&scalars), free(rx), free(ry);
}

/* --- references for matrices, by columns --- */

static double complex element(const double complex *a, int lda, cublasOperation_t op, int i, int j)
{
    double complex value = op == CUBLAS_OP_N ? a[i + (size_t)j * lda] : a[j + (size_t)i * lda];
    return op == CUBLAS_OP_C ? conj(value) : value;
}

static void reference_gemm(cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k,
                           double complex alpha, const double complex *a, int lda, const double complex *b,
                           int ldb, double complex beta, double complex *c, int ldc)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double complex sum = 0;
            for (int l = 0; l < k; l++)
                sum += element(a, lda, opa, i, l) * element(b, ldb, opb, l, j);
            c[i + (size_t)j * ldc] = alpha * sum + beta * c[i + (size_t)j * ldc];
        }
}

static const char *const op_names[] = {"n", "t", "c"};

/* --- level 2 --- */

static void level2(enum type t, int m, int n)
{
    const int lda = m + 3;
    const double tolerance = type_tolerance(t);
    const char letter = type_letter(t);
    double complex alpha = number(t, 1.5, 0.25), beta = number(t, -0.5, 1);
    union scalar sa = scalar(t, alpha), sb = scalar(t, beta);
    struct array a = array_random(t, (size_t)lda * n);
    double complex *ra = copy_of(&a);
    int status;
    for (int op = 0; op < (type_is_complex(t) ? 3 : 2); op++) {
        int rows = op == 0 ? m : n, inner = op == 0 ? n : m;
        struct array x = array_random(t, (size_t)inner * 2), y = array_random(t, (size_t)rows);
        double complex *rx = copy_of(&x), *ry = copy_of(&y);
        status = CALL(t, gemv, (cublasOperation_t)op, m, n, (void *)&sa, a.device, lda, x.device, 2,
                      (void *)&sb, y.device, 1);
        for (int i = 0; i < rows; i++) {
            double complex sum = 0;
            for (int l = 0; l < inner; l++)
                sum += element(ra, lda, (cublasOperation_t)op, i, l) * rx[2 * l];
            ry[i] = alpha * sum + beta * ry[i];
        }
        tried(status, array_error(&y, ry, y.n), tolerance, "cublas %cgemv %s %d x %d", letter, op_names[op],
              m, n);
        array_free(&x), array_free(&y), free(rx), free(ry);
    }
    {
        struct array x = array_random(t, (size_t)m), y = array_random(t, (size_t)n);
        double complex *rx = copy_of(&x), *ry = copy_of(&y);
        void *dx = x.device, *dy = y.device, *da = a.device;
        if (t == S)
            status = cublasSger(handle, m, n, &sa.s, dx, 1, dy, 1, da, lda);
        else if (t == D)
            status = cublasDger(handle, m, n, &sa.d, dx, 1, dy, 1, da, lda);
        else if (t == C)
            status = cublasCgerc(handle, m, n, (void *)&sa, dx, 1, dy, 1, da, lda);
        else
            status = cublasZgerc(handle, m, n, (void *)&sa, dx, 1, dy, 1, da, lda);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++)
                ra[i + j * lda] += alpha * rx[i] * conj(ry[j]);
        tried(status, array_error(&a, ra, a.n), tolerance, "cublas %cger %d x %d", letter, m, n);
        array_free(&x), array_free(&y), free(rx), free(ry);
    }
    array_free(&a), free(ra);
}

/* Triangular, symmetric and banded matrices of n by n. */
static void level2_square(enum type t, int n)
{
    const double tolerance = type_tolerance(t);
    const char letter = type_letter(t);
    double complex alpha = number(t, 1.5, 0.25), beta = number(t, -0.5, 1);
    union scalar sa = scalar(t, alpha), sb = scalar(t, beta);
    struct array a = array_random(t, (size_t)n * n), x = array_random(t, (size_t)n),
                 y = array_random(t, (size_t)n);
    for (int i = 0; i < n; i++)
        array_set(&a, (size_t)i * n + (size_t)i, 4 + n / 2); /* well conditioned */
    array_push(&a);
    double complex *ra = copy_of(&a), *rx = copy_of(&x), *ry = copy_of(&y),
                   *solved = calloc((size_t)n, sizeof *solved);
    int status;
    for (int upper = 0; upper < 2; upper++)
        for (int op = 0; op < (type_is_complex(t) ? 3 : 2); op++) {
            cublasFillMode_t fill = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
            status =
                CALL(t, trmv, fill, (cublasOperation_t)op, CUBLAS_DIAG_NON_UNIT, n, a.device, n, x.device, 1);
            for (int i = 0; i < n; i++) {
                solved[i] = 0;
                for (int l = 0; l < n; l++)
                    if ((op == 0) == (upper != 0) ? l >= i : l <= i)
                        solved[i] += element(ra, n, (cublasOperation_t)op, i, l) * rx[l];
            }
            tried(status, array_error(&x, solved, x.n), tolerance, "cublas %ctrmv %s %s %d", letter,
                  upper ? "upper" : "lower", op_names[op], n);
            for (int i = 0; i < n; i++)
                array_set(&x, (size_t)i, solved[i]);
            array_push(&x);
            status =
                CALL(t, trsv, fill, (cublasOperation_t)op, CUBLAS_DIAG_NON_UNIT, n, a.device, n, x.device, 1);
            tried(status, array_error(&x, rx, x.n), 10 * tolerance, "cublas %ctrsv %s %s %d", letter,
                  upper ? "upper" : "lower", op_names[op], n);
            for (int i = 0; i < n; i++)
                array_set(&x, (size_t)i, rx[i]);
            array_push(&x);
        }
    void *da = a.device, *dx = x.device, *dy = y.device;
    if (t == S)
        status = cublasSsymv(handle, CUBLAS_FILL_MODE_LOWER, n, &sa.s, da, n, dx, 1, &sb.s, dy, 1);
    else if (t == D)
        status = cublasDsymv(handle, CUBLAS_FILL_MODE_LOWER, n, &sa.d, da, n, dx, 1, &sb.d, dy, 1);
    else if (t == C)
        status =
            cublasChemv(handle, CUBLAS_FILL_MODE_LOWER, n, (void *)&sa, da, n, dx, 1, (void *)&sb, dy, 1);
    else
        status =
            cublasZhemv(handle, CUBLAS_FILL_MODE_LOWER, n, (void *)&sa, da, n, dx, 1, (void *)&sb, dy, 1);
    for (int i = 0; i < n; i++) {
        double complex sum = 0;
        for (int l = 0; l < n; l++)
            sum += (l <= i ? ra[i + l * n] : conj(ra[l + i * n])) * rx[l];
        ry[i] = alpha * sum + beta * ry[i];
    }
    tried(status, array_error(&y, ry, y.n), tolerance, "cublas %c%s %d", letter,
          type_is_complex(t) ? "hemv" : "symv", n);
    if (t == S)
        status = cublasSsyr(handle, CUBLAS_FILL_MODE_UPPER, n, &sa.s, dx, 1, da, n);
    else if (t == D)
        status = cublasDsyr(handle, CUBLAS_FILL_MODE_UPPER, n, &sa.d, dx, 1, da, n);
    else if (t == C)
        status = cublasCher(handle, CUBLAS_FILL_MODE_UPPER, n, &(float){1.5f}, dx, 1, da, n);
    else
        status = cublasZher(handle, CUBLAS_FILL_MODE_UPPER, n, &(double){1.5}, dx, 1, da, n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++)
            ra[i + j * n] += 1.5 * rx[i] * conj(rx[j]);
    tried(status, array_error(&a, ra, a.n), tolerance, "cublas %c%s %d", letter,
          type_is_complex(t) ? "her" : "syr", n);
    array_free(&a), array_free(&x), array_free(&y), free(ra), free(rx), free(ry), free(solved);

    const int below = 2, above = 3, lda = below + above + 1;
    struct array band = array_random(t, (size_t)lda * n);
    x = array_random(t, (size_t)n), y = array_random(t, (size_t)n);
    double complex *rb = copy_of(&band);
    rx = copy_of(&x), ry = copy_of(&y);
    status = CALL(t, gbmv, CUBLAS_OP_N, n, n, below, above, (void *)&sa, band.device, lda, x.device, 1,
                  (void *)&sb, y.device, 1);
    for (int i = 0; i < n; i++) {
        double complex sum = 0;
        for (int l = i - below; l <= i + above; l++)
            if (l >= 0 && l < n)
                sum += rb[above + i - l + l * lda] * rx[l];
        ry[i] = alpha * sum + beta * ry[i];
    }
    tried(status, array_error(&y, ry, y.n), tolerance, "cublas %cgbmv %d", letter, n);
    array_free(&band), array_free(&x), array_free(&y), free(rb), free(rx), free(ry);
}

/* --- level 3 --- */

static void gemm(enum type t, int opa, int opb, int m, int n, int k)
{
    const int lda = (opa == 0 ? m : k) + 1, ldb = (opb == 0 ? k : n) + 2, ldc = m + 3;
    double complex alpha = number(t, 1.5, 0.25), beta = number(t, -0.5, 1);
    union scalar sa = scalar(t, alpha), sb = scalar(t, beta);
    struct array a = array_random(t, (size_t)lda * (opa == 0 ? k : m)),
                 b = array_random(t, (size_t)ldb * (opb == 0 ? n : k)), c = array_random(t, (size_t)ldc * n);
    double complex *ra = copy_of(&a), *rb = copy_of(&b), *rc = copy_of(&c);
    int status = CALL(t, gemm, (cublasOperation_t)opa, (cublasOperation_t)opb, m, n, k, (void *)&sa, a.device,
                      lda, b.device, ldb, (void *)&sb, c.device, ldc);
    reference_gemm((cublasOperation_t)opa, (cublasOperation_t)opb, m, n, k, alpha, ra, lda, rb, ldb, beta, rc,
                   ldc);
    tried(status, array_error(&c, rc, c.n), type_tolerance(t), "cublas %cgemm %s%s %d x %d x %d",
          type_letter(t), op_names[opa], op_names[opb], m, n, k);
    array_free(&a), array_free(&b), array_free(&c), free(ra), free(rb), free(rc);
}

static void gemm_batched(enum type t, int m, int n, int k, int count)
{
    double complex alpha = number(t, 1.5, 0.25), beta = number(t, -0.5, 1);
    union scalar sa = scalar(t, alpha), sb = scalar(t, beta);
    for (int strided = 0; strided < 2; strided++) {
        const size_t na = (size_t)m * k, nb = (size_t)k * n, nc = (size_t)m * n;
        struct array a = array_random(t, na * count), b = array_random(t, nb * count),
                     c = array_random(t, nc * count);
        double complex *ra = copy_of(&a), *rb = copy_of(&b), *rc = copy_of(&c);
        void **pa = array_pointers(&a, (size_t)count, na), **pb = array_pointers(&b, (size_t)count, nb),
             **pc = array_pointers(&c, (size_t)count, nc);
        int status;
        if (strided)
            status = CALL(t, gemmStridedBatched, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, (void *)&sa, a.device, m,
                          (long long)na, b.device, n, (long long)nb, (void *)&sb, c.device, m, (long long)nc,
                          count);
        else
            status = CALL(t, gemmBatched, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, (void *)&sa, (void *)pa, m,
                          (void *)pb, n, (void *)&sb, (void *)pc, m, count);
        for (int i = 0; i < count; i++)
            reference_gemm(CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, alpha, ra + i * na, m, rb + i * nb, n, beta,
                           rc + i * nc, m);
        tried(status, array_error(&c, rc, c.n), type_tolerance(t),
              "cublas %cgemm%sBatched %d x %d x %d, %d of them", type_letter(t), strided ? "Strided" : "", m,
              n, k, count);
        MUST(cudaFree(pa)), MUST(cudaFree(pb)), MUST(cudaFree(pc));
        array_free(&a), array_free(&b), array_free(&c), free(ra), free(rb), free(rc);
    }
}

static cudaDataType_t data_type(enum type t)
{
    static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_64F,  CUDA_C_32F, CUDA_C_64F,
                                           CUDA_R_16F, CUDA_R_16BF, CUDA_R_8I};
    return types[t];
}

/* Results of half precision are rounded once more than those of the reference. */
static void gemm_mixed(const char *name, enum type in, enum type out, cublasComputeType_t compute, int opa,
                       int opb, int m, int n, int k)
{
    const int lda = opa == 0 ? m : k, ldb = opb == 0 ? k : n;
    struct array a = array_random(in, (size_t)m * k), b = array_random(in, (size_t)k * n),
                 c = array_random(out, (size_t)m * n);
    double complex *ra = copy_of(&a), *rb = copy_of(&b), *rc = copy_of(&c);
    static const float alpha = 2, beta = 1;
    static const unsigned short half_alpha = 0x4000, half_beta = 0x3c00;
    const void *pa = compute == CUBLAS_COMPUTE_16F ? (const void *)&half_alpha : (const void *)&alpha;
    const void *pb = compute == CUBLAS_COMPUTE_16F ? (const void *)&half_beta : (const void *)&beta;
    double tolerance = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 2e-2
                       : compute == CUBLAS_COMPUTE_32F_FAST_16F || compute == CUBLAS_COMPUTE_32F_FAST_TF32
                           ? 2e-3
                           : type_tolerance(out);
    int status = cublasGemmEx(handle, (cublasOperation_t)opa, (cublasOperation_t)opb, m, n, k, pa, a.device,
                              data_type(in), lda, b.device, data_type(in), ldb, pb, c.device, data_type(out),
                              m, compute, CUBLAS_GEMM_DEFAULT);
    reference_gemm((cublasOperation_t)opa, (cublasOperation_t)opb, m, n, k, 2, ra, lda, rb, ldb, 1, rc, m);
    tried(status, array_error(&c, rc, c.n), tolerance, "cublas GemmEx %s %s%s %d x %d x %d", name,
          op_names[opa], op_names[opb], m, n, k);
    array_free(&a), array_free(&b), array_free(&c), free(ra), free(rb), free(rc);
}

/* Symmetric and triangular matrices on the left, m by m. */
static void level3_others(enum type t, int m, int n)
{
    const double tolerance = type_tolerance(t);
    const char letter = type_letter(t);
    double complex alpha = number(t, 1.5, 0.25), beta = number(t, -0.5, 1);
    union scalar sa = scalar(t, alpha), sb = scalar(t, beta);
    struct array a = array_random(t, (size_t)m * m), b = array_random(t, (size_t)m * n),
                 c = array_random(t, (size_t)m * n);
    for (int i = 0; i < m; i++)
        array_set(&a, (size_t)i * m + (size_t)i, 4 + m / 2);
    array_push(&a);
    double complex *ra = copy_of(&a), *rb = copy_of(&b), *rc = copy_of(&c), *full = calloc(a.n, sizeof *full);
    for (int j = 0; j < m; j++)
        for (int i = 0; i < m; i++)
            full[i + j * m] = i >= j ? ra[i + j * m] : ra[j + i * m];
    int status = CALL(t, symm, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, m, n, (void *)&sa, a.device, m,
                      b.device, m, (void *)&sb, c.device, m);
    reference_gemm(CUBLAS_OP_N, CUBLAS_OP_N, m, n, m, alpha, full, m, rb, m, beta, rc, m);
    tried(status, array_error(&c, rc, c.n), tolerance, "cublas %csymm %d x %d", letter, m, n);

    for (int j = 0; j < m; j++)
        for (int i = 0; i < m; i++)
            full[i + j * m] = i >= j ? ra[i + j * m] : 0;
    status = CALL(t, trmm, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n,
                  (void *)&sa, a.device, m, b.device, m, c.device, m);
    reference_gemm(CUBLAS_OP_N, CUBLAS_OP_N, m, n, m, alpha, full, m, rb, m, 0, rc, m);
    tried(status, array_error(&c, rc, c.n), tolerance, "cublas %ctrmm %d x %d", letter, m, n);
    union scalar inverse = scalar(t, 1 / alpha);
    status = CALL(t, trsm, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n,
                  (void *)&inverse, a.device, m, c.device, m);
    tried(status, array_error(&c, rb, b.n), 10 * tolerance, "cublas %ctrsm %d x %d", letter, m, n);

    struct array s = array_random(t, (size_t)m * m);
    double complex *rs = copy_of(&s), *product = calloc(s.n, sizeof *product);
    status = CALL(t, syrk, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, m, n, (void *)&sa, b.device, m, (void *)&sb,
                  s.device, m);
    memcpy(product, rs, s.n * sizeof *product);
    reference_gemm(CUBLAS_OP_N, CUBLAS_OP_T, m, m, n, alpha, rb, m, rb, m, beta, product, m);
    for (int j = 0; j < m; j++)
        for (int i = j; i < m; i++)
            rs[i + j * m] = product[i + j * m];
    tried(status, array_error(&s, rs, s.n), tolerance, "cublas %csyrk %d x %d", letter, m, n);

    struct array d = array_random(t, (size_t)m * n), e = array_zero(t, (size_t)m * n),
                 x = array_random(t, (size_t)n);
    double complex *rd = copy_of(&d), *re = copy_of(&e), *rx = copy_of(&x);
    status = CALL(t, geam, CUBLAS_OP_N, CUBLAS_OP_N, m, n, (void *)&sa, b.device, m, (void *)&sb, d.device, m,
                  e.device, m);
    for (size_t i = 0; i < e.n; i++)
        re[i] = alpha * rb[i] + beta * rd[i];
    tried(status, array_error(&e, re, e.n), tolerance, "cublas %cgeam %d x %d", letter, m, n);
    status = CALL(t, dgmm, CUBLAS_SIDE_RIGHT, m, n, d.device, m, x.device, 1, e.device, m);
    for (size_t i = 0; i < e.n; i++)
        re[i] = rd[i] * rx[i / (size_t)m];
    tried(status, array_error(&e, re, e.n), tolerance, "cublas %cdgmm %d x %d", letter, m, n);
    array_free(&a), array_free(&b), array_free(&c), array_free(&s), array_free(&d), array_free(&e),
        array_free(&x);
    free(ra), free(rb), free(rc), free(full), free(rs), free(product), free(rd), free(re), free(rx);
}

/* Inverts `count` matrices by their factors, and multiplies back. */
static void inverses(enum type t, int n, int count)
{
    struct array a = array_random(t, (size_t)n * n * count), inverse = array_zero(t, a.n);
    int *pivots, *info, status;
    for (int b = 0; b < count; b++)
        for (int i = 0; i < n; i++)
            array_set(&a, (size_t)b * n * n + (size_t)i * n + (size_t)(n - 1 - i), 4 + n); /* needs pivots */
    array_push(&a);
    double complex *ra = copy_of(&a), *product = calloc(a.n, sizeof *product), *rinverse;
    void **pa = array_pointers(&a, (size_t)count, (size_t)n * n),
         **pi = array_pointers(&inverse, (size_t)count, (size_t)n * n);
    MUST(cudaMalloc((void **)&pivots, sizeof(int) * n * count));
    MUST(cudaMalloc((void **)&info, sizeof(int) * count));
    status = CALL(t, getrfBatched, n, (void *)pa, n, pivots, info, count);
    if (status == 0)
        status = CALL(t, getriBatched, n, (void *)pa, n, pivots, (void *)pi, n, info, count);
    MUST(cudaDeviceSynchronize());
    array_fetch(&inverse);
    rinverse = copy_of(&inverse);
    double error = 0;
    for (int b = 0; b < count; b++) {
        size_t at = (size_t)b * n * n;
        reference_gemm(CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, 1, ra + at, n, rinverse + at, n, 0, product + at,
                       n);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++)
                error = fmax(error, cabs(product[at + i + (size_t)j * n] - (i == j)));
    }
    tried(status, error, 10 * type_tolerance(t), "cublas %cgetrfBatched, %cgetriBatched %d, %d of them",
          type_letter(t), type_letter(t), n, count);
    MUST(cudaFree(pa)), MUST(cudaFree(pi)), MUST(cudaFree(pivots)), MUST(cudaFree(info));
    array_free(&a), array_free(&inverse), free(ra), free(product), free(rinverse);
}

/* Solves `count` systems of m equations that n numbers fulfil exactly. */
static void least_squares(enum type t, int m, int n, int count)
{
    struct array a = array_random(t, (size_t)m * n * count), b = array_zero(t, (size_t)m * count);
    double complex *ra = copy_of(&a);
    int info = -1, status;
    for (int i = 0; i < count; i++)
        for (int row = 0; row < m; row++) {
            double complex sum = 0;
            for (int column = 0; column < n; column++)
                sum += ra[((size_t)i * n + column) * m + row] * (column + 1);
            array_set(&b, (size_t)i * m + row, sum);
        }
    array_push(&b);
    void **pa = array_pointers(&a, (size_t)count, (size_t)m * n),
         **pb = array_pointers(&b, (size_t)count, (size_t)m);
    status = CALL(t, gelsBatched, CUBLAS_OP_N, m, n, 1, (void *)pa, m, (void *)pb, m, &info, NULL, count);
    MUST(cudaDeviceSynchronize());
    array_fetch(&b);
    double error = 0;
    for (int i = 0; i < count; i++)
        for (int column = 0; column < n; column++)
            error = fmax(error, cabs(array_get(&b, (size_t)i * m + column) - (column + 1)));
    tried(status ? status : info, error, 1000 * type_tolerance(t), "cublas %cgelsBatched %d x %d, %d of them",
          type_letter(t), m, n, count);
    MUST(cudaFree(pa)), MUST(cudaFree(pb));
    array_free(&a), array_free(&b), free(ra);
}

/* --- a thread that has made no context current and calls nothing but the library --- */

struct product {
    int n, status;
    struct array a, x, y;
};

static void *multiply(void *of)
{
    struct product *p = of;
    const double one = 1, zero = 0;
    p->status = cublasDgemv(handle, CUBLAS_OP_N, p->n, p->n, &one, p->a.device, p->n, p->x.device, 1, &zero,
                            p->y.device, 1);
    return NULL;
}

static void other_thread(int n)
{
    struct product p = {n, 0, array_random(D, (size_t)n * n), array_random(D, n), array_zero(D, n)};
    double complex *ra = copy_of(&p.a), *rx = copy_of(&p.x), *ry = copy_of(&p.y);
    pthread_t thread;
    must(pthread_create(&thread, NULL, multiply, &p), "pthread_create");
    must(pthread_join(thread, NULL), "pthread_join");
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            ry[i] += ra[i + (size_t)j * n] * rx[j];
    tried(p.status, array_error(&p.y, ry, p.y.n), type_tolerance(D), "cublas dgemv by another thread %d x %d",
          n, n);
    array_free(&p.a), array_free(&p.x), array_free(&p.y), free(ra), free(rx), free(ry);
}

int main(int argc, char **argv)
{
    static const int sizes[][3] = {{1, 1, 1},     {5, 7, 3},       {64, 64, 64},
                                   {33, 65, 100}, {128, 128, 128}, {200, 30, 257}};
    MUST(cublasCreate(&handle));
    if (wanted(argc, argv, "threads"))
        other_thread(150); /* before anything of the library has run */
    if (wanted(argc, argv, "level1")) {
        for (enum type t = S; t <= Z; t++) {
            level1(t, 1000, 1, 1);
            level1(t, 77, 3, 2);
        }
        device_pointers();
    }
    if (wanted(argc, argv, "level2"))
        for (enum type t = S; t <= Z; t++) {
            level2(t, 60, 45);
            level2(t, 7, 130);
            level2_square(t, 50);
        }
    if (wanted(argc, argv, "gemm"))
        for (enum type t = S; t <= Z; t++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
                for (int ops = 0; ops < 9; ops++)
                    if (type_is_complex(t) || (ops % 3 < 2 && ops / 3 < 2))
                        gemm(t, ops / 3, ops % 3, sizes[i][0], sizes[i][1], sizes[i][2]);
    if (wanted(argc, argv, "batched"))
        for (enum type t = S; t <= Z; t++) {
            gemm_batched(t, 9, 12, 17, 5);
            gemm_batched(t, 64, 64, 32, 3);
        }
    if (wanted(argc, argv, "mixed"))
        for (int ops = 0; ops < 4; ops++)
            for (int size = 0; size < 2; size++) {
                const int m = size ? 128 : 40, n = size ? 64 : 24, k = size ? 96 : 56;
                gemm_mixed("half in single", H, H, CUBLAS_COMPUTE_32F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("half to single", H, S, CUBLAS_COMPUTE_32F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("half in half", H, H, CUBLAS_COMPUTE_16F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("bfloat in single", B, B, CUBLAS_COMPUTE_32F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("bfloat to single", B, S, CUBLAS_COMPUTE_32F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("single by tf32", S, S, CUBLAS_COMPUTE_32F_FAST_TF32, ops / 2, ops % 2, m, n, k);
                gemm_mixed("single by half", S, S, CUBLAS_COMPUTE_32F_FAST_16F, ops / 2, ops % 2, m, n, k);
                gemm_mixed("single by bfloat", S, S, CUBLAS_COMPUTE_32F_FAST_16BF, ops / 2, ops % 2, m, n, k);
                gemm_mixed("integers to single", I8, S, CUBLAS_COMPUTE_32F, ops / 2, ops % 2, m, n, k);
            }
    if (wanted(argc, argv, "level3"))
        for (enum type t = S; t <= Z; t++) {
            level3_others(t, 40, 30);
            level3_others(t, 130, 70);
        }
    if (wanted(argc, argv, "inverses"))
        for (enum type t = S; t <= Z; t++) {
            inverses(t, 6, 3);
            inverses(t, 33, 3);
            least_squares(t, 5, 3, 4);
            least_squares(t, 40, 17, 2);
        }
    MUST(cublasDestroy(handle));
    return verdict();
}
