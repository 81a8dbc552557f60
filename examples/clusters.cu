/*
 * Thread block clusters: blocks that run together and reach into each other's shared memory. A histogram whose bins lie spread
 * over the blocks of a cluster, messages that go round a ring of blocks, a table that one copy brings to all of them, and sums
 * that each block adds to the next one's memory. Then what the device says of clusters, right and wrong.
 */
#include "example.h"
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <vector>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int threads = 128;

static __device__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ void wait_for(uint64_t *barrier, uint32_t parity)
{
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
    }
}

/* Block r of a cluster has the bins from r * bins_per_block on. */
__global__ void histogram(const int *values, int n, int bins_per_block, unsigned *result)
{
    extern __shared__ unsigned bins[];
    cg::cluster_group cluster = cg::this_cluster();
    int rank = (int)cluster.block_rank(), blocks = (int)cluster.num_blocks();

    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) {
        bins[i] = 0;
    }
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int bin = values[i] % (bins_per_block * blocks);
        atomicAdd(cluster.map_shared_rank(bins, bin / bins_per_block) + bin % bins_per_block, 1u);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) {
        atomicAdd(&result[rank * bins_per_block + i], bins[i]);
    }
}

/* Each block sends a word to the next one, whose barriers count the bytes; after a round each has had every word. */
__global__ void __cluster_dims__(2, 2, 1) ring(unsigned *result)
{
    __shared__ uint64_t full[4];
    __shared__ uint32_t slot[4];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), size = cluster.num_blocks(), next = (rank + 1) % size;
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x, sum = 0, word = 100 * block + rank;

    if (threadIdx.x == 0) {
        for (uint64_t &barrier : full) {
            ptx::mbarrier_init(&barrier, 1);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        for (uint64_t &barrier : full) {
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &barrier, 4);
        }
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        for (unsigned turn = 0; turn < size; turn++) {
            ptx::st_async(cluster.map_shared_rank(&slot[turn], next), word, cluster.map_shared_rank(&full[turn], next));
            wait_for(&full[turn], 0);
            word = slot[turn];
            sum = sum * 3 + word;
        }
        result[block] = sum;
    }
    cluster.sync();
}

/* The first block copies a table to all blocks at once; each adds its part to the next one's copy, in bulk. */
__global__ void spread(const uint32_t *table, uint32_t *result)
{
    __shared__ alignas(16) uint32_t copy[threads], part[threads];
    __shared__ uint64_t arrived, added;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), size = cluster.num_blocks(), next = (rank + 1) % size;

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&arrived, 1);
        ptx::mbarrier_init(&added, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &arrived, sizeof(copy));
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &added, sizeof(copy));
    }
    part[threadIdx.x] = (rank + 1) * 1000 + threadIdx.x;
    ptx::fence_proxy_async(ptx::space_shared);
    cluster.sync();
    if (rank == 0 && threadIdx.x == 0) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                     "[%3], %4;"
                     :
                     : "r"(shared_address(copy)), "l"(__cvta_generic_to_global(table)), "r"((uint32_t)sizeof(copy)),
                       "r"(shared_address(&arrived)), "h"((uint16_t)((1u << size) - 1))
                     : "memory");
    }
    wait_for(&arrived, 0);
    cluster.sync();
    if (threadIdx.x == 0) {
        ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, ptx::op_add, cluster.map_shared_rank(copy, next),
                                  part, sizeof(part), cluster.map_shared_rank(&added, next));
    }
    wait_for(&added, 0);
    result[blockIdx.x * threads + threadIdx.x] = copy[threadIdx.x];
    cluster.sync();
}

/* What a thread can ask of its cluster. */
__global__ void places(unsigned *result)
{
    __shared__ unsigned own;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned rank = cluster.block_rank(), last = cluster.num_blocks() - 1;
    dim3 index = cluster.block_index(), dim = cluster.dim_blocks();
    uint32_t remote, rank_of_remote;

    own = block;
    cluster.sync();
    unsigned seen = *cluster.map_shared_rank(&own, last - rank);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&own)), "r"(last - rank));
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank_of_remote) : "r"(remote));
    unsigned through_window;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(through_window) : "r"(remote) : "memory");
    bool right = through_window == seen && rank_of_remote == last - rank &&
                 cluster.query_shared_rank(cluster.map_shared_rank(&own, last)) == last &&
                 __isShared(&own) && __isClusterShared(cluster.map_shared_rank(&own, last)) &&
                 index.x + dim.x * (index.y + dim.y * index.z) == rank && blockIdx.x % dim.x == index.x;
    cluster.sync();
    if (threadIdx.x == 0) {
        result[block] = right ? seen * 16 + rank : ~0u;
    }
}

/* A launch of this kernel counts clusters, and its blocks have the size that is given here. */
__global__ void __block_size__((32, 1, 1), (2, 1, 1)) counted(unsigned *result)
{
    if (threadIdx.x == 0) {
        result[blockIdx.x] = blockDim.x * 10000 + gridDim.x * 100 + cg::this_cluster().block_rank();
    }
}

template <typename... Parameters, typename... Arguments>
static cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 cluster, size_t shared, Arguments... arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};

    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = cluster.x == 0 ? 0 : 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

