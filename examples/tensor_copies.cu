/*
 * Copies of boxes of tensors as tensor maps describe them: a transposition whose tiles stick out at the edges and lie swizzled in
 * shared memory, a volume of which every second row is taken, tiles that one block brings to both blocks of a cluster, and sums
 * that all blocks add to the same box.
 */
#include "example.h"
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <vector>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int tile = 32;

static __device__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ void begin_wait(uint64_t *barrier, uint32_t bytes)
{
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, bytes);
    }
    __syncthreads();
}

static __device__ void end_wait(uint64_t *barrier)
{
    while (!ptx::mbarrier_try_wait_parity(barrier, 0)) {
    }
}

/* A row of a tile is 128 bytes, whose eight parts of 16 bytes are exchanged by the row's number. */
static __device__ int swizzled(int row, int column)
{
    return row * tile + ((column / 4 ^ row % 8) * 4 + column % 4);
}

__global__ void transpose(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to)
{
    __shared__ alignas(1024) float in[tile * tile], out[tile * tile];
    __shared__ uint64_t barrier;
    int32_t source[2] = {(int32_t)blockIdx.x * tile, (int32_t)blockIdx.y * tile}, target[2] = {source[1], source[0]};

    begin_wait(&barrier, sizeof(in));
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, in, &from, source, &barrier);
    }
    end_wait(&barrier);
    for (int i = threadIdx.x; i < tile * tile; i += blockDim.x) {
        out[i] = in[swizzled(i % tile, i / tile)];
    }
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, target, out);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}

/* Every block takes a box of the volume that begins before its edges, and adds what it finds. */
__global__ void add_up(const __grid_constant__ CUtensorMap volume, const __grid_constant__ CUtensorMap sums)
{
    __shared__ alignas(128) int box[8 * 4 * 2];
    __shared__ uint64_t barrier;
    int32_t corner[3] = {(int32_t)blockIdx.x * 8 - 4, -1, (int32_t)blockIdx.y}, first[1] = {0};

    begin_wait(&barrier, sizeof(box));
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box, &volume, corner, &barrier);
    }
    end_wait(&barrier);
    if (threadIdx.x == 0) {
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &sums, first, box);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}

/* The first block of each cluster brings its tile to both; each adds the rows of its half. */
__global__ void __cluster_dims__(2, 1, 1) share(const __grid_constant__ CUtensorMap from, float *result)
{
    __shared__ alignas(1024) float in[tile * tile];
    __shared__ uint64_t barrier;
    cg::cluster_group cluster = cg::this_cluster();
    int rank = (int)cluster.block_rank();

    begin_wait(&barrier, sizeof(in));
    cluster.sync();
    if (rank == 0 && threadIdx.x == 0) {
        int column = (int)blockIdx.x / 2 * tile, row = 0;
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                     "[%1, {%2, %3}], [%4], %5;"
                     :
                     : "r"(shared_address(in)), "l"(&from), "r"(column), "r"(row), "r"(shared_address(&barrier)),
                       "h"((uint16_t)3)
                     : "memory");
    }
    end_wait(&barrier);
    if (threadIdx.x < tile) {
        float sum = 0;
        for (int row = rank * tile / 2; row < (rank + 1) * tile / 2; row++) {
            sum += in[swizzled(row, threadIdx.x)];
        }
        result[blockIdx.x * tile + threadIdx.x] = sum;
    }
    cluster.sync();
}

