// wgmma: four warps multiply matrices of which a (or registers) and b are in shared memory, in each layout that a descriptor can name.
#include "check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

enum { M = 64, WARPGROUP = 128, ROOM = 1 << 15, AT = 1024 };
enum layout { PLAIN, ROWS_OF_128, ROWS_OF_64, ROWS_OF_32 }; // as descriptors number them

struct eight_bits { // of .b1
    unsigned char bits;
};

// Elements are small numbers, which every type has exactly.
__host__ __device__ int a_at(int row, int k)
{
    return (row * 7 + k * 3) % 5 - 2;
}
__host__ __device__ int b_at(int column, int k)
{
    return (column * 5 + k) % 7 - 3;
}

__device__ void store(half *to, int value)
{
    *to = __int2half_rn(value);
}
__device__ void store(__nv_bfloat16 *to, int value)
{
    *to = __int2bfloat16_rn(value);
}
__device__ void store(float *to, int value)
{
    *to = (float)value;
}
__device__ void store(__nv_fp8_e4m3 *to, int value)
{
    *to = __nv_fp8_e4m3((float)value);
}
__device__ void store(__nv_fp8_e5m2 *to, int value)
{
    *to = __nv_fp8_e5m2((float)value);
}
__device__ void store(signed char *to, int value)
{
    *to = (signed char)value;
}
__device__ void store(eight_bits *to, int value)
{
    to->bits = (unsigned char)value;
}
__device__ void store(unsigned char *to, int value)
{
    *to = (unsigned char)(value + 3);
}

// A matrix in shared memory: a row of its pattern has `across` pieces of 16 bytes; strides in bytes.
struct place {
    layout how;
    bool transposed;
    int across, leading, stride;
    __host__ __device__ place(layout how, bool transposed, int rows)
        : how(how), transposed(transposed), across(how == PLAIN ? 1 : 16 >> how)
    {
        const int block = 128 * across; // eight rows of the pattern
        if (!transposed) {
            leading = how == PLAIN ? (rows / 8 + 1) * 128 : 16;
            stride = how == PLAIN ? 128 : block;
        } else if (how == PLAIN) {
            leading = (rows / 8) * 128; // from eight values of k to the next eight
            stride = 128;               // from eight rows to the next eight
        } else {
            leading = 2 * block;
            stride = block;
        }
    }
    // `size`: of an element, in bytes
    __device__ int offset(int row, int k, int size) const
    {
        const int byte = k * size;
        int at;
        if (!transposed)
            at = row / 8 * stride + row % 8 * 16 * across + byte / 16 * (how == PLAIN ? leading : 16) +
                 byte % 16;
        else if (how == PLAIN)
            at = row % 8 * 2 + row / 8 * stride + k % 8 * 16 + k / 8 * leading;
        else
            at = row % 8 * 2 + row / 8 % across * 16 + row / 8 / across * leading + k % 8 * 16 * across +
                 k / 8 * stride;
        return at ^ (at >> 7 & (across - 1)) << 4;
    }
    __device__ unsigned long long descriptor(const void *begin) const
    {
        const unsigned address = (unsigned)__cvta_generic_to_shared(begin);
        return (unsigned long long)(address >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
               (unsigned long long)(stride >> 4) << 32 | (unsigned long long)how << 62;
    }
};

#define SUMS_36                                                                                              \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                      \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}"
#define SUMS_12 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}"
#define SUMS_18 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17}"
#define BEGIN(keep)                                                                                          \
    "{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned."
#define END "; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"

// The operands behind 36 and behind 12 sums.
#define BEHIND_36(n) BEHIND_36_##n
#define BEHIND_36_0  "%36"
#define BEHIND_36_1  "%37"
#define BEHIND_36_2  "%38"
#define BEHIND_12(n) BEHIND_12_##n
#define BEHIND_12_0  "%12"
#define BEHIND_12_1  "%13"
#define BEHIND_12_2  "%14"
#define FLOATS_36                                                                                            \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),          \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),             \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),           \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),           \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define KIND(name, type, count, sums, outputs, behind, types, tail)                                          \
    struct name {                                                                                            \
        static constexpr int N = 2 * (count), COUNT = count;                                                 \
        using sum = type;                                                                                    \
        static __device__ void multiply(type *d, unsigned long long a, unsigned long long b, int keep)       \
        {                                                                                                    \
            asm volatile(BEGIN(behind(2)) types sums ", " behind(0) ", " behind(1) ", p" tail END:outputs    \
                         : "l"(a), "l"(b), "r"(keep)                                                         \
                         : "memory");                                                                        \
        }                                                                                                    \
    };
#define INTEGERS_12                                                                                          \
    "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),          \
        "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11])