static bool check_histogram(int n)
{
    const int bins_per_block = 50;
    bool right = true;
    std::vector<int> values(n);
    int *device_values;
    unsigned *device_bins;

    for (int i = 0; i < n; i++) {
        values[i] = (int)((i * 2654435761u) >> 12);
    }
    CHECK(cudaMalloc(&device_values, n * sizeof(int)));
    CHECK(cudaMemcpy(device_values, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&device_bins, 8 * bins_per_block * sizeof(unsigned)));
    for (unsigned size : {1u, 2u, 8u}) {
        std::vector<unsigned> bins(size * bins_per_block), expected(bins.size());
        CHECK(cudaMemset(device_bins, 0, bins.size() * sizeof(unsigned)));
        CHECK(launch(histogram, 16, size, bins_per_block * sizeof(unsigned), (const int *)device_values, n, bins_per_block,
                     device_bins));
        CHECK(cudaMemcpy(bins.data(), device_bins, bins.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int value : values) {
            expected[value % bins.size()]++;
        }
        printf("histogram in clusters of %u: first bins %u %u, last %u\n", size, bins[0], bins[1], bins.back());
        right &= bins == expected;
    }
    CHECK(cudaFree(device_values));
    CHECK(cudaFree(device_bins));
    return right;
}

static bool check_ring(unsigned *device)
{
    unsigned result[8];
    bool right = true;

    ring<<<dim3(4, 2), threads>>>(device);
    CHECK(cudaMemcpy(result, device, sizeof(result), cudaMemcpyDeviceToHost));
    for (unsigned block = 0; block < 8; block++) {
        unsigned x = block % 4, y = block / 4, rank = x % 2 + y % 2 * 2, expected = 0;
        for (unsigned turn = 1; turn <= 4; turn++) {
            unsigned from = (rank + 4 - turn) % 4;
            unsigned source = (y / 2 * 2 + from / 2) * 4 + x / 2 * 2 + from % 2;
            expected = expected * 3 + 100 * source + from;
        }
        right &= result[block] == expected;
        printf("%u%c", result[block], block == 7 ? '\n' : ' ');
    }
    return right;
}

static bool check_spread(unsigned *device)
{
    std::vector<uint32_t> table(threads), result(6 * threads);
    uint32_t *device_table;
    bool right = true;

    for (int i = 0; i < threads; i++) {
        table[i] = i * i;
    }
    CHECK(cudaMalloc(&device_table, threads * sizeof(uint32_t)));
    CHECK(cudaMemcpy(device_table, table.data(), threads * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK(launch(spread, 6, 3, 0, (const uint32_t *)device_table, device));
    CHECK(cudaMemcpy(result.data(), device, result.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    for (int i = 0; i < (int)result.size(); i++) {
        unsigned rank = i / threads % 3, before = (rank + 2) % 3, thread = i % threads;
        right &= result[i] == thread * thread + (before + 1) * 1000 + thread;
    }
    printf("spread: %u %u %u\n", result[5], result[threads + 5], result[5 * threads + 5]);
    CHECK(cudaFree(device_table));
    return right;
}

static bool check_places(unsigned *device)
{
    unsigned result[48];
    bool right = true;

    CHECK(launch(places, dim3(4, 6, 2), dim3(2, 3, 1), 0, device));
    CHECK(cudaMemcpy(result, device, sizeof(result), cudaMemcpyDeviceToHost));
    for (unsigned block = 0; block < 48; block++) {
        unsigned x = block % 4, y = block / 4 % 6, z = block / 24, rank = x % 2 + y % 3 * 2, other = 5 - rank;
        unsigned seen = (z * 6 + y / 3 * 3 + other / 2) * 4 + x / 2 * 2 + other % 2;
        right &= result[block] == seen * 16 + rank;
    }
    printf("places: %u %u %u\n", result[0], result[17], result[47]);
    return right;
}

static bool check_counted(unsigned *device)
{
    unsigned result[6];

    counted<<<3, 1>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(result, device, sizeof(result), cudaMemcpyDeviceToHost));
    printf("counted: %u %u\n", result[4], result[5]);
    return result[4] == 320600 && result[5] == 320601;
}

static void show_answers(unsigned *device)
{
    cudaFuncAttributes attributes;
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    int value, clusters = 0;

    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrClusterLaunch, 0));
    CHECK(cudaFuncGetAttributes(&attributes, ring));
    printf("clusters: %s; ring: %d x %d x %d, must be set: %d\n", value ? "yes" : "no", attributes.requiredClusterWidth,
           attributes.requiredClusterHeight, attributes.requiredClusterDepth, attributes.clusterDimMustBeSet);
    config.gridDim = 32;
    config.blockDim = threads;
    CHECK(cudaOccupancyMaxPotentialClusterSize(&value, places, &config));
    printf("largest cluster: %d", value);
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, places, &config));
    printf(", some of 4 at once: %s\n", clusters > 0 ? "yes" : "no");
    printf("16 blocks: %s\n", cudaGetErrorName(launch(places, 32, 16, 0, device)));
    printf("3 of 32 blocks: %s\n", cudaGetErrorName(launch(places, 32, 3, 0, device)));
    printf("another shape than the kernel's: %s\n", cudaGetErrorName(launch(ring, 32, 4, 0, device)));
    CHECK(cudaFuncSetAttribute(places, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    printf("16 blocks, if they may: %s\n", cudaGetErrorName(launch(places, 32, 16, 0, device)));
    (void)cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    struct example example = example_begin("clusters", "[VALUES]", argc, argv);
    int n = example_number(&example, 0, 1, 1 << 24, 20000);
    unsigned *device;
    bool right;

    CHECK(cudaMalloc(&device, 6 * threads * sizeof(unsigned)));
    right = check_histogram(n);
    right &= check_ring(device);
    right &= check_spread(device);
    right &= check_places(device);
    right &= check_counted(device);
    show_answers(device);
    CHECK(cudaFree(device));
    return example_end(&example, right);
}