typedef CUresult (*encode_tiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                 const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_tiled encode;

static CUtensorMap make_map(CUtensorMapDataType type, void *address, const std::vector<cuuint64_t> &sizes, size_t row_bytes,
                            const std::vector<cuuint32_t> &box, const std::vector<cuuint32_t> &steps, CUtensorMapSwizzle swizzle)
{
    CUtensorMap map;
    std::vector<cuuint64_t> strides;

    for (size_t i = 1; i < sizes.size(); i++) {
        strides.push_back(i == 1 ? row_bytes : strides.back() * sizes[i - 1]);
    }
    if (encode(&map, type, (cuuint32_t)sizes.size(), address, sizes.data(), strides.data(), box.data(), steps.data(),
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
        printf("a tensor map could not be made\n");
        exit(1);
    }
    return map;
}

static bool check_transpose(int width, int height)
{
    size_t row = ((size_t)width * 4 + 15) / 16 * 16, column = ((size_t)height * 4 + 15) / 16 * 16;
    std::vector<float> from(row / 4 * height), to(column / 4 * width);
    float *device_from, *device_to, *device_sums;
    bool right = true;

    for (size_t i = 0; i < from.size(); i++) {
        from[i] = (float)(i % 977);
    }
    CHECK(cudaMalloc(&device_from, row * height));
    CHECK(cudaMalloc(&device_to, column * width));
    CHECK(cudaMemcpy(device_from, from.data(), row * height, cudaMemcpyHostToDevice));
    CUtensorMap source = make_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, device_from, {(cuuint64_t)width, (cuuint64_t)height}, row,
                                  {tile, tile}, {1, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap target = make_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, device_to, {(cuuint64_t)height, (cuuint64_t)width}, column,
                                  {tile, tile}, {1, 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
    transpose<<<dim3((width + tile - 1) / tile, (height + tile - 1) / tile), 128>>>(source, target);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(to.data(), device_to, column * width, cudaMemcpyDeviceToHost));
    for (int x = 0; x < width; x++) {
        for (int y = 0; y < height; y++) {
            right &= to[column / 4 * x + y] == from[row / 4 * y + x];
        }
    }
    printf("transposed: %g %g\n", to[1], to[column / 4 * (width - 1) + height - 1]);

    int clusters = (width + tile - 1) / tile;
    std::vector<float> sums(clusters * 2 * tile);
    CHECK(cudaMalloc(&device_sums, sums.size() * sizeof(float)));
    share<<<clusters * 2, 64>>>(source, device_sums);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(sums.data(), device_sums, sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < sums.size(); i++) {
        int x = (int)(i / tile / 2 * tile + i % tile), half = (int)(i / tile % 2);
        float expected = 0;
        for (int y = half * tile / 2; x < width && y < (half + 1) * tile / 2 && y < height; y++) {
            expected += from[row / 4 * y + x];
        }
        right &= sums[i] == expected;
    }
    printf("shared: %g %g\n", sums[0], sums[tile]);
    CHECK(cudaFree(device_from));
    CHECK(cudaFree(device_to));
    CHECK(cudaFree(device_sums));
    return right;
}

static bool check_volume()
{
    const int width = 20, height = 6, depth = 5;
    std::vector<int> volume(width * height * depth), sums(64), expected(64);
    int *device_volume, *device_sums;

    for (size_t i = 0; i < volume.size(); i++) {
        volume[i] = (int)(i * 31 % 1000);
    }
    CHECK(cudaMalloc(&device_volume, volume.size() * sizeof(int)));
    CHECK(cudaMalloc(&device_sums, sums.size() * sizeof(int)));
    CHECK(cudaMemcpy(device_volume, volume.data(), volume.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_sums, 0, sums.size() * sizeof(int)));
    CUtensorMap source = make_map(CU_TENSOR_MAP_DATA_TYPE_INT32, device_volume, {width, height, depth}, width * sizeof(int),
                                  {8, 7, 2}, {1, 2, 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
    CUtensorMap target = make_map(CU_TENSOR_MAP_DATA_TYPE_INT32, device_sums, {64}, 0, {64}, {1}, CU_TENSOR_MAP_SWIZZLE_NONE);
    add_up<<<dim3(3, depth), 32>>>(source, target);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(sums.data(), device_sums, sums.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int block = 0; block < 3 * depth; block++) {
        for (int i = 0; i < 64; i++) {
            int x = block % 3 * 8 - 4 + i % 8, y = -1 + i / 8 % 4 * 2, z = block / 3 + i / 32;
            if (x >= 0 && x < width && y >= 0 && y < height && z < depth) {
                expected[i] += volume[(z * height + y) * width + x];
            }
        }
    }
    printf("sums: %d %d %d\n", sums[8], sums[31], sums[63]);
    CHECK(cudaFree(device_volume));
    CHECK(cudaFree(device_sums));
    return sums == expected;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("tensor_copies", "[WIDTH [HEIGHT]]", argc, argv);
    int width = example_number(&example, 0, 1, 4096, 100), height = example_number(&example, 1, 1, 4096, 77);
    cudaDriverEntryPointQueryResult found;
    bool right;

    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    right = check_transpose(width, height);
    right &= check_volume();
    return example_end(&example, right);
}