#define FLOATS(name, types, tail)   KIND(name, float, 36, SUMS_36, FLOATS_36, BEHIND_36, types, tail)
#define INTEGERS(name, types, tail) KIND(name, int, 12, SUMS_12, INTEGERS_12, BEHIND_12, types, tail)

FLOATS(halves, "m64n72k16.f32.f16.f16 ", ", 1, 1, 0, 0")
FLOATS(halves_a_across, "m64n72k16.f32.f16.f16 ", ", 1, 1, 1, 0")
FLOATS(halves_b_across, "m64n72k16.f32.f16.f16 ", ", 1, -1, 0, 1")
FLOATS(brains, "m64n72k16.f32.bf16.bf16 ", ", -1, -1, 1, 1")
FLOATS(words, "m64n72k8.f32.tf32.tf32 ", ", 1, -1")
FLOATS(eights, "m64n72k32.f32.e4m3.e5m2 ", ", -1, 1")
INTEGERS(bytes, "m64n24k32.s32.s8.u8 ", "")
INTEGERS(unsigned_bytes, "m64n24k32.s32.u8.s8.satfinite ", "")
INTEGERS(bits, "m64n24k256.s32.b1.b1.and.popc ", "")

// Sums of .f16, two in a register, and a in registers.
struct halves_in_registers {
    static constexpr int N = 72, COUNT = 36;
    using sum = float;
    static __device__ void multiply(float *d, const unsigned *a, unsigned long long b, int keep)
    {
        unsigned packed[18];
        for (int i = 0; i < 18; i++)
            packed[i] = __half_as_ushort(__float2half(d[2 * i])) |
                        (unsigned)__half_as_ushort(__float2half(d[2 * i + 1])) << 16;
        asm volatile(BEGIN("%23") "m64n72k16.f16.f16.f16 " SUMS_18
                                  ", {%18, %19, %20, %21}, %22, p, -1, 1, 0" END
                     : "+r"(packed[0]), "+r"(packed[1]), "+r"(packed[2]), "+r"(packed[3]), "+r"(packed[4]),
                       "+r"(packed[5]), "+r"(packed[6]), "+r"(packed[7]), "+r"(packed[8]), "+r"(packed[9]),
                       "+r"(packed[10]), "+r"(packed[11]), "+r"(packed[12]), "+r"(packed[13]),
                       "+r"(packed[14]), "+r"(packed[15]), "+r"(packed[16]), "+r"(packed[17])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep)
                     : "memory");
        for (int i = 0; i < 36; i++)
            d[i] = __half2float(__ushort_as_half((unsigned short)(packed[i / 2] >> 16 * (i % 2))));
    }
};

template <class Sum> __device__ void write_sums(Sum *out, const Sum *d, int n, int count)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < count; i++)
        out[(16 * warp + lane / 4 + 8 * (i / 2 % 2)) * n + 8 * (i / 4) + lane % 4 * 2 + i % 2] = d[i];
}

template <class A, class B>
__device__ void fill(unsigned char *a, unsigned char *b, const place &a_place, const place &b_place, int n,
                     int k)
{
    for (int i = threadIdx.x; i < M * k; i += WARPGROUP)
        store((A *)(a + a_place.offset(i / k, i % k, sizeof(A))), a_at(i / k, i % k));
    for (int i = threadIdx.x; i < n * k; i += WARPGROUP)
        store((B *)(b + b_place.offset(i / k, i % k, sizeof(B))), b_at(i / k, i % k));
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
}

// The product, and what comes of it when it is added to sums of 10 (keep) or takes their place.
template <class Kind, class A, class B>
__global__ void multiply(typename Kind::sum *out, place a_place, place b_place, int k, int keep)
{
    extern __shared__ __align__(AT) unsigned char memory[];
    typename Kind::sum d[Kind::COUNT];
    fill<A, B>(memory, memory + ROOM, a_place, b_place, Kind::N, k);
    for (int i = 0; i < Kind::COUNT; i++)
        d[i] = 10;
    Kind::multiply(d, a_place.descriptor(memory), b_place.descriptor(memory + ROOM), keep);
    write_sums(out, d, Kind::N, Kind::COUNT);
}

