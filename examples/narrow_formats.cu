/*
 * Numbers of 8, 6 and 4 bits, and scales that are powers of two: conversions on the device, of every code and of many values,
 * compared with what the same functions of CUDA's headers give on the host.
 */
#include "example.h"
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <vector>

constexpr int formats = 12;
static const char *const names[formats] = {"e4m3 of float",  "e5m2 of float",  "e4m3 of half",    "e5m2 of half",
                                           "e2m3 of float",  "e3m2 of float",  "e2m1 of float",   "e8m0 of float, up",
                                           "e8m0 of bfloat", "half of 8 bits", "half of 6 and 4", "bfloat of e8m0"};

static __host__ __device__ uint32_t half_bits(__half_raw half)
{
    return half.x;
}

/* What the conversion makes of a pattern of bits. */
static __host__ __device__ uint32_t convert(int format, uint32_t bits)
{
    float value;
    __half_raw half;
    __nv_bfloat16_raw bfloat;

    memcpy(&value, &bits, sizeof(value));
    half.x = (unsigned short)bits;
    bfloat.x = (unsigned short)bits;
    switch (format) {
    case 0:
        return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    case 1:
        return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
    case 2:
        return __nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, __NV_E4M3);
    case 3:
        return __nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, __NV_E5M2);
    case 4:
        return __nv_cvt_float_to_fp6(value, __NV_E2M3, cudaRoundNearest);
    case 5:
        return __nv_cvt_float_to_fp6(value, __NV_E3M2, cudaRoundNearest);
    case 6:
        return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest);
    case 7:
        return __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf);
    case 8:
        return __nv_cvt_bfloat16raw_to_e8m0(bfloat, __NV_NOSAT, cudaRoundZero);
    case 9:
        return half_bits(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, __NV_E4M3)) |
               half_bits(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, __NV_E5M2)) << 16;
    case 10:
        return half_bits(__nv_cvt_fp6_to_halfraw((__nv_fp6_storage_t)(bits & 63), __NV_E2M3)) +
               half_bits(__nv_cvt_fp6_to_halfraw((__nv_fp6_storage_t)(bits & 63), __NV_E3M2)) * 3 +
               half_bits(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)(bits & 15), __NV_E2M1)) * 7;
    default:
        return __nv_cvt_e8m0_to_bf16raw((__nv_fp8_storage_t)bits).x;
    }
}

__global__ void convert_all(int format, const uint32_t *bits, uint32_t *result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        result[i] = convert(format, bits[i]);
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("narrow_formats", "[VALUES]", argc, argv);
    int n = example_number(&example, 0, 1, 1 << 24, 1 << 17);
    std::vector<uint32_t> bits(n), result(n);
    uint32_t *device_bits, *device_result;
    bool right = true;

    CHECK(cudaMalloc(&device_bits, n * sizeof(uint32_t)));
    CHECK(cudaMalloc(&device_result, n * sizeof(uint32_t)));
    for (int format = 0; format < formats; format++) {
        uint32_t sum = 0;
        int wrong = 0;
        for (int i = 0; i < n; i++) {
            bool narrow = format == 2 || format == 3 || format >= 8;
            /* floats of all exponents that matter, with few digits and with many */
            uint32_t some = i % 2 ? example_mix((uint32_t)i) : (uint32_t)i << 15;
            bits[i] = narrow ? (uint32_t)i & 0xffff : (some & 0x80ffffff) | (0x30000000u + (some & 0x1f000000u));
            if (!narrow && i < 16) {
                static const uint32_t ends[] = {0, 0x80000000, 1, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000};
                bits[i] = ends[i % 8];
            }
        }
        CHECK(cudaMemcpy(device_bits, bits.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice));
        convert_all<<<(n + 255) / 256, 256>>>(format, device_bits, device_result, n);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(result.data(), device_result, n * sizeof(uint32_t), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) {
            sum = sum * 31 + result[i];
            wrong += result[i] != convert(format, bits[i]);
        }
        printf("%s: %08x, %d wrong\n", names[format], sum, wrong);
        right &= wrong == 0;
    }
    CHECK(cudaFree(device_bits));
    CHECK(cudaFree(device_result));
    return example_end(&example, right);
}
