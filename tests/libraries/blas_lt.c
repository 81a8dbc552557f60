/*
 * blas_lt.c - cuBLASLt: matrix products with the algorithms that its heuristic proposes first, in several types, with
 * bias and activation behind them.
 */
#include "library.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>

static cublasLtHandle_t handle;

static cudaDataType_t data_type(enum type t)
{
    return t == S ? CUDA_R_32F : t == D ? CUDA_R_64F : t == H ? CUDA_R_16F : CUDA_R_16BF;
}

static const char *const epilogue_names[] = {"", ", bias", ", bias and relu", ", gelu"};

static double activate(int epilogue, double x)
{
    if (epilogue == 2)
        return fmax(x, 0);
    if (epilogue == 3) /* by tanh, as cuBLASLt documents it */
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

static void matmul(enum type t, cublasComputeType_t compute, double tolerance, bool transposed, int epilogue,
                   int m, int n, int k)
{
    static const cublasLtEpilogue_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                   CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU};
    struct array a = array_random(t, (size_t)m * k), b = array_random(t, (size_t)k * n),
                 c = array_zero(t, (size_t)m * n), bias = array_random(t, (size_t)m);
    double complex *expected = calloc(c.n, sizeof *expected);
    const cudaDataType_t type = data_type(t), scale = t == D ? CUDA_R_64F : CUDA_R_32F;
    const float one = 0.5f, zero = 0;
    const double wide_one = 0.5, wide_zero = 0;
    size_t room = 4u << 20;
    void *workspace;
    must(expected == NULL, "calloc");
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += creal(array_get(&a, (size_t)(transposed ? l + i * k : i + l * m))) *
                       creal(array_get(&b, (size_t)(l + j * k)));
            sum = 0.5 * sum + (epilogue == 1 || epilogue == 2 ? creal(array_get(&bias, (size_t)i)) : 0);
            expected[i + j * m] = activate(epilogue, sum);
        }
    MUST(cudaMalloc(&workspace, room));
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int count = 0;
    MUST(cublasLtMatmulDescCreate(&operation, compute, scale));
    MUST(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
    MUST(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[epilogue],
                                        sizeof epilogues[0]));
    if (epilogue == 1 || epilogue == 2)
        MUST(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.device,
                                            sizeof bias.device));
    MUST(cublasLtMatrixLayoutCreate(&layout_a, type, (uint64_t)(transposed ? k : m),
                                    (uint64_t)(transposed ? m : k), transposed ? k : m));
    MUST(cublasLtMatrixLayoutCreate(&layout_b, type, (uint64_t)k, (uint64_t)n, k));
    MUST(cublasLtMatrixLayoutCreate(&layout_c, type, (uint64_t)m, (uint64_t)n, m));
    MUST(cublasLtMatmulPreferenceCreate(&preference));
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                              sizeof room));
    int status = cublasLtMatmulAlgoGetHeuristic(handle, operation, layout_a, layout_b, layout_c, layout_c,
                                                preference, 1, &found, &count);
    if (status == 0)
        status = count < 1
                     ? -1
                     : (int)cublasLtMatmul(handle, operation, t == D ? (const void *)&wide_one : &one,
                                           a.device, layout_a, b.device, layout_b,
                                           t == D ? (const void *)&wide_zero : &zero, c.device, layout_c,
                                           c.device, layout_c, &found.algo, workspace, room, NULL);
    tried(status, array_error(&c, expected, c.n), tolerance, "cublasLt %s%s %s %d x %d x %d%s",
          t == S   ? "single"
          : t == D ? "double"
          : t == H ? "half"
                   : "bfloat",
          compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? " by tf32" : "", transposed ? "tn" : "nn", m, n, k,
          epilogue_names[epilogue]);
    MUST(cublasLtMatmulPreferenceDestroy(preference));
    MUST(cublasLtMatrixLayoutDestroy(layout_a));
    MUST(cublasLtMatrixLayoutDestroy(layout_b));
    MUST(cublasLtMatrixLayoutDestroy(layout_c));
    MUST(cublasLtMatmulDescDestroy(operation));
    MUST(cudaFree(workspace));
    array_free(&a), array_free(&b), array_free(&c), array_free(&bias), free(expected);
}

int main(int argc, char **argv)
{
    static const int sizes[][3] = {{64, 48, 80}, {130, 66, 34}};
    MUST(cublasLtCreate(&handle));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int transposed = 0; transposed < 2; transposed++)
            for (int epilogue = 0; epilogue < 4; epilogue++) {
                const int m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
                if (wanted(argc, argv, "single"))
                    matmul(S, CUBLAS_COMPUTE_32F, 1e-5, transposed, epilogue, m, n, k);
                if (wanted(argc, argv, "tf32"))
                    matmul(S, CUBLAS_COMPUTE_32F_FAST_TF32, 2e-3, transposed, epilogue, m, n, k);
                if (wanted(argc, argv, "double") && epilogue == 0)
                    matmul(D, CUBLAS_COMPUTE_64F, 1e-13, transposed, epilogue, m, n, k);
                if (wanted(argc, argv, "half"))
                    matmul(H, CUBLAS_COMPUTE_32F, 4e-3, transposed, epilogue, m, n, k);
                if (wanted(argc, argv, "bfloat"))
                    matmul(B, CUBLAS_COMPUTE_32F, 2e-2, transposed, epilogue, m, n, k);
            }
    MUST(cublasLtDestroy(handle));
    return verdict();
}
