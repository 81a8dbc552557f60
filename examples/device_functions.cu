/*
 * What kernels of ordinary C++ are made of: calls that are not inlined, recursion, function pointers, virtual
 * functions, arrays in local memory, bit operations, and the mathematical functions of libdevice, in both
 * precisions, held to the error that CUDA's programming guide states for each.
 */
#include "example.h"
#include <cmath>
#include <vector>

/* ---- recursion and local arrays ---- */

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n)
{
    if (m == 0) {
        return n + 1;
    }
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

/* Solves N queens on a board in local memory. */
__device__ __noinline__ int queens(int *columns, int row, int size)
{
    int solutions = 0;

    if (row == size) {
        return 1;
    }
    for (int column = 0; column < size; column++) {
        bool free = true;

        for (int above = 0; above < row; above++) {
            int distance = columns[above] - column;

            free = free && distance != 0 && distance != row - above && distance != above - row;
        }
        if (free) {
            columns[row] = column;
            solutions += queens(columns, row + 1, size);
        }
    }
    return solutions;
}

__global__ void recurse(unsigned *out)
{
    int columns[8];

    if (threadIdx.x < 4) {
        out[threadIdx.x] = ackermann(2, threadIdx.x + 1);
    } else {
        out[threadIdx.x] = queens(columns, 0, threadIdx.x);
    }
}

/* ---- function pointers and virtual functions ---- */

typedef int (*binary_function)(int, int);

__device__ int add(int a, int b)
{
    return a + b;
}

__device__ int subtract(int a, int b)
{
    return a - b;
}

__device__ int larger(int a, int b)
{
    return a > b ? a : b;
}

__device__ binary_function functions[] = {add, subtract, larger};

struct shape {
    __device__ virtual int area() const = 0;
};

struct square : shape {
    int side;
    __device__ square(int length) : side(length)
    {
    }
    __device__ int area() const override
    {
        return side * side;
    }
};

struct rectangle : shape {
    int width, height;
    __device__ rectangle(int a, int b) : width(a), height(b)
    {
    }
    __device__ int area() const override
    {
        return width * height;
    }
};

__global__ void call_indirectly(int *out, int count)
{
    int i = threadIdx.x;

    if (i < count) {
        square box(i + 1);
        rectangle plane(i, 3);
        const shape *shapes[2] = {&box, &plane};

        out[i] = functions[i % 3](i, 10) * 1000 + shapes[i / 2 % 2]->area();
    }
}

/* ---- bits and whole numbers ---- */

__host__ __device__ static unsigned long long fold(unsigned long long a, unsigned long long b)
{
    return (a ^ b) * 0x9e3779b97f4a7c15ull;
}

__global__ void operate(const unsigned *in, unsigned long long *out, int count)
{
    int i = threadIdx.x;

    if (i < count) {
        unsigned a = in[i], b = in[(i + 1) % count] | 1;
        long long wide = (long long)((unsigned long long)a << 32 | b);
        unsigned long long result = __popc(a);

        result = fold(result, __clz(a));
        result = fold(result, __ffs(b << 3));
        result = fold(result, __brev(a));
        result = fold(result, __popcll(wide));
        result = fold(result, __umulhi(a, b));
        result = fold(result, __byte_perm(a, b, 0x6143));
        result = fold(result, __funnelshift_l(a, b, b % 32));
        result = fold(result, a / b);
        result = fold(result, a % b);
        result = fold(result, (unsigned long long)(wide / (int)b));
        result = fold(result, (unsigned long long)(wide % -7919));
        result = fold(result, (unsigned long long)__mul64hi(wide, wide >> 3));
        result = fold(result, (unsigned)((int)a >> (b % 31)));
        out[i] = result;
    }
}

static unsigned long long operate_on_host(unsigned a, unsigned b)
{
    long long wide = (long long)((unsigned long long)a << 32 | b);
    unsigned reversed = 0, permuted = 0;
    const unsigned char bytes[8] = {
        (unsigned char)a, (unsigned char)(a >> 8), (unsigned char)(a >> 16), (unsigned char)(a >> 24),
        (unsigned char)b, (unsigned char)(b >> 8), (unsigned char)(b >> 16), (unsigned char)(b >> 24)};

    for (int i = 0; i < 32; i++) {
        reversed |= (a >> i & 1) << (31 - i);
    }
    for (int i = 0; i < 4; i++) {
        permuted |= (unsigned)bytes[0x6143 >> (4 * i) & 7] << (8 * i);
    }
    unsigned long long result = __builtin_popcount(a);
    result = fold(result, a ? __builtin_clz(a) : 32);
    result = fold(result, __builtin_ffs((int)(b << 3)));
    result = fold(result, reversed);
    result = fold(result, __builtin_popcountll((unsigned long long)wide));
    result = fold(result, (unsigned)((unsigned long long)a * b >> 32));
    result = fold(result, permuted);
    result = fold(result, b % 32 ? b << (b % 32) | a >> (32 - b % 32) : b);
    result = fold(result, a / b);
    result = fold(result, a % b);
    result = fold(result, (unsigned long long)(wide / (int)b));
    result = fold(result, (unsigned long long)(wide % -7919));
    result = fold(result, (unsigned long long)(long long)((__int128)wide * (wide >> 3) >> 64));
    result = fold(result, (unsigned)((int)a >> (b % 31)));
    return result;
}

/* ---- mathematical functions: name, exact value, lowest and highest x, allowed error in last places ---- */

#define FLOAT_FUNCTIONS(X)                                                                                   \
    X(sqrtf, sqrt(x), 0, 1e6, 0)                                                                             \
    X(rsqrtf, 1 / sqrt(x), 1e-3, 1e6, 2)                                                                     \
    X(cbrtf, cbrt(x), -1e6, 1e6, 1)                                                                          \
    X(sinf, sin(x), -1e4, 1e4, 2)                                                                            \
    X(cosf, cos(x), -1e4, 1e4, 2)                                                                            \
    X(tanf, tan(x), -1e2, 1e2, 4)                                                                            \
    X(asinf, asin(x), -1, 1, 2)                                                                              \
    X(acosf, acos(x), -1, 1, 2)                                                                              \
    X(atanf, atan(x), -1e3, 1e3, 2)                                                                          \
    X(sinhf, sinh(x), -20, 20, 3)                                                                            \
    X(coshf, cosh(x), -20, 20, 2)                                                                            \
    X(tanhf, tanh(x), -5, 5, 2)                                                                              \
    X(expf, exp(x), -80, 80, 2)                                                                              \
    X(exp2f, exp2(x), -100, 100, 2)                                                                          \
    X(exp10f, exp10(x), -30, 30, 2)                                                                          \
    X(expm1f, expm1(x), -10, 10, 1)                                                                          \
    X(logf, log(x), 1e-6, 1e6, 1)                                                                            \
    X(log2f, log2(x), 1e-6, 1e6, 1)                                                                          \
    X(log10f, log10(x), 1e-6, 1e6, 2)                                                                        \
    X(log1pf, log1p(x), -0.9, 1e3, 1)                                                                        \
    X(erff, erf(x), -4, 4, 2)                                                                                \
    X(erfcf, erfc(x), -2, 4, 4)                                                                              \
    X(tgammaf, tgamma(x), 0.1, 20, 5)

#define DOUBLE_FUNCTIONS(X)                                                                                  \
    X(sqrt, sqrtl(x), 0, 1e12, 0)                                                                            \
    X(rsqrt, 1 / sqrtl(x), 1e-6, 1e12, 1)                                                                    \
    X(cbrt, cbrtl(x), -1e12, 1e12, 1)                                                                        \
    X(sin, sinl(x), -1e5, 1e5, 2)                                                                            \
    X(cos, cosl(x), -1e5, 1e5, 2)                                                                            \
    X(tan, tanl(x), -1e2, 1e2, 2)                                                                            \
    X(asin, asinl(x), -1, 1, 2)                                                                              \
    X(acos, acosl(x), -1, 1, 2)                                                                              \
    X(atan, atanl(x), -1e3, 1e3, 2)                                                                          \
    X(sinh, sinhl(x), -100, 100, 2)                                                                          \
    X(cosh, coshl(x), -100, 100, 1)                                                                          \
    X(tanh, tanhl(x), -10, 10, 1)                                                                            \
    X(exp, expl(x), -600, 600, 1)                                                                            \
    X(exp2, exp2l(x), -900, 900, 1)                                                                          \
    X(exp10, exp10l(x), -250, 250, 1)                                                                        \
    X(expm1, expm1l(x), -30, 30, 1)                                                                          \
    X(log, logl(x), 1e-9, 1e12, 1)                                                                           \
    X(log2, log2l(x), 1e-9, 1e12, 1)                                                                         \
    X(log10, log10l(x), 1e-9, 1e12, 1)                                                                       \
    X(log1p, log1pl(x), -0.99, 1e6, 1)                                                                       \
    X(erf, erfl(x), -5, 5, 2)                                                                                \
    X(erfc, erfcl(x), -3, 10, 5)                                                                             \
    X(tgamma, tgammal(x), 0.1, 60, 10)                                                                       \
    X(lgamma, lgammal(x), 3, 1e5, 4)

template <typename number> struct function {
    const char *name;
    number low, high;
    int allowed_error;
    void (*kernel)(const number *, number *, int);
    void (*reference)(number, long double *);
};

#define DEFINE_FLOAT(NAME, REFERENCE, LOW, HIGH, ERROR)                                                      \
    __global__ void kernel_##NAME(const float *in, float *out, int count)                                    \
    {                                                                                                        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
        if (i < count) {                                                                                     \
            out[i] = NAME(in[i]);                                                                            \
        }                                                                                                    \
    }                                                                                                        \
    static void reference_##NAME(float argument, long double *result)                                        \
    {                                                                                                        \
        double x = argument;                                                                                 \
        *result = REFERENCE;                                                                                 \
    }
#define DEFINE_DOUBLE(NAME, REFERENCE, LOW, HIGH, ERROR)                                                     \
    __global__ void kernel_##NAME(const double *in, double *out, int count)                                  \
    {                                                                                                        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
        if (i < count) {                                                                                     \
            out[i] = NAME(in[i]);                                                                            \
        }                                                                                                    \
    }                                                                                                        \
    static void reference_##NAME(double argument, long double *result)                                       \
    {                                                                                                        \
        long double x = argument;                                                                            \
        *result = REFERENCE;                                                                                 \
    }
#define LIST(NAME, REFERENCE, LOW, HIGH, ERROR) {#NAME, LOW, HIGH, ERROR, kernel_##NAME, reference_##NAME},

FLOAT_FUNCTIONS(DEFINE_FLOAT)
DOUBLE_FUNCTIONS(DEFINE_DOUBLE)
static const struct function<float> float_functions[] = {
    FLOAT_FUNCTIONS(LIST)
};
static const struct function<double> double_functions[] = {
    DOUBLE_FUNCTIONS(LIST)
};

/* The distance from the exact value in units of the last place of the nearest number. */
template <typename number> static long double distance(number value, long double exact)
{
    number nearest = (number)exact;
    int exponent;

    if (value == nearest) {
        return 0;
    }
    std::frexp(nearest, &exponent);
    return std::fabs((long double)value - exact) /
           std::ldexp(1.0L, exponent - (sizeof(number) == sizeof(float) ? 24 : 53));
}

template <typename number, size_t functions_count>
static bool try_functions(const struct function<number> (&functions)[functions_count], const char *kind,
                          int count)
{
    std::vector<number> in(count), out(count);
    number *device_in, *device_out;
    int inexact = 0;

    CHECK(cudaMalloc(&device_in, count * sizeof(number)));
    CHECK(cudaMalloc(&device_out, count * sizeof(number)));
    for (const struct function<number> &function : functions) {
        long double worst = 0;
        number worst_at = 0;

        for (int i = 0; i < count; i++) {
            in[i] = function.low + (function.high - function.low) * (number)(example_mix(i) / 4294967296.0);
        }
        CHECK(cudaMemcpy(device_in, in.data(), count * sizeof(number), cudaMemcpyHostToDevice));
        function.kernel<<<(count + 127) / 128, 128>>>(device_in, device_out, count);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(out.data(), device_out, count * sizeof(number), cudaMemcpyDeviceToHost));
        for (int i = 0; i < count; i++) {
            long double exact;

            function.reference(in[i], &exact);
            long double off = distance(out[i], exact);
            if (!(off <= worst)) {
                worst = off;
                worst_at = in[i];
            }
        }
        /* The stated error is that of the nearest number; the exact value may be half a unit further. */
        if (!(worst <= function.allowed_error + 0.5L)) {
            printf("%s(%.17g) is off by %.1Lf units of the last place, %d are allowed\n", function.name,
                   (double)worst_at, worst, function.allowed_error);
            inexact++;
        }
    }
    printf("%zu functions of %s at %d points, %d not exact enough\n", functions_count, kind, count, inexact);
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return inexact == 0;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("device_functions", "[POINTS]", argc, argv);
    int points = example_number(&example, 0, 1, 1 << 24, 2003);
    bool good = true;

    unsigned recursive[9], *device_recursive;
    const unsigned expected_recursive[9] = {5, 7, 9, 11, 2, 10, 4, 40, 92};
    CHECK(cudaMalloc(&device_recursive, sizeof recursive));
    CHECK(cudaMemset(device_recursive, 0, sizeof recursive));
    recurse<<<1, 9>>>(device_recursive);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(recursive, device_recursive, sizeof recursive, cudaMemcpyDeviceToHost));
    printf("recursion:");
    for (unsigned value : recursive) {
        printf(" %u", value);
    }
    printf("\n");
    good = good && memcmp(recursive, expected_recursive, sizeof recursive) == 0;

    constexpr int calls = 24;
    int called[calls], *device_called, wrong = 0;
    CHECK(cudaMalloc(&device_called, sizeof called));
    call_indirectly<<<1, 32>>>(device_called, calls);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(called, device_called, sizeof called, cudaMemcpyDeviceToHost));
    for (int i = 0; i < calls; i++) {
        int value = i % 3 == 0 ? i + 10 : i % 3 == 1 ? i - 10 : i > 10 ? i : 10;
        int area = i / 2 % 2 ? i * 3 : (i + 1) * (i + 1);

        wrong += called[i] != value * 1000 + area;
    }
    printf("%d indirect calls, %d wrong\n", calls, wrong);
    good = good && wrong == 0;

    constexpr int words = 256;
    unsigned in[words], *device_in;
    unsigned long long folded[words], *device_folded;
    CHECK(cudaMalloc(&device_in, sizeof in));
    CHECK(cudaMalloc(&device_folded, sizeof folded));
    for (int i = 0; i < words; i++) {
        in[i] = example_mix(i) >> (i % 32);
    }
    CHECK(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice));
    operate<<<1, words>>>(device_in, device_folded, words);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(folded, device_folded, sizeof folded, cudaMemcpyDeviceToHost));
    wrong = 0;
    for (int i = 0; i < words; i++) {
        wrong += folded[i] != operate_on_host(in[i], in[(i + 1) % words] | 1);
    }
    printf("%d words of bit operations, %d wrong\n", words, wrong);
    good = good && wrong == 0;

    good = try_functions(float_functions, "float", points) && good;
    good = try_functions(double_functions, "double", points) && good;

    CHECK(cudaFree(device_recursive));
    CHECK(cudaFree(device_called));
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_folded));
    return example_end(&example, good);
}