__global__ void multiply_registers(float *out, place b_place, int keep)
{
    extern __shared__ __align__(AT) unsigned char memory[];
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, k = threadIdx.x % 4 * 2;
    float d[36];
    unsigned a[4];
    fill<half, half>(memory, memory + ROOM, place(PLAIN, false, M), b_place, 72, 16);
    for (int i = 0; i < 36; i++)
        d[i] = 10;
    for (int i = 0; i < 4; i++) {
        half pair[2];
        for (int e = 0; e < 2; e++)
            store(&pair[e], a_at(row + i % 2 * 8, k + i / 2 * 8 + e));
        a[i] = __half_as_ushort(pair[0]) | (unsigned)__half_as_ushort(pair[1]) << 16;
    }
    halves_in_registers::multiply(d, a, b_place.descriptor(memory + ROOM), keep);
    write_sums(out, d, 72, 36);
}

template <class Sum>
void check(const Sum *device, int n, int k, int sign, int keep, int (*product)(int, int), const char *what)
{
    static Sum sums[M * 256];
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(sums, device, M * n * sizeof(Sum), cudaMemcpyDeviceToHost));
    for (int row = 0; row < M; row++)
        for (int column = 0; column < n; column++) {
            int sum = 0;
            for (int i = 0; i < k; i++)
                sum += product(a_at(row, i), b_at(column, i));
            const double wanted = sign * sum + (keep ? 10 : 0);
            if ((double)sums[row * n + column] != wanted) {
                fprintf(stderr, "%s, k %d, keep %d: row %d, column %d: %g, not %g\n", what, k, keep, row,
                        column, (double)sums[row * n + column], wanted);
                exit(1);
            }
        }
}

// What an element of a and one of b add to a sum, by the numbers that they were made of.
static int plain(int a, int b)
{
    return a * b;
}
static int unsigned_b(int a, int b)
{
    return a * (b + 3);
}
static int unsigned_a(int a, int b)
{
    return (a + 3) * b;
}
static int common_bits(int a, int b)
{
    return __builtin_popcount(a & b & 255);
}

static void *out;

template <class Kind, class A, class B>
void run(const char *what, bool a_across, bool b_across, int k, int sign, int (*product)(int, int) = plain)
{
    static const layout layouts[] = {PLAIN, ROWS_OF_128, ROWS_OF_64, ROWS_OF_32};
    OK(cudaFuncSetAttribute(multiply<Kind, A, B>, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * ROOM));
    for (layout a : layouts)
        for (layout b : layouts)
            for (int keep = 0; keep < 2; keep++) {
                multiply<Kind, A, B><<<1, WARPGROUP, 2 * ROOM>>>(
                    (typename Kind::sum *)out, place(a, a_across, M), place(b, b_across, Kind::N), k, keep);
                check((typename Kind::sum *)out, Kind::N, k, sign, keep, product, what);
            }
}

int main()
{
    int major;
    OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    REQUIRE(major == 9); // the only one that has it
    OK(cudaMalloc(&out, M * 256 * sizeof(float)));
    run<halves, half, half>("f16", false, false, 16, 1);
    run<halves_a_across, half, half>("f16, a MN-major", true, false, 16, 1);
    run<halves_b_across, half, half>("f16, b MN-major", false, true, 16, -1);
    run<brains, __nv_bfloat16, __nv_bfloat16>("bf16, both MN-major", true, true, 16, 1);
    run<words, float, float>("tf32", false, false, 8, -1);
    run<eights, __nv_fp8_e4m3, __nv_fp8_e5m2>("e4m3, e5m2", false, false, 32, -1);
    run<bytes, signed char, unsigned char>("s8, u8", false, false, 32, 1, unsigned_b);
    run<unsigned_bytes, unsigned char, signed char>("u8, s8", false, false, 32, 1, unsigned_a);
    run<bits, eight_bits, eight_bits>("b1", false, false, 32, 1, common_bits);
    OK(cudaFuncSetAttribute(multiply_registers, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * ROOM));
    for (int keep = 0; keep < 2; keep++) {
        multiply_registers<<<1, WARPGROUP, 2 * ROOM>>>((float *)out, place(ROWS_OF_128, false, 72), keep);
        check((float *)out, 72, 16, -1, keep, plain, "f16, a in registers");
    }
    printf("products of warpgroups as they should be\n");
    return 0;
}
